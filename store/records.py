"""The nouns of the store, as named tuples, which are quick to load and make. Times are microseconds
since 1970 in UTC.

**Rows and lanes.** An event's row number is `lane << 40 | place`. A lane is a run of versions each
of which builds on the one before, so a branch's history is a few ranges of consecutive rows. A
version on anything but the tip of a lane opens a new lane, which remembers the row at which it
left. Lanes and rows are local to a store and never enter a digest.

Annotations are not postponed here: as texts they would all be compiled as this is loaded.

The evidence of an event may come with a stranger's store and hold anything: what is not of its kind
is not there.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from tfgrpo.store.damaged_values import listed, mapping, number, texts, whole

Op: TypeAlias = Literal["ADD", "MODIFY", "DELETE", "KEEP"]
OPS: tuple[Op, ...] = get_args(Op)


REDACTED = "[redacted]"
"""What stands for a text that was redacted."""
REDACTS = "redacts"
"""In the meta of a version: the experiences that a redaction took out of the library by it."""
SIGNATURE, TAGGED = "signature", "tag"
"""In the meta of a version: its signature, and the name of the tag that it is the version of."""
Json: TypeAlias = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def in_utc(microseconds: int) -> datetime:
    """A time as a store keeps it, to the microsecond: as a number of seconds with a point the last
    of the year 9999 would be rounded into the next."""
    return _EPOCH + timedelta(microseconds=microseconds)


class Operation(NamedTuple):
    """What a learner or a person proposes. An ADD without `experience` is given a fresh id.
    `text` is for ADD and MODIFY; `evidence` is JSON, as `Evidence` reads it."""

    op: Op
    experience: str | None = None
    text: str | None = None
    reason: str | None = None
    evidence: Json | None = None


class Event(NamedTuple):
    """An operation as it was recorded. `replaces` is the row of the event it follows on."""

    row: int
    version: int
    op: Op
    experience: str
    text: str | None
    reason: str | None
    evidence: Json | None
    replaces: int | None
    redacted: bool


class Measured(NamedTuple):
    """An effect with its bounds, and attempts with and without what had it, or pairs of them."""

    effect: float
    low: float
    high: float
    shown: int
    hidden: int
    pairs: int | None = None
    chance: float | None = None

    def __str__(self) -> str:
        return f"{self.effect:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


class Evidence(NamedTuple):
    """Who taught an event: the run, the step from 0, the problem, its attempts as (sample, reward),
    all problems and calls; and what decided about it."""

    run: str | None
    step: int | None
    problem: str | None
    problems: tuple[str, ...]
    attempts: tuple[tuple[int, float | None], ...]
    calls: tuple[str, ...]
    measured: Measured | None
    facts: Mapping[str, str]
    """What else is a text, by its name."""

    @property
    def rewards(self) -> list[float]:
        """The rewards of its attempts that could be judged."""
        return [reward for _, reward in self.attempts if reward is not None]

    @property
    def right(self) -> int:
        """How many of them were right."""
        return sum(reward >= 1 for reward in self.rewards)


def evidence_of(event: Event) -> Evidence:
    """Reads an event's evidence. Raises nothing."""
    return read_evidence(event.evidence)


def read_evidence(evidence: object) -> Evidence:
    """Reads evidence as JSON has it. Raises nothing."""
    given = mapping(evidence)
    facts = {name: value for name, value in given.items() if isinstance(value, str)}
    problem = facts.get("problem")
    named = [problem, *texts(given.get("problems"))]
    problems = tuple(dict.fromkeys(one for one in named if one is not None))
    pairs = [pair for pair in listed(given.get("rollouts")) if _is_attempt(pair)]
    attempts = tuple((sample, number(reward)) for sample, reward in pairs)
    step, calls = whole(given.get("step")), texts(given.get("calls"))
    measured = _measured(given)
    return Evidence(facts.get("run"), step, problem, problems, attempts, calls, measured, facts)


def _measured(given: Mapping[str, Any]) -> Measured | None:
    figures = [number(one) for one in listed(given.get("effect"))]
    counts = [whole(one) for one in listed(given.get("attempts"))]
    pairs = whole(given.get("pairs"))
    if len(figures) != 3 or (len(counts) != 2 and pairs is None):
        return None
    effect, low, high = figures
    shown, hidden = counts if len(counts) == 2 else (0, 0)
    if effect is None or low is None or high is None or shown is None or hidden is None:
        return None
    return Measured(effect, low, high, shown, hidden, pairs, number(given.get("chance")))


