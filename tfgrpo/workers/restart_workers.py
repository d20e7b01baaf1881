"""Workers on this machine: started together, again when one dies, and ended together."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from subprocess import Popen
from threading import Event

from tfgrpo.store import child_processes
from tfgrpo.store.errors import StoreAway
from tfgrpo.store.store import Store

PARENT = "TFGRPO_WORKER_PARENT"
"""The variable with the id of the process that a worker ends with."""
LOOK_SECONDS = 0.2
QUICK = 5.0
"""A worker that ends sooner than this, in seconds, is started again after as long a pause."""
PAUSE = 2.0
"""Seconds before a database that is away is tried again."""
COMMAND = "from tfgrpo.cli.main import main; main()"


def keep_workers(
    store: str, count: int, options: Sequence[str], stop: Event, on_note: Callable[[str], None]
) -> None:
    """Keeps so many workers at work until it is stopped. `store` is what opens it; a password goes
    into their environment. `options` are those of `tfgrpo workers run`."""
    environment = child_processes.whole(TFGRPO_STORE=store, **{PARENT: str(os.getpid())})
    command = child_processes.python("-c", COMMAND, "workers", "run", *options)
    begun: dict[int, float] = {}
    running: dict[int, Popen[bytes]] = {}
    try:
        while not stop.is_set():
            now = time.monotonic()
            for place in range(count):
                process = running.get(place)
                if process is not None and process.poll() is None:
                    continue
                if process is not None:
                    if now - begun[place] < QUICK:
                        continue
                    on_note(f"a worker has ended with status {process.returncode}: another begins")
                running[place] = child_processes.start(command, environment)
                begun[place] = now
            stop.wait(LOOK_SECONDS)
    finally:
        for process in running.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in running.values():
            process.wait()


def is_orphan() -> bool:
    """Whether this process was started by one that it ends with, and that is gone."""
    parent = os.environ.get(PARENT, "")
    return parent.isdecimal() and os.getppid() != int(parent)


def store_when_there(
    location: str,
    author: str | Callable[[], str],
    on_note: Callable[[str], None],
    is_wanted: Callable[[], bool] = lambda: True,
) -> Store | None:
    """Opens a store as soon as its database answers; None when it is not `is_wanted` any more.
    `on_note` is told that it is waited for. Raises StoreError for what waiting does not mend."""
    is_waiting = False
    while is_wanted():
        try:
            return Store.open(location, author=author)
        except StoreAway as error:
            if not is_waiting:
                on_note(f"{error}; it is waited for")
            is_waiting = True
        until = time.monotonic() + PAUSE
        while is_wanted() and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
    return None
