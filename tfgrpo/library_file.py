"""The library's file for inference: a checkout writes it, and every change by hand anew."""

from __future__ import annotations

import os

from tfgrpo.store.store import Store

SNAPSHOT = "experiences"
ENDINGS = {"json": "json", "md": "md", "prompt": "txt"}


def write_library(store: Store, format_: str = "json", output: str | None = None) -> str:
    """Writes the library at HEAD for inference, by default beside the store; returns where."""
    from tfgrpo import interchange

    name = f"{SNAPSHOT}.{ENDINGS[format_]}"
    path = output or os.path.join(os.path.dirname(store.file), name)
    if output is None:  # beside a database there may be no folder yet
        os.makedirs(os.path.dirname(path) or ".", mode=0o700, exist_ok=True)
    written = None
    while written != (at := store.head.version):  # another process may move it meanwhile
        interchange.save(store, path, at, format_)
        written = at
    return path
