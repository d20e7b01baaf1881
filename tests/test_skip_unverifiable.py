"""`--skip-unverifiable`: going on without the problems whose ground truth cannot be judged."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, one_line_error, problems
from scripted import ScriptedEndpoint
from test_cli_training import SMALL, start
from waiting import until

BAD = [
    {"id": "broken", "problem": "What is 90 op 93?", "answer": "\\frac{1}{("},
    {"id": "empty", "problem": "What is 91 op 94?", "answer": "$"},
]
LEFT_OUT = "2 of 14 problems left out"


def with_bad(numbers: range, bad: list[dict[str, str]] = BAD) -> str:
    """A dataset with two ground truths in its middle that nothing can be compared with."""
    lines = problems(numbers).splitlines(keepends=True)
    return "".join([*lines[:5], *(json.dumps(row) + "\n" for row in bad), *lines[5:]])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "problems.jsonl").write_text(with_bad(range(12)))
    (tmp_path / "heldout.jsonl").write_text(with_bad(range(20, 32)))
    return tmp_path


def run_of(cli: Cli) -> dict[str, Any]:
    found: list[dict[str, Any]] = json.loads(cli("runs", "--json").stdout)
    return found[0]


def asked_about(endpoint: ScriptedEndpoint) -> set[str]:
    """The problems that anything was asked about."""
    texts = json.dumps([request["messages"] for request in endpoint.requests])
    return {number for number in ("90 op 93", "91 op 94", "3 op 6", "23 op 26") if number in texts}


def test_without_the_flag_nothing_is_begun_and_the_hint_names_it(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    done = cli("train", "problems.jsonl", *SMALL, "--base-url", endpoint.base_url, ok=False)
    one_line_error(done, "broken: cannot parse the answer", "2 of 14", "--skip-unverifiable")
    assert not endpoint.requests


def test_training_goes_on_without_them_says_so_once_and_records_which(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    flags = (*SMALL, "--base-url", endpoint.base_url, "--skip-unverifiable")
    others = ("--heldout", "heldout.jsonl", "--gate", "heldout.jsonl")
    done = cli("train", "problems.jsonl", *flags, *others)
    assert done.stderr.count(f"problems.jsonl: {LEFT_OUT}") == 1
    assert "broken, empty (broken: cannot parse the answer" in done.stderr
    assert "12 problems" in done.stdout
    assert "in heldout.jsonl too" in done.stderr, "the gate's problems are held out from nothing"
    assert "their scores reflect the gate's own choice" in done.stderr
    config = run_of(cli)["config"]
    assert config["skip_unverifiable"] is True
    assert config["skipped"] == {kind: ["broken", "empty"] for kind in ("data", "heldout", "gate")}
    assert asked_about(endpoint) == {"3 op 6", "23 op 26"}


def test_a_run_that_skips_nothing_has_a_record_that_names_nothing(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    (data / "problems.jsonl").write_text(problems(range(12)))
    cli("train", "problems.jsonl", *SMALL, "--base-url", endpoint.base_url)
    config = run_of(cli)["config"]
    assert (config["skip_unverifiable"], config["skipped"]) == (False, {})


@pytest.mark.parametrize("again", ["resume", "the same command"])
def test_a_run_goes_on_with_the_very_problems_it_began_with(
    cli: Cli, data: Path, again: str
) -> None:
    with ScriptedEndpoint(delay=0.1) as endpoint:
        flags = (*SMALL, "--base-url", endpoint.base_url, "--concurrency", "4")
        command = ("train", "problems.jsonl", *flags, "--skip-unverifiable")
        running = start(data, *command)
        until(lambda: sum(endpoint.stages.values()) > 10)
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=120)
        assert running.returncode == 130
        endpoint.delay = 0.0
        if again == "resume":  # what was left out stays so, even where it could be judged by now
            mended = [{**row, "answer": "5"} for row in BAD]
            (data / "problems.jsonl").write_text(with_bad(range(12), mended))
            command = ("train", "--resume", "problems")
        said = cli(*command).stdout
        assert "run problems resumed: 12 problems" in said
        assert "step_3 is checked out" in said
        assert asked_about(endpoint) == {"3 op 6"}


def test_evaluations_and_comparisons_leave_them_out_too(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    cli("init")
    model = ("--model", "m", "--base-url", endpoint.base_url, "--samples", "2")
    one_line_error(cli("eval", "heldout.jsonl", *model, ok=False), "--skip-unverifiable")
    flags = (*model, "--skip-unverifiable", "--json")
    done = cli("eval", "heldout.jsonl", *flags)
    assert f"heldout.jsonl: {LEFT_OUT}" in done.stderr
    (found,) = json.loads(done.stdout)["evaluations"]
    assert found["problems"] == 12
    assert found["conditions"]["skipped"] == ["broken", "empty"]
    calls = len(endpoint.requests)
    (compared,) = json.loads(cli("compare", "heldout.jsonl", "--library", "v0", *flags).stdout)
    assert compared["problems"] == 12
    assert len(endpoint.requests) == calls
    assert asked_about(endpoint) == {"23 op 26"}


def test_the_setting_can_stand_in_the_file(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    (data / "tfgrpo.toml").write_text("[train]\nskip_unverifiable = true\n")
    cli("init")
    done = cli("train", "problems.jsonl", *SMALL, "--base-url", endpoint.base_url)
    assert LEFT_OUT in done.stderr


def test_a_dataset_without_any_that_can_be_judged_is_refused(
    cli: Cli, data: Path, endpoint: ScriptedEndpoint
) -> None:
    (data / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in BAD))
    flags = (*SMALL, "--base-url", endpoint.base_url, "--skip-unverifiable")
    one_line_error(cli("train", "problems.jsonl", *flags, ok=False), "2 of 2")
