"""Libraries in other people's files: writing them, reading them, and making versions of them.

A format is one file in `formats/`; `docs/formats.md` has the table.

**Reading a file twice changes nothing.** An item without an id gets one that follows from its text.
An item whose text its experience had before is left alone, unless `again` says otherwise. A file
never deletes.
"""

from tfgrpo.interchange.format_types import Document, UnreadableLibrary
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
    "UnreadableLibrary",
    "available",
    "by_file_name",
    "export",
    "named",
    "read",
    "save",
    "written",
]
