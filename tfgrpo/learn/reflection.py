"""Semantic advantage: what made the winners of a group beat its losers, in words.

Training-Free GRPO (arXiv 2510.08191, section 2) puts a natural-language advantage where GRPO has a
number: longer trajectories are summarised, then the group is compared in the light of the ground
truth and the library, which gives lessons, not yet operations. No rule reads their words, in any
language: a text must not be too long, or the answer itself.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, Field

from tfgrpo.costs.prices import LOCAL
from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import sample_seed
from tfgrpo.learn.parting import is_parted
from tfgrpo.model import structured_answers
from tfgrpo.model.client import CallPath, Calls
from tfgrpo.model.endpoint import CallFailed, Request
from tfgrpo.model.structured_answers import CheckedText, text_field
from tfgrpo.rendering.prompt_templates import Template
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rollout.attempt import Group, Rollout
from tfgrpo.settings import PAPER, TrainSettings
from tfgrpo.store.records import Json, Library

TELLING = 8
"""Characters from which on an answer that stands in a text is no chance find."""
LETTERS = 16
"""Characters for each word that a text may have: some scripts part no words."""


@dataclass(frozen=True, slots=True)
class TextCheck:
    """The check of texts that were learned from `problems`. With `shared_answers` a text may name
    the answer, which is one of few, as a label is. `max_words` is the most words, or sixteen times
    as many characters; None for no limit."""

    problems: tuple[Problem, ...] = ()
    shared_answers: bool = False
    max_words: int | None = None

    def accepted(self, text: str) -> str:
        """A text in one line. Raises ValueError with what is wrong with it."""
        text = " ".join(text.split())
        if wrong := self(text):
            raise ValueError(wrong)
        return text

    def __call__(self, text: str) -> str | None:
        """What is wrong with a text, or None."""
        most = self.max_words
        if most is not None and (len(text.split()) > most or len(text) > LETTERS * most):
            return f"the text is too long: {most} words are the most"
        if not self.shared_answers and any(leaks(text, problem) for problem in self.problems):
            return "it gives away the answer of its problem"
        return None


def leaks(text: str, problem: Problem) -> bool:
    """Whether a text is an answer of a problem, or holds one of some length."""
    text = folded(text)
    answers = filter(None, map(folded, problem.ground_truths))
    return any(one == text or (len(one) >= TELLING and one in text) for one in answers)


def folded(text: str) -> str:
    """A text as it is compared: in one Unicode form, one case, and with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def right_answers(problem: Problem) -> tuple[str, ...]:
    """The answers of a problem that are right; none where they are unknown."""
    return tuple(answer for answer in problem.ground_truths if answer.strip())


T = TypeVar("T", bound=BaseModel)
SUMMARY_TOKENS = 400
COMPARISON_TOKENS = 1200
MOST_LESSONS = 2
"""The most lessons of one comparison."""
ANSWER_SHOWN = 300
"""The characters of an attempt's answer that stand beside what is said of it."""
UNKNOWN = "(not given)"
MOST_WORDS = 32
"""The most words of an experience, as in the paper."""
SUMMARISE_OVER, LOCAL_SUMMARISE_OVER = 1500, 1000
"""Characters up to which an attempt is compared as it is: its summary costs a call, and leaves out
the numbers that made it right. A local model reads 4,096 tokens with its answer: four such attempts
are half of that."""
PARTED_SUMMARISE_OVER = 500
"""The same for the end of a long attempt: what is longer than a summary is asked about again and
again with every lesson."""


class Manner(NamedTuple):
    """The temperature at which reflection is asked, and up to how many characters attempts are
    shown as they are."""

    temperature: float
    summarise_over: int


PUBLISHED = Manner(0.2, 0)
"""As the paper reflects: nearly always in the same words, and every attempt is summarised."""


