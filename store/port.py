"""The small port behind which everything that needs SQL stands.

Replay, diff, revisions, commits, runs, the journal, remotes and redaction are written against
this protocol alone and its parts in `port_records.py`. SQLite is the embedded implementation
(`sqlite/`), and `default.py` chooses it; another one has to pass the contract tests in
`tests/port_contract.py` and nothing else changes.

**Rows and lanes.** An event's row number is `lane << 40 | place`. A lane is a run of versions
in which each builds on the one before, so the history of a branch is a few ranges of
consecutive rows: no index and no join. A version that builds on anything but the tip of a lane
opens a new lane, which remembers the row at which it left. Lanes and rows are local to a store
and never enter a digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from tfgrpo.store.records import Op, RefMove, Version

if TYPE_CHECKING:
    import re

    from tfgrpo.store.checks import Defect
    from tfgrpo.store.occurrences import Occurrence
    from tfgrpo.store.port_records import JournalWriter, Records

LANE_BITS = 40
EVENT_SCHEMA = 1
VERSION_SCHEMA = 1


def lane_of(row: int) -> int:
    """Returns the lane that a row or position belongs to."""
    return row >> LANE_BITS


def lane_start(lane: int) -> int:
    """Returns the position before the first row of a lane."""
    return lane << LANE_BITS


class EventRow(NamedTuple):
    """An event as it lies in the store."""

    row: int
    op: Op
    experience: str
    text: str | None
    reason: str | None
    evidence: str | None
    replaces: int | None
    birth: int | None
    seal: bytes | None
    salt: bytes | None
    schema: int


class Deletion(NamedTuple):
    """A DELETE: of which experience, at which row, and the experience's birth."""

    experience: str
    row: int
    birth: int | None


class Redaction(NamedTuple):
    """That an event's text was blanked: by whom, when (microseconds, UTC) and why."""

    author: str
    time: int
    reason: str


Step: TypeAlias = tuple[int, Op, int | None]
"""What replay needs of an event: its row, its operation, the row that it replaces."""

Shape: TypeAlias = tuple[str, str | None, int, int]
"""What a library needs of a live event: experience, text (None: redacted), row, birth.

Both are bare tuples because a checkout reads thousands of them.
"""


class ChainLink(NamedTuple):
    """A version with what only its digest asks for: its schema, and its meta as stored."""

    version: Version
    schema: int
    meta: str | None


class Merge(NamedTuple):
    """A version with a second parent: the row of its last event, how many it has, and the row of
    the second parent's last."""

    position: int
    events: int
    merged: int


class BranchTip(NamedTuple):
    """Where a name stands, with all that an append to it has to know of the store.

    `version` is the number of `tip`, and `symbol` that of the name's last move. `last_version` and
    `last_move` are the highest number and row that there are. `ends_lane` is whether nothing has
    been recorded in its lane after the tip.
    """

    name: str
    tip: Version
    version: int
    symbol: str | None
    last_version: int
    last_move: int
    ends_lane: bool
    is_protected: bool


