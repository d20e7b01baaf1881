"""Retrieval: the experiences that fit a problem, in library order, with the labels of the whole."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import Cli, problems
from hypothesis import given
from hypothesis import strategies as st
from scripted import LESSON, ScriptedEndpoint, stage

import tfgrpo
from tfgrpo.domains.prompt_library import PromptLibrary
from tfgrpo.rendering.experience_texts import example_text
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rendering.retrieve import (
    MOST_TOKENS,
    NEAREST,
    WHOLE,
    index,
    is_whole,
    relevant,
    shown_in_training,
)
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.store import ROOT, Experience, Operation, Store
from tfgrpo.store import Library as StoredLibrary

TEXTS = (
    "When eggs are counted, a dozen is twelve.",
    "When yards are turned into steps, multiply by 2.",
    "When reams are turned into sheets, multiply by 480.",
    "A ream of heavy paper has half the sheets.",
    "Check the sign.",
)
LIBRARY = StoredLibrary(ROOT, tuple(Experience(f"e{n}", t, n) for n, t in enumerate(TEXTS)))


def ids(library: StoredLibrary) -> list[str]:
    return [e.id for e in library]


def test_what_fits_comes_in_library_order_with_the_labels_of_the_whole() -> None:
    found = relevant(LIBRARY, "How many sheets are in three reams?", 2)
    assert prompt_text(found) == f"[G2] {TEXTS[2]}\n[G3] {TEXTS[3]}"
    assert dict(found.labels) == {"G2": "e2", "G3": "e3"}


def test_without_a_number_or_with_a_large_one_it_is_the_library_itself() -> None:
    assert relevant(LIBRARY, "reams", None) is LIBRARY
    assert relevant(LIBRARY, "reams", 5) is LIBRARY


def test_what_shares_no_word_comes_last_in_library_order() -> None:
    ranked = index(LIBRARY).ranked("reams and eggs")
    assert set(ranked[:3]) == {"e0", "e2", "e3"}
    assert ranked[3:] == ["e1", "e4"]
    assert index(LIBRARY).ranked("") == ids(LIBRARY)


@pytest.mark.parametrize(
    ("problem", "rules"),
    [
        ("How many crates for 47 jars?", ("Check the sign.", "A started crate is a full one.")),
        ("Wie viele Kisten für 47 Gläser?", ("Prüfe das Zeichen.", "Zähle eine Kiste voll.")),
        ("¿Cuántas cajas para 47 frascos?", ("Mira el signo.", "Una caja empezada es llena.")),
        ("47个罐子要多少个箱子？", ("核对符号。", "没装满的箱子按一整箱计算。")),
    ],
)
def test_what_fits_is_found_in_any_language(problem: str, rules: tuple[str, ...]) -> None:
    experiences = tuple(Experience(f"e{n}", text, n) for n, text in enumerate(rules))
    assert index(StoredLibrary(ROOT, experiences)).ranked(problem) == ["e1", "e0"]


def test_a_library_without_experiences_has_nothing_to_rank() -> None:
    assert index(StoredLibrary(ROOT, ())).ranked("reams") == []


def test_what_has_to_be_there_is_there() -> None:
    assert ids(relevant(LIBRARY, "sheets in reams", 2, always=("e4", "nobody"))) == ["e2", "e4"]


def test_examples_come_beside_what_fits() -> None:
    examples = [example_text(f"How many sheets are in {n} reams?", f"{n}") for n in range(3)]
    added = (Experience(f"x{n}", text, 9 + n) for n, text in enumerate(examples))
    library = StoredLibrary(ROOT, (*LIBRARY, *added))
    assert ids(relevant(library, "sheets in reams", 2)) == ["e2", "e3", "x0", "x1", "x2"]
    assert ids(relevant(library, "sheets", 1, always=("e4",))) == ["e4", "x0", "x1", "x2"]
    assert relevant(library, "sheets in reams", 5) is library


TOPICS = ("reams", "jars", "yards", "eggs", "coins")


def with_examples(count: int) -> StoredLibrary:
    texts = (
        example_text(f"Where are {n} {TOPICS[n % 5]}?", f"shelf {n % 5}") for n in range(count)
    )
    added = (Experience(f"x{n}", text, 9 + n) for n, text in enumerate(texts))
    return StoredLibrary(ROOT, (*LIBRARY, *added))


def reversed_order(library: StoredLibrary, problem: str) -> list[str]:
    return ids(library)[::-1]


def fails(library: StoredLibrary, problem: str) -> list[str]:
    raise AssertionError("nobody asked for so many experiences and no more")


@pytest.mark.parametrize(
    ("top_k", "lessons"), [(None, ["e0", "e1", "e2", "e3", "e4"]), (1, ["e3"])]
)
def test_of_many_examples_a_prompt_gets_those_that_are_most_like_its_problem(
    top_k: int | None, lessons: list[str]
) -> None:
    library = with_examples(WHOLE + 60)
    problem = "Where are the sheets of reams?"
    shown = ids(relevant(library, problem, top_k))
    near = range(0, 5 * NEAREST, 5)
    first = [n for n in range(WHOLE) if n not in near][: WHOLE - NEAREST]
    assert shown == [*lessons, *(f"x{n}" for n in sorted({*near, *first}))]
    assert relevant(library, problem, top_k).label_of["x10"] == "G15"
    assert not is_whole(library, None)
    first = ids(relevant(library, "", None))
    assert first == ids(library)[: len(LIBRARY) + WHOLE], "without a problem the first ones"
    few = with_examples(WHOLE)
    assert is_whole(few, None)
    assert relevant(few, problem, None) is few


def test_an_own_ranking_is_asked_for_lessons_alone() -> None:
    library, problem = with_examples(WHOLE + 60), "Where are the reams?"
    shown, own = (relevant(library, problem, 2, rank=one) for one in (None, reversed_order))
    assert ids(own)[:2] == ["e3", "e4"]
    assert ids(own)[2:] == ids(shown)[2:], "a proxy, which has no such ranking, shows these too"
    relevant(library, problem, None, rank=fails)


@pytest.mark.parametrize(("words", "most"), [(10, 32), (75, 9), (150, 5)])
def test_many_examples_take_no_more_room_than_a_prompt_has(words: int, most: int) -> None:
    texts = [example_text(" ".join([f"word {n}"] * words), "yes") for n in range(WHOLE + 5)]
    held = tuple(Experience(f"x{n}", text, n) for n, text in enumerate(texts))
    library = StoredLibrary(ROOT, held)
    for problem in ("", "word 17"):
        shown = relevant(library, problem, None)
        assert len(shown) == most
        assert sum(count_tokens(e.text) for e in shown) <= MOST_TOKENS
    assert "x17" in ids(relevant(library, "word 17", None))


def test_a_redacted_experience_is_neither_found_nor_does_it_shift_labels() -> None:
    gone = Experience("e0", "[redacted]", 0, redacted=True)
    library = StoredLibrary(ROOT, (gone, *tuple(LIBRARY)[1:]))
    found = relevant(library, "redacted reams", 2)
    assert "e0" not in ids(found)
    assert dict(found.labels) == {"G2": "e2", "G3": "e3"}


@given(st.text(max_size=80), st.integers(1, 6))
def test_any_problem_gets_just_so_many_and_always_the_same(text: str, top_k: int) -> None:
    found = relevant(LIBRARY, text, top_k)
    assert len(found) == min(top_k, len(LIBRARY))
    assert ids(found) == [id for id in ids(LIBRARY) if id in ids(found)]
    assert ids(relevant(LIBRARY, text, top_k)) == ids(found)
    for label, id in found.labels.items():
        assert LIBRARY.labels[label] == id
    lines = prompt_text(found).splitlines()
    assert lines == [line for line in prompt_text(LIBRARY).splitlines() if line in lines]


def test_python_gets_the_whole_library_unless_it_asks_for_a_part() -> None:
    library = PromptLibrary(LIBRARY)
    assert library.prompt() == prompt_text(LIBRARY)
    question = "How many sheets are in three reams?"
    assert library.prompt(question, top_k=2) == prompt_text(relevant(LIBRARY, question, 2))
    whole, part = library.render(question), library.render(question, top_k=2)
    assert TEXTS[0] in whole[0]["content"]
    assert TEXTS[0] not in part[0]["content"]
    assert TEXTS[2] in part[0]["content"]
    assert whole[-1] == part[-1]


def test_python_shows_a_problem_what_training_did_unless_it_asks_for_more() -> None:
    library = PromptLibrary(LIBRARY, top_k=2)
    question = "How many sheets are in three reams?"
    fitting = prompt_text(relevant(LIBRARY, question, 2))
    assert library.prompt(question) == fitting
    assert library.render(question)[0]["content"].endswith(fitting)
    assert library.prompt() == prompt_text(LIBRARY)
    assert library.prompt(question, top_k=9) == prompt_text(LIBRARY)


@pytest.mark.parametrize(
    ("config", "shown"),
    [
        ({"top_k": 2}, 2),
        ({"top_k": 0}, None),
        ({"top_k": -3}, None),
        ({"top_k": True}, None),
        ({"top_k": "2"}, None),
        ({}, None),
    ],
)
def test_what_training_showed_is_read_from_its_settings(
    config: dict[str, object], shown: int | None
) -> None:
    assert shown_in_training(config) == shown


# in training and evaluation:

SHOWN = re.compile(r"^\[(G\d+)\] ", re.M)
NOISE = [f"Advice number {word} about nothing." for word in ("one", "two", "three", "four")]


def prepared(cli: Cli, folder: Path) -> None:
    (folder / "problems.jsonl").write_text(problems(range(4)))
    cli("init")
    with Store.open(folder / ".tfgrpo" / "store.db") as store:
        store.commit(
            "main", [Operation("ADD", text=text) for text in (*NOISE, LESSON)], message="known"
        )


def rollout_labels(endpoint: ScriptedEndpoint) -> set[tuple[str, ...]]:
    return {
        tuple(SHOWN.findall(request["messages"][0]["content"]))
        for request in endpoint.requests
        if stage(request) == "rollout"
    }


def test_a_run_injects_what_fits_and_its_record_and_evaluations_say_so(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    prepared(cli, tmp_path)
    where = ("--base-url", endpoint.base_url, "--model", "m")
    cli(
        "train",
        "problems.jsonl",
        "--epochs",
        "1",
        *where,
        "--top-k",
        "2",
        "--keep-going",
        *("--policy", "paper"),  # which hides nothing from an attempt
    )
    assert rollout_labels(endpoint) == {("G0", "G4")}
    config = json.loads(cli("runs", "problems", "--json").stdout)["config"]
    assert config["top_k"] == 2
    endpoint.requests.clear()
    asked = ("eval", "problems.jsonl", "--samples", "1", "--json")
    found = json.loads(cli(*asked).stdout)["evaluations"][0]
    assert found["conditions"]["top_k"] == 2
    assert rollout_labels(endpoint) == {("G0", "G4")}
    copy = tmp_path / "copy"
    cli("clone", str(tmp_path), str(copy))  # which has no record of the run
    question = json.loads((tmp_path / "problems.jsonl").read_text().splitlines()[0])["problem"]
    for folder in (tmp_path, copy):
        prompt = tfgrpo.library(store=folder).render(question)[0]["content"]
        assert tuple(SHOWN.findall(prompt)) == ("G0", "G4")
    endpoint.requests.clear()
    found = json.loads(cli(*asked, "--top-k", "0").stdout)["evaluations"][0]
    assert "top_k" not in found["conditions"]
    assert rollout_labels(endpoint) == {("G0", "G1", "G2", "G3", "G4")}
