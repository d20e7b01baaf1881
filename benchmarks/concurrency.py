"""How fairly writers take turns: 8 writers and 4 readers on one store, for some seconds.

    python -m benchmarks.concurrency [--seconds 10] [--writers 8] [--readers 4]

Every writer commits one ADD after another to one branch, without a pause. Its *fair share* is
what serving the writers one after the other gives: each of the others once, then this one. So a
wait is counted in rounds, the commits of others that were finished while a commit waited, by the
number of others: 1.0 is the fair share. (A stall that is everybody's, such as a checkpoint or
a busy disk, is not unfair; the worst wait is therefore given in milliseconds too.)

Two rows are printed: the store, and bare sqlite3 with `begin immediate` and a busy timeout, which
is what a program has that leaves the turns to SQLite. Readers ask for HEAD (or the newest row) and
rest for --rest milliseconds; their times stand beside those of readers with no writer.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sqlite3
import tempfile
import time
from bisect import bisect_left, bisect_right
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


def work(
    prepare: Prepare, path: Path, number: int, seconds: float, rest: float, pipe: Connection
) -> None:
    do = prepare(path, number)
    pipe.send("ready")
    pipe.recv()
    times: Times = []
    until = time.monotonic_ns() + int(seconds * 1e9)
    while (begin := time.monotonic_ns()) < until:
        do()
        times.append((begin, time.monotonic_ns()))
        if rest:
            time.sleep(rest)
    pipe.send(times)


def together(path: Path, jobs: list[tuple[Prepare, float]], seconds: float) -> list[Times]:
    """Runs one process at once for each job and its rest in seconds; returns what each measured."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for number, (prepare, rest) in enumerate(jobs):
        ours, theirs = context.Pipe()
        asked = (prepare, path, number, seconds, rest, theirs)
        processes.append(context.Process(target=work, args=asked))
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


def rounds(writers: list[Times]) -> list[float]:
    """Returns for each commit how many of others were finished meanwhile, in rounds."""
    ends = [sorted(end for _, end in times) for times in writers]
    others = max(1, len(writers) - 1)
    return [
        sum(
            bisect_left(of, end) - bisect_right(of, begin)
            for other, of in enumerate(ends)
            if other != number
        )
        / others
        for number, times in enumerate(writers)
        for begin, end in times
    ]


def row(name: str, writers: list[Times], readers: list[Times], alone: list[Times]) -> str:
    commits = sum(map(len, writers))
    seconds = (max(t[-1][1] for t in writers) - min(t[0][0] for t in writers)) / 1e9
    counts = list(map(len, writers))
    waits = rounds(writers)
    worst_ms = max(end - begin for times in writers for begin, end in times) / 1e6
    cells = [
        name,
        f"{commits / seconds:.0f}",
        f"{min(counts)}–{max(counts)}",
        *(f"{at(waits, share):.2f}" for share in (0.5, 0.99, 1)),
        f"{worst_ms:.0f} ms",
    ]
    for times in (readers, alone):
        took = [(end - begin) / 1e6 for each in times for begin, end in each] or [0.0]
        cells.append(" / ".join(f"{at(took, share):.2f}" for share in (0.5, 0.99, 1)) + " ms")
    return "| " + " | ".join(cells) + " |"


def one_writer(path: Path, prepare: Prepare, seconds: float) -> float:
    """Returns the median time of a commit that nobody contends for, in microseconds."""
    (times,) = together(path, [(prepare, 0)], seconds)
    return at([(e - b) / 1e3 for b, e in times], 0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--readers", type=int, default=4)
    parser.add_argument("--rest", type=float, default=1, help="of a reader, in milliseconds")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tfgrpo-concurrency-"))
    try:
        Store.init(folder / "store.db").close()
        db = sqlite3.connect(folder / "raw.db")
        db.execute("pragma journal_mode = wal")
        db.execute("create table events (row integer primary key, writer integer, text text)")
        db.close()
        print(
            "| | commits/s | per writer | wait p50 | p99 | worst, in rounds | worst "
            "| reads p50 / p99 / max | without writers |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for name, file, writer, reader in (
            ("tfgrpo", "store.db", store_writer, store_reader),
            ("sqlite3", "raw.db", sqlite_writer, sqlite_reader),
        ):
            readers = [(reader, asked.rest / 1000)] * asked.readers
            alone = together(folder / file, readers, min(asked.seconds, 2))
            jobs = [(writer, 0.0)] * asked.writers + readers
            measured = together(folder / file, jobs, asked.seconds)
            print(row(name, measured[: asked.writers], measured[asked.writers :], alone))
        print()
        alone_us = one_writer(folder / "store.db", store_writer, min(asked.seconds, 5))
        print(f"one writer alone: {alone_us:.0f} µs a commit (median)")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
