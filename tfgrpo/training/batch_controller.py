"""The paper's own controller: one call that sees all lessons of a step and plans every operation.

It costs one call where `controller.py` takes one a lesson, and asks much more of the model: it has
to see which lessons say the same, and to keep count of labels and numbers. Each operation is
checked as a single decision is; what is wrong goes back once, and then that operation alone is
refused, on record, as is a lesson that no operation takes up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel

from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.structured import unbounded_text
from tfgrpo.rendering.templates import Template
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Library, Operation
from tfgrpo.training import pruning
from tfgrpo.training.controller import (
    DROPPED,
    DROPPED_DECLINED,
    BatchPlan,
    Controller,
    Decision,
    evidence_of,
    lessons_in,
    operation_of,
)
from tfgrpo.training.draft import Draft
from tfgrpo.training.edits import RoomMaker, within_budget
from tfgrpo.training.lookahead import Refusal
from tfgrpo.training.plan_sources import sources
from tfgrpo.training.reflection import Lesson, Question, StepOrigin

PLAN_TOKENS = 4000
REPEATED = "an operation before it does so already"
OPS = {"add": "new", "keep": "same", "modify": "refines", "delete": "contradicts"}


class PlannedEdit(BaseModel):
    """One operation of a plan, with the numbers of the lessons that it follows from."""

    lessons: list[int]
    op: Literal["add", "modify", "delete", "keep", "drop"]
    experience: str | None = None
    text: str = unbounded_text(4000, default="")


class EditPlan(BaseModel):
    """What is to be done about the lessons of a step."""

    operations: list[PlannedEdit]


async def plan_batch(
    deciding: Controller,
    prompt: Template,
    lessons: Sequence[Lesson],
    library: Library,
    origin: StepOrigin,
    initial: pruning.Pruning,
) -> BatchPlan:
    """Returns what one call makes of all lessons of a step; `deciding` says how it is asked.

    A plan that cannot be had or read refuses every lesson. EndpointError is let through.
    """
    calls, reflection = deciding.calls, deciding.reflection
    room = RoomMaker(calls, reflection, library, origin, initial)
    if not lessons:
        return BatchPlan(tuple(room.operations), (), room.repaired)
    draft = room.draft
    listed = "\n".join(f"{n}. {lesson.text}" for n, lesson in enumerate(lessons, 1))
    question = Question(
        prompt=prompt,
        values={"library": draft.prompt(lessons_in(draft)), "lessons": listed},
        max_tokens=PLAN_TOKENS,
        call_path=(origin.step, "plan"),
        stage="controller",
        appendix=deciding.notes.text(draft.labels),
        narrowed={"operations": _narrowed(deciding, draft, len(lessons))},
        problems=tuple({one.group.problem.id: one.group.problem for one in lessons}.values()),
    )
    complained = False

    def check(plan: EditPlan) -> str | None:
        """Complains of the first operation that is wrong, once."""
        nonlocal complained
        objections = (
            _misnumbered(edit, len(lessons)) or _objection(edit, own, draft, deciding)
            for edit, own in _with_sources(plan, lessons, draft)
        )
        wrong = next(filter(None, objections), None)
        if wrong is None or complained:
            return None
        complained = True
        return wrong

    try:
        typed = await reflection.ask(calls, question, EditPlan, check)
    except CallFailed as error:
        refused = [Refusal(one.text, one.group.problem.id, str(error)) for one in lessons]
        return BatchPlan(tuple(room.operations), tuple(refused), room.repaired)
    known = _with_prompt(origin, prompt)
    refused = []
    numbered: list[tuple[int, Operation]] = []
    taken: list[Lesson] = []
    taught: dict[str, list[Lesson]] = {}
    now = draft.after(())
    for number, (edit, own) in enumerate(_with_sources(typed.value, lessons, draft)):
        wrong = _misnumbered(edit, len(lessons)) or _objection(edit, own, draft, deciding)
        taken += own
        id = draft.labels.get(edit.experience or "")
        if wrong is None and edit.op in ("modify", "delete", "keep") and id not in now.texts:
            wrong = f"an operation before it has deleted {edit.experience}"
        if wrong is None and edit.op == "drop":
            wrong = DROPPED_DECLINED if deciding.notes.declined else DROPPED
        if wrong is not None:
            problem = own[0].group.problem.id if own else ""
            refused.append(Refusal(edit.text or edit.op, problem, wrong))
            continue
        decision = Decision(decision=OPS[edit.op], closest=edit.experience)  # type: ignore[arg-type]
        text = "" if edit.op in ("keep", "delete") else " ".join(edit.text.split())
        operation = operation_of(decision, id, text, now, derived_id(known.uid, known.step, number))
        before = taught.setdefault(operation.experience or "", [])
        own = [lesson for lesson in own if lesson not in before] or own
        if operation.op == "KEEP" and own[0] in before:
            refused.append(Refusal(edit.text or edit.op, own[0].group.problem.id, REPEATED))
            continue
        before += own
        evidence = {**known.evidence, **_evidence(own, typed.key)}
        operation = operation._replace(reason=own[0].reason or None, evidence=evidence)
        now = now.after([operation])
        numbered.append((number, operation))
    refused += [
        Refusal(lesson.text, lesson.group.problem.id, "no operation of the plan takes it up")
        for lesson in lessons
        if lesson not in taken
    ]
    if deciding.max_edits is not None:
        numbered, over = within_budget(numbered, deciding.max_edits)
        refused += over
    for number, operation in numbered:
        await room.enter(operation, number)
    for _ in lessons:
        deciding.on_decided()
    repaired = room.repaired + typed.repaired
    return BatchPlan(tuple(room.operations), (*refused, *room.refused), repaired)


def _with_prompt(origin: StepOrigin, prompt: Template) -> StepOrigin:
    """Returns an origin whose evidence names the plan's prompt too."""
    prompts = {**origin.evidence.get("prompts", {}), prompt.name: prompt.digest[:16]}
    return replace(origin, evidence={**origin.evidence, "prompts": prompts})


