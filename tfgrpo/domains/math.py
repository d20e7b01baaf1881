"""Math: answers in `\\boxed{}` or an `<answer>` tag, compared with the ground truth.

math                              a decimal stands for a number at six digits, units are lenient
math:digits=4,units=strict        at four digits, and a unit that is asked for has to be there
"""

from __future__ import annotations

from functools import partial

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain, DomainError, Verdict
from tfgrpo.domains.mathematics.answers import at_once as answer_at_once
from tfgrpo.domains.mathematics.answers import check_gold, judge
from tfgrpo.domains.mathematics.quantities import USUAL, Rules

HINT = "write math:digits=4 or math:units=strict, or both with a comma between them"


def verify(problem: Problem, response: str, rules: Rules = USUAL) -> Verdict:
    """Judges the answer that a response gives. May be slow; raises nothing."""
    gold, *others = problem.ground_truths
    return judge(gold, response, rules, others)


def at_once(problem: Problem, response: str) -> Verdict | None:
    """Judges whole numbers without a worker process, and leaves everything else to `verify`."""
    return answer_at_once(problem.answer, response) if len(problem.ground_truths) == 1 else None


def check(problem: Problem) -> str | None:
    """Returns what is wrong with the ground truth, or None when answers can be compared with it."""
    return next(filter(None, map(check_gold, problem.ground_truths)), None)


def with_options(options: str) -> Domain:
    """Returns the domain under other rules, `digits=4,units=strict`. Raises DomainError."""
    digits, units = USUAL.digits, USUAL.units
    for option in filter(None, options.split(",")):
        name, _, value = (part.strip() for part in option.partition("="))
        if name == "digits" and value.isdecimal() and 2 <= int(value) <= 12:
            digits = int(value)
        elif name == "units" and value in ("lenient", "strict"):
            units = "strict" if value == "strict" else "lenient"
        else:
            raise DomainError(f"math takes no argument {option.strip()!r}", hint=HINT)
    rules = Rules(digits, units)
    if rules == USUAL:
        return DOMAIN
    identity = f"digits={digits},units={units}"
    return Domain(
        name="math",
        verify=partial(verify, rules=rules),
        at_once=at_once,
        check=check,
        identity=identity,
        configure=with_options,
    )


DOMAIN = Domain(name="math", verify=verify, at_once=at_once, check=check, configure=with_options)
