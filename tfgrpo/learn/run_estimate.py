"""Estimates what a run or an evaluation will take, before anything is spent: calls × their size.

Prompts are rendered for real; answers are as long as this store has seen from the model, else as
the rules below say. *Expected* is the likely figure, *most* an upper one: every group teaches,
answers are longer, the library is full; `--budget` is what stops a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tfgrpo.connect import local_slots
from tfgrpo.costs.prices import LOCAL, ModelPrices
from tfgrpo.domains.base import answer_once, no_judge_calls
from tfgrpo.domains.conversation import PERSONA_TOKENS, converse, persona_of, turns_of
from tfgrpo.learn import assign, candidates, propose
from tfgrpo.learn.loop import plan_steps, reflection_of
from tfgrpo.learn.own_gain import measured_at
from tfgrpo.learn.policies import base_prompt
from tfgrpo.model.caller_functions import is_of_tfgrpo
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rendering.retrieve import MOST_TOKENS, WHOLE, relevant
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.rollout.attempt import rendered
from tfgrpo.runs.run_versions import versions_of
from tfgrpo.settings import BASE_PROMPT, PAPER, SHORT_ANSWERS, TRIAL, Settings, TrainSettings
from tfgrpo.store.activity.runs import Run, Spent, Usage
from tfgrpo.store.records import Library, Version
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.data.problems import Problem
    from tfgrpo.domains.base import Domain
    from tfgrpo.evaluation.eval_setup import EvalPlan
    from tfgrpo.learn.run_setup import RunPlan

ANSWER = {"rollout": 800, "turn": 250, "summary": 200, "comparison": 250, "judge": 80}
SHORT = 60
"""Tokens of an answer before this store has seen any from the model: by stage, and of a short
attempt, a lesson, a planned operation and a simulated user. An attempt has at most a quarter of
what it may have."""
BESIDE, LESSON = 500, 45
"""Tokens of a tool's result or of what a judge is told beside the answer, and of an experience."""
CHARACTERS = 4
"""The characters of a token, more or less."""
HOSTED_LATENCY, HOSTED_SPEED = 0.6, 60
"""Seconds until an answer begins, and its tokens a second, before any has been seen."""
LOCAL_PROMPT, LOCAL_SPEED = 330, 30
"""Tokens a second that a local model reads and writes in all. It has read most of a prompt for the
attempt before: in five runs of 600 calls it read a third, at 100 tokens a second."""
LATEST = 200
"""Attempts that tell how many calls an attempt makes, the latest first."""


OWN_VERIFIER = (
    "calls that your own verifier makes to a model: no estimate, cost or budget includes them"
)


class Assumed(NamedTuple):
    """The share of groups that teach, of an agent's turns and of the candidates' places that are
    taken; lessons of an answer; experiences of a full library; how much longer answers are."""

    share: float
    lessons: float
    library: float
    longer: float


EXPECTED, MOST = Assumed(0.5, 1.2, 15, 1.0), Assumed(1.0, 2.0, 60, 2.0)
SEEN_LONGER = 1.5
"""How many times as long as this store has seen them answers are in `MOST`."""


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """What one stage takes in all steps. `dollars` is None where the price is unknown."""

    stage: str
    calls: float
    prompt_tokens: float
    completion_tokens: float
    dollars: float | None
    seconds: float = 0.0

    def plus(self, other: StageEstimate, sign: float = 1.0) -> StageEstimate:
        """It and another, or without another, and nothing below nothing."""
        known = self.dollars is not None and other.dollars is not None
        return StageEstimate(
            self.stage,
            max(0.0, self.calls + sign * other.calls),
            max(0.0, self.prompt_tokens + sign * other.prompt_tokens),
            max(0.0, self.completion_tokens + sign * other.completion_tokens),
            max(0.0, (self.dollars or 0.0) + sign * (other.dollars or 0.0)) if known else None,
            max(0.0, self.seconds + sign * other.seconds),
        )


Stages: TypeAlias = tuple[StageEstimate, ...]


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """The stages of a run, expected and at most, and in words what neither includes; for a run that
    has begun, what is left and what is spent. `about` names the subject, if it is not a run.
    `unseen` names spending that no estimate and no account can know of."""

    expected: Stages
    most: Stages
    left_out: tuple[str, ...] = ()
    lengths_seen: bool = False
    steps: int = 0
    steps_done: int = 0
    spent_dollars: float | None = 0.0
    spent_tokens: int = 0
    about: str = ""
    unseen: tuple[str, ...] = ()

    def __add__(self, other: RunEstimate) -> RunEstimate:
        return RunEstimate(
            _merged((*self.expected, *other.expected)),
            _merged((*self.most, *other.most)),
            tuple(dict.fromkeys((*self.left_out, *other.left_out))),
            self.lengths_seen and other.lengths_seen,
            unseen=tuple(dict.fromkeys((*self.unseen, *other.unseen))),
        )


