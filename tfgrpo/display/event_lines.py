"""Events: what one did, why, who taught it, and where it was first recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tfgrpo.store.records import Event, Version, evidence_of
from tfgrpo.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tfgrpo.store.history.blame import Origin
    from tfgrpo.store.records import Evidence, Measured
    from tfgrpo.store.store import Store


class ShownEvent(NamedTuple):
    """An event with its version, the text that it started from, and where it was first recorded
    (the event itself, unless a merge brought it over)."""

    version: Version
    event: Event
    before: str | None
    origin: Origin

    @property
    def is_copy(self) -> bool:
        """Whether a merge or cherry-pick brought it over."""
        return self.origin.event.row != self.event.row

    @property
    def credit(self) -> str:
        """Who it is owed to, where that is more than its version's author."""
        if self.is_copy:
            return f"{self.origin.version.name}: {credit_words(*self.origin[:2])}"
        return evidence_words(self.event)


def events_of(store: Store, version: Version) -> Iterator[ShownEvent]:
    """Yields the events of a version, in order."""
    from tfgrpo.store.history.blame import Origins

    before: dict[str, str] = {}
    if version.parent is not None:
        before = store.library(store.version(version.parent)).texts
    origins = Origins(store)
    for event in store.events(version):
        origin = origins.of(event, version)
        yield ShownEvent(version, event, before.get(event.experience), origin)
        if event.text is not None:
            before[event.experience] = event.text


def life_of(store: Store, experience: str) -> Iterator[ShownEvent]:
    """Yields every event of an experience, on any branch, oldest first."""
    from tfgrpo.store.history.blame import Origins

    events = store.history(experience)
    texts = {event.row: event.text for event in events}
    origins = Origins(store)
    for event in events:
        version = store.version(event.version)
        before = texts.get(event.replaces) if event.replaces else None
        if texts.get(event.row) is None:
            texts[event.row] = before
        yield ShownEvent(version, event, before, origins.of(event, version))


def evidence_words(event: Event) -> str:
    """Who taught an event, and what it was measured to do by then: `from hire-12, 2 of 5 right,
    step 1 of run quick, +0.348 [+0.104, +0.593] by 270 attempts with it and 28 without`."""
    evidence = evidence_of(event)
    parts = [] if evidence.problem is None else [f"from {evidence.problem}"]
    if evidence.rewards:
        parts.append(f"{evidence.right} of {len(evidence.rewards)} right")
    if evidence.run is not None:
        step = "" if evidence.step is None else f"step {evidence.step + 1} of "
        parts.append(f"{step}run {evidence.run}")
    if "verdict" in evidence.facts:
        parts.append(f"proved on {evidence.facts.get('model')}")
    if evidence.measured is not None:
        parts.append(f"{evidence.measured} by {_counted(evidence, evidence.measured)}")
    if "source" in evidence.facts:
        parts.append(f"imported from {evidence.facts['source']}")
    return ", ".join(parts)


def _counted(evidence: Evidence, measured: Measured) -> str:
    if measured.pairs is not None:
        return plural(measured.pairs, "pair") + " of attempts"
    of = "the examples" if evidence.facts.get("kind") == "example" else "it"  # all at once
    return f"{plural(measured.shown, 'attempt')} with {of} and {measured.hidden} without"


def credit_words(event: Event, version: Version) -> str:
    """Who an event is owed to: the run that taught it, else whoever signed its version."""
    words = evidence_words(event)
    if evidence_of(event).run is not None:
        return words
    return f"by {version.author}" + (f", {words}" if words else "")


def event_object(event: Event, origin: Origin | None = None) -> dict[str, Any]:
    """An event as JSON for programs; `origin` for one that was brought over."""
    names = ("op", "experience", "text", "reason", "evidence", "redacted")
    fields = {"version": f"v{event.version}", **{name: getattr(event, name) for name in names}}
    if origin is not None and origin.event.row != event.row:
        first = {"version": origin.version.name, "author": origin.version.author}
        fields["origin"] = {**first, "evidence": origin.event.evidence}
    return fields
