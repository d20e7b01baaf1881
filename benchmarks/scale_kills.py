"""Kills: workers, the driver, the database and the network, at random instants, and the costs.

    python -m benchmarks.scale kills [--kills 500] [--write]

Runs in a shared store, with two workers, are disturbed until there were enough kills: SIGKILL for
a worker or the driver, `pg_ctl stop -m immediate` for the database; workers, the driver or both are
cut off from it for four and a half heartbeats, while others are killed. Each run has to end in the
library, the rewards and the number of paid calls of one process that nobody disturbed. Counted
are calls that were sent again after their answer was in the journal (none may be), and those that
were in flight when somebody died. A run that comes to no request for a minute, while nobody is
killed, has failed: it stands still. PostgreSQL is started here, as a throw-away cluster.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
PER_RUN = 60
"""Kills in one run at most: then it is let come to its end, and compared."""
WORKERS = 2
HEARTBEAT = 0.5
PACE = (6, 2.0)
"""Calls, and seconds without one, between two kills at most."""
STALLED = 60.0
"""Seconds with neither a kill nor a request after which a run has failed."""
PROBLEMS = 18
RUN = {"epochs": 4, "batch_size": 9}
"""What the runs have beside what those of the tests have: some 900 calls."""


def measure(kills: int) -> list[str]:
    """Kills until there were enough; returns what all came to. A line for each run is printed."""
    sys.path.insert(0, str(ROOT / "tests"))
    from crew import CUT

    os.environ["TFGRPO_TRUST"] = tempfile.gettempdir()
    started, rows = time.monotonic(), []
    for row in disturbed_runs(kills):
        rows.append(row)
        seconds = time.monotonic() - started
        total = sum(one["kills"].total() for one in rows)
        click.echo(f"run {len(rows)}: {total} kills, {seconds:.0f} s; {row}", err=True)
    killed: Counter[str] = sum((row["kills"] for row in rows), Counter())
    calls, repeated = sum(r["calls"] for r in rows), sum(r["repeated"] for r in rows)
    twice = sum(r["sent_twice"] for r in rows)
    alike = sum(r["alike"] for r in rows)
    longest = max(r["longest"] for r in rows)
    return [
        f"{WORKERS} workers, a driver and a database, killed at random instants: `SIGKILL`, and "
        "`pg_ctl stop -m immediate` for the database. Workers, the driver or both are cut off from "
        f"it as well, for {CUT * HEARTBEAT} s, and their connections are lost in half of these "
        "cuts; who is killed meanwhile dies cut off. *Alike* is a run that ends in the library "
        "(to the byte, after each step), the rewards and the number of paid calls of one process "
        "that nobody disturbed.",
        "",
        "| kills | of a worker | of the driver | of the database | cuts | runs | alike | requests "
        "| completed calls paid for again | in flight at a kill, sent again |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        f"| {killed.total()} | {killed['worker']} | {killed['driver']} | {killed['database']} | "
        f"{killed['network']} | {len(rows)} | {alike} | {calls:,} | {repeated} | {twice} |",
        "",
        f"{time.monotonic() - started:,.0f} s, a heartbeat of {HEARTBEAT} s, answers after 50 ms; "
        f"a kill costs {twice / max(1, killed.total()):.2f} calls that were in flight. No run "
        f"stood still: the longest time with neither a request nor a kill was {longest:.0f} s, and "
        f"{STALLED:.0f} s would have been a failure.",
    ]


def disturbed_runs(wanted: int) -> Iterator[dict]:
    """Yields what each run came to, until there were enough kills."""
    from crew import Disturbed, Timed, forks, outcome, prepare, train_alone
    from postgres import Cluster
    from relay import Relay
    from scripted import ScriptedEndpoint, restless

    chance, done, runs = random.Random(1), 0, 0
    cluster = Cluster()
    try:
        with tempfile.TemporaryDirectory() as parent, forks(Path(parent), WORKERS) as parts:
            with ScriptedEndpoint(restless) as server:
                folder = Path(parent) / "alone"
                folder.mkdir()
                file = str(folder / "store.db")
                prepare(folder, file, server.base_url, problems=PROBLEMS, **RUN)
                train_alone(folder, file)
            reference = outcome(file)
            while done < wanted:
                runs += 1
                folder = Path(parent) / f"run-{runs}"
                folder.mkdir()
                script, file = Timed(restless), cluster.address(f"k{runs}")
                left = min(PER_RUN, wanted - done)
                server = ScriptedEndpoint(script, delay=0.05)
                with server, Relay(cluster.folder) as relay, Relay(cluster.folder) as other:
                    prepare(folder, file, server.base_url, problems=PROBLEMS, **RUN)
                    run = Disturbed(folder, cluster, file, script, left, chance, HEARTBEAT, PACE)
                    run.relay, run.driver_relay, run.patience = relay, other, STALLED
                    run.run(parts, seconds=1800.0)
                done += run.kills.total()
                yield {
                    "kills": run.kills,
                    "calls": len(script.requests),
                    "repeated": run.repeated,
                    "sent_twice": run.sent_twice,
                    "longest": run.longest,
                    "alike": outcome(file) == reference,
                }
    finally:
        cluster.close()
