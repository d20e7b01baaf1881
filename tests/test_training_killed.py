"""A run that is killed at random instants ends as an undisturbed one does."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG, worker_server
from desk import learned
from forked import Forked
from scripted import Numbered, ScriptedEndpoint, restless, stage, write_problems
from test_training import Desk, identity, journalled, libraries, posix
from waiting import until

from tfgrpo.data import datasets, problems
from tfgrpo.domains.verifier import Verifier
from tfgrpo.settings import TrainSettings, build
from tfgrpo.store import Store
from tfgrpo.store.activity.runs import Run

STAGES = {
    "paper": frozenset({"rollout", "summary", "comparison", "plan", "evaluation"}),
    "probation": frozenset({"rollout", "comparison"}),
}


class Killed:
    """`tfgrpo train` as a process that can be killed, in a folder of its own."""

    def __init__(self, folder: Path, server: ScriptedEndpoint, data: Path) -> None:
        self.folder = folder
        self.store = folder / "store.db"
        self.command = [
            *(sys.executable, "-c", "from tfgrpo.cli.main import main; main()"),
            *("--store", str(self.store), "train", str(data), "--run", "run"),
            *("--base-url", server.base_url, "--model", "scripted", "--concurrency", "4"),
            *("--epochs", "2", "--batch-size", "4", "--group-size", "4", "--policy", "paper"),
        ]

    def start(self) -> subprocess.Popen[bytes]:
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith("TFGRPO_") or k == "TFGRPO_TRUST"
        }
        return subprocess.Popen(
            self.command,
            cwd=self.folder,
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "out.txt").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def said(self) -> str:
        return (self.folder / "out.txt").read_text()[-2000:]


def session(leader: int) -> list[int]:
    """Returns the live processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(entry.name))
    return found


@dataclass
class Killings:
    """Runs that are killed at random instants until there were enough, and what came of it."""

    folder: Path
    wanted: int
    chance: random.Random
    script: Numbered
    forked: Forked
    stages: frozenset[str] = frozenset()
    policy: str = "paper"
    kills: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    runs: int = 0

    def to_come(self) -> bool:
        """Whether kills are wanting, or one in some stage."""
        return sum(self.kills.values()) < self.wanted or not self.stages <= set(self.kills)

    def settings(self, server: ScriptedEndpoint) -> TrainSettings:
        data = write_problems(self.folder / "problems.jsonl", 8)
        heldout = write_problems(self.folder / "heldout.jsonl", 8, start=500)
        values = {"epochs": 2, "batch_size": 4, "group_size": 4, "concurrency": 8}
        values["policy"] = self.policy
        files = {"data": str(data), "data_digest": problems.digest(datasets.load(str(data)))}
        more = {"heldout": str(heldout), "base_url": server.base_url, "model": "scripted"}
        return build(TrainSettings, {**values, **files, **more})

    def run(self, server: ScriptedEndpoint, settings: TrainSettings, *, calm: bool = False) -> Path:
        """Makes a run with a uid that makes libraries comparable and brings it to its end."""
        folder = self.folder / ("calm" if calm else f"run-{self.runs}")
        folder.mkdir()
        self.runs += not calm
        Desk(folder, None, settings).prepare()  # type: ignore[arg-type]
        paid: set[str] = set()
        forked = self.forked
        forked.folder = folder
        while True:
            before = len(self.script.requests)
            forked.start("--store", "store.db", "train", "--resume", "run")
            self.sessions += 1
            if not calm and self.to_come():
                self.wait(forked, before)
                if not forked.ended():
                    forked.kill()
            code = forked.status()
            made = self.script.requests[before:]
            repeated = paid & {identity(request) for request in made}
            assert not repeated, f"{len(repeated)} journalled calls were made again"
            if code == 0:
                return folder / "store.db"
            assert code == -signal.SIGKILL, (code, forked.said())
            self.kills[kind(made[-1]) if made else "before the first call"] += 1
            server.settle()
            paid |= {identity(self.script.requests[n - 1]) for n in journalled(folder / "store.db")}

    def wait(self, forked: Forked, before: int) -> None:
        """Waits for a random instant: of the start, or after some calls."""
        wanting = self.stages - set(self.kills)
        if sum(self.kills.values()) >= self.wanted:  # but one in some stage
            newest = self.script.requests
            until(lambda: (newest[before:] and kind(newest[-1]) in wanting) or forked.ended())
            return
        if self.chance.random() < 0.15:
            time.sleep(self.chance.random() * 0.2)
            return
        wanted = before + self.chance.randrange(1, 24)
        until(lambda: len(self.script.requests) >= wanted or forked.ended())
        time.sleep(self.chance.random() * 0.06)


def kind(request: dict[str, Any]) -> str:
    """Returns a request's stage; the held-out comparison is one of its own."""
    heldout = re.search(r"What is 5\d\d op", request["messages"][-1]["content"])
    return "evaluation" if heldout else stage(request)


def outcome(path: Path) -> Any:
    """Returns all that a run came to: libraries, rewards, scores."""
    with Store.open(path) as store:
        (run,) = store.runs.all()
        assert store.runs.state(run) == "finished"
        integrity = store.port.connection.execute("pragma integrity_check")  # type: ignore[attr-defined]
        assert integrity.fetchone() == ("ok",)
        rollouts = [(r.step, r.problem, r.sample, r.reward) for r in store.runs.rollouts(run)]
        evaluated = [store.runs.evaluations(v.number) for v in store.log("main")]
        scores = [store.runs.scores(one) for found in evaluated for one in found]
        calls = sum(spent.usage.calls for spent in store.runs.spent())
    return learned(path, run.name), rollouts, scores, calls


