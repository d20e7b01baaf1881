"""Math: answers in `\\boxed{}` or an `<answer>` tag, compared with the ground truth."""

from __future__ import annotations

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain, Verdict
from tfgrpo.domains.mathematics.answers import at_once as answer_at_once
from tfgrpo.domains.mathematics.answers import check_gold, judge


def verify(problem: Problem, response: str) -> Verdict:
    """Judges the answer that a response gives. May be slow; raises nothing."""
    return judge(problem.answer, response)


def at_once(problem: Problem, response: str) -> Verdict | None:
    """Judges whole numbers without a worker process, and leaves everything else to `verify`."""
    return answer_at_once(problem.answer, response)


def check(problem: Problem) -> str | None:
    """Returns what is wrong with the ground truth, or None when answers can be compared with it."""
    return check_gold(problem.answer)


DOMAIN = Domain(name="math", verify=verify, at_once=at_once, check=check)
