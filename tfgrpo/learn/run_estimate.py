"""What a run or an evaluation will take before anything is spent: calls × their size.

Prompts are rendered for real; answers are as long as this store has seen from the model, else as
the rules below say. *Expected* is the likely figure, *most* an upper one: every group teaches,
answers are longer, the library is full; `--budget` is what stops a run. Of a run with steps the
rest is like those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from tfgrpo.connect import local_slots
from tfgrpo.costs.prices import LOCAL, ModelPrices
from tfgrpo.domains.base import Trajectory, answer_once
from tfgrpo.domains.conversation import converse, persona_of, turns_of
from tfgrpo.learn import candidates, examples, propose
from tfgrpo.learn.loop import plan_steps, reflection_of
from tfgrpo.model.token_counts import count
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rollout.attempt import rendered
from tfgrpo.runs.run_versions import versions_of
from tfgrpo.settings import PROBATION, SHORT_ANSWERS, Settings, TrainSettings
from tfgrpo.store.activity.runs import Run, Spent
from tfgrpo.store.records import Library
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.data.problems import Problem
    from tfgrpo.domains.base import Domain
    from tfgrpo.evaluation.eval_setup import EvalPlan
    from tfgrpo.learn.run_setup import RunPlan

ANSWER = {"rollout": 800.0, "summary": 200.0, "comparison": 250.0, "lesson": 60.0, "judge": 80.0}
"""Tokens of an answer, before this store has seen any from the model."""
SHORT_ANSWER, AGENT_ANSWER, PLANNED = 40.0, 250.0, 60.0
"""The same of a short attempt, of an agent's turn, and of a planned operation."""
RESULT, JUDGED, LESSON = 400.0, 500.0, 45.0
"""Tokens of a tool's result, of what a judge is told beside the answer, and of an experience."""
PERSONA = 60.0
"""Tokens of what a simulated user says."""
CHARACTERS = 4.0
"""The characters of a token, more or less."""
HOSTED_LATENCY, HOSTED_SPEED = 0.6, 60.0
"""Seconds until an answer begins, and its tokens a second, before any has been seen."""
LOCAL_PROMPT, LOCAL_SPEED, READ_ANEW = 100.0, 30.0, 0.4
"""Tokens a second that a local model reads and writes in all, and which part of its prompts it has
to read, since it has read their beginnings for the attempt before."""
LATEST = 200
"""Attempts that tell how many calls an attempt makes, the latest first."""
ONE_STEP, MORE_STEPS = 2.0, 1.5
"""How many times what the steps so far have taken the rest takes at most: after one, and more."""


class Assumed(NamedTuple):
    """Shares of the groups that teach, of the turns that an agent takes and of the places for
    candidates that are used; lessons of an answer; experiences of a library when it is full; how
    many times as long as likely answers are, and how often one is asked for again."""

    teaching: float
    turns: float
    places: float
    lessons: float
    library: float
    longer: float
    tries: float


EXPECTED = Assumed(0.6, 0.6, 0.5, 1.2, 15, 1.0, 1.0)
MOST = Assumed(1.0, 1.0, 1.0, 2.0, 60, 2.0, 1.1)
SEEN_LONGER = 1.5
"""How many times as long as this store has seen them answers are in `MOST`."""
Who: TypeAlias = Literal["policy", "reflection"]


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """What one stage takes in all steps. `dollars` is None where the price is unknown."""

    stage: str
    calls: float
    prompt_tokens: float
    completion_tokens: float
    dollars: float | None

    def plus(self, other: StageEstimate, factor: float = 1.0) -> StageEstimate:
        """It and so many times another."""
        known = self.dollars is not None and other.dollars is not None
        return StageEstimate(
            self.stage,
            self.calls + factor * other.calls,
            self.prompt_tokens + factor * other.prompt_tokens,
            self.completion_tokens + factor * other.completion_tokens,
            (self.dollars or 0.0) + factor * (other.dollars or 0.0) if known else None,
        )

    def times(self, factor: float) -> StageEstimate:
        """So many times as much."""
        return StageEstimate(self.stage, 0.0, 0.0, 0.0, 0.0).plus(self, factor)

    def less(self, other: StageEstimate) -> StageEstimate:
        """What is left of it without another, and nothing below nothing."""
        rest = self.plus(other, -1.0)
        dollars = None if rest.dollars is None else max(0.0, rest.dollars)
        calls, prompt = max(0.0, rest.calls), max(0.0, rest.prompt_tokens)
        return StageEstimate(self.stage, calls, prompt, max(0.0, rest.completion_tokens), dollars)


