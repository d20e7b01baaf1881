"""One group, from the record: its attempts, the comparison that was made of them, and the
events, gate's and candidates' among them, that came of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfgrpo.rendering.experience_texts import example_parts
from tfgrpo.runs.attempts import (
    AttemptList,
    AttemptText,
    RecordedAttempt,
    run_attempts,
    sent_messages,
)
from tfgrpo.runs.run_issues import Issue, issues
from tfgrpo.runs.run_versions import gate_of, pool_versions, step_of, versions_of
from tfgrpo.store.activity.runs import Call, Run
from tfgrpo.store.damaged_values import objects
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Event, Experience, Json, Library, Version, evidence_of
from tfgrpo.store.store import Store

COMPARISONS = ("comparison", "reconcile", "plan")
"""The stages of a run in which a group turns into decisions, in their order."""
PREFIX = 16
"""The characters of a call's key that an event's evidence has."""


class PromptPart(NamedTuple):
    """A stretch of a prompt; `experience` is the one whose text it is, with its `label` there."""

    text: str
    experience: str | None = None
    label: str | None = None


class Message(NamedTuple):
    """What was said in an attempt. `folded` is what a reader opens when wanted: what a tool gave.
    `calls` are the tools that were called in it, each with its arguments."""

    role: str
    text: str
    folded: bool
    calls: tuple[tuple[str, str], ...] = ()


class ShownAttempt(NamedTuple):
    """An attempt with its messages. `own_prompt` is its prompt where that is not its group's."""

    attempt: RecordedAttempt
    messages: tuple[Message, ...]
    own_prompt: tuple[tuple[str, tuple[PromptPart, ...]], ...] | None

    @property
    def details(self) -> Mapping[str, Any]:
        """What its reward is made of."""
        details = self.attempt.verdict.get("details", {})
        return details if isinstance(details, dict) else {}


class ReflectionCall(NamedTuple):
    """A call between a group and a decision: what was asked and answered."""

    stage: str
    call: Call
    asked: tuple[tuple[str, str], ...]
    answered: str


class ComparedGroup(NamedTuple):
    """The reflection model's answers: what set winners apart, and lessons with their reasons."""

    right_did: str
    wrong_did: str
    lessons: tuple[tuple[str, str], ...]
    calls: tuple[ReflectionCall, ...]


class GroupDecision(NamedTuple):
    """An event of a group, the text `before` it, what a `gate` did, and whether the run's branch
    has it."""

    event: Event
    version: Version
    before: str | None
    gate: str | None
    is_kept: bool


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group and what came of it. `missing` says why the ground truth is not known, where it is
    not; `issues` are lessons of it that were refused and answers that failed."""

    title: str
    step: int | None
    problem: str
    version: int
    question: str
    ground_truths: tuple[str, ...] | None
    missing: str
    prompt: tuple[tuple[str, tuple[PromptPart, ...]], ...]
    attempts: tuple[ShownAttempt, ...]
    compared: ComparedGroup | None
    decisions: tuple[GroupDecision, ...]
    issues: tuple[Issue, ...]

    def side(self, name: str) -> tuple[ShownAttempt, ...]:
        """The attempts of one side: winner, loser, or the empty one."""
        return tuple(one for one in self.attempts if one.attempt.side == name)

    @property
    def right(self) -> int:
        """How many attempts have the full reward."""
        return sum(one.attempt.is_right for one in self.attempts)


def group_view(
    store: Store, listed: AttemptList, run: Run | None = None, *, sample: int | None = None
) -> GroupView:
    """The view of one problem's attempts in one step, or one `sample`'s. Raises StoreError."""
    groups = [*listed.groups(), *listed.races(), *listed.measuring()]
    group = next(group for group in groups if sample in (None, *(one.sample for one in group)))
    first = group[0]
    text = listed.text(first)
    library = store.library(store.version(first.version))
    attempts = []
    for one in group:
        if sample in (None, one.sample):
            words = text if one is first else listed.text(one)
            own = highlighted(words.prompt, library) if words.prompt != text.prompt else None
            attempts.append(ShownAttempt(one, tuple(_messages(one, words)), own))
    decisions: tuple[GroupDecision, ...] = ()
    failed: tuple[Issue, ...] = ()
    compared = None
    if run is not None and first.step is not None:
        decisions, failed = _decided(store, run, first.step, first.problem)
        beside = _questions_beside(store, run, first)
        compared = _compared(store, run, first, (text.question, *beside), decisions)
    return GroupView(
        listed.title,
        first.step,
        first.problem,
        first.version,
        text.question,
        text.ground_truths,
        listed.missing,
        highlighted(text.prompt, library),
        tuple(attempts),
        compared,
        decisions,
        failed,
    )


def highlighted(
    prompt: Sequence[tuple[str, str]], library: Library
) -> tuple[tuple[str, tuple[PromptPart, ...]], ...]:
    """A prompt as (role, parts); experiences and examples' problems are parts of their own."""
    rules: dict[str, Experience] = {}
    asked: dict[str, Experience] = {}
    for experience in library.readable:
        example = example_parts(experience.text)
        rules.setdefault(experience.text, experience)
        if example is not None:
            asked.setdefault(example.problem, experience)
    answered = [role == "assistant" for role, _ in (*prompt[1:], ("", ""))][: len(prompt)]
    return tuple(
        (role, tuple(_marked(text, asked if role == "user" and then else rules, library)))
        for (role, text), then in zip(prompt, answered, strict=True)
    )


