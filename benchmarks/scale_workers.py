"""One, two, four and eight workers on this machine: what of the ideal they make, and their costs.

The processes are `tfgrpo workers run` and `tfgrpo train --workers` themselves, beside a PostgreSQL
that writes as one in use does. The model answers after a second, or at once. What is read of the
journal: from the first request of a run to its last answer. An ideal crew has every slot busy from
the one to the other.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.processes import Sessions, cpu, memory, sessions, wait_until, waited
from benchmarks.scheduler import instant

CREWS = (1, 2, 4, 8)
SLOTS, GROUP, IN_FLIGHT = 2, 2, 2
"""Groups that a worker makes at a time, attempts in each, and its share of `--concurrency`: it has
a group more than that takes, so that what follows an answer (the journal, a verdict) holds up
no request."""
ROUNDS = 20
"""How often each place for a request is filled."""
AT_ONCE = 100
"""Groups of a run whose answers come at once."""
GROWING, STEP = (100, 1_000, 10_000), 100
"""Groups of the runs whose memory is watched, and how many of them are a step."""
UTILISATION, OVERHEAD = 0.90, 0.10


class Made(NamedTuple):
    """What a run of `groups` came to: seconds from its first request to its last answer, those
    that a group took while the middle eight tenths came, and processor time by whose."""

    groups: int
    seconds: float
    steady: float
    cpu: dict[str, float]
    waited: float
    driver_memory: float
    worker_memory: float

    @property
    def each(self) -> float:
        """Milliseconds of processor time for a group."""
        return sum(self.cpu.values()) / self.groups * 1e3

    def part(self, name: str) -> float:
        """The same of one part."""
        return self.cpu.get(name, 0.0) / self.groups * 1e3


class Bench:
    """A database, an endpoint and what starts commands, for runs of any kind."""

    def __init__(self, parent: Path, forks: Sessions, cluster: object) -> None:
        self.parent, self.forks = parent, forks
        self.cluster = cluster
        self._number = 0

    def library(self) -> tuple[Path, str]:
        """Returns a folder and the address of a library that is not there yet."""
        self._number += 1
        folder = self.parent / f"r{self._number}"
        (folder / ".tfgrpo").mkdir(parents=True)
        return folder, self.cluster.address(f"s{self._number}")  # type: ignore[attr-defined]

    def run(
        self, groups: int, workers: int, concurrency: int, url: str, step: int | None = None
    ) -> Made:
        """Makes a run with so many workers, or with none in one process: of one step, or of steps
        of so many groups."""
        folder, store = self.library()
        begin(folder, store, (groups, step or groups), concurrency, url)
        crew = [
            self.forks.start(
                folder / f"w{n}",
                "--store",
                store,
                "workers",
                "run",
                "--slots",
                str(SLOTS),
                "--grace",
                "1",
            )
            for n in range(workers)
        ]
        wait_until(lambda: len(idle(store)) == workers, 120.0, lambda: [w.said() for w in crew])
        database = self.cluster.pid  # type: ignore[attr-defined]
        parts: dict[str, Callable[[], float]] = {
            "workers": lambda: cpu(*(one.pid for one in crew)),
            "database": lambda: cpu(database),
            "judges": lambda: cpu(self.forks.server),
        }
        shared = ["--workers"] if workers else []
        driver = self.forks.start(
            folder / "driver", "--store", store, "train", "--resume", "run", "--keep-going", *shared
        )
        wait_until(lambda: answers(store) > 0, 120.0, driver.said)
        parts["driver"] = lambda: cpu(driver.pid)
        roots = (driver.pid, database, *(one.pid for one in crew))
        before, waits = {name: of() for name, of in parts.items()}, [waited(*roots)] * 2
        most, after = (0.0, 0.0), dict(before)
        until = time.monotonic() + 600.0 + groups
        while not driver.ended():
            assert time.monotonic() < until, driver.said()
            after = {name: of() for name, of in parts.items()}
            waits[1] = max(waits[1], waited(*roots))
            of_worker = max((memory(one.pid) for one in crew), default=0.0)
            most = (max(most[0], memory(driver.pid)), max(most[1], of_worker))
            time.sleep(0.2)
        self.forks.wait(driver, 60.0)
        for one in crew:
            assert self.forks.end(one) == 0, one.said()
        seconds, steady, made = window(store)
        assert made == groups * GROUP, made
        spent = {name: after[name] - before[name] for name in parts}
        return Made(groups, seconds, steady, spent, waits[1] - waits[0], *most)


@contextmanager
def bench() -> Iterator[Bench]:
    """Yields all that runs need, and takes it away again."""
    with sessions() as forks:
        from postgres import Cluster

        cluster = Cluster(durable=True)
        try:
            with tempfile.TemporaryDirectory() as parent:
                yield Bench(Path(parent), forks, cluster)
        finally:
            cluster.close()


def begin(folder: Path, store: str, groups: tuple[int, int], concurrency: int, url: str) -> None:
    """Puts a run of so many groups on record, and so many of them a step, whose problems are all
    solved: nothing is reflected on."""
    from tfgrpo.learn.run_setup import RunChoice, put_on_record, ready_run
    from tfgrpo.project import open_project
    from tfgrpo.store import Store

    data = folder / "problems.jsonl"
    rows = (
        {"id": f"p{n}", "problem": f"What is {n} op {n + 3}?", "answer": str(2 * n + 4)}
        for n in range(groups[0])
    )
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {
        "data": str(data),
        "model": "instant",
        "base_url": url,
        "concurrency": concurrency,
        "epochs": 1,
        "batch_size": groups[1],
        "group_size": GROUP,
    }
    with Store.init(store, author="benchmark") as opened:
        ready = ready_run(opened, open_project(folder), given, RunChoice("run"))
        put_on_record(opened, ready.run)


def idle(store: str) -> list[str]:
    """Returns the workers that wait for work."""
    from tfgrpo.workers.queue import queue_address, read_crew, state_of

    return [one.name for one in read_crew(queue_address(store)).members if state_of(one) == "idle"]


def query(store: str, text: str) -> tuple[float, ...]:
    """Returns the one row of a query, in which @ is the library's schema."""
    import psycopg

    from tfgrpo.store.address import parse_address

    address = parse_address(store)
    with psycopg.connect(address.conninfo) as connection:
        row = connection.execute(text.replace("@", address.schema).encode()).fetchone()
    assert row is not None
    return tuple(float(value or 0.0) for value in row)


