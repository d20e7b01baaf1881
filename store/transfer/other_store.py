"""A store that another one can be brought together with: here, over SSH, or a bundle. A
`FetchSource` gives names and versions; a `Peer` also takes a push."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from tfgrpo.store import signing
from tfgrpo.store.errors import PushRefused, TransferError
from tfgrpo.store.history import name_moves
from tfgrpo.store.history.allowed_names import check_name
from tfgrpo.store.history.revisions import BRANCH, TAG
from tfgrpo.store.history.walks import contained
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store
from tfgrpo.store.transfer.pack import (
    KnownDigests,
    PackedVersion,
    boundary,
    exported,
    find,
    history,
    known,
    missing,
)
from tfgrpo.store.transfer.pack_stream import Names
from tfgrpo.store.transfer.receive import receive


class NameMove(NamedTuple):
    """Where a name of another store has to stand before a push, and where after. None: nowhere."""

    name: str
    before: bytes | None
    after: bytes | None


class FetchSource(Protocol):
    """A store that can be read from here, or a bundle."""

    def names(self) -> Names:
        """Its branches, tags and HEAD."""

    def fetch(self, wants: Sequence[bytes], known: KnownDigests) -> Iterator[PackedVersion]:
        """The history of `wants` as far as `known` has not got it, parents first."""


class Peer(FetchSource, Protocol):
    """A store that can be pushed to from here."""

    def known(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those of these digests that are there."""

    def push(
        self, moves: Sequence[NameMove], versions: Iterable[PackedVersion], *, force: bool
    ) -> None:
        """Records versions and moves names there, all or nothing. Raises PushRefused."""


class StorePeer:
    """A store in a file of this machine, as a peer. Also what `serve` answers from."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def names(self) -> Names:
        """Its branches, tags and HEAD."""
        store = self.store
        with store.port.reading():
            moves = [*store.port.names.refs(BRANCH), *store.port.names.refs(TAG)]
            at = {m.name: store.version(m.version).digest for m in moves if m.version is not None}
            return Names(store.head.branch, at)

    def fetch(self, wants: Sequence[bytes], known: KnownDigests) -> Iterator[PackedVersion]:
        """The history of `wants` as far as `known` has not got it, parents first."""
        port = self.store.port
        stops = boundary(wants, lambda tips, limit: history(port, tips, limit), known)
        yield from exported(port, missing(port, wants, stops))

    def known(self, digests: Sequence[bytes]) -> set[bytes]:
        """Those of these digests that are here."""
        return known(self.store.port, digests)

    def push(
        self, moves: Sequence[NameMove], versions: Iterable[PackedVersion], *, force: bool
    ) -> None:
        """Records versions and moves names here, all or nothing. Raises PushRefused."""
        action = "push of " + ", ".join(parse_name(move.name)[1] for move in moves)
        with self.store.operation(action):
            receive(self.store.port, versions)
            admitted = [step for move in moves for step in self._admitted(move, force)]
            with self.store.forced():  # what is protected was asked about by then
                self.store.move_names(admitted, action)

    def _admitted(self, move: NameMove, force: bool) -> list[tuple[str, int | None, str | None]]:
        """Where a name may go, and what goes with it, or raises PushRefused."""
        kind, name = parse_name(move.name)
        there = self.store.port.names.ref(move.name)
        at = there.version if there else None
        before = None if at is None else self.store.version(at)
        if (before.digest if before else None) != move.before:
            raise PushRefused(
                f"{kind} {name} has just moved",
                hint="someone else pushed first: `tfgrpo pull`, then push again",
            )
        is_protected = name_moves.is_protected(self.store.port, move.name)
        takes_signed = is_protected and os.path.exists(signing.allowed_signers(self.store))
        if is_protected and not force and (move.after is None or not takes_signed):
            raise PushRefused(
                f"{kind} {name} is protected there",
                hint=f"--force moves it anyway; `tfgrpo {kind} --unprotect {name}` there "
                "removes the protection",
            )
        if move.after is None:
            if self.store.head.branch == name and kind == "branch":
                raise PushRefused(f"HEAD is on {name} there", hint="delete it there instead")
            return name_moves.moves_away(self.store.port, move.name)
        after = find(self.store.port, move.after)
        if after is None:
            raise TransferError(f"the version for {kind} {name} was not sent; nothing was recorded")
        if takes_signed:
            signing.require(self.store, move.name, before, after)
        if before is None:
            check_name(kind, name)
        elif not force:
            check_forward(self.store, kind, name, before, after)
        return [(move.name, after.number, None)]


def parse_name(name: str) -> tuple[str, str]:
    """The kind of a name, and the name as people call it. Raises TransferError."""
    for prefix, kind in ((BRANCH, "branch"), (TAG, "tag")):
        if name.startswith(prefix) and len(name) > len(prefix):
            return kind, name[len(prefix) :]
    raise TransferError(
        f"{name!r} is neither a branch nor a tag", hint="only branches and tags can be transferred"
    )


def check_forward(store: Store, kind: str, name: str, before: Version, after: Version) -> None:
    """Raises PushRefused unless a branch moves forward, or a tag stays."""
    if kind == "tag" and before.number != after.number:
        raise PushRefused(
            f"tag {name} is there already, at {before.digest.hex()[:12]}",
            hint="choose another name, or use --force to move it",
        )
    if not contained(store.port, [after.number], {before.number}):
        raise PushRefused(
            f"{name} would not move forward: {before.digest.hex()[:12]} is not in its history",
            hint="`tfgrpo pull` first; use --force to move it anyway",
        )
