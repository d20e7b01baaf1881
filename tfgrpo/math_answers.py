"""Judging answers to math problems: extraction first, then comparison by math-verify.

What counts is the last `\\boxed{…}` or `<answer>…</answer>` of a response; a number that is
merely mentioned earns nothing. Numbers are compared as numbers, everything else by math-verify
(parsed to sympy, compared symbolically). Functions here may take seconds on hostile input and
run in worker processes (`verify.py`), which are killed when they do; math-verify's own
time-outs use signals and are switched off.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from tfgrpo.domain import Verdict

PLAIN = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?\Z|[+-]?\.\d+\Z")
TAG = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
WRAPPING = re.compile(r"\\(?:text|mathrm|textbf|mathbf)\s*\{([^{}]*)\}")
UNITS = (
    "euros? dollars? cents? pounds? yen percent degrees? units? km cm mm m kg g mg lb lbs oz"
    " litres? liters? ml miles? feet foot ft inch inches yards? meters? metres? hours? minutes?"
    " seconds? days? weeks? months? years? people persons? students? items? pieces? times ways"
    " points?"
)
UNIT = re.compile(rf"(?<=[\d\s])(?:{UNITS.replace(' ', '|')})(?:\^?[23]|\s*/\s*\w+)?$", re.I)
CLOCK = re.compile(r"\d{1,2}:\d{2}\Z")
GROUPS = re.compile(r"(?<=\d)(?:\\,|\\ |\\!|~|\s)(?=\d{3}(?!\d))")
LONGEST = 1000
"""A number of more digits than this is left to sympy, which is killed when it takes too long."""
WORDS = re.compile(r"[^\W\d_]{2,}(?:[ .,'-]+[^\W\d_]+)*\Z")


def judge(gold: str, response: str) -> Verdict:
    """Judges a response against the ground truth. May be slow; raises nothing."""
    found = extract(response)
    if found is None:
        return Verdict(0.0, None, "no \\boxed{} answer")
    if one_line(gold) == one_line(found):
        return Verdict(1.0, normal(gold), "equal")
    for kind in (plain, clock, in_words):
        want, have = kind(gold), kind(found)
        if want is not None and have is not None:
            right = want == have
            said = normal(gold) if right else str(have)
            return Verdict(float(right), said, "equal" if right else f"{found} is not {gold}")
    if in_words(gold) is not None or clock(gold) is not None:
        return Verdict(0.0, in_words(found) or found, f"{found} is not {gold}")
    try:
        return _by_sympy(gold, found)
    except Exception as error:  # sympy raises nearly anything; it is told, as unverifiable
        return Verdict(None, found, f"unverifiable: {type(error).__name__}: {error}"[:200])


def check_gold(gold: str) -> str | None:
    """Returns what is wrong with a ground truth, or None when answers can be compared with it."""
    if any(kind(gold) is not None for kind in (plain, clock, in_words)):
        return None
    try:
        return None if _parse(gold) else "it parses to nothing"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def extract(response: str) -> str | None:
    """Returns the content of the last answer tag or `\\boxed{}`, whichever stands last."""
    best: tuple[int, str] | None = None
    for match in TAG.finditer(response):
        best = (match.start(), match[1])
    start = max(response.rfind("\\boxed{"), response.rfind("\\boxed {"))
    if start >= 0 and (best is None or start > best[0]):
        body = _braced(response, response.index("{", start))
        if body is not None:
            best = (start, body)
    if best is None or not best[1].strip():
        return None
    inner = extract(best[1])  # <answer>\boxed{4}</answer>
    return inner if inner is not None else best[1].strip()


def plain(text: str) -> Fraction | None:
    """Returns the number that a text plainly is: `1,250`, `$40`, `12.50`, `40 euros`."""
    text = WRAPPING.sub(r"\1", text).replace("{,}", ",").replace("−", "-")
    text = GROUPS.sub("", text)
    for space in ("\\,", "\\!", "\\;", "\\ ", "~"):
        text = text.replace(space, " ")
    text = text.strip().strip("$€£ ").rstrip(".")
    text = UNIT.sub("", text).rstrip("%€$£ \\")
    if len(text) > LONGEST or not PLAIN.match(text):
        return None
    return Fraction(text.replace(",", ""))


def normal(gold: str) -> str:
    """Returns the form that all answers equal to a ground truth share, as one vote."""
    number = plain(gold)
    return str(number) if number is not None else in_words(gold) or one_line(gold)


def clock(text: str) -> str | None:
    """Returns a time of day, which sympy would read as a ratio."""
    text = text.strip().strip("$").strip()
    return text.lstrip("0") if CLOCK.match(text) else None


def one_line(text: str) -> str:
    """Returns a text with single blanks."""
    return " ".join(text.split())


def in_words(text: str) -> str | None:
    """Returns a text that is words and no formula, in the form in which words are compared.

    Two or more letters in a row would be read as a product of symbols: Paris as a·i·p·r·s.
    """
    bare = " ".join(WRAPPING.sub(r"\1", text).split()).rstrip(".")
    return bare.casefold() if WORDS.match(bare) else None


def _braced(text: str, start: int) -> str | None:
    """Returns what stands between the brace at `start` and the one that closes it."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return text[start + 1 : i]
    return None


def _parse(text: str) -> list[Any]:
    """Returns the expressions that a text may mean; none when it is no mathematics."""
    import logging

    from math_verify import parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that it has no time-out
    bare = text.strip().strip("$").strip()
    for form in (f"${bare}$", text):
        found = [part for part in parse(form, parsing_timeout=None) if not isinstance(part, str)]
        if found:
            return found
    return []


def _by_sympy(gold: str, found: str) -> Verdict:
    from math_verify import verify

    want, have = _parse(gold), _parse(found)
    if not want:
        return Verdict(None, found, f"unverifiable: cannot parse the ground truth {gold!r}")
    if not have:
        return Verdict(0.0, in_words(found) or found, f"{found} is not {gold}")
    if verify(want, have, timeout_seconds=None):
        return Verdict(1.0, normal(gold), "equal")
    return Verdict(0.0, in_words(found) or str(have[0]), f"{found} is not {gold}")
