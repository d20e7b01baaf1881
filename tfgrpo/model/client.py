"""The one place through which every model call goes.

A call is looked up in the journal first; only if it was never answered is it made. Its answer
is on the disk before anybody sees it, so a run that is killed at any instant and started again
repeats no completed call. The key of a call holds its sample index: two samples of one prompt
are two samples, never one cached twice.

Transient trouble is waited out here and nowhere else: `throttle.py` decides when the next request
goes out. A request that keeps failing while others are answered fails alone; when nothing is
answered any more the run stops, for an outage teaches nothing. A call that is under way when
its run stops is let finish, for a moment: its answer is paid for.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TypeAlias

from tfgrpo.model.budget import Budget
from tfgrpo.model.endpoint import Answer, CallFailed, Endpoint, Request, Transient, late
from tfgrpo.model.prices import Price
from tfgrpo.model.throttle import LONGEST_WAIT, TRIES, Throttle
from tfgrpo.store.canonical import canonical, digest
from tfgrpo.store.journal import Journal
from tfgrpo.store.runs import Call, Run, Runs

CallPath: TypeAlias = tuple[str | int, ...]
"""Where in the work a call stands: the step first, then a problem's id or what else tells it."""

LATE_TRIES = 2
"""A request without an answer in time is made once more; a second one would end alike."""
GRACE = 5.0
"""Seconds that calls in flight are given when a run stops: their answers are paid for."""


@dataclass(slots=True)
class Meter:
    """What calls have come to so far. `cost` is None once a price was unknown.

    `estimated` counts the calls whose tokens the server did not tell.
    """

    calls: int = 0
    estimated: int = 0
    replayed: int = 0
    retries: int = 0
    in_flight: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = 0.0
    by_stage: dict[str, int] = field(default_factory=dict)
    cost_by_stage: dict[str, float] = field(default_factory=dict)
    trouble: str | None = None

    def count(self, stage: str, answer: Answer, price: Price | None) -> None:
        """Adds one answer."""
        self.calls += 1
        self.estimated += answer.estimated
        self.prompt_tokens += answer.prompt_tokens
        self.cached_tokens += answer.cached_tokens
        self.completion_tokens += answer.completion_tokens
        self.reasoning_tokens += answer.reasoning_tokens
        self.by_stage[stage] = self.by_stage.get(stage, 0) + 1
        self.trouble = None
        if price is None:
            self.cost = None
            return
        cost = price.cost(answer)
        self.cost_by_stage[stage] = self.cost_by_stage.get(stage, 0.0) + cost
        if self.cost is not None:
            self.cost += cost


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """An answer and the journal's key of it, in hex."""

    answer: Answer
    key: str


@dataclass(frozen=True, slots=True)
class CallConditions:
    """Under what conditions an endpoint is asked.

    `scope` enters the journal's keys: calls of different scopes are never one. `run` is whose
    calls they are, `concurrency` the most requests in flight, `timeout` the seconds that one may
    take, and `tries` how often a failing request is sent. `meter` counts what is answered, at
    `price`, and `budget` bounds it.
    """

    scope: str
    run: Run | None = None
    concurrency: int = 128
    timeout: float = 1800.0
    price: Price | None = None
    meter: Meter = field(default_factory=Meter)
    budget: Budget | None = None
    tries: int = TRIES