def _narrowed(deciding: Controller, draft: Draft, lessons: int) -> dict[str, Any]:
    """Returns the schema of a plan: what changes an experience names one of those that are there,
    an ADD has no such field (after it a small model may write blanks without end), and there are no
    more operations than lessons and experiences."""
    labels = list(_labels(draft))
    numbers = {
        "type": "array",
        "minItems": 1,
        "maxItems": lessons,
        "items": {"type": "integer", "minimum": 1, "maximum": lessons},
    }

    def edit(ops: list[str], **more: dict[str, Any]) -> dict[str, Any]:
        fields = {
            "lessons": numbers,
            "op": {"enum": ops, "type": "string"},
            **more,
            "text": {"type": "string"},
        }
        return {
            "type": "object",
            "additionalProperties": False,
            "required": list(fields),
            "properties": fields,
        }

    new = edit(["add", *(["drop"] if deciding.notes.turned_down else [])])
    there = [op for op in OPS if op != "add"]
    change = edit(there, experience={"enum": labels, "type": "string"})
    return {
        "type": "array",
        "maxItems": lessons + len(labels),
        "items": {"anyOf": [new, change]} if labels else new,
    }


def _labels(draft: Draft) -> dict[str, str]:
    """Returns label → id of the experiences that a plan may be about."""
    lessons = lessons_in(draft)
    return {label: id for label, id in draft.labels.items() if id in lessons}


def _with_sources(
    plan: EditPlan, lessons: Sequence[Lesson], draft: Draft
) -> list[tuple[PlannedEdit, list[Lesson]]]:
    """Returns the operations of a plan, each with the lessons that it follows from. One that
    deletes is taken at its word: it goes against what it deletes, so likeness says little."""
    labels = _labels(draft)

    def text_of(edit: PlannedEdit) -> str:
        if edit.op == "keep":
            return draft.texts.get(labels.get(edit.experience or "", ""), "")
        return "" if edit.op in ("delete", "drop") else edit.text

    named = [[n - 1 for n in edit.lessons if 0 < n <= len(lessons)] for edit in plan.operations]
    places = sources(list(map(text_of, plan.operations)), named, [one.text for one in lessons])
    return [
        (edit, [lessons[n] for n in own]) for edit, own in zip(plan.operations, places, strict=True)
    ]


def _misnumbered(edit: PlannedEdit, lessons: int) -> str | None:
    """Returns what is wrong with the numbers of lessons that an operation names."""
    if edit.lessons and all(0 < n <= lessons for n in edit.lessons):
        return None
    return f"an operation names lessons {edit.lessons}; there are 1 to {lessons}"


def _objection(
    edit: PlannedEdit,
    own: Sequence[Lesson],
    draft: Draft,
    deciding: Controller,
) -> str | None:
    """Returns what is wrong with an operation, and the lessons that it follows from, beside the
    library that the plan was asked for."""
    labels = _labels(draft)
    if edit.op == "drop":
        return None if deciding.notes.turned_down else f"an operation is one of {list(OPS)}"
    if edit.op != "add" and edit.experience not in labels:
        return f"there is no experience {edit.experience}; experiences are {list(labels)}"
    if edit.op in ("keep", "delete"):
        return None
    text = " ".join(edit.text.split())
    if not text:
        return f'"{edit.op}" needs a text'
    problems = tuple(lesson.group.problem for lesson in own)
    objection = deciding.reflection.text_check(problems)(text)
    return objection and f"{text[:80]!r}: {objection}"


def _evidence(own: Sequence[Lesson], key: str) -> dict[str, Any]:
    """Returns who taught an operation: its first lesson's rollouts, and all problems."""
    evidence = evidence_of(own[0], (key,))
    problems = list(dict.fromkeys(lesson.group.problem.id for lesson in own))
    return evidence | {"problems": problems} if len(problems) > 1 else evidence
