"""The page of results, and the machine it was made on."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Sequence
from importlib import metadata

from benchmarks.figures import Figure, Sizes
from benchmarks.machine import busy_machine
from benchmarks.worker import PEERS

HEAD = """# Results

Written by `python -m benchmarks`; [how to run and read it](README.md). Ratios were made in one run,
the two sides in turn; times are medians. Appends, which wait for the disk, are in wall time;
everything else, which waits for nothing, is in CPU time and judged by it.

"""
WHY = """## Why a goal is missed

- **One durable version of one event.** Its pages are one of each tree that an event is in:
  `versions` and its indexes by digest and by position, `events` and its index by experience,
  `reflog` and its index by name. A bare file takes six pages less sooner by about a tenth of
  the version's time (above): with every index given up the goal would hardly be met, and nothing
  found. A version is five statements beside `begin` and `commit`, in three tables, two of them with
  a trigger and references that are checked; the raw table's is one, which takes 260 µs of CPU
  where ours take 840, eventsourcing 790 and DoltLite 810 (lowest tenth of 300, in one run).
- **Events in versions of 10 and more, and building beside DoltLite.** Of versions of 100 an event
  takes 55 µs of CPU (before: 69), DoltLite's 28, the raw table's 8. Bare `executemany` of the same
  rows, made before, with the rows of versions and names, is 24 of them: 5 of those are the index,
  2 the trigger that refuses INSERT OR REPLACE. What is left is Python: a SHA-256 takes 2 µs at
  best by way of OpenSSL, the quoting of its text 1, and each event is placed, sealed, hashed and
  bound. DoltLite hashes pages in compiled code, seals no text, and records no KEEP.
- **Blame.** The rows of the live events and the numbers of their versions, fetched and not looked
  at, are the figure beside it; what is left is the versions, the votes (a sixth of it: an index of
  KEEPs alone would spare two thirds of that), and the checks of eleven columns of each event where
  a checkout reads four.
- **`fsck`, and "check everything".** The seals alone are beside it; the versions' digests, the
  replay with births, and what SQLite reads and checks are as much again each. DoltLite's check
  reads pages and hashes no text: of 10,000 events SQLite's `integrity_check` alone, which is the
  same question, took 40 ms where DoltLite's took 44, fetching the events 62 and their seals 45.
- **Bytes written while training.** It is the number of commits (beside it): an answer goes to the
  disk as soon as the disk is free, so how many share a commit is a matter of how long a sync takes.
  In 31 commits, on a busy disk, the same answers were 1.51 times; in 277, 3.2 times.
  By itself an answer of 14,000 characters is 8 pages of the log (3 of `journal`, one each of
  `texts`, three indexes and the header, as the file grows), 37 kB, and a rollout 2 pages, 13 kB,
  before the checkpoint writes each page once more to the file. Answers kept waiting for others
  would be fewer bytes, and lost in a kill though they were paid for.
- **Times in µs and ms, and `fsck`.** These goals were set on a machine on which the fold of the raw
  table took 551 ms and a bare insert 1.5 µs: where those take four times as long, so does the rest.
  There a checkout took 1.85 ms and a diff of any two versions 4.5 ms. Ratios say more.
- **`log` from a cold start.** What is over the bare start, a fifth, is loading this package's own
  modules: `-X importtime`, which adds some itself, gives them 25 of 110 ms. Nothing waits.
- **`checkout` from a cold start.** What is over the bare start is the modules that write (a queue,
  a transaction, a file) and two fsyncs; git is asked only where its files are not plain.
"""


def page(
    figures: Sequence[Figure], floors: Sequence[str], peers: Sequence[Sequence[str]], sizes: Sizes
) -> str:
    """Returns the page as Markdown."""
    lines = [HEAD + beside_machine(), "", "## Goals", ""]
    lines += _table(
        ("what", "figure", "beside", "goal", ""),
        [(f.what, f.figure, f.beside, f.goal, _verdict(f.met)) for f in figures],
    )
    lines += ["", "What lies below the appends:", ""]
    lines += [f"- {line}" for line in floors]
    lines += ["", f"## Beside its neighbours, {sizes.small:,} events", ""]
    lines += _table(("what", *PEERS, "ahead of the versioned ones"), peers)
    lines += ["", WHY]
    return "\n".join(lines) + "\n"


def beside_machine() -> str:
    """Returns what the figures depend on, and nothing that says whose machine it is."""
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout
    parts = [
        busy_machine(),
        f"SQLite {sqlite3.sqlite_version}",
        f"eventsourcing {metadata.version('eventsourcing')}",
        f"DoltLite {metadata.version('doltlite')}",
        git.strip().replace(" version", ""),
    ]
    return f"Machine: {', '.join(parts)}."


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    ruled = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell for cell in row) + " |" for row in ruled]


def _verdict(met: bool | None) -> str:
    return "" if met is None else "met" if met else "**missed**"
