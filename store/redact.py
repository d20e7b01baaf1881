"""Redaction: removes a text from the store that must not be kept, while every digest still
verifies.

Digests cover an event's salted seal, so text, reason and salt can be blanked, on record in
`redactions`. The text is also taken out of what training left behind. What digests cover themselves
(messages, evidence) is reported.

**No placeholder reaches a model.** Where the text is in force at a branch's tip, a version is
appended that deletes the experience or gives it another text.

**Bytes.** After the transaction the storage is written anew, and the text is taken out of what lies
around the store. A plan beside the store has the text until all of that is done; whatever opens the
store next finishes it.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tfgrpo.store import atomic_write
from tfgrpo.store.activity.decisions import decide, decisions
from tfgrpo.store.address import FOLDER
from tfgrpo.store.canonical import canonical, is_id
from tfgrpo.store.errors import (
    InvalidOperation,
    StoreError,
    TfgrpoError,
    UnknownRevision,
    advice,
)
from tfgrpo.store.history import replay
from tfgrpo.store.records import REDACTS, Event, EventRow, Operation, Redaction, Version
from tfgrpo.store.signing import recordings
from tfgrpo.store.store import Store, event_of
from tfgrpo.store.text_occurrences import (
    REDACTION,
    SHORTEST,
    Occurrence,
    forms,
    matcher,
    matches_bytes,
)
from tfgrpo.store.withheld_texts import remember

Around = Callable[[Sequence[str]], bool]
"""Takes forms of a text out of what lies around a store; returns whether all of it could be."""
TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}")
"""What a file is called that was being written and has not taken its place."""
ENTRY = re.compile(r'"[a-z]+":|\[\d+,"[^]]*]|"[0-9a-f]{64}"')
"""What the content of a decision about redacted texts is made of."""


class Target(NamedTuple):
    """What is to be removed: an experience's events (all, those of one version, or the one at one
    row), and texts. `texts` are looked for everywhere; so are the texts of the experience's
    events."""

    experience: str | None = None
    version: Version | None = None
    row: int | None = None
    texts: tuple[str, ...] = ()


class RedactionPlan(NamedTuple):
    """What a redaction does: events that are blanked, records that are changed, what stays. `live`
    is branch → the experiences in force there whose text goes."""

    events: tuple[Event, ...]
    records: tuple[Occurrence, ...]
    kept: tuple[Occurrence, ...]
    live: dict[str, tuple[str, ...]]
    written: tuple[str, ...]


class HeldNowhere(TfgrpoError):
    """Nothing in the store holds the text."""


class Redacted(NamedTuple):
    """What was done. `finished`: the old bytes are gone from the file and its log."""

    plan: RedactionPlan
    versions: tuple[Version, ...]
    finished: bool


def plan(store: Store, target: Target) -> RedactionPlan:
    """What redacting `target` would do. Raises InvalidOperation for a text that is too short,
    UnknownRevision for no such event, HeldNowhere when nothing holds it."""
    port = store.port
    named = _named_events(store, target)
    texts = [*target.texts, *(row.text for row in named if row.text is not None)]
    for text in texts:
        if len(text.strip()) < SHORTEST and text in target.texts:
            raise InvalidOperation(
                f"a text of fewer than {SHORTEST} characters would match everywhere",
                hint="give the experience instead, or a longer text",
            )
    written = forms(text for text in texts if len(text.strip()) >= SHORTEST)
    rows = {row.row: row for row in named}
    occurrences: list[Occurrence] = []
    if written:
        pattern = matcher(written)
        rows |= {row.row: row for row in port.events_at(port.redactions.events_holding(pattern))}
        occurrences = port.redactions.occurrences(pattern)
    if not rows and not occurrences:
        raise HeldNowhere(
            "nothing in the store contains it",
            hint="it may already be redacted, or be spelled differently",
        )
    live = {}
    live_at = cache(lambda position: replay.live_rows(port, position))  # of many branches
    for branch in store.branches():
        standing = live_at(store.tip(branch).position) & rows.keys()
        ids = tuple(rows[row].experience for row in sorted(standing) if rows[row].text is not None)
        if ids:
            live[branch] = ids
    numbers = port.numbers_of_rows(rows)
    return RedactionPlan(
        tuple(event_of(rows[row], numbers[row]) for row in sorted(rows)),
        tuple(trace for trace in occurrences if trace.kept is None),
        tuple(trace for trace in occurrences if trace.kept is not None),
        live,
        written,
    )


def redact(
    store: Store,
    target: Target,
    *,
    reason: str,
    replacement: str | None = None,
    author: str | None = None,
    around: Around = lambda written: True,
) -> Redacted:
    """Takes `target` out of the store in one transaction, writes the file anew, and has `around` do
    what lies beside it.

    What is kept of its texts is enough to refuse them when they arrive (`withheld_texts.py`).
    Where a redacted text was in force, the experience is deleted, or given `replacement`. Raises
    what `plan` does, ProtectedName, and InvalidOperation when reason, author or replacement hold
    the text, a replacement would stand for several experiences, or a run is under way.
    """
    port = store.port
    author = author or store.author
    _refuse_running(store)
    before = pending(store)
    try:
        for recording in recordings(store):
            with recording:
                redaction = plan(store, target)
                _check(redaction, reason, author, replacement)
                _mark(store, [*before, redaction.written])
                record = [Redaction(author, store.now(), reason)]
                _record_decisions(store, redaction, reason, author)
                gone = [event.text for event in redaction.events if event.text is not None]
                for event in redaction.events:
                    port.redactions.append(event.row, record)
                    port.redactions.blank(event.row)
                if redaction.written:
                    port.redactions.replace(matcher(redaction.written))
                remember(store, target.texts, gone, why=reason, author=author)
                versions = [
                    _take_out(store, branch, ids, reason, author, replacement)
                    for branch, ids in redaction.live.items()
                ]
    except BaseException:
        store.forget()
        _mark(store, before)
        raise
    try:
        finished = finish(store, around)
    except (StoreError, OSError) as error:
        raise StoreError(
            f"the redaction is recorded, and removed bytes may still be in files: {error}",
            hint="put that right, then run `tfgrpo redact --finish`",
        ) from error
    return Redacted(redaction, tuple(versions), finished)


def finish(store: Store, around: Around = lambda written: True) -> bool:
    """Writes the file anew and has `around` do what lies beside it, for every plan that is not
    finished; one that was never recorded is dropped. Returns False when another process is reading.
    Needs as much free space as the store takes. Raises StoreError."""
    if not unfinished(store):
        _mark(store, [()])
    if not store.port.redactions.rewrite():
        return False
    with store.port.transaction():  # nobody is about to record one of them
        plans = [written for written in pending(store) if _is_recorded(store, written)]
        _mark(store, plans or [()])
    done = [around(written) for written in plans or [()]]  # each of them, whatever one said
    if not all(done):
        return False
    for path in copies(store, [form for written in plans for form in written]):
        if TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)
    _mark(store, [])
    return True


def redact_around(store: Store, target: Target, around: Around, *, reason: str) -> bool:
    """Has `around` take texts out of what lies beside a store that does not hold them, on a plan;
    returns whether all of it could be. As much is kept of them as after `redact`. Raises
    StoreError, and InvalidOperation while a run works or when the reason has the text."""
    _refuse_running(store)
    written = forms(target.texts)
    _check(RedactionPlan((), (), (), {}, written), reason, store.author, None)
    _mark(store, [*pending(store), written])
    for recording in recordings(store):
        with recording:
            remember(store, target.texts, why=reason, author=store.author)
    return finish(store, around)


def unfinished(store: Store) -> bool:
    """Whether a redaction's old bytes may still be in a file or a database."""
    return _marker(store).exists() or store.port.redactions.needs_rewrite()