class PlannedAttempts(NamedTuple):
    """Attempts to be made with a library: `samples` at each of some problems."""

    library: Library
    problems: Sequence[Problem]
    samples: int


class Conditions(NamedTuple):
    """Under which calls are made. Who judges alone names the domain that does."""

    settings: Settings
    domain: Domain
    prices: ModelPrices


def estimate_run(store: Store, plan: RunPlan, run: Run | None = None) -> RunEstimate:
    """What a run takes, or what is left of a `run` that has begun. Nothing is written."""
    versions = versions_of(store, run) if run is not None else ()
    done, steps = len(versions), len(plan_steps(plan.problems.train, plan.settings))
    spent = store.runs.spent(run) if run is not None else ()
    # Evaluations are of no step: while steps are left they were trials of those that are done.
    least = steps if done == steps else -1
    begun = _spent(
        (one for one in spent if (least if one.step is None else one.step) >= done), plan.prices
    )
    total = summed(_spent(spent, plan.prices))
    folder = str(plan.prompts) if plan.prompts else None
    settings = plan.settings.model_copy(update={"prompts": folder})
    estimate = estimate_calls(
        store,
        Conditions(settings, plan.domain, plan.prices),
        lambda calls: _Run(store, plan, settings, calls).add(versions),
    )
    return replace(
        estimate,
        expected=_less(estimate.expected, begun),
        most=_less(estimate.most, begun),
        steps=steps - done,
        steps_done=done,
        spent_dollars=total.dollars,
        spent_tokens=round(total.prompt_tokens + total.completion_tokens),
    )


def estimate_attempts(
    store: Store, plan: EvalPlan, planned: Sequence[PlannedAttempts]
) -> RunEstimate:
    """What attempts under a plan's conditions take. Nothing is written."""

    def add(calls: Calls) -> None:
        for one in planned:
            calls.add_attempts(one, "evaluation")

    return estimate_calls(store, Conditions(plan.task.settings, plan.task.domain, plan.prices), add)


def missing_attempts(store: Store, plan: EvalPlan) -> list[PlannedAttempts]:
    """The attempts of an evaluation that are not on record, by version."""
    task, versions = plan.task, plan.missing(store)
    samples = task.settings.samples
    return [PlannedAttempts(store.library(one), task.problems, samples) for one in versions]


def estimate_calls(
    store: Store, conditions: Conditions, add: Callable[[Calls], None]
) -> RunEstimate:
    """What the calls take that are added, once as is expected, and once at most."""
    settings, domain, _ = conditions
    no_agent = settings.mode == "prompt" and not settings.agent.run
    is_plain = no_agent and domain.rollout in (answer_once, converse)
    usage = _usage(store, settings)
    calls_each = None if is_plain else _calls_of_attempts(store, settings)
    left_out: list[str] = []
    if not (is_plain or calls_each or settings.mode == "agent"):
        who = "the agent" if settings.agent.run else f"the domain {domain.name}"
        left_out += [f"calls after the first of an attempt by {who}: no attempt is on record yet"]
    if domain.judge is not None and domain.judge_calls is None:
        why = f"the domain {domain.name} has no judge_calls"
        left_out += [f"calls of the judge of an attempt after its first: {why}"]

    def stages(assumed: Assumed) -> Stages:
        calls = Calls(conditions, assumed, usage, calls_each)
        add(calls)
        return _merged(calls.added)

    most = MOST._replace(longer=SEEN_LONGER) if usage else MOST
    by_own_code = not is_of_tfgrpo(domain.verify)
    if domain.judge is not None:
        by_own_code = domain.judge_calls is no_judge_calls
    unseen = (OWN_VERIFIER,) if by_own_code else ()
    figures = stages(EXPECTED), stages(most)
    return RunEstimate(*figures, tuple(left_out), bool(usage), unseen=unseen)


def _usage(store: Store, settings: Settings) -> dict[str, Usage]:
    """What this store has seen of a run's models, by stage, with evaluations among rollouts."""
    models = {settings.models.model, settings.models.reflection_model}
    sums: dict[str, Usage] = {}
    for spent in store.runs.spent():
        if spent.model in models and spent.usage.completion_tokens:
            before = sums.get(_kind(spent.stage), Usage())
            added = Usage._make(map(sum, zip(before, spent.usage, strict=True)))
            sums[_kind(spent.stage)] = added
    return sums


