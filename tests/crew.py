"""A run in a shared store with workers: in one process, and as processes that can be killed."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conftest import worker_server
from forked import Forked
from postgres import Cluster
from relay import Relay
from scripted import Numbered, Reply, write_problems

from tfgrpo.learn.run import run_to_end
from tfgrpo.learn.run_setup import RunChoice, put_on_record, ready_run
from tfgrpo.notices import Notice
from tfgrpo.project import open_project
from tfgrpo.store import Store
from tfgrpo.store.address import parse_address
from tfgrpo.workers.hand_out import handing_out, with_shared_budget
from tfgrpo.workers.queue import queue_address
from tfgrpo.workers.worker import Worker, WorkerOptions

UID = "5" * 32
HEARTBEAT = 1.0
CUT = 4.5
"""Heartbeats for which workers are cut off: they are missed, and come back."""
BREATH = 15.0
UNDER_WAY = 0.05
"""Seconds that a request is under way before it is counted, at most."""


def prepare(
    folder: Path, file: str, base_url: str, *, problems: int = 6, uid: str = UID, **values: Any
) -> None:
    """Makes a store with a run called `run` whose uid makes libraries comparable."""
    data = write_problems(folder / "problems.jsonl", problems)
    given = {
        "data": str(data),
        "model": "scripted",
        "base_url": base_url,
        "concurrency": 8,
        "epochs": 2,
        "batch_size": 3,
        "group_size": 3,
        **values,
    }
    with Store.init(file, author="tests") as store:
        ready = ready_run(store, open_project(folder), given, RunChoice("run"))
        put_on_record(store, ready.run._replace(uid=uid))


def outcome(file: str) -> Any:
    """Returns what a run came to: its libraries to the byte, rewards, and the calls it paid for."""
    with Store.open(file) as store:
        run = store.runs.get("run")
        assert store.runs.state(run) == "finished"
        steps = sum(tag.startswith("run/step_") for tag in store.tags())
        libraries = [
            [(one.id, one.text) for one in store.library(f"run/step_{step}")]
            for step in range(steps)
        ]
        rollouts = [(r.step, r.problem, r.sample, r.reward) for r in store.runs.rollouts(run)]
        return libraries, rollouts, sum(spent.usage.calls for spent in store.runs.spent())


def train_alone(folder: Path, file: str) -> None:
    """Brings the run to its end in this process alone."""
    with Store.open(file) as store:
        project = open_project(folder)
        ready = ready_run(store, project, {}, RunChoice(resume="run"))
        asyncio.run(run_to_end(store, project, ready))


def train(
    folder: Path,
    file: str,
    count: int,
    *,
    roots: tuple[Path, ...] = (),
    patience: float = 120.0,
    budget: str | None = None,
    heartbeat: float = 5.0,
) -> tuple[list[Worker], list[Notice]]:
    """Brings the run to its end with so many workers in this process; returns them, and what was
    said. Without any for `patience` seconds the driver makes groups itself. `roots` are folders
    of projects of their own."""
    notices: list[Notice] = []

    async def work() -> list[Worker]:
        with ExitStack() as stack:
            store = stack.enter_context(Store.open(file))
            crew = [
                Worker(
                    stack.enter_context(Store.open(file)),
                    open_project(roots[number] if roots else folder),
                    WorkerOptions(slots=2, heartbeat=heartbeat),
                    lambda text: None,
                )
                for number in range(count)
            ]
            project = open_project(folder)
            ready = ready_run(store, project, {}, RunChoice(resume="run", budget=budget))
            ready = with_shared_budget(store, project, ready)
            async with asyncio.TaskGroup() as group:
                for one in crew:
                    group.create_task(one.run(queue_address(file)))
                try:
                    async with handing_out(queue_address(file), patience=patience) as hand_out:
                        await run_to_end(
                            store, project, ready, on_progress=notices.append, hand_out=hand_out
                        )
                finally:
                    for one in crew:
                        one.stop()
            return crew

    return asyncio.run(work()), notices


class Timed(Numbered):
    """A numbered script that knows when each request came, in seconds since 1970."""

    def __init__(self, script: Callable[[dict[str, Any]], str | Reply]) -> None:
        super().__init__(self._note)
        self.times: dict[int, float] = {}
        self._inner = script

    def _note(self, request: dict[str, Any]) -> str | Reply:
        number = next(n for n, one in enumerate(self.requests, 1) if one is request)
        self.times[number] = time.time()
        return self._inner(request)


@contextmanager
def forks(folder: Path, workers: int) -> Iterator[dict[str, Forked]]:
    """Yields what starts the driver and each of so many workers, in any number of runs."""
    with ExitStack() as stack:
        parts: dict[str, Forked] = {}
        for name in ("driver", *(f"worker {n}" for n in range(workers))):
            parts[name] = stack.enter_context(Forked(folder, worker_server().address))
        yield parts


@dataclass
class Disturbed:
    """A run whose workers, driver and database are killed in turn, in random order and at random
    instants, until there were enough kills, and then comes to its end.

    With a `relay` between the workers and the database they are cut off as well, in turn, and with
    a `driver_relay` the driver, alone or with them: who is killed meanwhile dies cut off. `pace` is
    how many calls, and without any how many seconds, there are between two kills at most.
    `repeated` counts requests whose answer was in the journal when they were sent again,
    `sent_twice` those whose answer was not there yet, and `kills` who was killed. Nobody is killed
    while a run has not come to a request again for `BREATH` seconds. `longest` is how many seconds
    there were with neither a kill nor a request, and `patience` how many there may be.
    """

    folder: Path
    cluster: Cluster
    file: str
    script: Timed
    wanted: int
    chance: random.Random
    heartbeat: float = HEARTBEAT
    pace: tuple[int, float] = (12, 6.0)
    relay: Relay | None = None
    delay: float = 0.05
    driver_relay: Relay | None = None
    patience: float = 240.0
    longest: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    sent_twice: int = 0
    _running: set[str] = field(default_factory=set)
    _next: list[str] = field(default_factory=list)
    _seen: int = 0
    _requested: float = 0.0
    _since: float = 0.0

    def run(self, parts: Mapping[str, Forked], seconds: float = 400.0) -> None:
        """Kills and goes on until the run is finished. Raises AssertionError after `seconds`."""
        self._since = self._requested = time.monotonic()
        until = self._since + seconds
        (self.folder / ".tfgrpo").mkdir()  # which makes it the project of all of them
        with ExitStack() as stack:
            for name, part in parts.items():
                part.folder = self.folder / name
                part.folder.mkdir()
            stack.callback(self._end, parts)
            for name in parts:
                self._start(parts, name)
            while True:
                self._look()
                stalled = time.monotonic() > until or self.longest > self.patience
                assert not stalled, [self.kills, *(part.said() for part in parts.values())]
                if parts["driver"].ended():
                    self._running.discard("driver")
                    if parts["driver"].status() == 0:
                        break
                    time.sleep(0.2)
                    self._start(parts, "driver")
                for name, part in parts.items():
                    if name != "driver" and part.ended():
                        part.status()
                        self._start(parts, name)
                breathless = time.monotonic() - self._requested > BREATH
                if self.kills.total() < self.wanted and not breathless:
                    self._wait(parts)
                    self._kill(parts)
                time.sleep(0.02)
        self._count()

    def _look(self) -> None:
        """Sees whether there was a request since the last look, and for how long there was none."""
        now, sent = time.monotonic(), len(self.script.requests)
        if sent > self._seen:
            self._seen, self._since, self._requested = sent, now, now
        self.longest = max(self.longest, now - self._since)

    def _start(self, parts: Mapping[str, Forked], name: str) -> None:
        verb, relay = ["train", "--resume", "run", "--workers"], self.driver_relay
        if name != "driver":
            relay = self.relay
            beat = str(self.heartbeat)
            verb = ["workers", "run", "--slots", "2", "--heartbeat", beat, "--grace", "1"]
        file = relay.address(parse_address(self.file).library) if relay else self.file
        self._running.add(name)
        parts[name].start("--store", file, *verb)

    def _wait(self, parts: Mapping[str, Forked]) -> None:
        """Waits for a random instant: after some calls, or after a while without any."""
        wanted = len(self.script.requests) + self.chance.randrange(1, self.pace[0])
        until = time.monotonic() + self.pace[1]
        while len(self.script.requests) < wanted and time.monotonic() < until:
            if parts["driver"].ended():
                return
            self._look()
            time.sleep(0.002)
        time.sleep(self.chance.random() * 0.05)

    def _kill(self, parts: Mapping[str, Forked]) -> None:
        if not self._next:
            self._next = [*parts, "database", *(["network"] if self.relay else [])]
            self.chance.shuffle(self._next)
        name = self._next[-1]
        if name == "network":
            if not self._cut():
                return
        elif name == "database":
            self.cluster.stop("immediate")
            time.sleep(0.1)
            self.cluster.start()
        elif parts[name].ended():
            return
        else:
            parts[name].kill()
            parts[name].status()
            self._start(parts, name)
        self._next.pop()
        self.kills[name.partition(" ")[0]] += 1
        self._since = time.monotonic()

    def _cut(self) -> bool:
        """Cuts workers, the driver or all of them off for a while; not who is cut off already."""
        there = [relay for relay in (self.relay, self.driver_relay) if relay is not None]
        cut = self.chance.choice([there, *([one] for one in there)])
        if any(relay.is_cut for relay in cut):
            return False
        drop = self.chance.random() < 0.5
        for relay in cut:
            threading.Thread(target=relay.cut, args=(CUT * self.heartbeat, drop)).start()
        return True

    def _end(self, parts: Mapping[str, Forked]) -> None:
        for name in self._running:
            parts[name].kill()
            parts[name].status()

    def _count(self) -> None:
        """Counts requests that were made more than once: after their answer was journalled, which
        must not be, and while it was not, which a kill may cost."""
        self.repeated, self.sent_twice = sent_again(self.file, self.script, self.delay)


def sent_again(file: str, script: Timed, delay: float = 0.0) -> tuple[int, int]:
    """Returns how many requests were made once more after their answer was in the journal, and how
    many before it was, by the time at which the database committed it. A script is asked `delay`
    seconds after a request was sent."""
    import psycopg

    address = parse_address(file)
    query = (
        "select prompt_tokens, extract(epoch from pg_xact_commit_timestamp(xmin))::float8"
        f' from "{address.schema}".journal'
    )
    with psycopg.connect(address.conninfo) as connection:
        journalled = dict(connection.execute(query.encode()).fetchall())
    sent: dict[str, list[int]] = {}
    for number, request in enumerate(script.requests, 1):
        sent.setdefault(json.dumps(request, sort_keys=True), []).append(number)
    repeated = twice = 0
    for numbers in sent.values():
        (first,) = [number for number in numbers if number in journalled]
        for number in numbers:
            if number != first:
                after = script.times[number] - delay > journalled[first] + UNDER_WAY
                repeated += after
                twice += not after
    return repeated, twice
