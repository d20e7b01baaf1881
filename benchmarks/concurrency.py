"""How fairly writers take turns: 8 writers and 4 readers on one store, for some seconds.

    python benchmarks/concurrency.py [--seconds 10] [--writers 8] [--readers 4]

Every writer commits one ADD after another to the same branch. Its *fair share* is what serving
the writers one after the other would give: one turn in every `writers`. A wait of 1.0 is
therefore one whole round (`writers` × the mean time between two commits of the store). Two rows
are printed: the store, and bare sqlite3 with `begin immediate` and a busy timeout on the same
rows, which is what a program has that leaves the turns to SQLite.

`turns` counts, between two commits of one writer, the commits of all others, in rounds. Readers
read the newest library or row again and again; their times stand beside those of readers with
no writer.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeAlias

from tfgrpo.store import Operation, Store

Times: TypeAlias = list[tuple[int, int]]
"""Begin and end of each piece of work, in nanoseconds of the monotonic clock."""

Prepare: TypeAlias = Callable[[Path, int], Callable[[], object]]


def store_writer(path: Path, number: int) -> Callable[[], object]:
    store = Store.open(path, author=f"writer {number}")
    text = "Check the units of every quantity before adding two of them."
    return lambda: store.commit("main", [Operation("ADD", text=text)], message="one more")


def store_reader(path: Path, number: int) -> Callable[[], object]:
    store = Store.open(path)
    return lambda: store.head


def sqlite_writer(path: Path, number: int) -> Callable[[], object]:
    db = sqlite3.connect(path, isolation_level=None, timeout=60)
    db.execute("pragma synchronous = full")

    def write() -> None:
        db.execute("begin immediate")
        (row,) = db.execute("select coalesce(max(row), 0) + 1 from events").fetchone()
        db.execute("insert into events values (?, ?, ?)", (row, number, "x" * 300))
        db.execute("commit")

    return write


def sqlite_reader(path: Path, number: int) -> Callable[[], object]:
    db = sqlite3.connect(path, isolation_level=None, timeout=60)
    return lambda: db.execute("select max(row) from events").fetchone()


def work(prepare: Prepare, path: Path, number: int, seconds: float, pipe: Connection) -> None:
    do = prepare(path, number)
    pipe.send("ready")
    pipe.recv()
    times: Times = []
    until = time.monotonic_ns() + int(seconds * 1e9)
    while (begin := time.monotonic_ns()) < until:
        do()
        times.append((begin, time.monotonic_ns()))
    pipe.send(times)


def together(path: Path, jobs: list[Prepare], seconds: float) -> list[Times]:
    """Runs one process for each job at once; returns what each measured."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for number, prepare in enumerate(jobs):
        ours, theirs = context.Pipe()
        processes.append(
            context.Process(target=work, args=(prepare, path, number, seconds, theirs))
        )
        processes[-1].start()
        pipes.append(ours)
    for pipe in pipes:
        assert pipe.recv() == "ready"
    for pipe in pipes:
        pipe.send("go")
    measured = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join()
    return measured


def at(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def turns(writers: list[Times]) -> list[float]:
    """Returns, for each pair of one writer's commits, the commits between them, in rounds."""
    ends = sorted((end, number) for number, times in enumerate(writers) for _, end in times)
    last: dict[int, int] = {}
    between = []
    for place, (_, number) in enumerate(ends):
        if number in last:
            between.append((place - last[number] - 1) / len(writers))
        last[number] = place
    return between


def row(name: str, writers: list[Times], readers: list[Times], alone: list[Times]) -> str:
    commits = sum(map(len, writers))
    begin = min(times[0][0] for times in writers)
    end = max(times[-1][1] for times in writers)
    fair = (end - begin) / commits * len(writers)
    waits = [(e - b) / fair for times in writers for b, e in times]
    worst_ms = max(waits) * fair / 1e6
    counts = list(map(len, writers))
    reads = [(e - b) / 1e6 for times in readers for b, e in times]
    quiet = [(e - b) / 1e6 for times in alone for b, e in times]
    return (
        f"| {name} | {commits * 1e9 / (end - begin):.0f} | {min(counts)}–{max(counts)} "
        f"| {fair / 1e6:.2f} ms | {at(waits, 0.5):.2f} | {at(waits, 0.99):.2f} "
        f"| {max(waits):.2f} ({worst_ms:.0f} ms) | {max(turns(writers)):.2f} "
        f"| {at(reads, 0.5):.3f} / {at(reads, 0.99):.2f} / {max(reads):.1f} ms "
        f"| {at(quiet, 0.5):.3f} / {at(quiet, 0.99):.2f} / {max(quiet):.1f} ms |"
    )


def one_writer(path: Path, prepare: Prepare, seconds: float) -> float:
    """Returns the median time of a commit that nobody contends for, in microseconds."""
    (times,) = together(path, [prepare], seconds)
    return at([(e - b) / 1e3 for b, e in times], 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--readers", type=int, default=4)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tfgrpo-concurrency-"))
    try:
        Store.init(folder / "store.db").close()
        db = sqlite3.connect(folder / "raw.db")
        db.execute("pragma journal_mode = wal")
        db.execute("create table events (row integer primary key, writer integer, text text)")
        db.close()
        print(
            "| | commits/s | per writer | fair share | wait p50 | p99 | worst | worst turns "
            "| reads p50 / p99 / max | without writers |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|")
        for name, file, writer, reader in (
            ("tfgrpo", "store.db", store_writer, store_reader),
            ("sqlite3", "raw.db", sqlite_writer, sqlite_reader),
        ):
            alone = together(folder / file, [reader] * asked.readers, min(asked.seconds, 2))
            jobs = [writer] * asked.writers + [reader] * asked.readers
            measured = together(folder / file, jobs, asked.seconds)
            print(row(name, measured[: asked.writers], measured[asked.writers :], alone))
        print()
        alone_us = one_writer(folder / "store.db", store_writer, min(asked.seconds, 5))
        print(f"one writer alone: {alone_us:.0f} µs a commit (median)")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
