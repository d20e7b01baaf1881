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
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tfgrpo.model.response import as_text
from tfgrpo.store.errors import SettingsError

LONGEST = 64 << 10
"""Bytes of a file from which on its changes are told by size alone."""
SHOWN = 32_000
"""Characters of all changes together that are kept, and of the names of what has changed."""
MOST_FILES = 100_000
_CLONE = 0x40049409
"""FICLONE of Linux: the new file shares the other's blocks."""


class Known(NamedTuple):
    """A file as it was: its bytes, its digest, and its text where that is short."""

    size: int
    digest: str
    text: str | None


class Workspace:
    """A folder that attempts work in copies of. Raises SettingsError where none can be made."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder.resolve()
        self._check(folder, most)
        known = ((name, _known(path)) for name, path in _files(self.folder).items())
        self._known = {name: one for name, one in known if one is not None}

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
        """Returns what an attempt changed: path → a unified diff, or what became of the file; of
        very many, how many more there are. Blocks."""
        now, changed, more = _files(copy), dict[str, str](), 0
        room = room_for_names = SHOWN
        for name in sorted({*self._known, *now}):
            before, path = self._known.get(name), now.get(name)
            if before is None and room_for_names <= 0:  # new ones may be without end
                more += 1
                continue
            after = None if path is None else _known(path, before.size if before else -1)
            if before == after:
                continue
            if room_for_names <= 0:
                more += 1
                continue
            shown = as_text(name)
            words = _difference(shown, before, after)
            changed[shown] = words[:room] if room > 0 else "changed"
            room -= len(words)
            room_for_names -= len(name)
        return changed | ({"…": f"and {more:,} more"} if more else {})

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


def _files(folder: Path) -> dict[str, Path]:
    """Returns what is in a folder and is no folder, by its path there."""
    paths = (path for path in _walk(folder) if os.path.islink(path) or not os.path.isdir(path))
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _known(path: Path, size: int | None = None) -> Known | None:
    """Returns a file as it is, a link by where it leads; None for what is neither. A long file that
    was of another size is not read."""
    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            return Known(0, f"→ {os.readlink(path)}", None)
        if not stat.S_ISREG(state.st_mode):
            return None
        if state.st_size > LONGEST and size not in (None, state.st_size):
            return Known(state.st_size, "", None)
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        text = None if state.st_size > LONGEST else path.read_text(encoding="utf-8")
        return Known(state.st_size, digest, text)
    except UnicodeDecodeError:
        return Known(state.st_size, digest, None)
    except OSError as error:  # an attempt may have made it unreadable
        return Known(0, str(error.strerror), None)


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
