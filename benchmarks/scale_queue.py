"""What a group costs the database, and where that ends: measured on one core, computed for more.

A simulated crew takes real jobs from the real queue, one after the other: for each group what a
worker and a driver ask and write, with the product's own code, and answers from nowhere. Each
answer and each attempt is a commit of its own, as where answers come seconds apart. Beside it what
grows with the crew: jobs that are queued, processes that listen, signs of life.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.processes import cpu
from benchmarks.scale_workers import begin, query

DEPTHS = (100, 10_000, 100_000)
JOBS = 200
GROUP = 5
ANSWER = "so we add the first number to the second, and then one more. " * 32
LISTENERS = 100
MEMBERS = (10, 1_000)
MACHINES, SLOTS = 1_000, 64
LATENCIES = (10, 60, 600)
"""Seconds that a group takes: short answers, long ones, agents in sandboxes."""
FILL = """
insert into procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
select 'full', 'group', 'l' || n, 'l' || n, jsonb_build_object('problem', repeat('x', 400))
  from generate_series(1, %(count)s) n
"""


class Cost(NamedTuple):
    """What something costs, for one: milliseconds of the database's and of this process's
    processor time, commits and bytes of the database's log."""

    database: float
    client: float
    commits: float
    log: float


class Meter:
    """Reads what a database has done since it was last asked."""

    def __init__(self, cluster: Any, store: str) -> None:
        self._cluster, self._store = cluster, store
        self._last = self._read()

    def _read(self) -> tuple[float, ...]:
        commits, log = query(
            self._store,
            "select xact_commit, pg_current_wal_lsn() - '0/0' from pg_stat_database"
            " where datname = current_database()",
        )
        return cpu(self._cluster.pid), time.process_time(), commits, log

    def each(self, count: int) -> Cost:
        """Returns what each of so many has cost since this was last asked."""
        time.sleep(1.1)  # until the sessions have told what they did
        last, self._last = self._last, self._read()
        spent = [(now - before) / count for now, before in zip(self._last, last, strict=True)]
        return Cost(spent[0] * 1e3, spent[1] * 1e3, spent[2], spent[3])

    def begin(self) -> None:
        """Begins anew."""
        self._last = self._read()


async def a_group(queue: Any, worker: int, name: str, store: Any, run: Any, number: int) -> None:
    """Does what a group takes: the driver queues it, a worker makes it, the driver recalls it."""
    from dataclasses import asdict

    from procrastinate import jobs

    from tfgrpo.data.problems import Problem
    from tfgrpo.learn.groups import GroupTask
    from tfgrpo.store.activity.runs import Call, RolloutRow
    from tfgrpo.workers.queue import TASK

    problem = Problem(f"g{number}", "What is it? " * 40, "1")
    task = GroupTask(run.uid, 0, problem.id, 0, run.digest)
    deferrer = queue.app.configure_task(
        TASK, queue=name, lock=task.lock, queueing_lock=task.lock, priority=1
    )
    await deferrer.defer_async(task=asdict(task), problem=asdict(problem))
    job = await queue.app.job_manager.fetch_job(queues=[name], worker_id=worker)
    row, now = store.runs.row_id(run), time.time_ns() // 1000
    keys = [hashlib.sha256(f"{number}/{n}".encode()).digest() for n in range(GROUP)]
    store.runs.rollouts(run, 0, problem.id)
    store.runs.calls_by_key(keys)
    for sample, key in enumerate(keys):
        answer = {"content": ANSWER + str(sample), "finish_reason": "stop"}
        call = Call(
            key, row, "rollout", 0, "m", problem.problem, answer, 200, 0, 500, 0, 1, 1.0, now
        )
        await WRITER["journal"].append(call)
        store.runs.call(key)
        verdict = {"answer": "1", "reason": "right"}
        await WRITER["journal"].rollout(
            RolloutRow(row, 0, problem.id, sample, 0, (key.hex(),), "answered", 1.0, verdict, now)
        )
    await queue.app.job_manager.finish_job_by_id_async(
        job.id, status=jobs.Status.SUCCEEDED, delete_job=False
    )
    store.runs.rollouts(run, 0, problem.id)
    store.runs.calls_by_key(keys)
    await queue.execute("delete from procrastinate_jobs where id = any(%(jobs)s)", jobs=[job.id])


WRITER: dict[str, Any] = {}


def measure() -> list[str]:
    """Measures what the parts cost; returns the tables, and what follows from them."""
    import sys

    from benchmarks.processes import ROOT

    sys.path.insert(0, str(ROOT / "tests"))
    from postgres import Cluster

    cluster = Cluster(durable=True)
    try:
        with tempfile.TemporaryDirectory() as folder:
            store = cluster.address("queue")
            (Path(folder) / ".tfgrpo").mkdir()
            begin(Path(folder), store, (2, 2), 4, "http://127.0.0.1:9/v1")
            return asyncio.run(_measure(cluster, store))
    finally:
        cluster.close()


