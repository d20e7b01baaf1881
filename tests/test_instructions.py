"""The base prompt and what is said of tools are items of a library like its lessons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from scripted import ScriptedEndpoint, write_problems
from store_helpers import fixed

from tfgrpo.learn.assign import belonging, fitting
from tfgrpo.rendering.experience_texts import OBJECTIVE, instruction
from tfgrpo.rendering.prompt_templates import load
from tfgrpo.rendering.render import prompt_text, rollout_messages
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.store import Store
from tfgrpo.store.records import ROOT, Experience, Library

TEMPLATE = load("rollout")
BASE = "Solve it, and say the number last."


def library(*texts: str) -> Library:
    return Library(ROOT, tuple(Experience(f"{n:012d}", text, n) for n, text in enumerate(texts)))


def shown(of: Library) -> str:
    return "\n".join(text for _, text in rollout_messages(TEMPLATE, of, "1 + 1?", "The settings'."))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"[objective] {BASE}", (OBJECTIVE, BASE)),
        ("[objective]\nOn two\nlines.", (OBJECTIVE, "On two\nlines.")),
        ("[tool web-search.v2] Ask it.", ("web-search.v2", "Ask it.")),
        ("[objective]", None),
        ("[objective] ", None),
        ("[tool] Ask it.", None),
        ("[tool a b] Ask it.", None),
        ("Objective: be right.", None),
        (" [objective] later", None),
    ],
)
def test_how_a_text_begins_says_what_it_is(text: str, words: tuple[str, str] | None) -> None:
    assert instruction(text) == words


def test_the_objective_of_a_library_is_the_prompts(tmp_path: Path) -> None:
    plain, other = (
        library("Count both.", "Round up."),
        library("Count both.", f"[objective] {BASE}"),
    )
    assert "The settings'." in shown(plain)
    assert BASE in shown(other)
    assert "The settings'." not in shown(other)
    assert "[objective]" not in shown(other)
    assert "[G0] Count both." in shown(other)
    last = library(f"[objective] {BASE}", "[tool python] Use it.", "[objective] The later one.")
    assert "The later one." in shown(last)
    assert BASE not in shown(last)
    assert "Use it." not in shown(last), "tools are told where they are"
    assert "(none yet)" in shown(last)
    assert f"[G1] [objective] {BASE}" in prompt_text(other), "as a text it is a line like others"


def test_a_part_of_a_library_has_its_words_beside_what_fits() -> None:
    whole = library(f"[objective] {BASE}", "Count days.", "Round euros.", "Mind units.")
    part = relevant(whole, "How many days?", 1)
    assert [e.text for e in part] == [f"[objective] {BASE}", "Count days."]


def test_words_on_probation_belong_to_every_problem() -> None:
    pool = library(*(f"rule {n} about days" for n in range(6)), f"[objective] {BASE}")
    *lessons, words = fitting(pool, "How many days?")
    assert len(lessons) == 4
    assert words == "000000000006"
    there = belonging(pool, (), "How many days?", (None, None), [*lessons, words])
    assert there.candidates == (*lessons, words)


def answered(request: dict[str, Any]) -> str:
    user, system = request["messages"][-1]["content"], request["messages"][0]["content"]
    a, b = (int(word) for word in user.rstrip("?").split() if word.isdigit())
    return f"\\boxed{{{a + b + (BASE in system)}}}"


def test_a_base_prompt_has_a_history_and_is_proved_like_a_lesson(cli: Cli, tmp_path: Path) -> None:
    write_problems(tmp_path / "problems.jsonl", 8)
    with Store.init(tmp_path, author="tests") as store:
        store.commit("main", map(fixed, ("[objective] Guess.", "Say nothing else.")), message="m")
    cli("modify", "G0", f"[objective] {BASE}")
    assert "Guess" in cli("diff", "v1", "v2").stdout
    assert BASE in cli("blame").stdout
    with ScriptedEndpoint(answered) as server:
        model = ("--model", "mine", "--base-url", server.base_url, "--data", "problems.jsonl")
        proved = json.loads(cli("prove", "main", *model, "--json").stdout)
    verdicts = {one["text"]: one["verdict"] for one in proved["experiences"]}
    assert verdicts[f"[objective] {BASE}"] == "helps"
    assert verdicts["Say nothing else."] == "too small"


def answered_as_shown(request: dict[str, Any]) -> str:
    is_shown = any(one["role"] == "assistant" for one in request["messages"])
    a, b = (int(w) for w in request["messages"][-1]["content"].rstrip("?").split() if w.isdigit())
    return answered(request) if not is_shown else f"\\boxed{{{a + b + 1}}}"


@pytest.mark.parametrize("text", [f"[objective] {BASE}", "Example: What is 70 op 8? → \\boxed{79}"])
def test_what_belongs_to_all_problems_is_proved_alone(cli: Cli, tmp_path: Path, text: str) -> None:
    """No lesson is there that any problem would be attempted for."""
    write_problems(tmp_path / "problems.jsonl", 8)
    with Store.init(tmp_path, author="tests") as store:
        store.commit("main", [fixed(text)], message="m")
    with ScriptedEndpoint(answered_as_shown) as server:
        model = ("--model", "mine", "--base-url", server.base_url, "--data", "problems.jsonl")
        proved = json.loads(cli("prove", "main", *model, "--json").stdout)
    assert [one["verdict"] for one in proved["experiences"]] == ["helps"]
