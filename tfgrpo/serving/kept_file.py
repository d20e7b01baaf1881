"""`tfgrpo watch`: a file that always has the library in force.

In Markdown (AGENTS.md, CLAUDE.md, a SKILL.md) the block between two comments is ours, and every
other byte stays; any other file is a whole export. Files are replaced in one step.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from tfgrpo import interchange
from tfgrpo.domains.prompt_library import UNREADABLE, LiveLibrary
from tfgrpo.interchange.format_types import UnreadableLibrary
from tfgrpo.interchange.formats import markdown
from tfgrpo.interchange.formats.skill import front_matter
from tfgrpo.interchange.library_files import Outgoing, skill_folder
from tfgrpo.store.atomic_write import SHARED, replacing
from tfgrpo.store.errors import StoreError
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.store.records import Library

BEGIN = "<!-- tfgrpo: the library begins; `tfgrpo watch` keeps this block -->"
END = "<!-- tfgrpo: the library ends -->"
INTERVAL, LARGEST = 0.5, 16 << 20
"""Seconds between two looks whether the library, or the file, changed, and bytes of a Markdown file
that is read at most."""
log = logging.getLogger("tfgrpo.watch")


class KeptFile:
    """A file at `path` with the library that `live` says is in force. `name` and `description` are
    for a SKILL.md that is not there yet."""

    def __init__(
        self, path: Path | str, live: LiveLibrary, *, name: str | None, description: str | None
    ) -> None:
        self.path = os.path.realpath(path)  # AGENTS.md is often a link to another agent's file
        self.format = interchange.by_file_name(os.path.basename(self.path))
        if self.format is None:
            raise UnreadableLibrary(
                f"no format goes by the name {os.path.basename(self.path)}",
                hint="such as AGENTS.md, SKILL.md or experiences.json",
            )
        folder = os.path.dirname(self.path)
        if self.format != "skill" and not os.path.isdir(folder):
            raise UnreadableLibrary(f"there is no folder {folder}", hint="make it first")
        self._in_block = self.format in ("md", "skill")
        self.live = live
        self._name, self._description = name, description
        self._library: Library | None = None
        self._seen: tuple[int, int, int] | None = None

    def bring_up_to_date(self) -> bool:
        """Writes the file if it does not have the library in force; returns whether it did. Raises
        StoreError, UnreadableLibrary for a file whose block cannot be told, and OSError."""
        library, seen = self.live.library, _seen(self.path)
        if library is self._library and seen == self._seen and seen is not None:
            return False
        before = _read(self.path) if seen is not None else None
        after = self._content(library, before)
        changed, written = after != before, seen
        if changed:
            if seen is None and self.format == "skill":  # which is a folder with the file in it
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
            mode = SHARED if seen is None else stat.S_IMODE(os.stat(self.path).st_mode)

            def check() -> None:
                if _seen(self.path) != seen:
                    raise Overtaken(self.path)

            with replacing(self.path, mode=mode, check=check) as file:
                file.write(after)
                if seen is not None:
                    os.fchmod(file.fileno(), mode)  # what the umask would take away
                file.flush()
                written = _identity(os.fstat(file.fileno()))  # what others write later is not it
        self._library, self._seen = library, written
        return changed

    def _content(self, library: Library, before: bytes | None) -> bytes:
        if self._in_block and before is not None:
            return with_block(before, block(library), self.path)
        if self.format == "md":
            return block(library).encode()
        name, description = self._name, self._description
        with Store.open(self.live.path) as store:
            if self._in_block:
                out = Outgoing(store, library, name, description, skill_folder(self.path))
                return f"{front_matter(out)}\n{block(library)}".encode()
            version, format = library.version, self.format or ""
            pieces = interchange.export(store, version, format, name=name, description=description)
            return "".join(pieces).encode()


class Overtaken(OSError):
    """Somebody else wrote the file at the same moment: it is read again."""


def block(library: Library) -> str:
    heading = "Experiences to follow" if library.readable else "No experiences yet"
    lines = [BEGIN, "", f"## {heading}", ""]  # so few words that `import` takes them for none
    for experience in library.readable:  # a text may look like our own comments
        lines.append(markdown.written(experience).replace("<!-- tfgrpo:", "&#60;!-- tfgrpo:"))
    return "\n".join([*lines, "", END]) + "\n"


def with_block(before: bytes, new: str, name: str) -> bytes:
    """A file with its block replaced, or, without one, with it at the end; its line ends are kept.
    Raises UnreadableLibrary where it cannot be told what the block is."""
    crlf = b"\r\n" in before
    own = (new.replace("\n", "\r\n") if crlf else new).encode()
    begins, ends = before.count(BEGIN.encode()), before.count(END.encode())
    start, end = before.find(BEGIN.encode()), before.find(END.encode())
    if (begins, ends) == (0, 0):
        line = b"\r\n" if crlf else b"\n"
        gap = b"" if not before else line if before.endswith(b"\n") else 2 * line
        return before + gap + own
    if (begins, ends) != (1, 1) or end < start:
        raise UnreadableLibrary(
            f"{name} has no single block between the comments of `tfgrpo watch`",
            hint=f"leave one line {BEGIN!r} and one {END!r}, or none",
        )
    end += len(END)
    rest = before[end:]
    return before[:start] + own.rstrip(b"\r\n") + rest


def keep(file: KeptFile, stop: threading.Event, wrote: Callable[[str], None]) -> None:
    """Keeps a file up to date until `stop` is set. `wrote` is called with what was written. What
    cannot be read or written is in the log once, and tried again."""
    trouble: str | None = None
    retry = 0.0
    while not stop.is_set():
        if monotonic() >= retry:
            try:
                if file.bring_up_to_date():
                    wrote(file.live.library.version.name)
                now = file.live.trouble
            except Overtaken:
                continue
            except (*UNREADABLE, StoreError) as error:
                now, retry = str(error), monotonic() + 4 * INTERVAL
            if now != trouble and now:
                log.warning("%s", now)
            trouble = now
        stop.wait(INTERVAL)


def _seen(path: str) -> tuple[int, int, int] | None:
    try:
        return _identity(os.stat(path))
    except FileNotFoundError:
        return None


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read(path: str) -> bytes:
    """A file's bytes. Raises UnreadableLibrary for one that is no plain, small file."""
    about = os.stat(path)
    if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
        raise UnreadableLibrary(f"{path} is no file of text", hint="give a Markdown file")
    with open(path, "rb") as file:
        return file.read()
