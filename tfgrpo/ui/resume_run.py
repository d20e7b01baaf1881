"""Going on with a run from a page: a process of its own, as if the command had been typed.

It outlives the server. What it says goes to a file beside the run's lock, whose end the page shows
while the run is not at work.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from subprocess import DEVNULL, STDOUT

from tfgrpo.store import child_processes
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.address import is_address, project_root, with_password
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.store import Store

SHOWN = 4_000
"""The characters of what a process said that a page shows."""
BEGINNING = 15.0
"""Seconds that are waited for a process to be at work: it loads models' clients first."""
ALIVE = ("running", "finished")


def output_path(store: Store, run: Run) -> Path:
    """Returns the file of what the process said that last went on with a run from a page."""
    return store.runs.lock_path(run).with_suffix(".said")


def go_on(store: Store, run: Run, author: str) -> int:
    """Begins a process that goes on with a run, in the name of `author`; returns its number once
    it is at work, has ended, or takes its time.

    Raises InvalidOperation where the run is at work or finished, and OSError.
    """
    state = store.runs.state(run)
    if state in ALIVE:
        raise InvalidOperation(f"run {run.name} is {state}: there is nothing to go on with")
    path = Path(store.path).absolute()
    opens = with_password(str(path))  # a password is no part of a command line: `ps` shows it
    main = "from tfgrpo.cli.main import main; main()"
    named = [] if is_address(opens) else ["--store", opens]
    command = child_processes.python("-c", main, *named, "train", "--resume", run.name)
    output = output_path(store, run)
    output.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(output, flags, 0o600)
    try:
        process = child_processes.start(
            command,
            child_processes.whole(TFGRPO_STORE=opens, TFGRPO_AUTHOR=author, NO_COLOR="1"),
            cwd=project_root(path),
            stdin=DEVNULL,
            stdout=handle,
            stderr=STDOUT,
            start_new_session=True,
        )
    finally:
        os.close(handle)
    threading.Thread(target=process.wait, daemon=True).start()  # so that none is left behind
    until = time.monotonic() + BEGINNING
    while time.monotonic() < until and process.poll() is None:
        if store.runs.state(run) == "running":
            break
        time.sleep(0.05)
    return process.pid


def last_words(store: Store, run: Run) -> str | None:
    """Returns the end of what that process said; None where there is nothing."""
    try:
        text = output_path(store, run).read_text(errors="replace")
    except OSError:
        return None
    return text.strip()[-SHOWN:] or None
