"""Judging answers to math problems: extraction first, then comparison by math-verify.

What counts is the last `\\boxed{…}` or `<answer>…</answer>` of a response; a number that is
merely mentioned earns nothing. Numbers are compared as numbers (`quantities.py`), lists whatever
joins them (`lists.py`), everything else by math-verify (parsed to sympy, compared symbolically).
Functions here may take seconds on hostile input and run in worker processes (`verify.py`), which
are killed when they do; math-verify's own time-outs use signals and are switched off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tfgrpo.domains.base import Verdict
from tfgrpo.domains.mathematics import lists
from tfgrpo.domains.mathematics.extract import answers, listed
from tfgrpo.domains.mathematics.notation import plainly
from tfgrpo.domains.mathematics.quantities import WRAPPING, based, clock, date, equal, hedged, plain

T = TypeVar("T")
SPELLED = re.compile(
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty"
    r"|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|[mb]illion)\b",
    re.I,
)
CHOICE = re.compile(
    r"(?:(?:option|answer|choice)\s*:?\s*)?"
    r"(?:\(([A-J])\)(?!\s*(?:[-+*/^=_]|(?:[,;]|and\b|or\b)\s*(?:and\b|or\b)?\s*\(?[A-J]\b))"
    r"(?:\W.*)?|([A-J])(?:[.):](?:\s.*)?)?)\Z",
    re.IGNORECASE,
)
SHOWN = 200
INTEGER = re.compile(r"-?\d{1,15}\Z", re.ASCII)
LISTED = re.compile(r"[()\[\],;]|\b(?:and|or)\b|\\pm\b")
GLUED = re.compile(r"(\\q?quad)(?=[a-zA-Z])")
WORDS = re.compile(r"[^\W\d_]{2,}(?:[ .,'-]+[^\W\d_]+)*\Z")
SENTENCE = re.compile(r"[^\W\d_]+(?:[ .,'-]+[^\W\d_]+)+\Z")
LONG = re.compile(r"[^\W\d_]{3,}")
READ = re.compile(
    r"and|or|sinh?|cosh?|tanh?|cot|sec|csc|arc(?:sin|cos|tan)|log|exp|sqrt|mod|gcd|lcm|max|min|det"
    r"|inf(?:ty|inity)?|alpha|beta|gamma|delta|theta|lambda|sigma|omega|phi",
    re.I,
)
"""Words that a formula may be written in."""


def judge(gold: str, response: str) -> Verdict:
    """Judges a response against the ground truth. May be slow; raises nothing."""
    found = answers(response)
    if not found:
        return Verdict(0.0, None, "no \\boxed{} answer")
    gold = asked(gold)
    verdict = compare(gold, found[-1])
    if verdict.reward != 1.0 and len(found) > 1 and is_list(gold):
        whole = compare(gold, listed(response))
        return whole if whole.reward == 1.0 else verdict
    return verdict


def at_once(gold: str, response: str) -> Verdict | None:
    """Returns what `judge` would, where both answers are whole numbers and nothing is in doubt.

    Takes microseconds on any input, so it may run on the event loop; None is for a worker.
    """
    start = response.rfind("\\boxed{")
    if start < 0 or not INTEGER.match(gold) or response.count("boxed") > 1:
        return None
    if "<" in response or "fbox" in response or "think]" in response.lower():
        return None
    found = response[start + 7 : response.find("}", start)]
    if not INTEGER.match(found):
        return None
    if int(gold) == int(found):
        return Verdict(1.0, str(int(gold)), "equal")
    return Verdict(0.0, str(int(found)), differs(found, gold))


def asked(gold: str) -> str:
    """Returns a ground truth as an answer: what its boxes hold, where it is a whole solution."""
    return listed(gold) if answers(gold) else gold


def compare(gold: str, found: str) -> Verdict:
    """Compares an answer with the ground truth. May be slow; raises nothing."""
    if written(gold) and written(gold) == written(found):
        return Verdict(1.0, normal(gold), "equal")
    gold, found = plainly(gold), plainly(found)
    for same in (
        equal,
        _same_time,
        _same(date),
        _same(based),
        _same_choice,
        _same(choices),
        _same(in_words),
    ):
        right = same(gold, found)
        if right is not None:
            said = normal(gold) if right else normal(found)
            return Verdict(float(right), said, "equal" if right else differs(found, gold))
    if hedged(gold, found):
        return Verdict(0.0, written(found), differs(found, gold))
    if in_words(gold) is not None and SPELLED.search(gold) and plain(found) is not None:
        return Verdict(None, found, f"unverifiable: {gold!r} spells a number out")
    literal = (in_words(gold), clock(gold), date(gold), date(found), sentence(found))
    if any(kind is not None for kind in literal):
        return Verdict(0.0, in_words(found) or found, differs(found, gold))
    try:
        return _solutions(gold, found) or _by_sympy(gold, found)
    except Exception as error:  # sympy raises nearly anything; it is told, as unverifiable
        return Verdict(None, found, f"unverifiable: {type(error).__name__}: {error}"[:200])


def check_gold(gold: str) -> str | None:
    """Returns what is wrong with a ground truth, or None when answers can be compared with it."""
    gold = plainly(asked(gold))
    if any(kind(gold) is not None for kind in (plain, clock, date, choice, in_words)):
        return None
    try:
        return None if _parse(gold) else "it parses to nothing"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def normal(gold: str) -> str:
    """Returns the form that all answers equal to a ground truth share, as one vote."""
    gold = plainly(gold)
    number, time, letter = plain(gold), clock(gold), choice(gold)
    if number is not None:
        return str(number)
    if time is not None:
        return f"{time.hour}:{time.minute}{time.half}"
    if letter is not None:
        return letter if gold == letter else letter.upper()
    return in_words(gold) or one_line(gold)


def choice(text: str) -> str | None:
    """Returns the letter that a text chooses: `C`, `(C)`, `\\textbf{(C) } 12`, `Option C`."""
    match = CHOICE.match(one_line(WRAPPING.sub(r"\1", text)).strip("$ "))
    return next(filter(None, match.groups())) if match else None


def choices(text: str) -> tuple[str, ...] | None:
    """Returns the letters of several choices in order: `A, C`, `(A) and (C)`."""
    found = [choice(part) for _, part in lists.parts(text)]
    if len(found) < 2 or None in found:
        return None
    letters = sorted(filter(None, found))
    return tuple(letter.upper() if "(" in text else letter for letter in letters)


def is_list(gold: str) -> bool:
    """Whether several answers are asked for: a joint outside of every bracket."""
    if plain(gold) is not None:
        return False
    depth = 0
    for part in LISTED.findall(gold):
        depth += (part in "([") - (part in ")]")
        if depth <= 0 and part not in "()[]":
            return True
    return False


def written(text: str) -> str:
    """Returns a text without what does not matter when two are compared letter by letter."""
    return one_line(WRAPPING.sub(r"\1", text)).strip("$ .").replace("\\dfrac", "\\frac")


def one_line(text: str) -> str:
    """Returns a text with single blanks."""
    return " ".join(text.split())


def in_words(text: str) -> str | None:
    """Returns a text that is words and no formula, in the form in which words are compared.

    Two or more letters in a row would be read as a product of symbols: Paris as a·i·p·r·s.
    """
    bare = " ".join(WRAPPING.sub(r"\1", text).split()).rstrip(".!")
    return bare.casefold() if WORDS.match(bare) else None


def differs(found: str, gold: str) -> str:
    """Returns in words that an answer is not the ground truth, in a line that can be read."""
    shown = (text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…" for text in (found, gold))
    return " is not ".join(shown)


def sentence(text: str) -> str | None:
    """Returns an answer of several words, of which math-verify would read a letter."""
    bare = one_line(WRAPPING.sub(r"\1", text)).rstrip(".!")
    words = LONG.findall(bare) if SENTENCE.match(bare) else []
    return bare if any(not READ.fullmatch(word) for word in words) else None


def _same(kind: Callable[[str], Any]) -> Callable[[str, str], bool | None]:
    """Returns what says whether two texts are the same of a kind; None where one is not of it."""

    def compared(gold: str, found: str) -> bool | None:
        want, have = kind(gold), kind(found)
        return None if want is None or have is None else want == have

    return compared


def _same_time(gold: str, found: str) -> bool | None:
    want, have = clock(gold), clock(found)
    if want is None or have is None:
        return None
    return want[:2] == have[:2] and want.half in ("", have.half)


def _same_choice(gold: str, found: str) -> bool | None:
    want, have = choice(gold), choice(found)
    if want is None or have is None:
        return None
    if len(gold.strip()) == len(found.strip()) == 1:  # b is not B, but (b) chooses B
        return want == have
    return want.casefold() == have.casefold()


def _solutions(gold: str, found: str) -> Verdict | None:
    """Compares the solutions of a system, each with its own values; None where neither is one.

    Points, `(5, 2), (7, 2)`, are solutions in the order in which the unknowns are named. Groups
    without names, `1, 2; 3, 4`, are compared with groups.
    """
    want, have = lists.system(gold), lists.system(found)
    if want and have and set(want[0]) == set(have[0]):
        right = _matched(want, have, lambda a, b: all(_right(a[name], b[name]) for name in a))
    elif want or have:
        points = (lists.tuples(s) if s else text for s, text in ((want, gold), (have, found)))
        return _by_sympy(*points)
    elif lists.groups(gold) and lists.groups(found):
        right = _matched(lists.groups(gold), lists.groups(found), _right)
    else:
        return None
    if right:
        return Verdict(1.0, normal(gold), "equal")
    return Verdict(0.0, one_line(found), differs(found, gold))


def _right(gold: str, found: str) -> bool:
    return compare(gold, found).reward == 1.0


def _matched(want: Sequence[T], have: Sequence[T], same: Callable[[T, T], bool]) -> bool:
    """Whether each that is wanted is the same as one that is there, and none is left over."""
    left = list(have)
    for one in want:
        match = next((index for index, other in enumerate(left) if same(one, other)), None)
        if match is None:
            return False
        del left[match]
    return not left


def _both_signs(text: str) -> str:
    """Returns a list with `a ± b` in it written out as two answers, which math-verify cannot."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    signs = ("+", "-")
    return ",".join(
        part.replace("\\pm", sign)
        for part in parts
        for sign in (signs if "\\pm" in part else signs[:1])
    )


