"""How a store begins: an empty library on the branch `main`, in a file made whole or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from tfgrpo.store import atomic_write
from tfgrpo.store.address import is_address
from tfgrpo.store.default import memory_port, open_port
from tfgrpo.store.errors import StoreError
from tfgrpo.store.records import ROOT
from tfgrpo.store.revisions import BRANCH, HEAD

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.store.port import Port
    from tfgrpo.store.store import Store

DEFAULT_BRANCH = "main"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def init(path: Path | str, opened: Callable[[Port], Store]) -> Store:
    """Makes the store at `path` where there is none, and returns it. `opened` gives a store on a
    port. Raises StoreError."""
    if not is_address(path) and not os.path.lexists(path):
        _create(path, opened)
    store = opened(open_port(path, create=True))
    begin(store)  # of an empty file that somebody else made
    return store


def in_memory(path: Path | str, opened: Callable[[Port], Store]) -> Store:
    """Returns what `init` makes, in memory alone."""
    store = opened(memory_port(path))
    begin(store)
    return store


def begin(store: Store) -> None:
    """Records the first version and its names, unless they are there."""
    if store.port.last_version() >= 0:
        return
    with store.port.transaction():
        if store.port.last_version() < 0:
            store.port.append_version(ROOT, ())
            main = BRANCH + DEFAULT_BRANCH
            store._move([(main, 0, None), (HEAD, 0, main)], "init")


def _create(path: Path | str, opened: Callable[[Port], Store]) -> None:
    """Makes a store's file, and its folder where there is none; of several who do so at once, one
    does. Raises StoreError, and leaves nothing behind then."""
    folder = os.path.dirname(path) or "."
    there = os.path.isdir(folder)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make {folder}: {error.strerror}", hint="check the permissions"
        ) from error
    try:
        with in_memory(path, opened) as store:
            atomic_write.create(path, store.port.storage.content())
    except OSError as error:
        if not there:
            with suppress(OSError):  # somebody else uses it by now
                os.rmdir(folder)
        room = "free some space and run the same command again"
        raise StoreError(
            f"cannot create {path}: {error.strerror}",
            hint=room if error.errno in NO_ROOM else "check the permissions",
        ) from error
