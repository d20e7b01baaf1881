"""The driver's side: groups handed out to workers, and taken back from the journal.

A group becomes a job; once it has ended, its attempts are recalled from the journal, so that a run
by workers and one by a single process come to the same. At most `AHEAD` jobs a slot are queued.
Where no worker is there that may do the work, the driver does it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from tfgrpo.costs import accounts
from tfgrpo.data.problems import Problem
from tfgrpo.learn.groups import Gathering, GroupTask, Makers, Recorded, RunParts
from tfgrpo.learn.run import HandOut, TrainResult, run_to_end
from tfgrpo.learn.run_setup import ReadyRun
from tfgrpo.model.budget import BudgetReached
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.notices import OnProgress, WarningNotice, ignore
from tfgrpo.project import Project
from tfgrpo.store.address import Address
from tfgrpo.store.errors import StoreError, TfgrpoError
from tfgrpo.store.store import Store
from tfgrpo.wording import plural
from tfgrpo.workers.queue import (
    ENDED,
    HEARTBEAT,
    OFFER,
    SILENT,
    STATES,
    TASK,
    CrewMember,
    Queue,
    opened,
    queue_address,
)
from tfgrpo.workers.shared_budget import DRIVER, SharedBudget
from tfgrpo.workers.worker_run import digests

AHEAD = 2
"""The jobs that are queued or worked on at most, for each slot of a live worker."""
ALONE, UNDECIDED = 3.0, 20.0
"""Seconds after which the driver makes groups itself: without any worker, and with some that have
not said yet whether they work for the run."""
SOON, LATE = 0.03, 0.4
"""Seconds between two looks at the jobs: while some end, and while none does."""
JOBS_A_SECOND = 10_000
"""Jobs whose states are read in a second, to see which nobody works on any more."""
AWAY = 120.0
"""Seconds for which a database that is away is waited for."""


class WorkerFailed(TfgrpoError):
    """What a worker met that no other worker would get past either."""


@dataclass(eq=False, slots=True)
class Waiting:
    """A group to be made elsewhere; `done` is given its outcome, None where it is made here."""

    task: GroupTask
    problem: Problem
    done: asyncio.Future[dict[str, Any] | None] = field(repr=False)
    job: int = 0


@asynccontextmanager
async def handing_out(
    address: Address, heartbeat: float = HEARTBEAT, patience: float = ALONE
) -> AsyncIterator[HandOut]:
    """Yields what has a run's groups made by a queue's workers, or here after `patience` seconds
    without any. The driver gives a sign of life every `heartbeat` seconds. Raises StoreError."""
    all_out: list[HandedOut] = []
    async with opened(address, "tfgrpo driver") as queue:

        def hand_out(parts: RunParts, here: Makers) -> Makers:
            all_out.append(HandedOut(queue, parts, here, (heartbeat, patience)))
            return all_out[-1]

        try:
            yield hand_out
        finally:
            for one in all_out:
                await one.close()


async def run_with_workers(
    store: Store, project: Project, ready: ReadyRun, *, on_progress: OnProgress = ignore
) -> TrainResult:
    """Does what is left of a run with the workers of its store; without any, in this process.
    Raises InvalidOperation for a store that no other machine could share, and TfgrpoError."""
    ready = with_shared_budget(store, project, ready)
    async with handing_out(queue_address(store.location)) as hand_out:
        return await run_to_end(store, project, ready, on_progress=on_progress, hand_out=hand_out)


def with_shared_budget(store: Store, project: Project, ready: ReadyRun) -> ReadyRun:
    """A run with its budget, where it has one, as one that workers lease parts of."""
    budget = ready.budget
    if budget is None:
        return ready
    prices = project.table("prices")
    spent = partial(accounts.spent, store, ready.run, prices, in_tokens=budget.in_tokens)
    return replace(ready, budget=SharedBudget(budget, spent))


class HandedOut:
    """Has a run's groups made by workers, and by `here` where there are none."""

    def __init__(
        self, queue: Queue, parts: RunParts, here: Makers, times: tuple[float, float]
    ) -> None:
        self._queue, self._parts, self._here = queue, parts, here
        self._heartbeat, self._patience = times
        self._store, self._run = parts.session.store, parts.run
        self._name = f"run-{parts.run.uid}"
        self._work = digests(parts.run, parts.domain, parts.prompts)
        self._waiting: deque[Waiting] = deque()
        self._jobs: dict[int, Waiting] = {}
        self._crew: list[CrewMember] = []
        self._unseen: dict[int, float] = {}
        self._begun: set[int] = set()
        self._notes: set[str] = set()
        self._alone_since: float | None = None
        self._looked = self._checked = 0.0
        self._here_now = 0
        self._watching: asyncio.Task[None] | None = None
        budget = parts.session.budget
        self._budget = budget if isinstance(budget, SharedBudget) else None

    async def make(self, task: GroupTask, gathering: Gathering, recorded: Recorded) -> None:
        """Fills a gathering with its task's attempts, made by whoever is there. Raises
        EndpointError, BudgetReached, WorkerFailed and StoreError."""
        if not self._whole(task, recorded):
            outcome = await self._elsewhere(task, gathering.problem)
            if outcome is None:
                try:
                    await self._here.make(task, gathering, self._recorded(task))
                finally:
                    self._here_now -= 1  # which was counted as it was taken back
                return
            _raise(outcome)
            gathering.failed.update({int(n): why for n, why in outcome.get("failed", {}).items()})
            recorded = self._recorded(task)
        await self._here.make(task, gathering, recorded)

    async def close(self) -> None:
        """Takes back what nobody has begun with, and says that there is no more."""
        if self._watching is None:
            return
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        with suppress(StoreError):
            await self._queue.execute("delete from offers where run = %(run)s", run=self._run.uid)
            await self._forget()
            if self._budget is not None:
                await self._budget.give_back()

    # groups and their jobs:

    def _whole(self, task: GroupTask, recorded: Recorded) -> bool:
        """Whether all attempts of a fixed group are on record: nobody has to be asked."""
        samples = range(self._parts.settings.group_size)
        known = [recorded.get((task.problem, sample)) for sample in samples]
        return all(row is not None and row.outcome != "failed" for row in known)

    def _recorded(self, task: GroupTask) -> Recorded:
        rows = self._store.runs.rollouts(self._run, task.step, task.problem)
        return {(row.problem, row.sample): row for row in rows}

    async def _elsewhere(self, task: GroupTask, problem: Problem) -> dict[str, Any] | None:
        """The outcome of a job for a task; None where it is to be made here."""
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        waiting = Waiting(task, problem, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            return await waiting.done
        except asyncio.CancelledError:
            with suppress(ValueError):
                self._waiting.remove(waiting)
            self._jobs.pop(waiting.job, None)
            raise

    # looking after them:

    async def _watch(self) -> None:
        """Queues what waits, and takes what has ended, until it is cancelled. What goes wrong is
        raised to whoever waits."""
        away = None
        begun = False
        try:
            while True:
                try:
                    if not begun:
                        self._store.runs.row_id(self._run)  # a worker looks it up
                        await self._forget()  # of a driver that died
                        if self._budget is not None:
                            self._budget.join(self._queue, self._run.uid, DRIVER, self._heartbeat)
                            await self._budget.share()
                        begun = True
                    ended = await self._look()
                    away = None
                except StoreError:
                    away = away or time.monotonic()
                    if time.monotonic() - away > AWAY:
                        raise
                    ended = False
                await asyncio.sleep(SOON if ended else self._pause())
        except BaseException as error:
            left = [*self._waiting, *self._jobs.values()]
            self._waiting.clear()
            self._jobs.clear()
            for waiting in left:
                if not waiting.done.done():
                    if isinstance(error, asyncio.CancelledError):
                        waiting.done.cancel()
                    else:
                        waiting.done.set_exception(error)
            raise

    def _pause(self) -> float:
        return LATE if not self._jobs else min(LATE, max(SOON, 0.02 * len(self._jobs) ** 0.5))

    async def _look(self) -> bool:
        now = time.monotonic()
        if now - self._looked > min(1.0, self._heartbeat):
            self._looked = now
            await self._look_around()
        if now - self._checked > max(1.0, len(self._jobs) / JOBS_A_SECOND):
            self._checked = now
            await self._check_jobs()
        ended = await self._take_ended()
        slots = self.slots
        if slots:
            self._alone_since = None
            while self._waiting and len(self._jobs) < AHEAD * slots:
                waiting = self._waiting.popleft()
                try:
                    if not await self._hand_out(waiting):
                        break
                except BaseException:
                    self._waiting.appendleft(waiting)
                    raise
        elif self._is_alone(now):
            await self._take_back()
        return ended

    @property
    def slots(self) -> int:
        """How many groups live workers can make for this run at a time."""
        return sum(one.slots for one in self._crew if one.works_for(self._run.uid))

    async def _look_around(self) -> None:
        """Says that there is work, sees who is there, and gives the jobs of the dead to others."""
        at_work = sum(one.works_for(self._run.uid) for one in self._crew)
        await self._queue.execute(
            OFFER,
            run=self._run.uid,
            name=self._run.name,
            queue=self._name,
            work=self._work,
            concurrency=-(-self._parts.settings.concurrency // max(1, at_work)),
            budget=self._budget and self._budget.amount,
            seconds=self._heartbeat,
        )
        if self._budget is not None:
            await self._budget.give_back()
        before = {one.id for one in self._crew if one.alive}
        self._crew = await self._queue.crew()
        there = [one.seconds for one in self._crew if not one.ended]
        seconds = SILENT * max(there, default=self._heartbeat)
        await self._give_to_others(await self._queue.stalled(self._name, seconds))
        await self._give_to_others(self._unseen_for(seconds))
        self._parts.progress.workers = _at_work(
            [one for one in self._crew if one.works_for(self._run.uid)]
        )
        for one in self._crew:
            if one.lost and one.id in before:
                count = one.figures.get("in_flight", 0)
                self._say(f"worker {one.name} has died, with {count} calls in flight at the last")
            refused = one.figures.get("refuses", {}).get(self._run.uid)
            if one.alive and refused:
                self._say(f"worker {one.name} does not work for this run: {refused}")

    def _unseen_for(self, seconds: float) -> list[int]:
        """Returns jobs that are begun by the queue's account, while no live worker has had them for
        so long: an answer of the database was lost, when one was taken or given back."""
        now = time.monotonic()
        held = {job for one in self._crew if one.alive for job in one.figures.get("jobs", ())}
        self._unseen = {job: self._unseen.get(job, now) for job in self._begun - held}
        return [job for job, since in self._unseen.items() if now - since > seconds]

    async def _give_to_others(self, jobs: Iterable[int]) -> None:
        """Queues jobs anew that nobody works on, without those of another driver."""
        for job in jobs:
            self._unseen.pop(job, None)
            if job in self._jobs:
                await self._queue.retry(job)
            else:
                await self._queue.drop([job], "doing")

    def _say(self, text: str) -> None:
        if text not in self._notes:
            self._notes.add(text)
            self._parts.on_progress(WarningNotice(text))

    async def _hand_out(self, waiting: Waiting) -> bool:
        from procrastinate import exceptions

        task, problem = waiting.task, waiting.problem
        if waiting.done.done():
            return True
        deferrer = self._queue.app.configure_task(
            TASK, queue=self._name, lock=task.lock, queueing_lock=task.lock
        )
        try:
            job = await deferrer.defer_async(task=asdict(task), problem=asdict(problem))
        except exceptions.AlreadyEnqueued:  # by whom nobody knows: it goes at the next look
            self._checked = 0.0
            self._waiting.append(waiting)
            return False
        except exceptions.ConnectorException as error:
            raise StoreError(f"the queue of workers cannot be reached: {error}") from error
        if not waiting.done.done():
            waiting.job = job
            self._jobs[job] = waiting
        return True

    async def _take_ended(self) -> bool:
        if not self._jobs:
            return False
        rows = await self._queue.rows(ENDED, queue=self._name)
        for row in rows:
            self._settle(row["id"], row["outcome"])
        if rows:
            await self._queue.execute(
                "delete from procrastinate_jobs where id = any(%(jobs)s)"
                " and status not in ('todo', 'doing')",
                jobs=[row["id"] for row in rows],
            )
        return bool(rows)

    def _settle(self, job: int, outcome: dict[str, Any] | None) -> None:
        """Tells who waits for a job how it has ended; without a word it is queued once more."""
        waiting = self._jobs.pop(job, None)
        if waiting is None or waiting.done.done():
            return
        if outcome is None:
            self._waiting.append(waiting)
        else:
            waiting.done.set_result(outcome)

    async def _check_jobs(self) -> None:
        """Sees which jobs somebody has begun with, and queues those anew that are gone. Jobs of a
        driver that died go: they would keep others for their group out of the queue."""
        rows = await self._queue.rows(STATES, queue=self._name)
        self._begun = {row["id"] for row in rows if row["status"] == "doing"}
        queued = {row["id"] for row in rows if row["status"] == "todo"}
        if unknown := queued - self._jobs.keys():
            await self._queue.drop(list(unknown), "todo")
        for job in self._jobs.keys() - {row["id"] for row in rows}:
            self._settle(job, None)

    # where nobody is there:

    def _is_alone(self, now: float) -> bool:
        if self._alone_since is None:
            self._alone_since = now
        uid, there = self._run.uid, [one for one in self._crew if one.alive]
        patience = self._patience
        if there:
            refused = all(uid in one.figures.get("refuses", {}) for one in there)
            patience = 0.0 if refused else max(UNDECIDED, patience)
        return now - self._alone_since > patience

    async def _take_back(self) -> None:
        """Has groups made here: as many at a time as keep the models busy."""
        self._say("no worker is there for this run: its groups are made here meanwhile")
        await self._forget()
        settings = self._parts.settings
        most = max(1, -(-settings.concurrency // settings.group_size))
        while self._waiting and self._here_now < most:
            waiting = self._waiting.popleft()
            if not waiting.done.done():
                self._here_now += 1
                waiting.done.set_result(None)

    async def _forget(self) -> None:
        await self._queue.execute(
            "delete from procrastinate_jobs where queue_name = %(queue)s and status = 'todo'",
            queue=self._name,
        )


def _at_work(crew: Sequence[CrewMember]) -> str:
    if not crew:
        return ""
    groups = sum(len(one.figures.get("doing", ())) for one in crew)
    rate = sum(float(one.figures.get("rate", 0.0)) for one in crew)
    slots = sum(one.slots for one in crew)
    return f"{plural(len(crew), 'worker')}, {groups} of {slots} slots, {rate:.0f} groups/min"


def _raise(outcome: dict[str, Any]) -> None:
    if "error" not in outcome:
        return
    kind, text, hint = outcome["error"]
    errors: dict[str, type[TfgrpoError]] = {"endpoint": EndpointError, "budget": BudgetReached}
    raise errors.get(kind, WorkerFailed)(f"{text} (on worker {outcome['worker']})", hint=hint)
