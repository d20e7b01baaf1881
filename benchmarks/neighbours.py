"""Scenario: the same history in every store, the same questions to each in turn."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Sizes, median, median_cpu, span
from benchmarks.worker import PEERS, Timed, Worker
from benchmarks.workload import LIVE, batches, changes

QUESTIONS = {
    "append": "append one durable version of one event",
    "checkout": "check out any version",
    "diff": "diff of neighbouring versions",
    "log": "newest entry of the log",
    "history": "one experience's history",
    "blame": "blame of the whole library",
    "check": "check everything",
}


def verdict(figures: Sequence[float | None]) -> str:
    """Returns whether the first is ahead of the versioned stores, which come after the raw table,
    that can do the same."""
    ours, _, *others = figures
    there = [figure for figure in others if figure is not None]
    assert ours is not None
    return "met" if all(ours <= figure for figure in there) else "**missed**"


def measure(folder: Path, sizes: Sizes) -> list[list[str]]:
    """Returns the table's rows: what was asked, then a figure for each store."""
    rounds = max(5, sizes.rounds // 4)
    count = sizes.small
    last = sum(1 for _ in batches(count))
    workers = [Worker(name, folder / f"peer-{name}") for name in PEERS]
    rows = [["build, an event"], ["bytes per event"]]
    spent, sizes_there = [], []
    for worker in workers:
        spent.append(worker("build", count, LIVE).seconds / count)
        rows[0].append(span(spent[-1]))
        sizes_there.append(worker("size").value / count)
        rows[1].append(f"{sizes_there[-1]:,.0f}")
    rows[0].append(verdict(spent))
    rows[1].append(verdict(sizes_there[:-1]))  # git's packed bytes apart
    keys = [[key] for key in workers[0]("live", rounds).value]
    dice = random.Random(11)
    versions = [dice.randrange(last // 2, last) for _ in range(rounds)]
    events = (change for change in changes(count * 2, seed=13) if change.op == "ADD")
    fresh = [[[next(events)._replace(key=f"fresh{n:07}")]] for n in range(rounds)]
    asked: dict[str, list[list[object]]] = {
        "append": [list(each) for each in fresh],
        "checkout": [[version] for version in versions],
        "diff": [[version - 1, version] for version in versions],
        "history": [list(key) for key in keys],
    }
    for question, told in sorted(QUESTIONS.items(), key=lambda pair: pair[0] == "append"):
        found: list[list[Timed]] = [[] for _ in workers]
        for number in range(rounds if question not in ("blame", "check") else 3):
            arguments = asked.get(question, [[]])
            for each, worker in zip(found, workers, strict=True):
                each.append(worker(question, *arguments[number % len(arguments)]))
        each_took = [
            None if t[0].value is None else (median if question == "append" else median_cpu)(t)
            for t in found
        ]
        cells = ["–" if took is None else span(took) for took in each_took]
        rows.append([told, *cells, verdict(each_took)])
    for worker in workers:
        worker.__exit__()
    return rows
