"""Edits in the text of a JSON document that leave every other character as it is: values are
only looked up with their places, by the scanner of Python's own `json`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from json.decoder import JSONDecoder
from typing import Any, NamedTuple, TypeAlias

Edit: TypeAlias = tuple[int, int, str]
"""From where to where, and what stands there from now on."""

BLANKS = frozenset(" \t\n\r")
_scan: Callable[[str, int], tuple[Any, int]] = vars(JSONDecoder())["scan_once"]
_string: Callable[[str, int, bool], tuple[str, int]] = vars(json.decoder)["scanstring"]
_space = re.compile(r"[ \t\n\r]*").match
_half = re.compile("[\ud800-\udfff]").sub


class NotJson(ValueError):
    """A text that is not one JSON object."""


class RepeatedKey(ValueError):
    """A key that stands twice in one object, which two programs may read differently."""


class Value(NamedTuple):
    """A value of a document, and where it stands in the text."""

    value: Any
    start: int
    end: int


def document(text: str, keys: Collection[str]) -> dict[str, Value]:
    """An object's wanted members. Raises RepeatedKey, and NotJson for what is no object."""
    try:
        start = skip(text, 0)
        members, end = _members(text, start, keys)
        if skip(text, end) != len(text):
            raise NotJson("something follows the object")
    except (NotJson, RepeatedKey):
        raise
    except (IndexError, StopIteration, RecursionError, ValueError) as error:
        raise NotJson(str(error)) from None
    return members


def members(text: str, start: int, keys: Collection[str]) -> dict[str, Value]:
    """The wanted members of the object at `start` of a read document. Raises RepeatedKey."""
    return _members(text, start, keys)[0]


def items(text: str, start: int) -> Iterator[Value]:
    """Yields the items of the array that begins at `start` of a document that was read already."""
    at = skip(text, start + 1)
    while text[at] != "]":
        value, end = _scan(text, at)
        yield Value(value, at, end)
        at = skip(text, end)
        if text[at] == ",":
            at = skip(text, at + 1)


def edited(plain: bytes, text: str, edits: Iterable[Edit]) -> bytes:
    """`plain`, which is `text` in UTF-8, with these edits, none of which overlap. Only what
    stands before edits is encoded to find their places."""
    view = memoryview(plain)
    pieces: list[bytes | memoryview] = []
    at = done = 0  # in characters, and in bytes
    narrow = text.isascii()
    for start, end, new in sorted(edits):
        before = start - at if narrow else len(text[at:start].encode())
        pieces += [view[done : done + before], new.encode()]
        done += before + (end - start if narrow else len(text[start:end].encode()))
        at = end
    return b"".join([*pieces, view[done:]])


def escaped(text: str) -> str:
    """A text as it stands in a JSON string, half of a surrogate pair as an escape."""
    written = json.dumps(text, ensure_ascii=False)[1:-1]
    return _half(lambda half: f"\\u{ord(half[0]):04x}", written)


def _members(text: str, start: int, keys: Collection[str]) -> tuple[dict[str, Value], int]:
    members: dict[str, Value] = {}
    at = _after(text, start, "{")
    if text[at] == "}":
        return members, at + 1
    while True:
        if text[at] != '"':
            raise NotJson("a key is missing")
        key, at = _string(text, at + 1, True)
        start = _after(text, skip(text, at), ":")
        value, end = _scan(text, start)
        if key in keys:
            if key in members:
                raise RepeatedKey(key)
            members[key] = Value(value, start, end)
        at = skip(text, end)
        if text[at] == "}":
            return members, at + 1
        at = _after(text, at, ",")


def _after(text: str, at: int, mark: str) -> int:
    if text[at] != mark:
        raise NotJson(f"there is no {mark}")
    return skip(text, at + 1)


def skip(text: str, at: int) -> int:
    """Where the next thing that is no blank stands, from `at` on."""
    if text[at : at + 1] not in BLANKS:
        return at
    match = _space(text, at)
    assert match is not None
    return match.end()
