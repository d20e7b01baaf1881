"""docs/production.md, "Learn from it": its steps are run, where something has gone wrong."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import problems
from scripted import LESSON, Reply, ScriptedEndpoint, stage, teachable
from test_improve import SETTINGS, wrong_calls
from test_production_page import BLOCK, LEARN

from tfgrpo.cli.main import tfgrpo
from tfgrpo.improvement.proposals import get_proposal
from tfgrpo.store import Operation, Store

SECOND = "Round up to whole numbers."


def test_the_steps_of_the_page_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs: dict[str, str] = {}
    lesson = LESSON

    def model(request: dict[str, Any]) -> str | Reply:
        if lesson != LESSON and stage(request) == "rollout":  # of a second day
            first = request["messages"][0]
            first["content"] = first["content"].replace(LESSON, "").replace(SECOND, LESSON)
        return str(teachable(request)).replace(LESSON, lesson)

    with (
        ScriptedEndpoint(model) as endpoint,
        Store.init(tmp_path / ".tfgrpo/store.db", author="ann") as store,
    ):
        (tmp_path / "tfgrpo.toml").write_text(SETTINGS.format(base_url=endpoint.base_url))
        (tmp_path / "heldout.jsonl").write_text(problems(range(300, 306)))
        store.commit("main", [Operation("ADD", text="Be brief.")], message="by hand")
        store.create_branch("prod")
        wrong_calls(store, range(24))
        assert LEARN is not None
        for kind, block in BLOCK.findall(LEARN[0]):
            if kind == "python":
                exec(block, {})
                assert capsys.readouterr().out == "nothing new\n", "yesterday's are used"
                continue
            for line in re.findall(r"^\$ (.+)$", block, re.M):
                if " reject " in line:
                    lesson = SECOND
                    wrong_calls(store, range(30, 50))
                    run("tfgrpo improve")
                outputs[line] = run(line)
        prod = [e.text for e in store.library("prod")]
        assert prod == ["Be brief.", LESSON]
        assert store.tip("prod").message == "accept proposal p1: right on the till"
        rejected = get_proposal(store, "p2")
        assert [one.after for one in rejected.changes] == [SECOND]
    assert "appended 24 problems" in outputs["tfgrpo collect --since 1d"]
    assert "proposal for prod from 24 new problems" in outputs["tfgrpo improve"]
    assert re.search(
        r"better \(7 held-out problems × 4 samples, m\)", outputs["tfgrpo proposal list"]
    )
    regressed = outputs["tfgrpo regress heldout.jsonl --model gpt-6-mini --propose prod"]
    assert "change of what it adds" in regressed


def run(line: str) -> str:
    done = CliRunner().invoke(
        tfgrpo, ["--no-pager", *shlex.split(line)[1:]], catch_exceptions=False
    )
    assert done.exit_code == 0, (line, done.output)
    return done.output
