"""Verification in worker processes, away from the event loop.

Judges may hang, eat memory or fiddle with signals, so they run in a pool of processes (pebble)
that are killed when an answer takes too long. A killed or crashed judge gives an unverifiable
verdict, which is told apart from a wrong answer and never becomes a reward of 0.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Iterable
from concurrent.futures import TimeoutError as FutureTimeout
from types import TracebackType
from typing import Self

from tfgrpo.math_answers import Verdict, check_gold, judge
from tfgrpo.problems import DatasetError, Problem


class Verifier:
    """Judges responses in `workers` processes, each answer within `seconds`. Close it when done."""

    def __init__(self, *, workers: int = 2, seconds: float = 10.0) -> None:
        from pebble import ProcessPool

        self._seconds = seconds
        self._pool = ProcessPool(max_workers=workers, context=multiprocessing.get_context("spawn"))

    async def verdict(self, problem: Problem, response: str) -> Verdict:
        """Returns the verdict on a response to a problem."""
        future = self._pool.schedule(judge, args=[problem.answer, response], timeout=self._seconds)
        try:
            return await asyncio.wrap_future(future)
        except (TimeoutError, FutureTimeout):
            return Verdict(None, None, f"unverifiable: no verdict in {self._seconds:g} s")
        except asyncio.CancelledError:
            raise
        except Exception as error:  # the worker died: out of memory, or killed
            return Verdict(None, None, f"unverifiable: {type(error).__name__}")

    def close(self) -> None:
        """Ends the worker processes."""
        self._pool.stop()  # type: ignore[no-untyped-call]
        self._pool.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def check_golds(problems: Iterable[Problem], source: str) -> None:
    """Raises DatasetError for the first problem whose ground truth nothing can be compared with."""
    for problem in problems:
        wrong = check_gold(problem.answer)
        if wrong is not None:
            raise DatasetError(
                f"{source}: {problem.id}: cannot parse the answer {problem.answer!r}: {wrong}",
                hint="give the ground truth as a number or as LaTeX",
            )