def _is_attempt(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and whole(pair[0]) is not None


class Version(NamedTuple):
    """An atomic batch of events. `number` is local to this store, `digest` is valid in every clone.
    `position` is the row of its last event (or of the last one before it, when it has none)."""

    number: int
    digest: bytes
    parent: int | None
    merged: int | None
    position: int
    events: int
    author: str
    time: int
    message: str
    meta: Json

    @property
    def parents(self) -> tuple[int, ...]:
        """The numbers of its parents, the first one first; none for v0."""
        return tuple([n for n in (self.parent, self.merged) if n is not None])

    @property
    def name(self) -> str:
        """How people write it: `v12`."""
        return f"v{self.number}"

    @property
    def when(self) -> datetime:
        """The time it was recorded, in UTC."""
        return in_utc(self.time)


class Experience(NamedTuple):
    """One short piece of advice. Its id never changes; `row` is the event that last shaped it.
    `redacted`: the text was taken out of the store, and `text` is only what stands for it."""

    id: str
    text: str
    row: int
    redacted: bool = False


class Library:
    """The library in force at a version, in order. Immutable; equal to one with the same in it."""

    __slots__ = ("__dict__", "_experiences", "version")

    def __init__(self, version: Version, experiences: tuple[Experience, ...]) -> None:
        self.version = version
        self._experiences = experiences

    def __iter__(self) -> Iterator[Experience]:
        return iter(self._experiences)

    def __len__(self) -> int:
        return len(self._experiences)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Library):
            return NotImplemented
        return [(e.id, e.text) for e in self] == [(e.id, e.text) for e in other]

    def __hash__(self) -> int:
        return hash(tuple((e.id, e.text) for e in self))

    def __repr__(self) -> str:
        return f"Library({self.version.name}, {len(self)} experiences)"

    def less(self, ids: Collection[str]) -> "Library":
        """The library without these experiences; itself when there are none to drop."""
        if not ids:
            return self
        return Library(self.version, tuple(e for e in self if e.id not in ids))

    @property
    def readable(self) -> tuple[Experience, ...]:
        """The experiences whose texts were not redacted: what may go into prompts and files."""
        return tuple(e for e in self if not e.redacted)

    @property
    def texts(self) -> dict[str, str]:
        """Experience id → its text, in order."""
        return {e.id: e.text for e in self}

    @cached_property
    def by_id(self) -> Mapping[str, Experience]:
        """Experience id → experience."""
        return {e.id: e for e in self}

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The short labels of this library's rendering: `G0` → experience id, in order."""
        return {f"G{i}": e.id for i, e in enumerate(self)}

    @cached_property
    def label_of(self) -> Mapping[str, str]:
        """Experience id → its label in this library's rendering."""
        return {id: label for label, id in self.labels.items()}


class Change(NamedTuple):
    """How one experience differs between two libraries; None on a side means it is not there."""

    experience: str
    before: str | None
    after: str | None

    @property
    def op(self) -> Op:
        """The operation that makes this change."""
        if self.before is None:
            return "ADD"
        return "DELETE" if self.after is None else "MODIFY"


class RefMove(NamedTuple):
    """One row of the ref log: a name moved. None for a version: the name is not there. Rows of one
    operation share `batch`, the row of the first of them."""

    row: int
    batch: int
    name: str
    version: int | None
    symbol: str | None
    previous: int | None
    previous_symbol: str | None
    author: str
    time: int
    action: str


class Head(NamedTuple):
    """Where HEAD is: on a branch, or detached at a version (`branch` is None)."""

    branch: str | None
    version: Version


LANE_BITS = 40
EVENT_SCHEMA = 1
VERSION_SCHEMA = 1
Step: TypeAlias = tuple[int, Op, int | None]
"""What replay needs of an event: its row, its operation, the row that it replaces."""
Shape: TypeAlias = tuple[str, str | None, int, int]
"""What a library needs of a live event: experience, text (None: redacted), row, birth.

Both are bare tuples because a checkout reads thousands of them.
"""


def lane_of(row: int) -> int:
    """The lane that a row or position belongs to."""
    return row >> LANE_BITS


def lane_start(lane: int) -> int:
    """The position before the first row of a lane."""
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


class ChainLink(NamedTuple):
    """A version with what only its digest asks for: its schema, and its meta as stored."""

    version: Version
    schema: int
    meta: str | None


class Merge(NamedTuple):
    """A version with a second parent: its last event's row, how many it has, that parent's row."""

    position: int
    events: int
    merged: int


class BranchTip(NamedTuple):
    """Where a name stands, with what an append has to know: the highest version number and move
    that there are, and whether nothing follows the tip in its lane."""

    name: str
    tip: Version
    version: int
    symbol: str | None
    last_version: int
    last_move: int
    ends_lane: bool
    is_protected: bool


ROOT = Version(
    number=0,
    digest=bytes.fromhex("e4562ab694a803dd20cfb99a59bb6eeaf8965cdc10d820643cab89a4db76b8f1"),
    parent=None,
    merged=None,
    position=0,
    events=0,
    author="tfgrpo",
    time=0,
    message="the empty library",
    meta={},
)
"""v0: the same version in every store, so any two histories have a common ancestor."""
