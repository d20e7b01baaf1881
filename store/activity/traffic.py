"""The record of traffic: which calls an application made, under which library, and feedback on
them.

It lies in a file beside the store (`traffic.db`), because it is deleted after a while. Words are
kept only where that was asked for. A caller's key and a subject are kept as digests keyed by a
secret of this file.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeGuard

from tfgrpo.store.activity.key_ledger import Owed, names_without, path_beside
from tfgrpo.store.address import is_address, named_by
from tfgrpo.store.errors import StoreError, TfgrpoError
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.text_occurrences import matcher

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.store.sqlite.side_files import SqliteTraffic

TRAFFIC = "traffic.db"
ALL = -1
NONE = "none"
"""Stands for the library or version of a call that had none."""
MOST_TEXT = 64 << 10
"""Characters of a comment or of a corrected answer."""
MOST_SCORE = 1e9
CUT_OFF = "\n[cut off: longer than what is kept]"
"""What stands behind the words of an answer that are not all of it."""
CALL_ID = re.compile("call-[0-9a-f]{32}")
WAIT = 1.0
"""Seconds that a call which a proxy has just answered may take to be on record."""


ARMS = ("control", "candidate")
"""What the arm of a call ends in, behind its experiment's name and `/`."""
Sums: TypeAlias = Mapping[tuple[str, str], float]
"""(name, labels as JSON) → a sum over all calls, those deleted since included."""


class FeedbackRefused(TfgrpoError):
    """Feedback that is not recorded: out of shape, or of a call that is not the sender's."""


class UnknownCall(TfgrpoError):
    """A call id that is not on record."""


class CallRecord(NamedTuple):
    """One call. `time` is microseconds since 1970; `latency`, `first` (byte) and `added` (wait in
    the proxy) are microseconds. `experiences` are the ids in the prompt, None for the whole
    library. `status` is HTTP's, 499 where the client was gone, 599 where the provider broke off.
    `trace` is the caller's `traceparent` in hex, `tags` JSON, `key` a virtual key's name,
    `provider` the address asked last, `tries` how often one was."""

    id: str
    time: int
    worker: str
    library: str | None
    version: str | None
    digest: str | None
    experiences: str | None
    subject: str | None
    arm: str | None
    model: str | None
    route: str
    status: int
    streamed: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    latency: int
    first: int | None
    added: int
    stale: int
    caller: bytes | None
    error: str | None
    trace: str | None = None
    tags: str | None = None
    key: str | None = None
    provider: str | None = None
    tries: int | None = None


class CallContent(NamedTuple):
    """The words of a call: the body that was asked, without the library, and the answer's."""

    call: str
    request: str
    answer: str


class Feedback(NamedTuple):
    """Feedback on a call: a score (a number, or 1 and 0 for right and wrong), a label, a comment, a
    corrected answer; any of them. `time` is microseconds since 1970."""

    call: str
    time: int
    author: str
    score: float | None = None
    label: str | None = None
    comment: str | None = None
    correct: str | None = None

    @property
    def key(self) -> str:
        """A key that distinguishes it from the other feedback on its call."""
        return f"{self.time}/{self.author}"


