"""Planted lessons on a model: the design is balanced, and an answer is asked for once."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import ROOT
from scripted import Reply, ScriptedEndpoint

sys.path.insert(0, str(ROOT))

from benchmarks.learners import planted


def test_each_lesson_and_each_two_are_in_as_many_halves_as_out() -> None:
    sets = np.array(planted.halves()) * 2 - 1
    assert (sets.T @ sets == 16 * np.eye(len(planted.NAMES))).all()
    assert (sets[:8] == -sets[8:]).all()
    listed = list(planted.wanted())
    assert len(set(listed)) == len(listed)


def follows(request: dict[str, Any]) -> str:
    """A model that follows what it is told, and knows nothing else."""
    system, problem = (request["messages"][place]["content"] for place in (0, -1))
    number = int(re.findall(r"\d+", problem)[0])
    factor = 5 if "the weeks by 5" in system and "6." not in system else 1
    factor = 8 if "the days by 8" in system and "days for" in problem else factor
    return f"\\boxed{{{number * factor}}}"


def test_what_a_trial_lets_in_follows_from_answers_that_are_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planted, "KINDS", planted.KINDS[:2])
    monkeypatch.setattr(planted, "TRIALS", 20)
    answers, total = tmp_path / "answers.jsonl", 0

    def run(script: Any) -> tuple[str, int]:
        with ScriptedEndpoint(script) as server:
            arguments = [str(answers), "--base-url", server.base_url, "--model", "m"]
            done = CliRunner().invoke(planted.main, arguments)
            return done.stdout, len(server.requests)

    class Ends:
        left = 40

        def __call__(self, request: dict[str, Any]) -> str | Reply:
            self.left -= 1
            return follows(request) if self.left >= 0 else Reply({"error": "no"}, status=401)

    run(Ends())
    kept = len(answers.read_text().splitlines())
    assert 30 <= kept <= 40
    page, total = run(follows)
    rows = [json.loads(line) for line in answers.read_text().splitlines()]
    assert len(rows) == len(list(planted.wanted())) == kept + total
    assert re.search(r"helpful: days \| \+0\.[45]\d\d ", page)
    assert re.search(r"\| 128 \| factorial \| one-se \| \+0\.", page)
    done = CliRunner().invoke(planted.main, [str(answers), "--model", "m", "--report"])
    assert done.stdout == page