def _parse(text: str) -> list[Any]:
    """Returns the expressions that a text may mean; none when it is no mathematics."""
    import logging

    from math_verify import parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no time-out
    text = GLUED.sub(r"\1 ", text)
    bare = text.strip().strip("$").strip()
    forms = [f"${bare}$", text]
    if "\\pm" in bare:
        forms.append(f"${_both_signs(bare)}$")
    for form in forms:
        found = [part for part in parse(form, parsing_timeout=None) if not isinstance(part, str)]
        if found:
            return found
    return []


def _by_sympy(gold: str, found: str) -> Verdict:
    from math_verify import verify

    want, have = _parse(lists.with_commas(gold)), _parse(lists.with_commas(found))
    if not want:
        return Verdict(None, found, f"unverifiable: cannot parse the ground truth {gold!r}")
    if not have:
        return Verdict(0.0, in_words(found) or found, differs(found, gold))
    right = _same_region(gold, found)
    if right is None:
        right = verify(want, have, allow_set_relation_comp=True, timeout_seconds=None)
    if right:
        return Verdict(1.0, normal(gold), "equal")
    return Verdict(0.0, in_words(found) or str(have[0]), differs(found, gold))


def _same_region(gold: str, found: str) -> bool | None:
    """Whether two texts describe one set of numbers, as inequalities or as intervals.

    None where one of them describes none.
    """
    if not (lists.RELATION.search(gold) or lists.RELATION.search(found)):
        return None
    want = lists.region(gold, _parse)
    have = lists.region(found, _parse) if want is not None else None
    if want is None or have is None:
        return None
    if len(want[1] | have[1]) > 1:
        return False
    within = want[0].is_subset(have[0]), have[0].is_subset(want[0])  # None where it cannot be told
    return False if False in within else None if None in within else True
