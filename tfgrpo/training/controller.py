"""The controller: from lessons to operations on the library.

Each lesson of a batch is put to the model beside the library as it stands after the lessons
before it, with one question: is it new, the same as an experience, a refinement of one, or does
it contradict one? A decision about one lesson is something that weak models can make, where a
plan for a whole batch is not (docs/models.md has the measurements), and one bad answer costs
its own lesson only. Lessons are decided in order; some are asked about ahead of their turn, and
whatever changes the library was decided beside all that is in it by then.

    new → ADD      same → KEEP      refines, contradicts → MODIFY, or DELETE when no text is left

What is already there word for word is a KEEP without asking: every group that comes to the
same lesson is one more vote for it. An ADD of what is there, or a MODIFY that changes nothing,
is a KEEP and recorded as one; a MODIFY that keeps no word of the experience would lose it to a
lesson about something else, so it is an ADD. A label that does not exist, or a text of too many
words, goes back once and is then refused, on record. Labels are made for each prompt and
resolved against that prompt alone. Where the library may not grow any more, room is made first,
or the operation refused (`pruning.py`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel

from tfgrpo.model import structured
from tfgrpo.model.client import CallPath, Calls
from tfgrpo.model.embeddings import Embeddings
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.structured import text_field, unbounded_text
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Library, Operation
from tfgrpo.training import pruning
from tfgrpo.training.draft import Draft, words
from tfgrpo.training.near_duplicates import Similar, describe, find_similar, numbers
from tfgrpo.training.notes import Notes
from tfgrpo.training.reflection import Failure, Lesson, Question, Reflection, StepOrigin

CONTROLLER_TOKENS = 600
DROPPED = "the controller dropped it: it says what the gate rejected"
DROPPED_DECLINED = "the controller dropped it: it says what was turned down before"
NOTHING = Notes()
NO_PRUNING = pruning.Pruning()


@dataclass(frozen=True, slots=True)
class Refusal:
    """A lesson that did not become an operation, and why."""

    text: str
    problem: str
    reason: str


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
class Proposed:
    """What a lesson came to beside one draft: an operation, or why there is none."""

    operation: Operation | None = None
    refused: tuple[Refusal, ...] = ()
    failures: tuple[Failure, ...] = ()
    repaired: int = 0


@dataclass(frozen=True, slots=True)
class Controller:
    """Decides about lessons.

    `embeddings` tell what is close in meaning. Where `notes` tell of rejected changes, a lesson
    may be dropped, on record. `ahead` is how many lessons are at most asked about at a time,
    `on_decided` is called after each.
    """

    calls: Calls
    reflection: Reflection
    embeddings: Embeddings | None = None
    notes: Notes = NOTHING
    ahead: int = 1
    on_decided: Callable[[], None] = lambda: None

    async def plan(
        self,
        lessons: Sequence[Lesson],
        library: Library,
        origin: StepOrigin,
        initial: pruning.Pruning = NO_PRUNING,
    ) -> BatchPlan:
        """Decides about the lessons of a batch, each beside what those before it left.

        The ids of new experiences follow from `origin`; `initial` comes before all lessons.
        EndpointError is let through.
        """
        draft = Draft(library).after(initial.operations)
        operations: list[Operation] = list(initial.operations)
        refused: list[Refusal] = []
        failures: list[Failure] = []
        repaired = initial.repaired
        async with Lookahead(self, lessons, origin) as lookahead:
            for number, lesson in enumerate(lessons):
                proposed = await lookahead.proposed(number, draft)
                refused += proposed.refused
                failures += proposed.failures
                repaired += proposed.repaired
                operation = proposed.operation
                if operation is None:
                    self.on_decided()
                    continue
                if not pruning.fits(draft, operation, self.reflection.library_tokens):
                    try:
                        pruned = await pruning.make_room(
                            self.calls, self.reflection, draft, operation, origin, number
                        )
                    except CallFailed as error:
                        problem = lesson.group.problem.id
                        refused.append(Refusal(operation.text or "", problem, str(error)))
                        self.on_decided()
                        continue
                    draft = draft.after(pruned.operations)
                    operations += pruned.operations
                    repaired += pruned.repaired
                    operation = _once(operation, draft)
                draft.apply(operation)
                operations.append(operation)
                self.on_decided()
        return BatchPlan(tuple(operations), tuple(refused), repaired, tuple(failures))

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
                similar = await find_similar(lesson.text, draft.texts, self.embeddings)
            except CallFailed as error:  # the words are still there to go by
                failures = (Failure("embedding", problem, str(error)),)
                similar = await find_similar(lesson.text, draft.texts)
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
        operation = _operation(decision, label, text, draft, fresh)
        evidence = {**origin.evidence, **_evidence(lesson, call)}
        operation = operation._replace(reason=lesson.reason or None, evidence=evidence)
        return Proposed(operation, (), failures, repaired)

    def _needs_no_call(self, lesson: Lesson, draft: Draft) -> bool:
        """Returns whether a lesson enters as it is: nothing is there that it could be like."""
        short = words(lesson.text) <= self.reflection.max_words
        return not draft.texts and not self.notes.turned_down and short

    async def _decide(
        self, lesson: Lesson, draft: Draft, similar: list[Similar], call_path: CallPath
    ) -> structured.Typed[Decision]:
        reflection, labels = self.reflection, draft.labels
        decisions = [one for one in DECISIONS if one != "drop" or self.notes.turned_down]
        question = Question(
            prompt=reflection.controller,
            values={
                "library": draft.prompt(),
                "lesson": lesson.text,
                "reason": lesson.reason,
                "similar": describe(similar, {id: label for label, id in labels.items()}),
            },
            max_tokens=CONTROLLER_TOKENS,
            call_path=call_path,
            appendix=self.notes.text(labels),
            narrowed={"decision": {"enum": decisions}, "closest": {"enum": [*labels, None]}},
            problems=(lesson.group.problem,),
        )

        check = reflection.lesson_check(question)

        def objection(decision: Decision) -> str | None:
            wrong = self._objection(decision, lesson, draft)
            if wrong is None and decision.decision not in ("same", "drop"):
                wrong = check(_text(decision, lesson, reflection.max_words))
            return wrong

        return await reflection.ask(self.calls, question, Decision, objection)

    def _objection(self, decision: Decision, lesson: Lesson, draft: Draft) -> str | None:
        """Returns what is wrong with a decision, or None."""
        labels = draft.labels
        if decision.decision == "drop":
            if self.notes.turned_down:
                return None
            return "the decision is new, same, refines or contradicts"
        if decision.decision != "new" and decision.closest not in labels:
            return f"there is no experience {decision.closest}; closest is one of {list(labels)}"
        if decision.decision == "same":
            there = draft.texts[labels[decision.closest or ""]]
            if set(numbers(lesson.text)) - set(numbers(there)):
                return (
                    f"{decision.closest} does not give the number of the lesson, so it is not the "
                    "same. The decision is new, unless both are about the very same thing."
                )
            return None
        most = self.reflection.max_words
        count = words(_text(decision, lesson, most))
        return f"the text has {count} words, and {most} are the most" if count > most else None


class Lookahead:
    """Asks about the next lessons before those ahead of them are decided. A context manager.

    The bet is that a lesson changes nothing, since most say what an experience says already. That
    a lesson is the same as an experience stands as long as that experience does, whatever came
    to the library meanwhile; any other proposal is asked for again when its turn comes, if the
    library has changed since, so whatever changes it was decided beside all that is in it. What
    is asked when follows from the answers in their order, so a run that is resumed asks the same.
    """

    def __init__(
        self, controller: Controller, lessons: Sequence[Lesson], origin: StepOrigin
    ) -> None:
        self._controller, self._lessons, self._origin = controller, lessons, origin
        self._width = 1
        self._asked: dict[int, tuple[Draft, asyncio.Task[Proposed]]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        tasks = [task for _, task in self._asked.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def proposed(self, number: int, draft: Draft) -> Proposed:
        """Returns what a lesson comes to; the draft is the one that those before it left."""
        last = min(number + self._width, len(self._lessons))
        now = draft.after(())
        for at in range(number, last):
            if at not in self._asked:
                self._asked[at] = (now, asyncio.create_task(self._propose(at, now)))
        then, task = self._asked.pop(number)
        proposed = await task
        self._width = min(2 * self._width, self._controller.ahead)
        return proposed if _stands(proposed, then, draft) else await self._propose(number, now)

    async def _propose(self, number: int, draft: Draft) -> Proposed:
        lesson = self._lessons[number]
        return await self._controller.propose(lesson, draft, self._origin, number)


def _stands(proposed: Proposed, then: Draft, now: Draft) -> bool:
    """Returns whether what was proposed beside one draft holds beside another."""
    operation = proposed.operation
    if operation is None or then.texts == now.texts:
        return True
    id = operation.experience or ""
    return operation.op == "KEEP" and then.texts[id] == now.texts.get(id)


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
    evidence: dict[str, Any] = {
        "problem": group.problem.id,
        "rollouts": [[rollout.sample, rollout.reward] for rollout in group.rollouts],
        "calls": [key[:16] for key in (*lesson.calls, *call)],
    }
    strategies = sorted({rollout.hint for rollout in group.winners if rollout.hint})
    return evidence | {"strategies": strategies} if strategies else evidence
