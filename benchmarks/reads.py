"""Scenario: what people ask of a long history, in a small store and in a large one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from benchmarks.figures import Figure, Sizes, alternating, both, median, median_cpu, span, times
from benchmarks.worker import Worker
from benchmarks.workload import LIVE, batches

APART = {1: 0.06e-3, 100: 0.4e-3, 1000: 2.5e-3}


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Builds both stores and a raw table, and asks."""
    with (
        Worker("tfgrpo", folder / "small") as small,
        Worker("tfgrpo", folder / "large") as large,
        Worker("sqlite3", folder / "raw") as raw,
    ):
        small("build", sizes.small, LIVE)
        for worker in (large, raw):
            worker("build", sizes.large, LIVE)
        yield from _checkouts(small, large, raw, sizes)
        yield from _diffs(large, sizes)
        logs = alternating(sizes.rounds * 3, (small, "log", [()]), (large, "log", [()]))
        first, newest = map(median_cpu, logs)
        yield Figure(
            f"first row of `log`, {_versions(sizes.large):,} versions",
            both(logs[1]),
            f"{_versions(sizes.small):,} versions: {span(first)}",
            "≤ 0.1 ms",
            newest <= 0.1e-3,
        )
        yield from _lives(large, sizes)
        peak = large("peak").value
        yield Figure(
            f"peak memory of the process that did the above, {sizes.large:,} events",
            f"{peak:.0f} MB",
            "",
            "–",
            None,
        )
        yield from _sizes(large, raw, sizes)
        (checks,) = alternating(3, (large, "check", [()]))
        rate = sizes.large / median(checks)  # on both cores: what counts is when it is done
        (hashes,) = alternating(3, (large, "hash", [()]))
        yield Figure(
            f"`fsck` of {sizes.large:,} events",
            both(checks),
            f"{rate / 1000:,.0f} k events/s; the seals alone {span(median_cpu(hashes))}",
            "≥ 250 k events/s",
            rate >= 250_000,
        )


def _checkouts(small: Worker, large: Worker, raw: Worker, sizes: Sizes) -> Iterator[Figure]:
    dice = random.Random(5)

    def some(count: int) -> list[tuple[int]]:
        last = _versions(count)  # the first half of a small store has not reached its bound
        return [(dice.randrange(last // 2, last + 1),) for _ in range(sizes.rounds)]

    versions = some(sizes.large)
    (b,) = alternating(sizes.rounds, (large, "checkout", versions))
    (folds,) = alternating(3, (raw, "checkout", [(_versions(sizes.large),)]))
    took, fold = median_cpu(b), median_cpu(folds)
    # Of few versions others are remembered that are near by, of many hardly one: neither here.
    near, far = alternating(
        sizes.rounds, (small, "recheckout", some(sizes.small)), (large, "recheckout", versions)
    )
    beside = median_cpu(far) / median_cpu(near)
    yield Figure(
        f"check out any version of {sizes.large:,} events, {LIVE:,} live",
        f"{both(b)}, slowest {span(max(t.cpu for t in b))}",
        "",
        "≤ 2 ms median",
        took <= 2e-3,
    )
    yield Figure(
        "  beside a full fold of the raw table",
        times(fold / took),
        f"fold {span(fold)}",
        "≥ 400×",
        fold / took >= 400,
    )
    yield Figure(
        f"  beside itself at {sizes.small:,} events, nothing remembered",
        times(beside),
        f"{span(median_cpu(far))} beside {span(median_cpu(near))}",
        "≤ 1.3×",
        beside <= 1.3,
    )


def _diffs(large: Worker, sizes: Sizes) -> Iterator[Figure]:
    for apart, goal in APART.items():
        pairs = _pairs(sizes.large, apart)
        (found,) = alternating(sizes.rounds, (large, "diff", pairs))
        took = median_cpu(found)
        what = f"diff of versions {apart} event{'s' if apart > 1 else ''} apart"
        yield Figure(what, both(found), "", f"≤ {span(goal)}", took <= goal)
    dice = random.Random(6)
    last = _versions(sizes.large)
    pairs = [(dice.randrange(1, last), dice.randrange(1, last)) for _ in range(sizes.rounds)]
    (found,) = alternating(sizes.rounds, (large, "diff", pairs))
    took = median_cpu(found)
    slowest = f"{both(found)}, slowest {span(max(t.cpu for t in found))}"
    yield Figure("diff of any two versions", slowest, "", "≤ 10 ms", took <= 10e-3)


def _lives(large: Worker, sizes: Sizes) -> Iterator[Figure]:
    keys = [(key,) for key in large("live", sizes.rounds).value]
    (found,) = alternating(len(keys), (large, "history", keys))
    each = sum(t.cpu for t in found) / sum(t.value for t in found)
    mean = sum(t.value for t in found) / len(found)
    yield Figure(
        "one experience's history",
        f"{span(each)} an event",
        f"{mean:.1f} events each",
        "≤ 10 µs an event",
        each <= 10e-6,
    )
    last = _versions(sizes.large)
    large("ask", last)
    b, c, d = alternating(
        sizes.rounds // 2,
        (large, "blame", [()]),
        (large, "recheckout", [(last,)]),
        (large, "authors", [()]),
    )
    ratio, rows = median_cpu(b) / median_cpu(c), median_cpu(d) / median_cpu(c)
    beside = f"checkout {span(median_cpu(c))}: {times(ratio)}; bare rows of events {times(rows)}"
    yield Figure("blame of the whole library", both(b), beside, "≤ 2× a checkout", ratio <= 2)


def _sizes(large: Worker, raw: Worker, sizes: Sizes) -> Iterator[Figure]:
    ours, plain = large("size").value / sizes.large, raw("size").value / sizes.large
    yield Figure(
        "bytes per event",
        f"{ours:.0f}",
        f"raw {plain:.0f}: {times(ours / plain)}",
        "≤ 1.8× raw",
        ours / plain <= 1.8,
    )


def unbounded(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Measures a library that is never full: 370,000 live experiences of 1,000,000 events."""
    last = _versions(sizes.large)
    with Worker("tfgrpo", folder / "unbounded") as ours:
        ours("build", sizes.large, None)
        ours("ask", last)
        bare, whole = alternating(5, (ours, "bare", [()]), (ours, "recheckout", [(last,)]))
        ratio = median_cpu(whole) / median_cpu(bare)
        live, size, kept = whole[0].value, ours("size").value, ours("snapshots").value
        yield Figure(
            f"check out {live:,} live experiences of {sizes.large:,} events",
            both(whole),
            f"bare row fetch {span(median_cpu(bare))}: {times(ratio)}",
            "≤ 2× the bare row fetch",
            ratio <= 2,
        )
        share = kept / (size - kept)
        told = f"{kept / 1e6:.1f} MB of {size / 1e6:.0f} MB"
        yield Figure("  its snapshots", f"{share:.1%} of the log", told, "≤ 10 %", share <= 0.1)
        yield Figure("  peak memory", f"{ours('peak').value:.0f} MB", "", "–", None)


def _versions(count: int) -> int:
    return sum(1 for _ in batches(count))


def _pairs(count: int, apart: int) -> list[tuple[int, int]]:
    """Returns pairs of versions with so many events between them, from all over the history."""
    ends = [0, *accumulate(batches(count))]
    at = {end: number for number, end in enumerate(ends)}
    pairs = [(number, at[end + apart]) for end, number in at.items() if end + apart in at]
    return random.Random(7).sample(pairs[len(pairs) // 2 :], min(200, len(pairs) // 2))
