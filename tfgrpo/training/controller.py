"""The controller: from lessons to operations on the library.

Each lesson of a batch is put to the model beside the library as it stands after the lessons
before it, with one question: is it new, the same as an experience, a refinement of one, or does
it contradict one? A decision about one lesson is something that weak models can make, where a
plan for a whole batch is not (docs/models.md has the measurements), and one bad answer costs
its own lesson only. Lessons are decided in order; some are asked about ahead of their turn
(`lookahead.py`), and whatever changes the library was decided beside all that is in it by then.

    new → ADD      same → KEEP      refines, contradicts → MODIFY, or DELETE when no text is left

What is already there word for word is a KEEP without asking: every group that comes to the same
lesson is one more vote for it. Where answers are shared, as labels are, a lesson is put beside
the experiences that name its label, and one that is about numbers (`telling_numbers.py`) beside
those that may be about them too; where none is, it is new without asking. An ADD of what
is there, or a MODIFY that changes nothing, is a KEEP and recorded as one; a MODIFY that keeps
no word of the experience would lose it to a lesson about something else, so it is an ADD. What
cannot be used goes back once. A label that does not exist is then refused, on record; where
only the text is wrong, or a refinement leaves out a number of what it refines, the lesson counts
in its own words, if nothing is wrong with those. Labels are made for each prompt and resolved
against that prompt alone. Where the library may not grow any more, room is made first, or the
operation refused (`pruning.py`).
"""

from __future__ import annotations

import re
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
from tfgrpo.training.draft import Draft, words
from tfgrpo.training.edits import RoomMaker, within_budget
from tfgrpo.training.label_mentions import mentions, right_answers, tells
from tfgrpo.training.lookahead import LessonStream, Lookahead, Proposed, Refusal
from tfgrpo.training.near_duplicates import Similar, condition, describe, find_similar
from tfgrpo.training.notes import Notes
from tfgrpo.training.number_lessons import step_of
from tfgrpo.training.number_votes import is_vote
from tfgrpo.training.numbers_in_text import names_number, numbers_anywhere, numbers_in
from tfgrpo.training.reflection import Failure, Lesson, Question, Reflection, StepOrigin
from tfgrpo.training.telling_parts import is_about_form, is_same_form

CONTROLLER_TOKENS = 600
WHEN = re.compile(
    r"(?i)\b(?:when|whenever|where|wherever|if|unless|for|before|after|during|once|in case of|on"
    r"|with|to)\b"
)
"""What a text says of when it holds begins with."""
DROPPED = "the controller dropped it: it says what the gate rejected"
DROPPED_DECLINED = "the controller dropped it: it says what was turned down before"
NOTHING = Notes()
NO_PRUNING = pruning.Pruning()


