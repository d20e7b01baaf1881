"""From a document to versions: what is new in it, what is known, and what is left alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tfgrpo.interchange.format_types import Batch, Document, Item, UnreadableLibrary
from tfgrpo.rendering.experience_texts import one_line
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.errors import StaleVersion
from tfgrpo.store.history.walks import row_ranges, row_within
from tfgrpo.store.records import REDACTED, Json, Op, Operation, Version
from tfgrpo.store.signing import recordings
from tfgrpo.store.store import Store

IMPORT = "import"
"""The key of a version's meta under which it says what it was made from."""


class ImportPlan(NamedTuple):
    """What reading items would do: the operations, how many texts the library holds already, and
    the ids of those that later versions changed, deleted or redacted, which are left alone."""

    operations: tuple[Operation, ...]
    known: int
    left: tuple[str, ...]


class Imported(NamedTuple):
    """What became of a document: the versions made, and as in `ImportPlan`."""

    versions: tuple[Version, ...]
    known: int
    left: tuple[str, ...]


def plan(
    store: Store,
    items: Iterable[Item],
    provenance: Json,
    revision: str | Version = "HEAD",
    *,
    again: bool = False,
) -> ImportPlan:
    """What makes the library at a revision hold `items` too. White space makes no difference. With
    `again`, texts that an experience had before are put back as well."""
    library = store.library(revision)
    ranges = row_ranges(store.port, library.version.position)
    texts = {e.id: one_line(e.text) for e in library}
    present = set(texts.values())
    operations: list[Operation] = []
    left: list[str] = []
    handled: set[str] = set()
    former: dict[str, str] | None = None
    known = 0
    for item in items:
        text = one_line(item.text)
        carried = item.id is not None and item.id not in handled
        id = item.id if item.id is not None and carried else derived_id(IMPORT, text)
        if not carried and text not in present:
            former = _former(store, ranges) if former is None else former
            id = former.get(text, id)
        elsewhere = text in present and not (carried and id in texts)
        if elsewhere or id in handled or texts.get(id) == text:
            known += 1
        elif text == REDACTED or (not again and _had_text(store, id, text, ranges)):
            left.append(id)
        else:
            op: Op = "MODIFY" if id in texts else "ADD"
            evidence = {**(item.evidence or {}), **provenance}
            operations.append(Operation(op, id, item.text, item.reason, evidence))
        handled.add(id)
    return ImportPlan(tuple(operations), known, tuple(left))


def _former(store: Store, ranges: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Text → the experience that had it last, of all that a history tells."""
    return {
        one_line(row.text): row.experience
        for after, upto in ranges
        for row in store.port.events(after, upto)
        if row.text is not None
    }


def _had_text(store: Store, id: str, text: str, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(
        event.redacted or (event.text is not None and one_line(event.text) == text)
        for event in store.history(id)
        if row_within(event.row, ranges)
    )


def bring_in(
    store: Store,
    document: Document,
    branch: str,
    *,
    message: str | None = None,
    again: bool = False,
) -> Imported:
    """Makes versions of a document on a branch, all or none: one of a library, as many as it tells
    of a history. Each says which file it is from. Raises UnreadableLibrary with file and line."""
    if document.batches:
        return _history(store, document, branch)
    while True:
        tip = store.tip(branch)
        import_plan = plan(store, document.items, document.provenance, tip, again=again)
        if not import_plan.operations:
            return Imported((), import_plan.known, import_plan.left)
        try:
            version = store.commit(
                branch,
                import_plan.operations,
                message=message or f"import {document.name}",
                meta={IMPORT: {**document.meta, **document.provenance}},
                expected=tip,
            )
        except StaleVersion:  # another process has just moved the branch: see what is new there
            continue
        return Imported((version,), import_plan.known, import_plan.left)


def _history(store: Store, document: Document, branch: str) -> Imported:
    for recording in recordings(store, f"import {document.name}"):
        with recording:
            versions = []
            new = new_batches(store, document, branch)
            for batch in new:
                origin = {**document.provenance, "version": batch.digest}
                operations = [
                    operation._replace(evidence={**(operation.evidence or {}), IMPORT: origin})
                    for operation in batch.operations
                ]
                meta = {IMPORT: {**batch.origin, **origin}}
                version = store.commit(
                    branch, operations, message=batch.message, meta=meta, order=batch.order
                )
                versions.append(version)
    return Imported(tuple(versions), len(document.batches) - len(new), ())


def new_batches(store: Store, document: Document, branch: str) -> list[Batch]:
    """The batches of a history that a branch lacks. Raises UnreadableLibrary with file and line."""
    tip = store.tip(branch)
    here: set[object] = set()
    for version in store.log(tip):
        origin = version.meta.get(IMPORT)
        here |= {
            version.digest.hex(),
            origin.get("version") if isinstance(origin, Mapping) else None,
        }
    new = [batch for batch in document.batches if batch.digest not in here]
    _check(document, new, {e.id for e in store.library(tip)})
    return new


def _check(document: Document, batches: Sequence[Batch], live: set[str]) -> None:
    for batch in batches:
        touched: set[str] = set()
        for operation, line in zip(batch.operations, batch.lines, strict=True):
            op, id = operation.op, operation.experience or ""
            what = None
            if op == "ADD" and id in live:
                what = f"adds {id}, which the library holds already"
            elif op == "ADD" and id in touched:
                what = f"deletes {id} and adds it in one version"
            elif op != "ADD" and id not in live:
                what = f"{op} of {id}, which the library does not hold"
            if what:
                raise UnreadableLibrary(
                    f"{document.path}:{line}: {what}",
                    hint="read a history into a branch that holds what it builds on, "
                    "or export a library instead",
                )
            touched.add(id)
            if op == "ADD":
                live.add(id)
            elif op == "DELETE":
                live.discard(id)