Stages: TypeAlias = tuple[StageEstimate, ...]


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """A run's stages, expected and at most, and what is in neither, in words.

    `steps` are those that are to be made, `seconds` the time that they are expected to take, and
    `most_seconds` at most. Of a run that has made steps this is what is left: `spent_dollars` and
    `spent_tokens` are gone, and `steps_done`.
    """

    expected: Stages
    most: Stages
    left_out: tuple[str, ...] = ()
    lengths_seen: bool = False
    steps: int = 0
    seconds: float = 0.0
    most_seconds: float = 0.0
    steps_done: int = 0
    spent_dollars: float | None = 0.0
    spent_tokens: int = 0

    def __add__(self, other: RunEstimate) -> RunEstimate:
        return RunEstimate(
            _merged((*self.expected, *other.expected)),
            _merged((*self.most, *other.most)),
            tuple(dict.fromkeys((*self.left_out, *other.left_out))),
            self.lengths_seen and other.lengths_seen,
            seconds=self.seconds + other.seconds,
            most_seconds=self.most_seconds + other.most_seconds,
        )


class PlannedAttempts(NamedTuple):
    """Attempts to be made with a library: `samples` at each of some problems."""

    library: Library
    problems: Sequence[Problem]
    samples: int


def estimate_run(store: Store, plan: RunPlan, run: Run | None = None) -> RunEstimate:
    """What a run takes, or what is left of a `run` that has made steps. Nothing is written."""
    seen = _seen(store, plan.settings, plan.domain)
    expected, most = (_Run(store, plan, one, seen).stages() for one in _assumed(seen))
    steps = len(plan_steps(plan.problems.train, plan.settings))
    unknown = _unknown(plan.settings, plan.domain, seen)
    estimate = RunEstimate(expected, most, unknown, bool(seen.lengths), steps=steps)
    done = len(versions_of(store, run)) if run is not None else 0
    if run is not None and done:
        estimate = _rest(estimate, store.runs.spent(run), done, plan)
    return _timed(store, plan.settings, estimate)


def estimate_attempts(
    store: Store, plan: EvalPlan, planned: Sequence[PlannedAttempts]
) -> RunEstimate:
    """What attempts under a plan's conditions take. Nothing is written."""
    settings = plan.task.settings
    seen = _seen(store, settings, plan.task.domain)

    def stages(assumed: Assumed) -> Stages:
        total = _Attempts(settings, plan.task.domain, plan.prices, assumed, seen)
        for one in planned:
            total.attempts(one, "evaluation")
        return total.stages()

    expected, most = map(stages, _assumed(seen))
    unknown = _unknown(settings, plan.task.domain, seen)
    return _timed(store, settings, RunEstimate(expected, most, unknown, bool(seen.lengths)))


def estimate_evaluation(store: Store, plan: EvalPlan) -> RunEstimate:
    """What an evaluation takes: nothing for versions whose scores are on record."""
    task = plan.task
    missing = [
        PlannedAttempts(store.library(version), task.problems, task.settings.samples)
        for version in plan.versions
        if store.runs.evaluation(version.number, task.key) is None
    ]
    return estimate_attempts(store, plan, missing)


