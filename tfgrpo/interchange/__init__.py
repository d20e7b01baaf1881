"""Libraries in other people's files: writing them, reading them, and making versions of them.

A format is one file in `formats/`; `docs/formats.md` has the table.

**Reading a file twice changes nothing.** An item without an id gets one that follows from its text.
An item whose text its experience had before is left alone, unless `again` says otherwise. A file
never deletes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfgrpo.interchange.format_types import Document, UnreadableLibrary
    from tfgrpo.interchange.incoming_versions import Imported, bring_in, new_batches, plan
    from tfgrpo.interchange.library_files import (
        available,
        by_file_name,
        export,
        named,
        read,
        save,
        written,
    )

__all__ = [
    "Document",
    "Imported",
    "UnreadableLibrary",
    "available",
    "bring_in",
    "by_file_name",
    "export",
    "named",
    "new_batches",
    "plan",
    "read",
    "save",
    "written",
]
MODULES = ("library_files", "incoming_versions")


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module in MODULES if name in __all__ else ():
        exports = vars(import_module(f"tfgrpo.interchange.{module}"))
        if name in exports:
            return exports[name]
    raise AttributeError(f"module 'tfgrpo.interchange' has no attribute {name!r}")
