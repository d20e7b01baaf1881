"""A person's own operations: what words by hand become, and the library's file for inference,
which a checkout writes, and every change by hand anew."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tfgrpo.rendering.experience_texts import one_line
from tfgrpo.store.canonical import new_id
from tfgrpo.store.errors import NO_ROOM, InvalidOperation, StaleVersion, StoreError
from tfgrpo.store.history.library_order import ids_of, moved, placed
from tfgrpo.store.history.log_filter import NAMED, by_hand
from tfgrpo.store.records import Library, Operation, Version
from tfgrpo.store.signing import recordings
from tfgrpo.store.store import Store

ENDINGS = {"json": "json", "md": "md", "prompt": "txt"}


def files_beside(store: Store) -> dict[str, str]:
    """Where a library lies beside its store, by format."""
    folder = os.path.dirname(store.file)
    return {kind: os.path.join(folder, f"experiences.{end}") for kind, end in ENDINGS.items()}


def write_library(store: Store, format_: str = "json", output: str | None = None) -> str:
    """Writes the library at HEAD for inference, by default beside the store, where those that lie
    there in other formats are written anew too; returns where. Raises StoreError, which says that
    the store itself has what it should."""
    from tfgrpo import interchange

    folder, beside = os.path.dirname(store.file), files_beside(store)
    wanted = {format_: output or beside[format_]}
    if output is None:
        wanted |= {kind: path for kind, path in beside.items() if os.path.exists(path)}
    written = None
    try:
        if output is None:  # beside a database there may be no folder yet
            os.makedirs(folder or ".", mode=0o700, exist_ok=True)
        while written != (at := store.head.version):  # another process may move it meanwhile
            for kind, path in wanted.items():
                interchange.save(store, path, at, kind)
            written = at
    except OSError as error:
        advice = "free some space" if error.errno in NO_ROOM else "check the permissions"
        raise StoreError(
            f"{at.name} is recorded, and {path} could not be written: {error.strerror}",
            hint=f"do not repeat it; {advice}, then `tfgrpo checkout HEAD` writes the file",
        ) from error
    return wanted[format_]


def modified(library: Library, id: str, text: str, reason: str | None) -> Operation:
    """The operation that changes a text. Raises InvalidOperation where it says that, in those
    lines or in one."""
    if id in library.by_id and library.by_id[id].text in (text, one_line(text)):
        label = library.label_of[id]
        raise InvalidOperation(
            f"{label} already says that", hint=f"`tfgrpo keep {label}` confirms it"
        )
    return Operation("MODIFY", id, one_line(text), reason)


def add_texts(
    store: Store, branch: str, texts: Sequence[str], message: str | None, reason: str | None
) -> Version:
    """Adds texts to a branch as one version, whoever else is writing; returns it. One that the
    library has is a confirmation."""
    while True:
        library = store.library(store.tip(branch))
        ids = {e.text: e.id for e in library}
        operations = [
            Operation("KEEP", ids[line], reason=reason)
            if line in ids
            else Operation("ADD", text=line, reason=reason)
            for line in dict.fromkeys(map(one_line, texts))
        ]
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
    order: Sequence[str] | None = None,
) -> Version:
    """Appends a version to a branch, for operations made `onto` a version or with the branch
    still at `expected`, in `order`, and rewrites the library. Raises StaleVersion and
    InvalidOperation."""
    message = message or by_hand(operations)
    version = store.commit(
        branch, operations, message=message, onto=onto, expected=expected, order=order
    )
    write_library(store)
    return version


def move_experiences(
    store: Store,
    branch: str,
    ids: Sequence[str],
    *,
    before: str | None = None,
    after: str | None = None,
    last: bool = False,
    message: str | None = None,
    reason: str | None = None,
) -> Version:
    """Moves experiences of a branch's library, whoever else writes, as one version: `before` or
    `after` another one, to the end, or else to the beginning. Raises InvalidOperation for one that
    is not there, and where they stand there already."""
    for recording in recordings(store):
        with recording:
            library = store.library(store.tip(branch))
            if missing := [id for id in ids if id not in library.by_id]:
                raise InvalidOperation(
                    f"the library of {branch} has no {missing[0]}",
                    hint="`tfgrpo show HEAD` lists them",
                )
            order = placed(ids_of(library), ids, before=before, after=after, last=last)
            if order == ids_of(library):
                raise InvalidOperation("nothing would move: they stand there already")
            words = _why_moved(message or move_message(ids), reason)
            version = store.commit(branch, [], message=words, order=order)
    write_library(store)
    return version


def arrange_library(
    store: Store, branch: str, order: Sequence[str], *, onto: Version, reason: str
) -> Version | None:
    """Puts a branch's library in an order made for the version `onto`, with what came since
    last; None where nothing moves. Raises StaleVersion where it was put in another order since."""
    ids = moved(ids_of(store.library(onto)), order)
    if not ids:
        return None
    message = _why_moved(move_message(ids), reason)
    return commit_by_hand(store, branch, [], message, onto=onto, order=order)


def commit_edit(
    store: Store,
    branch: str,
    library: Library,
    content: str,
    *,
    message: str | None = None,
    reason: str | None = None,
) -> Version | None:
    """Records what an edited `document` asks for as one version, None where nothing changed; a
    reason goes to each event, else into the message. Raises UnreadableEdit, StaleVersion."""
    from tfgrpo.rendering.markdown_edit import edited

    edit = edited(library, content)
    if not edit.operations and edit.order is None:
        return None
    operations = [operation._replace(reason=reason) for operation in edit.operations]
    if edit.order is None:
        return commit_by_hand(store, branch, operations, message, onto=library.version)
    new = iter([new_id() for operation in operations if operation.op == "ADD"])
    order = [id or next(new) for id in edit.order]
    added = iter([id for id, there in zip(order, edit.order, strict=True) if there is None])
    operations = [o._replace(experience=next(added)) if o.op == "ADD" else o for o in operations]
    ids = moved(ids_of(library), order)
    if not message:
        parts = [by_hand(operations), move_message(ids) if ids else ""]
        message = "; ".join(part for part in parts if part)
    if not operations:
        message = _why_moved(message, reason)
    return commit_by_hand(store, branch, operations, message, onto=library.version, order=order)


def move_message(ids: Sequence[str]) -> str:
    """The message of a version that moves experiences."""
    return f"move {', '.join(ids) if len(ids) <= NAMED else f'{len(ids)} experiences'}"


def _why_moved(message: str, reason: str | None) -> str:
    """A message with the reason: a move is in no event that could have one."""
    return f"{message}: {reason.strip()}" if reason and reason.strip() else message