@dataclass(frozen=True, slots=True)
class BatchPlan:
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
        known = draft.same(lesson.text) or _more_exact(lesson, draft)
        call: tuple[str, ...] = ()
        repaired = 0
        if known is not None:
            decision, label = Decision(decision="same"), known
        elif is_about_form(lesson.text) or self._needs_no_call(lesson, draft):
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
            if self._tells_apart(decision, lesson, draft):
                decision = Decision(decision="new", text=lesson.text)
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
        short = words(lesson.text) <= self.reflection.max_words
        return not self.related(lesson, draft) and not self.notes.turned_down and short

    def related(self, lesson: Lesson, draft: Draft) -> dict[str, str]:
        """Returns the experiences, by their labels, that a lesson may be about as well: where
        answers are shared, those that name its answer, and where it is about numbers, those that
        name one or speak of what it stands for. A small model calls a lesson about one label the
        same as one about another, and writes one number over another."""
        answers = self._answers(lesson)
        lessons = lessons_in(draft)
        there = {label: id for label, id in draft.labels.items() if id in lessons}
        if not answers and lesson.numbers:
            return {
                label: id
                for label, id in there.items()
                if any(one.may_be_in(draft.texts[id]) for one in lesson.numbers)
            }
        if not answers:
            return there
        return {
            label: id
            for label, id in there.items()
            if any(mentions(draft.texts[id], answer) for answer in answers)
        }

    def _tells_apart(self, decision: Decision, lesson: Lesson, draft: Draft) -> bool:
        """Returns whether a decision takes a lesson for one that gives another shared answer: it
        may contradict that, and nothing else."""
        answers, id = self._answers(lesson), draft.labels.get(decision.closest or "")
        if not answers or id is None or decision.decision not in ("same", "refines"):
            return False
        return not any(tells(draft.texts[id], answer) for answer in answers)

    def _answers(self, lesson: Lesson) -> tuple[str, ...]:
        """Returns the shared answers that a lesson is about, or none."""
        if not (self.reflection.shared_answers and self.reflection.ground_truth):
            return ()
        return right_answers(lesson.group.problem)

    async def _decide(
        self, lesson: Lesson, draft: Draft, similar: list[Similar], call_path: CallPath
    ) -> structured.Typed[Decision]:
        reflection, labels = self.reflection, draft.labels
        related = self.related(lesson, draft)
        alike = describe(similar, {id: label for label, id in labels.items()})
        decisions = [one for one in DECISIONS if one != "drop" or self.notes.turned_down]
        if not related:  # nothing is there that a lesson could be the same as, or refine
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
            narrowed={"decision": {"enum": decisions}, "closest": {"enum": [*related, None]}},
            problems=(lesson.group.problem,),
        )

        most, faults = reflection.max_words, 0
        check = reflection.lesson_check(question.problems, question.prompt, alike)

        def fault(text: str) -> str | None:
            count = words(text)
            return (
                f"the text has {count} words, and {most} are the most"
                if count > most
                else check(text)
            )

        def fault_of(decision: Decision) -> str | None:
            if decision.decision in ("same", "drop"):
                return self._not_same(decision, lesson, draft, similar)
            text = _text(decision, lesson, most)
            if decision.decision == "refines":
                wrong = _fault_of_refinement(decision, text, lesson, draft)
                if wrong is not None:
                    return wrong
            return fault(text)

        def objection(decision: Decision) -> str | None:
            nonlocal faults
            wrong = self._objection(decision, lesson, draft, similar)
            if wrong is None and (wrong := fault_of(decision)) is not None:
                faults += 1
                text = _text(decision, lesson, most)
                if faults > 1 and (fault(lesson.text) is None or fault(text) is None):
                    return None
            return wrong

        typed = await reflection.ask(self.calls, question, Decision, objection)
        if fault_of(typed.value) is not None:
            typed = replace(typed, value=self._fallback(typed.value, lesson, draft, fault))
        return typed

    def _fallback(
        self,
        decision: Decision,
        lesson: Lesson,
        draft: Draft,
        fault: Callable[[str], str | None],
    ) -> Decision:
        """Returns what a decision comes to whose own text cannot be used. A refinement that leaves
        out a number is a vote, where the lesson has no number and is about the same; else new."""
        text = _text(decision, lesson, self.reflection.max_words)
        there = draft.texts.get(draft.labels.get(decision.closest or "", ""), "")
        refines = decision.decision == "refines"
        is_known = bool(lesson.numbers) and all(one.is_stated_in(there) for one in lesson.numbers)
        has_no_room = _lost_condition(decision, text, draft) and fault(lesson.text) is not None
        if refines and (is_known or (has_no_room and not lesson.numbers)):
            return decision.model_copy(update={"decision": "same"})
        if refines and _lost_numbers(decision, text, draft):
            if not numbers_in(lesson.text) and not _apart(lesson.text, there):
                return decision.model_copy(update={"decision": "same"})
            if fault(lesson.text) is not None:  # too long: the text is right, for something else
                return decision.model_copy(update={"decision": "new", "text": text})
        return _in_the_lessons_words(decision, lesson)

    def _objection(
        self, decision: Decision, lesson: Lesson, draft: Draft, similar: list[Similar]
    ) -> str | None:
        """Returns what is wrong with a decision, or None."""
        labels = self.related(lesson, draft)
        if decision.decision == "drop":
            if self.notes.turned_down:
                return None
            return "the decision is new, same, refines or contradicts"
        if decision.decision != "new" and not labels:
            return "no experience is about that: the decision is new"
        if decision.decision != "new" and decision.closest not in labels:
            return f"there is no experience {decision.closest}; closest is one of {list(labels)}"
        most = self.reflection.max_words
        if self._tells_apart(decision, lesson, draft):  # it is new, if it is short enough for that
            if words(lesson.text) <= most:
                return None
            return f"{decision.closest} gives another answer: the decision is new"
        return None

    def _not_same(
        self, decision: Decision, lesson: Lesson, draft: Draft, similar: list[Similar]
    ) -> str | None:
        """Returns why a lesson that is taken for the same as an experience is not, or None."""
        if decision.decision != "same":
            return None
        if missing := _left_out(decision, lesson, draft):
            return f"{decision.closest} does not give {missing} for the same: it is new"
        labels, wanted = self.related(lesson, draft), numbers_anywhere(lesson.text)
        if not wanted - numbers_anywhere(draft.texts[labels[decision.closest or ""]]):
            return None
        gives = f"{decision.closest} does not give the number of the lesson"
        alike = {one.experience for one in similar}
        for label, other in labels.items():  # small models miscount labels
            if other in alike and not wanted - numbers_anywhere(draft.texts[other]):
                return f"{gives}, and {label} does: it is the same as {label}, or it is new."
        return (
            f"{gives}, so it is not the same. The decision is new, unless both are about the "
            "very same thing."
        )