def manner_of(settings: TrainSettings) -> Manner:
    """How a run reflects. Where it asks several times, several answers are wanted."""
    if settings.policy == PAPER:
        return PUBLISHED
    local = settings.models.model.startswith(LOCAL)
    return Manner(0.8, LOCAL_SUMMARISE_OVER if local else SUMMARISE_OVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One call to the reflection model. `values` fill the prompt, beside the objectives and the
    limit of words. `call_path` distinguishes the call from others with the same prompt and, with
    the prompt's name, gives its seed unless `seed` does. `narrowed` has what only this call knows
    of fields of the answer's schema. `problems` are those whose answers a learned text must not
    give away."""

    prompt: Template
    values: Mapping[str, str]
    max_tokens: int
    call_path: CallPath
    stage: str | None = None
    seed: CallPath | None = None
    narrowed: Mapping[str, Json | None] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Reflection:
    """How reflection is asked for: its prompts, objectives and sampling. Without `ground_truth` the
    comparison is not shown the right answer. `lesson` asks for the rule that right answers follow,
    and `plan` what is to be done about all lessons of a step. With `reconcile`, what a group taught
    is brought in line with the library. With `shared_answers` a lesson may name the answer of its
    problem."""

    summary: Template
    comparison: Template
    lesson: Template
    plan: Template
    agent_objective: str
    learning_objective: str
    ground_truth: bool = True
    manner: Manner = PUBLISHED
    seed: int = 0
    reconcile: Template | None = None
    shared_answers: bool = False

    def truth(self, problem: Problem) -> str:
        """A problem's ground truth as the reflection model is shown it."""
        return (self.ground_truth and problem.answer) or UNKNOWN

    def request(self, question: Question) -> Request:
        """The request of a question, without a schema."""
        objectives = {
            "agent_objective": self.agent_objective,
            "learning_objective": self.learning_objective,
            "max_words": str(MOST_WORDS),
        }
        messages = question.prompt.render({**objectives, **question.values})
        name = question.prompt.name
        return Request(
            stage=question.stage or name,
            messages=messages,
            temperature=self.manner.temperature,
            max_tokens=question.max_tokens,
            seed=sample_seed(self.seed, *(question.seed or (name, *question.call_path))),
        )

    def text_check(self, problems: tuple[Problem, ...]) -> TextCheck:
        """The check of texts that are learned from problems."""
        return TextCheck(problems, self.shared_answers, MOST_WORDS)

    async def ask(
        self,
        calls: Calls,
        question: Question,
        answer: type[T],
        check: Callable[[T], str | None] = lambda _: None,
    ) -> structured_answers.Typed[T]:
        """The reflection model's answer to a question, of a shape that `check` passes. `check`
        returns what is wrong with an answer, or None. Raises Unreadable, CallFailed,
        EndpointError."""
        schema = structured_answers.schema(answer, **question.narrowed)
        request = replace(self.request(question), schema=schema)
        return await structured_answers.ask(
            calls,
            request,
            answer,
            call_path=question.call_path,
            check=check,
            text_check=self.text_check(question.problems).accepted,
        )


@dataclass(frozen=True, slots=True)
class Lesson:
    """A candidate for the library, with the group and the calls that taught it."""

    text: str
    reason: str
    group: Group
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StepOrigin:
    """Where operations come from: a step of a run, by its uid, and the evidence that goes onto each
    beside its own."""

    uid: str
    step: int
    evidence: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """A reflection that could not be had, for the record."""

    stage: str
    problem: str
    reason: str


@dataclass(frozen=True, slots=True)
class Advantage:
    """What one group taught. `repaired` says that its JSON had to be repaired."""

    group: Group
    lessons: tuple[Lesson, ...]
    failures: tuple[Failure, ...] = ()
    repaired: bool = False


class ReflectedLesson(BaseModel):
    """A lesson as the reflection model gives it."""

    reason: str = text_field(240, 2000)
    text: CheckedText = text_field(LETTERS * MOST_WORDS + 1, 2000, min_length=1)  # more is refused


_Listed = Annotated[list[ReflectedLesson], Field(json_schema_extra={"maxItems": MOST_LESSONS})]


class Lessons(BaseModel):
    """Lessons, each with its reason."""

    lessons: _Listed


class Contrast(BaseModel):
    """What set winners apart from losers, written down before the lessons that follow from it."""

    right_did: str = text_field(240, default="")
    wrong_did: str = text_field(240, default="")
    lessons: _Listed


async def compare(
    calls: Calls, reflection: Reflection, group: Group, library: Library, *, step: int
) -> Advantage:
    """Summarises a mixed group's longer trajectories and compares all. What cannot be had is in the
    result's `failures`; EndpointError is let through."""
    judged = (*group.winners, *group.losers)
    summaries, failures = await summaries_of(calls, reflection, judged, step)
    winners = [r for r in group.winners if r.sample in summaries]
    losers = [r for r in group.losers if r.sample in summaries]
    if not winners or not losers:
        return Advantage(group, (), failures)
    question = Question(
        prompt=reflection.comparison,
        values={
            "library": prompt_text(library),
            "problem": group.problem.problem,
            "ground_truth": reflection.truth(group.problem),
            "winners": listed_attempts(winners, summaries),
            "losers": listed_attempts(losers, summaries),
        },
        max_tokens=COMPARISON_TOKENS,
        call_path=(step, group.problem.id),
        problems=(group.problem,),
    )
    try:
        typed = await reflection.ask(calls, question, Contrast)
    except CallFailed as error:
        failure = Failure("comparison", group.problem.id, str(error))
        return Advantage(group, (), (*failures, failure))
    lessons, unused = lessons_of(typed, "comparison", group)
    failures += unused
    repaired = typed.repaired
    if reflection.reconcile is not None and lessons:
        try:
            brought = await _reconcile(calls, reflection, lessons, library, step=step)
        except CallFailed as error:  # they stay as they were
            failures += (Failure("reconcile", group.problem.id, str(error)),)
        else:
            lessons, unused = lessons_of(brought, "reconcile", group, lessons[0].calls)
            failures += unused
            repaired = repaired or brought.repaired
    return Advantage(group, lessons, failures, repaired)


async def _reconcile(
    calls: Calls, reflection: Reflection, lessons: Sequence[Lesson], library: Library, *, step: int
) -> structured_answers.Typed[Lessons]:
    assert reflection.reconcile is not None
    question = Question(
        prompt=reflection.reconcile,
        values={
            "library": prompt_text(library),
            "lessons": "\n".join(f"- {lesson.text}" for lesson in lessons),
        },
        max_tokens=COMPARISON_TOKENS,
        call_path=(step, lessons[0].group.problem.id),
        problems=(lessons[0].group.problem,),
    )
    return await reflection.ask(calls, question, Lessons)


def lessons_of(
    typed: structured_answers.Typed[Any], stage: str, group: Group, calls: tuple[str, ...] = ()
) -> tuple[tuple[Lesson, ...], tuple[Failure, ...]]:
    """The lessons of an answer that lists some, the first that there may be, and what could not be
    used of it as failures of that stage. A lesson that is given twice is one. `calls` are those
    before the answer's own."""
    given: dict[str, ReflectedLesson] = {}
    for one in typed.value.lessons:
        given.setdefault(" ".join(one.text.split()), one)
    listed = [(text, one) for text, one in given.items() if text]
    lessons = tuple(
        Lesson(text, one.reason.strip(), group, (*calls, typed.key))
        for text, one in listed[:MOST_LESSONS]
    )
    beyond = (f"more than {MOST_LESSONS} lessons: {text}" for text, _ in listed[MOST_LESSONS:])
    return lessons, tuple(
        Failure(stage, group.problem.id, reason) for reason in (*typed.lost, *beyond)
    )


async def summaries_of(
    calls: Calls, reflection: Reflection, rollouts: Sequence[Rollout], step: int
) -> tuple[dict[int, str], tuple[Failure, ...]]:
    """Summaries of attempts, by sample, and those that failed."""
    outcomes = await asyncio.gather(*(summarise(calls, reflection, one, step) for one in rollouts))
    known = zip(rollouts, outcomes, strict=True)
    summaries = {one.sample: outcome for one, outcome in known if isinstance(outcome, str)}
    return summaries, tuple(one for one in outcomes if isinstance(one, Failure))


async def summarise(
    calls: Calls, reflection: Reflection, rollout: Rollout, step: int
) -> str | Failure:
    """A summary of an attempt by the reflection model. It is never empty: an empty answer is asked
    for once more, and is then a failure."""
    most = reflection.manner.summarise_over
    if is_parted(rollout):
        most = min(most, PARTED_SUMMARISE_OVER)
    if len(rollout.transcript) <= most:
        return " ".join(rollout.transcript.split())
    call_path = (step, rollout.problem.id)
    question = Question(
        prompt=reflection.summary,
        values={
            "problem": rollout.problem.problem,
            "response": rollout.transcript,
            "verdict": verdict_words(rollout) + details_words(rollout, "\n- "),
        },
        max_tokens=SUMMARY_TOKENS,
        call_path=call_path,
        seed=("summary", *call_path, rollout.sample),
    )
    request = reflection.request(question)
    for turn in range(2):
        path = (*call_path, turn) if turn else call_path
        try:
            recorded = await calls.ask(request, call_path=path, sample=rollout.sample)
        except CallFailed as error:
            return Failure("summary", rollout.problem.id, str(error))
        if text := recorded.answer.visible.strip():
            return text
        if recorded.answer.truncated:  # it had all the room there is
            break
    problem = structured_answers.why_empty(recorded.answer)
    calls.endpoint.adaptation.note(f"gave no summary: {problem}")
    return Failure("summary", rollout.problem.id, problem)


def verdict_words(rollout: Rollout) -> str:
    """A reward as the reflection model reads it: right, wrong, or the percentage that is right; a
    small model takes a reward of 0.75 for money."""
    if rollout.reward in (0.0, 1.0):
        return "right" if rollout.reward else "wrong"
    return f"{100 * (rollout.reward or 0.0):g} % right"


def details_words(rollout: Rollout, before: str) -> str:
    """The parts of a reward, each after `before`; empty where it has none."""
    return "".join(f"{before}{name}: {value}" for name, value in rollout.details.items())


def listed_attempts(rollouts: Sequence[Rollout], summaries: Mapping[int, str]) -> str:
    """Attempts with their verdicts, answers and summaries, a line for each."""
    lines = []
    for number, rollout in enumerate(rollouts, 1):
        answer = "no answer" if rollout.answer is None else f"answer {rollout.answer}"
        answer = answer[:ANSWER_SHOWN]
        verdict = verdict_words(rollout) + details_words(rollout, "; ")
        lines.append(f"{number}. ({verdict}, {answer}) {summaries[rollout.sample]}")
    return "\n".join(lines)
