"""Workspaces: a fresh copy of a folder for each attempt, and what the attempt changed in it.

A copy shares the blocks of its files with the folder where the file system can (reflinks), else it
is made anew. Links within the folder stay links; one that leads out is refused before anything is
paid for. Sockets and devices are refused too.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tfgrpo.store.errors import SettingsError

LONGEST = 64 << 10
"""Bytes of a file from which on its changes are told by size alone."""
SHOWN = 32_000
"""Characters of all changes together that are kept."""
MOST_FILES = 100_000
_CLONE = 0x40049409
"""FICLONE of Linux: the new file shares the other's blocks."""


class Known(NamedTuple):
    """A file as it was: its digest, and its text where that is short."""

    digest: str
    text: str | None


class Workspace:
    """A folder that attempts work in copies of. Raises SettingsError where none can be made."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder.resolve()
        self._check(folder, most)
        self._known = _contents(self.folder)

    @property
    def identity(self) -> str:
        """The digest of all its files."""
        listed = sorted((name, known.digest) for name, known in self._known.items())
        return hashlib.sha256(repr(listed).encode()).hexdigest()[:16]

    def copy(self) -> Path:
        """Returns a new copy, to be removed with `remove`. Blocks. Raises OSError."""
        there = Path(tempfile.mkdtemp(prefix="tfgrpo-workspace-")).resolve()
        try:
            shutil.copytree(
                self.folder, there, symlinks=True, dirs_exist_ok=True, copy_function=_copy_file
            )
        except BaseException:
            remove(there)
            raise
        return there

    def changes(self, copy: Path) -> dict[str, str]:
        """Returns what an attempt changed: path → a unified diff, or what became of the file.
        Blocks."""
        now, changed, room = _contents(copy), dict[str, str](), SHOWN
        for name in sorted({*self._known, *now}):
            before, after = self._known.get(name), now.get(name)
            if before == after:
                continue
            words = _difference(name, before, after)
            changed[name] = words[:room] if room > 0 else "changed"
            room -= len(words)
        return changed

    def _check(self, named: Path, most: int) -> None:
        if not self.folder.is_dir():
            raise SettingsError(f"the workspace {named} is no folder", hint="--workspace FOLDER")
        size = 0
        for count, path in enumerate(_walk(self.folder), 1):
            name = path.relative_to(self.folder)
            try:
                mode, leads_to = path.lstat().st_mode, path.resolve()
            except OSError as error:
                raise SettingsError(
                    f"{name} in the workspace {named} cannot be read: {error.strerror}",
                    hint="each attempt gets a copy: name a folder whose files you may read",
                ) from None
            if stat.S_ISLNK(mode) and not leads_to.is_relative_to(self.folder):
                raise SettingsError(
                    f"{name} in the workspace {named} is a link that leads out of it",
                    hint="put a copy in its place",
                )
            if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
                raise SettingsError(
                    f"{name} in the workspace {named} is no file", hint="remove it from the folder"
                )
            size += path.lstat().st_size if stat.S_ISREG(mode) else 0
            if size > most << 20 or count > MOST_FILES:
                raise SettingsError(
                    f"the workspace {named} has more than {most:,} MiB or {MOST_FILES:,} files",
                    hint="each attempt gets a copy: name a smaller folder, or raise copy_limit in "
                    "[agent]",
                )


def remove(copy: Path) -> None:
    """Removes a copy, whatever was made of it. Blocks."""

    def allow(path: str) -> None:
        with suppress(OSError):
            os.chmod(path, 0o700, follow_symlinks=False)

    for folder, _, _ in os.walk(copy):
        allow(folder)
    shutil.rmtree(copy, ignore_errors=True)


def _walk(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            yield Path(place, name)


def _contents(folder: Path) -> Mapping[str, Known]:
    """Returns the files of a folder by their paths in it. Links are told by where they lead."""
    files: dict[str, Known] = {}
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        try:
            if path.is_symlink():
                files[name] = Known(f"→ {os.readlink(path)}", None)
            elif path.is_file():
                files[name] = _known(path)
        except OSError as error:  # an attempt may have made it unreadable
            files[name] = Known(str(error.strerror), None)
    return files


def _known(path: Path) -> Known:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if path.stat().st_size > LONGEST:
        return Known(digest, None)
    try:
        return Known(digest, path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return Known(digest, None)


def _difference(name: str, before: Known | None, after: Known | None) -> str:
    if after is None:
        return "removed"
    if after.text is None or (before is not None and before.text is None):
        return "changed" if before is not None else "new, and no short text"
    old = "" if before is None or before.text is None else before.text
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), after.text.splitlines(keepends=True), name, name
    )
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _copy_file(source: str, target: str) -> str:
    """Copies a file with its mode, sharing its blocks where that can be done."""
    with suppress(ImportError, OSError):
        import fcntl

        with open(source, "rb") as old, open(target, "wb") as new:
            fcntl.ioctl(new, _CLONE, old.fileno())
        shutil.copystat(source, target)
        return target
    return str(shutil.copy2(source, target))
