"""What the store's tests share: a clock, child processes, and the digest rule written again.

`broken` knows the file format and nothing of `tfgrpo`: sqlite3, json and hashlib only, so that
it can contradict the code that wrote the file.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tfgrpo.store import Operation, Store, derived_id


def clock(start: int = 1_000_000) -> Callable[[], int]:
    """Returns a clock in microseconds that never says the same time twice."""
    return itertools.count(start, 1_000).__next__


def begin(store: Store, settings: Any, *, new: bool = False) -> tuple[Any, bool]:
    """Puts a run with these settings on record, unless there is one; returns it, and whether."""
    from tfgrpo.learn.run_setup import alike, prepare_run, put_on_record

    known = None if new else alike(store, settings)
    if known is not None:
        return known, True
    run = prepare_run(store, settings)
    put_on_record(store, run)
    return store.runs.get(run.name), False


def add(text: str, id: str | None = None) -> Operation:
    return Operation("ADD", id, text)


def fixed(text: str) -> Operation:
    """An ADD whose id follows from the text: chance that goes by ids is the same every time."""
    return add(text, derived_id("tests", text))


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Starts a Python process that runs `code` with these arguments, its pipes open: a fork of one
    that has imported everything."""
    from conftest import command_server
    from forked import ForkedPython

    return ForkedPython(command_server().address, code, *arguments)


def run_child(code: str, *arguments: object) -> str:
    """Runs `code` to its end and returns what it printed; its failure is the test's."""
    process = child(code, *arguments)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out


@contextmanager
def killed(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Ends the process with SIGKILL on leaving, and closes its pipes."""
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def kill_after_ready(process: subprocess.Popen[str], dice: random.Random, most: float) -> list[str]:
    """Waits for the line `ready`, kills at a random instant within `most` seconds, and returns
    the whole lines that were printed before."""
    assert process.stdout is not None
    assert process.stderr is not None
    with killed(process):
        first = process.stdout.readline()
        assert first == "ready\n", first + process.stderr.read()
        time.sleep(dice.uniform(0, most))
        process.send_signal(signal.SIGKILL)
        process.wait()
        printed = process.stdout.read()
    return printed.split("\n")[:-1]


def kills(most: int = 20) -> int:
    """How many times a kill test kills: TFGRPO_KILLS=500 for the long form."""
    return int(os.environ.get("TFGRPO_KILLS", str(most)))


def canonical(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return text.encode("utf-8")


def broken(path: Path) -> list[str]:
    """Recomputes every digest and seal of a store file; returns what does not match."""
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    wrong = []
    digests: dict[int, bytes] = {}
    for version in db.execute("select * from versions order by number"):
        events = db.execute(
            "select * from events where row > ? and row <= ? order by row",
            (version["position"] - version["events"], version["position"]),
        ).fetchall()
        if len(events) != version["events"]:
            wrong.append(f"v{version['number']} has {len(events)} events")
        content = [
            "tfgrpo.version",
            version["schema"],
            [digests[version[p]].hex() for p in ("parent", "merged") if version[p] is not None],
            version["author"],
            version["time"],
            version["message"],
            version["meta"],
            [
                [
                    event["op"],
                    event["experience"],
                    event["seal"].hex() if event["seal"] is not None else None,
                    event["evidence"],
                    event["schema"],
                ]
                for event in events
            ],
        ]
        digests[version["number"]] = version["digest"]
        if hashlib.sha256(canonical(content)).digest() != version["digest"]:
            wrong.append(f"digest of v{version['number']}")
        wrong += [f"seal of event {event['row']}" for event in events if not sealed(event)]
    total = db.execute("select coalesce(sum(events), 0) from versions").fetchone()[0]
    recorded = db.execute("select count(*) from events").fetchone()[0]
    if recorded != total:
        wrong.append(f"{recorded} events, versions say {total}")
    db.close()
    return wrong


def sealed(event: sqlite3.Row) -> bool:
    """Whether an event's seal is that of its text and reason; a redacted one has no salt."""
    if event["salt"] is None:
        return event["text"] is None and event["reason"] is None
    content = event["salt"] + canonical([event["text"], event["reason"]])
    return hashlib.sha256(content).digest() == bytes(event["seal"])
