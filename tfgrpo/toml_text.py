"""TOML as we read and write it: a text of somebody else's becomes no line of its own in it."""

from __future__ import annotations

import datetime
import json
import math
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from tfgrpo.store.errors import HALF_A_CHARACTER, SettingsError
from tfgrpo.terminal_safe import COMMANDING, shown


class Table(dict[str, Any]):
    """A table of a file. `place` is what an error about it begins with: the file and its name."""

    place = ""


def place_of(table: object) -> str:
    """Where a table stands; nothing for settings that are of no file."""
    return getattr(table, "place", "")


def parsed(content: bytes) -> dict[str, Any]:
    """What TOML in UTF-8 says, with or without a byte-order mark. Raises ValueError."""
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except RecursionError as error:
        raise ValueError(f"it is nested too deep: {error}") from error


def toml_value(value: object) -> str:
    """A value as TOML, which reads as this value again: every control character of a text is
    escaped. Raises SettingsError for a text that is not Unicode, and for None."""
    if isinstance(value, Mapping):
        pairs = (f"{toml_key(name)} = {toml_value(one)}" for name, one in value.items())
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if value is None:
        raise SettingsError("TOML has no null", hint="leave the setting out")
    text = json.dumps(value, ensure_ascii=False, default=str)
    if re.search("[\ud800-\udfff]", text):
        raise SettingsError(f"{value!r} is not valid Unicode", hint=HALF_A_CHARACTER)
    return re.sub(COMMANDING, lambda match: f"\\u{ord(match[0]):04x}", text)


def toml_key(name: str) -> str:
    """A key, or the name of a table, as TOML: in quotes where it needs them."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_comment(text: str) -> str:
    """A text as a comment of TOML, in one line."""
    return f"# {shown(' '.join(text.split()))}"
