"""The one place through which every model call goes.

A call is looked up in the journal first, and an answer is on the disk before anybody sees it, so a
run that is killed and resumed repeats no call. The key of a call holds its sample index.

Transient trouble is waited out here and nowhere else (`rate_limits.py`). A request that keeps
failing while others are answered fails alone; when nothing is answered any more the run stops.
Calls in flight then get a moment: their answers are paid for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeAlias, TypeVar

from tfgrpo.costs.prices import Price
from tfgrpo.model.budget import Budget, Reservation
from tfgrpo.model.endpoint import (
    Answer,
    CallFailed,
    Endpoint,
    EndpointError,
    LimitRefused,
    Request,
    Transient,
    late,
    prompt_tokens,
    silent,
)
from tfgrpo.model.fleet import Fleet, FleetEndpoint, Member, Watch
from tfgrpo.model.gather import Lookup
from tfgrpo.model.rate_limits import PATIENCE, TRIES, Throttle
from tfgrpo.model.request_adaptation import used_up
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.activity.runs import Call, Run, Runs
from tfgrpo.store.canonical import canonical, digest

T = TypeVar("T")
CallPath: TypeAlias = tuple[str | int, ...]
"""Where in the work a call stands: the step first, then a problem's id or what else tells it."""

TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens")
PATIENT = frozenset({"rollout", "next action", "persona", "evaluation"})
"""The stages whose requests let all others go first: there are many of them, and none waits for
another, while each answer of the reflection model is waited for by the next."""
LATE_TRIES = 2
"""A request without an answer in time is made once more; a second one would end alike."""
STALE = 0.25
"""Seconds after which a shared journal is looked into once more before a request goes out: another
process may have the answer by now."""
GRACE = 5.0
"""Seconds that calls in flight are given when a run stops: their answers are paid for."""


@dataclass(slots=True)
class Meter:
    """What calls have come to so far. `cost` is None once a price was unknown; `estimated` are the
    calls whose tokens the server did not tell; `endpoints` share calls."""

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
    endpoints: list[Member] = field(default_factory=list)

    def count(self, stage: str, answer: Answer, price: Price | None) -> None:
        """Adds one answer."""
        self.calls += 1
        self.estimated += answer.estimated
        self.by_stage[stage] = self.by_stage.get(stage, 0) + 1
        self.trouble = None
        self.add(stage, answer, price)

    def add(self, stage: str, answer: Answer, price: Price | None) -> None:
        """Adds what was paid for, whether or not it was an answer."""
        self.prompt_tokens += answer.prompt_tokens
        self.cached_tokens += answer.cached_tokens
        self.completion_tokens += answer.completion_tokens
        self.reasoning_tokens += answer.reasoning_tokens
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

    `scope` enters the journal's keys. `timeout` is in seconds, `tries` how often a failing request
    is sent at least, `patience` the seconds without any answer after which the endpoint is given
    up. Where the journal is `shared`, another process's answer to the same call is the call's.
    `price` is the highest of the `fleet`'s.
    """

    scope: str
    run: Run | None = None
    concurrency: int = 128
    timeout: float = 1800.0
    price: Price | None = None
    meter: Meter = field(default_factory=Meter)
    budget: Budget | None = None
    shared: bool = False
    tries: int = TRIES
    patience: float = PATIENCE
    fleet: Sequence[FleetEndpoint] = ()


@dataclass(slots=True)
class _Bill:
    """What a try has cost, in the budget's unit, and how much of that is in no record yet, or will
    be in none: what was cut off may be on the provider's bill, at the most that was set aside."""

    cost: int = 0
    unrecorded: int = 0


@dataclass(slots=True)
class _Attempts:
    """A call on its way, with the tries that gave no answer and what of them the budget has in no
    record yet. `least` tokens its answer needs, `most` fit beside its prompt, `looked` is when the
    journal was last asked, and it `is_left` when nobody waits for its answer any more."""

    key: bytes
    request: Request
    step: int | None
    number: int = 0
    looked: float = 0.0
    least: int = 0
    most: int | None = None
    wasted: list[Answer] = field(default_factory=list)
    unrecorded: int = 0
    failed_at: Member | None = None
    is_left: bool = False

    @property
    def prompt(self) -> bytes:
        """What calls of one problem under one library have in common."""
        return repr(self.request.messages).encode()


