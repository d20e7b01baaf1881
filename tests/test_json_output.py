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
    for command in ("log", "reflog", "blame", "status -v", "runs", "show HEAD"):
        printed = trained(*command.split(), "--json").stdout
        for name, value in fields(json.loads(printed)):
            if name in TIMES:
                assert datetime.fromisoformat(value).utcoffset() == timedelta(0), (command, name)
                seen.add(command)
    assert seen == {"log", "reflog", "blame", "status -v", "runs", "show HEAD"}


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


def test_a_bound_that_is_not_known_is_null() -> None:
    assert interval_object(0.5, float("-inf"), None) == {"mean": 0.5, "low": None, "high": None}
