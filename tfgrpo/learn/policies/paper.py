"""The published method (arXiv 2510.08191): compare each group, plan all operations in one call.

    roll out → summarise → compare → plan

Every attempt is shown the whole library, and nothing is measured before it enters. Each operation
of a plan is checked. A wrong one is sent back once; after that it alone is refused, on record. So
is a lesson that no operation takes up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, NamedTuple

from pydantic import BaseModel

from tfgrpo.learn.collector import Batch, Collector, contrasted
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.library_draft import Draft, fits
from tfgrpo.learn.policies.protocol import Learned, Refusal, Step, evidence_of
from tfgrpo.learn.reflection import Advantage, Lesson, Question, Reflection, compare
from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.structured_answers import unbounded_text
from tfgrpo.rendering.experience_texts import instruction, is_example
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.rollout.attempt import Group
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Operation

PLAN_TOKENS = 4000
OPS = ("add", "keep", "modify", "delete")
REPEATED = "an operation before it does so already"
NO_ROOM = "no room under the cap on tokens"


class PlannedEdit(BaseModel):
    """One operation of a plan, with the numbers of the lessons that it follows from."""

    lessons: list[int]
    op: Literal["add", "modify", "delete", "keep"]
    experience: str | None = None
    text: str = unbounded_text(4000, default="")


class EditPlan(BaseModel):
    """What is to be done about the lessons of a step."""

    operations: list[PlannedEdit]


class Published:
    """The policy `paper`."""

    prompts: ClassVar[tuple[str, ...]] = ("summary", "comparison", "reconcile", "plan")
    settings: ClassVar[tuple[str, ...]] = ()

    def __init__(self, parts: RunParts, collector: Collector) -> None:
        self._parts, self._collector = parts, collector
        self._planner = Planner(parts.reflector, parts.reflection, parts.settings.library_tokens)

    async def learn(self, step: Step) -> Learned:
        """Compares a step's groups and plans what follows. See `Policy`."""
        batch = Batch(step.number, step.batch, step.library, step.is_last)
        groups, comparisons = await contrasted(
            self._parts,
            self._collector,
            batch,
            lambda place, groups: self._compare(groups[place], step),
        )
        self._parts.progress.enter("decide")
        lessons = [lesson for one in comparisons for lesson in one.lessons]
        learned = await self._planner.plan(step, lessons) if lessons else Learned()
        self._parts.progress.decided = len(lessons)
        return replace(learned, groups=tuple(groups), comparisons=tuple(comparisons))

    async def _compare(self, whole: Awaitable[Group], step: Step) -> Advantage | None:
        group = await whole
        if not group.mixed:
            return None
        top_k, rank = self._parts.settings.top_k or None, self._parts.domain.retrieve
        library = relevant(step.library, group.problem.problem, top_k, rank=rank)
        calls, reflection = self._parts.reflector, self._parts.reflection
        return await compare(calls, reflection, group, library, step=step.number)


