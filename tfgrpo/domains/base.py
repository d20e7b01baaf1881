"""A domain: the one object that says what problems of a kind are and how attempts are judged.

    load → render → rollout → verify, and the wording of what is asked in between

Training and evaluation know nothing else of a domain, and every part but `verify` has a default,
so most domains are a function and a name. `tfgrpo/domains/` holds ours, made the way that
anybody's are; `tfgrpo.domains.find` resolves a name to one.

A verifier comes in two forms. A plain function `(problem, response) → Verdict` runs in a worker
process that is killed when it hangs, so it must be importable and have no side effects. An
`async` function `(context, trajectory) → Verdict` runs on the event loop and may ask a model
through its context: such calls are journalled like all others, so it is not paid for twice.
"""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from tfgrpo.data import datasets
from tfgrpo.data.problems import Problem
from tfgrpo.domains.few_answers import Chances
from tfgrpo.model.caller_functions import identity, is_of_tfgrpo
from tfgrpo.model.endpoint import Request
from tfgrpo.model.response import MOST_TOKENS, as_text
from tfgrpo.model.secrets import scrub
from tfgrpo.rendering import prompt_templates
from tfgrpo.rendering.prompt_templates import Message, Template
from tfgrpo.rendering.render import AGENT_OBJECTIVE, LEARNING_OBJECTIVE, rollout_messages
from tfgrpo.rendering.retrieve import Rank
from tfgrpo.store.canonical import digest
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.exit_codes import NOT_BEGUN
from tfgrpo.store.records import Json, Library

if TYPE_CHECKING:
    from tfgrpo.domains.verifier import Verifier
    from tfgrpo.model.client import CallPath, Calls, RecordedAnswer


class DomainError(TfgrpoError):
    """A domain that cannot be found, or that does what none may do."""


class DomainInvalid(DomainError):
    """What --domain says, or a file that it names, cannot be used."""

    exit_code = NOT_BEGUN


class Verdict(NamedTuple):
    """A judged response: its `reward` in [0, 1], or None when it could not be judged, and its
    `answer` in a normal form that equal answers share. `reason` is for people. `details` are what
    the reward is made of, by name: they are kept with the rollout and shown to the reflection
    model."""

    reward: float | None
    answer: str | None
    reason: str
    details: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Sampling:
    """How attempts are sampled: temperature, the most tokens of an answer, and a seed."""

    temperature: float = 0.7
    max_tokens: int = 16384
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trajectory:
    """What a rollout came to: the final answer, which is judged, and the journal's keys of the
    calls that made it, in order. `messages` is all that followed the prompt where that is more than
    the response, tool calls and their results among them. `chances` is how likely each answer was,
    where that is known; `sampled` says why it is not, where it was wanted."""

    response: str
    calls: tuple[str, ...] = ()
    truncated: bool = False
    messages: tuple[Json, ...] = ()
    chances: Chances | None = None
    sampled: str = ""


class Elsewhere(NamedTuple):
    """A model's answer that an attempt had from elsewhere, and what it took, in tokens."""

    answer: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    messages: tuple[Message, ...] = ()


class Reports:
    """What an attempt tells of answers that it had from elsewhere, in whatever thread. A function
    that took too long goes on in its own: what it tells after `close` goes to whom that names."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reports: list[Elsewhere] = []
        self._late: Callable[[Elsewhere], None] | None = None

    def __iter__(self) -> Iterator[Elsewhere]:
        with self._lock:
            return iter(self._reports[:])

    def __len__(self) -> int:
        return len(self._reports)

    def append(self, report: Elsewhere) -> None:
        """Adds a report. Raises what `late` raises."""
        with self._lock:
            self._reports.append(report)
            late = self._late
        if late is not None:
            late(report)

    def close(self, late: Callable[[Elsewhere], None]) -> list[Elsewhere]:
        """Returns the reports so far; `late` is called with each that follows, in its thread."""
        with self._lock:
            self._late = late
            return self._reports[:]


@dataclass(frozen=True, slots=True)
class Context:
    """What a rollout or an asynchronous verifier works with.

    `messages` is the rendered prompt; `calls` asks the policy model and `judge` the reflection
    model; `verifier` runs plain functions in worker processes. `call_path` and `sample` say which
    attempt this is.
    `library` is what of the library the attempt is shown, and `elsewhere` what `record` was told.
    `judged` has the verdict of a rollout that judges itself.
    """

    problem: Problem
    messages: tuple[Message, ...]
    calls: Calls
    judge: Calls
    verifier: Verifier
    sampling: Sampling
    sample: int
    call_path: CallPath
    library: Library | None = None
    elsewhere: Reports = field(default_factory=Reports)
    judged: list[Verdict] = field(default_factory=list)

    @property
    def seed(self) -> int:
        """The seed of this attempt's first call (31 bits): another one for each sample."""
        return sample_seed(self.sampling.seed, *self.call_path, self.sample)

    def record(
        self,
        answer: str = "",
        *,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        cached_tokens: int = 0,
        messages: Sequence[Message] = (),
    ) -> None:
        """Tells of a model's answer that was had elsewhere, and of the tokens that it took.

        It goes on record when the attempt ends, or at once where that has ended, at the policy
        model's price, and counts towards the budget. `messages` are what was asked, each (role,
        text). May be called from any thread. Raises ValueError for a number of tokens that is none,
        and InvalidOperation where the run has ended.
        """
        tokens = (prompt_tokens, completion_tokens, cached_tokens)
        if not all(isinstance(one, int) and 0 <= one <= MOST_TOKENS for one in tokens):
            raise ValueError(f"a number of tokens is from 0 to {MOST_TOKENS:,}")
        prompt = tuple((as_text(role), as_text(text)) for role, text in messages)
        self.elsewhere.append(Elsewhere(scrub(as_text(answer)), *tokens, scrub(prompt)))

    async def ask(
        self,
        messages: Sequence[Message],
        *,
        stage: str = "rollout",
        model: Calls | None = None,
        turn: int = 0,
        **request: Any,
    ) -> RecordedAnswer:
        """Asks the policy model, or `model`, with the sampling of this attempt. `turn` tells apart
        calls that read alike; `request` overrides fields of the Request, as in `temperature=0.0`.
        Known secrets are taken out of what is asked. Raises CallFailed and EndpointError, which may
        be let through."""
        call_path = (*self.call_path, turn) if turn else self.call_path
        question = Request(
            stage=stage,
            messages=scrub(tuple(messages)),
            temperature=self.sampling.temperature,
            max_tokens=self.sampling.max_tokens,
            seed=sample_seed(self.sampling.seed, *call_path, self.sample),
        )
        question = replace(question, **request)
        question = replace(question, turns=scrub(question.turns))
        return await (model or self.calls).ask(question, call_path=call_path, sample=self.sample)


