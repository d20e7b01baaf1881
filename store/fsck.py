"""Checks everything that can be checked. `repair` mends only what is derived: it drops snapshots
and makes indexes and triggers anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from tfgrpo.store import redact
from tfgrpo.store.canonical import seal, version_digest
from tfgrpo.store.damaged_values import Defect, attempt, is_json
from tfgrpo.store.history import library_order, replay
from tfgrpo.store.history.append import content_of
from tfgrpo.store.records import ROOT, ChainLink, EventRow, Version, lane_of
from tfgrpo.store.sql.port import Port
from tfgrpo.store.store import Store

NOT_REPLAYED = "is not what replay gives"


class Checked(NamedTuple):
    """What was read, and everything that was found wrong, first things first."""

    versions: int
    events: int
    problems: tuple[Defect, ...]


def fsck(store: Store) -> Checked:
    """Recomputes every seal, digest, replay, snapshot and name of the state it finds. Read-only."""
    with store.port.reading():
        return _fsck(store)


def _fsck(store: Store) -> Checked:
    port = store.port
    problems: list[Defect] = []
    versions, events = 0, 0
    blank: set[int] = set()
    snapshots = set(port.counts.snapshot_positions())

    def chain() -> Iterator[Defect]:
        nonlocal versions, events
        digests: dict[int, bytes] = {}
        orders: dict[int, str | None] = {}
        lanes: dict[int, Live] = {}
        shaped: dict[int, tuple[str, int]] = {}
        versions = port.last_version() + 1
        after = 0
        for link in port.chain():
            version = link.version
            yield from (Defect(f"v{n}", "is missing") for n in range(after, version.number))
            after = version.number + 1
            rows = _events(port, version)
            events += len(rows)
            blank.update(row.row for row in rows if row.salt is None and row.seal is not None)
            yield from _version(link, rows, digests)
            wrong = library_order.problem(version.meta, orders.get(version.parent or 0))
            if wrong is not None:
                yield Defect(version.name, wrong)
            orders[version.number] = library_order.source(version)
            yield from _replay(port, version, rows, lanes, shaped)
            if version.position in snapshots:
                snapshots.discard(version.position)
                live = lanes[lane_of(version.position)]
                snapshot = port.snapshot(version.position - 1, version.position)
                if snapshot is None or set(snapshot[1]) != {row for row, _ in live.values()}:
                    yield Defect(f"snapshot {version.position}", NOT_REPLAYED, derived=True)
            digests[version.number] = version.digest
        if (there := port.counts.events()) != events:
            yield Defect("events", f"{there} are there, and versions account for {events}")

    with replay.without_gc():
        problems += attempt("versions", chain)
    problems += [Defect(f"snapshot {at}", NOT_REPLAYED, derived=True) for at in sorted(snapshots)]
    problems += attempt("names", lambda: _names(store, versions))
    problems += attempt("redactions", lambda: _redactions(store, blank))
    problems += port.storage.check()
    return Checked(versions, events, tuple(problems))


def defects(store: Store, version: Version) -> list[Defect]:
    """What is wrong with one version by itself: its seals and its digest. Read-only."""
    with store.port.reading():
        family = store.port.chain({version.number, *version.parents})
        links = {link.version.number: link for link in family}
        digests = {number: link.version.digest for number, link in links.items()}
        return list(_version(links[version.number], _events(store.port, version), digests))


def repair(store: Store) -> int:
    """Drops snapshots and makes indexes and triggers anew; returns how many snapshots went."""
    count = len(store.port.counts.snapshot_positions())
    # Anew first: a trigger of somebody else's could keep the rest from its end.
    store.port.storage.rebuild()
    store.port.storage.drop_snapshots()
    return count


def _events(port: Port, version: Version) -> list[EventRow]:
    return list(port.events(version.position - version.events, version.position))


def _version(link: ChainLink, rows: list[EventRow], digests: dict[int, bytes]) -> Iterator[Defect]:
    version = link.version
    if version.number == 0:
        if version != ROOT:
            yield Defect("v0", "is not the empty library")
        return
    if len(rows) != version.events:
        yield Defect(version.name, f"has {len(rows)} events, and should have {version.events}")
    for row, _, _, text, reason, evidence, _, _, sealed, salt, _ in rows:
        if salt is not None:
            if sealed != seal(salt, text, reason):
                yield Defect(f"event {row}", f"of {version.name}: its text is not what was sealed")
        elif text is not None or reason:
            yield Defect(f"event {row}", f"of {version.name}: its text has no seal")
        if evidence is not None and not is_json(evidence):
            yield Defect(f"event {row}", f"of {version.name}: its evidence is no JSON")
    for parent in version.parents:
        if parent not in digests:
            yield Defect(version.name, f"builds on v{parent}, which is not there before it")
    parents = [digests[p] for p in version.parents if p in digests]
    if version_digest(content_of(version, link.schema, parents, link.meta, rows)) != version.digest:
        yield Defect(version.name, "is not what its digest says")


Live: TypeAlias = dict[str, tuple[int, int]]
"""Experience → the row of the event that last shaped it, and its birth."""


def _replay(
    port: Port,
    version: Version,
    rows: list[EventRow],
    lanes: dict[int, Live],
    shaped: dict[int, tuple[str, int]],
) -> Iterator[Defect]:
    """Checks that events follow on what is live, keeping what is live at each lane's end, and the
    experience and birth of each row that was read."""
    lane = lane_of(version.position)
    if lane not in lanes:
        # By snapshots, of which a wrong one is told as well.
        at = replay.live_rows(port, port.lane_base(lane)) if lane else set[int]()
        lanes[lane] = {shaped[row][0]: (row, shaped[row][1]) for row in at if row in shaped}
    live = lanes[lane]
    for row, op, experience, _, _, _, replaces, birth, _, _, _ in rows:
        standing = live.get(experience)
        if op == "ADD":
            if standing is not None:
                yield Defect(
                    f"event {row}", f"of {version.name}: adds {experience}, which is already there"
                )
        elif standing is None or standing[0] != replaces:
            yield Defect(
                f"event {row}", f"of {version.name}: does not follow the event that it names"
            )
        if op == "DELETE":
            live.pop(experience, None)
        elif op != "KEEP":
            live[experience] = row, birth or row
            shaped[row] = experience, birth or row


def _names(store: Store, versions: int) -> Iterator[Defect]:
    for move in store.port.names.refs(""):
        if move.version is not None and not 0 <= move.version < versions:
            yield Defect(move.name, f"stands at v{move.version}, which is not there")
        if move.symbol is not None and store.port.names.ref(move.symbol) is None:
            yield Defect(move.name, f"follows {move.symbol}, which is not there")


def _redactions(store: Store, blank: set[int]) -> Iterator[Defect]:
    """Checks that what is blank is on record, and what is on record is blank and gone."""
    recorded = set(store.port.redactions.rows())
    for event in sorted(blank - recorded):
        yield Defect(f"event {event}", "was blanked, and no redaction is on record")
    for event in sorted(recorded - blank):
        yield Defect(f"event {event}", "was redacted on record, and still has its content")
    if redact.unfinished(store):
        yield Defect(
            "redaction",
            "was interrupted: removed bytes may be in the file until `tfgrpo redact --finish`",
        )
