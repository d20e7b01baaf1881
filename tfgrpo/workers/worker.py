"""A worker: a process that makes groups of whatever runs in its store have work.

It tells every few seconds that it lives, and takes jobs of runs that it can make as their driver
would: the same code, prompts and domain, and a trusted record. A group that it cannot end goes back
to the queue; what was answered is in the journal.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import math
import os
import secrets
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfgrpo.data.problems import Problem
from tfgrpo.learn.groups import GroupTask
from tfgrpo.model.budget import BudgetReached, parse
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.project import Project
from tfgrpo.store.address import Address
from tfgrpo.store.errors import StoreError, TfgrpoError
from tfgrpo.store.store import Store
from tfgrpo.workers.queue import (
    AT_ONCE,
    HEARTBEAT,
    REGISTER,
    SILENT,
    TASK,
    Offer,
    Queue,
    opened,
)
from tfgrpo.workers.restart_workers import is_orphan
from tfgrpo.workers.shared_budget import SharedBudget
from tfgrpo.workers.worker_run import (
    RESTART,
    RunWork,
    code_digest,
    difference,
    digests,
    plan_work,
    work_on,
)

if TYPE_CHECKING:
    from procrastinate import App
    from procrastinate.job_context import JobContext

TRIES = 3
"""How often a worker tries a group whose endpoint fails, before the run is told."""
AGAIN = 60.0
"""Seconds before a run is looked at again that could not be worked for."""
PAUSE = 5.0
"""Seconds before an endpoint or a database that was away is tried again."""
RATE_SECONDS = 60.0
"""The seconds that a worker's rate is counted over."""
PARENT_SECONDS = 0.5


class HandBack(Exception):
    """A group that this worker cannot end: it goes back to the queue."""


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker works: groups at a time, seconds between signs of life and for groups to end in.
    `models` are settings of models that are this machine's own."""

    slots: int = 64
    heartbeat: float = HEARTBEAT
    grace: float = 30.0
    models: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Accepted:
    """A run that is worked for: what it offers, and the task that takes its jobs."""

    offer: Offer
    task: asyncio.Task[None]
    work: RunWork | None = None
    budget: SharedBudget | None = None


