"""Bundles: packs in a file, for where no connection leads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tfgrpo.store.atomic_write import SHARED, replacing
from tfgrpo.store.errors import TransferError
from tfgrpo.store.history.revisions import BRANCH
from tfgrpo.store.records import ROOT, Version
from tfgrpo.store.store import Store
from tfgrpo.store.transfer.other_store import StorePeer, whole_name
from tfgrpo.store.transfer.pack import (
    Header,
    KnownDigests,
    Names,
    Pack,
    PackedVersion,
    exported,
    lines,
    missing,
)
from tfgrpo.store.transfer.receive import Received, verified


class Verified(NamedTuple):
    """What a bundle holds, all found right, and the versions it builds on that a store lacks."""

    header: Header
    held: Received
    lacking: tuple[bytes, ...]


class Bundle(Pack):
    """A bundle file, to fetch from. Raises TransferError when it is none, or not whole."""

    def __init__(self, path: Path, file: IO[bytes] | None = None) -> None:
        """Opens the file at `path`, unless `file` is what will lie there."""
        self.path = path
        try:
            file = file or path.open("rb")
        except OSError as error:
            raise TransferError(
                f"cannot read {path}: {error.strerror}", hint="give the path of a bundle file"
            ) from error
        try:
            super().__init__(file, str(path))
        except BaseException:
            file.close()
            raise

    def names(self) -> Names:
        return self.header.names

    def fetch(self, wants: Sequence[bytes], known: KnownDigests) -> Iterator[PackedVersion]:
        """All it holds. Raises TransferError when what it builds on is not `known`."""
        lacking = self._lacking(known)
        if lacking:
            raise TransferError(
                f"{self.path} builds on {lacking[0].hex()[:12]}, which this store lacks",
                hint="fetch from its source, or create one there without --since",
            )
        return self.versions()

    def verify(self, known: KnownDigests) -> Verified:
        """Recomputes every seal and digest. Raises TransferError for the first that is wrong."""
        known_digests: set[bytes] = set(self.header.needs) | {ROOT.digest}
        events = 0
        for version in self.versions():
            verified(version)
            if not known_digests.issuperset(version.parents):
                raise TransferError(
                    f"{self.path}: version {version.digest.hex()[:12]} comes before its parents",
                    hint="create the bundle again",
                )
            known_digests.add(version.digest)
            events += len(version.events)
        for name, digest in self.names().at.items():
            if digest not in known_digests:
                raise TransferError(
                    f"{self.path}: {name} stands at a version that it does not hold",
                    hint="create the bundle again",
                )
        contents = Received(self.count, events)
        return Verified(self.header, contents, self._lacking(known))

    def _lacking(self, known: KnownDigests) -> tuple[bytes, ...]:
        needs = self.header.needs
        there = known(needs)
        return tuple(digest for digest in needs if digest not in there)


def create(
    store: Store, path: Path, names: Sequence[str] = (), *, since: Version | None = None
) -> tuple[Header, int]:
    """Writes the history of branches and tags (all without `names`) to a bundle file; returns its
    header and number of versions. `since` and its history are left out. It is verified before it
    takes the place of a file. Raises UnknownRevision, or TransferError with the old file there."""
    head, at = StorePeer(store).names()
    if names:
        at = {whole: at[whole] for whole in (whole_name(at, name) for name in names)}
    ends = [ROOT.digest] if since is None else [since.digest]
    numbers = missing(store.port, list(at.values()), ends)
    inside = set(numbers)
    outside: dict[int, None] = {}
    for number in numbers:
        for parent in store.version(number).parents:
            if parent not in inside and parent != ROOT.number:
                outside[parent] = None
    needs = {store.version(number).digest for number in outside}
    digests = {store.version(number).digest for number in inside}
    needs |= {d for d in at.values() if d not in digests and d != ROOT.digest}
    header = Header(Names(head if head and BRANCH + head in at else None, at), tuple(sorted(needs)))
    try:
        with replacing(path, mode=SHARED) as file:
            file.writelines(lines(header, exported(store.port, numbers)))
            file.seek(0)
            return header, Bundle(path, file).verify(StorePeer(store).known).held.versions
    except OSError as error:
        raise TransferError(
            f"cannot write {path}: {error.strerror}", hint="the folder must exist"
        ) from error
