"""Where a store is: `.tfgrpo/store.db`, found by walking up as git finds `.git`."""

from __future__ import annotations

from pathlib import Path

from tfgrpo.store.errors import StoreError

FOLDER = ".tfgrpo"
FILE = "store.db"


def store_path(root: Path) -> Path:
    """Returns where the store of the project at `root` is or would be."""
    return root / FOLDER / FILE


def project_root(path: Path) -> Path:
    """Returns the folder that a store file belongs to; paths in records are relative to it."""
    folder = path.resolve().parent
    return folder.parent if folder.name == FOLDER else folder


def located(path: Path) -> Path:
    """Returns the store file that a path means: the file itself, or that of the project there."""
    return store_path(path) if path.is_dir() else path


def find(start: Path) -> Path:
    """Returns the path of the nearest store at or above `start`. Raises StoreError if none."""
    start = start.resolve()
    for folder in (start, *start.parents):
        path = store_path(folder)
        if path.is_file():
            return path
    raise StoreError(
        f"no store here or above {start}",
        hint="run `tfgrpo init` to make one, or name one with --store",
    )
