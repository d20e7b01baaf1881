"""A domain from one Python function that judges, for callers of the library.

The function runs in this process, in a thread unless it is `async`, with all of the program's
rights. What it raises or takes longer for than the verifier's limit makes an attempt unverifiable,
never wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from numbers import Real
from typing import TypeAlias

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import (
    Context,
    Domain,
    Judge,
    Trajectory,
    Verdict,
    describe_error,
)
from tfgrpo.model.caller_threads import NOT_ITS_OWN, OutOfTime, Threads
from tfgrpo.model.function_identity import identity

Outcome: TypeAlias = "Verdict | float | bool | None"
Verify: TypeAlias = "Callable[[Problem, str], Outcome | Awaitable[Outcome]]"
"""From a problem and a response to a Verdict, a reward in [0, 1], a bool, or None for what
cannot be judged."""


def function_domain(verify: Verify) -> Domain:
    """Returns a domain whose attempts a function judges. Its name is the function's, and a digest
    of all that decides what it does is kept with every run and evaluation."""
    name = getattr(verify, "__name__", "verify")
    return Domain(name=name, verify=_judge(verify), ground_truth=False, identity=identity(verify))


def rewarded(domain: Domain, verify: Verify) -> Domain:
    """Returns a domain whose attempts a function judges in the place of its verifier. A row then
    needs no ground truth, unless the domain's own reader of files asks for one."""
    return replace(
        domain,
        verify=_judge(verify),
        at_once=None,
        check=None,
        answers=None,
        judge_calls=None,
        ground_truth=False,
    )


def _judge(verify: Verify) -> Judge:
    threads = Threads()

    async def judge(context: Context, trajectory: Trajectory) -> Verdict:
        seconds, problem = context.verifier.seconds, context.problem
        try:
            outcome = await threads.call(verify, problem, trajectory.response, seconds=seconds)
        except OutOfTime:
            return Verdict(None, None, f"unverifiable: no verdict in {seconds:g} s")
        except NOT_ITS_OWN:
            raise
        except BaseException as error:  # whatever a function of the caller's does
            return Verdict(None, None, f"unverifiable: {describe_error(error)}")
        return read_outcome(outcome)

    return judge


def read_outcome(outcome: object) -> Verdict:
    """Returns what a function gave as a verdict; what is none is unverifiable."""
    if isinstance(outcome, Verdict):
        return outcome
    if outcome is None:
        return Verdict(None, None, "unverifiable: the function gave None")
    reward = number_of(outcome)
    if reward is not None and 0 <= reward <= 1:
        return Verdict(reward, None, f"the function gave {outcome}")
    return Verdict(None, None, f"unverifiable: the function gave {outcome!r}"[:200])


def number_of(outcome: object) -> float | None:
    """Returns what is a number or a bool of Python, numpy and the like; None for all else."""
    item = getattr(outcome, "item", None)
    if callable(item):
        try:
            outcome = item()
        except Exception:  # several numbers, or none: the verdict shows them
            return None
    return float(outcome) if isinstance(outcome, (Real, Decimal)) else None
