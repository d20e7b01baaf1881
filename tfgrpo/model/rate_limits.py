"""How many requests an endpoint is sent at once, and when: one gate for all of its callers.

**Rate limits.** A limit (429, 503, 529) halves how many requests may be in flight; every window of
answers after it allows one more again, or a 32nd of the most (Chiu and Jain 1989). A Retry-After
closes the gate for everybody. Requests that were under way when the gate last reacted are not
counted again.

**Outages.** Events in a row without an answer are fruitless rounds. From the second on, the gate
closes for a pause that grows with them; from the third on, it lets one request through at a time.
After `patience` seconds, or `FIRST_TRIES` rounds at an endpoint that has never answered, everybody
gets an EndpointError. The first answer ends it.

**Faults.** Where answers come in between, a request that failed is sent again soon, and more often
the more of them fail.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import time
from collections import deque
from typing import TYPE_CHECKING

from tfgrpo.model.endpoint import EndpointError, Transient

if TYPE_CHECKING:
    from tfgrpo.model.fleet import Member

TRIES = 8
FIRST_TRIES = 4
MOST_TRIES = 40
PATIENCE = 600.0
"""Seconds without an answer after which a run stops, to be resumed later."""
LONGEST_PAUSE = 30.0
SOON = 2.0
"""The longest pause, in seconds, of a request that failed while others are answered."""
SHARE = 0.1
"""The share of an outage so far that the next pause takes."""
MEMORY = 0.05
"""What the newest outcome weighs in the share of requests that fail."""
CHANCE = 1e-4
"""That a request is given up which would have been answered: the chance of as many failures."""
RESUMPTION = "every answer is saved; run the same command to resume, or with a longer --patience"


def turn_of(name: str, coin: bytes, weight: float) -> float:
    """Where an endpoint of that name stands in the order of a coin, the lowest first: rendezvous
    hashing (Thaler and Ravishankar 1998) by weight (Schindelhauer and Schomaker 2005)."""
    drawn = hashlib.sha256(name.encode() + b"\0" + coin).digest()[:7]
    chance = (int.from_bytes(drawn, "big") + 1) / (2**56 + 1)
    return -math.log(chance) / weight if weight else math.inf


LEFT = 1.0
"""Seconds for which an endpoint is left at the least that would not serve at all."""


class Turned(Exception):
    """Who waited is to go to another endpoint: `to`, or whichever it would choose now."""

    def __init__(self, to: Member | None) -> None:
        super().__init__("turned away")
        self.to = to


class Throttle:
    """The gate before one endpoint: at most `most` requests in flight, fewer when it says so. One
    that is not `alone` never gives its endpoint up: there are others (`fleet.py`)."""

    def __init__(
        self, most: int, *, tries: int = TRIES, patience: float = PATIENCE, alone: bool = True
    ) -> None:
        self._alone = alone
        self.limit = float(most)
        self.in_flight = 0
        self.most = most
        self._tries = tries
        self.patience = patience
        self._failing = 0.0
        self.failing_since: float | None = None
        """Since when there was trouble and no answer; None where the last was an answer."""
        self._limited = False
        self._alive = False
        self._rounds = 0
        self._reacted = 0.0
        self._before = self.limit
        self.closed_until = 0.0
        """The time before which nothing goes out."""
        self._dead: str | None = None
        self._queue: deque[asyncio.Future[None]] = deque()
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._is_timed = False
        self._chance = random.Random()

    @property
    def given_up(self) -> bool:
        """Whether the endpoint was given up: nothing more is sent to it."""
        return self._dead is not None

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._queue) + len(self._urgent)

    @property
    def busy(self) -> int:
        """How many are in flight or wait."""
        return self.in_flight + self.waiting

    @property
    def ready(self) -> bool:
        """Whether a request would go out at once, with nobody before it."""
        return self._open() and not self.waiting

    @property
    def takes(self) -> bool:
        """Whether to send an endpoint that is one of several more: where it answers and asks for
        no pause, or to see with one request whether it answers again."""
        if self._dead is not None or time.monotonic() < self.closed_until:
            return False
        return self.healthy or not self.busy

    @property
    def never_answered(self) -> bool:
        """Whether enough rounds have passed without any answer ever."""
        return not self._alive and self._rounds >= min(FIRST_TRIES, self._tries)

    @property
    def healthy(self) -> bool:
        """Whether there was an answer since the last trouble but one."""
        return self._rounds <= 1

    @property
    def tries(self) -> int:
        """How often a request is sent before it has failed, while others are answered."""
        if self._failing <= 0:
            return self._tries
        chance = min(self._failing, 0.9)
        enough = math.ceil(math.log(CHANCE) / math.log(chance))
        return min(MOST_TRIES, max(self._tries, enough))

    def resize(self, most: int) -> None:
        """Has at most `most` requests in flight from now on, or as many fewer as before."""
        if most == self.most:
            return
        self.limit = float(most) if self.limit >= self.most else min(self.limit, float(most))
        self.most = most
        self._before = min(self._before, float(most))
        self._admit()

    async def enter(self, *, again: bool = False, urgent: bool = False) -> float:
        """Waits for one's turn; returns when it came. Who comes `again` goes first, and who is
        `urgent` before all others. Whoever enters has to `leave`. Raises EndpointError."""
        if self._dead is None and (self._urgent or self._queue or not self._open()):
            turn = asyncio.get_running_loop().create_future()
            queue = self._urgent if urgent else self._queue
            (queue.appendleft if again else queue.append)(turn)
            self._admit()
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled() and turn.exception() is None:
                    self.leave()
                raise
        else:
            self.in_flight += 1
        if self._dead is not None:
            self.leave()
            raise EndpointError(self._dead, hint=RESUMPTION)
        return time.monotonic()

    def leave(self) -> None:
        """Makes room for the next."""
        self.in_flight -= 1
        self._admit()

    def turn_away(self, count: int | None = None, to: Member | None = None) -> None:
        """Has so many of those who wait (all) go elsewhere, the last to come first."""
        left = self.waiting if count is None else count
        for queue in (self._queue, self._urgent):
            while queue and left > 0:
                turn = queue.pop()
                if not turn.done():
                    turn.set_exception(Turned(to))
                    left -= 1

    def shut(self, entered: float | None = None) -> None:
        """Leaves an endpoint that would not serve at all, until it is tried again; unless that
        was done since the request that tells it `entered`."""
        if entered is not None and entered < self._reacted:
            return
        now = time.monotonic()
        self.failing_since = now if self.failing_since is None else self.failing_since
        self._before = self.limit if self._rounds == 0 else self._before
        self._rounds, self._reacted, self.limit = self._rounds + 2, now, 1.0
        self._close(now + self._pause(max(LEFT, (now - self.failing_since) * SHARE)))

    def give_up(self, reason: str) -> None:
        """Sends nothing more to the endpoint: everybody gets an EndpointError."""
        self._dead = self._dead or reason
        self._admit()

    def answered(self, entered: float) -> None:
        """Takes note of an answer to the request that entered then."""
        if self._rounds > 1:  # the outage is over
            self.limit = max(self.limit, self._before / (2 if self._limited else 1))
            self.closed_until = min(self.closed_until, time.monotonic())
        self._alive, self._rounds, self.failing_since, self._limited = True, 0, None, False
        self._failing *= 1 - MEMORY
        if entered >= self._reacted:
            self.limit = min(self.most, self.limit + max(1.0, self.most / 32) / self.limit)

    def troubled(self, entered: float, trouble: Transient) -> None:
        """Takes note of trouble that the request that entered then has met."""
        now = time.monotonic()
        limited = trouble.kind == "limit"
        self._limited |= limited
        self.failing_since = now if self.failing_since is None else self.failing_since
        self._failing += 0 if limited else MEMORY * (1 - self._failing)
        if limited and trouble.after is not None:
            if trouble.after > self.patience:
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
        wrong = not (self._alive or limited)
        waited = now - self.failing_since
        if self._rounds > 1:
            pause = self._pause(0.25 * 2.0**self._rounds if wrong else waited * SHARE)
            after = pause if trouble.after is None else trouble.after
            self._close(now + min(after, self.patience))
        if wrong and self._rounds >= min(FIRST_TRIES, self._tries):
            self._die(f"gave up after {self._rounds} tries without one answer: {trouble}")
        if self._rounds > 1 and waited >= self.patience:
            tries = f"{self._rounds} tries in {waited:.0f} s"
            self._die(f"gave up after {tries} without one answer: {trouble}")

    def pause(self, attempt: int) -> float:
        """How long to wait before a request is sent again, in seconds. While others are answered it
        doubles, up to `SOON`; else the gate is what waits."""
        return min(SOON, self._pause(0.05 * 2.0**attempt)) if self.healthy else 0.0

    def _pause(self, seconds: float) -> float:
        """A pause of about so many seconds: within bounds, and never two alike."""
        return min(LONGEST_PAUSE, max(0.05, seconds)) * self._chance.uniform(0.5, 1.0)

    def _open(self) -> bool:
        return self.in_flight < int(self.limit) and time.monotonic() >= self.closed_until

    def _close(self, until: float) -> None:
        self.closed_until = max(self.closed_until, until)

    def _die(self, reason: str) -> None:
        if self._alone:
            self.give_up(reason)

    def _admit(self) -> None:
        while (self._urgent or self._queue) and (self._open() or self._dead is not None):
            turn = (self._urgent or self._queue).popleft()
            if not turn.done():
                self.in_flight += 1
                turn.set_result(None)
        now = time.monotonic()
        if (self._urgent or self._queue) and self.closed_until > now and not self._is_timed:
            self._is_timed = True
            asyncio.get_running_loop().call_at(self.closed_until, self._wake)

    def _wake(self) -> None:
        """Lets in what waited for a pause. A loop may come a little early, and is asked again."""
        self._is_timed = False
        self._admit()
