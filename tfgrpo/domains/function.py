"""A domain from one Python function that judges, for callers of the library.

The function runs in this process, in a thread unless it is `async`, with all of the program's
rights. What it raises or takes longer for than the verifier's limit makes an attempt unverifiable,
never wrong.
"""

from __future__ import annotations

import asyncio
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
    describe_value,
    no_judge_calls,
)
from tfgrpo.model.caller_functions import OutOfTime, Threads, identity, takes_two
from tfgrpo.store.errors import SettingsError

REHEARSAL = 10.0
"""Seconds that a function may take before a run."""
Outcome: TypeAlias = "Verdict | float | bool | None"
Verify: TypeAlias = "Callable[[Problem, str], Outcome | Awaitable[Outcome]]"
"""From a problem and a response to a Verdict, a reward in [0, 1], a bool, or None for what
cannot be judged."""


def function_domain(verify: Verify) -> Domain:
    """Returns a domain whose attempts a function judges. Its name is the function's, and a digest
    of all that decides what it does is kept with every run and evaluation."""
    name = getattr(verify, "__name__", "verify")
    return Domain(
        name=name,
        verify=_judge(verify),
        ground_truth=False,
        judge_calls=no_judge_calls,
        identity=identity(verify),
        rehearse=_rehearsal(verify),
    )


def rewarded(domain: Domain, verify: Verify) -> Domain:
    """Returns a domain whose attempts a function judges in the place of its verifier. A row then
    needs no ground truth, unless the domain's own reader of files asks for one."""
    return replace(
        domain,
        verify=_judge(verify),
        at_once=None,
        check=None,
        answers=None,
        judge_calls=no_judge_calls,
        ground_truth=False,
        rehearse=_rehearsal(verify),
    )


def _rehearsal(verify: Verify) -> Callable[[Problem], None]:
    """Returns what calls a function with a problem and its ground truth, before an attempt is paid
    for, and raises SettingsError for what is no verdict. One that raises may not like such an
    answer: the attempts tell."""

    def rehearse(problem: Problem) -> None:
        if not takes_two(verify):
            raise SettingsError(
                f"the verifier {getattr(verify, '__name__', 'verify')} does not take a problem and "
                "a response",
                hint="a verifier is written `def verify(problem, response)`",
            )
        try:
            outcome = asyncio.run(
                Threads().call(verify, problem, problem.answer, seconds=REHEARSAL)
            )
        except Exception:  # whatever a function of the caller's does
            return
        _check(problem, outcome, read_outcome(outcome))

    return rehearse


def _check(problem: Problem, outcome: object, verdict: Verdict) -> None:
    if verdict.reward is None and not isinstance(outcome, Verdict | None):
        raise SettingsError(
            f"the verifier gives no verdict on {problem.id}: "
            + verdict.reason.removeprefix("unverifiable: "),
            hint="correct the verifier: it returns a number from 0 to 1, a bool, a Verdict, or "
            "None for what cannot be judged",
        )


def _judge(verify: Verify) -> Judge:
    threads, proved = Threads(), False

    async def judge(context: Context, trajectory: Trajectory) -> Verdict:
        nonlocal proved
        seconds, problem = context.verifier.seconds, context.problem
        try:
            outcome = await threads.call(verify, problem, trajectory.response, seconds=seconds)
        except OutOfTime:
            return Verdict(None, None, f"unverifiable: no verdict in {seconds:g} s")
        except Exception as error:  # whatever a function of the caller's does
            return Verdict(None, None, f"unverifiable: {describe_error(error)}")
        verdict = read_outcome(outcome)
        if not proved:
            _check(problem, outcome, verdict)
            proved = True
        return verdict

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
    return Verdict(None, None, f"unverifiable: the function gave {describe_value(outcome, 168)}")


def number_of(outcome: object) -> float | None:
    """Returns what is a number or a bool of Python, numpy and the like; None for all else."""
    item = getattr(outcome, "item", None)
    if callable(item):
        try:
            outcome = item()
        except Exception:  # several numbers, or none: the verdict shows them
            return None
    return float(outcome) if isinstance(outcome, (Real, Decimal)) else None