async def _measure(cluster: Any, store: str) -> list[str]:
    from tfgrpo.store import Store
    from tfgrpo.store.activity.journal import Journal
    from tfgrpo.workers.queue import ENDED, STATES, opened, queue_address

    address = queue_address(store)
    lines = [
        f"A simulated crew: real jobs and rows, groups of {GROUP} attempts whose answers come from "
        "nowhere, each answer and each attempt a commit of its own. For one group; *client* is "
        "what worker and driver spend on asking the database.",
        "",
        "| jobs queued beside | database CPU | client CPU | transactions | log written | a look "
        "for what has ended | a check of all jobs |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    async with opened(address) as queue:
        with Store.open(store) as opened_store:
            run = opened_store.runs.get("run")
            WRITER["journal"] = Journal(opened_store.port.records.writer())
            queue.app.task(name="group", pass_context=True)(_nothing)
            worker = await queue.app.job_manager.register_worker()
            meter, number, costs = Meter(cluster, store), 0, []

            async def groups(count: int) -> None:
                nonlocal number
                for _ in range(count):
                    number += 1
                    await a_group(queue, worker, "full", opened_store, run, number)

            await groups(20)
            for depth in DEPTHS:
                await _fill(address, depth)
                await queue.execute("analyze procrastinate_jobs")
                meter.begin()
                await groups(JOBS)
                cost = meter.each(JOBS)
                look, check = [await _look(queue, meter, text) for text in (ENDED, STATES)]
                costs.append(cost)
                lines.append(
                    f"| {depth:,} | {cost.database:.1f} ms | {cost.client:.1f} ms | "
                    f"{cost.commits:.1f} | {cost.log / 1024:.1f} kB | {look.database:.1f} + "
                    f"{look.client:.1f} ms | {check.database:.1f} + {check.client:.1f} ms |"
                )
            await queue.execute("truncate procrastinate_jobs cascade")
            meter.begin()
            await groups(JOBS)
            silent = meter.each(JOBS)
            listening = await _listening(address)
            meter.begin()
            await groups(JOBS)
            heard = meter.each(JOBS)
            for one in listening:
                await one.close()
            signs = [await _signs(queue, meter, members) for members in MEMBERS]
            WRITER["journal"].close()
    each = max(0.0, heard.database - silent.database) / LISTENERS
    lines += [
        "",
        f"{LISTENERS} connections that listen for jobs add {heard.database - silent.database:+.2f} "
        f"ms of the database to a group ({each * 1e3:.0f} µs for each). A worker's signs of life "
        "and its look at what is offered, once a second: "
        + "; ".join(
            f"{cost.database:.2f} ms of the database among {members:,} workers"
            for members, cost in zip(MEMBERS, signs, strict=True)
        )
        + ".",
        "",
    ]
    return lines + _model(costs[-1], each, signs[-1])


async def _nothing(*given: object) -> None:
    pass


async def _fill(address: Any, depth: int) -> None:
    """Has so many jobs wait in the queue: written directly, without telling anybody."""
    import psycopg

    async with await psycopg.AsyncConnection.connect(address.conninfo) as connection:
        await connection.execute(f"set search_path to {address.schema}".encode())
        await connection.execute("set session_replication_role to replica")
        await connection.execute("truncate procrastinate_jobs cascade")
        await connection.execute(FILL.encode(), {"count": depth})


async def _look(queue: Any, meter: Meter, text: str, times: int = 5) -> Cost:
    """Returns what it costs a driver to look at its jobs, of which none has ended."""
    meter.begin()
    for _ in range(times):
        await queue.rows(text, queue="full")
    return meter.each(times)


async def _listening(address: Any) -> list[Any]:
    """Returns connections that listen for jobs, as each worker has one."""
    import psycopg

    found = []
    for _ in range(LISTENERS):
        one = await psycopg.AsyncConnection.connect(address.conninfo, autocommit=True)
        await one.execute('listen "procrastinate_any_queue_v1"')
        await one.execute('listen "procrastinate_queue_v1#full"')
        found.append(one)
    return found


async def _signs(queue: Any, meter: Meter, members: int) -> Cost:
    """Returns what a second of a worker costs that has nothing to do, among so many."""
    await queue.execute("truncate crew")
    figures = {"runs": ["5" * 32], "jobs": list(range(SLOTS)), "doing": [["run", 1, "p"]] * SLOTS}
    await queue.execute(
        "insert into crew (name, slots, seconds, figures) select 'w' || n, 64, 3600, %(figures)s"
        " from generate_series(1, %(count)s) n",
        figures=figures,
        count=members,
    )
    times = 30
    meter.begin()
    for _ in range(times):
        await queue.offers()
        await queue.tell(1, figures)
    return meter.each(times)


def _model(cost: Cost, listener: float, signs: Cost) -> list[str]:
    """Returns what 1,000 machines would need: computed, from what was measured."""
    lines = [
        f"**Computed** for {MACHINES:,} machines with {SLOTS} slots each, one run, from the row of "
        f"{DEPTHS[-1]:,} queued jobs: the database's share is (groups/s × (a group + {MACHINES:,} "
        "that listen) + workers × signs of life), the driver's is groups/s × its recall.",
        "",
        "| a group takes | groups/s | transactions/s | cores of the database | log written |",
        "|---:|---:|---:|---:|---:|",
    ]
    fixed = MACHINES * signs.database / 1e3
    for seconds in LATENCIES:
        rate = MACHINES * SLOTS / seconds
        cores = rate * (cost.database + MACHINES * listener) / 1e3 + fixed
        lines.append(
            f"| {seconds} s | {rate:,.0f} | {rate * cost.commits:,.0f} | {cores:,.1f} | "
            f"{rate * cost.log / 2**20:,.1f} MB/s |"
        )
    each = cost.database + MACHINES * listener
    return [
        *lines,
        "",
        f"So a core of this machine carries {1e3 / each:.0f} groups/s ({GROUP * 1e3 / each:.0f} "
        f"attempts/s) of {MACHINES:,} machines, {MACHINES * listener / each:.0%} of it for telling "
        f"{MACHINES:,} listeners of each job, and {1e3 / cost.database:.0f} groups/s of a few. Not "
        "in it: how far a server with many cores is from so many times one, and connections, "
        f"of which {MACHINES:,} workers hold up to {7 * MACHINES:,}.",
    ]