class _AnsweredElsewhere(Exception):
    """Another process has journalled an answer to a call that has not been sent yet."""

    def __init__(self, call: Call) -> None:
        super().__init__("answered elsewhere")
        self.call = call


class _CutShort(Exception):
    """An answer that the budget, or thinking, cut: it is asked for again with more tokens."""


class Calls:
    """Asks one endpoint under the given conditions."""

    def __init__(
        self, endpoint: Endpoint, journal: Journal, runs: Runs, conditions: CallConditions
    ) -> None:
        self.meter = conditions.meter
        self.fleet = _fleet(endpoint, conditions)
        self.throttle = self.fleet.members[0].throttle
        self.meter.endpoints += self.fleet.members if self.fleet.shared else ()
        self._conditions = conditions
        self._scope = conditions.scope
        self._price = conditions.price
        self._budget = conditions.budget
        self._journal = journal
        self._runs = runs
        self._lookup = Lookup(runs)
        self._under_way: dict[bytes, asyncio.Future[None]] = {}
        self._sent: set[asyncio.Task[Any]] = set()
        self._numbers = count()

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that is asked; the first of several, which serve the same model."""
        return self.fleet.members[0].endpoint

    async def ask(
        self, request: Request, *, call_path: CallPath = (), sample: int = 0
    ) -> RecordedAnswer:
        """The answer to a request, from the journal when it was answered before. `call_path` (a
        step first) and `sample` tell requests that read alike apart. Raises CallFailed,
        EndpointError when the endpoint cannot serve the run, and BudgetReached."""
        key = self.key(request, call_path, sample)
        while key in self._under_way:  # the very same call is under way: its answer will do
            await asyncio.wait([self._under_way[key]])
        done = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            return await self._find_or_ask(key, request, call_path)
        finally:
            del self._under_way[key]
            done.set_result(None)

    async def _find_or_ask(
        self, key: bytes, request: Request, call_path: CallPath
    ) -> RecordedAnswer:
        looked = time.monotonic()  # before: an answer of the database may have been on its way long
        [call] = await self._lookup.find([key])
        if call is None:
            step = call_path[0] if call_path and isinstance(call_path[0], int) else None
            attempts = _Attempts(key, request, step, looked=looked)
            try:
                answer = await self._ask_until_answered(attempts)
            except _AnsweredElsewhere as elsewhere:
                call = elsewhere.call
            else:
                self.meter.count(request.stage, answer, self._price_of(answer))
        if call is not None:
            answer = Answer(**call.answer)
            if answer.finish_reason == "redacted":
                raise CallFailed(
                    f"the answer of this {request.stage} call was redacted",
                    hint="start a new run to ask again",
                )
            self.endpoint.adaptation.restore(answer.sent)
            self.meter.replayed += 1
            paid = replace(answer, **{name: getattr(call, name) for name in TOKENS})
            self.meter.count(request.stage, paid, self._price_of(answer))
        return RecordedAnswer(answer, key.hex())

    def note(self, request: Request, answer: Answer, *, call_path: CallPath) -> asyncio.Task[str]:
        """Records an answer that was had by other ways than `ask`: it is journalled and counted,
        and taken from the budget, also where nobody waits for that. Returns what comes to its key,
        in hex, or raises StoreError."""
        return self._start(self._note(request, answer, call_path))

    async def _note(self, request: Request, answer: Answer, call_path: CallPath) -> str:
        number = next(self._numbers)
        key = digest(["tfgrpo.elsewhere", self._scope, list(call_path), time.time_ns(), number])
        step = call_path[0] if call_path and isinstance(call_path[0], int) else None
        await self._journal.append(self._row(_Attempts(key, request, step), key, answer))
        self.meter.count(request.stage, answer, self._price)
        if self._budget is not None:
            self._budget.settle(Reservation(0, 0), self._budget.cost(answer, self._price))
        return key.hex()

    async def set_aside(self, answer: Answer) -> Callable[[], None]:
        """Sets aside the cost of an answer for an attempt that makes its calls elsewhere; returns
        what gives it back. Raises BudgetReached."""
        budget = self._budget
        if budget is None:
            return lambda: None
        amount = budget.cost(answer, self._price)
        await budget.hold(amount)
        return lambda: budget.release(amount)

    @property
    def is_bounded(self) -> bool:
        """Whether there is a budget."""
        return self._budget is not None

    async def recorded(self, keys: Sequence[str]) -> list[Call | None]:
        """The journalled calls of keys in hex, None for one that is not there."""
        return await self._lookup.find([bytes.fromhex(key) for key in keys])

    def count_replayed(self, stage: str, answer: Answer) -> None:
        """Counts an answer that was read from the journal by other ways than `ask`."""
        self.meter.replayed += 1
        self.meter.count(stage, answer, self._price_of(answer))

    def _price_of(self, answer: Answer) -> Price | None:
        return self.fleet.price(answer.endpoint, self._price)

    async def finish_in_flight(self, seconds: float = GRACE) -> None:
        """Gives calls under way a moment, then ends them: for when whoever asked is gone."""
        if self._sent:
            await asyncio.wait(self._sent, timeout=seconds)
        for task in self._sent:
            task.cancel()
        await asyncio.gather(*self._sent, return_exceptions=True)

    def key(self, request: Request, call_path: CallPath, sample: int) -> bytes:
        """The journal's key of a request (32 bytes)."""
        parts = [self._scope, self.endpoint.model, request.key_fields(), call_path, sample]
        return digest(["tfgrpo.call", *parts])

    async def _ask_until_answered(self, call: _Attempts) -> Answer:
        try:
            return await self._retry(call)
        except BaseException:
            call.is_left = True
            wasted, call.wasted = call.wasted, []  # a try that still answers tells its own alone
            if wasted:  # nothing will be answered, and it is paid for all the same
                self._start(self._record_unusable(call, wasted))
            raise

    async def _record(
        self, call: _Attempts, key: bytes, answer: Answer, wasted: Sequence[Answer]
    ) -> Call:
        row = self._row(call, key, answer, wasted)
        await self._journal.append(row)
        if self._budget:
            self._budget.record(call.unrecorded)
            call.unrecorded = 0
        return row

    async def _record_unusable(self, call: _Attempts, paid: Sequence[Answer]) -> None:
        """Records what is paid for and answers nothing, under a key of its own."""
        key = digest(["tfgrpo.unusable", call.key.hex(), time.time_ns()])
        lost = Answer("", "unusable", estimated=any(one.estimated for one in paid))
        await self._record(call, key, lost, paid)

    async def _retry(self, call: _Attempts) -> Answer:
        counted, late = 0, 0
        while True:
            call.number += 1
            request = self._widened(call)
            urgent = call.request.stage not in PATIENT
            again, prompt = call.number > 1, call.prompt if self.fleet.shared else b""
            place = await self.fleet.enter(prompt, again=again, urgent=urgent, avoid=call.failed_at)
            try:
                reserved = await self._reserve(call, request)
            except BaseException:
                self.fleet.leave(place[0])
                raise
            try:  # whoever asks may be gone: the answer is kept
                return await asyncio.shield(self._start(self._send(call, request, place, reserved)))
            except _CutShort:
                pass  # the next try gets more
            except Transient as trouble:
                late += trouble.kind == "late"
                counted += trouble.kind != "limit"
                throttle = place[0].throttle
                if late >= LATE_TRIES:
                    raise CallFailed(str(trouble)) from None
                answered = trouble.kind == "trouble" and trouble.paid is not None
                if counted >= throttle.tries and (answered or self.fleet.healthy):
                    raise CallFailed(f"gave up after {call.number} tries: {trouble}") from None
                if self.fleet.shared and trouble.kind in ("away", "limit", "silent"):
                    call.failed_at = place[0]  # another may take it at once
                elif trouble.after is None:
                    await asyncio.sleep(throttle.pause(call.number))
                elif trouble.kind != "limit":  # for which the gate is closed
                    await asyncio.sleep(min(trouble.after, self._conditions.patience))

    def _look_again(self, call: _Attempts) -> None:
        """Raises _AnsweredElsewhere where another process has made a call that has waited long."""
        if not self._conditions.shared or time.monotonic() - call.looked <= STALE:
            return
        call.looked = time.monotonic()
        there = self._runs.call(call.key)
        if there is not None:
            raise _AnsweredElsewhere(there)

    def _widened(self, call: _Attempts) -> Request:
        """A call's request with room for the thinking that its model needs, within what fits."""
        endpoint, request = self.endpoint, call.request
        if request.wire is not None:  # a program says itself how long its answers may be
            return request
        tokens = endpoint.adaptation.limit(request, endpoint.options.max_completion_tokens)
        if call.most is not None:
            tokens = max(request.max_tokens, min(tokens, call.most))
        return request if tokens == request.max_tokens else replace(request, max_tokens=tokens)

    async def _reserve(self, call: _Attempts, request: Request) -> Reservation:
        if self._budget is None:
            self._look_again(call)
            return Reservation(0, request.max_tokens)
        reserved = await self._budget.reserve(request, self._price, least=call.least)
        try:
            self._look_again(call)
        except BaseException:
            self._budget.settle(reserved, 0)
            raise
        return reserved

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._sent.add(task)
        task.add_done_callback(self._forget_sent)
        return task

    def _forget_sent(self, task: asyncio.Task[Any]) -> None:
        self._sent.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may be gone: nobody else will look at it

    async def _send(
        self, call: _Attempts, widened: Request, place: tuple[Member, float], reserved: Reservation
    ) -> Answer:
        """Sends a request once and journals its answer. Its cost is settled after that: whoever
        shares the budget reads it there."""
        bill = _Bill()
        try:
            answer = await self._ask_member(call, widened, place, reserved, bill)
            bill.unrecorded = bill.cost
            wasted, call.wasted = call.wasted, []  # whoever asks may go now: they are told here
            try:
                row = await self._record(call, call.key, answer, wasted)
            except BaseException:
                call.wasted = wasted
                raise
            there = self._runs.call(call.key) if self._conditions.shared else None
            if there is not None and (there.time, there.answer) != (row.time, row.answer):
                await self._record_unusable(call, [answer, *wasted])
                answer = Answer(**there.answer)  # another process's, which was journalled first
            bill.unrecorded = 0
        except (Transient, _CutShort):
            if call.is_left and call.wasted:  # nobody else will tell of them
                wasted, call.wasted = call.wasted, []
                await self._record_unusable(call, wasted)
            raise
        finally:
            if self._budget:
                self._budget.settle(reserved, bill.cost, bill.unrecorded)
        return answer

    async def _ask_member(
        self,
        call: _Attempts,
        widened: Request,
        place: tuple[Member, float],
        reserved: Reservation,
        bill: _Bill,
    ) -> Answer:
        member, entered = place
        self.meter.in_flight += 1
        request = widened
        if reserved.max_tokens < request.max_tokens:
            request = replace(request, max_tokens=reserved.max_tokens)
        try:
            answer = await self._ask_in_time(request, member, entered)
            if self._budget:
                bill.cost = self._budget.cost(answer, self._price_of(answer))
                self._budget.learn(call.request, answer)
            member.throttle.answered(entered)
            member.count(answer, entered)
            self._look_for_cut(request, answer)
            if answer.truncated and request.max_tokens < widened.max_tokens:
                call.least = 2 * request.max_tokens
                self._waste(call, answer, bill)
                raise _CutShort
            thinks = request.wire is None and used_up(answer, call.request)
            if thinks and self._widen(call, widened):
                self._waste(call, answer, bill)
                raise _CutShort
        except LimitRefused:
            if widened.max_tokens <= call.request.max_tokens:
                raise
            call.most = max(call.request.max_tokens, widened.max_tokens // 2)
            raise _CutShort from None
        except EndpointError as error:
            trouble = self.fleet.left(member, error)  # raises it where there is no other
            self.meter.retries += 1
            self.meter.trouble = str(trouble)
            raise trouble from None
        except Transient as trouble:
            self.meter.retries += 1
            self.meter.trouble = str(trouble)
            self.fleet.troubled(member, entered, trouble)
            if trouble.paid is not None:
                if self._budget:
                    bill.cost = self._budget.cost(trouble.paid, member.price)
                self._waste(call, trouble.paid, bill)
                if trouble.kind in ("late", "silent"):  # it may have been written to its end
                    bill.unrecorded += reserved.amount - bill.cost
                    bill.cost = reserved.amount
            raise
        except asyncio.CancelledError:
            bill.cost = bill.unrecorded = reserved.amount
            raise
        finally:
            self.meter.in_flight -= 1
            self.fleet.leave(member)
        return answer

    def _look_for_cut(self, request: Request, answer: Answer) -> None:
        short = answer.prompt_tokens < sum(len(text) for _, text in request.messages) // 6
        if short and not answer.estimated:
            self.endpoint.adaptation.prompt_read(answer.prompt_tokens, prompt_tokens(request))

    def _widen(self, call: _Attempts, widened: Request) -> bool:
        """Makes more room for thinking; returns whether the call gets more than it had."""
        endpoint = self.endpoint
        ceiling = endpoint.options.max_completion_tokens
        more = endpoint.adaptation.widen(call.request, widened.max_tokens, ceiling)
        return more and self._widened(call).max_tokens > widened.max_tokens

    def _waste(self, call: _Attempts, paid: Answer, bill: _Bill) -> None:
        call.wasted.append(paid)
        call.unrecorded += bill.cost
        bill.unrecorded = bill.cost
        self.meter.add(call.request.stage, paid, self._price_of(paid))

    async def _ask_in_time(self, request: Request, member: Member, entered: float) -> Answer:
        limit = asyncio.timeout(self._conditions.timeout)
        watch = Watch(self.fleet, member, entered, limit)
        try:
            async with limit:
                answer = await member.endpoint.ask(request)
        except TimeoutError:
            if watch.ended:
                raise silent(request, watch.seconds) from None
            raise late(request, self._conditions.timeout) from None
        finally:
            watch.end()
        return replace(answer, endpoint=member.name) if member.name else answer

    def _row(
        self, call: _Attempts, key: bytes, answer: Answer, wasted: Sequence[Answer] = ()
    ) -> Call:
        """A call as the journal keeps it: with the tokens of every try that was paid."""
        paid = [answer, *wasted]
        return Call(
            key=key,
            run=self._runs.row_id(self._conditions.run) if self._conditions.run else None,
            stage=call.request.stage,
            step=call.step,
            model=self.endpoint.model,
            request=canonical([*call.request.messages, *call.request.turns]).decode(),
            answer=answer.journal_fields(),
            **{name: sum(getattr(one, name) for one in paid) for name in TOKENS},
            attempts=max(1, call.number),
            seconds=answer.seconds,
            time=time.time_ns() // 1000,
        )


def _fleet(endpoint: Endpoint, conditions: CallConditions) -> Fleet:
    listed = conditions.fleet or (FleetEndpoint(endpoint, price=conditions.price),)
    members = []
    for one in listed:
        throttle = Throttle(
            one.limit or conditions.concurrency,
            tries=conditions.tries,
            patience=conditions.patience,
            alone=len(listed) == 1,
        )
        name = one.name if conditions.fleet else ""
        members.append(
            Member(one.endpoint, throttle, one.price, name, one.weight, silence=one.silence)
        )
    return Fleet(members, patience=conditions.patience, concurrency=conditions.concurrency)