def estimate_judgements(
    store: Store, settings: Settings, prices: ModelPrices, judged: Iterable[str]
) -> RunEstimate:
    """What a judge takes for what is there already: `judged` are questions and answers."""
    seen = _seen(store, settings, None)
    prompts = [count(text) + JUDGED for text in judged]

    def stages(assumed: Assumed) -> Stages:
        calls = _Calls(prices, assumed, seen)
        for prompt in prompts:
            calls.add("judge", "reflection", 1.0, prompt, calls.length("judge", 80, 1000))
        return calls.stages()

    expected, most = map(stages, _assumed(seen))
    return _timed(store, settings, RunEstimate(expected, most, (), bool(seen.lengths)))


class Seen(NamedTuple):
    """What this store has seen of a run's models: mean tokens of an answer by stage, and how many
    calls attempts by its agent made, on average and at most; None where there were none."""

    lengths: Mapping[str, float]
    calls: tuple[float, int] | None


def _seen(store: Store, settings: Settings, domain: Domain | None) -> Seen:
    """What is seen for attempts of a domain, or for judgements alone."""
    sums = _sums(store, settings)
    means = {stage: tokens / calls for stage, (calls, tokens, _) in sums.items()}
    for one, other in (("evaluation", "rollout"), ("rollout", "evaluation")):
        if one in means:
            means.setdefault(other, means[one])
    is_plain = domain is None or _answers_once(settings, domain)
    return Seen(means, None if is_plain else _calls_of_attempts(store, settings))


def _answers_once(settings: Settings, domain: Domain) -> bool:
    """Whether attempts are no agent's nor somebody's own: their calls follow from the problem."""
    no_agent = settings.mode == "prompt" and not settings.agent.run
    return no_agent and domain.rollout in (answer_once, converse)


def _calls_of_attempts(store: Store, settings: Settings) -> tuple[float, int] | None:
    """How many calls the latest attempts made that were made as these settings say."""
    way = (settings.agent.run or "", settings.domain, settings.mode)
    counts: list[int] = []
    for run in reversed(store.runs.all()):
        config = run.config
        agent = (config.get("agent") or {}).get("run") or ""
        if (agent, config.get("domain"), config.get("mode")) == way and len(counts) < LATEST:
            counts += [len(r.calls) for r in store.runs.rollouts(run) if r.outcome != "failed"]
    return (max(1.0, fmean(counts)), max(1, *counts)) if counts else None


def _unknown(settings: Settings, domain: Domain, seen: Seen) -> tuple[str, ...]:
    """What an estimate leaves out, in words."""
    if settings.mode == "agent" or seen.calls is not None or _answers_once(settings, domain):
        return ()
    who = "the agent" if settings.agent.run else f"the domain {domain.name}"
    return (f"calls after the first of an attempt by {who}: no attempt is on record yet",)


def _sums(store: Store, settings: Settings) -> dict[str, tuple[int, int, float]]:
    """Stage → calls, tokens of answers and seconds that this store has seen of a run's models."""
    models = {settings.models.model, settings.models.reflection_model}
    sums: dict[str, tuple[int, int, float]] = {}
    for spent in store.runs.spent():
        usage = spent.usage
        if spent.model in models and usage.completion_tokens:
            calls, tokens, seconds = sums.get(spent.stage, (0, 0, 0.0))
            tokens += usage.completion_tokens
            sums[spent.stage] = calls + usage.calls, tokens, seconds + usage.seconds
    return sums


def _assumed(seen: Seen) -> tuple[Assumed, Assumed]:
    return EXPECTED, MOST._replace(longer=SEEN_LONGER) if seen.lengths else MOST


