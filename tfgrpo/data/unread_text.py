"""The text of rows that no problem is made of; `a.b` is the field b of the object a."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfgrpo.data.problems import Problem

SHOWN = 6
"""Fields that are named; of more, those with most text."""


def sizes(fields: Mapping[str, Any], used: Collection[str] = ()) -> dict[str, int]:
    """The characters of each field of a row that has text and is none of those `used`."""
    leaves = ((name, _size(value)) for name, value in _leaves(fields, used))
    return {name: size for name, size in leaves if size}


def _leaves(
    fields: Mapping[str, Any], used: Collection[str], before: str = ""
) -> Iterator[tuple[str, Any]]:
    for key, value in fields.items():
        name = f"{before}{key}"
        if name in used:
            continue
        if isinstance(value, dict):
            yield from _leaves(value, used, f"{name}.")
        else:
            yield name, value


def _size(value: object) -> int:
    if isinstance(value, list | dict):
        return sum(map(_size, value.values() if isinstance(value, dict) else value))
    return 0 if value is None else len(str(value))


def describe_unread(problems: Iterable[Problem], name: str) -> list[str]:
    """What a person should know of a dataset's rows that is in no problem; nothing where all of
    their text is. `name` is what the dataset is called."""
    unread, whole = Counter[str](), 0
    for problem in problems:
        unread.update(problem.unread)
        whole += problem.row_size
    return [f"{name}: {share(unread, whole)}"] if unread else []


def share(unread: Mapping[str, int], whole: int) -> str:
    """Which fields are not used, and their share of `whole`, all characters of the rows."""
    names = sorted(unread, key=lambda name: -unread[name])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    part = 100 * sum(unread.values()) / whole
    percent = f"{part:.0f}%" if part >= 1 else "less than 1%"
    return f"not used: {', '.join(names[:SHOWN])}{more} ({percent} of the text)"
