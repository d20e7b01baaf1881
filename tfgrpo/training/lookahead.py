"""Lessons that are asked about ahead of their turn, so that a step does not wait for each in a row.

Deciding lessons one after the other is a sequence: each is put beside what those before it left.
Here a window of them is asked about together, in rounds: each beside the library as it would be
if every proposal so far stood. What turns out to have been asked beside another library is asked
again in the next round, beside what the last one predicts. That is the parallel solution of a
recurrence by fixed-point iteration (Jacobi; for decoding, Santilli et al., arXiv 2305.10427): it
ends where the sequence ends, and here after two or three rounds, since most lessons say what an
experience says already or one thing that is new.

That a lesson is the same as an experience stands as long as that experience does, whatever came to
the library meanwhile; every change was decided beside all that is in the library by then. A round
begins when the one before is in, so what is asked follows from the answers alone, and a run that
is resumed asks the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tfgrpo.model.gather import gather_all
from tfgrpo.store.records import Operation
from tfgrpo.training.draft import Draft, once
from tfgrpo.training.pruning import fits
from tfgrpo.training.reflection import Failure, Lesson, StepOrigin

EARLY = 2
"""How often a lesson is asked about before its turn: with its turn, three times at the most."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A lesson that did not become an operation, and why."""

    text: str
    problem: str
    reason: str


@dataclass(frozen=True, slots=True)
class Proposed:
    """What a lesson came to beside one draft: an operation, or why there is none."""

    operation: Operation | None = None
    refused: tuple[Refusal, ...] = ()
    failures: tuple[Failure, ...] = ()
    repaired: int = 0


Propose: TypeAlias = Callable[[Lesson, Draft, StepOrigin, int], Awaitable[Proposed]]
"""From a lesson, a draft, where it comes from and its number, to what it comes to."""


class LessonStream:
    """The lessons of a step in their order, of which more may come until it is closed."""

    def __init__(self, lessons: Sequence[Lesson] | None = None) -> None:
        self._lessons = list(lessons or ())
        self._closed = lessons is not None
        self._changed = asyncio.Event()

    def add(self, lessons: Sequence[Lesson]) -> None:
        """Adds the next lessons."""
        self._lessons += lessons
        self._changed.set()

    def close(self) -> None:
        """Says that no more come."""
        self._closed = True
        self._changed.set()

    async def first(self, count: int | None = None) -> Sequence[Lesson]:
        """Returns the first lessons, all where `count` is None; waits until they are there."""
        while not self._closed and (count is None or len(self._lessons) < count):
            self._changed.clear()
            await self._changed.wait()
        return self._lessons if count is None else self._lessons[:count]


class Lookahead:
    """Asks about at most `ahead` lessons together, and gives what each comes to in its turn.

    `cap` is the most tokens of the library: no room is made ahead of a turn.
    """

    def __init__(
        self,
        propose: Propose,
        lessons: LessonStream,
        origin: StepOrigin,
        ahead: int,
        cap: int | None = None,
    ) -> None:
        self._propose, self._lessons, self._origin = propose, lessons, origin
        self._ahead, self._cap = ahead, cap
        self._width = 1
        self._known: dict[int, tuple[Draft, Proposed]] = {}
        self._times: Counter[int] = Counter()

    async def proposed(self, number: int, draft: Draft) -> Proposed | None:
        """Returns what a lesson comes to, None after the last; the draft is the one that those
        before it left."""
        if not self._stands(number, draft):
            await self._round(number, draft)
            if number not in self._known:
                return None
        return self._known.pop(number)[1]

    def _stands(self, number: int, draft: Draft) -> bool:
        known = self._known.get(number)
        return known is not None and _stands(known[1], known[0], draft)

    async def _round(self, first: int, draft: Draft) -> None:
        """Asks about what does not stand of the next lessons, each beside what is expected."""
        lessons = await self._lessons.first(first + self._width)
        expected = draft.after(())
        drafts: dict[int, Draft] = {}
        for number in range(first, len(lessons)):
            early = number > first
            if not self._stands(number, expected) and not (early and self._times[number] >= EARLY):
                drafts[number] = expected.after(())
            if number in self._known:
                self._expect(self._known[number][1].operation, expected)

        async def ask(number: int, beside: Draft) -> Proposed:
            self._times[number] += 1
            return await self._propose(lessons[number], beside, self._origin, number)

        answers = await gather_all(ask(number, beside) for number, beside in drafts.items())
        for (number, beside), answer in zip(drafts.items(), answers, strict=True):
            self._known[number] = beside, answer
        self._width = min(2 * self._width, self._ahead)

    def _expect(self, operation: Operation | None, draft: Draft) -> None:
        """Applies what a lesson came to, as far as that goes."""
        if operation is None or operation.op == "KEEP" or not fits(draft, operation, self._cap):
            return
        operation = once(operation, draft)
        if operation.op == "ADD" or operation.experience in draft.texts:
            draft.apply(operation)


def _stands(proposed: Proposed, then: Draft, now: Draft) -> bool:
    """Returns whether what was proposed beside one draft holds beside another."""
    operation = proposed.operation
    if operation is None or then.texts == now.texts:
        return True
    id = operation.experience or ""
    return operation.op == "KEEP" and then.texts.get(id) == now.texts.get(id) is not None