class _Calls:
    """Adds up calls by stage."""

    def __init__(self, prices: ModelPrices, assumed: Assumed, seen: Seen) -> None:
        self._prices, self._assumed, self._seen = prices, assumed, seen
        self._stages: list[StageEstimate] = []

    def length(self, stage: str, likely: float, most: float) -> float:
        """The tokens of a stage's answer, which may have `most`."""
        return min(self._seen.lengths.get(stage, likely) * self._assumed.longer, most)

    def add(self, stage: str, who: Who, calls: float, prompt: float, answer: float) -> None:
        """Adds calls with so many tokens in the prompt and the answer of each."""
        price = self._prices.policy if who == "policy" else self._prices.reflection
        sizes = (calls * prompt, calls * answer)
        dollars = None if price is None else price.of(sizes[0], 0, sizes[1])
        if calls > 0:
            self._stages.append(StageEstimate(stage, calls, *sizes, dollars))

    def stages(self) -> Stages:
        """What was added, a line for each stage."""
        return _merged(self._stages)


class _Attempts(_Calls):
    """Adds up attempts, with what judges them."""

    def __init__(
        self,
        settings: Settings,
        domain: Domain,
        prices: ModelPrices,
        assumed: Assumed,
        seen: Seen,
    ) -> None:
        super().__init__(prices, assumed, seen)
        self._of, self._domain = settings, domain
        self._folder = Path(settings.prompts) if settings.prompts else None
        kind = settings.domain.partition(":")[0]
        short = SHORT_ANSWER if kind in SHORT_ANSWERS else ANSWER["rollout"]
        self._is_agent = settings.mode == "agent"
        self.turns = max(1.0, settings.turns * assumed.turns) if self._is_agent else 1.0
        if seen.calls is not None:
            self.turns = float(seen.calls[assumed is not EXPECTED])
        likely = AGENT_ANSWER if self._is_agent else min(short, settings.max_tokens / 2)
        self.answer = self.length("rollout", likely, settings.max_tokens)

    @property
    def transcript(self) -> float:
        """The tokens of an attempt as the reflection model reads it."""
        return self.turns * self.answer + (self.turns - 1) * RESULT

    def attempts(self, planned: PlannedAttempts, stage: str = "rollout", more: float = 0.0) -> None:
        """Adds attempts, each with so many more tokens in its prompt."""
        template = self._domain.template("rollout", self._folder)
        objective, number = self._of.agent_objective, planned.samples
        again = self.answer + RESULT  # what a turn adds to the prompts of those after it
        for problem in planned.problems:
            messages = rendered(self._domain, template, planned.library, problem, objective)
            prompt = sum(count(text) + 4 for _, text in messages) + more
            turns = self.turns
            if self._domain.rollout is converse and persona_of(problem) is not None:
                turns = max(1.0, turns_of(problem) * self._assumed.turns)
                replies = number * (turns - 1)
                self.add("persona", "reflection", replies, self.transcript + JUDGED, PERSONA)
            prompt += again * (turns - 1) / 2
            self.add(stage, "policy", number * turns, prompt, self.answer)
            self._judgements(problem, number)

    def _judgements(self, problem: Problem, number: int) -> None:
        if self._domain.judgements is not None:
            for one in self._domain.judgements(problem, Trajectory("word " * round(self.answer))):
                read = sum(count(text) + 4 for _, text in one.messages)
                length = self.length("judge", ANSWER["judge"], one.max_tokens)
                self.add("judge", "reflection", number, read, length)
        elif self._domain.judge is not None:
            prompt = count(problem.problem) + self.transcript + JUDGED
            self.add("judge", "reflection", number, prompt, self.length("judge", 80, 1000))


