"""Files of other programs with one value of them replaced by garbage, at every place in turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

DEPTH = 900
"""Lists in lists that `json` still reads, and a recursion of ours may not."""
MARK = "a-deep-list"
DEEP: Any = []
for _ in range(DEPTH):
    DEEP = [DEEP]
GARBAGE: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, float("inf"), float("nan"), 10**400, -(10**30), "", "x", "\ud800"),
    *("a" * 3_000, "\x00", [], [[]], [None], ["x"], {}, {"": None}, {"x": {"x": []}}, DEEP),
)
EVIL_KEYS = ("", "\x00", "x" * 300, "\ud800", "__class__", "0")


class Shape(NamedTuple):
    """A file that is right: its rows, and how it is written."""

    rows: tuple[Any, ...]
    kind: str = "json"

    def written(self, rows: tuple[Any, ...]) -> bytes:
        """The bytes of a file with these rows."""
        if self.kind == "yaml":
            return _yaml(rows[0])
        if self.kind == "markdown":
            return b"---\n" + _yaml(rows[0]) + b"---\n- Round up.\n"
        lines = [json.dumps(row) for row in rows]
        return "\n".join(lines).encode()


def _yaml(value: Any) -> bytes:
    text = yaml.safe_dump(_marked(value)).encode("utf-8", "replace")
    return text.replace(MARK.encode(), b"[" * DEPTH + b"]" * DEPTH)


def _marked(value: Any) -> Any:
    """A value with a mark for what is too deep for `yaml` to write."""
    if value is DEEP:
        return MARK
    if isinstance(value, dict):
        return {key: _marked(held) for key, held in value.items()}
    return [_marked(held) for held in value] if isinstance(value, list) else value


def spoiled(shape: Shape) -> Iterator[tuple[str, bytes]]:
    """Yields (what was done, the file) for a right file with one value replaced, one key renamed,
    or one key gone, at every place of it."""
    for number, row in enumerate(shape.rows):
        for path, other in _changes(row):
            rows = (*shape.rows[:number], other, *shape.rows[number + 1 :])
            yield f"row {number}{path}", shape.written(rows)


def _changes(value: Any) -> Iterator[tuple[str, Any]]:
    for number, garbage in enumerate(GARBAGE):
        yield f" = garbage {number}", garbage
    if isinstance(value, dict):
        for key, held in value.items():
            rest = {other: one for other, one in value.items() if other != key}
            yield f".{key} gone", rest
            for evil in EVIL_KEYS:
                yield f".{key} as {evil[:9]!r}", {**rest, evil: held}
            for path, other in _changes(held):
                yield f".{key}{path}", {**value, key: other}
    if isinstance(value, list):
        for number, held in enumerate(value):
            for path, other in _changes(held):
                yield f"[{number}]{path}", [*value[:number], other, *value[number + 1 :]]
