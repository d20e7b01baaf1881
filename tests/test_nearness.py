"""What belongs to a problem, what is tried at it, and what an effect is elsewhere."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfgrpo.data.problems import Problem
from tfgrpo.learn.advantage import Effect, mean_effect
from tfgrpo.learn.assign import CANDIDATES, tried
from tfgrpo.learn.in_use import Choices, effects_in_use
from tfgrpo.learn.rivals import FEWEST, Nearness, challenger
from tfgrpo.rendering.near_duplicates import NgramIndex
from tfgrpo.store import ROOT, Experience, Library, Operation, Store

KINDS = {
    "boxes": "{} crates arrive on a van. How many rows do they fill?",
    "Miete": "Das Rad wird {} Tage lang geliehen. Was kostet das?",
    "茶": "茶馆今天卖出{}壶茶，一共要收多少元？",
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.init(tmp_path, author="tests") as opened:
        yield opened


def problems(count: int = 8) -> list[Problem]:
    return [
        Problem(f"{kind}-{n}", text.format(n + 2), "1")
        for n in range(count)
        for kind, text in KINDS.items()
    ]


EVERY = [one.id for one in problems()]
RUN: Any = SimpleNamespace(name="run")


def lesson(store: Store, id: str, text: str, *taught_by: str, run: str = RUN.name) -> str:
    """Adds a lesson that problems have taught in a run; nobody where none is named."""
    taught = {"run": run, "problem": taught_by[0], "problems": list(taught_by)} if taught_by else {}
    evidence = taught or None
    store.commit("main", [Operation("ADD", id, text, "", evidence)], message="m")
    return id


def belongs(near: Nearness, id: str) -> Counter[str]:
    return Counter(one.id.split("-")[0] for one in problems() if near.is_near(id, one.id))


def test_a_lesson_belongs_to_problems_like_the_one_that_taught_it(store: Store) -> None:
    near = Nearness(store, RUN, problems())
    for number, kind in enumerate(KINDS):
        id = lesson(store, f"{number:012d}", "Say nothing of the matter.", f"{kind}-3")
        found = belongs(near, id)
        assert found[kind] >= FEWEST, "its own words name no problem, so these do not decide"
        assert found[kind] == found.total()
        assert near.share(id, EVERY) == found.total() / len(problems())


def test_what_two_kinds_taught_belongs_to_both(store: Store) -> None:
    id = lesson(store, "0" * 12, "Write a number alone.", "boxes-1", "Miete-1")
    found = belongs(Nearness(store, RUN, problems()), id)
    assert found["boxes"] >= FEWEST
    assert found["Miete"] >= FEWEST
    assert not found["茶"]


def test_what_nobody_is_known_to_have_taught_belongs_everywhere(store: Store) -> None:
    near = Nearness(store, RUN, problems())
    by_hand = lesson(store, "0" * 12, "Round up.")
    elsewhere = lesson(store, "1" * 12, "Round down.", "boxes-1", run="of other data")
    assert near.share(by_hand, EVERY) == near.share(elsewhere, EVERY) == 1, (
        "their ids are the same by chance"
    )
    assert near.is_near("examples", "茶-1"), "a factor that is no experience"


def test_problems_are_ranked_once_for_each_that_taught(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    ranked = NgramIndex.ranked

    def counted(index: NgramIndex, text: str) -> list[str]:
        asked.append(text)
        return ranked(index, text)

    monkeypatch.setattr(NgramIndex, "ranked", counted)
    near = Nearness(store, RUN, problems(300))
    ids = [lesson(store, f"{n:012d}", f"Rule {n}.", f"boxes-{n}") for n in range(5)]
    for id in ids:
        assert near.share(id, [f"{kind}-{n}" for kind in KINDS for n in range(300)]) == 0.25
        assert sum(near.is_near(id, one.id) for one in problems(300)) == 225
    assert len(asked) == 5, "not once for each problem"


TEXTS = {
    f"c{n}": text
    for n, text in enumerate(
        (
            "Ein angefangener Tag zählt voll.",
            "Count a full crate only.",
            "四舍五入到整数。",
            "Escribe el número sin unidad.",
            "Die Kaution kommt hinzu.",
            "Divide by eight and round up.",
            "每桌另加茶位费。",
        )
    )
}


def test_what_may_be_worth_most_is_tried_most_and_what_is_unknown_has_its_turn() -> None:
    effects = {
        "c0": Effect(0.4, 0.1, 0.9, 1.0, 20, 20),
        "c1": Effect(-0.2, 0.05, 0.1, 0.0, 20, 20),
    }
    times = Counter(id for n in range(300) for id in tried(TEXTS, effects, 7, (1, f"p{n}")))
    assert times["c0"] > 280
    assert times["c1"] < 60
    assert all(times[id] > 100 for id in TEXTS if id not in effects)
    assert times.total() == 300 * CANDIDATES


def test_the_same_is_tried_whatever_the_order_of_candidates() -> None:
    turned = dict(reversed(TEXTS.items()))
    for n in range(20):
        assert tried(TEXTS, {}, 3, (n, "p")) == tried(turned, {}, 3, (n, "p"))
    assert len({tried(TEXTS, {}, 3, (n, "p")) for n in range(20)}) > 10


def test_two_that_are_nearly_alike_are_not_tried_together() -> None:
    texts = {
        "a": "To count working days, multiply the weeks by the working days of a week.",
        "b": "To count the working days, multiply the weeks by the working days in a week.",
        "c": "Ein angefangener Tag zählt voll.",
    }
    chosen = [tried(texts, {}, 1, (n, "p")) for n in range(40)]
    assert all(len(one) == 2 and "c" in one for one in chosen)
    assert {id for one in chosen for id in one} == {"a", "b", "c"}, "each has its turn"


def test_the_effect_of_what_is_in_force_is_the_mean_over_where_it_belongs_and_elsewhere() -> None:
    own = Effect(0.6, 0.1, 0.99, 1.0, 40, 40)
    other = Effect(-0.3, 0.1, 0.05, 0.01, 60, 10)
    both = mean_effect([(own, 0.25), (other, 0.75)])
    assert both.mean == pytest.approx(0.25 * 0.6 - 0.75 * 0.3)
    assert both.deviation == pytest.approx(math.hypot(0.025, 0.075))
    assert both.above < 0.25, "what helps at a quarter and harms at the rest leaves"
    assert (both.shown, both.hidden) == (100, 50)
    assert mean_effect([(own, 0.25)]) == own._replace(
        above=pytest.approx(1.0, abs=1e-6), chance=pytest.approx(0.99)
    )


def parts(top_k: int) -> Any:
    settings, domain = SimpleNamespace(top_k=top_k), SimpleNamespace(retrieve=None)
    return SimpleNamespace(settings=settings, domain=domain, problems=problems())


def of_kind(kind: str) -> set[str]:
    return {one for one in EVERY if one.startswith(kind)}


def test_in_use_a_prompt_gets_of_what_is_taken_the_part_that_fits_best() -> None:
    base = Library(ROOT, (Experience("a", "How many rows?", 0), Experience("b", "Das Rad", 0)))
    words = challenger("d", "a", "How many rows?")
    texts = {"c": "一共要收多少元", "d": "How many rows do crates on a van fill?"}
    choices = Choices(parts(1), base, ("a", "b"), texts)
    start = choices.in_use(("a", "b"))
    assert (start["a"] >= of_kind("boxes"), start["b"] >= of_kind("Miete")) == (True, True)
    assert set(start["a"]) | set(start["b"]) == set(EVERY)
    taken = choices.in_use(("a", "b", "c", words))
    assert [set(taken[one]) for one in ("a", "b", "c")] == [*map(of_kind, KINDS)]
    assert taken[words] == taken["a"], "it stands in its place"
    assert not choices.in_use(("b", words))[words], "what it stands in for has left"
    everywhere = Choices(parts(0), base, ("a", "b"), texts).in_use(("a", "c"))
    assert [len(there) for there in everywhere.values()] == [len(EVERY)] * 2


def test_what_an_experience_does_where_it_is_not_shown_in_use_counts_for_nothing() -> None:
    near: Any = SimpleNamespace(share=lambda id, there: sum(p < "p4" for p in there) / len(there))
    own = Effect(0.25, 0.1, 0.99, 0.99, 40, 40)
    effects = {"a": own, "a elsewhere": Effect(-0.3, 0.1, 0.05, 0.01, 60, 10)}
    shown = ["p0", "p1", "p2", "p3", "p7"]
    assert effects_in_use(effects, {"a": shown}, near)["a"].mean == pytest.approx(0.14)
    assert effects_in_use(effects, {"a": shown[:4]}, near)["a"].mean == pytest.approx(0.25)
    assert effects_in_use(effects, {"a": []}, near) == {}
    assert effects_in_use({"a": own}, {"a": ["p7"]}, near) == {}
