"""Workers: whatever the queue's database was asked and never answered, and whoever dies of the
drivers, a run comes to its end and to the same."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from crew import UID, Timed, outcome, prepare, sent_again, train_alone
from procrastinate import PsycopgConnector, exceptions
from scripted import ScriptedEndpoint, restless

from tfgrpo.learn.run import run_to_end
from tfgrpo.learn.run_setup import RunChoice, ready_run
from tfgrpo.project import open_project
from tfgrpo.store import Store
from tfgrpo.workers.hand_out import handing_out
from tfgrpo.workers.queue import opened, queue_address
from tfgrpo.workers.worker import Worker, WorkerOptions

pytestmark = pytest.mark.postgres
HEARTBEAT = 0.3
STALLED = 240.0
"""Seconds after which a run that nobody disturbs any more but for lost answers has to be done."""
SEEDS = [int(seed) for seed in os.environ.get("TFGRPO_LOST_ANSWERS", "1").split(",")]


class Losses:
    """Statements of drivers and workers that do not reach the queue, or whose answer is lost after
    the database did what it says: one each of so many in a row. Those of a driver that is `dead`
    never get there."""

    def __init__(self, seed: int, of: int) -> None:
        self.chance, self.of = random.Random(seed), of
        self.lost: Counter[str] = Counter()
        self._dealt: list[str] = []
        self.dead: set[PsycopgConnector] = set()
        self.drivers: set[PsycopgConnector] = set()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("query", "query_one", "query_all"):
            method = f"execute_{name}_async"
            losing = self._losing(getattr(PsycopgConnector, method))
            monkeypatch.setattr(PsycopgConnector, method, losing)

    def kill_drivers(self) -> None:
        self.dead |= self.drivers

    def _fate(self) -> str:
        if not self.of:
            return ""
        if not self._dealt:
            self._dealt = ["asked", "answers", *[""] * (self.of - 2)]
            self.chance.shuffle(self._dealt)
        return self._dealt.pop()

    def _losing(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        async def execute(connector: PsycopgConnector, query: str, **values: Any) -> Any:
            if connector._pool_args["kwargs"]["application_name"] == "tfgrpo driver":
                self.drivers.add(connector)
            fate = self._fate()
            if connector in self.dead or fate == "asked":
                self.lost["asked"] += 1
                raise exceptions.ConnectorException("the statement did not get there")
            answer = await inner(connector, query, **values)
            if connector in self.dead or fate == "answers":
                self.lost["answers"] += 1
                raise exceptions.ConnectorException("the answer was lost")
            return answer

        return execute


async def drive(folder: Path, file: str) -> None:
    with Store.open(file) as store:
        project = open_project(folder)
        ready = ready_run(store, project, {}, RunChoice(resume="run"))
        address = queue_address(file)
        async with handing_out(address, HEARTBEAT, patience=600.0) as hand_out:
            await run_to_end(store, project, ready, hand_out=hand_out)


async def disturb(folder: Path, file: str, losses: Losses, deaths: int) -> None:
    """Brings a run to its end with two workers, while so many drivers die."""
    with ExitStack() as stack:
        crew = [
            Worker(
                stack.enter_context(Store.open(file)),
                open_project(folder),
                WorkerOptions(slots=2, heartbeat=HEARTBEAT, grace=0.5),
                lambda text: None,
            )
            for _ in range(2)
        ]
        working = [asyncio.create_task(one.run(queue_address(file))) for one in crew]
        try:
            while True:
                driver = asyncio.create_task(drive(folder, file))
                seconds = losses.chance.uniform(0.2, 1.5) if deaths else STALLED
                await asyncio.wait(
                    {driver, *working}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
                )
                for one in working:
                    assert not one.done() or one.result()
                if driver.done():
                    driver.result()
                    return
                losses.kill_drivers()
                driver.cancel()
                await asyncio.gather(driver, return_exceptions=True)
                assert deaths, "the run makes no progress"
                deaths -= 1
        finally:
            losses.of = 0
            for one in crew:
                one.stop()
            await asyncio.gather(*working)


@pytest.mark.parametrize("seed", SEEDS)
def test_lost_answers_and_dying_drivers_hold_nothing_up_and_repay_nothing(
    tmp_path: Path, shared: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.chdir(tmp_path)
    script = Timed(restless)
    losses = Losses(seed, of=16)
    alone = str(tmp_path / "alone.db")
    with ScriptedEndpoint(restless) as server:
        prepare(tmp_path, alone, server.base_url)
        train_alone(tmp_path, alone)
    with ScriptedEndpoint(script, delay=0.02) as server:
        prepare(tmp_path, shared, server.base_url)
        losses.install(monkeypatch)
        asyncio.run(disturb(tmp_path, shared, losses, deaths=3))
    monkeypatch.undo()
    assert outcome(shared) == outcome(alone)
    repeated, _ = sent_again(shared, script, 0.02)
    assert repeated == 0
    assert losses.lost["asked"] > 3
    assert losses.lost["answers"] > 3


def test_a_job_that_nobody_knows_of_holds_up_none_for_its_group(
    tmp_path: Path, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was queued by an earlier driver, and got there after the present one began: a worker
    that died had begun with it, or one that lives was never told that it has it."""
    monkeypatch.chdir(tmp_path)
    address = queue_address(shared)
    there = (
        "insert into crew (name, slots, seconds, figures)"
        " values ('there', 2, 60, jsonb_build_object('runs', jsonb_build_array(%(run)s::text)))"
    )
    unknown = (
        "insert into procrastinate_jobs"
        " (queue_name, task_name, lock, queueing_lock, args, status, worker_id)"
        " select queue_name, task_name, lock, queueing_lock, args, 'doing', %(worker)s"
        " from procrastinate_jobs where id = %(job)s"
    )

    async def work() -> None:
        options = WorkerOptions(2, HEARTBEAT)
        async with opened(address) as queue:
            worker = Worker(store, open_project(tmp_path), options, lambda text: None)
            await queue.execute(there, run=UID)
            driver = asyncio.create_task(drive(tmp_path, shared))
            while len(jobs := await queue.rows("select id from procrastinate_jobs")) < 3:
                await asyncio.sleep(0.05)
            (alive,) = await queue.rows(
                "insert into procrastinate_workers (last_heartbeat)"
                " values (now() + interval '1 hour') returning id"
            )
            await queue.execute(unknown, job=jobs[0]["id"], worker=None)
            await queue.execute(unknown, job=jobs[1]["id"], worker=alive["id"])
            await queue.execute("update crew set ended = now()")
            working = asyncio.create_task(worker.run(address))
            try:
                await asyncio.wait_for(driver, STALLED)
            finally:
                worker.stop()
                await working

    with ScriptedEndpoint(restless) as server:
        prepare(tmp_path, shared, server.base_url, epochs=1)
        with Store.open(shared) as store:
            asyncio.run(work())
    outcome(shared)


def test_a_worker_has_one_row_though_it_was_not_told_its_number(
    tmp_path: Path, shared: str
) -> None:
    async def numbers() -> list[int]:
        with Store.init(shared, author="tests") as store:
            worker = Worker(store, open_project(tmp_path), WorkerOptions(), lambda text: None)
            async with opened(queue_address(shared)) as queue:
                await worker._register(queue)
                await worker._register(queue)
                assert await worker._tell(queue)
                crew = await queue.crew()
                await queue.execute("delete from crew")
                assert not await worker._tell(queue)
                return [one.id for one in crew]

    assert len(asyncio.run(numbers())) == 1
