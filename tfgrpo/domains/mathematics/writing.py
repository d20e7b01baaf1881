r"""How the ground truths of a data set are written, decided once for all of them, and said.

One ground truth alone does not tell: `1,5` is a list or a decimal, `mgh` a word or a product, and
`log(2)` has base 10 in LaTeX and is natural in Python. All of a data set together do, or else the
usual reading stays, and a line names the option of the domain that changes it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tfgrpo.data.problems import Problem
from tfgrpo.domains.mathematics.quantities import Rules

NUMBER = r"\d{1,3}(?:\.\d{3})+(?:,\d+)?|\d+,\d+"
COMMA = re.compile(rf"(?P<before>[-+€$£\\\s]*)(?P<number>{NUMBER})(?P<after>[^\d,;()\[\]]*)\Z")
SURE = re.compile(
    rf"[-+\s]*(?:\d{{1,3}}(?:\.\d{{3}})+,\d+|\\?[€£]\s*(?:{NUMBER})\Z|\d+,\d+\s*(?:\\?%|€|£|\\,|[a-zA-Z]))"
)
"""A comma between digits that can be nothing but a decimal comma."""
POINT = re.compile(r"\d\.\d")
DOTTED = re.compile(r"(?<![\d.])\d{1,3}(?:\.\d{3})+(?![\d.])")
RUN = re.compile(r"[a-zA-Z]{2,4}\Z")
PRODUCT = re.compile(r"(?<![a-zA-Z\\{])(?:\d+[a-z]{2,4}|[a-z]{2,4}(?=\s*[-+/^]))(?![a-zA-Z{(])")
ALONE = r"(?<![a-zA-Z\\]){}(?![a-zA-Z])"
LOG = re.compile(r"\\?(?<![a-zA-Z])log(?!\s*_|[a-zA-Z\d])")
PYTHON = (
    (re.compile(r"(?<![\w\\])Rational\(\s*(-?\d+)\s*,\s*(\d+)\s*\)"), r"((\1)/(\2))"),
    (re.compile(r"(?<![\w\\])I(?!\w)"), "i"),
    (re.compile(r"(?<![\w\\])E(?!\w)"), "e"),
)
"""How SymPy writes what LaTeX has another sign for."""


def decided(problems: Sequence[Problem], rules: Rules) -> Rules:
    """Returns rules with what the ground truths of a data set tell of how they are written.

    What is not the usual reading was chosen, and stays.
    """
    golds = [gold for problem in problems for gold in problem.ground_truths]
    everything = "\n".join(golds)
    if "**" in everything and not re.search(r"[\\^]", everything):
        rules = replace(rules, written="python")
    if any(map(SURE.match, golds)) and not POINT.search(DOTTED.sub(" ", everything)):
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
    commas = [gold for gold in golds if (match := COMMA.match(gold)) and "," in match["number"]]
    commas = [gold for gold in commas if not re.fullmatch(r"\D*\d{1,3}(?:,\d{3})+\D*", gold)]
    runs = [run for run, symbols in _runs(problems) if symbols]
    lines = []
    if commas and rules.decimal == "comma":
        lines.append(f"{_of(commas, golds)}: a comma is a decimal comma")
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


def as_decided(text: str, rules: Rules, *, gold: bool) -> str:
    """Returns a ground truth or an answer as the rules of its data set read it."""
    if gold and rules.decimal == "comma" and (match := COMMA.match(text.strip())):
        number = match["number"].replace(".", "").replace(",", ".")
        text = f"{match['before']}{number}{match['after']}"
    if rules.written == "python":
        text = LOG.sub(r"\\ln ", text)
        for pattern, latex in PYTHON if gold else ():
            text = pattern.sub(latex, text)
    if rules.letters == "product" and RUN.match(text.strip("$ ")):
        text = r"\cdot ".join(text.strip("$ "))
    return text


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
