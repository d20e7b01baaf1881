"""The cells of the ablations: one command makes one, goes on with it, or reads what is done."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import ROOT
from scripted import Reply, ScriptedEndpoint, stage

sys.path.insert(0, str(ROOT))
from benchmarks.learners import kinds, server
from benchmarks.learners.ablate import OPTIONS, main
from tfgrpo.settings import TrainSettings

LESSON = "When working weeks are asked for in days, count five days for each week."


def billing(request: dict[str, Any]) -> str:
    """Knows the rule for weeks by a coin, or by its library."""
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    if stage(request) == "comparison":
        lessons = [{"reason": "Five.", "text": LESSON}]
        return json.dumps({"right_did": "a", "wrong_did": "b", "lessons": lessons})
    if stage(request) != "rollout":
        return json.dumps({"closest": "G0", "decision": "same", "text": ""})
    count = int(re.findall(r"\d+", user)[-1])
    right = LESSON in system or (request.get("seed") or 0) % 2
    return f"\\boxed{{{count * (5 if right else 7)}}}"


def test_a_cell_is_made_once_and_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(kinds, "TRAIN", 3)
    monkeypatch.setattr(kinds, "HELDOUT", 3)

    def cell(server: ScriptedEndpoint, option: str = "exemplars-1") -> Any:
        given = ["numbers", option, "--seed", "1", "--model", "m", "--base-url", server.base_url]
        return CliRunner().invoke(main, [str(tmp_path), *given])

    def until(request: dict[str, Any]) -> str | Reply:
        enough = len(server.requests) > 12
        return Reply({"error": "no"}, status=401) if enough else billing(request)

    with ScriptedEndpoint(until) as server:
        assert cell(server).exit_code
        assert not list(tmp_path.glob("*.json"))
        server.script = billing
        done = cell(server)
        assert done.exit_code == 0, done.output
        asked = len(server.requests)
        assert cell(server).output == done.output
        assert len(server.requests) == asked, "what is done is read"
        (written,) = tmp_path.glob("*.json")
        assert cell(server, "base").exit_code == 0
    found = json.loads(written.read_text())
    assert (found["option"], found["seed"]) == ("exemplars-1", 1)
    assert found["settings"] == {"exemplars": 1}
    assert found["library"][0] == LESSON
    table = CliRunner().invoke(main, [str(tmp_path), "--table"]).output
    assert "| numbers | exemplars-1 | 1 |" in table
    beside = next(
        line for line in table.splitlines() if line.startswith("| numbers | exemplars-1 | m |")
    )
    assert "× " in beside, "what it cost beside base, of the same seed"
    assert "exemplars-1: {" in CliRunner().invoke(main, [str(tmp_path), "--list"]).output


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_a_gate_has_problems_of_its_own(kind: str, tmp_path: Path) -> None:
    files = kinds.write_problems(tmp_path, kinds.Cell(kind, 0, "gate", OPTIONS["gate"]))
    rows = {name: Path(file).read_text().splitlines() for name, file in files.items()}
    assert {name: len(lines) for name, lines in rows.items()} == {
        "data": kinds.TRAIN,
        "heldout": kinds.HELDOUT,
        "gate": kinds.GATED,
    }
    assert not set(rows["gate"]) & set(rows["data"])
    assert "gate" not in kinds.write_problems(tmp_path, kinds.Cell(kind, 0))


def test_options_are_settings_of_a_run() -> None:
    for settings in OPTIONS.values():
        TrainSettings(data="problems.jsonl", **settings)


def test_the_same_request_gets_the_same_words_and_another_seed_others(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    class Engine(server.Engine):
        def __init__(self) -> None:
            """Has no process."""

        def ask(self, request: dict[str, Any]) -> dict[str, Any]:
            asked.append(request)
            wrong = {"error": "too long"} if request["seed"] == 3 else {}
            return {"text": f"answer {len(asked)}"} | wrong

    kept = tmp_path / "answers.jsonl"
    answers = server.Answers(Engine(), kept)
    first = answers.ask({"seed": 1, "model": "m"})
    assert answers.ask({"model": "m", "seed": 1}) == first
    assert answers.ask({"model": "m", "seed": 2}) == {"text": "answer 2"}
    for _ in range(2):
        assert "error" in answers.ask({"model": "m", "seed": 3})
    assert len(asked) == 4, "an error is asked for anew"
    again = server.Answers(Engine(), kept)
    assert again.ask({"seed": 1, "model": "m"}) == first
    assert len(asked) == 4
