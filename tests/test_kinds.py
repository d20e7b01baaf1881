"""Cells of the four kinds: what they ask and leave behind, with a scripted model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ROOT, refused_here
from scripted import ScriptedEndpoint

sys.path.insert(0, str(ROOT))
from benchmarks.learners import kinds


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_problems_to_learn_from_and_held_out_ones_are_apart(kind: str) -> None:
    draw = kinds.KINDS[kind].draw
    train, heldout = draw("train", kinds.TRAIN), draw("heldout", kinds.HELDOUT)
    for rows in (train, heldout):
        assert len({row["problem"] for row in rows}) == len({row["id"] for row in rows}) == 24
    shared = {row["problem"] for row in train} & {row["problem"] for row in heldout}
    assert len(shared) <= 1, "a month has one number of Sundays, whoever asks"
    assert train == draw("train", kinds.TRAIN), "the same in each cell"


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_a_cell_is_made_once_and_read_after_that(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "tool" and (reason := refused_here()):
        pytest.skip(reason)
    monkeypatch.setattr(kinds, "TRAIN", 4)
    monkeypatch.setattr(kinds, "HELDOUT", 6)
    known = kinds.KINDS[kind].draw("heldout", 6)[0]["answer"]
    answer = json.dumps(known) if kind == "fields" else f"\\boxed{{{known}}}"
    with ScriptedEndpoint(lambda _: answer) as server:
        where = ["--base-url", server.base_url, "--model", "m", "--local"]
        arguments = [str(tmp_path), kind, *where]
        first = CliRunner().invoke(kinds.main, arguments)
        assert first.exit_code == 0, first.output
        calls = len(server.requests)
        assert CliRunner().invoke(kinds.main, arguments).output == first.output
        assert len(server.requests) == calls
    (written,) = tmp_path.glob("*.json")
    cell = json.loads(written.read_text())
    assert (cell["kind"], cell["seed"], cell["problems"]) == (kind, 0, 6)
    assert cell["empty"] > 0, "it knows one answer"
    table = CliRunner().invoke(kinds.main, [str(tmp_path), "--table"]).output
    assert f"| {kind} | 0 |" in table
    assert f"| {kind} | 1 |" in table, "the mean of one seed"