class Planner(NamedTuple):
    """Plans what becomes of lessons: which model is asked, and how, and the cap on a library's
    tokens."""

    calls: Calls
    reflection: Reflection
    cap: int | None = None

    async def plan(self, step: Step, lessons: Sequence[Lesson]) -> Learned:
        """What one call makes of all lessons. A plan that cannot be had or read refuses every
        lesson. Raises EndpointError."""
        draft, prompt = Draft(step.library), self.reflection.plan
        listed = "\n".join(f"{n}. {lesson.text}" for n, lesson in enumerate(lessons, 1))
        question = Question(
            prompt=prompt,
            values={"library": draft.prompt(_labels(draft).values()), "lessons": listed},
            max_tokens=PLAN_TOKENS,
            call_path=(step.number, "plan"),
            stage="plan",
            narrowed={"operations": _narrowed(draft, len(lessons))},
            problems=tuple({one.group.problem.id: one.group.problem for one in lessons}.values()),
        )
        complained = False

        def check(plan: EditPlan) -> str | None:
            """Complains of the first operation that is wrong, once."""
            nonlocal complained
            objections = (
                self._objection(edit, _named(edit, lessons), draft, len(lessons))
                for edit in plan.operations
            )
            wrong = next(filter(None, objections), None)
            if wrong is None or complained:
                return None
            complained = True
            return wrong

        try:
            typed = await self.reflection.ask(self.calls, question, EditPlan, check)
        except CallFailed as error:
            refused = [Refusal(one.text, one.group.problem.id, str(error)) for one in lessons]
            return Learned(refused=tuple(refused))
        prompts = {**step.origin.evidence.get("prompts", {}), prompt.name: prompt.digest[:16]}
        known = {**step.origin.evidence, "prompts": prompts}
        now, refused, operations = draft, [], []
        taken: list[Lesson] = []
        taught: dict[str, list[Lesson]] = {}
        for number, edit in enumerate(typed.value.operations):
            own = _named(edit, lessons)
            taken += own
            problem = own[0].group.problem.id if own else ""
            text = edit.text or (own[0].text if own else edit.op)
            id = draft.labels.get(edit.experience or "")
            wrong = self._objection(edit, own, draft, len(lessons))
            if wrong is None and edit.op != "add" and id not in now.texts:
                wrong = f"an operation before it has deleted {edit.experience}"
            if wrong is not None:
                refused.append(Refusal(text, problem, wrong))
                continue
            fresh = derived_id(step.origin.uid, step.number, number)
            operation = _operation(edit, id, now, fresh)
            before = taught.setdefault(operation.experience or "", [])
            own = [lesson for lesson in own if lesson not in before] or own
            if operation.op == "KEEP" and own[0] in before:
                refused.append(Refusal(text, problem, REPEATED))
                continue
            if not fits(now, operation, self.cap):
                refused.append(Refusal(text, problem, f"{NO_ROOM} ({self.cap})"))
                continue
            before += own
            evidence = {**known, **_evidence(own, typed.key)}
            operations.append(operation._replace(reason=own[0].reason or None, evidence=evidence))
            now = now.after(operations[-1:])
        refused += [
            Refusal(lesson.text, lesson.group.problem.id, "no operation of the plan takes it up")
            for lesson in lessons
            if lesson not in taken
        ]
        return Learned(
            operations=tuple(operations), refused=tuple(refused), repaired=int(typed.repaired)
        )

    def _objection(
        self, edit: PlannedEdit, own: Sequence[Lesson], draft: Draft, lessons: int
    ) -> str | None:
        if not edit.lessons or not all(0 < n <= lessons for n in edit.lessons):
            return f"an operation names lessons {edit.lessons}; there are 1 to {lessons}"
        labels = _labels(draft)
        if edit.op != "add" and edit.experience not in labels:
            return f"there is no experience {edit.experience}; experiences are {list(labels)}"
        if edit.op in ("keep", "delete"):
            return None
        text = " ".join(edit.text.split())
        if not text:
            return f'"{edit.op}" needs a text'
        problems = tuple(lesson.group.problem for lesson in own)
        objection = self.reflection.text_check(problems)(text)
        return objection and f"{text[:80]!r}: {objection}"


def _operation(edit: PlannedEdit, id: str | None, now: Draft, fresh: str) -> Operation:
    """The operation that a checked edit stands for. What is there already is a KEEP."""
    if edit.op in ("keep", "delete"):
        return Operation("KEEP" if edit.op == "keep" else "DELETE", id)
    text = " ".join(edit.text.split())
    known = now.same(text)
    if known is not None:
        return Operation("KEEP", known)
    return Operation("ADD", fresh, text) if edit.op == "add" else Operation("MODIFY", id, text)


def _narrowed(draft: Draft, lessons: int) -> dict[str, Any]:
    """The schema of a plan: what changes an experience names one of those that are there, an ADD
    has no such field (after it a small model may write blanks without end), and there are no more
    operations than lessons and experiences."""
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

    new = edit(["add"])
    there = [op for op in OPS if op != "add"]
    change = edit(there, experience={"enum": labels, "type": "string"})
    return {
        "type": "array",
        "maxItems": lessons + len(labels),
        "items": {"anyOf": [new, change]} if labels else new,
    }


def _labels(draft: Draft) -> dict[str, str]:
    texts = draft.texts
    return {
        label: id
        for label, id in draft.labels.items()
        if not is_example(texts[id]) and instruction(texts[id]) is None
    }


def _named(edit: PlannedEdit, lessons: Sequence[Lesson]) -> list[Lesson]:
    """The lessons that an operation says it follows from, each once."""
    return [lessons[n - 1] for n in dict.fromkeys(edit.lessons) if 0 < n <= len(lessons)]


def _evidence(own: Sequence[Lesson], key: str) -> dict[str, Any]:
    evidence = evidence_of(own[0], (key,))
    problems = list(dict.fromkeys(lesson.group.problem.id for lesson in own))
    return evidence | {"problems": problems} if len(problems) > 1 else evidence