def _calls_of_attempts(store: Store, settings: Settings) -> tuple[float, int] | None:
    """The mean and the most calls of attempts by a run's agent; None where there were none."""
    way = (settings.agent.run or "", settings.domain, settings.mode)
    counts: list[int] = []
    for run in reversed(store.runs.all()):
        config = run.config
        agent = (config.get("agent") or {}).get("run") or ""
        if (agent, config.get("domain"), config.get("mode")) == way and len(counts) < LATEST:
            counts += [len(r.calls) for r in store.runs.rollouts(run) if r.outcome != "failed"]
    return (max(1.0, fmean(counts)), max(1, *counts)) if counts else None


def _kind(stage: str) -> str:
    return "rollout" if stage == "evaluation" else stage


class Calls:
    """Adds up calls, some for each stage, by the `usage` of each stage that was seen, and the mean
    and most `calls` of attempts that were."""

    def __init__(
        self,
        conditions: Conditions,
        assumed: Assumed,
        usage: Mapping[str, Usage],
        calls: tuple[float, int] | None,
    ) -> None:
        self._conditions, self.assumed, self._usage = conditions, assumed, usage
        settings = conditions.settings
        self._is_local = settings.models.model.startswith(LOCAL)
        at_once = settings.concurrency
        self._at_once = self._wide = local_slots(at_once) if self._is_local else at_once
        if isinstance(settings, TrainSettings):
            self._wide = min(self._at_once, settings.batch_size * settings.group_size)
        kind = settings.domain.partition(":")[0]
        usual, turns = SHORT if kind in SHORT_ANSWERS else ANSWER["rollout"], 1.0
        if settings.mode == "agent":
            usual, turns = ANSWER["turn"], max(1.0, settings.turns * assumed.share)
        if calls:  # at most all the turns that there are, as before any was seen
            mean, most_seen = calls
            turns = mean if assumed is EXPECTED else max(most_seen, turns)
        self._turns = turns
        most = settings.max_tokens
        self._answer = self.length("rollout", min(usual, most / 4), most)
        self._reply = float(PERSONA_TOKENS)
        if assumed is EXPECTED:
            self._reply = self.length("persona", SHORT, PERSONA_TOKENS)
        self.added: list[StageEstimate] = []

    def length(self, stage: str, usual: float, most: float) -> float:
        """The tokens of a stage's answer, which may have `most`."""
        seen = self._usage.get(stage)
        length = seen.completion_tokens / seen.calls if seen else usual
        return min(length * self.assumed.longer, most)

    def persona(self, problem: Problem) -> str | None:
        """The user that an attempt at a problem talks to, if one is simulated."""
        return persona_of(problem) if self._conditions.domain.rollout is converse else None

    def shape(self, problem: Problem) -> tuple[float, float, float]:
        """The calls of an attempt at a problem, the tokens that come between two of its answers (a
        tool's result, or a reply), and those of all that is in it."""
        turns, between = self._turns, float(BESIDE)
        if self.persona(problem) is not None:
            turns, between = max(1.0, turns_of(problem) * self.assumed.share), self._reply
        return turns, between, turns * self._answer + (turns - 1) * between

    def add(self, stage: str, calls: float, prompt: float, answer: float) -> None:
        """Adds calls with so many tokens in the prompt and the answer of each."""
        read, written = calls * prompt, calls * answer
        seen = self._usage.get(_kind(stage))
        if seen:
            seconds = written * seen.seconds / seen.completion_tokens
        elif self._is_local:
            seconds = (read / LOCAL_PROMPT + written / LOCAL_SPEED) * self._at_once
        else:
            seconds = calls * HOSTED_LATENCY + written / HOSTED_SPEED
        seconds /= 1 if stage == "plan" else self._wide
        dollars = _dollars(self._conditions.prices, stage, read, 0, written)
        self.added.append(StageEstimate(stage, calls, read, written, dollars, seconds))

    def add_judgements(self, problem: Problem, read: float, number: int) -> None:
        """Adds what judges so many attempts, each of so many tokens, if a model does."""
        domain = self._conditions.domain
        if domain.judge is not None:
            calls = number * (domain.judge_calls(problem) if domain.judge_calls else 1)
            answer = self.length("judge", ANSWER["judge"], ANSWER["rollout"])
            self.add("judge", calls, count_tokens(problem.problem) + read + BESIDE, answer)

    def add_attempts(
        self, planned: PlannedAttempts, stage: str = "rollout", more: float = 0.0
    ) -> None:
        """Adds attempts, each with so many more tokens in its prompt, and what judges them."""
        settings, domain, _ = self._conditions
        template = domain.template("rollout", Path(settings.prompts) if settings.prompts else None)
        for problem in planned.problems:
            turns, between, transcript = self.shape(problem)
            persona, objective = self.persona(problem), settings.agent_objective
            # A retriever of one's own may ask a model, so lessons are ranked by their words here.
            library = relevant(planned.library, problem.problem, settings.top_k or None)
            messages = rendered(domain, template, library, problem, objective)
            prompt = sum(count_tokens(text) + 4 for _, text in messages) + more
            if persona is not None:  # each hears what was said until then
                heard = transcript / 2 + count_tokens(problem.problem + persona) + BESIDE
                self.add("persona", planned.samples * (turns - 1), heard, self._reply)
            prompt += (self._answer + between) * (turns - 1) / 2
            self.add(stage, planned.samples * turns, prompt, self._answer)
            self.add_judgements(problem, transcript, planned.samples)