SHARED_PROMPTS = Path(str(resources.files("tfgrpo.prompts").joinpath("choice")))
"""Reflection on problems that have the same few answers."""


def sample_seed(*parts: str | int) -> int:
    """Returns a seed of 31 bits that follows from `parts`, different for every sample."""
    return int.from_bytes(digest(["tfgrpo.seed", *parts])[:4], "big") >> 1


def no_judge_calls(problem: Problem) -> int:
    """How many calls a verifier makes that is asynchronous and asks no model of the run's."""
    return 0


async def answer_once(context: Context) -> Trajectory:
    """The plainest rollout: the prompt is asked once, and what comes is the response."""
    recorded = await context.ask(context.messages)
    answer = recorded.answer
    return Trajectory(answer.visible, (recorded.key,), answer.truncated)


def problem_messages(
    template: Template, library: Library, problem: Problem, agent_objective: str
) -> tuple[Message, ...]:
    """Returns the messages of a rollout; a conversation stands in the question's place."""
    text = "" if problem.messages else problem.problem
    return (*rollout_messages(template, library, text, agent_objective), *problem.messages)


Load: TypeAlias = Callable[[str, Mapping[str, str]], tuple[Problem, ...]]
"""From a dataset's name and the field mapping to its problems. Raises DatasetError."""
Render: TypeAlias = Callable[[Template, Library, Problem, str], tuple[Message, ...]]
"""From the rollout prompt, the library, a problem and the agent objective to messages."""
Attempt: TypeAlias = Callable[[Context], Awaitable[Trajectory]]
Verify: TypeAlias = Callable[[Problem, str], Verdict]
Judge: TypeAlias = Callable[[Context, Trajectory], Awaitable[Verdict]]
Read: TypeAlias = Callable[[Problem, str], Any]
"""Returns the answer that a response to a problem gives, as JSON; None where there is none. The
problem has no ground truth."""
JudgeCalls: TypeAlias = Callable[[Problem], int]
"""How many calls judging an attempt makes at most."""
Answers: TypeAlias = Callable[[Problem], Sequence[str]]
"""Returns all answers that there are to a problem, as responses; none where they are not few."""
More: TypeAlias = Callable[[Sequence[float | None], int], int]
"""From the rewards of a group so far, None for an attempt without one, and the most attempts that
it may have, to how many are made next, at once; 0 ends it."""
Check: TypeAlias = Callable[[Problem], str | None]
"""Returns what makes a problem unusable, or None. Importable, as it runs in a worker process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A kind of problems. Only `name` and `verify` have no default; docs/domains.md says what most
    parts are, and what is done without them.

    `at_once` runs on the event loop, so it takes microseconds on any input. `identity` is kept with
    every evaluation. `load` takes the place of `extra` and `ground_truth`. `reconcile` adds a stage
    to the policy `paper`: what one group taught is brought in line with the library before the
    batch is planned. `remarks` says, a line each, how the ground truths of some problems are read
    where that is in doubt. `rehearse` tries the verifier on a problem before a run, and raises
    SettingsError where it cannot judge. `read` gives an application the answer in a response, as
    the verifier reads it. `judge_calls` says how many calls a judgement takes at most, for an
    estimate; `needs_search`, whether a run needs an agent that searches.
    """

    name: str
    verify: Verify | Judge
    at_once: Callable[[Problem, str], Verdict | None] | None = None
    check: Check | None = None
    load: Load | None = None
    extra: tuple[str, ...] = ()
    ground_truth: bool = True
    render: Render = problem_messages
    rollout: Attempt = answer_once
    prompts: Path | None = None
    agent_objective: str = AGENT_OBJECTIVE
    learning_objective: str = LEARNING_OBJECTIVE
    identity: str = ""
    reconcile: bool = False
    judge_calls: JudgeCalls | None = None
    configure: Callable[[str], Domain] | None = None
    options_from: Callable[[Sequence[Problem]], str] | None = None
    remarks: Callable[[Sequence[Problem]], Sequence[str]] | None = None
    shared_answers: bool = False
    answers: Answers | None = None
    needs_search: bool = False
    retrieve: Rank | None = None
    group: More | None = None
    read: Read | None = None
    rehearse: Callable[[Problem], None] | None = None

    def problems(self, source: str, fields: Mapping[str, str] | None = None) -> tuple[Problem, ...]:
        """Returns the problems of a dataset. Raises DatasetError."""
        if self.load is not None:
            return self.load(source, fields or {})
        return datasets.load(source, fields, extra=self.extra, ground_truth=self.ground_truth)

    @property
    def judge(self) -> Judge | None:
        """The verifier, if it is asynchronous and may ask a model."""
        call = getattr(type(self.verify), "__call__", None)  # noqa: B004
        if inspect.iscoroutinefunction(self.verify) or inspect.iscoroutinefunction(call):
            return cast("Judge", self.verify)
        return None

    @property
    def function(self) -> Verify | None:
        """The verifier, if it is a plain function that runs in worker processes."""
        return None if self.judge else cast("Verify", self.verify)

    def __post_init__(self) -> None:
        """Raises DomainError where a worker process could not import what it is to run."""
        for part, function in (("verifier", self.function), ("check", self.check)):
            try:
                error = "it is defined in __main__" if b"__main__" in pickle.dumps(function) else ""
            except (pickle.PicklingError, AttributeError, TypeError) as raised:
                error = str(raised)
            if error:
                hint = "define it at the top of a module and import that"
                if part == "verifier":
                    hint += ", make it async, or pass it as verify= to tfgrpo.train"
                raise DomainError(
                    f"domain {self.name}: a worker process cannot import its {part}: {error}",
                    hint=hint,
                )

    def identified(self) -> Domain:
        """Returns the same domain with an identity that covers the code of its functions, those of
        tfgrpo apart: for one that is known by its name alone, as an object of a program's is."""
        parts = (self.verify, self.at_once, self.render, self.rollout, self.retrieve)
        own = [part for part in parts if part is not None and not is_of_tfgrpo(part)]
        return replace(self, identity=f"{self.identity} {identity(*own)}".strip()) if own else self

    def renders(self, top_k: int) -> bool:
        """Whether prompts, with `top_k` experiences if that is not 0, are other than usual."""
        own = self.prompts is not None or self.render is not problem_messages
        return own or bool(top_k and self.retrieve)

    def template(self, name: str, folder: Path | None = None) -> Template:
        """Returns a prompt: from `folder`, else the domain's own, else ours, of which some are for
        shared answers. Raises TemplateError.
        """
        own = SHARED_PROMPTS if self.prompts is None and self.shared_answers else self.prompts
        return prompt_templates.load(name, folder, own)


