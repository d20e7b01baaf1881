"""What a run or an evaluation will take before anything is spent: calls × their size.

Prompts are rendered for real; answers are as long as this store has seen from the model, else as
the rules below say. *Expected* is the likely figure, *most* an upper one: every group teaches,
answers are longer, the library is full; `--budget` is what stops a run. Of a run with steps the
rest is like those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from tfgrpo.connect import local_slots
from tfgrpo.costs.prices import LOCAL, ModelPrices
from tfgrpo.domains.base import Trajectory, answer_once
from tfgrpo.domains.conversation import converse, persona_of, turns_of
from tfgrpo.learn import candidates, examples, propose
from tfgrpo.learn.loop import plan_steps, reflection_of
from tfgrpo.learn.policies import base_prompt
from tfgrpo.model.token_counts import count
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rollout.attempt import rendered
from tfgrpo.runs.run_versions import versions_of
from tfgrpo.settings import BASE_PROMPT, PROBATION, SHORT_ANSWERS, Settings, TrainSettings
from tfgrpo.store.activity.runs import Run, Spent, Usage
from tfgrpo.store.records import Library
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.data.problems import Problem
    from tfgrpo.domains.base import Domain
    from tfgrpo.evaluation.eval_setup import EvalPlan
    from tfgrpo.learn.run_setup import RunPlan

ANSWER = {"rollout": 800.0, "summary": 200.0, "comparison": 250.0, "lesson": 60.0, "judge": 80.0}
SHORT_ANSWER, AGENT_ANSWER, PLANNED, PERSONA = 40.0, 250.0, 60.0, 60.0
"""Tokens of an answer before this store has seen any from the model: by stage, of a short attempt,
an agent's turn, a planned operation and a simulated user. One that may have few has a quarter."""
RESULT, JUDGED, LESSON = 400.0, 500.0, 45.0
"""Tokens of a tool's result, of what a judge is told beside the answer, and of an experience."""
CHARACTERS = 4.0
"""The characters of a token, more or less."""
HOSTED_LATENCY, HOSTED_SPEED = 0.6, 60.0
"""Seconds until an answer begins, and its tokens a second, before any has been seen."""
LOCAL_PROMPT, LOCAL_SPEED, READ_ANEW = 100.0, 30.0, 0.3
"""Tokens a second that a local model reads and writes in all, and which part of its prompts it has
to read, since it has read their beginnings for the attempt before: in five runs of 600 calls."""
LATEST = 200
"""Attempts that tell how many calls an attempt makes, the latest first."""
ONE_STEP, MORE_STEPS = 2.0, 1.5
"""How many times what the steps so far have taken the rest takes at most: after one, and more."""


class Assumed(NamedTuple):
    """Shares of groups that teach, of an agent's turns and of the candidates' places; lessons of an
    answer; experiences of a full library; how much longer answers are, and how often asked for."""

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
        """It and so many times another, and nothing below nothing."""
        known = self.dollars is not None and other.dollars is not None
        return StageEstimate(
            self.stage,
            max(0.0, self.calls + factor * other.calls),
            max(0.0, self.prompt_tokens + factor * other.prompt_tokens),
            max(0.0, self.completion_tokens + factor * other.completion_tokens),
            max(0.0, (self.dollars or 0.0) + factor * (other.dollars or 0.0)) if known else None,
        )

    def times(self, factor: float) -> StageEstimate:
        """So many times as much."""
        return self.plus(self, factor - 1.0)


Stages: TypeAlias = tuple[StageEstimate, ...]


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """A run's stages and seconds, expected and at most, and in words what is in neither; of a run
    that has made steps what is left, with what is spent."""

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
    estimate = _estimated(
        plan.settings, plan.domain, seen, lambda one: _Run(store, plan, one, seen)
    )
    estimate = replace(estimate, steps=len(plan_steps(plan.problems.train, plan.settings)))
    done = len(versions_of(store, run)) if run is not None else 0
    if run is not None and done:
        estimate = _rest(estimate, store.runs.spent(run), done, plan)
    return _timed(plan.settings, estimate, seen)


def estimate_attempts(
    store: Store, plan: EvalPlan, planned: Sequence[PlannedAttempts]
) -> RunEstimate:
    """What attempts under a plan's conditions take. Nothing is written."""
    settings, domain = plan.task.settings, plan.task.domain
    seen = _seen(store, settings, domain)

    def added(assumed: Assumed) -> _Calls:
        total = _Attempts(settings, domain, plan.prices, assumed, seen)
        for one in planned:
            total.attempts(one, "evaluation")
        return total

    return _timed(settings, _estimated(settings, domain, seen, added), seen)