class _Run(_Attempts):
    """Adds up what the steps of a run take, its trials, and the comparison at the end."""

    def __init__(self, store: Store, plan: RunPlan, assumed: Assumed, seen: Seen) -> None:
        folder = str(plan.prompts) if plan.prompts else None
        self._settings = plan.settings.model_copy(update={"prompts": folder})
        super().__init__(self._settings, plan.domain, plan.prices, assumed, seen)
        self._problems = plan.problems
        self._reflection = reflection_of(self._settings, plan.domain, plan.prompts)
        branch = plan.settings.branch
        self._library = store.library(
            store.resolve(branch if branch in store.branches() else "HEAD")
        )
        self._measures = plan.settings.policy == PROBATION
        library = assumed.library - len(self._library)
        if self._measures:  # no more can enter than is decided about
            ahead = len(plan.problems.train) * plan.settings.epochs * plan.settings.group_size
            library = min(library, candidates.capacity(ahead, ahead))
        full = max(0.0, library) * LESSON
        cap = plan.settings.library_tokens
        self._room = full if cap is None else min(full, float(cap))
        there = count(prompt_text(self._library))
        self._known = min(there, 8 * LESSON) if plan.settings.top_k else there
        right = sum(count(one.problem + one.answer) for one in plan.problems.train)
        self._examples = min(examples.MOST_TOKENS, right) if plan.settings.examples else 0

    def stages(self) -> Stages:
        """What the whole run takes."""
        settings, steps = self._settings, plan_steps(self._problems.train, self._settings)
        left = len(self._problems.train) * settings.epochs
        for number, (_, batch) in enumerate(steps):
            left -= len(batch)
            self._step(batch, self._room * number / len(steps), left * settings.group_size)
        checked = self._problems.heldout[: settings.heldout_problems]
        last = PlannedAttempts(self._library, (*checked, *self._problems.sealed), 2)
        self.attempts(last._replace(samples=settings.heldout_samples), "evaluation")
        self.attempts(last._replace(samples=settings.heldout_samples), "evaluation", self._room)
        gate = self._problems.gate[: settings.heldout_problems]
        trial = PlannedAttempts(self._library, gate, settings.heldout_samples)
        trials = 3 + len(steps) * self._assumed.places * 3  # of steps that change something
        for _ in range(round(trials) if gate else 0):
            self.attempts(trial, "evaluation", self._room / 2)
        return super().stages()

    def _step(self, batch: Sequence[Problem], grown: float, left: int) -> None:
        """Adds a step whose library has grown by so many tokens, before so many attempts."""
        assumed, groups, size = self._assumed, len(batch), self._settings.group_size
        more = min(grown, 8 * LESSON) if self._settings.top_k else grown
        if self._measures:  # half of the candidates, and of the examples, that belong
            shown = self._examples / 2 if grown else 0.0
            more += 2 * LESSON + shown * assumed.places
        self.attempts(PlannedAttempts(self._library, batch, size), "rollout", more)
        teaching = groups * assumed.teaching * (1.0 if left or not self._measures else 0.0)
        free = candidates.capacity(left, groups * size) * assumed.places if left else 0.0
        askings = propose.askings(round(free), groups) if self._measures else 1
        read = self._template("lesson" if self._measures else "comparison") + self._known + grown
        compared = min(size, 2 * propose.OF_EACH) if self._measures else size
        transcript = self.transcript
        if transcript * CHARACTERS > self._reflection.manner.summarise_over:
            transcript = self.length("summary", ANSWER["summary"], 400)
            prompt = self._template("summary") + self.transcript
            self.add("summary", "reflection", teaching * compared, prompt, transcript)
        problem = fmean(count(one.problem) for one in batch)
        if self._measures:  # with those beside it
            problem, compared = (1 + propose.NEAR) * problem, compared + propose.NEAR
        usual = ANSWER["lesson" if self._measures else "comparison"]
        answer = self.length("comparison", usual, propose.LESSON_TOKENS if self._measures else 1200)
        prompt = read + problem + compared * transcript
        calls = teaching * askings * assumed.tries
        self.add("comparison", "reflection", calls, prompt, answer)
        if self._measures and left:
            races = min(free * candidates.RACES, teaching * askings * assumed.lessons)
            one = PlannedAttempts(self._library, batch[:1], 1)
            for _ in range(round(races * candidates.TRIES * (1 + assumed.places) / 2)):
                self.attempts(one, "rollout", more)
        elif not self._measures:
            lessons = teaching * assumed.lessons
            prompt = self._template("plan") + self._known + grown + lessons * LESSON
            planned = lessons * PLANNED * assumed.longer
            self.add("controller", "reflection", assumed.tries, prompt, planned)

    def _template(self, name: str) -> float:
        """The tokens of a prompt of reflection without what is put into it."""
        template = getattr(self._reflection, name)
        objectives = count(self._settings.learning_objective + self._settings.agent_objective)
        return sum(count(text) for _, text in template.parts) + float(objectives)


