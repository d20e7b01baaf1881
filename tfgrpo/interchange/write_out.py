"""Libraries on their way out: what a format is given to write, and files written whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from tfgrpo.interchange.format_types import UnreadableLibrary
from tfgrpo.interchange.registry import named, written
from tfgrpo.store.address import FOLDER
from tfgrpo.store.atomic_write import PRIVATE, SHARED, replacing
from tfgrpo.store.history.walks import first_parents
from tfgrpo.store.records import Library, Version
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path

NAME = "learned-experience"
DESCRIPTION = (
    "Short rules learned from earlier problems. Use them when solving problems like those."
)


class Outgoing(NamedTuple):
    """A library to write, and what a file says about it: `name` and `description` (None: what it
    was read from, or ours), the `folder` of a SKILL.md; of a card the `licence`, whether it has
    examples, which are problems with their answers, and [prices] for what its runs have cost."""

    store: Store
    library: Library
    name: str | None = None
    description: str | None = None
    folder: str | None = None
    licence: str | None = None
    with_examples: bool = False
    prices: Mapping[str, Any] = {}

    @property
    def version(self) -> Version:
        """The version whose library this is."""
        return self.library.version


class About(TypedDict, total=False):
    """What a file says about a library as a whole: see `Outgoing`."""

    name: str | None
    description: str | None
    folder: str | None
    licence: str | None
    with_examples: bool
    prices: Mapping[str, Any]


def about(out: Outgoing) -> dict[str, object]:
    """What files that this library was read from said about themselves, the last one first."""
    values: dict[str, object] = {}
    for version in first_parents(out.store, out.version):
        origin = version.meta.get("import")
        for key, value in origin.items() if isinstance(origin, Mapping) else ():
            if key.startswith(("skill_", "agent")):
                values.setdefault(key, value)
    return values


def export(
    store: Store,
    revision: str | Version = "HEAD",
    format: str = "json",
    **about_it: Unpack[About],
) -> Iterator[str]:
    """The pieces of a file that holds the library at a revision, without what was redacted. Raises
    UnreadableLibrary for a format that cannot be written."""
    write = named(format).write
    if write is None:
        raise UnreadableLibrary(
            f"{format} is a format to read, not to write",
            hint=f"these can be written: {', '.join(written())}",
        )
    return write(Outgoing(store, store.library(revision), **about_it))


def save(
    store: Store,
    path: Path | str,
    revision: str | Version = "HEAD",
    format: str = "json",
    **about_it: Unpack[About],
) -> None:
    """Writes the library at a revision to a file, whole or not at all. A file beside the store is
    its owner's alone, as the store is."""
    about_it["folder"] = skill_folder(path)
    pieces = export(store, revision, format, **about_it)
    beside = FOLDER in os.path.abspath(path).split(os.sep)
    with replacing(path, mode=PRIVATE if beside else SHARED) as file:
        file.writelines(piece.encode() for piece in pieces)


def skill_folder(path: Path | str) -> str | None:
    """The name of the folder that a SKILL.md lies in; None for any other file."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.basename(folder) or None if name.upper() == "SKILL.MD" else None
