"""Math: answers in `\\boxed{}` or an `<answer>` tag, compared with the ground truth.

math                              a decimal stands for a number at six digits, units are lenient
math:digits=4,units=strict        at four digits, and a unit that is asked for has to be there
math:decimal=comma                the comma of a ground truth is a decimal comma
math:letters=product              letters in a row are a product, in any order
math:written=python               ground truths are Python, as SymPy prints them
math:calculation=checked          a right answer counts if the calculation beside it gives it

Those of how ground truths are written are read off a data set where its ground truths tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain, DomainError, Verdict
from tfgrpo.domains.mathematics import writing
from tfgrpo.domains.mathematics.answers import at_once as answer_at_once
from tfgrpo.domains.mathematics.answers import check_gold, judge
from tfgrpo.domains.mathematics.extract import extract
from tfgrpo.domains.mathematics.quantities import USUAL, Rules

HINT = (
    "write math:digits=4 (2 to 12), or any of units=lenient|strict, written=latex|python, "
    "decimal=point|comma, letters=word|product and calculation=free|checked, "
    "with commas between them"
)
CHOICES = {
    "units": ("lenient", "strict"),
    "written": ("latex", "python"),
    "decimal": ("point", "comma"),
    "letters": ("word", "product"),
    "calculation": ("free", "checked"),
}


def verify(problem: Problem, response: str, rules: Rules = USUAL) -> Verdict:
    """Judges the answer that a response gives. May be slow; raises nothing."""
    gold, *others = problem.ground_truths
    return judge(gold, response, rules, others)


def at_once(problem: Problem, response: str) -> Verdict | None:
    """Judges whole numbers without a worker process, and leaves everything else to `verify`."""
    return answer_at_once(problem.answer, response) if len(problem.ground_truths) == 1 else None


def check(problem: Problem, rules: Rules = USUAL) -> str | None:
    """Returns what is wrong with the ground truth, or None when answers can be compared with it."""
    wrong = (check_gold(gold, rules) for gold in problem.ground_truths)
    return next(filter(None, wrong), None)


def with_options(options: str) -> Domain:
    """Returns the domain under other rules, `digits=4,units=strict`. Raises DomainError."""
    chosen: dict[str, Any] = {}
    for option in filter(None, options.split(",")):
        name, _, value = (part.strip() for part in option.partition("="))
        if name == "digits" and value.isdecimal() and 2 <= int(value) <= 12:
            chosen[name] = int(value)
        elif value in CHOICES.get(name, ()):
            chosen[name] = value
        else:
            raise DomainError(f"math takes no argument {option.strip()!r}", hint=HINT)
    rules = replace(USUAL, **chosen)
    return DOMAIN if rules == USUAL else _domain(rules)


def options_in(problems: Sequence[Problem], rules: Rules) -> str:
    """Returns the options that differ from the usual ones, those included that ground truths tell
    of themselves."""
    return _options(writing.decided(problems, rules))


def _options(rules: Rules) -> str:
    names = ("digits", "units", "written", "decimal", "letters", "calculation")
    values = [(name, getattr(rules, name)) for name in names]
    return ",".join(f"{name}={value}" for name, value in values if value != getattr(USUAL, name))


def _domain(rules: Rules) -> Domain:
    usual = rules == USUAL
    return Domain(
        name="math",
        verify=verify if usual else partial(verify, rules=rules),
        at_once=None if rules.calculation == "checked" else at_once,
        check=check if usual else partial(check, rules=rules),
        identity=_options(rules),
        configure=with_options,
        options_from=partial(options_in, rules=rules),
        remarks=partial(writing.remarks, rules=rules),
        read=extract,
    )


DOMAIN = _domain(USUAL)