def pending(store: Store) -> list[tuple[str, ...]]:
    """The forms of the texts of each plan that was not finished. Raises StoreError."""
    try:
        return [tuple(written) for written in json.loads(_marker(store).read_bytes() or b"[[]]")]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"cannot read {_marker(store)}: {error}", hint="redact the text again"
        ) from error


def _is_recorded(store: Store, written: Sequence[str]) -> bool:
    """Whether nothing is left in the store that a plan would have changed."""
    if not written:
        return True
    pattern = matcher(written)
    rows = store.port.events_at(store.port.redactions.events_holding(pattern))
    return not rows and all(
        place.kept is not None for place in store.port.redactions.occurrences(pattern)
    )


def copies(store: Store, written: Sequence[str]) -> list[Path]:
    """The files that hold one of these forms of a text: the database and its log with free pages,
    and the rest of its `.tfgrpo` folder, but for the plan."""
    if not written:
        return []
    marker = _marker(store)
    home = store.path.parent
    whole = home.resolve().name == FOLDER
    files = sorted(home.rglob("*") if whole else home.glob(store.path.name + "*"))
    held = [path for path in files if path != marker and holds(path, written)]
    own = {REDACTION + one.subject for one in decisions(store, kind=REDACTION)}
    for one in decisions(store, kind=REDACTION):
        own.update(ENTRY.findall(canonical(one.content).decode()))
    named = str(store.path)
    return [path for path in held if not str(path).startswith(named) or holds(path, written, own)]


