"""A run that is killed at random instants, or whose agents are, makes no call again that was
answered, leaves no agent behind, and ends as an undisturbed one does.

The gateway is in the run's process, so it ends with it. `TFGRPO_LONG=1` makes 500 kills.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import LONG, worker_server
from forked import Forked
from scripted import Numbered, ScriptedEndpoint, restless, write_problems
from test_training import identity, journalled
from waiting import until

import tfgrpo
from tfgrpo.agents.user_program import MARK

pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
KILLS = 500 if LONG else 12
OPTIONS = (
    *("--store", "store.db", "train", "problems.jsonl", "--run", "run", "--model", "scripted"),
    *("--epochs", "2", "--batch-size", "4", "--group-size", "3", "--concurrency", "4"),
    *("--policy", "paper", "--keep-going"),
)
BY_AGENT = ("--agent", f"{sys.executable} -S agent.py")
AGENT = """
import http.client, json, os, subprocess, sys
task = json.load(sys.stdin)
subprocess.Popen(["sleep", "600"], start_new_session=True)
_, _, host, *path = os.environ["OPENAI_BASE_URL"].split("/")

def ask(messages):
    body = {"model": "x", "messages": messages, "seed": task["seed"]}
    connection = http.client.HTTPConnection(host)
    connection.request("POST", "/" + "/".join(path) + "/chat/completions", json.dumps(body))
    return json.load(connection.getresponse())["choices"][0]["message"]["content"]

messages = [{"role": "user", "content": task["problem"]}]
first = ask(messages)
messages += [{"role": "assistant", "content": first},
             {"role": "user", "content": "Again: " + task["problem"]}]
print(ask(messages))
"""


def agents_left(tag: str) -> list[int]:
    """The processes that agents of this test have started, and theirs."""
    numbers = []
    for entry in Path("/proc").iterdir():
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            continue
        of_agents = any(one.startswith(f"{MARK}=".encode()) for one in variables)
        if of_agents and f"TEST_TAG={tag}".encode() in variables and state not in "ZX":
            numbers.append(int(entry.name))
    return numbers


def is_agent(number: int) -> bool:
    """Whether a process is an agent itself, and nothing that one started."""
    try:
        return b"agent.py" in Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return False


def libraries(folder: Path) -> list[list[str]]:
    with tfgrpo.Store.open(folder / "store.db") as store:
        return [
            [one.text for one in store.library(f"run/step_{step}")]
            for step in range(sum(tag.startswith("run/step_") for tag in store.tags()))
        ]


@dataclass
class Killings:
    """Runs whose driver or agents are killed at random, until there were enough kills."""

    folder: Path
    forked: Forked
    script: Numbered
    tag: str
    victim: str
    chance: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    made: int = 0
    answered: int = 0

    def run(self, server: ScriptedEndpoint, name: str, most: int) -> Path:
        """Makes a run with at most so many kills, and brings it to its end."""
        folder = self.forked.folder = self.folder / name
        folder.mkdir()
        write_problems(folder / "problems.jsonl", 8)
        (folder / "agent.py").write_text(AGENT)
        answered: set[str] = set()
        begun, kills = len(self.script.requests), self.kills.total()
        while True:
            before = len(self.script.requests)
            self.forked.start(*OPTIONS, *BY_AGENT, "--base-url", server.base_url)
            while not self.forked.ended() and self.kills.total() - kills < most:
                self.kill()
            code = self.forked.status()
            assert code in (0, -signal.SIGKILL), (code, self.forked.said())
            until(lambda: not agents_left(self.tag))
            server.settle()
            asked = [identity(one) for one in self.script.requests[before:]]
            again = set(asked) & answered
            assert not again, sorted(again)[:2]
            assert len(set(asked)) == len(asked), "one session asks nothing twice"
            if (folder / "store.db").exists():
                kept = [n for n in journalled(folder / "store.db") if n > 0]
                answered |= {identity(self.script.requests[n - 1]) for n in kept}
            if code == 0:
                self.made += len(self.script.requests) - begun
                self.answered += len(answered)
                return folder

    def kill(self) -> None:
        """Waits for a random instant, and kills a victim if the session lasts until then."""
        wanted = len(self.script.requests) + self.chance.randrange(1, 12)
        until(lambda: len(self.script.requests) >= wanted or self.forked.ended())
        time.sleep(self.chance.random() * 0.05)
        if self.forked.ended():
            return
        if self.victim == "driver":
            self.forked.kill()
            self.kills["driver"] += 1
            until(self.forked.ended)
        elif agents := [number for number in agents_left(self.tag) if is_agent(number)]:
            try:
                os.kill(self.chance.choice(agents), signal.SIGKILL)
            except ProcessLookupError:
                return
            self.kills["agent"] += 1


REWARD = """
import os, pathlib, subprocess
folder = pathlib.Path(__file__).parent
if (folder / "begun").exists():
    (folder / f"judging-{os.getpid()}").touch()
    subprocess.Popen(["sleep", "600"], start_new_session=True).wait()
