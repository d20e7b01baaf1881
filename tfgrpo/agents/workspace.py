"""Workspaces: a fresh copy of a folder for each attempt, and what the attempt changed in it.

Links within the folder stay links, and lead within the copy; one that leads out is refused before
anything is paid for, and so is git's own. Sockets and devices are refused too.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from tfgrpo.agents.orphan_guard import new_copy
from tfgrpo.model.response import as_text
from tfgrpo.model.secrets import scrub
from tfgrpo.store.address import FOLDER
from tfgrpo.store.errors import SettingsError
from tfgrpo.tools.session_bounds import remove_scratch

LONGEST = 64 << 10
"""Bytes of a file from which on its changes are told by size alone."""
SHOWN = 32_000
"""Characters of all changes together that are kept, and of the names of what has changed."""
MOST_FILES = 100_000


class Known(NamedTuple):
    """A file as it was: its bytes, its digest, and its text where that is short."""

    size: int
    digest: str
    text: str | None


class Workspace:
    """A folder that attempts work in copies of. Raises SettingsError where none can be made."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self._named = folder.resolve(), folder
        self._check(most)
        known = ((name, self._before(path)) for name, path in _files(self.folder).items())
        self._known = {name: one for name, one in known if one is not None}

    def _before(self, path: Path) -> Known | None:
        return _link(self._link_text(path)) if path.is_symlink() else _known(path)

    @property
    def identity(self) -> str:
        """The digest of all its files."""
        listed = sorted((name, known.digest) for name, known in self._known.items())
        return hashlib.sha256(repr(listed).encode()).hexdigest()[:16]

    def copy(self) -> Path:
        """Returns a new copy, to be removed with `remove_scratch`. Blocks. Raises OSError, and
        SettingsError for a link that is new and leads out."""
        there = new_copy()
        try:
            self._copy_into(there)
        except BaseException:
            remove_scratch(there)
            raise
        return there

    def _copy_into(self, there: Path) -> None:
        folders = [(self.folder, there)]
        for entry in _walk(self.folder):
            path = Path(entry.path)
            target = there / path.relative_to(self.folder)
            if entry.is_symlink():
                target.symlink_to(self._link_text(path))
            elif entry.is_dir():
                target.mkdir()
                folders.append((path, target))
            elif entry.is_file():
                shutil.copy2(path, target)
        for path, target in reversed(folders):  # one may not be written to
            shutil.copystat(path, target)

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
            shown = scrub(as_text(name))
            words = scrub(_difference(shown, before, after))
            changed[shown] = words[:room] if room > 0 else "changed"
            room -= len(words)
            room_for_names -= len(name)
        return changed | ({"…": f"and {more:,} more"} if more else {})

    def _check(self, most: int) -> None:
        if not self.folder.is_dir():
            hint = "--workspace FOLDER"
            raise SettingsError(f"the workspace {self._named} is no folder", hint=hint)
        size, inner = 0, (Path(entry.path) for entry in _walk(self.folder))
        for count, path in enumerate(chain((self.folder,), inner)):
            try:
                size += self._size(path)
            except OSError as error:
                hint = "each attempt gets a copy: name a folder whose files you may read"
                raise self._refusal(path, f"cannot be read: {error.strerror}", hint) from None
            if size > most << 20 or count > MOST_FILES:
                raise SettingsError(
                    f"the workspace {self._named} has more than {most:,} MiB or {MOST_FILES:,} "
                    "files",
                    hint="each attempt gets a copy: name a smaller folder, or raise copy_limit in "
                    "[agent]",
                )

    def _size(self, path: Path) -> int:
        """Returns the bytes of a file. Raises SettingsError for what no copy can have, and OSError
        for what cannot be read."""
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            self._link_text(path)
            return 0
        if stat.S_ISDIR(state.st_mode):
            os.scandir(path / ".").close()
            return 0
        if not stat.S_ISREG(state.st_mode):
            raise self._refusal(path, "is no file", "remove it from the folder")
        with path.open("rb") as file:
            if path.name == ".git":
                self._check_git(path, file.read(LONGEST))
        return state.st_size

    def _link_text(self, link: Path) -> str:
        """Returns what a link says in a copy, where it leads to what it leads to in the folder.
        Raises SettingsError for one that leads out."""
        text = os.readlink(link)
        steps = Path(text).parts
        passed = [_real(link.parent, *steps[:count]) for count in range(1, len(steps) + 1)]
        if not self._has(passed[-1]):
            hint = "put a copy in its place"
            raise self._refusal(link, "is a link that leads out of it", hint)
        if all(map(self._has, passed)):
            return text
        return os.path.relpath(passed[-1], link.parent)

    def _check_git(self, file: Path, content: bytes) -> None:
        """Raises SettingsError for the file of a worktree or a module that a copy would work on the
        repository of."""
        if not content.startswith(b"gitdir:"):
            return
        leads = os.fsdecode(content.partition(b":")[2].strip())
        if os.path.isabs(leads) or not self._has(_real(file.parent, leads)):
            hint = "name a folder that `git clone` made of it, with a repository of its own"
            raise self._refusal(file, "leads to a repository that its copies would share", hint)

    def _has(self, path: Path) -> bool:
        return path.is_relative_to(self.folder)

    def _refusal(self, path: Path, what: str, hint: str) -> SettingsError:
        name = path.relative_to(self.folder)
        return SettingsError(f"{name} in the workspace {self._named} {what}", hint=hint)


def _real(*parts: str | Path) -> Path:
    return Path(os.path.realpath(os.path.join(*parts)))


def _walk(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Yields what is in a folder, each folder before what is in it; nothing of one that cannot be
    read. It follows no link, and does not call itself: an attempt nests folders as it likes. A
    store of ours is no part of a workspace."""
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                listed = list(entries)
        except OSError:
            continue
        for entry in listed:
            if entry.name == FOLDER:
                continue
            yield entry
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)


def _files(folder: Path) -> dict[str, Path]:
    """Returns what is in a folder and is no folder, by its path there."""
    entries = (entry for entry in _walk(folder) if not entry.is_dir(follow_symlinks=False))
    paths = (Path(entry.path) for entry in entries)
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _link(text: str) -> Known:
    return Known(0, f"→ {text}", None)


def _known(path: Path, size: int | None = None) -> Known | None:
    """Returns a file as it is, a link by where it leads; None for what is neither. A long file that
    was of another size is not read."""
    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            return _link(os.readlink(path))
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