def lessons_in(draft: Draft) -> dict[str, str]:
    """Returns what lessons are decided about beside, id → text: all but the examples."""
    return {id: text for id, text in draft.texts.items() if not is_example(text)}


def _more_exact(lesson: Lesson, draft: Draft) -> str | None:
    """Returns the experience that a lesson says no more than: a step with its number, where it is
    the step in other words or without a number, or the number alone."""
    for id, there in draft.texts.items():
        if is_vote(lesson.text, lesson.numbers, there) or is_same_form(lesson.text, there):
            return id
    return None


def _fault_of_refinement(decision: Decision, text: str, lesson: Lesson, draft: Draft) -> str | None:
    """Returns what is lost where a text takes the place of the experience that it refines, or
    None."""
    closest = decision.closest
    step = step_of(draft.texts.get(draft.labels.get(closest or "", ""), ""))
    if text and step is not None and not step.is_stated_in(text):
        return f"the text leaves out the step that {closest} gives; what is about another is new"
    if text and (lost := _lost_numbers(decision, text, draft)):
        return (
            f"the text leaves out {lost[0]}, which {closest} gives. A text that refines keeps "
            "that; what is about something else is new"
        )
    if number := _left_out(decision, lesson, draft):
        return f"the text leaves out {number}, which the lesson gives, so that is lost"
    if text and _lost_condition(decision, text, draft):
        return f"the text leaves out when it holds, which {closest} says"
    if text and _says_less(decision, text, lesson, draft):
        return f"the text says less than {closest} and than the lesson"
    return None


def _lost_numbers(decision: Decision, text: str, draft: Draft) -> list[str]:
    """Returns the numbers of the experience that a decision is about that a text does not have."""
    there = draft.texts.get(draft.labels.get(decision.closest or "", ""), "")
    return sorted(number for number in numbers_in(there) if not names_number(text, number))


def _left_out(decision: Decision, lesson: Lesson, draft: Draft) -> str | None:
    """Returns a number that a lesson is about and that would be left out of what comes of it."""
    there = draft.texts.get(draft.labels.get(decision.closest or "", ""), "")
    text = there if decision.decision == "same" else decision.text.strip() or there
    return next((one.number for one in lesson.numbers if one.is_lost_in(text, there)), None)


def _lost_condition(decision: Decision, text: str, draft: Draft) -> bool:
    """Returns whether the experience that a decision is about begins with when it holds, and a
    text says nowhere when."""
    there = draft.texts.get(draft.labels.get(decision.closest or "", ""), "")
    return condition(there) is not None and not WHEN.search(text)


def _says_less(decision: Decision, text: str, lesson: Lesson, draft: Draft) -> bool:
    """Returns whether a text has less than half the words of the lesson, and of the experience
    that it would take the place of: a piece of it."""
    there = draft.texts.get(draft.labels.get(decision.closest or "", ""), "")
    return 2 * words(text) < min(words(there), words(lesson.text))


def _in_the_lessons_words(decision: Decision, lesson: Lesson) -> Decision:
    """Returns a decision whose own text cannot be used: what contradicts takes the lesson's, and
    what refines is an experience of its own."""
    kind = decision.decision if decision.decision == "contradicts" else "new"
    return decision.model_copy(update={"decision": kind, "text": lesson.text})


def _text(decision: Decision, lesson: Lesson, most: int) -> str:
    """Returns the text that a decision leads to: a new lesson enters as it is, if it is short."""
    if decision.decision == "new" and (words(lesson.text) <= most or not decision.text.strip()):
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


def evidence_of(lesson: Lesson, call: tuple[str, ...]) -> dict[str, Any]:
    """Returns who taught a lesson: the problem, its rollouts with rewards, the calls between."""
    group = lesson.group
    evidence: dict[str, Any] = {
        "problem": group.problem.id,
        "rollouts": [[rollout.sample, rollout.reward] for rollout in group.rollouts],
        "calls": [key[:16] for key in (*lesson.calls, *call)],
    }
    if lesson.numbers:
        evidence["numbers"] = [one.number for one in lesson.numbers]
    strategies = sorted({rollout.hint for rollout in group.winners if rollout.hint})
    return evidence | {"strategies": strategies} if strategies else evidence