def answers(store: str) -> int:
    """Returns how many there are in the journal."""
    return int(query(store, "select count(*) from @.journal")[0])


def window(store: str) -> tuple[float, float, int]:
    """Returns the seconds from a run's first request to its last answer, those that a group took
    while the middle eight tenths of the answers came, and how many attempts are on record."""
    seconds, middle = query(
        store,
        "select max(time) / 1e6 - min(time / 1e6 - seconds), (percentile_disc(0.9) within group"
        " (order by time) - percentile_disc(0.1) within group (order by time)) / 1e6"
        " from @.journal",
    )
    (made,) = query(store, "select count(*) from @.rollouts")
    return seconds, middle / (0.8 * made / GROUP), int(made)


def measure() -> list[str]:
    """Makes all runs; returns the tables."""
    with bench() as place:
        with instant("--median", "1.0", "--sigma", "0") as url:
            place.run(SLOTS * 2, 1, IN_FLIGHT, url)  # the first of everything
            groups = IN_FLIGHT * ROUNDS // GROUP
            alone = place.run(groups, 0, IN_FLIGHT, url)
            slow = {n: place.run(n * groups, n, n * IN_FLIGHT, url) for n in CREWS}
        with instant() as url:
            fast_alone = place.run(AT_ONCE, 0, SLOTS * GROUP, url)
            fast = {n: place.run(AT_ONCE, n, n * SLOTS * GROUP, url) for n in CREWS}
    lines = [
        f"`tfgrpo workers run --slots {SLOTS}`, groups of {GROUP} attempts, `--concurrency` of "
        f"{IN_FLIGHT} for each worker, answers after 1 s; every place for a request is filled "
        f"{ROUNDS} times. *Ideal* is places × time / latency: of a whole run, from its first "
        "request to its last answer, and of its middle, without the first and the last tenth of "
        "the answers. Processor time of all workers, the driver and the database; *waited* is how "
        "long they were ready to run while others on this machine ran.",
        "",
        "| workers | in flight | groups/s | of the ideal | in the middle | CPU a group | of it "
        "workers | driver | database | judges | share of a core | waited |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for count, made in {0: alone, **slow}.items():
        places = max(1, count) * IN_FLIGHT / GROUP
        whole, ideal = made.groups / places / made.seconds, 1 / places / made.steady
        missed = "" if ideal >= UTILISATION or not count else " **missed**"
        share, rate = sum(made.cpu.values()) / made.seconds, made.groups / made.seconds
        lines.append(
            f"| {count or 'none: one process'} | {max(1, count) * IN_FLIGHT} | {rate:.2f} | "
            f"{whole:.1%} | {ideal:.1%}{missed} | {_parts(made)} | {share:.0%} | "
            f"{made.waited / made.groups * 1e3:.0f} ms |"
        )
    more = slow[1].steady / alone.steady - 1
    missed = "" if more <= OVERHEAD else " **missed**"
    lines += [
        "",
        f"A group made by one worker takes {more:+.1%} of the time of one that one process makes "
        f"with as many requests in flight (goal: at most +{OVERHEAD:.0%}){missed}; in processor "
        f"time {slow[1].each:.0f} ms beside {alone.each:.0f} ms.",
        "",
        f"Where the ceiling is: answers at once, {AT_ONCE} groups.",
        "",
        "| workers | groups/s | attempts/s | CPU a group | of it workers | driver | database | "
        "judges | share of a core | memory of the driver | of a worker |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for count, made in {0: fast_alone, **fast}.items():
        rate = made.groups / made.seconds
        lines.append(
            f"| {count or 'none: one process'} | {rate:.1f} | {rate * GROUP:.1f} | {_parts(made)} "
            f"| {sum(made.cpu.values()) / made.seconds:.0%} | {made.driver_memory:.0f} MB | "
            f"{made.worker_memory:.0f} MB |"
        )
    return lines


def measure_memory() -> list[str]:
    """Makes runs that grow, with two workers; returns the table of what memory they took."""
    lines = [
        f"A run of steps of {STEP} groups of {GROUP} attempts, answers at once, two workers: each "
        "process's own memory at its peak, looked at five times a second, without what it shares "
        "with the one that it was forked from.",
        "",
        "| attempts | groups/s | CPU a group | of it workers | driver | database | judges | memory "
        "of the driver | of a worker |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    made: list[Made] = []
    with bench() as place, instant() as url:
        place.run(SLOTS * 2, 1, IN_FLIGHT, url)  # the first of everything
        for groups in GROWING:
            run = place.run(groups, 2, 2 * SLOTS * GROUP, url, STEP)
            made.append(run)
            lines.append(
                f"| {groups * GROUP:,} | {groups / run.seconds:.1f} | {_parts(run)} | "
                f"{run.driver_memory:.0f} MB | {run.worker_memory:.0f} MB |"
            )
    first, last = made[0], made[-1]
    return [
        *lines,
        "",
        f"From {GROWING[0] * GROUP:,} to {GROWING[-1] * GROUP:,} attempts: memory of the driver "
        f"{last.driver_memory / first.driver_memory:.2f} ×, of a worker "
        f"{last.worker_memory / first.worker_memory:.2f} ×, processor time a group "
        f"{last.each / first.each:.2f} ×.",
    ]


def _parts(made: Made) -> str:
    of = (made.part(name) for name in ("workers", "driver", "database", "judges"))
    return f"{made.each:.0f} ms | " + " | ".join(f"{part:.0f} ms" for part in of)
