"""What was refused, failed or repaired: in show, in runs, in status and at the end of a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, problems
from scripted import Reply, ScriptedEndpoint, comparison_of, stage, teachable
from test_reflection import compared, group

from tfgrpo.runs.run_issues import report
from tfgrpo.store import Store

PLANNED = ("--policy", "paper")


def clumsy(request: dict[str, Any]) -> str | Reply:
    """Teaches lessons with numbers, one of them out of shape; plans about a label of nobody."""
    question = "\n".join(message["content"] for message in request["messages"])
    match stage(request):
        case "comparison":
            number = sum(map(ord, question))
            rows = [{"reason": "It is so.", "text": f"Add {number}."}, {"reason": "It is not."}]
            return json.dumps(comparison_of(rows))
        case "plan":
            numbers = map(int, re.findall(r"^(\d+)\. Add", question, re.MULTILINE))
            keep = {"op": "keep", "experience": "G99", "text": ""}
            return json.dumps({"operations": [{"lessons": [n], **keep} for n in numbers]})
        case _:
            return teachable(request)


@pytest.fixture
def trained(cli: Cli, tmp_path: Path) -> str:
    """A run with a clumsy model, and what it said."""
    (tmp_path / "problems.jsonl").write_text(problems(range(6)))
    with ScriptedEndpoint(clumsy) as server:
        where = ("--base-url", server.base_url, "--model", "m", "--epochs", "1", *PLANNED)
        return cli("train", "problems.jsonl", *where, "--batch-size", "6").stdout


def test_every_place_tells_what_a_run_refused_and_what_failed(
    cli: Cli, tmp_path: Path, trained: str
) -> None:
    with Store.open(tmp_path / ".tfgrpo" / "store.db") as store:
        found = report(store, store.runs.get("problems"))
    assert found.refused >= 1
    assert found.failed >= 2
    assert found.repaired >= 2
    lessons = "lesson" if found.refused == 1 else "lessons"
    line = (
        f"{found.refused} {lessons} refused, {found.failed} answers failed, "
        f"{found.repaired} answers repaired"
    )
    assert f"{line}; `tfgrpo runs problems` lists them" in trained
    assert line in cli("status", env={"COLUMNS": "140"}).stdout
    said = cli("runs", "problems", env={"COLUMNS": "140"}).stdout
    assert line in said
    for where in (said, cli("show", "problems/step_1", env={"COLUMNS": "140"}).stdout):
        assert where.count("there is no experience G99") == found.refused
        assert where.count("lessons.1.text: Field required") == found.failed
    status = json.loads(cli("status", "--json").stdout)["accounts"]["problems"]
    assert status == {
        "refused": found.refused,
        "failed": found.failed,
        "repaired": found.repaired,
    }
    run = json.loads(cli("runs", "problems", "--json").stdout)
    assert len(run["issues"]) == found.refused + found.failed
    assert run["repaired"] == found.repaired


def test_where_nothing_went_wrong_nothing_is_said(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    (tmp_path / "problems.jsonl").write_text(problems(range(4)))
    where = ("--base-url", endpoint.base_url, "--model", "m", "--epochs", "1", *PLANNED)
    said = cli("train", "problems.jsonl", *where).stdout + cli("status").stdout
    said += cli("runs", "problems").stdout
    assert not [word for word in ("refused", "failed", "repaired") if word in said]


def test_one_lesson_out_of_shape_does_not_cost_the_other_of_its_group(tmp_path: Path) -> None:
    found, server = compared(tmp_path, group(1.0, 0.0), clumsy)
    assert len(found.lessons) == 1
    assert [(f.stage, f.problem) for f in found.failures] == [("comparison", "p1")]
    assert "lessons.1.text" in found.failures[0].reason
    assert found.repaired
    assert server.stages["comparison"] == 2


def test_what_was_measured_and_not_shown_to_help_is_not_said_to_be_no_lesson(
    cli: Cli, tmp_path: Path
) -> None:
    def idle(request: dict[str, Any]) -> str:
        if stage(request) != "comparison":
            return teachable(request)
        lesson = {"reason": "It is so.", "text": "Read the question twice."}
        return json.dumps(comparison_of([lesson]))

    (tmp_path / "problems.jsonl").write_text(problems(range(6)))
    with ScriptedEndpoint(idle) as server:
        where = ("--base-url", server.base_url, "--model", "m", "--no-examples")
        where = (*where, "--policy", "probation", "--batch-size")
        single = cli("train", "problems.jsonl", *where, "6", "--epochs", "1").stdout
        several = cli("train", "problems.jsonl", *where, "3", "--epochs", "1", "--new").stdout
    assert "a run of one step has none left to measure a lesson in" in single
    assert "of 1 candidate none was shown to help" in several


def test_attempts_that_are_neither_right_nor_wrong_are_not_called_so(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    (tmp_path / "mine.py").write_text("def score(problem, response):\n    return 0.04\n")
    (tmp_path / "problems.jsonl").write_text(problems(range(4)))
    where = ("--base-url", endpoint.base_url, "--model", "m", "--epochs", "1")
    told = cli("train", "problems.jsonl", "--domain", "math+reward=mine:score", *where).stdout
    assert "in each of 4 groups all attempts had the same reward" in told
