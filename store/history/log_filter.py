"""Which versions of a history a log shows, since when, and under which subject.

    moment := date | date and time in ISO 8601 | <n><unit> | <n> <unit>s ago
    date   := 2026-11-20 | today | yesterday
    unit   := s | m | h | d | w | month | y    (a month has 30 days, a year 365)

A time without an offset is local. A date alone is its first instant, or, as an end, its last.

A message is in the digest for good, and a text can be redacted: work by hand without a message
records its kind alone, and its first words are read from its events whenever it is shown.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from typing import NamedTuple

from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.exit_codes import NOT_BEGUN
from tfgrpo.store.history.name_moves import PREFIX, NameKind
from tfgrpo.store.records import Event, Op, Operation, Version
from tfgrpo.store.store import Store

VERBS: dict[Op, str] = {"ADD": "add", "MODIFY": "modify", "DELETE": "delete", "KEEP": "keep"}
NAMED = 3
"""More experiences than this are counted and not named."""
LONGEST = 60
LABEL = r" \(G\d+\)"
BY_HAND = tuple(f"{verb} " for verb in VERBS.values())
AGO = r"(\d+)\s*(s|sec|second|m|min|minute|h|hour|d|day|w|week|mon|month|y|year)s?(?:\s+ago)?\Z"
MONTH = 30 * 86400
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400, "y": 365 * 86400}
LONGEST_AGE = 1 << 60
"""Microseconds that an age may have: some 36,000 years."""
DAYS_BACK = {"today": 0, "yesterday": 1}
DAY = r"\d{4}-\d\d-\d\d\Z"


class Filter(NamedTuple):
    """What a version must have; None, or no kind, asks for nothing. Times in microseconds.

    `experience` and `ops` ask for such an event. `words` are looked for in the message and those
    events, `author` in the author's name, whatever their case. `counted` is a text that such an
    event puts in or takes out. Without `merges` no merge fits.
    """

    run: str | None = None
    experience: str | None = None
    words: str | None = None
    author: str | None = None
    ops: frozenset[Op] = frozenset()
    since: int | None = None
    until: int | None = None
    counted: str | None = None
    merges: bool = True

    def fits_event(self, event: Event) -> bool:
        """Whether an event is one of those that are asked for."""
        return self.experience in (None, event.experience) and (
            not self.ops or event.op in self.ops
        )


def select(store: Store, versions: Iterable[Version], filter: Filter) -> Iterator[Version]:
    """The versions that fit, of versions that come newest first."""
    return (version for version, fits in marked(store, versions, filter) if fits)


def marked(
    store: Store, versions: Iterable[Version], filter: Filter
) -> Iterator[tuple[Version, bool]]:
    """Versions that come newest first, each with whether it fits, down to the last that can."""
    holding, oldest = None, 0
    if filter.experience is not None:
        history = store.history(filter.experience)
        holding = {event.version for event in history if filter.fits_event(event)}
        if not holding:
            return
        oldest = min(holding)
    bounded = False
    for version in versions:
        if filter.since is not None and version.time < filter.since and not bounded:
            # Times need not fall along a history: clocks differ, and versions travel.
            first = store.port.first_since(filter.since)
            if first is None:
                return
            oldest, bounded = max(oldest, first), True
        if version.number < oldest:
            return
        yield version, _fits(store, version, filter, holding)


def _fits(store: Store, version: Version, filter: Filter, holding: set[int] | None) -> bool:
    run, _, words, author, ops, since, until, counted, merges = filter
    return (
        (since is None or version.time >= since)
        and (until is None or version.time <= until)
        and (run is None or version.meta.get("run") == run)
        and (author is None or author.casefold() in version.author.casefold())
        and (holding is None or version.number in holding)
        and (not ops or holding is not None or bool(ops & store.counts(version).keys()))
        and (merges or version.merged is None)
        and (counted is None or _changes_count(store, version, filter))
        and (words is None or _says(store, version, filter, words.casefold()))
    )


def _says(store: Store, version: Version, filter: Filter, words: str) -> bool:
    events = (event for event in store.events(version) if filter.fits_event(event))
    spoken = (text for event in events for text in (event.text, event.reason) if text)
    return words in version.message.casefold() or any(words in t.casefold() for t in spoken)


def _changes_count(store: Store, version: Version, filter: Filter) -> bool:
    words = filter.counted or ""
    events = [e for e in store.events(version) if e.op != "KEEP" and filter.fits_event(e)]
    before = store.texts_before(events)
    return any((e.text or "").count(words) != before.get(e.row, "").count(words) for e in events)


def by_hand(operations: Sequence[Operation | Event]) -> str:
    """The message of work by hand without one: `add 2 experiences; keep pjvbnk5xqzt4`."""
    parts = []
    for op, verb in VERBS.items():
        ids = [operation.experience or "" for operation in operations if operation.op == op]
        if op == "ADD" or len(ids) > NAMED:
            noun = "experience" if len(ids) == 1 else "experiences"
            parts += [f"{verb} {len(ids)} {noun}"] if ids else []
        elif ids:
            parts.append(f"{verb} {', '.join(ids)}")
    return "; ".join(parts)


def subject(store: Store, version: Version) -> str:
    """A version's message; for work by hand without one, the first words of its text."""
    if not version.message.startswith(BY_HAND):
        return version.message
    events = store.events(version)
    if re.sub(LABEL, "", version.message) != by_hand(events):
        return version.message
    first = events[0]
    text = first.text if first.text is not None else store.texts_before([first]).get(first.row)
    if first.redacted or text is None:
        return version.message
    verbs = dict.fromkeys(VERBS[event.op] for event in events)
    more = f" (and {len(events) - 1} more)" if len(events) > 1 else ""
    return f"{', '.join(verbs)}: {shortened(text)}{more}"


