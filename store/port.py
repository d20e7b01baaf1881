"""The ports behind which everything that needs a database stands.

What SQLite (`sqlite/`) and PostgreSQL (`postgres/`) do alike is in `sql/`. Another implementation
passes the contract in `tests/port_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, get_args

from tfgrpo.store.records import (
    BranchTip,
    ChainLink,
    Deletion,
    EventRow,
    Merge,
    Op,
    Redaction,
    RefMove,
    Shape,
    Step,
    Version,
)

if TYPE_CHECKING:
    import re

    from tfgrpo.store.activity.decisions import Decision, DecisionFilter
    from tfgrpo.store.activity.runs import (
        AttemptTail,
        Call,
        DaySpent,
        Evaluation,
        RewardRow,
        RolloutRow,
        Run,
        RunState,
        SaidRow,
        Score,
        Spent,
        SpentTail,
        Usage,
    )
    from tfgrpo.store.damaged_values import Defect
    from tfgrpo.store.errors import StoreError
    from tfgrpo.store.records import Json
    from tfgrpo.store.text_occurrences import Occurrence


Level: TypeAlias = Literal["reader", "trainer", "reviewer", "owner"]
LEVELS: tuple[Level, ...] = get_args(Level)


Work: TypeAlias = Literal["train", "decide"]
"""What not every member of a shared store may do: record runs, decide about production."""


CallValues: TypeAlias = tuple[
    bytes, int | None, str, int | None, str, str, str, int, int, int, int, int, float, int
]
"""What a `Call` has, in its order, its answer as canonical JSON."""

RolloutValues: TypeAlias = tuple[int, int, str, int, int, str, str, float | None, str, int]
"""What a `RolloutRow` has, in its order, its calls as a JSON list and its verdict as canonical
JSON. Whoever hands rows in makes the JSON: what is none is an error before it is in a batch."""


class Port(Protocol):
    """Versions and events: append, and read."""

    @property
    def names(self) -> Names: ...

    @property
    def redactions(self) -> Redactions: ...

    @property
    def counts(self) -> Counts: ...

    @property
    def storage(self) -> Storage: ...

    @property
    def records(self) -> Records:
        """Runs, rollouts, calls and evaluations; written in this port's transactions."""

    def close(self) -> None:
        """Releases the file or connection."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""

    def transaction(self) -> AbstractContextManager[None]:
        """Everything written inside lands whole or not at all. One inside another joins it."""

    def reading(self) -> AbstractContextManager[None]:
        """Everything read inside is of one state, whatever others commit meanwhile. No writer waits
        for it. Nothing is written inside; one inside another, or inside a transaction, joins it."""

    def changes(self) -> int:
        """A number that changes after anybody else has committed. Costs microseconds."""

    def last_version(self) -> int:
        """The highest version number; below 0 where there is none."""

    def version(self, number: int) -> Version | None:
        """The version of that number."""

    def versions_at(self, numbers: Iterable[int]) -> list[Version]:
        """The versions of these numbers, those that there are, ascending."""

    def chain(self, numbers: Iterable[int] | None = None) -> Iterator[ChainLink]:
        """Every version (of these numbers), ascending, with what its digest is made from."""

    def versions_by_digest(self, prefix: str, limit: int) -> list[Version]:
        """Versions whose digest in hex begins with `prefix`."""

    def first_since(self, time: int) -> int | None:
        """The lowest number of the versions since `time` (microseconds). Reads every version."""

    def numbers_of_rows(self, rows: Iterable[int]) -> dict[int, int]:
        """Row → the number of the version that holds the event there. Raises StoreError."""

    def merges(self, after: int, upto: int) -> list[Merge]:
        """The merges whose last event is in a range (after, upto] of rows, ascending."""

    def append_version(self, version: Version, events: Sequence[EventRow]) -> None:
        """Records a version and its events. Only inside a transaction."""

    def lane_tip(self, position: int) -> bool:
        """Whether nothing has been recorded in the lane after `position`."""

    def lane_base(self, lane: int) -> int:
        """The row at which the lane left an earlier one."""

    def open_lane(self, base: int) -> int:
        """Opens a lane that leaves at `base`; returns its number. Only inside a transaction."""

    def steps(self, after: int, upto: int) -> Iterable[Step]:
        """What replay needs of the events with after < row <= upto, KEEPs left out."""

    def events(self, after: int, upto: int) -> Iterator[EventRow]:
        """The events with after < row <= upto, in order."""

    def events_at(self, rows: Iterable[int]) -> list[EventRow]:
        """The events at these rows, in row order."""

    def shapes_at(self, rows: Iterable[int]) -> list[Shape]:
        """What a library needs of the events at these rows, in row order."""

    def events_of(self, experience: str) -> list[EventRow]:
        """Every event of one experience, in row order, whatever branch it is on."""

    def deletions_of(self, experiences: Iterable[str]) -> list[Deletion]:
        """Every DELETE of these experiences, in row order, whatever branch it is on."""

    def experiences_like(self, prefix: str, limit: int) -> list[str]:
        """The ids that begin with `prefix`."""

    def snapshot(self, after: int, upto: int) -> tuple[int, list[int]] | None:
        """The latest snapshot with after < position <= upto: its position, live rows."""

    def put_snapshot(self, position: int, live: Sequence[int]) -> None:
        """Records a snapshot. Only inside a transaction."""


class Names(Protocol):
    """The ref log, which says where names stand, and the remotes."""

    def ref(self, name: str) -> RefMove | None:
        """The latest move of a name."""

    def refs(self, prefix: str) -> list[RefMove]:
        """The latest move of each name that begins with `prefix`, names ascending."""

    def last_move(self) -> int:
        """The row of the newest move; 0 where there is none."""

    def marks_at(self, number: int, upto: int) -> list[str]:
        """The tags and remote branches that stood at a version after the move in row `upto`, those
        tags too whose own version, as a signed one has it, is on top of it."""

    def head(self) -> tuple[str | None, Version] | None:
        """The name that HEAD follows (None: detached) and its version; None where it is unknown."""

    def standing(self, name: str) -> Version | None:
        """The version that a name stands at now."""

    def branch_tip(self, name: str) -> BranchTip | None:
        """Where a name stands, with the values that an append needs; None where it stands
        nowhere."""

    def ref_log(self, name: str | None) -> Iterator[RefMove]:
        """The moves of a name (None: of all names), newest first."""

    def append_refs(
        self, moves: Sequence[RefMove], batch: int | None = None, *, after: int | None = None
    ) -> int:
        """Records moves, whose own `row` and `batch` are ignored, in `batch` or one of their own;
        returns it. `after` is `last_move`, if known. Only inside a transaction."""

    def remotes(self) -> dict[str, str]:
        """Name → location of other stores, names ascending."""

    def put_remote(self, name: str, location: str) -> None:
        """Adds a remote, or moves the one of that name. Only inside a transaction."""

    def drop_remote(self, name: str) -> None:
        """Forgets a remote. Only inside a transaction."""


class Redactions(Protocol):
    """What was redacted, and how a text is found and taken out."""

    def of(self, row: int) -> list[Redaction]:
        """The redactions of the event at `row`, oldest first."""

    def append(self, row: int, redactions: Sequence[Redaction]) -> None:
        """Records redactions of the event at `row`. Only inside a transaction."""

    def blank(self, row: int) -> None:
        """Blanks text, reason and salt of a redacted event. Only inside a transaction."""

    def last(self) -> int:
        """A number that grows with every redaction, whoever records it."""

    def rows(self) -> list[int]:
        """The rows of the events whose redaction is on record, ascending."""

    def events_holding(self, pattern: re.Pattern[str]) -> list[int]:
        """The rows of the events whose text or reason has the pattern in it, ascending."""

    def occurrences(self, pattern: re.Pattern[str]) -> list[Occurrence]:
        """Every other place that has the pattern in it, and whether it can be replaced, but for
        what `text_occurrences.is_structure` is about."""

    def replace(self, pattern: re.Pattern[str]) -> None:
        """Replaces the pattern in these places, and marks answers that had it. Only inside a
        transaction."""

    def rewrite(self) -> bool:
        """Removes the last byte of what went; returns False where somebody is reading."""

    def needs_rewrite(self) -> bool:
        """Whether the storage itself says that a `rewrite` is due; a file's plan does instead."""


