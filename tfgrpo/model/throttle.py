"""How many requests an endpoint is sent at once, and when: one gate for all of its callers.

**Rate limits.** A limit (429, 503, 529) halves how many requests may be in flight; every window
of answers after it allows one more again, or a 32nd of the most: additive increase,
multiplicative decrease (Chiu and Jain 1989). A Retry-After closes the gate for everybody. What
comes of requests that were under way already when the gate last reacted is not counted again:
128 refusals at once are one event.

**Outages.** Events in a row without one answer between them are fruitless rounds. From the
second on, the gate closes for a growing pause; from the third on, it lets one request through
at a time, as a probe; after `tries` of them (`FIRST_TRIES` from an endpoint that has never
answered) the breaker opens and everybody gets an EndpointError. The first answer ends it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque

from tfgrpo.model.endpoint import EndpointError, Transient

TRIES = 8
FIRST_TRIES = 4
LONGEST_PAUSE = 30.0
LONGEST_WAIT = 600.0
"""A server that asks for a longer wait, in seconds, stops the run, which can be resumed later."""
KEPT = "every answer is saved; run the same command to resume"


class Throttle:
    """The gate before one endpoint: at most `most` requests in flight, fewer when it says so."""

    def __init__(self, most: int, *, tries: int = TRIES) -> None:
        self.limit = float(most)
        self.in_flight = 0
        self._most = most
        self._tries = tries
        self._alive = False
        self._rounds = 0
        self._reacted = 0.0
        self._before = self.limit
        self._closed_until = 0.0
        self._dead: str | None = None
        self._queue: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._chance = random.Random()

    @property
    def healthy(self) -> bool:
        """Whether there was an answer since the last trouble but one."""
        return self._rounds <= 1

    async def enter(self, *, again: bool = False) -> float:
        """Waits for one's turn; returns the time at which it came.

        Who comes `again` goes before those who have not been served yet. Whoever enters has to
        `leave`. Raises EndpointError when the breaker is open.
        """
        if self._dead is None and (self._queue or not self._open()):
            turn = asyncio.get_running_loop().create_future()
            (self._queue.appendleft if again else self._queue.append)(turn)
            self._admit()
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self.leave()
                raise
        else:
            self.in_flight += 1
        if self._dead is not None:
            self.leave()
            raise EndpointError(self._dead, hint=KEPT)
        return time.monotonic()

    def leave(self) -> None:
        """Makes room for the next."""
        self.in_flight -= 1
        self._admit()

    def answered(self, entered: float) -> None:
        """Takes note of an answer to the request that entered then."""
        if self._rounds > 2:  # the outage is over
            self.limit = max(self.limit, self._before / 2)
        self._alive, self._rounds = True, 0
        if entered >= self._reacted:
            self.limit = min(self._most, self.limit + max(1.0, self._most / 32) / self.limit)

    def troubled(self, entered: float, trouble: Transient) -> None:
        """Takes note of trouble that the request that entered then has met."""
        now = time.monotonic()
        limited = trouble.kind == "limit"
        if limited and trouble.after is not None:
            if trouble.after > LONGEST_WAIT:
                self._die(f"the endpoint asks for a wait of {trouble.after:.0f} s: {trouble}")
            self._close(now + trouble.after)
        if entered < self._reacted:
            return
        self._reacted = now
        self._rounds += 1
        if self._rounds == 1:
            self._before = self.limit
        if limited or self._rounds == 2:
            self.limit = max(1.0, self.limit / 2)
        if self._rounds > 2:
            self.limit = 1.0
        if self._rounds > 1:
            after = self.pause(self._rounds) if trouble.after is None else trouble.after
            self._close(now + min(after, LONGEST_WAIT))
        if self._rounds >= (self._tries if self._alive else min(FIRST_TRIES, self._tries)):
            self._die(f"gave up after {self._rounds} tries without one answer: {trouble}")

    def pause(self, attempt: int) -> float:
        """Returns how long to wait before the next try, in seconds: doubling, and never alike."""
        return min(LONGEST_PAUSE, 0.25 * 2.0**attempt) * self._chance.uniform(0.5, 1.0)

    def _open(self) -> bool:
        return self.in_flight < int(self.limit) and time.monotonic() >= self._closed_until

    def _close(self, until: float) -> None:
        self._closed_until = max(self._closed_until, until)

    def _die(self, reason: str) -> None:
        self._dead = self._dead or reason
        self._admit()

    def _admit(self) -> None:
        while self._queue and (self._open() or self._dead is not None):
            turn = self._queue.popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)
        now = time.monotonic()
        due = self._timer is None or self._timer.when() <= now
        if self._queue and self._closed_until > now and due:
            self._timer = asyncio.get_running_loop().call_at(self._closed_until, self._admit)
