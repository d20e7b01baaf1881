"""A store as those see it who may not see what was asked and said in attempts and calls.

An example is a problem and an answer, so it is content, in whatever text of the history it stands:
in force, deleted, on a branch of candidates, in a message. It is taken out where the store is read,
so that no page, table or search has it. Nothing can be recorded through such a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from tfgrpo.rendering.experience_texts import ANSWERED, EXAMPLE, is_example
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.records import EventRow, RefMove, Shape, Version
from tfgrpo.store.sql.port import Port
from tfgrpo.store.store import Store

NOT_SHOWN = "[not shown]"
HIDDEN = f"{EXAMPLE}{NOT_SHOWN}{ANSWERED}{NOT_SHOWN}"
"""What stands for an example: an example still, so that pages treat it as one."""
PARTS = ("names", "redactions", "counts", "storage", "records")
"""Parts of a port that are ports of their own."""
RECORDING = (
    *("append", "put_", "drop_", "open_lane", "blank", "replace", "rewrite", "rebuild", "writer"),
)
"""How the names of methods begin that record something."""


def opened(path: Path, *, content: bool) -> Store:
    """Returns the store at a path, without `content` as somebody sees it who may not see that.
    Raises StoreError."""
    store = Store.open(path)
    if content:
        return store
    port = cast("Port", _Part(store.port))
    return Store(port, store.location, author=store.author, now=store.now)


def hidden_text(text: str) -> str:
    """Returns an experience's text: what stands for it, if it is an example."""
    return HIDDEN if is_example(text) else text


def hidden_words(words: str) -> str:
    """Returns a message or a reason without the example that it ends with."""
    before, example, _ = words.partition(EXAMPLE)
    return f"{before}{example}{NOT_SHOWN}" if example else words


class _Part:
    """A port, or a part of one, whose answers have no examples."""

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        if name in PARTS:
            return _Part(value)
        if name.startswith(RECORDING):
            return _refuse
        if not callable(value):
            return value
        return lambda *args, **kwargs: _hidden(value(*args, **kwargs))

    def shapes_at(self, rows: Iterable[int]) -> list[Shape]:
        """Returns what a library needs of events, which are bare tuples."""
        shapes: list[Shape] = self._part.shapes_at(rows)
        return [(id, text and hidden_text(text), row, birth) for id, text, row, birth in shapes]


def _refuse(*_: object, **__: object) -> Any:
    raise InvalidOperation(
        "nothing is recorded where what was asked and said is not shown",
        hint="start `tfgrpo ui` without --no-content",
    )


def _hidden(value: Any) -> Any:
    """Returns what a port answers without examples, in whatever collection it comes."""
    match value:
        case str() | bytes() | int() | float() | None:
            return value
        case EventRow():
            text, reason = value.text, value.reason
            return value._replace(
                text=text and hidden_text(text), reason=reason and hidden_words(reason)
            )
        case Version():
            return value._replace(message=hidden_words(value.message), meta=_meta(value.meta))
        case RefMove():
            return value._replace(action=hidden_words(value.action))
        case tuple() if hasattr(value, "_fields"):
            return type(value)(*map(_hidden, value))
        case list():
            return list(map(_hidden, value))
        case tuple():
            return tuple(map(_hidden, value))
        case Iterator():
            return map(_hidden, value)
    return value


def _meta(meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a version's meta: what was refused may be an example, and why something failed may
    quote an answer."""
    if not meta:
        return meta
    hidden = {name: _words(value) for name, value in meta.items()}
    if "failed" in hidden:
        failed = hidden["failed"] if isinstance(hidden["failed"], Iterable) else ()
        hidden["failed"] = [
            {**one, "reason": NOT_SHOWN} for one in failed if isinstance(one, Mapping)
        ]
    return hidden


def _words(value: Any) -> Any:
    if isinstance(value, str):
        return hidden_text(value) if is_example(value) else hidden_words(value)
    if isinstance(value, Mapping):
        return {name: _words(one) for name, one in value.items()}
    return [_words(one) for one in value] if isinstance(value, list | tuple) else value
