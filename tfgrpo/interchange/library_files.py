"""Libraries in files: which formats there are, which one a file is in, and files written whole."""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tfgrpo.interchange.format_types import (
    Document,
    Format,
    Skipped,
    SourceFile,
    UnreadableLibrary,
)
from tfgrpo.store.address import FOLDER
from tfgrpo.store.atomic_write import PRIVATE, SHARED, replacing
from tfgrpo.store.history.walks import first_parents
from tfgrpo.store.records import Library, Version
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path


HINT = 'write {"G0": "text", …}, or a Markdown list with a line for each experience'

LARGEST = 64_000_000
"""Bytes of a file that are read at most."""

CHECKED_OUT = {"json": "label_object", "md": "markdown", "prompt": "labelled_lines"}
"""Where the formats are that a checkout writes: it loads the one it needs and no other."""


@cache
def available() -> dict[str, Format]:
    """Returns name → format, names ascending: all that the modules in `formats/` define."""
    import pkgutil

    package = importlib.import_module("tfgrpo.interchange.formats")
    formats = [
        f for module in pkgutil.iter_modules(package.__path__) for f in _formats(module.name)
    ]
    return {format.name: format for format in sorted(formats, key=lambda f: f.name)}


def _formats(module: str) -> list[Format]:
    defined = vars(importlib.import_module(f"tfgrpo.interchange.formats.{module}")).values()
    return [value for value in defined if isinstance(value, Format)]


def written() -> tuple[str, ...]:
    """The names of the formats that can be written."""
    return tuple(name for name, format in available().items() if format.write)


def named(name: str) -> Format:
    """The format of that name. Raises UnreadableLibrary listing what there is."""
    if name in CHECKED_OUT:
        return _formats(CHECKED_OUT[name])[0]
    if name not in available():
        raise UnreadableLibrary(
            f"unknown format {name!r}", hint=f"there are {', '.join(available())}"
        )
    return available()[name]


def by_file_name(name: str) -> str | None:
    """The name of the format that a file of that name is written in, if one is usual."""
    if name.upper() == "SKILL.MD":
        return "skill"
    usual = {
        ".json": "json",
        ".csv": "csv",
        ".jsonl": "events",
        ".md": "md",
        ".txt": "prompt",
        ".yaml": "agent",
        ".yml": "agent",
    }
    return usual.get(os.path.splitext(name)[1].lower())


def read(path: Path, format: str | None = None) -> Document:
    """Reads a file, told apart by its content unless `format` names what it is. Raises
    UnreadableLibrary, with the file and the line, for what cannot be read whole."""
    chosen = named(format) if format else None
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            kind = "a folder" if stat.S_ISDIR(about.st_mode) else "a pipe or a device"
            raise UnreadableLibrary(f"{path} is {kind}", hint="give a file to read")
        if about.st_size > LARGEST:
            raise UnreadableLibrary(
                f"{path} has {about.st_size / 1e6:.0f} MB, of which at most "
                f"{LARGEST / 1e6:.0f} are read",
                hint="split it",
            )
        data = _unpacked(path, path.read_bytes())
    except FileNotFoundError:
        raise UnreadableLibrary(f"no file {path}", hint="give a file to read") from None
    except OSError as error:
        raise UnreadableLibrary(
            f"cannot read {path}: {error.strerror}", hint="give a readable file"
        ) from None
    source = SourceFile(path, data)
    try:
        chosen = chosen or _detected(source)
        content = chosen.read(source)
    except RecursionError:
        raise source.wrong("is nested too deep", hint=HINT) from None
    items = tuple(item for item in content.items if item.text.strip())
    blank = [
        Skipped.at(item.line, "has no text", " ".join(map(str, (item.evidence or {}).values())))
        for item in content.items
        if not item.text.strip()
    ]
    if not items and not content.batches:
        raise source.wrong(f"contains no experiences (read as {chosen.name})", hint=HINT)
    return Document(
        path,
        source.name,
        source.sha256,
        chosen.name,
        items,
        tuple(content.batches),
        content.meta,
        tuple(sorted((*content.skipped, *blank))),
    )


def _detected(source: SourceFile) -> Format:
    sure = {f: f.detect(source) for f in available().values()}
    likeliest = max(sure, key=lambda f: sure[f])
    if not sure[likeliest]:
        raise source.wrong("contains no experiences", hint=HINT)
    return likeliest


def _unpacked(path: Path, data: bytes) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return data
    import zlib

    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(data, LARGEST + 1)
    except zlib.error as error:
        raise UnreadableLibrary(f"cannot unpack {path}: {error}", hint="pack it again") from None
    if len(plain) > LARGEST or not unpacker.eof:
        raise UnreadableLibrary(
            f"{path} is cut off, or unpacks to more than {LARGEST / 1e6:.0f} MB",
            hint="unpack it yourself, and split it",
        )
    return plain


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


About: TypeAlias = dict[str, Any]
"""What a file says about a library as a whole, by the fields of `Outgoing`."""


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
    store: Store, revision: str | Version = "HEAD", format: str = "json", **about_it: Any
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
    **about_it: Any,
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
