"""Texts of others as a terminal may have them: what would command it is shown, not done."""

from __future__ import annotations

import re
import sys

COMMANDING = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
"""Characters that command a terminal, turn a line round or cannot be written: a pattern, compiled
when a text has one. The marks of direction U+061C, U+200E and U+200F are none: they are part of
ordinary Arabic and Hebrew, and turn nothing but themselves."""


def shown(text: str) -> str:
    """Returns a text without what would command a terminal: models may write anything."""
    return text if text.isprintable() else re.sub(COMMANDING, _escaped, text)


def shown_in_json(text: str) -> str:
    """Returns JSON that says the same without what would command a terminal."""
    return text if text.isprintable() else re.sub(COMMANDING, _escaped_in_json, text)


def complain(line: str) -> None:
    """Prints a line to standard error, for a server that has no terminal of its own."""
    print(shown(line), file=sys.stderr, flush=True)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _escaped_in_json(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"