@posix
@pytest.mark.parametrize("policy", STAGES)
def test_runs_killed_at_random_instants_end_alike_and_repeat_no_journalled_call(
    tmp_path: Path, policy: str
) -> None:
    """Counted: requests whose answer was in the journal when the process was started again.

    None of them may reach the endpoint after that. An answer that left the server and was not
    journalled before the kill is asked for again, and is not counted.
    """
    seed = random.randrange(10**6) if LONG else 3
    script = Numbered(restless)
    with (
        ScriptedEndpoint(script, delay=0.002) as server,
        Forked(tmp_path, worker_server().address) as forked,
    ):
        wanted, chance = 500 if LONG else 12, random.Random(seed)
        killings = Killings(tmp_path, wanted, chance, script, forked, STAGES[policy], policy)
        settings = killings.settings(server)
        reference = outcome(killings.run(server, settings, calm=True))
        while killings.to_come() and killings.runs < wanted:
            assert outcome(killings.run(server, settings)) == reference
    print(f"seed {seed}: {killings.sessions} sessions, {killings.runs} runs, {killings.kills}")
    assert not killings.to_come()


@posix
def test_the_command_itself_killed_now_and_then_gives_the_same_library(
    tmp_path: Path, verifier: Verifier
) -> None:
    chance = random.Random(3)
    data = write_problems(tmp_path / "problems.jsonl", 6)
    script = Numbered(restless)
    with ScriptedEndpoint(script, delay=0.02) as server:
        run = Killed(tmp_path, server, data)
        for _ in range(3):
            killed_after(run.start(), script, len(script.requests) + chance.randrange(1, 14))
        process = run.start()
        assert process.wait(timeout=300) == 0, run.said()
    with Store.open(run.store) as store:
        (found,) = store.runs.all()
        assert store.runs.state(found) == "finished"
    assert libraries(run.store) == _reference(tmp_path, verifier, data, found)


def killed_after(process: subprocess.Popen[bytes], script: Numbered, requests: int) -> None:
    """Kills a process once so many requests have come, if it lasts until then."""
    until(lambda: len(script.requests) >= requests or process.poll() is not None)
    process.kill()
    process.wait()


def _reference(
    tmp_path: Path, verifier: Verifier, data: Path, run: Run
) -> list[list[tuple[str, str]]]:
    """Returns the libraries of an undisturbed run with the uid of the killed one."""
    folder = tmp_path / "reference"
    folder.mkdir()
    values = {"epochs": 2, "batch_size": 4, "group_size": 4, "data": str(data), "policy": "paper"}
    desk = Desk(folder, verifier, build(TrainSettings, {"model": "scripted", **values}))
    desk.prepare(run.uid)
    with ScriptedEndpoint(restless) as server:
        desk.train(server)
    return libraries(desk.path)


@posix
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")
def test_a_killed_run_leaves_no_process_behind(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "problems.jsonl", 8)
    with ScriptedEndpoint(restless, delay=0.05) as server:
        process = Killed(tmp_path, server, data).start()
        try:
            until(lambda: len(server.requests) >= 12)
            assert len(session(process.pid)) > 1
            process.kill()
            process.wait()
            until(lambda: not session(process.pid))
        finally:
            for left in session(process.pid):
                os.kill(left, signal.SIGKILL)


@posix
def test_an_interrupted_run_says_how_to_go_on_and_does(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "problems.jsonl", 4)
    with ScriptedEndpoint(restless, delay=0.02) as server:
        run = Killed(tmp_path, server, data)
        process = run.start()
        until(lambda: len(server.requests) >= 6)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=240) == 130, run.said()
        assert "--resume run" in run.said()
        assert "Traceback" not in run.said()
        with Store.open(run.store) as store:
            assert store.runs.state(store.runs.get("run")) == "interrupted"
        process = run.start()
        assert process.wait(timeout=300) == 0, run.said()
    with Store.open(run.store) as store:
        assert store.runs.state(store.runs.get("run")) == "finished"


@posix
def test_a_run_killed_in_its_held_out_comparison_is_gone_on_with_not_begun_again(
    tmp_path: Path,
) -> None:
    data = write_problems(tmp_path / "problems.jsonl", 4)
    heldout = write_problems(tmp_path / "heldout.jsonl", 10, start=500)

    def comparing(request: dict[str, Any]) -> bool:
        return re.search(r"What is 5\d\d op", request["messages"][-1]["content"]) is not None

    with ScriptedEndpoint(restless, delay=0.02) as server:
        run = Killed(tmp_path, server, data)
        run.command = [word for word in run.command if word not in ("--run", "run")]
        run.command += ["--epochs", "1", "--heldout", str(heldout)]
        process = run.start()
        until(lambda: any(map(comparing, list(server.requests))))
        process.kill()
        process.wait()
        server.settle()
        before = len(server.requests)
        process = run.start()
        assert process.wait(timeout=300) == 0, run.said()
        assert all(map(comparing, server.requests[before:]))
    with Store.open(run.store) as store:
        assert [found.name for found in store.runs.all()] == ["problems"]
        assert len(store.runs.evaluations(0)) == 1
