"""Where a store is: `.tfgrpo/store.db`, found by walking up as git finds `.git`.

The walk is over plain strings: `pathlib` alone would take a tenth of the time in which
`tfgrpo log` starts.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tfgrpo.store.address import anchor
from tfgrpo.store.errors import StoreError

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ".tfgrpo"
FILE = "store.db"


def store_path(root: Path) -> Path:
    """Returns where the store of the project at `root` is or would be."""
    return root / FOLDER / FILE


def project_root(path: Path) -> Path:
    """Returns the folder that a store file belongs to; paths in records are relative to it."""
    from pathlib import Path

    return Path(project_folder(str(path)))


def project_folder(file: str) -> str:
    """Does what `project_root` does, for a command that needs no Path."""
    folder = os.path.dirname(os.path.realpath(file))
    return os.path.dirname(folder) if os.path.basename(folder) == FOLDER else folder


def located(place: Path | str) -> Path:
    """Returns the store file that a path means: the file itself, or that of the project there; for
    the address of a database what stands for it here. Raises BadLocation."""
    path = anchor(place)
    return store_path(path) if path.is_dir() else path


def in_folder(place: Path | str) -> Path | str:
    """Returns the store file of a project's folder, or of its `.tfgrpo`; any other place as it
    is."""
    if not os.path.isdir(place):
        return place
    inner = () if os.path.basename(os.path.realpath(place)) == FOLDER else (FOLDER,)
    return os.path.join(place, *inner, FILE)


def find(start: Path) -> Path:
    """Returns the path of the nearest store at or above `start`. Raises StoreError if none."""
    from pathlib import Path

    return Path(find_file(str(start)))


def find_file(start: str) -> str:
    """Does what `find` does, for a command that needs no Path."""
    start = folder = os.path.realpath(start)
    while True:
        path = os.path.join(folder, FOLDER, FILE)
        if os.path.isfile(path):
            return path
        above = os.path.dirname(folder)
        if above == folder:
            raise StoreError(
                f"no store in or above {start}",
                hint="create one with `tfgrpo init`, or use --store FILE",
            )
        folder = above
