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
from tfgrpo.extract import answers

PLAIN = re.compile(r"[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?\Z|[+-]?\.\d+\Z")
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
UNIT_TEXT = re.compile(
    r"(?<=[\d\s~,])\\(?:text|mathrm|mbox|textrm)\s*\{\s*([^\W\d_][^{}\d]*)\}\s*\.?\$?\Z"
)
NO_UNIT = re.compile(
    r"\b(?:hundred|[tmb]\w*illion|thousand|dozen|minus|plus|times|over|or|and|not|is|to)\b", re.I
)
"""Words after a number in `\\text{}` that are more than what is counted."""
SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
SCALE = re.compile(rf"\s+({'|'.join(SCALES)})\Z", re.I)
SPELLED = re.compile(
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen|twenty|thirty"
    r"|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|[mb]illion)\b",
    re.I,
)
CHOICE = re.compile(
    r"(?:(?:option|answer|choice)\s*:?\s*)?"
    r"(?:\(([A-J])\)(?!\s*[-+*/^=_])(?:\W.*)?|([A-J])(?:[.):](?:\s.*)?)?)\Z",
    re.IGNORECASE,
)
INTEGER = re.compile(r"-?\d{1,15}\Z", re.ASCII)
LISTED = re.compile(r"[()\[\],;]|\band\b|\\pm\b")
GLUED = re.compile(r"(\\q?quad)(?=[a-zA-Z])")
WORDS = re.compile(r"[^\W\d_]{2,}(?:[ .,'-]+[^\W\d_]+)*\Z")


def judge(gold: str, response: str) -> Verdict:
    """Judges a response against the ground truth. May be slow; raises nothing."""
    found = answers(response)
    if not found:
        return Verdict(0.0, None, "no \\boxed{} answer")
    gold = asked(gold)
    verdict = compare(gold, found[-1])
    if verdict.reward != 1.0 and len(found) > 1 and is_list(gold):
        listed = compare(gold, ", ".join(found))
        return listed if listed.reward == 1.0 else verdict
    return verdict


def at_once(gold: str, response: str) -> Verdict | None:
    """Returns what `judge` would, where both answers are whole numbers and nothing is in doubt.

    Takes microseconds on any input, so it may run on the event loop; None is for a worker.
    """
    start = response.rfind("\\boxed{")
    if start < 0 or not INTEGER.match(gold) or response.count("boxed") > 1 or "<" in response:
        return None
    found = response[start + 7 : response.find("}", start)]
    return compare(gold, found) if INTEGER.match(found) else None


def asked(gold: str) -> str:
    """Returns a ground truth as an answer: what its boxes hold, where it is a whole solution."""
    return ", ".join(answers(gold)) or gold


def compare(gold: str, found: str) -> Verdict:
    """Compares an answer with the ground truth. May be slow; raises nothing."""
    if written(gold) and written(gold) == written(found):
        return Verdict(1.0, normal(gold), "equal")
    for kind in (plain, clock, choice, in_words):
        want, have = kind(gold), kind(found)
        if want is not None and have is not None:
            right = want == have
            said = normal(gold) if right else str(have)
            return Verdict(float(right), said, "equal" if right else f"{found} is not {gold}")
    if hedged(gold) or hedged(found):
        return Verdict(0.0, written(found), f"{found} is not {gold}")
    if in_words(gold) is not None and SPELLED.search(gold) and plain(found) is not None:
        return Verdict(None, found, f"unverifiable: {gold!r} spells a number out")
    if in_words(gold) is not None or clock(gold) is not None:
        return Verdict(0.0, in_words(found) or found, f"{found} is not {gold}")
    try:
        return _by_sympy(gold, found)
    except Exception as error:  # sympy raises nearly anything; it is told, as unverifiable
        return Verdict(None, found, f"unverifiable: {type(error).__name__}: {error}"[:200])


def check_gold(gold: str) -> str | None:
    """Returns what is wrong with a ground truth, or None when answers can be compared with it."""
    gold = asked(gold)
    if any(kind(gold) is not None for kind in (plain, clock, choice, in_words)):
        return None
    try:
        return None if _parse(gold) else "it parses to nothing"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]


def plain(text: str) -> Fraction | None:
    """Returns the number that a text plainly is: `1,250`, `$40`, `12.50`, `40 euros`."""
    text = UNIT_TEXT.sub(_without_unit, text)
    text = WRAPPING.sub(r"\1", text).replace("{,}", ",").replace("−", "-")
    text = GROUPS.sub("", text)
    for space in ("\\,", "\\!", "\\;", "\\ ", "~"):
        text = text.replace(space, " ")
    text = text.strip().strip("$€£ ").rstrip(".")
    text = UNIT.sub("", text).rstrip("%€$£ \\")
    scale = SCALE.search(text)
    if scale is not None:
        text = text[: scale.start()]
    if len(text) > LONGEST or not PLAIN.match(text):
        return None
    number = Fraction(text.replace(",", ""))
    return number * SCALES[scale[1].casefold()] if scale is not None else number


def normal(gold: str) -> str:
    """Returns the form that all answers equal to a ground truth share, as one vote."""
    number = plain(gold)
    return str(number) if number is not None else in_words(gold) or one_line(gold)


def clock(text: str) -> str | None:
    """Returns a time of day, which sympy would read as a ratio."""
    text = text.strip().strip("$").strip()
    return text.lstrip("0") if CLOCK.match(text) else None


def choice(text: str) -> str | None:
    """Returns the letter that a text chooses: `C`, `(C)`, `\\textbf{(C) } 12`, `Option C`."""
    match = CHOICE.match(one_line(WRAPPING.sub(r"\1", text)).strip("$ "))
    return next(filter(None, match.groups())) if match else None


def is_list(gold: str) -> bool:
    """Whether several answers are asked for: a comma or an "and" outside of every bracket."""
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
    bare = " ".join(WRAPPING.sub(r"\1", text).split()).rstrip(".")
    return bare.casefold() if WORDS.match(bare) else None


def hedged(text: str) -> bool:
    """Whether words after a number say another number, which math-verify would read over."""
    match = UNIT_TEXT.search(text)
    return match is not None and NO_UNIT.search(match[1]) is not None


def _without_unit(match: re.Match[str]) -> str:
    """Returns nothing for a unit, and the words where they change the number."""
    return f" {match[1]}" if NO_UNIT.search(match[1]) else ""


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

    want, have = _parse(gold), _parse(found)
    if not want:
        return Verdict(None, found, f"unverifiable: cannot parse the ground truth {gold!r}")
    if not have:
        return Verdict(0.0, in_words(found) or found, f"{found} is not {gold}")
    if verify(want, have, allow_set_relation_comp=True, timeout_seconds=None):
        return Verdict(1.0, normal(gold), "equal")
    return Verdict(0.0, in_words(found) or str(have[0]), f"{found} is not {gold}")
