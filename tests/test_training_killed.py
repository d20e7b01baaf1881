"""A run that is killed at random instants ends as an undisturbed one does."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from scripted import Numbered, ScriptedEndpoint, restless, write_problems
from test_training import LONG, Desk, identity, journalled, libraries, posix

from tfgrpo.settings import TrainSettings, build
from tfgrpo.store import Store
from tfgrpo.store.runs import Run
from tfgrpo.verify import Verifier


class Killed:
    """`tfgrpo train` as a process that can be killed, in a folder of its own."""

    def __init__(self, folder: Path, server: ScriptedEndpoint, data: Path) -> None:
        self.folder = folder
        self.store = folder / "store.db"
        self.command = [
            *(sys.executable, "-c", "from tfgrpo.cli.main import main; main()"),
            *("--store", str(self.store), "train", str(data), "--run", "run"),
            *("--base-url", server.base_url, "--model", "scripted", "--concurrency", "4"),
            *("--epochs", "2", "--batch-size", "4", "--group-size", "4"),
        ]

    def start(self) -> subprocess.Popen[bytes]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TFGRPO_")}
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


@posix
def test_a_run_killed_again_and_again_gives_the_same_library_and_repeats_no_journalled_call(
    tmp_path: Path, verifier: Verifier
) -> None:
    """Counted: requests whose answer was in the journal when the process was started again.

    None of them may reach the endpoint after that. An answer that left the server and was not
    journalled before the kill is asked for again, and is not counted.
    """
    kills, seed = (60, random.randrange(10**6)) if LONG else (8, 3)
    print(f"seed {seed}")
    chance = random.Random(seed)
    data = write_problems(tmp_path / "problems.jsonl", 100 if LONG else 10)
    script = Numbered(restless)
    midway = 0
    with ScriptedEndpoint(script, delay=0.02) as server:
        run = Killed(tmp_path, server, data)
        paid: set[str] = set()
        for number in range(kills):
            before = len(script.requests)
            process = run.start()
            if number % 4 == 3:  # any time at all, the start included
                time.sleep(chance.random() * 1.2)
            else:  # a random moment after work has begun
                wanted = before + chance.randrange(1, 14)
                while len(script.requests) < wanted and process.poll() is None:
                    time.sleep(0.001)
                time.sleep(chance.random() * 0.03)
            if process.poll() is not None:
                break  # it got to its end before the kill
            midway += 1
            process.kill()
            process.wait()
            time.sleep(0.05)  # requests of the killed process that are still on their way
            repeated = paid & {identity(r) for r in script.requests[before:]}
            assert not repeated, f"{len(repeated)} journalled calls were made again"
            if run.store.exists():
                paid |= {identity(script.requests[n - 1]) for n in journalled(run.store)}
        else:
            before = len(script.requests)
            process = run.start()
        assert process.wait(timeout=300) == 0, run.said()
        assert not paid & {identity(r) for r in script.requests[before:]}
    assert midway >= kills // 2
    with Store.open(run.store) as store:
        (found,) = store.runs.all()
        assert store.runs.state(found) == "finished"
        integrity = store.port.connection.execute("pragma integrity_check")  # type: ignore[attr-defined]
        assert integrity.fetchone() == ("ok",)
    assert libraries(run.store) == _reference(tmp_path, verifier, data, found)


def _reference(
    tmp_path: Path, verifier: Verifier, data: Path, run: Run
) -> list[list[tuple[str, str]]]:
    """Returns the libraries of an undisturbed run with the uid of the killed one."""
    folder = tmp_path / "reference"
    folder.mkdir()
    values = {"epochs": 2, "batch_size": 4, "group_size": 4, "data": str(data)}
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
            until = time.monotonic() + 20
            while len(server.requests) < 12 and time.monotonic() < until:
                time.sleep(0.01)
            assert len(session(process.pid)) > 1
            process.kill()
            process.wait()
            until = time.monotonic() + 10
            while session(process.pid) and time.monotonic() < until:
                time.sleep(0.05)
            assert session(process.pid) == []
        finally:
            for left in session(process.pid):
                os.kill(left, signal.SIGKILL)


@posix
def test_an_interrupted_run_says_how_to_go_on_and_does(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "problems.jsonl", 4)
    with ScriptedEndpoint(restless, delay=0.02) as server:
        run = Killed(tmp_path, server, data)
        process = run.start()
        until = time.monotonic() + 20
        while len(server.requests) < 6 and time.monotonic() < until:
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130, run.said()
        assert "--resume run" in run.said()
        assert "Traceback" not in run.said()
        with Store.open(run.store) as store:
            assert store.runs.state(store.runs.get("run")) == "interrupted"
        process = run.start()
        assert process.wait(timeout=60) == 0, run.said()
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
        until = time.monotonic() + 20
        while not any(map(comparing, list(server.requests))) and time.monotonic() < until:
            time.sleep(0.005)
        process.kill()
        process.wait()
        time.sleep(0.05)
        before = len(server.requests)
        process = run.start()
        assert process.wait(timeout=60) == 0, run.said()
        assert all(map(comparing, server.requests[before:]))
    with Store.open(run.store) as store:
        assert [found.name for found in store.runs.all()] == ["problems"]
        assert len(store.runs.evaluations(0)) == 1