class Worker:
    """Makes groups until it is stopped. `on_note` is told of what happens, in lines."""

    def __init__(
        self, store: Store, project: Project, options: WorkerOptions, on_note: Callable[[str], None]
    ) -> None:
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._process = secrets.token_hex(8)
        self._store, self._project, self._options = store, project, options
        self._on_note = on_note
        self._accepted: dict[str, _Accepted] = {}
        self._refused: dict[str, tuple[Offer, str]] = {}
        self._until: dict[str, float] = {}
        self._failures: Counter[str] = Counter()
        self._doing: dict[int, tuple[str, GroupTask]] = {}
        self._counts: Counter[str] = Counter()
        self._gone: Counter[str] = Counter()
        self._ended: deque[float] = deque(maxlen=10_000)
        self._held: set[int] = set()
        self._last_note = ""
        self._number = 0
        self._stopping = asyncio.Event()

    @property
    def _pause(self) -> float:
        return min(PAUSE, self._options.heartbeat)

    def stop(self) -> None:
        """Ends the work: no further group is begun, and those that are have `grace` seconds."""
        self._stopping.set()

    async def run(self, address: Address) -> None:
        """Works until it is stopped. A database that is away is waited for."""
        for name in ("procrastinate", "psycopg.pool"):  # whose errors are told here, in a line
            logging.getLogger(name).setLevel(logging.CRITICAL)
        asyncio.get_running_loop().set_exception_handler(_tell_unknown)
        await asyncio.to_thread(_import_heavy)  # what would block the loop when a run begins
        while not self._stopping.is_set():
            try:
                async with opened(address, f"tfgrpo worker {self.name}"[:63]) as queue:
                    self._register_task(queue.app)
                    await self._serve(queue)
            except StoreError as error:
                self._on_note(f"{error}; tried again in {self._pause:.0f} s")
                await self._sleep(self._pause)

    async def _register(self, queue: Queue) -> None:
        rows = await queue.rows(
            REGISTER,
            name=self.name,
            slots=self._options.slots,
            seconds=self._options.heartbeat,
            figures=self._figures(),
            process=self._process,
        )
        self._number = rows[0]["id"]

    async def _serve(self, queue: Queue) -> None:
        await self._register(queue)
        try:
            while not self._stopping.is_set():
                try:
                    await self._look(queue)
                    if not await self._tell(queue):  # the queue was lost, and is another
                        await self._register(queue)
                    for one in self._accepted.values():
                        if one.budget is not None:
                            await one.budget.give_back()
                except StoreError as error:
                    self._note_once(str(error))
                else:
                    self._last_note = ""
                await self._sleep(min(1.0, self._options.heartbeat))
        finally:
            for one in self._accepted.values():
                one.task.cancel()
            ending = [one.task for one in self._accepted.values()]
            while ending and not all(task.done() for task in ending):
                await asyncio.wait(ending, timeout=self._options.heartbeat)
                with suppress(StoreError):
                    await self._tell(queue)
            for one in self._accepted.values():
                if one.work is not None:
                    self._gone.update(_counts(one.work))
            self._accepted.clear()
            with suppress(StoreError):
                await self._tell(queue)
                await queue.execute(
                    "update crew set ended = now() where id = %(id)s", id=self._number
                )

    def _note_once(self, text: str) -> None:
        if text != self._last_note:
            self._last_note = text
            self._on_note(text)

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    # which runs:

    async def _look(self, queue: Queue) -> None:
        """Begins with runs that have work, and ends with those that have none any more."""
        offers = {offer.run: offer for offer in await queue.offers()}
        for uid, one in list(self._accepted.items()):
            if one.task.done():
                self._forget(uid, one)
            elif (offer := offers.get(uid)) is None or offer.terms != one.offer.terms:
                one.task.cancel()
            elif one.work is not None:
                one.work.share(offer.concurrency)
        self._refused = {uid: refused for uid, refused in self._refused.items() if uid in offers}
        self._until = {uid: until for uid, until in self._until.items() if uid in offers}
        for uid, offer in offers.items():
            known = self._refused.get(uid)
            is_other = known is not None and known[0].work != offer.work
            is_early = time.monotonic() < self._until.get(uid, 0.0)
            if uid not in self._accepted and (is_other or not is_early):
                self._consider(queue, offer)

    def _consider(self, queue: Queue, offer: Offer) -> None:
        try:
            plan = plan_work(self._store, self._project, offer.name, self._options.models)
            here = digests(plan.run, plan.domain, plan.prompts)
            refusal = difference(offer.work, here)
        except StoreError:
            raise
        except TfgrpoError as error:
            refusal = str(error)
        _, before = self._refused.pop(offer.run, (None, None))
        if refusal is not None:
            self._refused[offer.run] = (offer, refusal)
            again = math.inf if refusal.endswith(RESTART) else AGAIN
            self._until[offer.run] = time.monotonic() + again
            if refusal != before:
                self._on_note(f"refuses run {offer.name}: {refusal}")
            return
        task = asyncio.create_task(self._work_for(queue, offer))
        self._accepted[offer.run] = _Accepted(offer, task)
        self._on_note(f"works for run {offer.name}")

    def _forget(self, uid: str, one: _Accepted) -> None:
        """Takes note of how the work for a run has ended; what went wrong is tried again later."""
        del self._accepted[uid]
        if one.work is not None:
            self._gone.update(_counts(one.work))
        error = None if one.task.cancelled() else one.task.exception()
        if error is None:
            self._on_note(f"has ended with run {one.offer.name}")
            return
        if not isinstance(error, TfgrpoError):
            raise error
        self._until[uid] = time.monotonic() + self._pause
        self._on_note(f"run {one.offer.name}: {error}; tried again in {self._pause:.0f} s")

    async def _work_for(self, queue: Queue, offer: Offer) -> None:
        """Takes a run's jobs until it is cancelled. Raises EndpointError where an endpoint is
        given up, and StoreError where the database is away."""
        options = self._options
        plan = plan_work(self._store, self._project, offer.name, options.models)
        budget = None
        async with AsyncExitStack() as stack:
            if offer.budget is not None:
                budget = SharedBudget(parse(offer.budget), leased=True)
                budget.join(queue, offer.run, f"worker {self._process}", options.heartbeat)
                stack.push_async_callback(_give_back, budget)
                self._accepted[offer.run].budget = budget
            opening = work_on(self._store, self._project, plan, budget)
            work = await stack.enter_async_context(opening)
            self._accepted[offer.run].work = work
            with suppress(StoreError):  # the driver counts on this worker from now on
                await self._tell(queue)
            jobs = asyncio.create_task(
                queue.app.run_worker_async(
                    queues=[offer.queue],
                    name=self.name,
                    concurrency=options.slots,
                    fetch_job_polling_interval=min(1.0, options.heartbeat),
                    abort_job_polling_interval=30.0,
                    update_heartbeat_interval=options.heartbeat,
                    stalled_worker_timeout=SILENT * options.heartbeat,
                    shutdown_graceful_timeout=options.grace,
                    install_signal_handlers=False,
                )
            )
            try:
                while not jobs.done() and not work.given_up:
                    await asyncio.wait({jobs}, timeout=min(1.0, options.heartbeat))
                if jobs.done():
                    error = jobs.exception()
                    raise StoreError(f"the queue cannot be read: {error}") from error
                raise EndpointError("its endpoint does not answer")
            finally:
                jobs.cancel()
                await asyncio.gather(jobs, return_exceptions=True)

    # jobs:

    def _register_task(self, app: App) -> None:
        from procrastinate import BaseRetryStrategy, RetryDecision
        from procrastinate.jobs import Job

        class GoesBack(BaseRetryStrategy):
            """What is not ended here is tried by whoever takes it next."""

            def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision:
                return RetryDecision(retry_at=AT_ONCE)

        app.task(name=TASK, pass_context=True, retry=GoesBack())(self._do)

    async def _do(self, context: JobContext, task: dict[str, Any], problem: dict[str, Any]) -> None:
        """Makes one group, and says how it ended where the journal does not."""
        group = GroupTask(**task)
        job = context.job.id
        assert job is not None
        queue = Queue(context.app)
        self._held.add(job)
        try:
            accepted = self._accepted.get(group.run)
            if accepted is None or accepted.work is None or accepted.work.given_up:
                raise HandBack
            if self._stopping.is_set() or accepted.task.cancelling():
                raise HandBack
            self._doing[job] = (accepted.offer.name, group)
            outcome = await self._outcome(accepted.work, group, _problem(problem))
            if any(outcome.values()) or context.job.attempts:  # else all is in the journal
                await queue.execute(
                    "insert into outcomes (job, outcome) values (%(job)s, %(outcome)s)"
                    " on conflict (job) do update set outcome = excluded.outcome",
                    job=job,
                    outcome={**outcome, "worker": self.name},
                )
        except BaseException as error:
            self._counts["handed_back"] += 1
            if isinstance(error, (StoreError, HandBack)):
                await self._wait_for_database(queue)
            raise
        finally:
            self._doing.pop(job, None)
            self._held.discard(job)
        self._counts["groups"] += 1
        self._counts["failed"] += len(outcome.get("failed", ()))
        self._ended.append(time.monotonic())

    async def _outcome(self, work: RunWork, group: GroupTask, problem: Problem) -> dict[str, Any]:
        """How a group ended. Raises HandBack where another may have more luck."""
        try:
            outcome = await work.make(group, problem)
        except EndpointError as error:
            self._failures[group.lock] += 1
            if self._failures[group.lock] < TRIES:
                raise HandBack from error
            return {"error": ["endpoint", str(error), error.hint]}
        except BudgetReached as error:
            return {"error": ["budget", str(error), error.hint]}
        except StoreError as error:
            self._note_once(str(error))
            raise HandBack from error
        except TfgrpoError as error:
            return {"error": [type(error).__name__, str(error), error.hint]}
        self._failures.pop(group.lock, None)
        return outcome

    async def _wait_for_database(self, queue: Queue) -> None:
        while not self._stopping.is_set():
            try:
                await queue.rows("select 1 as one")
                return
            except StoreError:
                await self._sleep(1.0)

    # what it tells of itself:

    async def _tell(self, queue: Queue) -> bool:
        return await queue.tell(self._number, self._figures())

    def _figures(self) -> dict[str, Any]:
        counts, in_flight, trouble = Counter(self._gone), 0, None
        for one in self._accepted.values():
            if one.work is not None:
                counts.update(_counts(one.work))
                in_flight += one.work.meter.in_flight
                trouble = trouble or one.work.meter.trouble
        recent = time.monotonic() - RATE_SECONDS
        while self._ended and self._ended[0] < recent:
            self._ended.popleft()
        ready = [
            uid
            for uid, one in self._accepted.items()
            if one.work is not None
            and not one.work.given_up
            and not one.task.done()
            and not one.task.cancelling()  # it takes no job any more
        ]
        return {
            "process": self._process,
            "runs": [] if self._stopping.is_set() else ready,
            "refuses": {uid: why for uid, (_, why) in self._refused.items()},
            "doing": [[name, task.step, task.problem] for name, task in self._doing.values()],
            "jobs": sorted(self._held),
            "rate": len(self._ended) * 60.0 / RATE_SECONDS,
            "in_flight": in_flight,
            "trouble": trouble and trouble[:200],
            "stopping": self._stopping.is_set(),
            **{name: self._counts[name] for name in ("groups", "failed", "handed_back")},
            **counts,
        }


def _tell_unknown(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tells of errors of tasks that nobody waits for, but for a database that was away."""
    from procrastinate import exceptions

    if not isinstance(context.get("exception"), exceptions.ConnectorException):
        loop.default_exception_handler(context)


def _import_heavy() -> None:
    for name in ("openai.resources.chat.completions", "math_verify", "pebble"):
        importlib.import_module(name)
    code_digest()


async def _give_back(budget: SharedBudget) -> None:
    with suppress(StoreError):
        await budget.give_back()


def _counts(work: RunWork) -> dict[str, int]:
    meter = work.meter
    return {
        "attempts": work.attempts,
        "calls": meter.calls - meter.replayed,
        "replayed": meter.replayed,
        "retries": meter.retries,
    }


def _problem(values: Mapping[str, Any]) -> Problem:
    messages = tuple((role, text) for role, text in values.get("messages", ()))
    return Problem(**{**values, "messages": messages})


async def end_with_parent(stop: Callable[[], None]) -> None:
    """Calls `stop` once the process that this one ends with is gone."""
    while not is_orphan():
        await asyncio.sleep(PARENT_SECONDS)
    stop()