def load_named(
    place: str, what: str, error: type[TfgrpoError], folders: Sequence[Path] = ()
) -> Any:
    """Returns what `module:name` names. Modules are looked for in `folders` too, which are added to
    `sys.path`, as worker processes import from there. Raises `error` where that cannot be had, and
    any other TfgrpoError as it is."""
    for folder in map(str, folders):
        if folder not in sys.path:
            sys.path.append(folder)
    try:
        return imported(place)
    except TfgrpoError:
        raise
    except (Exception, SystemExit) as raised:  # whatever a module of the user's does
        module, _, name = place.partition(":")
        hint = "write module:name, importable from the current folder"
        if module.endswith(".py"):
            hint = f"name the module without its ending: {module.removesuffix('.py')}:{name}"
        raise error(f"cannot load {what}: {describe_error(raised)}", hint=hint) from None


def imported(place: str) -> Any:
    """Returns what `module:name` names. Raises whatever the module does."""
    module, _, name = place.partition(":")
    with redirect_stdout(sys.stderr):  # what a module prints is no part of what we print
        target: Any = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    return target


LINE = 200
"""Characters of an error that are shown."""


def describe_error(error: BaseException, most: int = LINE) -> str:
    """Returns what was raised, in a line without known secrets. Its own text is somebody's code,
    and may fail too."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return scrub(" ".join(f"{type(error).__name__}: {text}".strip(": ").split()))[:most]


def describe_value(value: object, most: int = 80) -> str:
    """Returns how Python writes what somebody's code gave, without known secrets."""
    return scrub(repr(value))[:most]