class Calls:
    """Asks one endpoint under the given conditions."""

    def __init__(
        self, endpoint: Endpoint, journal: Journal, runs: Runs, conditions: CallConditions
    ) -> None:
        self.endpoint = endpoint
        self.meter = conditions.meter
        self.throttle = Throttle(conditions.concurrency, tries=conditions.tries)
        self._journal = journal
        self._runs = runs
        self._scope = conditions.scope
        self._run = conditions.run
        self._timeout = conditions.timeout
        self._price = conditions.price
        self._budget = conditions.budget
        self._tries = conditions.tries
        self._under_way: dict[bytes, asyncio.Future[None]] = {}
        self._sent: set[asyncio.Task[Answer]] = set()

    async def ask(
        self, request: Request, *, call_path: CallPath = (), sample: int = 0
    ) -> RecordedAnswer:
        """Returns the answer to a request, from the journal when it was answered before.

        `call_path` and `sample` tell apart requests that read alike; a number at the head of
        `call_path` is the step. Raises CallFailed when this request cannot be answered in time
        or at all, EndpointError when the endpoint cannot serve the run, and BudgetReached.
        """
        key = self.key(request, call_path, sample)
        while key in self._under_way:  # the very same call is under way: its answer will do
            await asyncio.wait([self._under_way[key]])
        call = self._runs.call(key)
        if call is not None:
            answer = Answer(**call.answer)
            if answer.finish_reason == "redacted":
                raise CallFailed(
                    f"the answer of this {request.stage} call was redacted",
                    hint="start a new run to ask again",
                )
            self.meter.replayed += 1
        else:
            answer = await self._ask_once(key, request, call_path)
        self.meter.count(request.stage, answer, self._price)
        return RecordedAnswer(answer, key.hex())

    async def _ask_once(self, key: bytes, request: Request, call_path: CallPath) -> Answer:
        done = self._under_way[key] = asyncio.get_running_loop().create_future()
        step = call_path[0] if call_path and isinstance(call_path[0], int) else None
        try:
            return await self._ask_until_answered(key, request, step)
        finally:
            del self._under_way[key]
            done.set_result(None)

    def count_replayed(self, stage: str, answer: Answer) -> None:
        """Counts an answer that was read from the journal by other ways than `ask`."""
        self.meter.replayed += 1
        self.meter.count(stage, answer, self._price)

    async def finish_in_flight(self, seconds: float = GRACE) -> None:
        """Gives calls that are under way a moment to be answered and journalled, then ends them.

        To be awaited when whoever asked is gone: after an error, or when a run is interrupted.
        """
        if self._sent:
            await asyncio.wait(self._sent, timeout=seconds)
        for task in self._sent:
            task.cancel()
        await asyncio.gather(*self._sent, return_exceptions=True)

    def key(self, request: Request, call_path: CallPath, sample: int) -> bytes:
        """Returns the journal's key of a request (32 bytes)."""
        parts = [self._scope, self.endpoint.model, request.key_fields(), call_path, sample]
        return digest(["tfgrpo.call", *parts])

    async def _ask_until_answered(self, key: bytes, request: Request, step: int | None) -> Answer:
        """Makes a call until it is answered. Raises CallFailed, EndpointError, BudgetReached."""
        attempt, counted, late = 0, 0, 0
        while True:
            attempt += 1
            entered = await self.throttle.enter(again=attempt > 1)
            try:
                worst = await self._budget.reserve(request, self._price) if self._budget else 0.0
            except BaseException:
                self.throttle.leave()
                raise
            task = asyncio.create_task(self._send(key, request, step, attempt, entered, worst))
            self._sent.add(task)
            task.add_done_callback(self._forget_sent)
            try:
                return await asyncio.shield(task)  # whoever asks may be gone: the answer is kept
            except Transient as trouble:
                late += trouble.kind == "late"
                counted += trouble.kind != "limit"
                if late >= LATE_TRIES:
                    raise CallFailed(str(trouble)) from None
                if counted >= self._tries and self.throttle.healthy:
                    raise CallFailed(f"gave up after {attempt} tries: {trouble}") from None
                if trouble.kind != "limit" or trouble.after is None:
                    wait = self.throttle.pause(attempt) if trouble.after is None else trouble.after
                    await asyncio.sleep(min(wait, LONGEST_WAIT))

    def _forget_sent(self, task: asyncio.Task[Answer]) -> None:
        self._sent.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may be gone: nobody else will look at it

    async def _send(
        self,
        key: bytes,
        request: Request,
        step: int | None,
        attempt: int,
        entered: float,
        worst: float,
    ) -> Answer:
        """Sends a request once and journals its answer."""
        self.meter.in_flight += 1
        cost = 0.0
        try:
            answer = await self._ask_in_time(request)
            if self._budget:
                cost = self._budget.cost(answer, self._price)
            self.throttle.answered(entered)
        except Transient as trouble:
            self.meter.retries += 1
            self.meter.trouble = str(trouble)
            self.throttle.troubled(entered, trouble)
            raise
        finally:
            self.meter.in_flight -= 1
            self.throttle.leave()
            if self._budget:
                self._budget.settle(worst, cost)
        await self._journal.append(self._call(key, request, answer, attempt, step))
        return answer

    async def _ask_in_time(self, request: Request) -> Answer:
        try:
            async with asyncio.timeout(self._timeout):
                return await self.endpoint.ask(request)
        except TimeoutError:
            raise late(request, self._timeout) from None

    def _call(
        self, key: bytes, request: Request, answer: Answer, attempts: int, step: int | None
    ) -> Call:
        return Call(
            key=key,
            run=self._run.id if self._run else None,
            stage=request.stage,
            step=step,
            model=self.endpoint.model,
            request=canonical([*request.messages, *request.turns]).decode(),
            answer=answer.journal_fields(),
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            completion_tokens=answer.completion_tokens,
            reasoning_tokens=answer.reasoning_tokens,
            attempts=attempts,
            seconds=answer.seconds,
            time=time.time_ns() // 1000,
        )
