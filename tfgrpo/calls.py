"""The one place through which every model call goes.

A call is looked up in the journal first; only if it was never answered is it made. Its answer
is on the disk before anybody sees it, so a run that is killed at any instant and started again
repeats no completed call. The key of a call holds its sample index: two samples of one prompt
are two samples, never one cached twice.

Transient trouble is waited out here, with growing pauses and the server's own Retry-After, and
nowhere else. Trouble that outlasts every try stops the run instead of turning into a wrong
answer: an outage teaches nothing.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from tfgrpo.endpoint import Answer, CallFailed, Endpoint, EndpointError, Request, Transient
from tfgrpo.store.canonical import canonical, digest
from tfgrpo.store.journal import Journal
from tfgrpo.store.runs import Call, Run, Runs

TRIES = 8
FIRST_TRIES = 4  # of an endpoint that has never answered: most likely it never will
LONGEST_PAUSE = 30.0


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens."""

    prompt: float
    completion: float
    cached: float | None = None

    def cost(self, answer: Answer) -> float:
        """Returns what an answer cost, in US dollars."""
        cached = self.prompt if self.cached is None else self.cached
        fresh = answer.prompt_tokens - answer.cached_tokens
        parts = fresh * self.prompt + answer.cached_tokens * cached
        return (parts + answer.completion_tokens * self.completion) / 1e6


FREE = Price(0.0, 0.0)


@dataclass(slots=True)
class Meter:
    """What calls have come to so far. `cost` is None once a price was unknown."""

    calls: int = 0
    replayed: int = 0
    retries: int = 0
    in_flight: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = 0.0
    by_stage: dict[str, int] = field(default_factory=dict)
    trouble: str | None = None

    def count(self, stage: str, answer: Answer, price: Price | None) -> None:
        """Adds one answer."""
        self.calls += 1
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens
        self.by_stage[stage] = self.by_stage.get(stage, 0) + 1
        self.trouble = None
        if price is None:
            self.cost = None
        elif self.cost is not None:
            self.cost += price.cost(answer)


@dataclass(frozen=True, slots=True)
class Recorded:
    """An answer and the journal's key of it, in hex."""

    answer: Answer
    key: str


class Calls:
    """Asks one endpoint, with at most `concurrency` requests in flight."""

    def __init__(
        self,
        endpoint: Endpoint,
        journal: Journal,
        runs: Runs,
        *,
        scope: str,
        run: Run | None = None,
        concurrency: int = 128,
        timeout: float = 1800.0,
        price: Price | None = None,
        meter: Meter | None = None,
        tries: int = TRIES,
    ) -> None:
        self.endpoint = endpoint
        self.meter = meter or Meter()
        self._journal = journal
        self._runs = runs
        self._scope = scope
        self._run = run
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout = timeout
        self._price = price
        self._tries = tries
        self._pauses = random.Random()
        self._asking: dict[bytes, asyncio.Future[None]] = {}

    async def ask(
        self, request: Request, *, place: tuple[str | int, ...] = (), sample: int = 0
    ) -> Recorded:
        """Returns the answer to a request, from the journal when it was answered before.

        `place` and `sample` tell apart requests that read alike; the first number in `place` is
        the step. Raises CallFailed when this request cannot be answered in time or at all, and
        EndpointError when the endpoint cannot serve the run.
        """
        key = self.key(request, place, sample)
        while key in self._asking:  # the very same call is under way: its answer will do
            await asyncio.wait([self._asking[key]])
        call = self._runs.call(key)
        if call is not None:
            answer = Answer(**call.answer)
            self.meter.replayed += 1
        else:
            answer = await self._asked(key, request, place)
        self.meter.count(request.stage, answer, self._price)
        return Recorded(answer, key.hex())

    async def _asked(self, key: bytes, request: Request, place: tuple[str | int, ...]) -> Answer:
        done = self._asking[key] = asyncio.get_running_loop().create_future()
        try:
            answer, attempts = await self._persist(request)
            step = next((part for part in place if isinstance(part, int)), None)
            await self._journal.append(self._call(key, request, answer, attempts, step))
        finally:
            del self._asking[key]
            done.set_result(None)
        return answer

    def recount(self, stage: str, answer: Answer) -> None:
        """Counts an answer that was read from the journal by other ways than `ask`."""
        self.meter.replayed += 1
        self.meter.count(stage, answer, self._price)

    def key(self, request: Request, place: tuple[str | int, ...], sample: int) -> bytes:
        """Returns the journal's key of a request (32 bytes)."""
        asked: Mapping[str, object] = asdict(request)
        return digest(["tfgrpo.call", self._scope, self.endpoint.model, asked, place, sample])

    async def _persist(self, request: Request) -> tuple[Answer, int]:
        attempt = 0
        while True:
            attempt += 1
            try:
                async with self._slots:
                    self.meter.in_flight += 1
                    try:
                        async with asyncio.timeout(self._timeout):
                            return await self.endpoint.ask(request), attempt
                    except TimeoutError:
                        raise CallFailed(f"no answer in {self._timeout:g} s") from None
                    finally:
                        self.meter.in_flight -= 1
            except Transient as trouble:
                self.meter.retries += 1
                self.meter.trouble = str(trouble)
                if attempt >= (self._tries if self.meter.calls else FIRST_TRIES):
                    raise EndpointError(
                        f"gave up after {attempt} tries: {trouble}",
                        hint="everything answered so far is kept; "
                        "the same command goes on from there",
                    ) from None
                await asyncio.sleep(self._pause(attempt, trouble.after))

    def _pause(self, attempt: int, asked: float | None) -> float:
        """Returns how long to wait before the next try, in seconds."""
        if asked is not None:
            return asked + self._pauses.uniform(0, 0.5)
        return min(LONGEST_PAUSE, 0.25 * 2.0**attempt) * self._pauses.uniform(0.5, 1.0)

    def _call(
        self, key: bytes, request: Request, answer: Answer, attempts: int, step: int | None
    ) -> Call:
        return Call(
            key=key,
            run=self._run.id if self._run else None,
            stage=request.stage,
            step=step,
            model=self.endpoint.model,
            request=canonical(request.messages).decode(),
            answer=asdict(answer),
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            completion_tokens=answer.completion_tokens,
            reasoning_tokens=answer.reasoning_tokens,
            attempts=attempts,
            seconds=answer.seconds,
            time=time.time_ns() // 1000,
        )


def messages_of(call: Call) -> list[tuple[str, str]]:
    """Returns the messages of a journalled call: (role, content) in order."""
    return [(role, content) for role, content in json.loads(call.request)]
