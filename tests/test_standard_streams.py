"""A standard stream that is closed, or whose reader has gone, breaks no command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import TFGRPO, Cli, environment, problems
from scripted import ScriptedEndpoint

NUMBERS = """
import json, os, subprocess, sys
from tfgrpo.cli import main
main._run = lambda: 0
try:
    main.main()
except SystemExit:
    pass
with open("numbers.json", "w") as file:
    print("goes nowhere")
    child = subprocess.run([sys.executable, "-c", "import os; os.fstat(0), os.fstat(1)"])
    json.dump([file.fileno(), sys.stdin.read(), os.fstat(2).st_mode, child.returncode], file)
"""

LATE = 'mkfifo p; { read -r < p; "$@"; echo $? > code; } | { exec <&-; echo > p; }'
"""Runs a command after whoever reads what it prints has gone, and writes its exit code down."""


def in_shell(folder: Path, line: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Runs a line of bash, in which `"$@"` are the program and its arguments."""
    return subprocess.run(
        ["bash", "-c", line, "bash", *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )


def begun_by(endpoint: ScriptedEndpoint, folder: Path, *more: str) -> tuple[str | Path, ...]:
    """The command that trains on four problems, once."""
    (folder / "problems.jsonl").write_text(problems(range(4)))
    small = ("--epochs", "1", "--batch-size", "4", "--model", "m", "--run", "r")
    return TFGRPO, "train", "problems.jsonl", *small, "--base-url", endpoint.base_url, *more


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_run_whose_streams_are_closed_finishes(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint, closed: str
) -> None:
    done = in_shell(tmp_path, f'"$@" {closed}', *begun_by(endpoint, tmp_path))
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(cli("runs", "--json").stdout)
    assert [state["state"] for state in run["states"]] == ["started", "finished"]


def test_commands_go_without_a_stream_that_is_closed(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    assert in_shell(tmp_path, '"$@" >&-', TFGRPO, "log").returncode == 0
    done = in_shell(tmp_path, '"$@" <&-', TFGRPO, "add", "-")
    assert done.returncode == 1
    assert "standard input is empty" in done.stderr
    assert in_shell(tmp_path, '"$@" 2>&-', TFGRPO, "show", "nowhere").returncode == 1


def test_no_file_gets_the_number_of_a_stream_that_is_closed(tmp_path: Path) -> None:
    in_shell(tmp_path, '"$@" <&- >&- 2>&-', sys.executable, "-c", NUMBERS)
    number, typed, mode, child = json.loads((tmp_path / "numbers.json").read_text())
    assert number > 2
    assert (typed, mode) == ("", os.stat(os.devnull).st_mode)
    assert child == 0


@pytest.mark.parametrize(
    "line", ["log --all", "log -p", "runs", "rollouts", "help log", "--help", "branch --json"]
)
def test_a_reader_that_goes_away_ends_a_command_in_silence(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint, line: str
) -> None:
    cli(*map(str, begun_by(endpoint, tmp_path)[1:]))
    done = in_shell(tmp_path, LATE, TFGRPO, *line.split())
    assert (tmp_path / "code").read_text() == "141\n"
    assert done.stderr == ""


def test_a_run_whose_reader_goes_away_says_that_it_has_stopped(
    cli: Cli, tmp_path: Path, endpoint: ScriptedEndpoint
) -> None:
    cli("init")
    done = in_shell(tmp_path, LATE, *begun_by(endpoint, tmp_path))
    assert (tmp_path / "code").read_text() == "141\n"
    assert done.stderr.startswith("nobody reads the output; run r: ")
    cli(*map(str, begun_by(endpoint, tmp_path)[1:]))
    (run,) = json.loads(cli("runs", "--json").stdout)
    assert run["states"][-1]["state"] == "finished"


def test_an_error_that_nobody_reads_ends_as_any_output_does(tmp_path: Path) -> None:
    in_shell(tmp_path, LATE.replace('"$@"', '"$@" 2>&1'), TFGRPO, "no-such-verb")
    assert (tmp_path / "code").read_text() == "141\n"
