"""The library's file for inference: a checkout writes it, and every change by hand anew."""

from __future__ import annotations

import os

from tfgrpo.store.errors import NO_ROOM, StoreError
from tfgrpo.store.store import Store

SNAPSHOT = "experiences"
ENDINGS = {"json": "json", "md": "md", "prompt": "txt"}


def write_library(store: Store, format_: str = "json", output: str | None = None) -> str:
    """Writes the library at HEAD for inference, by default beside the store; returns where. Raises
    StoreError, which says that the store itself has what it should."""
    from tfgrpo import interchange

    name = f"{SNAPSHOT}.{ENDINGS[format_]}"
    path = output or os.path.join(os.path.dirname(store.file), name)
    written = None
    try:
        if output is None:  # beside a database there may be no folder yet
            os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
        while written != (at := store.head.version):  # another process may move it meanwhile
            interchange.save(store, path, at, format_)
            written = at
    except OSError as error:
        raise StoreError(
            f"{at.name} is recorded, and {path} could not be written: {error.strerror}",
            hint=f"do not repeat it; {_advice(error)}, then `tfgrpo checkout HEAD` writes the file",
        ) from error
    return path


def _advice(error: OSError) -> str:
    return "free some space" if error.errno in NO_ROOM else "check the permissions"