def _merged(stages: Iterable[StageEstimate]) -> Stages:
    total: dict[str, StageEstimate] = {}
    for one in stages:
        total[one.stage] = total[one.stage].plus(one) if one.stage in total else one
    return tuple(total.values())


def _rest(estimate: RunEstimate, spent: Sequence[Spent], done: int, plan: RunPlan) -> RunEstimate:
    """What is left of a run after so many steps."""
    left = max(0, estimate.steps - done)
    so_far = _by_stage((one for one in spent if one.step is not None and one.step < done), plan)
    evaluated = _by_stage((one for one in spent if one.step is None), plan).get("evaluation")
    begun = _by_stage((one for one in spent if one.step is not None and one.step >= done), plan)

    def rest(planned: Stages, factor: float) -> Stages:
        stages = []
        for name in dict.fromkeys([*so_far, *(one.stage for one in planned)]):
            if name == "evaluation":
                one = next(one for one in planned if one.stage == name)
                stages.append(one if evaluated is None else one.less(evaluated))
            elif name in so_far:
                one = so_far[name].times(left / done)
                one = one.less(begun[name]) if name in begun else one
                stages.append(one.times(factor))
        return tuple(one for one in stages if one.calls > 0)

    total = _by_stage(spent, plan).values()
    known = [one.dollars for one in total if one.dollars is not None]
    return replace(
        estimate,
        expected=rest(estimate.expected, 1.0),
        most=rest(estimate.most, ONE_STEP if done == 1 else MORE_STEPS),
        steps=left,
        steps_done=done,
        spent_dollars=sum(known) if len(known) == len(total) else None,
        spent_tokens=round(sum(o.prompt_tokens + o.completion_tokens for o in total)),
    )


def _by_stage(spent: Iterable[Spent], plan: RunPlan) -> dict[str, StageEstimate]:
    """Stage → what its calls have come to."""
    stages = []
    for one in spent:
        usage = one.usage
        own = one.stage in ("rollout", "evaluation")
        price = plan.prices.policy if own else plan.prices.reflection
        sizes = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        cost = None if price is None else price.of(*sizes)
        stages.append(StageEstimate(one.stage, usage.calls, sizes[0], sizes[2], cost))
    return {one.stage: one for one in _merged(stages)}


def _timed(store: Store, settings: Settings, estimate: RunEstimate) -> RunEstimate:
    """An estimate with how long its calls take, as many at once as may be."""
    seen = {
        stage: seconds / tokens for stage, (_, tokens, seconds) in _sums(store, settings).items()
    }
    local = settings.models.model.startswith(LOCAL)
    at_once = local_slots(settings.concurrency) if local else settings.concurrency
    batch = at_once
    if isinstance(settings, TrainSettings):
        batch = settings.batch_size * settings.group_size

    def seconds(stages: Stages) -> float:
        total = 0.0
        for one in stages:
            if one.stage in seen:
                taken = one.completion_tokens * seen[one.stage]
            elif local:
                read = one.prompt_tokens * READ_ANEW / LOCAL_PROMPT
                taken = (read + one.completion_tokens / LOCAL_SPEED) * at_once
            else:
                taken = one.calls * HOSTED_LATENCY + one.completion_tokens / HOSTED_SPEED
            wide = 1 if one.stage == "controller" else min(at_once, batch)
            total += taken / wide
        return total

    return replace(
        estimate, seconds=seconds(estimate.expected), most_seconds=seconds(estimate.most)
    )
