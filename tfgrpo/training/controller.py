"""The controller: from lessons to operations on the library.

Each lesson of a batch is put to the model beside the library as it stands after the lessons
before it, with one question: is it new, the same as an experience, a refinement of one, or does
it contradict one? A decision about one lesson is something that weak models can make, where a
plan for a whole batch is not (docs/models.md has the measurements), and one bad answer costs
its own lesson only.

    new → ADD      same → KEEP      refines, contradicts → MODIFY, or DELETE when no text is left

What is already there word for word is a KEEP without asking: every group that comes to the
same lesson is one more vote for it. An ADD of what is there, or a MODIFY that changes nothing,
is a KEEP and recorded as one; a MODIFY that keeps no word of the experience would lose it to a
lesson about something else, so it is an ADD. A label that does not exist, or a text of too many
words, goes back once and is then refused, on record. Labels are made for each prompt and
resolved against that prompt alone. Where the library may not grow any more, room is made first,
or the operation refused (`capacity.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import BaseModel

from tfgrpo.model import structured
from tfgrpo.model.client import Calls
from tfgrpo.model.embeddings import Embeddings
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.structured import text_field
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Library, Operation
from tfgrpo.training import pruning
from tfgrpo.training.draft import Draft, words
from tfgrpo.training.near_duplicates import describe, find_similar, numbers
from tfgrpo.training.notes import Notes
from tfgrpo.training.reflection import Failure, Lesson, Question, Reflection

CONTROLLER_TOKENS = 600
DROPPED = "the controller dropped it: it says what the gate rejected"
NOTHING = Notes()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A lesson that did not become an operation, and why."""

    text: str
    problem: str
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The operations of one batch, in order, and what was refused, repaired or failed."""

    operations: tuple[Operation, ...]
    refused: tuple[Refusal, ...] = ()
    repaired: int = 0
    failures: tuple[Failure, ...] = ()


class Decision(BaseModel):
    """What the controller answers about one lesson. `about` makes it think before it decides."""

    about: str = text_field(120, default="")
    decision: Literal["new", "same", "refines", "contradicts", "drop"]
    closest: str | None = None
    text: str = text_field(220, 4000, default="")


DECISIONS = get_args(Decision.model_fields["decision"].annotation)


async def plan(
    calls: Calls,
    reflection: Reflection,
    lessons: Sequence[Lesson],
    library: Library,
    *,
    step: int,
    uid: str,
    evidence: Mapping[str, Any],
    opening: pruning.Room | None = None,
    embeddings: Embeddings | None = None,
    notes: Notes = NOTHING,
) -> Plan:
    """Decides about the lessons of a batch, one after the other.

    `uid` names the run, from which the ids of new experiences follow; `evidence` goes onto
    every operation beside the lesson's own; `opening` are operations that come before all lessons.
    `embeddings` tell what is close in meaning. Where `notes` tell of rejected changes, a lesson
    may be dropped, on record. EndpointError is let through.
    """
    opening = opening or pruning.Room()
    draft = Draft(library).after(opening.operations)
    operations: list[Operation] = list(opening.operations)
    refused: list[Refusal] = []
    failures: list[Failure] = []
    repaired = opening.repaired
    for number, lesson in enumerate(lessons):
        known = draft.same(lesson.text)
        call: tuple[str, ...] = ()
        if known is not None:
            decision, label = Decision(decision="same"), known
        elif not draft.texts and not notes.rejected and words(lesson.text) <= reflection.max_words:
            decision, label = Decision(decision="new", text=lesson.text), None
        else:
            try:
                near = await find_similar(lesson.text, draft.texts, embeddings)
            except CallFailed as error:  # the words are still there to go by
                failures.append(Failure("embedding", lesson.group.problem.id, str(error)))
                near = await find_similar(lesson.text, draft.texts)
            ids = draft.labels
            alike = describe(near, {id: label for label, id in ids.items()})
            try:
                what = (lesson, draft, alike, notes)
                typed = await _decide(calls, reflection, *what, step, number)
            except CallFailed as error:
                refused.append(Refusal(lesson.text, lesson.group.problem.id, str(error)))
                continue
            decision, call = typed.value, (typed.key,)
            label = ids.get(decision.closest or "")
            repaired += typed.repaired
            if decision.decision == "drop":
                refused.append(Refusal(lesson.text, lesson.group.problem.id, DROPPED))
                continue
        text = _text(decision, lesson, reflection.max_words)
        operation = _operation(decision, label, text, draft, derived_id(uid, step, number))
        operation = operation._replace(
            reason=lesson.reason or None, evidence={**evidence, **_evidence(lesson, call)}
        )
        if not pruning.fits(draft, operation, reflection.library_tokens):
            try:
                room = await pruning.make_room(
                    calls, reflection, draft, operation, step=step, number=number, evidence=evidence
                )
            except CallFailed as error:
                refused.append(Refusal(operation.text or "", lesson.group.problem.id, str(error)))
                continue
            draft = draft.after(room.operations)
            operations += room.operations
            repaired += room.repaired
            operation = _once(operation, draft)
        draft.apply(operation)
        operations.append(operation)
    return Plan(tuple(operations), tuple(refused), repaired, tuple(failures))


async def _decide(
    calls: Calls,
    reflection: Reflection,
    lesson: Lesson,
    draft: Draft,
    alike: str,
    notes: Notes,
    step: int,
    number: int,
) -> structured.Typed[Decision]:
    labels = draft.labels
    decisions = [one for one in DECISIONS if one != "drop" or notes.rejected]
    question = Question(
        prompt=reflection.controller,
        values={
            "library": draft.prompt(),
            "lesson": lesson.text,
            "reason": lesson.reason,
            "similar": alike,
        },
        max_tokens=CONTROLLER_TOKENS,
        call_path=(step, number),
        appendix=notes.text(labels),
        narrowed={"decision": {"enum": decisions}, "closest": {"enum": [*labels, None]}},
    )

    def check(decision: Decision) -> str | None:
        if decision.decision == "drop":
            return None if notes.rejected else "the decision is new, same, refines or contradicts"
        if decision.decision != "new" and decision.closest not in labels:
            return f"there is no experience {decision.closest}; closest is one of {list(labels)}"
        if decision.decision == "same":
            there = draft.texts[labels[decision.closest or ""]]
            if set(numbers(lesson.text)) - set(numbers(there)):
                return (
                    f"{decision.closest} does not give the number of the lesson, so it is not the "
                    "same. The decision is new, unless both are about the very same thing."
                )
        count = words(_text(decision, lesson, reflection.max_words))
        if decision.decision != "same" and count > reflection.max_words:
            return f"the text has {count} words, and {reflection.max_words} are the most"
        return None

    return await reflection.ask(calls, question, Decision, check)


def _text(decision: Decision, lesson: Lesson, most: int) -> str:
    """Returns the text that a decision leads to: a new lesson enters as it is, if it is short."""
    if decision.decision == "new" and (words(lesson.text) <= most or not decision.text.strip()):
        return lesson.text
    return " ".join(decision.text.split())


def _operation(
    decision: Decision, id: str | None, text: str, draft: Draft, fresh: str
) -> Operation:
    """Returns the operation that a checked decision stands for."""
    if decision.decision == "new":
        known = draft.same(text)
        return Operation("ADD", fresh, text) if known is None else Operation("KEEP", known)
    assert id is not None, "checked: a decision that is not 'new' names an experience"
    if decision.decision == "same":
        return Operation("KEEP", id)
    if not text:
        return Operation("DELETE" if decision.decision == "contradicts" else "KEEP", id)
    known = draft.same(text)
    if known is not None:
        return Operation("KEEP", known)
    if _apart(text, draft.texts[id]):
        return Operation("ADD", fresh, text)
    return Operation("MODIFY", id, text)


def _apart(text: str, there: str) -> bool:
    """Returns whether two texts share no word of substance: of four letters or more.

    Texts with hardly any such words, or in a script that does not part its words (East Asian
    ones), are not told apart.
    """
    new, old = (set(re.findall(r"[^\W\d_]{4,}", one.casefold())) for one in (text, there))
    return min(len(new), len(old)) > 1 and max(text + there) < "\u2e80" and not new & old


def _once(operation: Operation, draft: Draft) -> Operation:
    """Returns an operation, as a KEEP where a merge has come to the very same text."""
    known = draft.same(operation.text or "")
    if known is None:
        return operation
    return operation._replace(op="KEEP", experience=known, text=None)


def _evidence(lesson: Lesson, call: tuple[str, ...]) -> dict[str, Any]:
    """Returns who taught a lesson: the problem, its rollouts with rewards, the calls between."""
    group = lesson.group
    found: dict[str, Any] = {
        "problem": group.problem.id,
        "rollouts": [[rollout.sample, rollout.reward] for rollout in group.rollouts],
        "calls": [key[:16] for key in (*lesson.calls, *call)],
    }
    strategies = sorted({rollout.hint for rollout in group.winners if rollout.hint})
    return found | {"strategies": strategies} if strategies else found
