"""The templates and what they can say: every text is escaped, and what would turn a line round
or command a terminal is made visible; what is unknown is a dash and never a zero.

Templates print texts and numbers. Anything else is an error of the template and no page.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.runtime import Undefined
from markupsafe import Markup, escape

from tfgrpo import wording
from tfgrpo.store.history.word_diff import Piece, pieces
from tfgrpo.terminal_safe import shown
from tfgrpo.ui import charts

TEMPLATES = Path(__file__).parent / "templates"
UNKNOWN = "–"
FLAG = re.compile(r"(?<![\w-])--\w")
LONG = 2_000
"""Characters of a text that a page shows before it is cut."""


class Unprintable(TypeError):
    """A template prints what is neither a text nor a number."""


class Templates(Environment):
    """Templates whose records have the fields that they declare: a named tuple's own, a mapping's
    keys before its methods."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Returns a field of a value; undefined where it declares none of that name."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        if isinstance(obj, tuple) and hasattr(obj, "_fields") and hasattr(tuple, attribute):
            return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)


@cache
def environment() -> Environment:
    """Returns the templates of the package, with their filters: compiled once in a process."""
    templates = Templates(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_final,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters = (
        *(wording.age, wording.when, wording.iso, wording.money, wording.span, wording.typed),
        *(count, signed, decimal, percent, milliseconds, cut, short, in_words, own, unseen, chance),
        for_a_page,
    )
    templates.filters |= {one.__name__: one for one in filters}
    templates.filters |= {"pieces": compared, "share": wording.percent}
    templates.globals |= {
        "plural": wording.plural,
        "signs": {"ADD": "+", "MODIFY": "~", "DELETE": "−", "KEEP": "=", "MOVE": "↕"},
        "whisker": whisker,
    }
    return templates


def _final(value: object) -> object:
    """Returns what is printed of a value. Raises Unprintable for what is no text and no number."""
    if value is None:
        return UNKNOWN
    if isinstance(value, Markup | Undefined):  # the latter raises an error of its own
        return value
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unprintable(f"a template prints a {type(value).__name__}")
    return value if math.isfinite(value) else UNKNOWN


def own(value: object) -> Markup:
    """Returns what a control of a form holds: the text itself, for what is sent back must be what
    it was. Nothing stands for what is unknown; a line break at the beginning is kept."""
    if value is None:
        return Markup()
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Unprintable(f"a form holds a {type(value).__name__}")
    text = str(value)
    return Markup("\n" * text.startswith("\n")) + escape(text)


def unseen(text: str) -> str:
    """Returns which characters of a text are not seen as they are, such as `U+001B, U+202E`."""
    letters = sorted({letter for letter in text if shown(letter) != letter})
    return ", ".join(f"U+{ord(letter):04X}" for letter in letters)


def in_words(value: object) -> str:
    """Returns a value of settings or of a verdict in words: `yes`, `a, b`, `prompt 1, cached 2`;
    what is unknown in it is left out. Raises Unprintable for what is no JSON."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(_final(value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(one)}" for key, one in value.items() if one is not None)
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return ", ".join(map(in_words, value))
    raise Unprintable(f"a template tells a {type(value).__name__}")


def for_a_page(hint: str | None) -> str:
    """Returns the parts of an error's hint that make sense on a page: none names a flag, and a
    command is said to be for a terminal."""
    words = "; ".join(part for part in (hint or "").split("; ") if not FLAG.search(part))
    return f"In a terminal: {words}" if "`tfgrpo" in words else words


def count(value: float | None) -> str:
    """Returns a whole number with its thousands apart; a dash for what is unknown."""
    return UNKNOWN if value is None else f"{value:,.0f}".replace(",", "\u202f")


def decimal(value: float | None, digits: int = 3) -> str:
    """Returns a number with so many digits after its point; a dash for what is unknown."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def chance(p: float) -> str:
    """Returns a p-value as people write it, which is never zero: `p < 0.001`, `p = 0.034`."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def signed(value: float | None, digits: int = 3) -> str:
    """Returns a difference with its sign; a dash for what is unknown."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:+.{digits}f}".replace("-", "−")


def short(value: float | None) -> str:
    """Returns a count in few characters, such as `812` or `3.4 k`; a dash for what is unknown."""
    return UNKNOWN if value is None else charts.short(value)


def percent(value: float | None, digits: int = 0) -> str:
    """Returns a share in percent; a dash for what is unknown."""
    return UNKNOWN if value is None else f"{100 * value:.{digits}f} %"


def milliseconds(microseconds: float | None) -> str:
    """Returns a time in milliseconds; a dash for what is unknown."""
    return UNKNOWN if microseconds is None else f"{microseconds / 1000:,.0f} ms"


def cut(text: str | None, most: int = LONG) -> str:
    """Returns the beginning of a text, and how long the whole is where that was cut."""
    if text is None:
        return UNKNOWN
    if len(text) <= most:
        return text
    return f"{text[:most]} … ({len(text):,} characters)"


def compared(before: str, after: str) -> Sequence[Piece]:
    """Returns the pieces of a word diff, each cut to what a page shows."""
    short_before, short_after = cut(before, 10 * LONG), cut(after, 10 * LONG)
    return [(kind, cut(text)) for kind, text in pieces(short_before, short_after)]


def whisker(low: float, middle: float, high: float) -> dict[str, float]:
    """Returns where an interval is drawn in a strip 100 wide, whose middle is 0. The strip reaches
    as far as the interval does, and 0.1 to either side at least."""
    reach = max(abs(low), abs(high), 0.1)
    if not math.isfinite(reach):
        return {"low": 0.0, "middle": 50.0, "high": 100.0}
    places = {"low": low, "middle": middle, "high": high}
    return {name: round(50 + 48 * value / reach, 2) for name, value in places.items()}
