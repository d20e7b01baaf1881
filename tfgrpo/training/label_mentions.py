"""Where a text names a shared answer, as a label is, in any writing.

Labels are read as the domain of labels reads them: case, `_`, `-` and spaces do not tell them
apart. `C` is not named by `C++`, nor `transfer` by `failed_transfer`, nor 3 by 3.5; where a
script does not part its words, as Chinese, a label may stand anywhere.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from tfgrpo.data.problems import Problem
from tfgrpo.domains.choice import fold

QUOTATION = re.compile(r"[\"'`“”‘’„«»*]")
JOINT = r"[\s_\-‐-―]+"
NEGATED = re.compile(r"\b(?:not|nor|never|\w+nt|rather than|instead of)(?: an?| the| as)? $")
"""What stands before an answer that is not the right one."""
PARTED = "\u0590"
"""Before it are the scripts that part words by spaces: Latin, Greek, Cyrillic, Armenian."""


def right_answers(problem: Problem) -> tuple[str, ...]:
    """Returns the answers of a problem that are right; none where they are unknown."""
    return tuple(answer for answer in problem.ground_truths if answer.strip())


def mentions(text: str, answer: str) -> bool:
    """Returns whether a text names a shared answer, be it as one that is not right."""
    text = _plain(text)
    return any(True for _ in _places(text, answer))


def tells(text: str, answer: str) -> bool:
    """Returns whether a text gives a shared answer, and not only as one that is not right."""
    text = _plain(text)
    return any(not NEGATED.search(text[: match.start()]) for match in _places(text, answer))


def denies(text: str, answer: str) -> bool:
    """Returns whether a text says of a shared answer that it is not right."""
    text = _plain(text)
    return any(NEGATED.search(text[: match.start()]) for match in _places(text, answer))


def is_only(text: str, answer: str) -> bool:
    """Returns whether a text is a shared answer and no more."""
    return fold(_plain(text).rstrip(".!?。 ")) == fold(_plain(answer).rstrip(".!?。 "))


def replace_answer(text: str, answer: str, word: str) -> str:
    """Returns a text, in lower case, with a word in each place where it names a shared answer."""
    text = _plain(text)
    for match in reversed(list(_places(text, answer))):
        text = f"{text[: match.start()]}{word}{text[match.end() :]}"
    return text


def _plain(text: str) -> str:
    return QUOTATION.sub("", unicodedata.normalize("NFKC", text)).casefold()


def _places(text: str, answer: str) -> Iterator[re.Match[str]]:
    """Yields where a plain text names an answer."""
    pieces = fold(_plain(answer)).split() or _plain(answer).split()  # a label may be a dash
    if pieces:
        for match in re.finditer(JOINT.join(map(re.escape, pieces)), text):
            start, end = match.span()
            before = _is_joined(text[:start][::-1], text[start])
            if not before and not _is_joined(text[end:], text[end - 1]):
                yield match


def _is_joined(outside: str, edge: str) -> bool:
    """Returns whether what begins at an edge of a place, read away from it, is the same word."""
    if not (_parts_words(edge) and outside):
        return False
    if _parts_words(outside[0]):
        return True
    if len(outside) < 2 or not _parts_words(outside[1]):
        return False
    both_digits = edge.isdigit() and outside[1].isdigit()
    return outside[0] in "_-‐‑" or (both_digits and outside[0] in ".,")


def _parts_words(character: str) -> bool:
    return (character.isalnum() and character < PARTED) or character in "+#"
