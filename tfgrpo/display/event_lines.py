"""Events: what one did, why, who taught it, and where it was first recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tfgrpo.store.records import Event, Version
from tfgrpo.wording import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tfgrpo.store.history.blame import Origin
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
        before = {e.id: e.text for e in store.library(store.version(version.parent))}
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
    evidence = event.evidence or {}
    parts = []
    if "problem" in evidence:
        parts.append(f"from {evidence['problem']}")
    rewards = [reward for _, reward in evidence.get("rollouts", []) if reward is not None]
    if rewards:
        right = sum(reward >= 1 for reward in rewards)
        parts.append(f"{right} of {len(rewards)} right")
    if "run" in evidence:
        step = "" if evidence.get("step") is None else f"step {evidence['step'] + 1} of "
        parts.append(f"{step}run {evidence['run']}")
    if "verdict" in evidence:
        parts.append(f"proved on {evidence.get('model')}")
    parts += _measured(evidence)
    if retried := evidence.get("retried"):
        parts.append(f"tried again in {plural(retried, 'later step')}")
    if "source" in evidence:
        parts.append(f"imported from {evidence['source']}")
    return ", ".join(parts)


def _measured(evidence: Mapping[str, Any]) -> Iterator[str]:
    """What a decision was made by: examples are measured together."""
    match evidence:
        case {"effect": [effect, low, high], "pairs": pairs}:
            counts = plural(pairs, "pair") + " of attempts"
        case {"effect": [effect, low, high], "attempts": [shown, hidden]}:
            of = "the examples" if evidence.get("kind") == "example" else "it"
            counts = f"{plural(shown, 'attempt')} with {of} and {hidden} without"
        case _:
            return
    yield f"{effect:+.3f} [{low:+.3f}, {high:+.3f}] by {counts}"


def credit_words(event: Event, version: Version) -> str:
    """Who an event is owed to: the run that taught it, else whoever signed its version."""
    words = evidence_words(event)
    if "run" in (event.evidence or {}):
        return words
    return f"by {version.author}" + (f", {words}" if words else "")


def event_object(event: Event, origin: Origin | None = None) -> dict[str, Any]:
    """An event as JSON for programs; `origin` for one that was brought over."""
    copied = origin is not None and origin.event.row != event.row
    return {
        "version": f"v{event.version}",
        "op": event.op,
        "experience": event.experience,
        "text": event.text,
        "reason": event.reason,
        "evidence": event.evidence,
        "redacted": event.redacted,
    } | (
        {
            "origin": {
                "version": origin.version.name,
                "author": origin.version.author,
                "evidence": origin.event.evidence,
            }
        }
        if copied and origin is not None
        else {}
    )