class _Run:
    def __init__(self, store: Store, plan: RunPlan, settings: TrainSettings, calls: Calls) -> None:
        self._settings, self._problems, self._calls = settings, plan.problems, calls
        self._steps, self._store = plan_steps(plan.problems.train, settings), store
        self._reflection = reflection_of(settings, plan.domain, plan.prompts)
        branch = settings.branch if settings.branch in store.branches() else "HEAD"
        self._library = store.library(store.resolve(branch))
        self._measures = settings.policy not in (PAPER, TRIAL)
        library = calls.assumed.library - len(self._library)
        if self._measures:  # no more can enter than is decided about
            ahead = len(plan.problems.train) * settings.epochs * settings.group_size
            library = min(library, candidates.capacity(ahead, ahead))
        full, cap = max(0.0, library) * LESSON, settings.library_tokens
        self._room = full if cap is None else min(full, float(cap))
        there = count_tokens(prompt_text(self._library))
        self._known = min(there, 8 * LESSON) if settings.top_k else there
        right: float = sum(count_tokens(p.problem + p.answer) for p in plan.problems.train)
        train = len(plan.problems.train)
        right *= WHOLE / train if train > WHOLE else 1
        self._examples = min(MOST_TOKENS, right) if settings.examples else 0

    def add(self, versions: Sequence[Version]) -> None:
        """Adds all that comes after the steps that have made these versions."""
        settings, steps, problems = self._settings, self._steps, self._problems
        done = len(versions)
        for number, (_, batch) in enumerate(steps[done:], done):
            after = sum(len(later) for _, later in steps[number + 1 :])
            grown = self._room * number / len(steps)
            self._add_step(batch, grown, after * settings.group_size)
        attempts = sum(len(batch) for _, batch in steps) * settings.group_size
        own = measured_at(settings, problems.train, attempts if done < len(steps) else 0)
        for grown in (0.0, self._room):
            planned = PlannedAttempts(self._library, own, settings.heldout_samples)
            self._calls.add_attempts(planned, more=self._shown(grown))
        compared = (*problems.heldout[: settings.heldout_problems], *problems.sealed)
        for grown in (0.0, self._room):  # with the empty library, and with the last
            self._evaluate(compared, settings.heldout_samples, grown)
        # Trials are of steps that change something, and in the end of every library.
        there = {tuple(e.text for e in self._store.library(v).readable) for v in versions}
        trials = round(3 + len(steps[done:]) * self._calls.assumed.share * 3 + len(there))
        gate = problems.gate[: settings.heldout_problems]
        self._evaluate(gate, settings.heldout_samples * trials, self._room / 2)

    def _evaluate(self, problems: Sequence[Problem], samples: int, grown: float) -> None:
        planned = PlannedAttempts(self._library, problems, samples)
        self._calls.add_attempts(planned, "evaluation", self._shown(grown))

    def _shown(self, grown: float) -> float:
        top_k = self._settings.top_k
        return min(grown, top_k * LESSON) if top_k else grown

    def _add_step(self, batch: Sequence[Problem], grown: float, left: int) -> None:
        size, assumed, more = self._settings.group_size, self._calls.assumed, self._shown(grown)
        if self._measures:  # a third of what belongs, where several things do
            examples = self._examples * assumed.share if grown else 0.0
            more += (assign.CANDIDATES * LESSON + examples) / assign.TURNS
        self._calls.add_attempts(PlannedAttempts(self._library, batch, size), "rollout", more)
        if not self._measures:
            lessons = self._add_comparisons(batch, 1, size, grown) * assumed.lessons
            prompt = self._template("plan") + self._known + grown + lessons * LESSON
            self._calls.add("plan", 1.0, prompt, lessons * SHORT * assumed.longer)
        elif left:
            free = candidates.capacity(left, len(batch) * size) * assumed.share
            askings, shown = propose.askings(round(free), len(batch)), 2 * propose.OF_EACH
            lessons = self._add_comparisons(batch, askings, min(size, shown), grown)
            if self._settings.policy == BASE_PROMPT and left >= candidates.NEEDED:
                self._add_wordings(batch)
            tried = min(free * candidates.RACES, lessons * assumed.lessons)
            tries = round(tried * candidates.TRIES * (1 + assumed.share) / 2)
            race = PlannedAttempts(self._library, batch[:1], tries)
            self._calls.add_attempts(race, "rollout", more)

    def _add_comparisons(
        self, batch: Sequence[Problem], askings: int, attempts: int, grown: float
    ) -> float:
        """Adds comparisons of attempts, with summaries of long ones, and returns their number."""
        calls, teaching = self._calls, len(batch) * self._calls.assumed.share
        problem = fmean(count_tokens(one.problem) for one in batch)
        transcript = fmean(calls.shape(one)[2] for one in batch)
        if transcript * CHARACTERS > self._reflection.manner.summarise_over:
            prompt = self._template("summary") + transcript
            transcript = calls.length("summary", ANSWER["summary"], 2 * ANSWER["summary"])
            calls.add("summary", teaching * attempts, prompt, transcript)
        if self._measures:  # with those beside it
            name, usual, most, beside = "lesson", SHORT, propose.LESSON_TOKENS, propose.NEAR
        else:
            name, usual, most, beside = "comparison", ANSWER["comparison"], 1_200, 0
        prompt = self._template(name) + self._known + grown
        prompt += (1 + beside) * problem + (attempts + beside) * transcript
        length = calls.length("comparison", usual, most)
        calls.add("comparison", teaching * askings, prompt, length)
        return teaching * askings

    def _add_wordings(self, batch: Sequence[Problem]) -> None:
        """Adds the askings for other words, each beside some attempts: for a base prompt, and for
        an agent's tools."""
        calls, words = self._calls, count_tokens(self._settings.agent_objective)
        problem = fmean(count_tokens(one.problem) for one in batch)
        transcript = fmean(calls.shape(one)[2] for one in batch)
        prompt = self._template("lesson") + words + base_prompt.SHOWN * (problem + 2 * transcript)
        kinds = 1 if self._settings.mode == "prompt" else 2
        calls.add("comparison", kinds * base_prompt.PLACES, prompt, words)

    def _template(self, name: str) -> float:
        objectives = self._settings.learning_objective + self._settings.agent_objective
        parts = getattr(self._reflection, name).parts
        return float(count_tokens(objectives) + sum(count_tokens(text) for _, text in parts))


