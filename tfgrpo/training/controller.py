"""The controller: from lessons to operations on the library.

Each lesson of a batch is put to the model beside the library as it stands after the lessons
before it, with one question: is it new, the same as an experience, a refinement of one, or does
it contradict one? A decision about one lesson is something that weak models can make, where a
plan for a whole batch is not (docs/models.md has the measurements), and one bad answer costs
its own lesson only. Lessons are decided in order; some are asked about ahead of their turn
(`lookahead.py`), and whatever changes the library was decided beside all that is in it by then.

    new → ADD      same → KEEP      refines, contradicts → MODIFY, or DELETE when no text is left

What is already there word for word is a KEEP without asking: every group that comes to the same
lesson is one more vote for it. In an empty library a lesson is new without asking. An ADD of what
is there, or a MODIFY that changes nothing, is a KEEP and recorded as one. What cannot be used goes
back once. A label that does not exist is then refused, on record; where only the text is wrong,
the lesson counts in its own words, if nothing is wrong with those. Labels are made for each prompt
and resolved against that prompt alone. Where the library may not grow any more, room is made first,
or the operation refused (`pruning.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from pydantic import BaseModel

from tfgrpo.model import structured
from tfgrpo.model.client import CallPath, Calls
from tfgrpo.model.embeddings import Embeddings
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.structured import text_field, unbounded_text
from tfgrpo.rendering.examples import is_example
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Library, Operation
from tfgrpo.training import pruning
from tfgrpo.training.draft import Draft
from tfgrpo.training.edits import RoomMaker, within_budget
from tfgrpo.training.lookahead import LessonStream, Lookahead, Proposed, Refusal
from tfgrpo.training.near_duplicates import Similar, describe, find_similar
from tfgrpo.training.notes import Notes
from tfgrpo.training.reflection import Failure, Lesson, Question, Reflection, StepOrigin
from tfgrpo.training.text_check import is_long

CONTROLLER_TOKENS = 600
DROPPED = "the controller dropped it: it says what the gate rejected"
DROPPED_DECLINED = "the controller dropped it: it says what was turned down before"
NOTHING = Notes()
NO_PRUNING = pruning.Pruning()


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The operations of one batch, in order, what was refused, repaired or failed, and the
    operations on the branch of candidates."""

    operations: tuple[Operation, ...]
    refused: tuple[Refusal, ...] = ()
    repaired: int = 0
    failures: tuple[Failure, ...] = ()
    candidates: tuple[Operation, ...] = ()


class Decision(BaseModel):
    """What the controller answers about one lesson. `about` makes it think before it decides."""

    about: str = text_field(120, default="")
    decision: Literal["new", "same", "refines", "contradicts", "drop"]
    closest: str | None = None
    text: str = unbounded_text(4000, default="")


DECISIONS = get_args(Decision.model_fields["decision"].annotation)


