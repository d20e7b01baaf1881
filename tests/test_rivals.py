"""Texts that are nearly alike: one of them is tried and one enters, and one in force is changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from desk import Desk, libraries, steps
from desk import made as made_desk
from scripted import ScriptedEndpoint, comparison_of, stage, write_problems
from store_helpers import fixed

from tfgrpo.domains.verifier import Verifier
from tfgrpo.learn.advantage import Effect
from tfgrpo.learn.assign import belonging, hidden
from tfgrpo.learn.decide import Decisions, without_rivals
from tfgrpo.learn.gate import Trial
from tfgrpo.learn.policies.probation import Probation
from tfgrpo.learn.policies.protocol import Learned, Step
from tfgrpo.learn.rivals import Rivals, are_alike, of_name, replaced
from tfgrpo.runs.run_record import candidates
from tfgrpo.store import Experience, Library, Store
from tfgrpo.store.records import ROOT

pytestmark = pytest.mark.usefixtures("spoken")

BOTH = "When two numbers are joined by op, add them and then add one more."
AGAIN = "When two numbers are joined by op, add them, and then add one to it."
OTHER = "Ein angefangener Tag zählt voll."


class Anywhere:
    """Where experiences belong: the problems named, else all."""

    def __init__(self, **places: set[str]) -> None:
        self._places = places

    def is_near(self, experience: str, problem: str) -> bool:
        return experience not in self._places or problem in self._places[experience]

    def common(self, one: str, other: str) -> float:
        if not self._places.keys() >= {one, other}:
            return 1.0
        a, b = self._places[one], self._places[other]
        return len(a & b) / min(len(a), len(b))


def rivals(
    candidates: Mapping[str, str], in_force: Mapping[str, str] | None = None, **places: set[str]
) -> Rivals:
    return Rivals(candidates, in_force or {}, Anywhere(**places))


def test_a_challenger_is_of_what_it_is_nearly_like_and_belongs_with() -> None:
    there = {"e": BOTH, "f": OTHER}
    found = rivals({"c": AGAIN, "d": "四舍五入到整数。"}, there)
    assert found.stands_for("c") == "e"
    assert found.stands_for("d") is None
    assert (of_name(found.name("c")), replaced(found.name("c"))) == ("c", "e")
    assert found.name("d") == "d"
    assert found.name("examples") == "examples"
    apart = rivals({"c": AGAIN}, there, c={"p1"}, e={"p2"})
    assert apart.stands_for("c") is None, "two rules for other problems"


def test_what_is_measured_against_one_wording_says_nothing_of_another() -> None:
    name = rivals({"c": AGAIN}, {"e": BOTH}).name("c")
    assert rivals({"c": AGAIN}, {"e": BOTH + "!"}).name("c") != name
    assert rivals({"c": AGAIN}, {}).name("c") == "c"


def test_a_challenger_is_tried_where_either_belongs() -> None:
    found = rivals({"c": AGAIN}, {"e": BOTH}, c={"p1", "p2"}, e={"p2", "p3"})
    assert [found.is_near("c", f"p{n}") for n in (1, 2, 3, 4)] == [True, True, True, False]


def test_words_of_a_prompt_are_like_words_for_the_same_place_alone() -> None:
    assert are_alike("[objective] Solve it.", "[objective] 请计算。")
    assert not are_alike("[objective] Use the search well.", "[tool search] Use the search well.")
    assert not are_alike("[objective] Solve the problem.", "Solve the problem.")
    found = rivals({"c": "[objective] New."}, {"e": "[objective] Old.", "f": "[objective] Later."})
    assert found.stands_for("c") == "f", "the last one counts"


def test_one_of_rivals_enters_that_of_the_surest_effect() -> None:
    def effect(mean: float, chance: float) -> Effect:
        return Effect(mean, 0.1, chance, chance, 20, 20)

    effects = {"a": effect(0.3, 0.93), "b": effect(0.2, 0.97), "c": effect(0.2, 0.95)}
    decided = Decisions(("a", "b", "c"), (), ())
    found = rivals({"a": BOTH, "b": AGAIN, "c": OTHER})
    assert without_rivals(decided, effects, found).promoted == ("b", "c")
    apart = rivals({"a": BOTH, "b": AGAIN, "c": OTHER}, a={"p1"}, b={"p2"})
    assert without_rivals(decided, effects, apart).promoted == ("a", "b", "c")
    leaving = rivals({"a": BOTH}, {"e": AGAIN})
    gone = Decisions(("a",), (), ("e",))
    assert without_rivals(gone, effects, leaving).promoted == (), "it beat what leaves"


def library(texts: Iterable[tuple[str, str]]) -> Library:
    return Library(ROOT, tuple(Experience(id, text, 0) for id, text in texts))


def test_what_would_be_replaced_is_hidden_just_where_its_challenger_is_shown() -> None:
    pool = library([("e", BOTH), ("f", OTHER), ("c", AGAIN)])
    names = [rivals({"c": AGAIN}, {"e": BOTH}).name("c")]
    there = belonging(pool, ("e", "f"), "p", (None, None), names)
    assert there.factors == ("e", "f", names[0])
    alone = 0
    for n in range(400):
        for sample in (0, 1):
            absent = hidden(there, 0, (n, "p"), sample)
            shown = there.shown(absent)
            assert ("c" in shown) == ("c" not in absent)
            assert not {"c", "e"} <= shown
            alone += not {"c", "e"} & shown
    assert 30 < alone < 90, "it goes on being hidden from a few of the others"
    elsewhere = belonging(pool.less({"e"}), ("f",), "p", (None, None), names)
    assert elsewhere.factors == ("f", "c"), "what is not shown has no place to be taken"


# runs:


def scripted(worth: Mapping[str, float]) -> Callable[[dict[str, Any]], str]:
    """Attempts are right by a coin that the best of the texts shown turns; comparisons bring
    all."""
    texts = list(worth)

    def script(request: dict[str, Any]) -> str:
        user = request["messages"][-1]["content"]
        coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()
        if stage(request) != "rollout":
            text = texts[coin[0] % len(texts)]
            return json.dumps(comparison_of([{"reason": "because", "text": text}]))
        a, b = (int(word) for word in user.rstrip("?").split() if word.isdigit())
        shown = request["messages"][0]["content"]
        best = max((gain for text, gain in worth.items() if text in shown), default=0.0)
        is_right = int.from_bytes(coin[:4], "big") / 2**32 < 0.25 + best
        return f"\\boxed{{{a + b + is_right}}}"

    return script


@pytest.fixture
def make(tmp_path: Path, verifier: Verifier) -> Callable[..., Desk]:
    values = {"policy": "probation", "count": 16, "batch_size": 8, "group_size": 6, "epochs": 6}
    return partial(made_desk, tmp_path, verifier, examples=False, **values)


def trained(desk: Desk, worth: Mapping[str, float], *first: str) -> list[str]:
    """Returns the library that a run ends with; it begins with `first`."""
    if first:
        with desk.store() as store:
            store.commit("main", map(fixed, first), message="m")
    desk.prepare()
    with ScriptedEndpoint(scripted(worth)) as server:
        desk.train(server)
    return [text for _, text in libraries(desk.path)[-1]]


def test_two_ways_to_say_one_rule_become_one_experience(make: Callable[..., Desk]) -> None:
    final = trained(make(), {BOTH: 0.65, AGAIN: 0.65})
    assert len(final) == 1
    assert final[0] in (BOTH, AGAIN)


def test_a_better_wording_changes_the_experience_and_its_id_stays(
    make: Callable[..., Desk],
) -> None:
    desk = make(epochs=10)
    assert trained(desk, {AGAIN: 0.7, BOTH: 0.1}, BOTH) == [AGAIN]
    with Store.open(desk.path) as store:
        before, after = store.library("run/step_0"), store.library("main")
        assert [e.id for e in before] == [e.id for e in after]
        (event,) = [e for v in steps(desk.path) for e in store.events(v) if e.op == "MODIFY"]
        evidence = event.evidence or {}
        assert evidence["effect"][0] > 0.2
        assert evidence["chance"] >= 0.8
        assert len(evidence["before"]["effect"]) == 3
        run = store.runs.get("run")
        pool = store.library("run/candidates")
        assert [(e.id, e.text) for e in pool][:1] == [(e.id, e.text) for e in after]
        assert evidence["candidate"] not in pool.by_id
        (entered,) = [one for one in candidates(store, run) if one.state == "entered"]
        assert (entered.experience, entered.text) == (evidence["candidate"], AGAIN)
        assert entered.measured is not None


def test_a_run_that_was_cut_off_measures_challengers_as_one_that_was_not(
    make: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    worth = {AGAIN: 0.7, BOTH: 0.1}
    whole, cut = (make(name=name, epochs=4) for name in ("whole", "cut"))
    trained(whole, worth, BOTH)
    learn = Probation.learn

    class CutOff(Exception):
        pass

    async def dies(self: Probation, step: Step) -> Learned:
        if step.number == 5:
            raise CutOff
        return await learn(self, step)

    monkeypatch.setattr(Probation, "learn", dies)
    with pytest.raises(CutOff):
        trained(cut, worth, BOTH)
    monkeypatch.undo()
    with ScriptedEndpoint(scripted(worth)) as server:
        cut.train(server)
    with Store.open(whole.path) as one, Store.open(cut.path) as other:
        for name in ("main", "run/candidates"):
            assert one.library(name) == other.library(name)
        rows = list(one.runs.rollouts(one.runs.get("run")))
    assert any(" for " in name for row in rows for name in row.verdict.get("belongs", ()))


def test_a_wording_that_is_no_better_changes_nothing(make: Callable[..., Desk]) -> None:
    assert trained(make(epochs=10), {AGAIN: 0.1, BOTH: 0.6}, BOTH) == [BOTH]


def test_a_challenger_stays_where_the_gate_rejects_the_step_that_would_bring_it(
    make: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_problems(tmp_path / "gate.jsonl", 2)
    desk = make(epochs=10, gate=str(tmp_path / "gate.jsonl"))
    monkeypatch.setattr(Trial, "verdict", "rejected")
    assert trained(desk, {AGAIN: 0.7, BOTH: 0.1}, BOTH) == [BOTH]
    with Store.open(desk.path) as store:
        run = store.runs.get("run")
        there = [one for one in candidates(store, run) if one.text == AGAIN]
        assert [one.state for one in there] == ["on probation"]
        tried = [v for v in store.log("main") if "gate" in v.meta]
        assert {v.meta["gate"]["verdict"] for v in tried} == {"rejected"}
