"""What `--json` has in common everywhere: ISO times in UTC, and intervals with named bounds."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, problems
from scripted import ScriptedEndpoint

from tfgrpo.evaluation.statistics import interval_object

TIMES = {"time", "since", "opened"}


@pytest.fixture
def trained(tmp_path: Path, cli: Cli, endpoint: ScriptedEndpoint) -> Cli:
    (tmp_path / "problems.jsonl").write_text(problems(range(4)))
    (tmp_path / "heldout.jsonl").write_text(problems(range(20, 23)))
    model = ("--model", "m", "--base-url", endpoint.base_url)
    small = ("--epochs", "1", "--group-size", "2", "--heldout-samples", "1")
    cli("train", "problems.jsonl", *small, "--sealed", "heldout.jsonl", *model)
    return cli


def fields(value: Any) -> list[tuple[str, Any]]:
    """Returns every name of a JSON value with what it stands for, however deep."""
    if isinstance(value, list):
        return [pair for item in value for pair in fields(item)]
    if isinstance(value, dict):
        return [*value.items(), *(pair for item in value.values() for pair in fields(item))]
    return []


def test_times_are_iso_8601_in_utc(trained: Cli) -> None:
    seen = set()
    for command in ("log", "reflog", "blame", "runs", "show HEAD"):
        printed = trained(*command.split(), "--json").stdout
        for name, value in fields(json.loads(printed)):
            if name in TIMES:
                assert datetime.fromisoformat(value).utcoffset() == timedelta(0), (command, name)
                seen.add(command)
    assert seen == {"log", "reflog", "blame", "runs", "show HEAD"}


def test_intervals_have_named_bounds(trained: Cli) -> None:
    scores = json.loads(trained("eval", "heldout.jsonl", "--against", "v0", "--json").stdout)
    (compared,) = json.loads(trained("compare", "heldout.jsonl", "--json").stdout)
    newest = json.loads(trained("log", "-n", "1", "--json").stdout)[0]
    found = [
        *(one[name] for one in scores["evaluations"] for name in ("mean", "maj")),
        *(one for scored in scores["evaluations"] for one in scored["pass"].values()),
        *(one["difference"] for one in scores["differences"]),
        compared["difference"],
        *(one["mean"] for one in newest["evaluations"]),
    ]
    assert len(found) > 8
    for one in found:
        assert set(one) == {"mean", "low", "high"}
        assert one["low"] <= one["mean"] <= one["high"]


def test_a_list_is_one_value_with_a_line_for_each_member(trained: Cli) -> None:
    for command in ("log", "log --decisions", "reflog", "rollouts"):
        printed = trained(*command.split(), "--json").stdout
        listed = json.loads(printed)
        assert isinstance(listed, list)
        assert len(printed.splitlines()) == max(1, len(listed))


def test_pass_at_k_stands_in_the_order_of_k(trained: Cli) -> None:
    words = ("eval", "heldout.jsonl", "--samples", "16")
    passes = json.loads(trained(*words, "--json").stdout)["evaluations"][0]["pass"]
    assert list(passes) == ["1", "2", "4", "8", "16"]
    header = next(line for line in trained(*words).stdout.splitlines() if "pass@" in line)
    assert header.split()[2:] == ["pass@2", "pass@4", "pass@8", "pass@16", "maj@16"]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("branch --show-current", {"head": "main"}),
        ("branch web", {"branch": "web", "version": "v1", "was": None}),
        ("branch old v0 -f", {"branch": "old", "version": "v0", "was": "v1"}),
        ("branch -m old older", {"branch": "older", "was": "old"}),
        ("branch -d old", {"branch": "old", "version": None, "was": "v1"}),
        ("branch --protect old", {"branch": "old", "protected": True, "changed": True}),
        ("branch --unprotect old", {"branch": "old", "protected": False, "changed": False}),
        ("tag tt", {"tag": "tt", "version": "v1", "signed": False}),
        ("tag -d here", {"tag": "here", "version": None, "was": "v1"}),
        ("tag --protect here", {"tag": "here", "protected": True, "changed": True}),
        ("redact --finish", {"finished": True, "files_left": []}),
    ],
)
def test_what_moves_a_name_answers_as_json(cli: Cli, line: str, wanted: object) -> None:
    cli("init")
    cli("add", "Count both days.")
    cli("branch", "old")
    cli("tag", "here")
    assert json.loads(cli(*line.split(), "--json").stdout) == wanted


def test_a_branch_that_goes_back_answers_as_json(cli: Cli) -> None:
    cli("init")
    cli("add", "Count both days.")
    done = cli("branch", "--back", "main", "v0", "--why", "an incident", "--json").stdout
    wanted = {"branch": "main", "version": "v0", "was": "v1", "experiment": None}
    assert json.loads(done) == wanted


def test_a_bound_that_is_not_known_is_null() -> None:
    assert interval_object(0.5, float("-inf"), None) == {"mean": 0.5, "low": None, "high": None}