def why_named(store: Store, kind: NameKind, name: str) -> str:
    """The words that were said of a branch or tag when it last moved; empty where nothing was."""
    move = store.port.names.ref(PREFIX[kind] + name)
    for begin in (f"{kind} {name}: ", f"move {kind} {name}: "):
        if move is not None and move.action.startswith(begin):
            return move.action.removeprefix(begin)
    return ""


def shortened(text: str) -> str:
    """The first words of a text, as many as make about a line's subject."""
    text = " ".join(text.split())
    if len(text) <= LONGEST:
        return text
    cut = text[:LONGEST].rpartition(" ")[0] or text[:LONGEST]
    return f"{cut} …"


class UnknownTime(TfgrpoError):
    """A text that names no point in time."""

    exit_code = NOT_BEGUN


def parse_time(text: str, *, now: int, end: bool = False) -> int:
    """The point in time that `text` names, in microseconds since 1970. `now` is in microseconds
    too. With `end`, a date alone is the last instant of its day. Raises UnknownTime."""
    text = text.strip()
    try:
        if match := re.match(AGO, text, re.IGNORECASE):
            return now - _length(match)
        back = DAYS_BACK.get(text.lower())
        if back is not None or re.match(DAY, text):
            here = datetime.fromtimestamp(now / 1_000_000).date()
            day = date.fromisoformat(text) if back is None else here - timedelta(days=back)
            day += timedelta(days=end)
            start = datetime(day.year, day.month, day.day)
            return int(start.timestamp()) * 1_000_000 - end
        return round(datetime.fromisoformat(text).timestamp() * 1_000_000)
    except (ValueError, OverflowError, OSError):
        raise UnknownTime(
            f"{text!r} is not a time",
            hint="use 2026-11-20, 2026-11-20T18:30, yesterday, 3d, 2h or '2 weeks ago'",
        ) from None


def parse_span(text: str) -> int | None:
    """How long `text`, such as 12h or 30d, is in microseconds; None where it is no length of time,
    such as a date or `2 days ago`."""
    match = re.match(AGO, text.strip(), re.IGNORECASE)
    if match is None or match[0].lower().endswith("ago"):
        return None
    try:
        return _length(match)
    except OverflowError:
        return None


def parse_coming(text: str, *, now: int) -> int:
    """The point in time that `text` names where it says until when: 30d is said from `now` on.
    Raises UnknownTime, also for one that is over."""
    span = parse_span(text)
    at = parse_time(text, now=now) if span is None else now + span
    if at <= now:
        raise UnknownTime(f"{text!r} is over already", hint="use 30d, or a date that is to come")
    return at


def _length(match: re.Match[str]) -> int:
    """The microseconds of a match of AGO. Raises OverflowError."""
    unit = match[2].lower()
    each = MONTH if unit.startswith("mon") else SECONDS[unit[0]]
    length = int(match[1]) * each * 1_000_000
    if length > LONGEST_AGE:
        raise OverflowError
    return length
