"""A run with agents that is killed at random instants ends as an undisturbed one does, and no call
that was answered is made again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import TFGRPO, environment
from scripted import Numbered, ScriptedEndpoint, restless, write_problems
from test_training import LONG, identity, journalled

import tfgrpo
from tfgrpo.agents.orphan_guard import RUN_MARK

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
KILLS = 500 if LONG else 25
AGENT = """
import json, os, subprocess, sys, urllib.request
task = json.load(sys.stdin)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)

def ask(messages):
    body = {"model": "x", "messages": messages, "seed": task["seed"]}
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
        {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]

messages = [{"role": "user", "content": task["problem"]}]
first = ask(messages)
messages += [{"role": "assistant", "content": first},
             {"role": "user", "content": "Again: " + task["problem"]}]
print(ask(messages))
"""


def agents_left(tag: str) -> list[int]:
    """The processes of agents of this test that run."""
    numbers = []
    for entry in Path("/proc").iterdir():
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        of_agents = any(one.startswith(f"{RUN_MARK}=".encode()) for one in variables)
        if of_agents and f"TEST_TAG={tag}".encode() in variables and state not in "ZX":
            numbers.append(int(entry.name))
    return numbers


def libraries(folder: Path) -> list[list[str]]:
    with tfgrpo.Store.open(folder / "store.db") as store:
        return [
            [one.text for one in store.library(f"run/step_{step}")]
            for step in range(sum(tag.startswith("run/step_") for tag in store.tags()))
        ]


def start(folder: Path, base_url: str, tag: str) -> subprocess.Popen[bytes]:
    command = [
        *(str(TFGRPO), "--store", "store.db", "train", "problems.jsonl", "--run", "run"),
        *("--base-url", base_url, "--model", "scripted", "--agent", f"{sys.executable} agent.py"),
        *("--epochs", "2", "--batch-size", "4", "--group-size", "3", "--concurrency", "4"),
        *("--policy", "paper", "--keep-going"),
    ]
    with (folder / "out.txt").open("ab") as out:
        return subprocess.Popen(
            command,
            cwd=folder,
            env=environment(TEST_TAG=tag),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )


@pytest.mark.timeout(7200 if LONG else 900)
def test_a_driver_that_is_killed_repeats_no_answered_call_and_leaves_no_agent(
    tmp_path: Path,
) -> None:
    chance, script = random.Random(7), Numbered(restless)
    kills = runs = 0
    expected: list[list[str]] = []
    with ScriptedEndpoint(script) as server:
        while kills < KILLS or not runs:
            folder, tag = tmp_path / f"run-{runs}", f"{os.getpid()}-{runs}"
            folder.mkdir()
            write_problems(folder / "problems.jsonl", 8)
            (folder / "agent.py").write_text(AGENT)
            paid: set[str] = set()
            while True:
                before = len(script.requests)
                process = start(folder, server.base_url, tag)
                wanted = before + chance.randrange(1, 12)
                calm = runs == 0 or kills >= KILLS
                while process.poll() is None and (calm or len(script.requests) < wanted):
                    time.sleep(0.01)
                ended = process.poll() is not None
                if not ended:
                    time.sleep(chance.random() * 0.05)
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                process.wait()
                assert not ended or process.returncode == 0, (folder / "out.txt").read_text()[
                    -2000:
                ]
                limit = time.monotonic() + 60
                while agents_left(tag):
                    assert time.monotonic() < limit, "agents outlive the run's process"
                    time.sleep(0.05)
                again = {identity(one) for one in script.requests[before:]} & paid
                assert not again, sorted(again)[:2]
                if (folder / "store.db").exists():
                    paid |= {
                        identity(script.requests[n - 1])
                        for n in journalled(folder / "store.db")
                        if n > 0
                    }
                if ended:
                    break
            if runs == 0:
                expected = libraries(folder)
                assert any(expected)
            assert libraries(folder) == expected
            runs += 1
    assert kills >= KILLS
