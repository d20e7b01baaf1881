"""Texts of others as a terminal may have them: what would command it is shown, not done. Lines are
as wide as the cells that their letters take: two each in Chinese, none for an accent put on top."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache

COMMANDING = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
"""Characters that command a terminal, turn a line round or cannot be written: a pattern, compiled
when a text has one. The marks of direction U+061C, U+200E and U+200F are none: they are part of
ordinary Arabic and Hebrew, and turn nothing but themselves."""
UNSEEN = (
    "(?:[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
    "|(?<=[A-Za-z\u061c\u200e\u200f])[\u061c\u200e\u200f](?=[A-Za-z\u061c\u200e\u200f]))"
)
"""Characters that nobody sees and a model reads: those that Unicode calls default ignorable, and
annotations; marks of direction among Latin letters, which have one already, and in a row."""
JOINER = "\u200d"
_SCRIPTS = "[\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufefc]"
_SYMBOLS = "[\u00a9\u00ae\u203c-\u329f\U0001f000-\U0001faff]"
_HAN = "[\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
NEEDED = (
    "(?<=\U0001f3f4)[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f"  # flags of regions
    f"|(?<={_SCRIPTS})[\u200c\u200d](?![\u200c\u200d])"
    f"|(?<={_SYMBOLS})[\ufe00\ufe0e\ufe0f](?:\u200d(?={_SYMBOLS}))?"
    f"|(?<={_SYMBOLS})\u200d(?={_SYMBOLS})"
    "|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    "|(?<=[\u1820-\u18aa])[\u180b-\u180d\u180f]"
    f"|(?<={_HAN})[\ufe00-\ufe02\U000e0100-\U000e01ef]"
)
"""What scripts, emoji and variants of characters need of them."""


def shown(text: str) -> str:
    """A text without what would command a terminal or be seen by nobody."""
    return text if _is_plain(text) else re.sub(_PATTERN, _escaped, text)


def shown_in_json(text: str) -> str:
    """JSON that says the same without what would command a terminal or be unseen."""
    return text if _is_plain(text) else re.sub(_PATTERN, _escaped_in_json, text)


def unseen(text: str) -> list[str]:
    """The characters of a text that nobody sees and no script needs, in order."""
    if _is_plain(text):
        return []
    pattern = f"(?P<needed>{NEEDED})|{UNSEEN}|[\u202a-\u202e\u2066-\u2069]"
    return [match[0] for match in re.finditer(pattern, text) if not match["needed"]]


def unseen_in_words(text: str) -> str | None:
    """What to say of unseen characters: how many, and what tags spell; None without any."""
    hidden = unseen(text)
    if not hidden:
        return None
    tags = "".join(chr(ord(c) - 0xE0000) for c in hidden if 0xE0020 <= ord(c) < 0xE007F)
    count = f"{len(hidden)} invisible character{'s' if len(hidden) > 1 else ''}"
    return f"{count}, of which tags spell {tags[:200]!r}" if tags else count


def cells(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return len(text) if text.isascii() else sum(map(_cell, text))


def fitting(text: str, at: int, room: int) -> int:
    """How far a text goes from a place on that has room for so many cells."""
    if text.isascii():
        return min(at + max(room, 0), len(text))
    end, size = at, len(text)
    while end < size and (room := room - _cell(text[end])) >= 0:
        end += 1
    return end


def break_before(text: str, at: int, end: int) -> int:
    """Where a text that stands from a place on may go on in the next line, `end` at the latest: at
    a space, or beside a wide character where a space is far; -1 for nowhere."""
    space = text.rfind(" ", at, end + 1) if end > at else -1
    if text.isascii() or space > (at + end) // 2:
        return space
    for place in range(end, max(at, space), -1):
        before, after = text[place - 1], _cell(text[place])
        if before != JOINER and after and 2 in (after, _cell(before)):
            return place
    return space


def safe_row(row: Sequence[str]) -> list[str]:
    """The cells of a table's row, each as one line that commands nothing."""
    return [shown(" ".join(cell.splitlines())) for cell in row]


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of as many cells each as lines, whose columns are as wide as their widest cell."""
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    padded = (
        [one + " " * (w - cells(one)) for one, w in zip(row, widths, strict=True)] for row in rows
    )
    return ["  ".join(row).rstrip() for row in padded]


@cache
def _cell(character: str) -> int:
    from unicodedata import category, east_asian_width

    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def complain(line: str) -> None:
    """Prints a line to standard error, for a server that has no terminal of its own: at once, so
    that the lines of several processes do not run together."""
    sys.stderr.write(f"{shown(line)}\n")
    sys.stderr.flush()


_PATTERN = f"(?P<needed>{NEEDED})|{COMMANDING}|{UNSEEN}"


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _escaped(match: re.Match[str]) -> str:
    if match["needed"]:
        return match[0]
    code = ord(match[0])
    return (
        f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
    )


def _escaped_in_json(match: re.Match[str]) -> str:
    if match["needed"]:
        return match[0]
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