def estimate_evaluation(store: Store, plan: EvalPlan) -> RunEstimate:
    """What an evaluation takes: nothing for versions whose scores are on record."""
    return estimate_attempts(store, plan, missing_attempts(store, plan))


def missing_attempts(store: Store, plan: EvalPlan) -> list[PlannedAttempts]:
    """The attempts of an evaluation that are not on record, by version."""
    task, versions = plan.task, plan.missing(store)
    samples = task.settings.samples
    return [PlannedAttempts(store.library(one), task.problems, samples) for one in versions]


def estimate_judgements(
    store: Store, settings: Settings, prices: ModelPrices, judged: Iterable[str]
) -> RunEstimate:
    """What a judge takes for what is there already: `judged` are questions and answers."""
    seen = _seen(store, settings, None)
    prompts = [count(text) + JUDGED for text in judged]

    def added(assumed: Assumed) -> _Calls:
        calls = _Calls(prices, assumed, seen)
        for prompt in prompts:
            calls.add("judge", "reflection", 1.0, prompt, calls.length("judge", 80, 1000))
        return calls

    return _timed(settings, _estimated(settings, None, seen, added), seen)


def _estimated(
    settings: Settings, domain: Domain | None, seen: Seen, added: Callable[[Assumed], _Calls]
) -> RunEstimate:
    """An estimate of the calls that are added up under what is expected, and at most."""
    most = added(MOST._replace(longer=SEEN_LONGER) if seen.lengths else MOST).stages()
    unknown = _unknown(settings, domain, seen)
    return RunEstimate(added(EXPECTED).stages(), most, unknown, bool(seen.lengths))


class Seen(NamedTuple):
    """What this store has seen of a run's models: mean tokens of an answer and seconds a token by
    stage, and the mean and most calls of attempts by its agent, None where there were none."""

    lengths: Mapping[str, float]
    paces: Mapping[str, float]
    calls: tuple[float, int] | None


def _seen(store: Store, settings: Settings, domain: Domain | None) -> Seen:
    """What is seen for attempts of a domain, or for judgements alone."""
    models = {settings.models.model, settings.models.reflection_model}
    sums: dict[str, Usage] = {}
    for spent in store.runs.spent():
        if spent.model in models and spent.usage.completion_tokens:
            before = sums.get(spent.stage, Usage())
            sums[spent.stage] = Usage._make(map(sum, zip(before, spent.usage, strict=True)))
    lengths = {stage: usage.completion_tokens / usage.calls for stage, usage in sums.items()}
    paces = {stage: usage.seconds / usage.completion_tokens for stage, usage in sums.items()}
    for one, other in (("evaluation", "rollout"), ("rollout", "evaluation")):
        if one in lengths:
            lengths.setdefault(other, lengths[one])
    is_plain = domain is None or _answers_once(settings, domain)
    return Seen(lengths, paces, None if is_plain else _calls_of_attempts(store, settings))


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