def _marked(text: str, texts: Mapping[str, Experience], library: Library) -> Iterator[PromptPart]:
    longest = sorted(texts, key=len, reverse=True)  # one may begin like another
    words = "|".join(map(re.escape, longest))
    at = 0
    for match in re.finditer(rf"(?<!\w)(?:{words})(?!\w)", text) if texts else ():
        if match.start() > at:
            yield PromptPart(text[at : match.start()])
        experience = texts[match[0]]
        yield PromptPart(match[0], experience.id, library.label_of[experience.id])
        at = match.end()
    if at < len(text):
        yield PromptPart(text[at:])


def _messages(one: RecordedAttempt, words: AttemptText) -> Iterator[Message]:
    recorded: Sequence[Json] = one.verdict.get("messages", ())
    if not recorded:
        for role, text in words.messages:
            yield Message(role, text, False)
    for message in recorded:
        calls = tuple(
            (str(call["function"]["name"]), str(call["function"]["arguments"]))
            for call in message.get("tool_calls") or ()
        )
        role = str(message.get("role"))
        content = str(message.get("content") or "")
        yield Message(role, content.strip(), role in ("tool", "function", "files"), calls)


def _taught(event: Event, step: int, problem: str) -> bool:
    """Whether an event came of a group, by the number of its step from 0, alone or with others."""
    evidence = evidence_of(event)
    return problem in evidence.problems and evidence.step == step


def _decided(
    store: Store, run: Run, step: int, problem: str
) -> tuple[tuple[GroupDecision, ...], tuple[Issue, ...]]:
    versions = [v for v in versions_of(store, run) if step_of(v) >= step - 1]
    if not versions or step_of(versions[0]) != step - 1:
        return (), ()
    place = (step - 1, problem)
    decisions: list[GroupDecision] = list(_on_probation(store, run, place))
    for version in versions:
        gate = gate_of(version)
        words = None if gate is None else gate.summary
        decisions += _of_group(store, version, place, words, accepted=True)
        if gate is not None and gate.candidate:
            try:
                aside = store.resolve(gate.candidate)
            except TfgrpoError:  # the branch of it was deleted, and a clone has not got it
                continue
            decisions += _of_group(store, aside, place, words, accepted=False)
    return tuple(decisions), tuple(i for i in issues(versions[0]) if i.problem == problem)


def _on_probation(store: Store, run: Run, place: tuple[int, str]) -> Iterator[GroupDecision]:
    texts: dict[str, str | None] = {}
    own: set[str] = set()
    for version in pool_versions(store, run):
        for event in store.events(version):
            before = texts.get(event.experience)
            texts[event.experience] = event.text or before
            if _taught(event, *place) or (event.op == "DELETE" and event.experience in own):
                own.add(event.experience)
                yield GroupDecision(event, version, before, None, False)


def _of_group(
    store: Store, version: Version, place: tuple[int, str], gate: str | None, *, accepted: bool
) -> Iterator[GroupDecision]:
    events = [event for event in store.events(version) if _taught(event, *place)]
    before = store.texts_before(events)
    for event in events:
        yield GroupDecision(event, version, before.get(event.row), gate, accepted)


def _compared(
    store: Store,
    run: Run,
    of: RecordedAttempt,
    questions: tuple[str, ...],
    decisions: Sequence[GroupDecision],
) -> ComparedGroup | None:
    sources = [evidence_of(one.event) for one in decisions]
    every = {key for one in sources for key in one.calls}
    own = {key for one in sources if one.problem == of.problem for key in one.calls}
    calls = [
        (stage, call)
        for stage in COMPARISONS
        for call in store.runs.calls(run, stage, None if of.step is None else of.step - 1)
        if call.key.hex()[:PREFIX] in (every if stage == "plan" else own)
        or (stage == "comparison" and _is_about(call, *questions))
    ]
    if not calls:
        return None
    read = tuple(
        ReflectionCall(stage, one, sent_messages(one), str(one.answer.get("content") or ""))
        for stage, one in calls
    )
    sent_back = {text for one in read for role, text in one.asked if role == "assistant"}
    answers = [one.answered for one in read if one.stage == "comparison"]
    values = [_json(one) for one in answers if one not in sent_back]
    lessons: dict[str, str] = {}
    for lesson in (one for value in values for one in objects(value.get("lessons"))):
        lessons.setdefault(str(lesson.get("text", "")), str(lesson.get("reason", "")))
    value = values[-1] if values else {}
    sides = (str(value.get("right_did") or ""), str(value.get("wrong_did") or ""))
    return ComparedGroup(*sides, tuple(lessons.items()), read)


def _questions_beside(store: Store, run: Run, of: RecordedAttempt) -> list[str]:
    listed = run_attempts(store, run, step=of.step)
    firsts = {one.problem: one for one in reversed(listed.attempts) if one.problem != of.problem}
    return [listed.text(one).question for one in firsts.values()]


def _is_about(call: Call, question: str, *others: str) -> bool:
    """Whether a question is the last one in a comparison, after those that stand beside it."""
    if not question.strip():
        return False
    text = "\n".join(text for _, text in sent_messages(call))
    at = text.rfind(question)
    return at >= 0 and all(text.rfind(other) <= at for other in others if other.strip())


def _json(text: str) -> Mapping[str, Any]:
    begin, end = text.find("{"), text.rfind("}")
    try:
        value = json.loads(text[begin : end + 1])
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