@dataclass(frozen=True, slots=True)
class Controller:
    """Decides about lessons.

    `embeddings` tell what is close in meaning. Where `notes` tell of rejected changes, a lesson
    may be dropped, on record. `ahead` is how many lessons are at most asked about at a time,
    `max_edits` how many experiences a batch may change, `on_decided` is called after each lesson.
    """

    calls: Calls
    reflection: Reflection
    embeddings: Embeddings | None = None
    notes: Notes = NOTHING
    ahead: int = 1
    max_edits: int | None = None
    on_decided: Callable[[], None] = lambda: None

    async def plan(
        self,
        lessons: Sequence[Lesson] | LessonStream,
        library: Library,
        origin: StepOrigin,
        initial: pruning.Pruning = NO_PRUNING,
    ) -> BatchPlan:
        """Decides about the lessons of a batch, each beside what those before it left.

        The ids of new experiences follow from `origin`; `initial` comes before all lessons.
        EndpointError is let through.
        """
        stream = lessons if isinstance(lessons, LessonStream) else LessonStream(lessons)
        room = RoomMaker(self.calls, self.reflection, library, origin, initial)
        most = self.max_edits
        cap = self.reflection.library_tokens if most is None else None
        budgeted, draft = [], room.draft
        lookahead = Lookahead(self.propose, stream, origin, self.ahead, cap)
        refused: list[Refusal] = []
        failures: list[Failure] = []
        repaired, number = 0, -1
        while (proposed := await lookahead.proposed(number := number + 1, draft)) is not None:
            self.on_decided()
            refused += proposed.refused
            failures += proposed.failures
            repaired += proposed.repaired
            if proposed.operation is None:
                continue
            if most is None:
                await room.enter(proposed.operation, number)
                draft = room.draft
            else:  # what enters is chosen when all is decided; room is made for that alone
                budgeted.append((number, proposed.operation))
                draft = draft.after([proposed.operation])
        if most is not None:
            chosen, over = within_budget(budgeted, most)
            refused += over
            for number, operation in chosen:
                await room.enter(operation, number)
        return BatchPlan(
            tuple(room.operations),
            (*refused, *room.refused),
            repaired + room.repaired,
            tuple(failures),
        )

    async def propose(
        self, lesson: Lesson, draft: Draft, origin: StepOrigin, number: int
    ) -> Proposed:
        """Returns what a lesson comes to beside a draft, which stays as it is."""
        reflection, problem = self.reflection, lesson.group.problem.id
        failures: tuple[Failure, ...] = ()
        known = draft.same(lesson.text)
        call: tuple[str, ...] = ()
        repaired = 0
        if known is not None:
            decision, label = Decision(decision="same"), known
        elif self._needs_no_call(lesson, draft):
            decision, label = Decision(decision="new", text=lesson.text), None
        else:
            try:
                similar = await find_similar(lesson.text, lessons_in(draft), self.embeddings)
            except CallFailed as error:  # the words are still there to go by
                failures = (Failure("embedding", problem, str(error)),)
                similar = await find_similar(lesson.text, lessons_in(draft))
            try:
                typed = await self._decide(lesson, draft, similar, (origin.step, number))
            except CallFailed as error:
                refusal = Refusal(lesson.text, problem, str(error))
                return Proposed(refused=(refusal,), failures=failures)
            decision, call, repaired = typed.value, (typed.key,), typed.repaired
            label = draft.labels.get(decision.closest or "")
            if decision.decision == "drop":
                why = DROPPED_DECLINED if self.notes.declined else DROPPED
                refusal = Refusal(lesson.text, problem, why)
                return Proposed(None, (refusal,), failures, repaired)
        text = _text(decision, lesson, reflection.max_words)
        fresh = derived_id(origin.uid, origin.step, number)
        operation = operation_of(decision, label, text, draft, fresh)
        evidence = {**origin.evidence, **evidence_of(lesson, call)}
        operation = operation._replace(reason=lesson.reason or None, evidence=evidence)
        return Proposed(operation, (), failures, repaired)

    def _needs_no_call(self, lesson: Lesson, draft: Draft) -> bool:
        """Returns whether a lesson enters as it is: nothing is there that it could be like."""
        short = not is_long(lesson.text, self.reflection.max_words)
        return not lessons_in(draft) and not self.notes.turned_down and short

    async def _decide(
        self, lesson: Lesson, draft: Draft, similar: list[Similar], call_path: CallPath
    ) -> structured.Typed[Decision]:
        reflection, labels = self.reflection, draft.labels
        there = [label for label, id in labels.items() if id in lessons_in(draft)]
        alike = describe(similar, {id: label for label, id in labels.items()})
        decisions = [one for one in DECISIONS if one != "drop" or self.notes.turned_down]
        if not there:  # nothing is there that a lesson could be the same as, or refine
            decisions = [one for one in decisions if one in ("new", "drop")]
        question = Question(
            prompt=reflection.controller,
            values={
                "library": draft.prompt(lessons_in(draft)),
                "lesson": lesson.text,
                "reason": lesson.reason,
                "similar": alike,
            },
            max_tokens=CONTROLLER_TOKENS,
            call_path=call_path,
            appendix=self.notes.text(labels, lesson.misled),
            narrowed={"decision": {"enum": decisions}, "closest": {"enum": [*there, None]}},
            problems=(lesson.group.problem,),
        )
        check, faults = reflection.text_check(question.problems), 0

        def fault_of(decision: Decision) -> str | None:
            if decision.decision in ("same", "drop"):
                return None
            return check(_text(decision, lesson, reflection.max_words))

        def objection(decision: Decision) -> str | None:
            nonlocal faults
            wrong = self._objection(decision, there)
            if wrong is None and (wrong := fault_of(decision)) is not None:
                faults += 1
                if faults > 1 and check(lesson.text) is None:
                    return None
            return wrong

        typed = await reflection.ask(self.calls, question, Decision, objection)
        if fault_of(typed.value) is not None:
            typed = replace(typed, value=_in_the_lessons_words(typed.value, lesson))
        return typed

    def _objection(self, decision: Decision, labels: Sequence[str]) -> str | None:
        """Returns what is wrong with a decision, or None."""
        if decision.decision == "drop":
            if self.notes.turned_down:
                return None
            return "the decision is new, same, refines or contradicts"
        if decision.decision != "new" and not labels:
            return "no experience is about that: the decision is new"
        if decision.decision != "new" and decision.closest not in labels:
            return f"there is no experience {decision.closest}; closest is one of {list(labels)}"
        return None


def lessons_in(draft: Draft) -> dict[str, str]:
    """Returns what lessons are decided about beside, id → text: all but the examples."""
    return {id: text for id, text in draft.texts.items() if not is_example(text)}


def _in_the_lessons_words(decision: Decision, lesson: Lesson) -> Decision:
    """Returns a decision whose own text cannot be used: what contradicts takes the lesson's, and
    what refines is an experience of its own."""
    kind = decision.decision if decision.decision == "contradicts" else "new"
    return decision.model_copy(update={"decision": kind, "text": lesson.text})


def _text(decision: Decision, lesson: Lesson, most: int) -> str:
    """Returns the text that a decision leads to: a new lesson enters as it is, if it is short."""
    if decision.decision == "new" and (not is_long(lesson.text, most) or not decision.text.strip()):
        return lesson.text
    return " ".join(decision.text.split())


def operation_of(
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
    return Operation("MODIFY", id, text)


def evidence_of(lesson: Lesson, call: tuple[str, ...]) -> dict[str, Any]:
    """Returns who taught a lesson: the problem, its rollouts with rewards, the calls between."""
    group = lesson.group
    evidence: dict[str, Any] = {
        "problem": group.problem.id,
        "rollouts": [[rollout.sample, rollout.reward] for rollout in group.rollouts],
        "calls": [key[:16] for key in (*lesson.calls, *call)],
    }
    strategies = sorted({rollout.hint for rollout in group.winners if rollout.hint})
    return evidence | {"strategies": strategies} if strategies else evidence
