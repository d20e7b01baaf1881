"""Judging answers to math problems: extraction first, then comparison, kind by kind.

What counts is the last `\\boxed{…}` or `<answer>…</answer>` of a response; a number that is
merely mentioned earns nothing. Numbers are compared exactly (`quantities.py`), lists whatever
joins them (`lists.py`), everything else is parsed whole (`parsing.py`) and compared with
numbers (`expressions.py`). The reason of a verdict begins with the rule that decided:
`number: 6 is not 5`. Functions here may take seconds on hostile input and run in worker processes
(`verifier.py`), which are killed when they do; math-verify's own time-outs use signals and are
switched off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any

from tfgrpo.domains.answer_reading import option_letter, own_option
from tfgrpo.domains.base import Verdict
from tfgrpo.domains.mathematics import lists, number_words, parsing, units
from tfgrpo.domains.mathematics.calculation import flaw
from tfgrpo.domains.mathematics.dates_bases_compounds import (
    based,
    clock,
    compound,
    date,
    same_compound,
    unsure_date,
)
from tfgrpo.domains.mathematics.doubt import pattern
from tfgrpo.domains.mathematics.extract import CUT, Ending, ending, retraction, without_unseen
from tfgrpo.domains.mathematics.notation import ONE_OF, WRAPPING, plainly
from tfgrpo.domains.mathematics.numerals import ungrouped, with_points, without_full_stop
from tfgrpo.domains.mathematics.parsing import READ, literal
from tfgrpo.domains.mathematics.quantities import (
    USUAL,
    Rules,
    equal,
    in_digits,
    is_measure,
    plain,
    quantity,
    unit_factor,
)
from tfgrpo.domains.mathematics.surroundings import stands_alone
from tfgrpo.rendering.experience_texts import one_line

RUN = re.compile(r"[a-zA-Z]{2,4}\Z")
LOG = re.compile(r"\\?(?<![a-zA-Z])log(?!\s*_|[a-zA-Z\d])")
PYTHON = (
    (re.compile(r"(?<![\w\\])Rational\(\s*(-?\d+)\s*,\s*(\d+)\s*\)"), r"((\1)/(\2))"),
    (re.compile(r"(?<![\w\\])I(?!\w)"), "i"),
    (re.compile(r"(?<![\w\\])E(?!\w)"), "e"),
)
"""How SymPy writes what LaTeX has another sign for."""
SEVERAL = re.compile(r"(?<!\\)[,;]|\\(?:pm|mp)(?![a-zA-Z])")
DASHES = dict.fromkeys(map(ord, "‐‑‒–—"), "-")
TIGHT = re.compile(r"(?<=\d),(?=\d)")
AND_NOTHING = re.compile(r"\d,0(?!\d)")
"""What may be a list that ends in nothing: `12,0`."""
SPELLED = re.compile(
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty"
    rf"|forty|fifty|sixty|seventy|eighty|ninety|{number_words.WORD})\b",
    re.I,
)
HEDGE = pattern("denied", "wrong", "doubt", "bound")
SHOWN = 200
INTEGER = re.compile(r"-?\d{1,15}\Z", re.ASCII)
WORDS = re.compile(r"[^\W\d_]{2,}(?:[ .,'-]+[^\W\d_]+)*\Z")
LETTERS = re.compile(r"[a-zA-Z]{2,4}\Z")
TIMES = re.compile(r"\s*(?:\*|\\cdot|\\times)\s*")
BLANKS = re.compile(r"\\[,;: ]|[\s~]")
SENTENCE = re.compile(r"[^\W\d_]+(?:[ .,'-]+[^\W\d_]+)+\Z")
LONG = re.compile(r"[^\W\d_]{3,}")
STATED = re.compile(r"final answer is:?\s*(\$[^$]+\$)", re.IGNORECASE)
"""Where a whole solution says which of its formulas is the answer."""
UNCLOSED = re.compile(r"\A\s*\\{1,2}boxed\{")
BOUND = re.compile(r"\b(?:or|at|than|not|more|less|fewer|least|most)\b", re.IGNORECASE)
"""Words that make a bound of a number: `5 or more`."""
NOT_READ = "as a whole it is no number, formula, list or word"
LONGEST = 10_000
"""Characters of the longest answer that is read; a longer one is right only word for word."""
WIDEST = 13_000
"""Bits of the widest number that is written out in digits."""


def judge(
    gold: str, response: str, rules: Rules = USUAL, others: Sequence[str] = (), question: str = ""
) -> Verdict:
    """Judges a response to a question against the ground truth, or against any of several. May
    be slow; raises nothing."""
    answer = ending(response)
    if question and choice(gold, is_truth=True) is not None:
        answer = with_letters(answer, question)
    if answer.retracted:
        return Verdict(0.0, None, f"box: {answer.retracted}")
    if not answer.boxes:
        return Verdict(0.0, None, "no \\boxed{} answer")
    verdict = _judge_any(gold, answer, rules, others)
    if verdict.reward == 1.0 and rules.calculation == "checked" and (wrong := flaw(response)):
        return Verdict(0.0, verdict.answer, f"calculation: {wrong}")
    return verdict


def with_letters(answer: Ending, question: str) -> Ending:
    """Returns an answer with the letter alone for each option of a question that it gives."""
    lines = [(name, body, _in_a_line(body)) for name, body in answer.boxes]
    letters = [(name, body, line, own_option(line, question)) for name, body, line in lines]
    boxes = ((name, body if one == line else one) for name, body, line, one in letters)
    return answer._replace(boxes=tuple(boxes))


def _judge_any(gold: str, answer: Ending, rules: Rules, others: Sequence[str]) -> Verdict:
    verdict = _judge_one(gold, answer, rules)
    for other in others:
        if verdict.reward == 1.0:
            break
        another = _judge_one(other, answer, rules)
        if another.reward == 1.0 or verdict.reward is None:
            verdict = another
    return verdict


def _judge_one(gold: str, answer: Ending, rules: Rules) -> Verdict:
    """Compares what boxes that belong together hold with one ground truth, and what is given
    behind them: a list where one is asked for, and right elsewhere only if all are."""
    gold = ground_truth(gold)
    verdict = _judge_boxes(gold, answer, rules)
    if not answer.behind:
        return verdict
    if verdict.reward != 1.0:
        both = ", ".join((answer.listed, *(ways[0] for ways in answer.behind)))
        whole = compare(gold, both, rules)
        return whole if whole.reward == 1.0 else verdict
    second = second_answer(gold, answer, rules)
    return _several(gold, f"{answer.listed} and {second}") if second else verdict


def _judge_boxes(gold: str, answer: Ending, rules: Rules) -> Verdict:
    if len(answer.boxes) == 1:
        return compare(gold, answer.boxes[0][1], rules)
    whole = compare(gold, answer.listed, rules)
    if whole.reward == 1.0:
        return whole
    bodies = dict.fromkeys(body for _, body in answer.boxes)
    verdicts = [compare(gold, body, rules) for body in bodies]
    if any(verdict.reward != 1.0 for verdict in verdicts):
        return _several(gold, " and ".join(body for _, body in answer.boxes))
    return verdicts[-1]


def _several(gold: str, boxes: str) -> Verdict:
    return Verdict(0.0, one_line(boxes), f"box: {differs(boxes, gold)}: several are one answer")


def second_answer(value: str, answer: Ending, rules: Rules = USUAL) -> str:
    """Returns the first answer behind the boxes that is another one than a value, or nothing. What
    cannot be read is none, nor is the same measure in another unit: `42`, or 0.42 m."""
    for ways in answer.behind:
        verdicts = [compare(value, way, rules) for way in ways]
        if any(verdict.reward == 1.0 for verdict in verdicts):
            continue
        decided = [verdict for verdict in verdicts if not _is_unread(verdict)]
        if decided and not any(is_measure(value, way) for way in ways):
            return ways[0]
    return ""


def _is_unread(verdict: Verdict) -> bool:
    return verdict.reward is None or verdict.reason.startswith("unread")


def at_once(gold: str, response: str) -> Verdict | None:
    """Returns what `judge` would, where both answers are whole numbers and nothing is in doubt.
    Takes microseconds on any input, so it may run on the event loop; None is for a worker."""
    start = response.rfind("\\boxed{")
    if start < 0 or not INTEGER.match(gold) or response.count("boxed") > 1:
        return None
    if re.search("<|fbox|framebox", response) or "think]" in response.lower():
        return None
    end = response.find("}", start)
    answer = response[start + 7 : end]
    if (
        not INTEGER.match(answer)
        or CUT.search(response, max(end, 0))
        or not stands_alone(response, start, end + 1)
        or re.search(r"\d", response[end:])
        or retraction(response, start, end + 1, answer)
    ):
        return None
    if int(gold) == int(answer):
        rule = "text" if gold == answer else "number"
        return Verdict(1.0, str(int(gold)), f"{rule}: equal")
    return Verdict(0.0, str(int(answer)), f"number: {differs(answer, gold)}")


def ground_truth(gold: str) -> str:
    """Returns a ground truth as an answer: what its boxes hold, where it is a whole solution."""
    gold = without_unseen(gold)
    boxed = ending(gold)
    if boxed.boxes:
        return boxed.listed
    stated = STATED.findall(gold)
    return stated[-1] if stated else UNCLOSED.sub("", gold)


def compare(gold: str, answer: str, rules: Rules = USUAL) -> Verdict:
    """Compares an answer with the ground truth. May be slow; raises nothing."""
    if written(gold) and written(gold) == written(answer):
        return Verdict(1.0, normal(gold), "text: equal")
    if len(answer) > LONGEST:
        return Verdict(0.0, one_line(answer[:SHOWN]), f"unread: {differs(answer, gold)}")
    gold = plainly(as_decided(gold, rules, gold=True))
    decided = replace(rules, decimal="point")
    verdicts = (_compared(gold, text, decided) for text in _readings(gold, answer, rules))
    first = next(verdicts)
    return next((each for each in chain((first,), verdicts) if each.reward == 1.0), first)


def _readings(gold: str, answer: str, rules: Rules) -> Iterable[str]:
    """Returns how an answer may be read beside a ground truth, the likeliest first. Beside one
    value a comma is a decimal one, unless it may separate thousands; beside a list it separates
    those or the values. Among decimal commas a point may separate thousands."""
    answer = as_decided(answer, rules, gold=False)
    if rules.decimal == "comma":
        forms = [with_points(answer.replace("{,}", ","), unsure) for unsure in (",.", ",")]
    else:
        forms = [answer]
    forms = [plainly(form) for form in forms]
    forms += [match[1].strip() for match in map(ONE_OF.match, forms) if match is not None]
    if not _is_one(gold):
        forms += [ungrouped(forms[0]), TIGHT.sub(", ", forms[0])]
    elif "." in gold or not AND_NOTHING.search(answer):
        forms.append(with_points(forms[0]))
    return dict.fromkeys(forms)


def _is_one(gold: str) -> bool:
    """Whether a ground truth is one value, beside which no comma of an answer separates two."""
    bare = ungrouped(gold.replace("{,}", ","))
    return not SEVERAL.search(bare) and len(lists.parts(bare)) == 1 and date(gold) is None


def _compared(gold: str, answer: str, rules: Rules) -> Verdict:
    if not same_compound(gold, answer):
        gold, answer = _as_products(gold, answer)
    for rule, same in (
        ("date", _same_date),
        ("compound", same_compound),
        ("choice", _same_choice),
        ("choice", _same(choices)),
        ("words", _same_doubt),
        ("number", lambda one, other: equal(one, other, rules)),
        ("time", _same_time),
        ("base", _same_base),
        ("ratio", _same_ratio),
        ("cases", lambda one, other: _same_cases(one, other, rules)),
        ("words", _same_words),
    ):
        right = same(gold, answer)
        if right is not None:
            return _verdict(rule, right, gold, answer)
    if in_words(gold) is not None and SPELLED.search(gold) and plain(answer) is not None:
        return Verdict(None, answer, f"unverifiable: {gold!r} spells a number out")
    worded = (in_words(gold), clock(gold), date(answer), sentence(answer))
    if literal(gold) or literal(answer):
        right = written(gold).replace(" ", "") == written(answer).replace(" ", "")
        return _verdict("text", right, gold, answer)
    if any(kind is not None for kind in worded):
        return Verdict(0.0, in_words(answer) or answer, f"words: {differs(answer, gold)}")
    try:
        listed = lists.as_point(answer, gold)
        return _solutions(gold, answer, rules) or _by_sympy(gold, listed, rules)
    except Exception as error:  # sympy raises nearly anything; it is told, as unverifiable
        return Verdict(None, answer, f"unverifiable: {type(error).__name__}: {error}"[:200])


def as_decided(text: str, rules: Rules, *, gold: bool) -> str:
    """Returns a ground truth or an answer as the rules of its data set read it, but for the commas
    of an answer."""
    if gold and rules.decimal == "comma":
        text = with_points(text.replace("{,}", ","), ",.")
    if rules.written == "python":
        text = LOG.sub(r"\\ln ", text)
        for pattern, latex in PYTHON if gold else ():
            text = pattern.sub(latex, text)
    if rules.letters == "product" and RUN.match(text.strip("$ ")):
        text = r"\cdot ".join(text.strip("$ "))
    return text


def _verdict(rule: str, right: bool, gold: str, answer: str) -> Verdict:
    if right:
        return Verdict(1.0, normal(gold), f"{rule}: equal")
    return Verdict(0.0, normal(answer), f"{rule}: {differs(answer, gold)}")


def check_gold(gold: str, rules: Rules = USUAL) -> str | None:
    """Returns what is wrong with a ground truth, or None when answers can be compared with it."""
    return judgeable(as_decided(ground_truth(gold), rules, gold=True))


def judgeable(gold: str) -> str | None:
    """Returns what is wrong with a ground truth that holds no box, or None."""
    gold, _ = _as_products(plainly(gold), "")
    kinds = (quantity, clock, date, based, in_words, compound)
    if choice(gold, is_truth=True) or any(kind(gold) is not None for kind in kinds):
        return None
    if (
        literal(gold)
        or lists.cases(gold)
        or choices(gold) is not None
        or quantity(BOUND.sub(" ", gold)) is not None
    ):
        return None
    try:
        return None if parsed(gold) is not None else NOT_READ
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def normal(gold: str) -> str:
    """Returns the form that all answers equal to a ground truth share, as one vote."""
    gold = plainly(gold)
    number, time, letter = plain(gold), clock(gold), choice(gold, is_truth=True)
    if (
        number is not None
        and max(number.numerator.bit_length(), number.denominator.bit_length()) < WIDEST
    ):
        return in_digits(number)
    if time is not None:
        return f"{time.hour}:{time.minute}{time.half}"
    if letter is not None:
        return letter if gold == letter else letter.upper()
    return in_words(gold) or one_line(gold)


def choice(text: str, *, is_truth: bool = False) -> str | None:
    """Returns the letter that a text chooses: `C`, `(C)`, `\\textbf{(C) } 12`, `Option C`. Nothing
    takes back the one of a ground truth."""
    return option_letter(_in_a_line(text), "ABCDEFGHIJ", is_truth=is_truth)


def _in_a_line(text: str) -> str:
    return one_line(WRAPPING.sub(r"\1", text)).strip("$ ")


def choices(text: str) -> tuple[str, ...] | None:
    """Returns the letters of several choices in order: `A, C`, `(A) and (C)`."""
    letters = [choice(part) for _, part in lists.parts(text)]
    if len(letters) < 2 or None in letters:
        return None
    chosen = sorted(filter(None, letters))
    return tuple(letter.upper() if "(" in text else letter for letter in chosen)


def written(text: str) -> str:
    """Returns a text without what does not matter when two are compared letter by letter."""
    bare = without_full_stop(one_line(WRAPPING.sub(r"\1", text)).strip("$ ")).strip("$ ")
    return bare.replace("\\dfrac", "\\frac").translate(DASHES)


def in_words(text: str) -> str | None:
    """Returns a text that is words and no formula, as words are compared. Two or more letters in a
    row would be read as a product of symbols: Paris as a·i·p·r·s."""
    bare = " ".join(WRAPPING.sub(r"\1", text).split()).rstrip(".!")
    return bare.casefold() if WORDS.match(bare) else None


def differs(answer: str, gold: str) -> str:
    """Returns in words that an answer is not the ground truth, in a line that can be read."""
    shown = (text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…" for text in (answer, gold))
    return " is not ".join(shown)


def sentence(text: str) -> str | None:
    """Returns an answer of several words, of which math-verify would read a letter."""
    bare = one_line(WRAPPING.sub(r"\1", text)).rstrip(".!")
    words = LONG.findall(bare) if SENTENCE.match(bare) else []
    return bare if any(not READ.fullmatch(word) for word in words) else None


def _same(kind: Callable[[str], Any]) -> Callable[[str, str], bool | None]:
    """Returns what says whether two texts are the same of a kind; None where one is not of it."""

    def compared(gold: str, answer: str) -> bool | None:
        want, have = kind(gold), kind(answer)
        return None if want is None or have is None else want == have

    return compared


def _as_products(gold: str, answer: str) -> tuple[str, str]:
    """Returns two texts with signs between letters in a row that can be nothing but a product: a
    capital stands among them, or the other text multiplies the same letters."""
    run = LETTERS.match(gold)
    if run is None:
        return gold, answer
    multiplied = TIMES.search(answer) is not None and LETTERS.match(TIMES.sub("", answer))
    if not (_has_inner_capital(gold) or multiplied):
        return gold, answer
    letters = LETTERS.match(answer) is not None
    return "\\cdot ".join(gold), "\\cdot ".join(answer) if letters else answer


def _has_inner_capital(text: str) -> bool:
    return not (text.islower() or text.isupper() or text.istitle())


def _same_words(gold: str, answer: str) -> bool | None:
    """Compares words without their case, which counts where a capital stands within one."""
    right = _same(in_words)(gold, answer)
    gold, answer = written(gold), written(answer)
    if right and _has_inner_capital(answer) and LETTERS.match(gold):
        return gold == answer
    blanks = BLANKS.sub("", answer)
    return True if right is None and LETTERS.match(gold) and blanks == gold else right


def _same_doubt(gold: str, answer: str) -> bool | None:
    """Refuses words beside an answer that say something else: `5 or more` and "not 5" are not 5."""
    return False if bool(HEDGE.search(gold)) != bool(HEDGE.search(answer)) else None


def _same_time(gold: str, answer: str) -> bool | None:
    """Compares times of day, with a half or of twenty-four hours. Two that are other times may be
    one ratio, where the ground truth is written as ratios are: in lowest terms."""
    want, have = clock(gold), clock(answer)
    if want is None and have is None:
        return None
    want, have = want or clock(gold, beside=True), have or clock(answer, beside=True)
    if want is None or have is None:
        return None
    if want.is_sure and have.is_sure:
        right = (want.hour_of_day, want.minute) == (have.hour_of_day, have.minute)
    else:
        right = want[:2] == have[:2] and want.half in ("", have.half)
    return None if not right and want.is_ratio and not have.half else right


def _same_date(gold: str, answer: str) -> bool | None:
    want, unsure = date(gold), unsure_date(gold)
    if unsure is not None:
        return unsure == unsure_date(answer)
    return None if want is None else want == date(answer)


def _same_base(gold: str, answer: str) -> bool | None:
    """Compares digits with their base; a number without one is in base ten."""
    want, have = based(gold), based(answer)
    if want is None and have is None:
        return None
    if have is None:
        return False  # whatever else it is, it names no base
    if want is None:
        return False if plain(gold) is not None else None
    return want == have


def _same_ratio(gold: str, answer: str) -> bool | None:
    """Compares ratios, `2:4` and `1:2`, part by part, and what an answer says that they equal."""
    want, have = _ratios(gold)[-1:], _ratios(answer)
    if not want or not have or None in (want[0], have[-1]):
        return None
    return {*want} == {*have} - {None}


def _ratios(text: str) -> list[tuple[Fraction, ...] | None]:
    """Returns each side of an equation as a ratio that begins with 1; None for any other side."""
    sides = []
    for side in text.strip("$ ").split("="):
        numbers = [plain(part.strip()) for part in side.split(":")]
        known = [number / numbers[0] for number in numbers if number is not None and numbers[0]]
        sides.append(tuple(known) if len(known) == len(numbers) > 1 else None)
    return sides


def _same_choice(gold: str, answer: str) -> bool | None:
    want, have = choice(gold, is_truth=True), choice(answer)
    if want is not None and have is None and choice(answer, is_truth=True) is not None:
        return _words(gold) == _words(answer)  # else the words behind a letter take it back
    if want is None or have is None:
        return None
    if len(gold.strip()) == len(answer.strip()) == 1:  # b is not B, but (b) chooses B
        return want == have
    return want.casefold() == have.casefold()


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", one_line(WRAPPING.sub(r"\1", text)).casefold())


def _same_cases(gold: str, answer: str, rules: Rules) -> bool | None:
    """Compares functions that are defined case by case; None where one of them is none. Words
    alone, as against a relation, say that no other condition holds."""
    want, have = lists.cases(gold), lists.cases(answer)
    if not want or not have:
        return None

    from tfgrpo.domains.mathematics.expressions import where

    def same(one: lists.Case, other: lists.Case) -> bool:
        if compare(one.value, other.value, rules).reward != 1.0:
            return False
        if not one.condition and not other.condition:
            return one.words == other.words
        if one.condition and compare(one.condition, other.condition, rules).reward == 1.0:
            return True
        there, here = (
            where(case.condition, (each.condition for each in rows))
            for case, rows in ((one, want), (other, have))
        )
        return there is not None and there == here

    return lists.matched(want, have, same)


def _solutions(gold: str, answer: str, rules: Rules) -> Verdict | None:
    """Compares the solutions of a system, each with its own values; None where neither is one.
    Points, `(5, 2), (7, 2)`, are solutions in the order in which the unknowns are named. Groups
    without names, `1, 2; 3, 4`, are compared with groups. A list without names is in the order in
    which the ground truth names its unknowns."""

    def right(gold: str, answer: str) -> bool:
        return compare(gold, answer, rules).reward == 1.0

    want, have = lists.system(gold), lists.system(answer)
    values = lists.named_values(gold) if "=" not in answer else []
    listed = lists.elements(answer.removeprefix("\\{").removesuffix("\\}")) if values else []
    if values and len(values) == len(listed):
        same = all(map(right, values, listed))
    elif want and have and set(want[0]) == set(have[0]):
        same = lists.matched(want, have, lambda a, b: all(right(a[name], b[name]) for name in a))
    elif want or have:
        gold_points = lists.tuples(want) if want else gold
        answer_points = lists.tuples(have) if have else answer
        return _by_sympy(gold_points, answer_points, rules)
    elif lists.groups(gold) and lists.groups(answer):
        same = lists.matched(lists.groups(gold), lists.groups(answer), right)
    else:
        return None
    return _verdict("solutions", same, gold, answer)


def _as_often(texts: tuple[str, str], sets: tuple[Any, Any], rules: Rules) -> bool:
    """Whether two lists hold each value as often. Only what a set has lost is looked at, and in
    braces nothing is lost."""
    from tfgrpo.domains.mathematics.expressions import lost

    listed = [lists.elements(parsing.both_signs(lists.with_commas(text))) for text in texts]
    braced = any(len(parts) == 1 and parts[0].startswith("\\{") for parts in listed)
    if braced or not any(lost(each, len(parts)) for each, parts in zip(sets, listed, strict=True)):
        return True
    want, have = listed
    return lists.matched(want, have, lambda a, b: compare(a, b, rules).reward == 1.0)


def parsed(text: str) -> Any | None:
    """Returns the expression that a text is, its lists joined by commas, without its unit."""
    return parsing.parse(units.split(lists.with_commas(text)).text)


def _by_sympy(gold: str, answer: str, rules: Rules) -> Verdict:
    from tfgrpo.domains.mathematics import (
        expressions,  # SymPy takes a second to load
    )

    if parsing.too_large(answer) != parsing.too_large(gold):
        return Verdict(0.0, one_line(answer), f"number: {differs(answer, gold)}")
    want = parsed(gold)
    if want is None:
        return Verdict(None, answer, f"unverifiable: cannot parse the ground truth {gold!r}")
    have = parsed(answer)
    if have is None:
        return Verdict(0.0, in_words(answer) or answer, f"unread: {differs(answer, gold)}")
    factor = unit_factor(units.split(gold).units, units.split(answer).units, rules)
    if factor is None:
        return Verdict(0.0, one_line(answer), f"unit: {differs(answer, gold)}")
    if factor != 1:
        have = expressions.scaled(have, factor)
    right = expressions.same_region(gold, answer)
    rule = "set" if right is not None else "formula"
    if right is None:
        texts = (gold, answer)
        right = not expressions.one_is_relation(texts, want, have)
        right = right and expressions.same(want, have, texts, rules)
        right = right and _as_often(texts, (want, have), rules)
    return _verdict(rule, right, gold, answer)