class Counts(Protocol):
    """How much there is."""

    def size(self) -> int:
        """How many bytes the storage takes."""

    def events(self) -> int:
        """How many events there are."""

    def ops(self, after: int, upto: int) -> dict[Op, int]:
        """How many events of each kind have after < row <= upto."""

    def keeps(self, rows: Mapping[str, int], ranges: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Row → how many KEEPs in these ranges (after, upto] confirm the event there. `rows` has
        the rows to look at by experience: an experience has one live event at most."""

    def snapshot_positions(self) -> list[int]:
        """The positions of all snapshots, ascending."""


class Storage(Protocol):
    """The file or database itself: checked, mended, copied, locked."""

    def recorder(self, number: int) -> str | None:
        """The database's user by whom a version was recorded; None for a file."""

    def evaluated(self) -> bool:
        """Whether there is any evaluation: asked where `records` takes long to load."""

    def content(self) -> bytes:
        """What a file with all of this storage in it holds."""

    def check(self) -> list[Defect]:
        """What is wrong with the storage and with what no digest covers. Raises nothing."""

    def checking(self) -> Callable[[], list[Defect]]:
        """Begins what `check` does, beside the caller where that saves time; returns what waits
        for its end and gives what was found."""

    def rebuild(self) -> None:
        """Makes anew what the storage derives from what is stored: indexes and triggers."""

    def drop_snapshots(self) -> None:
        """Forgets every snapshot."""

    def hold(self, name: str) -> AbstractContextManager[bool]:
        """Holds a lock over the whole store while this process lives; yields whether it was free. A
        file's locks are files of its own machine, and always free here."""

    def is_ours(self, name: str) -> bool:
        """Whether a lock that we took is ours still; a lost one is taken again where it can be."""

    def is_held(self, name: str) -> bool:
        """Whether some process holds the lock of that name over the whole store."""

    def refusal(self, work: Work) -> StoreError | None:
        """The error for work that the connected user may not do; None where they may, as whoever
        may write a file may do all of it."""


class Records(Protocol):
    """What training and evaluation leave behind. Appended, and never changed but by redaction."""

    def runs(self, name: str | None = None) -> list[Run]:
        """The runs (of that name), oldest first."""

    def append_run(self, run: Run) -> None:
        """Records a run, whose own `id` is ignored. Only inside a transaction."""

    def writer(self) -> JournalWriter:
        """A writer to the journal, for another thread; opens nothing yet."""

    def states(self, run: int) -> list[RunState]:
        """A run's states, oldest first."""

    def append_state(self, run: int, state: RunState) -> None:
        """Appends a state to a run. Only inside a transaction."""

    def rollouts(self, run: int, step: int | None, problem: str | None = None) -> list[RolloutRow]:
        """The rollouts of a run (of one step, at one problem), by step, problem and sample."""

    def spoken(self, before: int) -> Iterator[SaidRow]:
        """The attempts recorded before a place, newest first."""

    def attempts_since(self, run: int, after: int) -> AttemptTail:
        """A run's attempts recorded after a place; reads nothing of what is before."""

    def calls_by_key(self, keys: Sequence[bytes]) -> list[Call]:
        """The journalled calls of those of these keys that are there, in any order."""

    def reward_steps(self, run: int, samples: int, upto: int | None) -> list[tuple[int, int]]:
        """Step (up to one) and version of attempts with a reward and a sample below `samples`."""

    def rewards(self, run: int, samples: int, upto: int | None, name: str) -> Iterator[RewardRow]:
        """A run's attempts with a reward and a sample below `samples`, by step (up to one), problem
        and sample. `kind` is the text that a verdict has under `name`, a word; "" for none."""

    def calls(self, run: int, stage: str, step: int | None) -> list[Call]:
        """A run's calls of that stage (in that step), oldest first."""

    def usage(self, run: int, step: int | None) -> dict[str, Usage]:
        """A run's (one step's) calls and tokens by kind, in the order of first calls."""

    def spent(self, run: int | None, *, by_endpoint: bool = False) -> list[Spent]:
        """Calls and tokens by run, step, kind and model, in the order of first calls. The kind is
        the stage; for a call of no step it is `evaluation`. With `by_endpoint`, which reads every
        answer, also by the `endpoint` that answers name."""

    def spent_by_day(self, run: int | None, *, by_endpoint: bool = False) -> list[DaySpent]:
        """What `spent` does by day as well, in UTC, in the order of first calls."""

    def spent_since(self, run: int, after: int, *, by_endpoint: bool = False) -> SpentTail:
        """What `spent` gives, of a run's calls after a place in the journal."""

    def estimated(self, run: int | None) -> int:
        """How many calls have an answer whose `estimated` is true."""

    def sent(self, run: int) -> list[tuple[str, Json]]:
        """The model and `sent` of a run's answers, each pair once, in the order of first calls."""

    def evaluations(
        self, version: int | None = None, digest: str | None = None
    ) -> list[Evaluation]:
        """The evaluations (of a version, under these conditions), oldest first."""

    def append_evaluation(self, evaluation: Evaluation, scores: Iterable[Score]) -> None:
        """Records an evaluation, whose own `id` is ignored. Only inside a transaction."""

    def scores(self, evaluation: int) -> list[Score]:
        """An evaluation's scores, by problem and sample."""

    def decisions(self, which: DecisionFilter) -> list[Decision]:
        """Decisions, oldest first."""

    def append_decision(self, decision: Decision) -> int:
        """Records a decision; returns its row. Only inside a transaction."""


class JournalWriter(Protocol):
    """Appends to the journal. Belongs to the thread that appends and closes."""

    def append(self, calls: Sequence[CallValues], rollouts: Sequence[RolloutValues]) -> None:
        """Appends rows, all or none, durably; those that are there stay as they are. Raises
        RowRefused where a row breaks a rule, StoreError where nothing can be written."""

    def close(self) -> None:
        """Releases what was opened."""


class Member(NamedTuple):
    """A user of the database, and what they may do in a library."""

    name: str
    level: Level


class Members(Protocol):
    """The members of a library.

    A reader reads. A trainer appends runs, versions and moves of unprotected names. A reviewer also
    moves protected names, decides and redacts, and has no runs. An owner does all of it and says
    who may do what.
    """

    def all(self) -> list[Member]:
        """The members, names ascending."""

    def grant(self, name: str, level: Level) -> None:
        """Lets a user of the database do what `level` may, and nothing more. Raises StoreError."""

    def revoke(self, name: str) -> None:
        """Takes away whatever a user may do. Raises StoreError for somebody who is no member."""
