"""The code of a command, as far as it can be known: the files that it names, wherever they lie, and
the modules that Python files among these import from beside them or from the project.

What an interpreter has installed, and what programs in other languages load, is not known.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path

from tfgrpo.store.canonical import digest
from tfgrpo.store.errors import SettingsError

WORDS = re.compile(r"[\s'\"`;|&()<=]+")
"""What stands between the words of an option, or of a script in one part of a command."""
WRITTEN = re.compile(r">+\s*\S+")
"""A file that a script writes to."""
INSTALLED = {"site-packages", "dist-packages"}
SUFFIXES = (".py", ".pyw")


def command_identity(command: Sequence[str], root: Path) -> str:
    """Returns the digest of a command's parts and code. Its paths are relative to `root`. Raises
    SettingsError for a file that cannot be read."""
    parts = [Path(part).name if os.path.isfile(root / part) else part for part in command]
    named = {path.resolve() for part in command for path in _files(part, root)}
    for flag, value in pairwise(command):
        if flag == "-m":
            named |= {path.resolve() for path in _modules(f"{value}.__main__", root)}
        elif flag == "-c":
            imported = (_modules(name, root) for _, name in _names(os.fsencode(value)))
            named |= {path.resolve() for path in chain.from_iterable(imported)}
    try:
        files = sorted(_digest(path) for path in _with_imports(named, root))
    except OSError as error:
        raise SettingsError(f"cannot read {error.filename}: {error.strerror}") from None
    return digest(["tfgrpo.command", parts, files]).hex()[:16]


def _files(part: str, root: Path) -> Iterator[Path]:
    """Yields the files that a part of a command names: as a whole, in an option, in a script."""
    for word in {part, *WORDS.split(WRITTEN.sub("", part))} - {""}:
        yield from _present(root / word)
        yield from _present(root / word / "__main__.py")  # which Python runs of a folder


def _present(path: Path) -> Iterator[Path]:
    """Yields a path where a file is there and can be read."""
    if os.path.isfile(path) and os.access(path, os.R_OK):
        yield path


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _with_imports(files: set[Path], root: Path) -> set[Path]:
    """Returns files with all modules that they import, directly or by others."""
    places = {root, *(path.parent for path in files)}
    known, waiting = set(files), list(files)
    while waiting:
        for path in _imported(waiting.pop(), places):
            module = path.resolve()
            if module not in known and not INSTALLED & set(module.parts):
                known.add(module)
                waiting.append(module)
    return known


def _imported(path: Path, places: set[Path]) -> Iterator[Path]:
    """Yields the files of the modules that a Python file imports from its folder or `places`."""
    for level, name in _names(_python_of(path)):
        if not level:
            for place in {path.parent, *places}:
                yield from _modules(name, place)
        elif level <= len(path.parents):
            package = path.parents[level - 1]
            yield from _present(package / "__init__.py")
            yield from _modules(name, package)


def _modules(name: str, place: Path) -> Iterator[Path]:
    """Yields the files of a module and of the packages that it is in."""
    for segment in filter(str.isidentifier, name.split(".")):
        place /= segment
        yield from _present(place.with_name(f"{segment}.py"))
        yield from _present(place / "__init__.py")


def _python_of(path: Path) -> bytes:
    """Returns the text of a Python file; nothing of another one."""
    with open(path, "rb") as file:
        first = file.readline(200)
        is_python = first.startswith(b"#!") and b"python" in first
        return first + file.read() if is_python or path.suffix in SUFFIXES else b""


def _names(text: bytes) -> Iterator[tuple[int, str]]:
    """Yields what a Python text imports: how many packages up, and the name of a module or of
    something in it. Nothing where this Python cannot read it."""
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # what it imports is not known
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield node.level, f"{node.module or ''}.{alias.name}"
