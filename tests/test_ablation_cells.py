"""The cells of the ablations: one command makes one, goes on with it, or reads what is done."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from conftest import ROOT
from scripted import Reply, ScriptedEndpoint, stage

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
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.learners.ablate import main

    def cell(server: ScriptedEndpoint) -> Any:
        given = ["exemplars-1", "--limit", "3", "--seed", "1", "--model", "m"]
        return CliRunner().invoke(main, [str(tmp_path), *given, "--base-url", server.base_url])

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
    found = json.loads(written.read_text())
    assert found["option"] == "exemplars-1"
    assert found["settings"] == {"exemplars": 1}
    assert found["library"][0] == LESSON
    table = CliRunner().invoke(main, [str(tmp_path), "--table"]).output
    assert "| exemplars-1 | m | 1 |" in table
    assert "exemplars-1-m-seed1" in CliRunner().invoke(main, [str(tmp_path), "--list"]).output
