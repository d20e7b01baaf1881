"""What is said of a tool as a candidate: it is written anew, and enters where attempts with it are
better."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from desk import Desk, steps
from desk import made as made_desk
from scripted import Reply, comparison_of, completion, stage, write_problems
from test_agent import PASSAGES, called
from test_base_prompt import trained

from tfgrpo.domains.verifier import Verifier
from tfgrpo.learn.policies.base_prompt import PLACES
from tfgrpo.store import Store

pytestmark = pytest.mark.usefixtures("spoken")

GOOD = "Sucht in der Anleitung, die sagt, was zu den Summen gehört."
BAD = "Never helps."


def scripted(
    written: Sequence[str], chances: dict[str, float]
) -> Callable[[dict[str, Any]], str | Reply]:
    """Attempts search once, and are right by a coin that what is said of the tool turns."""

    def script(request: dict[str, Any]) -> str | Reply:
        messages = request["messages"]
        user = [one["content"] for one in messages if one["role"] == "user"][-1]
        coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()
        match stage(request):
            case "description":
                return json.dumps({"instructions": written[coin[0] % len(written)]})
            case "objective":
                return json.dumps({"instructions": "Answer."})
            case "comparison":
                return json.dumps(comparison_of([]))
            case "summary":
                return "It searched, and gave a number."
        if messages[-1]["role"] == "user" and request.get("tools"):
            return called("search", {"query": "sums"})
        a, b = (int(word) for word in user.rstrip("?").split() if word.isdigit())
        described = json.dumps(request.get("tools"), ensure_ascii=False)
        chance = next((c for words, c in chances.items() if words in described), 0.3)
        right = int.from_bytes(coin[:4], "big") / 2**32 < chance
        return Reply(completion(f"\\boxed{{{a + b + right}}}"))

    return script


@pytest.fixture
def make(tmp_path: Path, verifier: Verifier) -> Callable[..., Desk]:
    """Makes a desk whose attempts have a tool to search with."""
    corpus = tmp_path / "passages.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in PASSAGES))

    def made(**more: Any) -> Desk:
        values = {"policy": "base-prompt", "count": 16, "batch_size": 8, "group_size": 6}
        tools = {"use": ["search"], "corpus": str(corpus)}
        agent = {"mode": "agent", "tools": tools, "examples": False, "epochs": 4}
        return made_desk(tmp_path, verifier, **{**values, **agent, **more})

    return made


def test_a_description_with_which_attempts_are_better_enters_with_its_effect(
    make: Callable[..., Desk], cli: Cli
) -> None:
    desk = make()
    final, server = trained(desk, scripted([GOOD, BAD], {GOOD: 0.9, BAD: 0.0}))
    assert final == [f"[tool search] {GOOD}"]
    with Store.open(desk.path) as store:
        (event,) = [e for v in steps(desk.path) for e in store.events(v) if e.text]
        (known,) = store.library("main")
    evidence = event.evidence or {}
    assert evidence["effect"][1] > 0
    assert evidence["prompts"].keys() == {"description"}
    asked = [r["messages"][-1]["content"] for r in server.requests if stage(r) == "description"]
    assert "search" in asked[0]
    assert "query" in asked[0], "what the tool takes"
    assert "Search" in asked[0]
    assert any(GOOD in text for text in asked[1:]), "once it is in force"
    there = ("--store", str(desk.path))
    assert "run" in cli(*there, "blame", "main").stdout
    assert known.id in cli(*there, "show", known.id).stdout
    assert GOOD.split()[-1] in cli(*there, "diff", "run/step_0", "main").stdout


def test_a_description_with_which_they_are_worse_never_does(make: Callable[..., Desk]) -> None:
    desk = make(epochs=3)
    final, server = trained(desk, scripted([BAD], {BAD: 0.0}))
    assert server.stages["description"]
    assert final == []


def test_what_is_said_of_a_tool_in_force_is_changed_in_its_place(
    make: Callable[..., Desk], cli: Cli
) -> None:
    words = "Sucht Zahlen."
    desk = make()
    final, _ = trained(desk, scripted([GOOD], {GOOD: 0.95, words: 0.4}), f"[tool search] {words}")
    assert final == [f"[tool search] {GOOD}"]
    with Store.open(desk.path) as store:
        (before,), (after,) = store.library("run/step_0"), store.library("main")
        ops = [event.op for event in store.history(after.id) if event.text]
    assert before.id == after.id
    assert ops[0] == "ADD"
    assert "MODIFY" in ops
    there = ("--store", str(desk.path))
    assert "run" in cli(*there, "blame", "main").stdout
    diff = " ".join(cli(*there, "diff", "run/step_0", "main").stdout.split())
    assert "[tool search]" in diff
    assert "[-Zahlen.-]" in diff


def test_of_many_tools_few_are_described_at_once(make: Callable[..., Desk], tmp_path: Path) -> None:
    """Those that attempts call come first, and the others in turn."""
    tools = {"use": ["search", "visit", "python"], "corpus": str(tmp_path / "passages.jsonl")}
    desk = make(epochs=2, tools=tools)
    _, server = trained(desk, scripted([BAD], {}))
    asked = [r["messages"][-1]["content"] for r in server.requests if stage(r) == "description"]
    assert 0 < len(asked) <= PLACES * 4
    assert any("The tool: search" in one for one in asked[:PLACES]), "these are asked at once"
    assert {name for name in tools["use"] if any(f"The tool: {name}" in one for one in asked)} > {
        "search"
    }


def test_without_tools_nothing_is_asked_of_them(make: Callable[..., Desk]) -> None:
    _, server = trained(make(mode="prompt", epochs=2), scripted([GOOD], {}))
    assert not server.stages["description"]
    assert server.stages["objective"]


def test_an_estimate_has_its_calls(cli: Cli, tmp_path: Path) -> None:
    write_problems(tmp_path / "problems.jsonl", 16)
    (tmp_path / "passages.jsonl").write_text(json.dumps(PASSAGES[0]) + "\n")
    sizes = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--batch-size", "8")
    how = ("--policy", "base-prompt", "--mode")

    def calls(*mode: str) -> float:
        shown = cli("train", "problems.jsonl", *sizes, *how, *mode, "--estimate", "--json")
        stages = json.loads(shown.stdout)["expected"]
        return float(sum(one["calls"] for one in stages if one["stage"] == "comparison"))

    (tmp_path / "tfgrpo.toml").write_text('[tools]\nuse = ["search"]\ncorpus = "passages.jsonl"\n')
    assert calls("agent") > calls("prompt")
