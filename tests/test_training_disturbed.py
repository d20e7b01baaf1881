"""What a person or a system does to a run at work: signals, undo, a store taken away."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from scripted import Reply, ScriptedEndpoint, restless, stage, write_problems
from test_training import posix
from test_training_killed import Killed
from waiting import until

from tfgrpo.store import Store


@posix
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_told_to_end_ends_as_by_ctrl_c(
    tmp_path: Path, number: signal.Signals
) -> None:
    data = write_problems(tmp_path / "problems.jsonl", 4)
    with ScriptedEndpoint(restless, delay=0.3) as server:
        run = Killed(tmp_path, server, data)
        before = signal.signal(number, signal.SIG_DFL)  # under nohup it would be ignored
        process = run.start()
        signal.signal(number, before)
        until(lambda: len(server.requests) >= 6)
        process.send_signal(number)
        assert process.wait(timeout=240) == 128 + number, run.said()
        assert "--resume run" in run.said()
        assert "Traceback" not in run.said()
        asked = len(server.requests)
    with Store.open(run.store) as store:
        found = store.runs.get("run")
        assert store.runs.state(found) == "interrupted"
        kept = sum(spent.usage.calls for spent in store.runs.spent(found))
    assert kept == asked, "answers that were on their way are paid for, and kept"


@posix
def test_under_nohup_a_closed_terminal_does_not_end_a_run(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "problems.jsonl", 2)
    with ScriptedEndpoint(restless, delay=0.02) as server:
        run = Killed(tmp_path, server, data)
        ignoring = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
        run.command[2] = ignoring + run.command[2]
        run.command += ["--epochs", "1"]
        process = run.start()
        until(lambda: len(server.requests) >= 2)
        process.send_signal(signal.SIGHUP)
        assert process.wait(timeout=300) == 0, run.said()


def begun(path: Path) -> bool:
    """Returns whether the run is on record, as it is from its first answer on."""
    if not path.exists():
        return False
    with Store.open(path) as store:
        return "run/step_0" in store.tags()


@posix
def test_undo_leaves_alone_what_a_run_at_work_builds_on(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "problems.jsonl", 4)
    undoing = threading.Event()

    def script(request: dict[str, Any]) -> str | Reply:
        assert stage(request) == "rollout" or undoing.wait(120)
        return restless(request)

    with ScriptedEndpoint(script) as server:
        run = Killed(tmp_path, server, data)
        run.command += ["--epochs", "1"]
        process = run.start()
        until(lambda: begun(run.store))
        command = [*run.command[:5], "undo"]
        undone = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (undone.returncode, process.poll()) == (1, None)
        undoing.set()
        assert "the last operation is of run run, which is at work" in undone.stderr
        assert process.wait(timeout=300) == 0, run.said()
    with Store.open(run.store) as store:
        assert {"run/step_0", "run/step_1"} <= set(store.tags())


@posix
def test_what_an_undo_took_from_an_interrupted_run_is_there_again_when_it_resumes(
    tmp_path: Path,
) -> None:
    data = write_problems(tmp_path / "problems.jsonl", 4)
    with ScriptedEndpoint(restless, delay=0.05) as server:
        run = Killed(tmp_path, server, data)
        run.command += ["--epochs", "1", "--branch", "learned"]
        process = run.start()
        until(lambda: begun(run.store))
        process.kill()
        process.wait()
        subprocess.run([*run.command[:5], "undo"], check=True, cwd=tmp_path, capture_output=True)
        process = run.start()
        assert process.wait(timeout=300) == 0, run.said()
    with Store.open(run.store) as store:
        assert {"run/step_0", "run/step_1"} <= set(store.tags())
        assert store.tip("learned").number == store.tags()["run/step_1"]


@posix
def test_a_run_whose_store_is_taken_away_stops_and_asks_for_no_more(tmp_path: Path) -> None:
    folder = tmp_path / "there"
    folder.mkdir()
    data = write_problems(tmp_path / "problems.jsonl", 40)
    with ScriptedEndpoint(restless, delay=0.2) as server:
        run = Killed(folder, server, data)
        process = run.start()
        until(lambda: len(server.requests) >= 4)
        shutil.rmtree(folder)
        assert process.wait(timeout=240) == 1
        assert len(server.requests) < 150, "of 640 and more"