def summed(stages: Iterable[StageEstimate]) -> StageEstimate:
    """What stages take together."""
    return reduce(StageEstimate.plus, stages, StageEstimate("total", 0.0, 0.0, 0.0, 0.0))


def _merged(stages: Iterable[StageEstimate]) -> Stages:
    total: dict[str, StageEstimate] = {}
    for one in stages:
        if one.calls > 0:
            total[one.stage] = total[one.stage].plus(one) if one.stage in total else one
    return tuple(total.values())


def _less(stages: Stages, begun: Stages) -> Stages:
    gone = {one.stage: one for one in begun}
    left = (one.plus(gone[one.stage], -1.0) if one.stage in gone else one for one in stages)
    return tuple(one for one in left if one.calls > 0)


def _spent(spent: Iterable[Spent], prices: ModelPrices) -> Stages:
    stages = []
    for one in spent:
        usage = one.usage
        sizes = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        dollars = _dollars(prices, one.stage, *sizes)
        stages.append(StageEstimate(one.stage, usage.calls, sizes[0], sizes[2], dollars))
    return _merged(stages)


def _dollars(
    prices: ModelPrices, stage: str, prompt: float, cached: float, completion: float
) -> float | None:
    price = prices.policy if _kind(stage) == "rollout" else prices.reflection
    return None if price is None else price.of(prompt, cached, completion)
