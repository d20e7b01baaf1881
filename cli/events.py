"""How events are shown: what one did, why, and who taught it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfgrpo.cli import text
from tfgrpo.store.records import Event, Version

if TYPE_CHECKING:
    from tfgrpo.store.blame import Origin


def event_lines(event: Event, before: str | None, origin: Origin | None = None) -> list[str]:
    """Returns an event's lines: what it did, why, and who taught it.

    `origin` is where it was first recorded, for an event that a merge brought over.
    """
    head = [
        text.Word(text.SIGNS[event.op], fg=text.COLOURS[event.op], bold=True),
        text.Word(event.experience, dim=True),
    ]
    if event.redacted:
        body = text.words("[redacted]", dim=True)
    elif event.op == "MODIFY" and before is not None and event.text is not None:
        body = text.word_diff(before, event.text)
    elif event.op == "KEEP":
        body = text.words(before or "", fg="cyan")
    elif event.op == "DELETE":
        body = text.words(before or "", fg="red")
    else:
        body = text.words(event.text or "", fg="green")
    lines = text.wrap([*head, *body], indent=15)
    if event.reason:
        lines += text.wrap(text.words(f"because {event.reason}"), first=" " * 15, indent=15)
    evidence = evidence_words(event)
    if origin is not None and origin.event.row != event.row:
        evidence = f"{origin.version.name}: {credit_words(origin.event, origin.version)}"
    if evidence:
        lines += text.wrap(text.words(evidence, dim=True), first=" " * 15, indent=15)
    return lines


def evidence_words(event: Event) -> str:
    """Returns who taught an event: `from hire-12, 2 of 5 right, step 1 of run quick`."""
    evidence = event.evidence or {}
    parts = []
    if "problem" in evidence:
        parts.append(f"from {evidence['problem']}")
    rewards = [reward for _, reward in evidence.get("rollouts", []) if reward is not None]
    if rewards:
        right = sum(reward >= 1 for reward in rewards)
        parts.append(f"{right} of {len(rewards)} right")
    if "run" in evidence:
        parts.append(f"step {evidence['step'] + 1} of run {evidence['run']}")
    if "source" in evidence:
        parts.append(f"imported from {evidence['source']}")
    return ", ".join(parts)


def credit_words(event: Event, version: Version) -> str:
    """Returns who an event is owed to: the run that taught it, else whoever signed its version."""
    words = evidence_words(event)
    if "run" in (event.evidence or {}):
        return words
    return f"by {version.author}" + (f", {words}" if words else "")


def event_object(event: Event, origin: Origin | None = None) -> dict[str, Any]:
    """Returns an event as JSON for programs; `origin` as in `event_lines`."""
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
