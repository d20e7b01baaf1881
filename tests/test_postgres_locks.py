"""A run in a shared store is seen to be at work, and left alone, from every machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import environment

from tfgrpo.store import Store

pytestmark = pytest.mark.postgres

HOLDER = """
import sys, time
from tfgrpo.store import Store
with Store.open(sys.argv[1]) as store:
    run = store.runs.create("r", "5" * 32, "main", 0, {}, "ann")
    with store.runs.hold(store.runs.lock_path(run)) as free:
        print(free, flush=True)
        time.sleep(600)
"""


def test_a_run_at_work_on_another_machine_is_not_begun_again(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    monkeypatch.chdir(ours)
    with Store.init(shared, author="ann") as store:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, shared],
            cwd=theirs,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "True\n"
            run = store.runs.get("r")
            path = store.runs.lock_path(run)
            assert not path.exists(), "the file is on the other machine"
            assert store.runs.state(run) == "running"
            with store.runs.hold(path) as free:
                assert not free
            os.kill(holder.pid, signal.SIGKILL)
            holder.wait()
            until = time.monotonic() + 240
            while store.runs.is_held(path) and time.monotonic() < until:
                time.sleep(0.02)
            assert store.runs.state(run) != "running"
            with store.runs.hold(path) as free:
                assert free
                assert store.runs.state(run) == "running"
        finally:
            holder.kill()
            holder.wait()
