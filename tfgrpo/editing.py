"""A person's own operations: what words by hand become, and the library's file for inference."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tfgrpo.rendering.render import one_line
from tfgrpo.store.errors import InvalidOperation, StaleVersion
from tfgrpo.store.records import Library, Operation, Version
from tfgrpo.store.store import Store
from tfgrpo.store.subject import by_hand

SNAPSHOT = "experiences"
ENDINGS = {"json": "json", "md": "md", "prompt": "txt"}


def added(library: Library, texts: Sequence[str], reason: str | None) -> list[Operation]:
    """Returns the operations that add texts; one that the library has is a confirmation."""
    ids = {e.text: e.id for e in library}
    return [
        Operation("KEEP", ids[line], reason=reason)
        if line in ids
        else Operation("ADD", text=line, reason=reason)
        for line in dict.fromkeys(map(one_line, texts))
    ]


def modified(library: Library, id: str, text: str, reason: str | None) -> Operation:
    """Returns the operation that changes a text. Raises InvalidOperation where it says that."""
    text = one_line(text)
    if id in library.by_id and library.by_id[id].text == text:
        label = library.label_of[id]
        raise InvalidOperation(
            f"{label} already says that", hint=f"`tfgrpo keep {label}` confirms it"
        )
    return Operation("MODIFY", id, text, reason)


def add_texts(
    store: Store, branch: str, texts: Sequence[str], *, message: str | None, reason: str | None
) -> Version:
    """Adds texts to a branch as one version, whoever else is writing; returns it."""
    while True:
        library = store.library(store.tip(branch))
        operations = added(library, texts, reason)
        try:
            return commit_by_hand(store, branch, operations, message, expected=library.version)
        except StaleVersion:  # somebody else may have just added one of them
            continue


def commit_by_hand(
    store: Store,
    branch: str,
    operations: Sequence[Operation],
    message: str | None = None,
    *,
    onto: Version | None = None,
    expected: Version | None = None,
) -> Version:
    """Appends a version to a branch, and rewrites the library for inference; returns it.

    Without a message it says which kind of work it was (`subject.by_hand`). `onto` is the version
    that the operations were made for; with `expected` instead, the branch must still stand there.
    Raises StaleVersion and InvalidOperation, as `Store.commit` does.
    """
    message = message or by_hand(operations)
    version = store.commit(branch, operations, message=message, onto=onto, expected=expected)
    write_library(store)
    return version


def write_library(store: Store, format_: str = "json", output: str | None = None) -> str:
    """Writes the library at HEAD for inference, by default beside the store; returns where."""
    from tfgrpo import interchange

    name = f"{SNAPSHOT}.{ENDINGS[format_]}"
    path = output or os.path.join(os.path.dirname(store.file), name)
    written = None
    while written != (at := store.head.version):  # another process may move it meanwhile
        interchange.save(store, path, at, format_)
        written = at
    return path
