"""git for what a model has learned: Training-Free GRPO on an event-sourced store.

    import tfgrpo

    library = tfgrpo.library("step_2")
    messages = library.render("A bike is hired from 5 June to 12 June at 5 euros a day …")

Importing this costs nothing until something is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.domains.prompt_library import PromptLibrary
    from tfgrpo.store import Operation as Operation
    from tfgrpo.store import Store as Store

__version__ = "0.1.0"
__all__ = ["Operation", "Store", "__version__", "library"]


def library(revision: str = "HEAD", *, store: Path | str | None = None) -> PromptLibrary:
    """Returns the library in force at a revision, ready to be put into prompts.

    `store` is the path of a store file; without it the nearest `.tfgrpo/store.db` at or above
    the working folder is read. Raises StoreError or UnknownRevision.
    """
    from tfgrpo.api import read_library

    return read_library(revision, store)


def __getattr__(name: str) -> Any:
    if name in ("Store", "Operation"):
        import tfgrpo.store

        return getattr(tfgrpo.store, name)
    raise AttributeError(f"module 'tfgrpo' has no attribute {name!r}")
