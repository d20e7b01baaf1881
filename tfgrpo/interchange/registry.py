"""Which formats there are, and which one a file is in."""

from __future__ import annotations

import importlib
import os
import stat
from functools import cache
from typing import TYPE_CHECKING

from tfgrpo.interchange.format_types import (
    Document,
    Format,
    Item,
    Skipped,
    SourceFile,
    UnreadableLibrary,
)

if TYPE_CHECKING:
    from pathlib import Path

HINT = 'write {"G0": "text", …}, or a Markdown list with a line for each experience'

LARGEST = 64_000_000
"""Bytes of a file that are read at most."""

CHECKED_OUT = {"json": "label_object", "md": "markdown", "prompt": "prompt_block"}
"""Where the formats are that a checkout writes: it loads the one it needs and no other."""


@cache
def available() -> dict[str, Format]:
    """Returns name → format, names ascending: every module in `formats/` defines one."""
    import pkgutil

    package = importlib.import_module("tfgrpo.interchange.formats")
    formats = [_format(module.name) for module in pkgutil.iter_modules(package.__path__)]
    return {format.name: format for format in sorted(formats, key=lambda f: f.name)}


def _format(module: str) -> Format:
    format: Format = importlib.import_module(f"tfgrpo.interchange.formats.{module}").FORMAT
    return format


def written() -> tuple[str, ...]:
    """The names of the formats that can be written."""
    return tuple(name for name, format in available().items() if format.write)


def named(name: str) -> Format:
    """The format of that name. Raises UnreadableLibrary listing what there is."""
    if name in CHECKED_OUT:
        return _format(CHECKED_OUT[name])
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
    if chosen is None:
        sure = {f: f.detect(source) for f in available().values()}
        chosen = max(sure, key=lambda f: sure[f])
        if not sure[chosen]:
            raise source.wrong("contains no experiences", hint=HINT)
    content = chosen.read(source)
    items = tuple(item for item in content.items if item.text.strip())
    blank = (_blank(item) for item in content.items if not item.text.strip())
    if not items and not content.batches:
        raise source.wrong(f"contains no experiences (read as {chosen.name})", hint=HINT)
    return Document(
        path,
        path.name,
        source.sha256,
        chosen.name,
        items,
        tuple(content.batches),
        content.meta,
        tuple(sorted((*content.skipped, *blank))),
    )


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


def _blank(item: Item) -> Skipped:
    called = " ".join(str(value) for value in (item.evidence or {}).values())[:60]
    return Skipped(item.line or 0, item.line or 0, "has no text", called)