class Scale(NamedTuple):
    """The range of a metric's scores: those of a label, or of feedback without one."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"

    def place(self, score: float) -> float:
        """A score's place on the scale, from 0 at its low end to 1 at its high end; a score outside
        is at the nearer end."""
        return max(0.0, min(1.0, (score - self.low) / (self.high - self.low)))


UNIT = Scale(0.0, 1.0)
"""The scale of a metric of which nothing else was said."""
Scales: TypeAlias = Mapping[str, Scale]
"""Label → the scale of its scores; that of feedback without a label is under the empty one."""


class ArmCall(NamedTuple):
    """What an experiment needs of a call in one of its arms; units as in `CallRecord`."""

    id: str
    time: int
    subject: str | None
    arm: str
    digest: str | None
    status: int
    latency: int
    prompt_tokens: int | None
    completion_tokens: int | None


class ArmScore(NamedTuple):
    """A score of a call in an arm, and the label that came with it."""

    call: str
    score: float
    label: str | None


Tags: TypeAlias = tuple[tuple[str, str], ...]
"""Names of tags, each with its value."""


class MeasuredCall(NamedTuple):
    """What figures need of a call; units as in `CallRecord`. `score` is the mean of its scores,
    each from 0 to 1 by where it lies on the scale that was set for its label."""

    time: int
    library: str | None
    version: str | None
    digest: str | None
    experiences: str | None
    arm: str | None
    model: str | None
    status: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    latency: int
    added: int
    subject: str | None
    tags: str | None
    key: str | None
    provider: str | None
    score: float | None


class TokenSum(NamedTuple):
    """So many calls of a model with one status, and their tokens; None where one of them has none
    on record."""

    model: str | None
    provider: str | None
    status: int
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    calls: int


class Recorded(NamedTuple):
    """How many calls of a worker were recorded (with deleted ones, and lost ones once they are
    counted), and the amounts that they owed the ledger when these were last recorded."""

    calls: int
    owed: Owed


class Place(NamedTuple):
    """A place in the list of calls, newest first: after the call of that time and id."""

    time: int
    id: str


class CallFilter(NamedTuple):
    """Which calls are asked for. Times are microseconds; `version` is a name or the beginning of a
    digest, `below` a bar for the mean score of a `ListedCall`, `after` a place in the list. A
    library or a version `none` is that of calls without one."""

    since: int = 0
    version: str | None = None
    library: str | None = None
    model: str | None = None
    subject: str | None = None
    failed: bool = False
    with_feedback: bool = False
    below: float | None = None
    arm: str | None = None
    trace: str | None = None
    key: str | None = None
    tags: Tags = ()
    until: int | None = None
    after: Place | None = None


class ListedCall(NamedTuple):
    """A call with how often there is feedback on it, and the mean of its scores, as `MeasuredCall`
    has it."""

    call: CallRecord
    feedback: int
    score: float | None


class FoundCalls(NamedTuple):
    """The calls found, newest first; `reached` is where the search ended, if more may be found."""

    calls: list[ListedCall]
    reached: Place | None


Traffic: TypeAlias = "SqliteTraffic"
"""The file. One instance belongs to one thread."""


def traffic_path(store: Path | str) -> str:
    """Where the traffic of a store is recorded."""
    return path_beside(store, TRAFFIC)


def make_traffic_folder(store: Path | str) -> None:
    """Makes the folder for the traffic of a store in a database. Raises StoreError."""
    if not is_address(named_by(store)):
        return
    folder = os.path.dirname(traffic_path(store))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make {folder}: {error.strerror}",
            hint="start it in a folder that you may write in",
        ) from error


def recent_call(traffic: Traffic, id: str) -> CallRecord:
    """The call of that id, waited for a second, or the only that begins so. Raises UnknownCall."""
    deadline = time.monotonic() + WAIT
    while True:
        try:
            return traffic.call(id)
        except UnknownCall:
            if not CALL_ID.fullmatch(id) or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def keyed(secret: bytes, value: bytes) -> bytes:
    """The digest by which a file knows a caller or a subject."""
    return hmac.digest(secret, value, hashlib.sha256)[:12]


def checked_scale(label: str, scale: Scale) -> Scale:
    """A scale that scores can have. Raises FeedbackRefused."""
    if not (is_score(scale.low) and is_score(scale.high) and scale.low < scale.high):
        raise FeedbackRefused(
            f"{label or 'score'} cannot have the scale {scale}",
            hint=f"give two numbers of at most {MOST_SCORE:,.0f}, the lower one first",
        )
    return scale


def checked_feedback(
    call: str, given: Mapping[str, object], *, author: str, time: int, scales: Scales
) -> Feedback:
    """Feedback as it was sent, on its metric's scale. Raises FeedbackRefused."""
    known = {"call", "score", "label", "comment", "correct"}
    if unknown := given.keys() - known:
        raise FeedbackRefused(
            f"feedback has no {min(unknown)!r}", hint="it has " + ", ".join(sorted(known))
        )
    score = given.get("score")
    if score is not None and not is_score(score):
        raise FeedbackRefused(
            f"a score is true, false or a number, of at most {MOST_SCORE:,.0f}",
            hint='such as {"score": 1}',
        )
    texts: dict[str, str | None] = {}
    for name in ("label", "comment", "correct"):
        value = given.get(name)
        if value is not None and not _is_text(value):
            raise FeedbackRefused(f"{name} is a text", hint=f"of at most {MOST_TEXT} characters")
        texts[name] = value
    if score is None and not any(texts.values()):
        raise FeedbackRefused("the feedback says nothing", hint="give a score, label or comment")
    number = float(score) if isinstance(score, (int, float)) else None
    scale = scales.get(texts["label"] or "", UNIT)
    if number is not None and not scale.low <= number <= scale.high:
        metric = f"label {texts['label']!r}" if texts["label"] else "feedback without a label"
        raise FeedbackRefused(
            f"a score of {metric} is {scale}, not {number:g}",
            hint="`tfgrpo feedback --scale stars=1..5` sets the scale of a label",
        )
    return Feedback(call, time, author, number, **texts)


def is_score(value: object) -> bool:
    """Whether a value is a score: sums of squares of many of them are numbers still."""
    return isinstance(value, (bool, int, float)) and abs(value) <= MOST_SCORE


def place_of(feedback: Feedback, scales: Scales) -> float | None:
    """The score of feedback from 0 to 1, by where it lies on the scale that was set for its label;
    as it was given where none was, and None where there is none."""
    scale = scales.get(feedback.label or "")
    if feedback.score is None or scale is None:
        return feedback.score
    return scale.place(feedback.score)


def _is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a text that can be written: half of a surrogate pair is none."""
    return (
        isinstance(value, str)
        and len(value) <= MOST_TEXT
        and not any("\ud800" <= letter <= "\udfff" for letter in value)
    )


def redact_traffic(store: Path | str, written: Sequence[str], *, dry_run: bool = False) -> int:
    """Takes texts, in any of these forms, out of what was recorded beside a store; returns from
    how many rows. With `dry_run` it only counts them. The ledger is to be redacted after it, since
    that says which name a key gets. Raises StoreError."""
    path, renamed = traffic_path(store), names_without(store, written)
    if not os.path.isfile(path):
        return 0
    with closing(open_traffic(path)) as traffic:
        return traffic.redact(matcher(written), renamed, dry_run=dry_run)