def holds(path: Path, written: Sequence[str], but: Collection[str] = ()) -> bool:
    """Whether there is a file that holds one of these forms of a text, other than within what is
    left aside. Raises OSError."""
    pattern = matches_bytes(written)
    if but:  # whose places are passed over: the first that begins is found
        aside = b"|".join(re.escape(one.encode()) for one in sorted(but))
        pattern = re.compile(b"(?P<aside>%b)|%b" % (aside, pattern.pattern))
    if not path.is_file():
        return False
    with suppress(FileNotFoundError), path.open("rb") as file:  # another process may remove it
        if os.fstat(file.fileno()).st_size:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return any(one.lastgroup != "aside" for one in pattern.finditer(content))
    return False


def _refuse_running(store: Store) -> None:
    for run in store.runs.all():
        if store.runs.state(run) == "running":
            raise InvalidOperation(
                f"run {run.name} is in progress and may write the text again",
                hint="stop it first; it can be resumed",
            )


def _named_events(store: Store, target: Target) -> list[EventRow]:
    """The events that are named, without those that have nothing left to blank."""
    if target.experience is None:
        return []
    assert is_id(target.experience), "an experience's whole id"
    rows = store.port.events_of(target.experience)
    if target.row is not None:
        rows = [row for row in rows if row.row == target.row]
    if target.version is not None:
        after, upto = target.version.position - target.version.events, target.version.position
        rows = [row for row in rows if after < row.row <= upto]
    if not rows:
        raise UnknownRevision(
            f"experience {target.experience} has no such event",
            hint=f"`tfgrpo show {target.experience}` shows its events",
        )
    return [row for row in rows if row.salt is not None]


def _check(plan: RedactionPlan, reason: str, author: str, replacement: str | None) -> None:
    if not reason.strip():
        raise InvalidOperation("a redaction needs a reason", hint="it is recorded: use --reason")
    texts = {"reason": reason, "author": author, "replacement": replacement or ""}
    for name, text in texts.items():
        if plan.written and matcher(plan.written).search(text):
            raise InvalidOperation(
                f"the {name} contains the text to be removed", hint="word it differently"
            )
    ids = {id for live in plan.live.values() for id in live}
    if replacement is not None and len(ids) != 1:
        raise InvalidOperation(
            f"a replacement is for one experience; {len(ids)} are in force with the text",
            hint="redact without it, then `tfgrpo add` the new text",
        )


def _record_decisions(store: Store, plan: RedactionPlan, reason: str, author: str) -> None:
    """Records which decisions a redaction takes a text out of, and one about records alone."""
    if plan.records and not plan.events:
        decide(
            store, REDACTION, "records", {"places": len(plan.records)}, why=reason, author=author
        )
    rows = {place.row for place in plan.records if place.table == "decisions"}
    for decision in decisions(store) if rows else ():
        if decision.row in rows:
            decide(store, REDACTION, decision.id, {}, why=reason, author=author)


def _take_out(
    store: Store,
    branch: str,
    ids: Sequence[str],
    reason: str,
    author: str,
    replacement: str | None,
) -> Version:
    operations = [
        Operation("DELETE", id, reason=reason)
        if replacement is None
        else Operation("MODIFY", id, replacement, reason)
        for id in ids
    ]
    return store.commit(
        branch,
        operations,
        message=f"redact {', '.join(ids)}",
        author=author,
        meta={REDACTS: list(ids)},
    )


def _marker(store: Store) -> Path:
    return store.path.with_name(store.path.name + "-redacting")


def _mark(store: Store, plans: Sequence[Sequence[str]]) -> None:
    """Writes the plans down, durably, over what was there; none is no file. Raises StoreError."""
    path = _marker(store)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = None
        with suppress(FileNotFoundError):
            before = os.open(path, os.O_WRONLY | os.O_NOFOLLOW)
        try:
            if plans:
                atomic_write.write(path, json.dumps(plans))
            else:
                path.unlink(missing_ok=True)
            if before is not None:
                os.pwrite(before, b" " * os.fstat(before).st_size, 0)
                os.fsync(before)
        finally:
            if before is not None:
                os.close(before)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}", hint=advice(error)) from error
