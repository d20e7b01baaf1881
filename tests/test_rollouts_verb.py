"""Looking at attempts: listed, and with all that they said."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import TFGRPO, Cli, environment, one_line_error
from desk import made
from scripted import Reply, ScriptedEndpoint, restless, stage, write_problems
from test_training import posix

from tfgrpo.data import datasets, problems
from tfgrpo.domains.verifier import Verifier


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, verifier: Verifier) -> str:
    folder: Path = tmp_path_factory.mktemp("attempts")
    desk = made(folder, verifier, count=2, group_size=4, epochs=1)
    desk.prepare()
    with ScriptedEndpoint(restless) as server:
        desk.train(server)
    return str(desk.path)


def test_attempts_are_listed_with_their_rewards(cli: Cli, store: str) -> None:
    lines = cli("--store", store, "rollouts", "--step", "1").stdout.splitlines()
    assert lines[0].split() == ["step", "problem", "sample", "reward", "outcome", "answer"]
    assert len(lines) == 9


HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b[8mhidden \x9b31m \x7f\b\u202egnp.exe"
CODE = "def f(x):\n    if x:\n        return 1\n"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory, verifier: Verifier) -> str:
    """A run whose model wrote to the terminal, and whose first problem has a long id."""
    folder: Path = tmp_path_factory.mktemp("hostile")

    def script(request: dict[str, Any]) -> str:
        answer = restless(request)
        return f"{HOSTILE}\n{CODE}{answer}" if stage(request) == "rollout" else answer

    desk = made(folder, verifier, count=2, epochs=1)
    rows = Path(desk.settings.data).read_text().replace('"p1"', json.dumps("p1\n" + "x" * 300))
    Path(desk.settings.data).write_text(rows)
    digest = problems.digest(datasets.load(desk.settings.data))
    desk.settings = desk.settings.model_copy(update={"data_digest": digest})
    desk.prepare()
    with ScriptedEndpoint(script) as server:
        desk.train(server)
    return str(desk.path)


def on_a_terminal(*arguments: str) -> str:
    """Returns what a command writes to a terminal of 80 columns."""
    ours, theirs = os.openpty()
    command = [str(TFGRPO), "--no-pager", *arguments]
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=environment())
    os.close(theirs)
    found = b""
    with suppress(OSError):  # which is how a terminal ends
        while chunk := os.read(ours, 65536):
            found += chunk
    os.close(ours)
    assert process.wait() == 0, found
    return found.decode()


@posix
def test_what_a_model_wrote_commands_no_terminal(hostile: str) -> None:
    for more in ((), ("--problem", "p2"), ("--json",)):
        told = on_a_terminal("--store", hostile, "rollouts", *more)
        left = re.sub(r"\x1b\[(?:0|1|2|3[0-7])m", "", told)
        assert not set(left) & set("\x1b\x07\x9b\x7f\b\u202e"), more
        if not more:
            assert all(len(line) <= 80 for line in left.splitlines())
            assert all(re.search(r" [01]\.00 ", line) for line in left.splitlines()[1:])
    shown = on_a_terminal("--store", hostile, "rollouts", "--problem", "p2")
    assert "\\x1b]0;title\\x07\\x1b[2J\\x1b[8mhidden" in shown


def test_json_says_what_was_written_whatever_it_is(cli: Cli, hostile: str) -> None:
    printed = cli("--store", hostile, "rollouts", "--json").stdout
    lines, found = printed.splitlines(), json.loads(printed)
    assert all(HOSTILE in row["messages"][0]["content"] for row in found)
    assert not any("\x9b" in line or "\x7f" in line for line in lines)
    assert {"p1\n" + "x" * 300, "p2"} == {row["problem"] for row in found}


def test_code_in_what_was_said_stands_in_its_lines(cli: Cli, hostile: str) -> None:
    told = cli("--store", hostile, "rollouts", "--problem", "p2").stdout
    assert "\n  def f(x):\n      if x:\n          return 1\n" in told


@posix
def test_attempts_without_a_call_are_shown_with_their_own_words(cli: Cli, tmp_path: Path) -> None:
    write_problems(tmp_path / "p.jsonl", 1)
    (tmp_path / "agent.py").write_text("import os\nprint('said by', os.getpid())\n")
    once = ("--epochs", "1", "--batch-size", "1", "--group-size", "3", "--keep-going")
    cli("init")
    with ScriptedEndpoint() as server:
        agent = ("--agent", f"{sys.executable} agent.py", "--base-url", server.base_url)
        cli("train", "p.jsonl", *once, *agent, "--model", "m")
    listed = json.loads(cli("rollouts", "--problem", "p1", "--json").stdout)
    words = {one["sample"]: one["messages"][-1]["content"] for one in listed}
    assert len(set(words.values())) == 3
    shown = cli("rollouts", "--problem", "p1").stdout
    samples = map(int, re.findall(r"attempt (\d):", shown))
    assert dict(zip(samples, re.findall(r"said by \d+", shown), strict=True)) == words


def test_a_servers_words_command_no_terminal(cli: Cli, tmp_path: Path) -> None:
    error = Reply({"error": {"message": HOSTILE}}, status=401)
    data = write_problems(tmp_path / "p.jsonl", 1)
    cli("init")
    with ScriptedEndpoint(lambda _: error) as server:
        told = cli("train", str(data), "--base-url", server.base_url, "--model", "m", ok=False)
    assert "title" in told.stderr
    assert not set(told.stderr) & set("\x1b\x07\x9b\x7f\b\u202e")


def test_what_is_not_there_is_one_line(cli: Cli, store: str) -> None:
    one_line_error(cli("--store", store, "rollouts", "--problem", "nowhere", ok=False))
    cli("init")
    one_line_error(cli("rollouts", ok=False))