class Port(Protocol):
    """Append versions, read events and versions, append to and read the ref log."""

    def close(self) -> None:
        """Releases the file or connection."""

    def transaction(self) -> AbstractContextManager[None]:
        """Everything written inside lands whole or not at all; other writers wait.

        One inside another joins it.
        """

    def reading(self) -> AbstractContextManager[None]:
        """Everything read inside is of one state, whatever others commit meanwhile.

        No writer waits for it. Nothing is written inside; one inside another, or inside a
        transaction, joins it.
        """

    def changes(self) -> int:
        """Returns what is something else after anybody else has committed.

        Asked before every request of an application: it costs microseconds.
        """

    # versions and events:

    def last_version(self) -> int:
        """Returns the highest version number."""

    def version(self, number: int) -> Version | None:
        """Returns the version of that number."""

    def versions_at(self, numbers: Iterable[int]) -> list[Version]:
        """Returns the versions of these numbers, those that there are, ascending."""

    def chain(self) -> Iterator[ChainLink]:
        """Yields every version, numbers ascending, with what its digest is made from."""

    def version_schema(self, number: int) -> int:
        """Returns the number of the rule by which a version's digest is made."""

    def version_meta(self, number: int) -> str | None:
        """Returns a version's meta as it is stored: what its digest covers."""

    def recorder(self, number: int) -> str | None:
        """Returns the user by whom a version was recorded, where the storage itself says so: a
        database does, of who was connected; a file says nothing."""

    def versions_by_digest(self, prefix: str, limit: int) -> list[Version]:
        """Returns versions whose digest in hex begins with `prefix`."""

    def first_since(self, time: int) -> int | None:
        """Returns the lowest number of the versions recorded at `time` or later, if any.

        Microseconds since 1970. This reads every version.
        """

    def version_of_row(self, row: int) -> Version:
        """Returns the version that holds the event at `row`."""

    def numbers_of_rows(self, rows: Iterable[int]) -> dict[int, int]:
        """Returns row → the number of the version that holds the event there."""

    def merges(self, after: int, upto: int) -> list[Merge]:
        """Returns the merges whose last event is in a range (after, upto] of rows, ascending."""

    def lane_tip(self, position: int) -> bool:
        """Returns whether nothing has been recorded in the lane after `position`."""

    def lane_base(self, lane: int) -> int:
        """Returns the row at which the lane left an earlier one."""

    def open_lane(self, base: int) -> int:
        """Opens a lane that leaves at `base`; returns its number."""

    def append_version(self, version: Version, events: Sequence[EventRow]) -> None:
        """Records a version and its events. Only inside a transaction."""

    def steps(self, after: int, upto: int) -> Iterable[Step]:
        """Returns what replay needs of the events with after < row <= upto, KEEPs left out."""

    def events(self, after: int, upto: int) -> Iterator[EventRow]:
        """Yields the events with after < row <= upto, in order."""

    def events_at(self, rows: Iterable[int]) -> list[EventRow]:
        """Returns the events at these rows, in row order."""

    def shapes_at(self, rows: Iterable[int]) -> list[Shape]:
        """Returns what a library needs of the events at these rows, in row order."""

    def events_of(self, experience: str) -> list[EventRow]:
        """Returns every event of one experience, in row order, whatever branch it is on."""

    def deletions_of(self, experiences: Iterable[str]) -> list[Deletion]:
        """Returns every DELETE of these experiences, in row order, whatever branch it is on."""

    def count_keeps(
        self, rows: Mapping[str, int], ranges: Sequence[tuple[int, int]]
    ) -> dict[int, int]:
        """Returns row → how many KEEPs in these ranges (after, upto] confirm the event there.

        `rows` has the rows to look at by experience: an experience has one live event at most.
        """

    def experiences_like(self, prefix: str, limit: int) -> list[str]:
        """Returns the ids that begin with `prefix`."""

    def count_events(self) -> int:
        """Returns how many events there are."""

    def count_ops(self, after: int, upto: int) -> dict[Op, int]:
        """Returns how many events of each kind have after < row <= upto."""

    def count_versions(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Returns how many versions with events end in these ranges (after, upto] of rows."""

    def count_modified(self, ranges: Sequence[tuple[int, int]]) -> dict[str, int]:
        """Returns experience → how many MODIFYs it has in these ranges (after, upto] of rows."""

    # snapshots (derived):

    def snapshot(self, after: int, upto: int) -> tuple[int, list[int]] | None:
        """Returns the latest snapshot with after < position <= upto: its position, live rows."""

    def put_snapshot(self, position: int, live: Sequence[int]) -> None:
        """Records a snapshot. Only inside a transaction."""

    def snapshot_positions(self) -> list[int]:
        """Returns the positions of all snapshots, ascending."""

    def snapshot_sizes(self) -> list[int]:
        """Returns how many bytes each snapshot takes, by position."""

    def drop_snapshots(self) -> None:
        """Forgets every snapshot."""

    # names:

    def ref(self, name: str) -> RefMove | None:
        """Returns the latest move of a name."""

    def refs(self, prefix: str) -> list[RefMove]:
        """Returns the latest move of each name that begins with `prefix`, names ascending."""

    def last_move(self) -> int:
        """Returns the row of the newest move; 0 where there is none."""

    def marks_at(self, number: int, upto: int) -> list[str]:
        """Returns the tags and remote branches (whole names, ascending) that stood at a version
        right after the move in row `upto`."""

    def head(self) -> tuple[str | None, Version] | None:
        """Returns the name that HEAD follows (None: it is detached) and the version that it is at;
        None where either cannot be told."""

    def standing(self, name: str) -> Version | None:
        """Returns the version that a name stands at now."""

    def branch_tip(self, name: str) -> BranchTip | None:
        """Returns where a name stands, and what an append to it has to know; None where it stands
        nowhere."""

    def ref_log(self, name: str | None) -> Iterator[RefMove]:
        """Yields the moves of a name (None: of all names), newest first."""

    def append_refs(
        self, moves: Sequence[RefMove], batch: int | None = None, *, after: int | None = None
    ) -> int:
        """Records moves, whose own `row` and `batch` are ignored. Only inside a transaction.

        They join `batch`, or are one of their own; returns it. `after` is `last_move`, where the
        caller has just asked for it.
        """

    # redaction:

    def redactions(self, row: int) -> list[Redaction]:
        """Returns the redactions of the event at `row`, oldest first."""

    def append_redactions(self, row: int, redactions: Sequence[Redaction]) -> None:
        """Records redactions of the event at `row`. Only inside a transaction."""

    def blank(self, row: int) -> None:
        """Blanks text, reason and salt of an event whose redaction is on record. Only inside a
        transaction."""

    def last_redaction(self) -> int:
        """Returns a number that grows with every redaction, whoever records it."""

    def redacted(self) -> list[int]:
        """Returns the rows of the events whose redaction is on record, ascending."""

    def events_holding(self, pattern: re.Pattern[str]) -> list[int]:
        """Returns the rows of the events whose text or reason has the pattern in it, ascending."""

    def occurrences(self, pattern: re.Pattern[str]) -> list[Occurrence]:
        """Returns every other place that has the pattern in it, and whether it can be replaced."""

    def replace(self, pattern: re.Pattern[str]) -> None:
        """Replaces the pattern in the places that can be, and marks the answers that had it as
        redacted. Only inside a transaction."""

    def rewrite(self) -> bool:
        """Removes the last byte of what was deleted or replaced; returns False when that has to
        be done again later, because somebody is reading."""

    # remotes:

    def remotes(self) -> dict[str, str]:
        """Returns name → location of other stores, names ascending."""

    def put_remote(self, name: str, location: str) -> None:
        """Adds a remote, or moves the one of that name. Only inside a transaction."""

    def drop_remote(self, name: str) -> None:
        """Forgets a remote. Only inside a transaction."""

    # records of training and evaluation:

    @property
    def records(self) -> Records:
        """Runs, rollouts, calls and evaluations; written in this port's transactions."""

    def evaluated(self) -> bool:
        """Returns whether there is any evaluation: asked where `records` takes long to load."""

    def writer(self) -> JournalWriter:
        """Returns a writer to the journal, for another thread; opens nothing yet."""

    # the storage itself:

    def content(self) -> bytes:
        """Returns what a file with all of this storage in it holds."""

    def size(self) -> int:
        """Returns how many bytes the storage takes."""

    def check_storage(self) -> list[Defect]:
        """Returns what is wrong with the storage, and with what no digest covers. Reads all of
        it; a check that damage keeps from its end is a problem itself. Raises nothing."""

    def checking_storage(self) -> Callable[[], list[Defect]]:
        """Begins what `check_storage` does, beside the caller where that saves time; returns what
        waits for its end and gives what was found."""

    def rebuild(self) -> None:
        """Makes anew what the storage derives from what is stored: indexes and triggers."""