print(1)
"""


@pytest.mark.parametrize("by", [(), (*BY_AGENT, "--workspace", "work")], ids=["model", "agent"])
def test_a_kill_while_commands_judge_leaves_none_and_no_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: tuple[str, ...]
) -> None:
    tag, places = f"{os.getpid()}-reward", tmp_path / "places"
    monkeypatch.setenv("TEST_TAG", tag)
    monkeypatch.setenv("TMPDIR", str(places))
    for folder in (places, tmp_path / "work"):
        folder.mkdir()
    write_problems(tmp_path / "problems.jsonl", 8)
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "reward.py").write_text(REWARD)
    reward = ("--reward", f"{sys.executable} -S reward.py")
    with (
        ScriptedEndpoint(Numbered(restless)) as server,
        Forked(tmp_path, worker_server().address) as forked,
    ):
        forked.start(*OPTIONS, *by, *reward, "--base-url", server.base_url)
        until(lambda: server.requests or forked.ended())
        (tmp_path / "begun").touch()
        until(lambda: forked.ended() or len(list(tmp_path.glob("judging-*"))) >= 3)
        assert not forked.ended(), forked.said()
        forked.kill()
        assert forked.status() == -signal.SIGKILL
        until(lambda: not agents_left(tag), 30)
        until(lambda: not list(places.glob("tfgrpo-workspace-*")), 30)


def failures(folder: Path) -> int:
    with tfgrpo.Store.open(folder / "store.db") as store:
        return sum(one.outcome == "failed" for one in store.rollouts("run"))


@pytest.mark.timeout(7200 if LONG else 900)
@pytest.mark.parametrize("victim", ["driver", "agent"])
def test_whoever_is_killed_no_answered_call_is_repeated_and_no_agent_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    tag = f"{os.getpid()}-{victim}"
    monkeypatch.setenv("TEST_TAG", tag)
    script = Numbered(restless)
    began = time.monotonic()
    with ScriptedEndpoint(script) as server, Forked(tmp_path, worker_server().address) as forked:
        killings = Killings(tmp_path, forked, script, tag, victim, random.Random(7))
        calm = killings.run(server, "calm", 0)
        expected, runs = libraries(calm), 0
        assert any(expected)
        wanted = KILLS if victim == "driver" else KILLS // 4
        while (left := wanted - killings.kills.total()) > 0:
            before = killings.kills.total()
            folder = killings.run(server, f"run-{runs}", left)
            runs += 1
            if victim == "driver":
                assert libraries(folder) == expected
                assert not failures(folder)
            else:
                assert failures(folder) <= killings.kills.total() - before
    print(
        f"\nkills {dict(killings.kills)}, runs {runs}, calls made {killings.made}, on record "
        f"{killings.answered}, answered ones made again 0, {time.monotonic() - began:.0f} s"
    )
