"""Scenario: durable appends, beside a raw insert of the same events; and what a name costs."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.figures import Figure, Sizes, alternating, median, median_cpu, span, times
from benchmarks.worker import Worker
from benchmarks.workload import LIVE, changes

GOALS = {1: 1.3, 10: 2.0, 100: 3.0, 1000: 3.0}
PAGE = 4096 + 24  # a frame of SQLite's write-ahead log


def measure(folder: Path, sizes: Sizes) -> list[Figure]:
    """Appends versions of 1, 10, 100 and 1000 events in turn to this store and to a raw table."""
    stream = changes(2_000_000)
    figures: list[Figure] = []
    with Worker("tfgrpo", folder / "a") as ours, Worker("sqlite3", folder / "b") as raw:
        for batch, goal in GOALS.items():
            rounds = max(10, sizes.rounds * 10 // (1, 2, 5, 20)[len(figures)])
            lots = [[[next(stream) for _ in range(batch)]] for _ in range(rounds)]
            o, r = alternating(rounds, (ours, "append", lots), (raw, "append", lots))
            wall, cpu = median(o) / median(r), median_cpu(o) / median_cpu(r)
            figure = f"{span(median(o) / batch)}, CPU {span(median_cpu(o) / batch)}"
            beside = f"raw {span(median(r) / batch)}: {times(wall)}, CPU {times(cpu)}"
            if batch == 1:
                what, wanted = "one durable version of one event", "wall ≤ 1.3× raw"
            else:
                what, wanted = f"an event in versions of {batch}", f"≤ {goal:g}× raw per event"
            figures.append(Figure(what, figure, beside, wanted, wall <= goal))
    pages = _pages(folder, "tfgrpo")
    what = "pages of the write-ahead log for one event"
    figures.append(Figure(what, f"{pages}", f"raw {_pages(folder, 'sqlite3')}", "< 7", pages < 7))
    return figures


def _pages(folder: Path, name: str) -> int:
    """Returns how many pages a durable version of one event writes."""
    file = folder / f"pages-{name}" / {"tfgrpo": "ours.db-wal", "sqlite3": "raw.db-wal"}[name]
    with Worker(name, file.parent) as worker:
        after = []
        for change in changes(20):
            worker("append", [change])
            after.append(file.stat().st_size)
    return round(statistics.median(b - a for a, b in pairwise(after)) / PAGE)


def floors(folder: Path, sizes: Sizes) -> list[str]:
    """Measures what lies below the appends: the pages written, and the bare inserts."""
    pages = {name: _pages(folder / "floors", name) for name in ("tfgrpo", "sqlite3")}
    bare: dict[str, list[float]] = {name: [] for name in pages}
    for _ in range(sizes.rounds * 5):
        for name, count in pages.items():
            bare[name].append(_synced(folder / f"file-{name}", count))
    told = ", ".join(
        f"{name} {count} ({span(statistics.median(bare[name]))})" for name, count in pages.items()
    )
    with Worker("tfgrpo", folder / "c") as ours, Worker("sqlite3", folder / "d") as raw:
        ours("build", sizes.small, LIVE)
        stream = changes(20_000)
        lots = [[[next(stream) for _ in range(1000)]] for _ in range(11)]
        again, plain = alternating(11, (ours, "reinsert", [(1000,)]), (raw, "append", lots))
    each = statistics.median(t.value for t in again)
    return [
        "Pages of the write-ahead log that a durable version of one event takes, and the time in "
        f"which a bare file takes as many bytes and an fdatasync: {told}.",
        "The events of versions of 1000, inserted anew by bare `executemany` into the same table "
        f"with its index and triggers, and no digest made: {span(each)} an event, "
        f"{times(each / (median(plain) / 1000))} the raw table's.",
    ]


def _synced(path: Path, pages: int) -> float:
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.lseek(handle, 0, os.SEEK_END)
        start = time.perf_counter()
        for _ in range(pages):
            os.write(handle, b"x" * PAGE)
        os.fdatasync(handle)
        return time.perf_counter() - start
    finally:
        os.close(handle)


def syncs(folder: Path) -> list[Figure]:
    """Counts what a version, a branch, a tag and a rollback write and how often they sync."""
    if shutil.which("strace") is None:
        return [Figure("syncs", "not counted: there is no strace here", "", "1 fdatasync", None)]
    trace = folder / "trace"
    figures = []
    with Worker("tfgrpo", folder / "e", trace=trace) as ours:
        stream = changes(100)
        ours("append", [next(stream)])  # the first one also makes the write-ahead log
        for what, method in (
            ("one durable version", "append"),
            ("a branch", "branch"),
            ("a tag", "tag"),
            ("a rollback", "rollback"),
        ):
            before, rows = _count(trace), []
            for _ in range(20):
                arguments = [[next(stream)]] if method == "append" else []
                rows.append(ours(method, *arguments).value)
            each = (_count(trace) - before) / 20
            if method == "append":
                figures.append(Figure(what, f"{each:g} fdatasync", "", "1 fdatasync", each == 1))
            else:
                told = f"{statistics.median(rows):g} row, {each:g} fdatasync"
                met = each == 1 and set(rows) == {1}
                figures.append(Figure(what, told, "", "one row, one fdatasync", met))
    return figures


def _count(trace: Path) -> int:
    return sum("fdatasync(" in line or "fsync(" in line for line in trace.read_text().split("\n"))
