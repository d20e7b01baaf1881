"""Kills: workers, the driver and the database, at random instants, and what that costs.

    python -m benchmarks.scale_kills --kills 500

Runs in a shared store, with two workers, are disturbed until there were enough kills: SIGKILL for
a worker or the driver, `pg_ctl stop -m immediate` for the database. Each run has to end in the
library, the rewards and the number of paid calls of one process that nobody disturbed. Counted
are calls that were sent again after their answer was in the journal (none may be), and those that
were in flight when somebody died. PostgreSQL is started here, as a throw-away cluster.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PER_RUN = 8
"""Kills in one run at most: then it is let come to its end, and compared."""


def main() -> None:
    """Kills until there were enough, and prints a line for each run and what all came to."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    os.environ["TFGRPO_TRUST"] = tempfile.gettempdir()
    from crew import Disturbed, Timed, outcome, prepare, train_alone
    from postgres import Cluster
    from scripted import ScriptedEndpoint, restless

    chance = random.Random(wanted.seed)
    kills: Counter[str] = Counter()
    repeated = sent_twice = calls = runs = 0
    started = time.monotonic()
    cluster = Cluster()
    try:
        with tempfile.TemporaryDirectory() as parent:
            with ScriptedEndpoint(restless) as server:
                folder = Path(parent) / "alone"
                folder.mkdir()
                file = str(folder / "store.db")
                prepare(folder, file, server.base_url)
                train_alone(folder, file)
            reference = outcome(file)
            while kills.total() < wanted.kills:
                runs += 1
                folder = Path(parent) / f"run-{runs}"
                folder.mkdir()
                script, file = Timed(restless), cluster.address(f"k{runs}")
                left = min(PER_RUN, wanted.kills - kills.total())
                with ScriptedEndpoint(script, delay=0.05) as server:
                    prepare(folder, file, server.base_url)
                    disturbed = Disturbed(folder, cluster, file, script, left, chance)
                    disturbed.run(seconds=1200.0)
                assert outcome(file) == reference, f"run {runs} ended differently"
                kills += disturbed.kills
                repeated += disturbed.repeated
                sent_twice += disturbed.sent_twice
                calls += len(script.requests)
                print(f"run {runs}: {kills.total()} kills, {time.monotonic() - started:.0f} s")
    finally:
        cluster.close()
    killed = ", ".join(f"{count} of a {name}" for name, count in sorted(kills.items()))
    print(f"{runs} runs, {kills.total()} kills ({killed}), {calls:,} calls: all ended alike")
    print(f"completed calls paid for again: {repeated}; calls in flight sent again: {sent_twice}")
    sys.exit(repeated > 0)


if __name__ == "__main__":
    main()
