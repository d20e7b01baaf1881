"""Libraries on their way out: what a format is given to write, and files written whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.interchange.records import UnreadableLibrary
from tfgrpo.interchange.registry import named, written
from tfgrpo.store.atomic_write import PRIVATE, SHARED, replacing
from tfgrpo.store.find import FOLDER
from tfgrpo.store.records import Library, Version
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path

NAME = "learned-experience"
DESCRIPTION = (
    "Short rules learned from earlier problems. Use them when solving problems like those."
)


class Outgoing(NamedTuple):
    """A library to write, and what a file says about it as a whole.

    `name` and `description` are for formats that introduce themselves (a skill, an agent).
    """

    store: Store
    library: Library
    name: str = NAME
    description: str = DESCRIPTION

    @property
    def version(self) -> Version:
        """The version whose library this is."""
        return self.library.version


def export(
    store: Store,
    revision: str | Version = "HEAD",
    format: str = "json",
    *,
    name: str = NAME,
    description: str = DESCRIPTION,
) -> Iterator[str]:
    """Returns the pieces of a file that holds the library at a revision.

    What was redacted is left out; the others keep their labels. A read-only operation. Raises
    UnreadableLibrary for a format that cannot be written.
    """
    write = named(format).write
    if write is None:
        raise UnreadableLibrary(
            f"{format} is a format to read, not to write",
            hint=f"these can be written: {', '.join(written())}",
        )
    return write(Outgoing(store, store.library(revision), name, description))


def save(
    store: Store,
    path: Path | str,
    revision: str | Version = "HEAD",
    format: str = "json",
    *,
    name: str = NAME,
    description: str = DESCRIPTION,
) -> None:
    """Writes the library at a revision to a file, whole or not at all.

    A file beside the store is its owner's alone, as the store is.
    """
    pieces = export(store, revision, format, name=name, description=description)
    beside = FOLDER in os.path.abspath(path).split(os.sep)
    with replacing(path, mode=PRIVATE if beside else SHARED) as file:
        file.writelines(piece.encode() for piece in pieces)
