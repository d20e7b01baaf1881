"""Math: answers in `\\boxed{}` or an `<answer>` tag, compared with the ground truth.

math                              a decimal stands for a number at six digits, units are lenient
math:digits=4,units=strict        at four digits, and a unit that is asked for has to be there
math:decimal=comma                commas of ground truths and answers are decimal commas
math:letters=product              letters in a row are a product, in any order
math:written=python               ground truths are Python, as SymPy prints them
math:calculation=checked          a right answer counts if the calculation beside it gives it

How ground truths are written is decided once for all of a data set, and said. One alone does not
tell: `1,5` is a list or a decimal, `mgh` a word or a product, and `log(2)` has base 10 in LaTeX and
is natural in Python. All together do, or else the usual reading stays, and a line names the option.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import get_args, get_type_hints

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain, Verdict
from tfgrpo.domains.domain_options import read_options
from tfgrpo.domains.mathematics.answers import RUN, check_gold, judge, second_answer, with_letters
from tfgrpo.domains.mathematics.answers import at_once as answer_at_once
from tfgrpo.domains.mathematics.extract import ending
from tfgrpo.domains.mathematics.numerals import DECIMAL, DOTTED, with_points
from tfgrpo.domains.mathematics.quantities import USUAL, Rules, quantity
from tfgrpo.domains.mathematics.units import COUNTED

CHOICES = {name: get_args(kind) for name, kind in get_type_hints(Rules).items()}
CHOICES["digits"] = tuple(map(str, range(2, 13)))
COMMA = re.compile(rf"[-+€$£\\\s]*{DECIMAL}[^\d,;()\[\]]*\Z")
POINT = re.compile(r"\d\.\d|\d,\d{3},\d{3}")
BOTH = re.compile(r"\.\d{3},\d")
THOUSANDS = re.compile(rf"(?<![\d.]){DOTTED}(?![\d.])")
PRODUCT = re.compile(r"(?<![a-zA-Z\\{])(?:\d+[a-z]{2,4}|[a-z]{2,4}(?=\s*[-+/^]))(?![a-zA-Z{(])")
ALONE = r"(?<![a-zA-Z\\]){}(?![a-zA-Z])"


def verify(problem: Problem, response: str, rules: Rules = USUAL) -> Verdict:
    """Judges the answer that a response gives. May be slow; raises nothing."""
    gold, *others = problem.ground_truths
    return judge(gold, response, rules, others, problem.problem)


def read(problem: Problem, response: str) -> str | None:
    """Returns what the boxes hold that are a response's answer, and of an option of the problem its
    letter; None where there is none, or it is taken back."""
    answer = ending(response)
    if answer.retracted or not answer.boxes:
        return None
    listed = with_letters(answer, problem.problem).listed
    second = second_answer(listed, answer)
    return f"{listed}, {second}" if second else listed


def at_once(problem: Problem, response: str) -> Verdict | None:
    """Judges whole numbers without a worker process, and leaves everything else to `verify`."""
    return answer_at_once(problem.answer, response) if len(problem.ground_truths) == 1 else None


def check(problem: Problem, rules: Rules = USUAL) -> str | None:
    """Returns what is wrong with the ground truth, or None when answers can be compared with it."""
    wrong = (check_gold(gold, rules) for gold in problem.ground_truths)
    return next(filter(None, wrong), None)


def with_options(options: str) -> Domain:
    """Returns the domain under other rules, `digits=4,units=strict`. Raises DomainError."""
    chosen = read_options("math", options, CHOICES)
    rules = replace(USUAL, **chosen | {"digits": int(chosen.get("digits", USUAL.digits))})
    return DOMAIN if rules == USUAL else _domain(rules)


def options_in(problems: Sequence[Problem], rules: Rules) -> str:
    """Returns the options that differ from the usual ones, those included that ground truths tell
    of themselves."""
    return _options(_decided(problems, rules))


def _options(rules: Rules) -> str:
    values = asdict(rules).items()
    return ",".join(f"{name}={value}" for name, value in values if value != getattr(USUAL, name))


def _decided(problems: Sequence[Problem], rules: Rules) -> Rules:
    """Returns rules with what the ground truths of a data set tell of how they are written. What is
    not the usual reading was chosen, and stays."""
    golds = [gold for problem in problems for gold in problem.ground_truths]
    everything = "\n".join(golds)
    if "**" in everything and not re.search(r"[\\^]", everything):
        rules = replace(rules, written="python")
    if any(map(_has_decimal_comma, golds)) and not POINT.search(THOUSANDS.sub(" ", everything)):
        rules = replace(rules, decimal="comma")
    runs = _runs(problems)
    others = any(len({*run}) < len(run) for run in map(str.strip, golds) if RUN.match(run))
    orders = {"".join(sorted(run)) for run, _ in runs}
    if (
        runs
        and all(symbols for _, symbols in runs)
        and not others
        and len(orders) == len({run for run, _ in runs})
        and any(map(PRODUCT.search, golds))
    ):
        rules = replace(rules, letters="product")
    return rules


def remarks(problems: Sequence[Problem], rules: Rules) -> tuple[str, ...]:
    """Returns what to say of how ground truths are read, a line for each thing that one alone does
    not tell; nothing where there is no such thing."""
    golds = [gold.strip() for problem in problems for gold in problem.ground_truths]
    commas = [gold for gold in golds if COMMA.match(gold) and with_points(gold) != gold]
    runs = [run for run, symbols in _runs(problems) if symbols]
    lines = []
    if rules.decimal == "comma":
        commas = [gold for gold in golds if with_points(gold, ",.") != gold]
        lines += [f"{_of(commas, golds)}: a comma is a decimal comma"] if commas else []
    elif commas:
        usual = f"{_of(commas, golds)}: a comma separates two answers"
        lines.append(f"{usual}; math:decimal=comma where it is a decimal comma")
    if rules.written == "python":
        powers = [gold for gold in golds if "**" in gold]
        lines.append(f"{_of(powers, golds)}: written as Python, so log is natural and I is i")
    if runs and rules.letters == "product":
        lines.append(f"{_of(runs, golds)}: a product of symbols, in any order")
    elif runs:
        usual = f"{_of(runs, golds)}: a word, whose letters have an order"
        lines.append(f"{usual}; math:letters=product where they are symbols")
    return tuple(lines)


def _has_decimal_comma(gold: str) -> bool:
    """Whether the comma of a ground truth can be nothing but a decimal comma: `1.234,50`, `€18,90`,
    `12,5 kg`. `1,234 kg` may be thousands, and `2,3 and 5` a list."""
    read = with_points(gold)
    number = quantity(read) if read != gold else None
    if number is None:
        return False
    measured = any(unit != COUNTED for unit in number.units)
    return number.percent or measured or BOTH.search(gold) is not None


def _runs(problems: Sequence[Problem]) -> list[tuple[str, bool]]:
    """Returns the ground truths that are two to four different letters, not all of them capitals,
    and whether each letter stands alone in the problem, as a symbol does."""
    runs = []
    for problem in problems:
        for gold in map(str.strip, problem.ground_truths):
            if RUN.match(gold) and not gold.isupper() and len(set(gold)) == len(gold):
                alone = (re.search(ALONE.format(letter), problem.problem) for letter in gold)
                runs.append((gold, all(alone)))
    return runs


def _of(some: Sequence[str], golds: Sequence[str]) -> str:
    return f"{len(some)} of {len(golds)} ground truths, such as {some[0][:40]!r}"


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
        remarks=partial(remarks, rules=rules),
        read=read,
    )


DOMAIN = _domain(USUAL)