def _unknown(settings: Settings, domain: Domain | None, seen: Seen) -> tuple[str, ...]:
    """What an estimate leaves out, in words."""
    is_known = settings.mode == "agent" or seen.calls is not None
    if domain is None or is_known or _answers_once(settings, domain):
        return ()
    who = "the agent" if settings.agent.run else f"the domain {domain.name}"
    return (f"calls after the first of an attempt by {who}: no attempt is on record yet",)


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
        self, settings: Settings, domain: Domain, prices: ModelPrices, assumed: Assumed, seen: Seen
    ) -> None:
        super().__init__(prices, assumed, seen)
        self._settings, self._domain = settings, domain
        self._folder = Path(settings.prompts) if settings.prompts else None
        kind = settings.domain.partition(":")[0]
        short = SHORT_ANSWER if kind in SHORT_ANSWERS else ANSWER["rollout"]
        self._is_agent = settings.mode == "agent"
        self.turns = max(1.0, settings.turns * assumed.turns) if self._is_agent else 1.0
        if seen.calls is not None:
            self.turns = float(seen.calls[assumed is not EXPECTED])
        cut_off = settings.max_tokens / (4 if assumed is EXPECTED else 2)
        likely = AGENT_ANSWER if self._is_agent else min(short, cut_off)
        self.answer = self.length("rollout", likely, settings.max_tokens)

    @property
    def transcript(self) -> float:
        """The tokens of an attempt as the reflection model reads it."""
        return self.turns * self.answer + (self.turns - 1) * RESULT

    def attempts(self, planned: PlannedAttempts, stage: str = "rollout", more: float = 0.0) -> None:
        """Adds attempts, each with so many more tokens in its prompt."""
        template = self._domain.template("rollout", self._folder)
        objective, number = self._settings.agent_objective, planned.samples
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
        settings = plan.settings.model_copy(update={"prompts": folder})
        super().__init__(settings, plan.domain, plan.prices, assumed, seen)
        self._run, self._problems = settings, plan.problems
        self._reflection = reflection_of(settings, plan.domain, plan.prompts)
        branch = plan.settings.branch
        self._library = store.library(
            store.resolve(branch if branch in store.branches() else "HEAD")
        )
        self._measures = plan.settings.policy in (PROBATION, BASE_PROMPT)
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
        settings, steps = self._run, plan_steps(self._problems.train, self._run)
        left = len(self._problems.train) * settings.epochs
        for number, (_, batch) in enumerate(steps):
            left -= len(batch)
            self._step(batch, self._room * number / len(steps), left * settings.group_size)
        checked = self._problems.heldout[: settings.heldout_problems]
        samples, problems = settings.heldout_samples, (*checked, *self._problems.sealed)
        for more in (0.0, self._shown(self._room)):  # with the empty library, and with the last
            self.attempts(PlannedAttempts(self._library, problems, samples), "evaluation", more)
        gate = self._problems.gate[: settings.heldout_problems]
        trials = round(3 + len(steps) * self._assumed.places * 3)  # of steps that change something
        trial = PlannedAttempts(self._library, gate, samples * trials)
        self.attempts(trial, "evaluation", self._shown(self._room / 2))
        return super().stages()

    def _shown(self, grown: float) -> float:
        """The tokens in a prompt of a library that has grown by so many."""
        return min(grown, self._run.top_k * LESSON) if self._run.top_k else grown

    def _step(self, batch: Sequence[Problem], grown: float, left: int) -> None:
        """Adds a step whose library has grown by so many tokens, before so many attempts."""
        assumed, groups, size = self._assumed, len(batch), self._run.group_size
        more = self._shown(grown)
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
        if self._run.policy == BASE_PROMPT and left >= candidates.NEEDED:
            words = count(self._run.agent_objective)
            beside = base_prompt.SHOWN * (problem / (1 + propose.NEAR) + 2 * transcript)
            prompt = self._template("lesson") + words + beside
            self.add("comparison", "reflection", base_prompt.PLACES * assumed.tries, prompt, words)
        if self._measures and left:
            races = min(free * candidates.RACES, teaching * askings * assumed.lessons)
            tries = round(races * candidates.TRIES * (1 + assumed.places) / 2)
            self.attempts(PlannedAttempts(self._library, batch[:1], tries), "rollout", more)
        elif not self._measures:
            lessons = teaching * assumed.lessons
            prompt = self._template("plan") + self._known + grown + lessons * LESSON
            planned = lessons * PLANNED * assumed.longer
            self.add("controller", "reflection", assumed.tries, prompt, planned)

    def _template(self, name: str) -> float:
        """The tokens of a prompt of reflection without what is put into it."""
        template = getattr(self._reflection, name)
        objectives = count(self._run.learning_objective + self._run.agent_objective)
        return sum(count(text) for _, text in template.parts) + float(objectives)


def summed(stages: Iterable[StageEstimate]) -> StageEstimate:
    """What stages take together."""
    return reduce(StageEstimate.plus, stages, StageEstimate("total", 0.0, 0.0, 0.0, 0.0))


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
                stages.append(one if evaluated is None else one.plus(evaluated, -1.0))
            elif name in so_far:
                one = so_far[name].times(left / done)
                one = one.plus(begun[name], -1.0) if name in begun else one
                stages.append(one.times(factor))
        return tuple(one for one in stages if one.calls > 0)

    total = summed(_by_stage(spent, plan).values())
    return replace(
        estimate,
        expected=rest(estimate.expected, 1.0),
        most=rest(estimate.most, ONE_STEP if done == 1 else MORE_STEPS),
        steps=left,
        steps_done=done,
        spent_dollars=total.dollars,
        spent_tokens=round(total.prompt_tokens + total.completion_tokens),
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


def _timed(settings: Settings, estimate: RunEstimate, seen: Seen) -> RunEstimate:
    """An estimate with how long its calls take, as many at once as may be."""
    local = settings.models.model.startswith(LOCAL)
    at_once = local_slots(settings.concurrency) if local else settings.concurrency
    batch = at_once
    if isinstance(settings, TrainSettings):
        batch = settings.batch_size * settings.group_size

    def seconds(stages: Stages) -> float:
        total = 0.0
        for one in stages:
            if one.stage in seen.paces:
                taken = one.completion_tokens * seen.paces[one.stage]
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
