"""Bringing two stores together: fetch, pull, push, clone.

Each function ends in one transaction, so a transfer that fails leaves the store as it was, and one
`undo` takes back the moves of names. What travels is what digests cover, the redactions of those
events, and names; runs, journal and evaluations stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tfgrpo.store.errors import InvalidName, TransferError, UnknownRevision
from tfgrpo.store.history import merge as merges
from tfgrpo.store.history.allowed_names import check_name
from tfgrpo.store.history.merge import MergeConflict, RedactedText, Resolve
from tfgrpo.store.history.name_moves import CLONE
from tfgrpo.store.history.revisions import BRANCH, HEAD, REMOTE, TAG, tagged
from tfgrpo.store.history.walks import contained
from tfgrpo.store.opening import DEFAULT_BRANCH
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store
from tfgrpo.store.transfer.other_store import (
    FetchSource,
    NameMove,
    Peer,
    StorePeer,
    parse_name,
    whole_name,
)
from tfgrpo.store.transfer.pack import (
    Names,
    PackedVersion,
    between,
    find,
    known,
)
from tfgrpo.store.transfer.receive import Received, receive, redacted_there
from tfgrpo.store.transfer.remotes import tracked
from tfgrpo.store.withheld_texts import withheld


class Moved(NamedTuple):
    """A name that moved: `origin/main`, `approved`. None: it was not there, or is no more."""

    kind: str
    name: str
    before: Version | None
    after: Version | None


class Transferred(NamedTuple):
    """What a fetch or push did. `kept`: tags that stand elsewhere on the other side, unmoved.
    `redacted`: experiences that the other side has redacted and that have texts here still."""

    received: Received
    moved: tuple[Moved, ...]
    kept: tuple[str, ...]
    redacted: tuple[str, ...] = ()


class Pulled(NamedTuple):
    """What a pull did: the fetch, where the branch stood and stands, and where the other one is."""

    fetched: Transferred
    before: Version
    after: Version
    theirs: Version


def fetch(
    store: Store, source: FetchSource, remote: str, *, branches: Collection[str] | None = None
) -> Transferred:
    """Brings a remote's branches (all without `branches`) and tags here, as `<remote>/<branch>` and
    tags. A tag that stands elsewhere here is left. Raises UnknownRevision, TransferError."""
    names = source.names()
    arriving = _fetched(source, names, store, branches)
    with store.operation(f"fetch {remote}"):
        return _land(store, names, arriving, remote, branches)


def pull(
    store: Store,
    source: FetchSource,
    remote: str | None,
    branch: str,
    *,
    into: str,
    called: str,
    message: str | None = None,
    resolve: Resolve | None = None,
) -> Pulled:
    """Fetches one branch and merges it into a branch here, as one operation, in which and in the
    message the other branch is `called` so; `resolve` decides conflicts. Raises MergeConflict and
    RedactedText, with what was fetched kept, and ProtectedName, with nothing fetched."""
    names = source.names()
    arriving = _fetched(source, names, store, [branch])
    refused: MergeConflict | RedactedText | None = None
    with store.operation(f"pull {called}"):
        fetched = _land(store, names, arriving, remote, [branch])
        before = after = store.tip(into)
        theirs = find(store.port, names.at[BRANCH + branch])
        assert theirs is not None, "it has just landed"
        try:
            text = message or f"merge {called} into {into}"
            after = merges.merge(store, into, theirs, message=text, resolve=resolve)
        except (MergeConflict, RedactedText) as error:
            refused = error
    if refused is not None:
        apart = theirs.digest.hex()[:12] if remote is None else f"{remote}/{branch}"
        redacted = isinstance(refused, RedactedText) or refused.redacted
        side = "--ours, which leaves yours as it is" if redacted else "--ours or --theirs"
        refused.hint = (
            f"what was fetched is kept, and nothing was merged; pull with {side}, "
            f"or resolve each with `tfgrpo merge {apart} --edit`"
        )
        raise refused
    return Pulled(fetched, before, after, theirs)


def push(
    store: Store,
    peer: Peer,
    names: Sequence[str],
    *,
    remote: str | None,
    force: bool = False,
    delete: bool = False,
) -> Transferred:
    """Sends branches and tags to another store, with the tags in the branches' history; all names
    move, or none. `delete` makes it forget them. Raises UnknownRevision, and PushRefused for a
    branch that would not move forward or a tag that stands elsewhere, unless `force`."""
    there, here = peer.names(), StorePeer(store).names()
    named = [whole_name((there if delete else here).at, name) for name in names]
    targets = {one: None if delete else find(store.port, here.at[one]) for one in named}
    moves: list[NameMove] = []
    for name, version in targets.items():
        before = there.at.get(name)
        if version is None or before != version.digest:
            moves.append(NameMove(name, before, version.digest if version else None))
    tags, differing = _tags(store, [v for v in targets.values() if v is not None], there, targets)
    moves += tags
    wants = [move.after for move in moves if move.after is not None]
    outgoing, sent = between(store.port, wants, peer.known), Counter[str]()

    def counted() -> Iterator[PackedVersion]:
        for version in outgoing:
            sent.update(versions=1, events=len(version.events))
            yield version

    if moves:
        peer.push(moves, counted(), force=force)
    received = Received(sent["versions"], sent["events"])
    if remote is not None:
        _note(store, targets, remote)
    return Transferred(received, _pushed(store, moves), differing)


def clone(store: Store, source: FetchSource, remote: str) -> Transferred:
    """Fills a store that was just made: every branch and tag of `source`, HEAD on its branch."""
    names = source.names()
    arriving = _fetched(source, names, store, None)
    branch = names.head if names.head and BRANCH + names.head in names.at else _some_branch(names)
    with store.operation(f"{CLONE}{remote}"):
        landed = _land(store, names, arriving, remote, None)
        tip = find(store.port, names.at[BRANCH + branch])
        assert tip is not None, "it has just landed"
        moves: list[tuple[str, int | None, str | None]] = [
            (BRANCH + branch, tip.number, None),
            (HEAD, tip.number, BRANCH + branch),
        ]
        if branch != DEFAULT_BRANCH:
            moves.append((BRANCH + DEFAULT_BRANCH, None, None))
        store.move_names(moves, "clone")
    return landed


def _fetched(
    source: FetchSource, names: Names, store: Store, branches: Collection[str] | None
) -> Iterator[PackedVersion]:
    """Asks for what is missing here; what comes back has arrived, or is read as it is recorded."""
    for branch in branches or ():
        if BRANCH + branch not in names.at:
            there = [name[len(BRANCH) :] for name in names.at if name.startswith(BRANCH)]
            raise UnknownRevision(
                f"there is no branch {branch!r} there", hint="there is " + ", ".join(there[:8])
            )
    digests = [
        digest
        for name, digest in names.at.items()
        if branches is None or name.removeprefix(BRANCH) in branches
    ]
    wants = [digest for digest in dict.fromkeys(digests) if find(store.port, digest) is None]
    return source.fetch(wants, lambda d: known(store.port, d)) if wants else iter(())


def _land(
    store: Store,
    names: Names,
    arriving: Iterable[PackedVersion],
    remote: str | None,
    branches: Collection[str] | None,
) -> Transferred:
    """Records what arrives and moves the names that follow it. Inside an operation."""
    last = store.port.last_version()
    received = receive(store.port, arriving, withheld(store))
    moves: list[tuple[str, int | None, str | None]] = []
    moved: list[Moved] = []
    differing = []
    before = {} if remote is None else tracked(store.port, remote)
    tags = store.tags()
    for name, digest in names.at.items():
        kind, short = parse_name(name)
        check_name(kind, short, InvalidName)  # somebody else's
        version = find(store.port, digest)
        if kind == "tag":
            if version is None or tags.get(short) == version.number:
                continue
            if short in tags:
                differing.append(short)
                continue
            moves.append((name, version.number, None))
            moved.append(Moved(kind, short, None, version))
        elif remote is not None and (branches is None or short in branches):
            if version is None:
                raise TransferError(f"the version of branch {short} was not sent")
            was = before.pop(short, None)
            if was != version.number:
                moves.append((f"{REMOTE}{remote}/{short}", version.number, None))
                moved.append(_moved(store, f"{remote}/{short}", was, version))
    if remote is not None and branches is None:
        for short, was in before.items():
            moves.append((f"{REMOTE}{remote}/{short}", None, None))
            moved.append(_moved(store, f"{remote}/{short}", was, None))
    if moves:
        store.move_names(moves, "fetch")
    redacted = redacted_there(store.port, last)
    return Transferred(received, tuple(moved), tuple(differing), redacted)


def _moved(store: Store, name: str, before: int | None, after: Version | None) -> Moved:
    return Moved("branch", name, None if before is None else store.version(before), after)


def _some_branch(names: Names) -> str:
    branches = [name[len(BRANCH) :] for name in names.at if name.startswith(BRANCH)]
    if not branches:
        raise TransferError("there is no branch to clone", hint="its HEAD is detached")
    return DEFAULT_BRANCH if DEFAULT_BRANCH in branches else min(branches)


def _tags(
    store: Store, tips: Sequence[Version], there: Names, targets: Collection[str]
) -> tuple[list[NameMove], tuple[str, ...]]:
    """The tags that go along with a push, and those that stand elsewhere over there."""
    open_tags: dict[str, Version] = {}
    for tag, number in store.tags().items():
        version = store.version(number)
        if TAG + tag not in targets and there.at.get(TAG + tag) != version.digest:
            open_tags[tag] = version
    numbers = {tag: tagged(store, version).number for tag, version in open_tags.items()}
    inside = contained(store.port, [tip.number for tip in tips], set(numbers.values()))
    along = {tag: v for tag, v in open_tags.items() if numbers[tag] in inside}
    moves = [
        NameMove(TAG + tag, None, v.digest) for tag, v in along.items() if TAG + tag not in there.at
    ]
    return moves, tuple(tag for tag in along if TAG + tag in there.at)


def _note(store: Store, targets: Mapping[str, Version | None], remote: str) -> None:
    """Moves the names here that say where the pushed branches stand there by now."""
    before = tracked(store.port, remote)
    rows: list[tuple[str, int | None, str | None]] = []
    for name, version in targets.items():
        kind, short = parse_name(name)
        now = None if version is None else version.number
        if kind == "branch" and before.get(short) != now:
            rows.append((f"{REMOTE}{remote}/{short}", now, None))
    if rows:
        store.move_names(rows, f"push to {remote}")


def _pushed(store: Store, moves: Sequence[NameMove]) -> tuple[Moved, ...]:
    moved = []
    for name, before, after in moves:
        kind, short = parse_name(name)
        was = None if before is None else find(store.port, before)
        now = None if after is None else find(store.port, after)
        moved.append(Moved(kind, short, was, now))
    return tuple(moved)
