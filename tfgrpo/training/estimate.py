"""What a run will take, before anything is spent: calls, tokens and US dollars, by stage.

Prompts are rendered for real, every problem with the run's own templates and the library the
branch stands at. Three figures are given. The *expected* one takes answers to be as long as this
store has seen them from the same model, or else as `ANSWER` says, half the groups mixed, half the
turns taken, half the lessons new, and a library full with 30. The one for *most* runs has nearly
every group mixed and every lesson new, answers twice as long, and a library of 60: a run crosses
it whose answers are longer still. The *upper* one, the worst case, holds whatever the models say,
as long as the server keeps to `max_tokens`: every group is mixed, every attempt takes all its
turns, every answer is as long as it may be, every lesson becomes an experience, everything that
can be asked again is.

The stages are those of `tfgrpo cost`. Tokens are counted by `tokens.py`, for a provider's own
tokenizer is not at hand for most models; upper figures count a prompt's bytes, of which a
byte-level token has at least one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean

from tfgrpo.data.problems import KIND
from tfgrpo.domains.base import QUOTED
from tfgrpo.model.prices import Price
from tfgrpo.model.tokens import count
from tfgrpo.rendering.examples import example_text
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rollout.attempt import rendered
from tfgrpo.settings import SHORT_ANSWERS, TrainSettings
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.records import Library, Operation
from tfgrpo.store.store import Store
from tfgrpo.training import ablations, adaptive, strategies
from tfgrpo.training.assign import CANDIDATES
from tfgrpo.training.attempt_cost import (
    Assumptions,
    AttemptCost,
    Model,
    PlannedRun,
    PlannedUsage,
    TokenCounter,
    attempt_cost,
    uncounted,
)
from tfgrpo.training.batch_controller import PLAN_TOKENS
from tfgrpo.training.confirmation import CONFIRMATIONS
from tfgrpo.training.controller import CONTROLLER_TOKENS
from tfgrpo.training.draft import Draft
from tfgrpo.training.exemplars import (
    FIRST_EXAMPLES,
    LONGEST,
    LONGEST_BYTES,
    LONGEST_FORM,
    MOST_TOKENS,
    can_be_example,
)
from tfgrpo.training.gate_words import REJECTIONS
from tfgrpo.training.lookahead import EARLY
from tfgrpo.training.loop import plan_steps, reflection_of
from tfgrpo.training.notes import prompts_of
from tfgrpo.training.probation import MOST_RACES
from tfgrpo.training.pruning import PRUNE_TOKENS, TURNS
from tfgrpo.training.reflection import (
    ANSWER_SHOWN,
    COMPARISON_TOKENS,
    MOST_LESSONS,
    SUMMARY_TOKENS,
    UNKNOWN,
)
from tfgrpo.training.text_check import right_answers

ANSWER = {
    "rollout": 800.0,
    "next action": 32.0,
    "persona": 60.0,
    "judge": 80.0,
    "strategies": 150.0,
    "summary": 200.0,
    "comparison": 250.0,
    "reconcile": 150.0,
    "direct": 400.0,
    "controller": 80.0,
    "embedding": 0.0,
    "prune": 80.0,
}
"""Tokens of an answer, before this store has seen any from the model."""
LABEL_ANSWER, AGENT_ANSWER = 40.0, 250.0
"""Tokens of an attempt's answer where it is a label or short, and of an agent's in one turn."""
LIMIT_USED = 0.5
"""What an answer takes of a limit that is near what is likely: a local model has taken a third of
80 tokens."""
PLAN_ANSWER = 1200.0
"""Tokens of a plan for all lessons of a step."""
STAGES = (*ANSWER, "evaluation")
EXPECTED = Assumptions(0.5, 0.5, 1.5, 0.25, turns=0.5, library=30)
MOST = Assumptions(0.9, 1.0, 2.0, 0.5, turns=0.8, library=60, longer=2.0, tries=1.1)
SEEN_LONGER = 1.5
"""How many times as long as this store has seen them answers are in `MOST`."""
UPPER = Assumptions(1.0, 1.0, float(MOST_LESSONS), 1.0, turns=1.0, library=inf, upper=True)
WORD_TOKENS, TOKEN_CHARACTERS = 1.4, 4.0
"""The characters of a token, more or less, where only its tokens are known of a text."""
LABEL = 8.0
SIMILAR, SCHEMA = 250.0, 2_000.0
"""The most bytes that are said of what is like a lesson, and of a schema without its labels."""
LABELLED = 32.0
"""The most bytes of a label in a schema and in a complaint."""
CREDIT = 100.0
"""The most that is said of an experience's credit, in bytes."""


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """What one stage takes in all steps. `dollars` is None where the price is unknown."""

    stage: str
    calls: float
    prompt_tokens: float
    completion_tokens: float
    dollars: float | None


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """A run's stages: expected, in most runs at most, and in the worst case; and what is in none,
    in words.

    `steps` are those that are to be made, `seconds` the time that they are expected to take, and
    `most_seconds` the time in most runs. Of a run that has made steps this is what is left:
    `spent_dollars` and `spent_tokens` are gone, and `steps_done`.
    """

    expected: tuple[StageEstimate, ...]
    most: tuple[StageEstimate, ...]
    upper: tuple[StageEstimate, ...]
    left_out: tuple[str, ...] = ()
    lengths_seen: bool = False
    steps: int = 0
    seconds: float = 0.0
    most_seconds: float = 0.0
    steps_done: int = 0
    spent_dollars: float | None = 0.0
    spent_tokens: int = 0


def answer_lengths(store: Store, model: str) -> dict[str, float]:
    """Returns stage → mean tokens of the answers that a model has given so far."""
    sums: dict[str, tuple[int, int]] = {}
    for spent in store.runs.spent():
        if spent.model == model:
            calls, tokens = sums.get(spent.stage, (0, 0))
            usage = spent.usage
            sums[spent.stage] = calls + usage.calls, tokens + usage.completion_tokens
    means = {stage: tokens / calls for stage, (calls, tokens) in sums.items() if tokens}
    if "evaluation" in means:
        means.setdefault("rollout", means["evaluation"])
    return means


def estimate(
    plan: PlannedRun,
    prices: Mapping[Model, Price | None],
    lengths: Mapping[str, float] | None = None,
) -> RunEstimate:
    """Returns what a run would take.

    `lengths` gives the mean answer of each stage in tokens, where it is known.
    """
    settings = plan.settings
    sizes = [len(batch) for _, batch in plan_steps(plan.dataset, settings)]
    totals = []
    most = replace(MOST, longer=SEEN_LONGER) if lengths else MOST
    for assumed in (EXPECTED, most, UPPER):
        upper = assumed.upper
        counter = TokenCounter(assumed, {**ANSWER, **_likely_answers(settings), **(lengths or {})})
        total = _Total(counter, plan)
        total.add_clusters(plan)
        length = counter.answer("rollout", settings.max_tokens) if not upper else 0.0
        training, gating, comparing = (
            attempt_cost(counter, problems, plan, length)
            for problems in (plan.dataset, plan.gate, (*plan.heldout, *plan.sealed))
        )
        if upper and settings.quorum < 1:  # who is late may be reflected on at the very end
            for size in filter(None, sizes):
                total.add_step(size, training)
            total = total.again()
        for size in sizes:
            if settings.direct:
                total.add_direct()
            elif not size:
                total.add_examples(FIRST_EXAMPLES)
            else:
                total.add_step(size, training)
            is_examples = not size and not settings.direct
            total.add_gate(len(plan.gate), gating, examples_alone=is_examples)
        if plan.gate and settings.deploy == "best":
            total.add_choice(len(plan.gate), len(sizes), gating)
        total.add_comparison(len(plan.heldout) + len(plan.sealed), comparing)
        totals.append(total.stages(prices))
    left_out = tuple(uncounted(plan.domain, settings))
    expected, in_most, worst = totals
    return RunEstimate(expected, in_most, worst, left_out=left_out, steps=len(sizes))


def _likely_answers(settings: TrainSettings) -> dict[str, float]:
    """Returns what answers likely have, where the settings say so."""
    planned = {"controller": PLAN_ANSWER} if settings.controller == "batch" else {}
    return {**attempt_answer(settings), **planned}


def attempt_answer(settings: TrainSettings) -> dict[str, float]:
    """Returns what an attempt's answer likely has, going by its kind and its limit."""
    if settings.mode == "agent":
        return {"rollout": AGENT_ANSWER}
    short = settings.domain.partition(":")[0] in SHORT_ANSWERS
    likely = LABEL_ANSWER if short else ANSWER["rollout"]
    return {"rollout": min(likely, settings.max_tokens * LIMIT_USED)}


def stage_estimates(
    sums: Mapping[tuple[str, Model], PlannedUsage], prices: Mapping[Model, Price | None]
) -> tuple[StageEstimate, ...]:
    """Returns what calls by stage and model come to, in the order of `STAGES`."""
    order = {stage: number for number, stage in enumerate(STAGES)}
    names = sorted({stage for stage, _ in sums}, key=lambda s: (order.get(s, -1), s))
    stages = []
    for name in names:
        parts = {model: u for (stage, model), u in sums.items() if stage == name}
        usage = sum(parts.values(), PlannedUsage())
        costs = [
            None if price is None else price.of(u.prompt, 0, u.completion)
            for price, u in ((prices[model], u) for model, u in parts.items())
        ]
        dollars = None if None in costs else sum(cost for cost in costs if cost is not None)
        if usage.calls:
            sizes = (usage.calls, usage.prompt, usage.completion)
            stages.append(StageEstimate(name, *sizes, dollars))
    return tuple(stages)


class _Total:
    """Adds up calls and tokens, as expected or as an upper bound."""

    def __init__(self, counter: TokenCounter, plan: PlannedRun) -> None:
        settings, library = plan.settings, plan.library
        self._counter, self._plan, self._upper = counter, plan, counter.upper
        self._assumed = counter.assumed
        self._settings, self._library = settings, library
        self._reflection = reflection_of(settings, plan.domain, plan.prompts)
        self._sums: dict[tuple[str, Model], PlannedUsage] = {}
        self._prompts = self._prompt_sizes()
        tokens = count(prompt_text(library))
        self._askings = settings.proposals if settings.learner == "probation" else 1
        self._room = max(0.0, float(settings.library_tokens or 0) - tokens)
        over = settings.library_tokens is not None and tokens > settings.library_tokens
        self._over = len(library) if over else 0
        self._grown, self._experiences = 0.0, float(len(library))
        self._examples = self._examples_expected()
        self._around = self._around_example() if self._examples else 0.0
        self._examples_left = len(plan.dataset)
        self._embedded = False
        self._measured, self._grown_in_force, self._changes = False, 0.0, 0.0
        self._rejections = [counter.text("\n".join(plan.rejected))]

    def again(self) -> _Total:
        """Returns a total that begins with all that this one has come to know."""
        total = _Total(self._counter, self._plan)
        total._grown, total._experiences = self._grown, self._experiences
        total._examples_left = self._examples_left
        return total

    def _examples_expected(self) -> int:
        """Returns how many examples a step may add: those of answers alone, where attempts say
        nothing else, are not likely but for kinds of problems with short answers."""
        settings = self._settings
        is_likely = settings.exemplars_from == "attempts" or self._reflection.shared_answers
        is_short = settings.domain.partition(":")[0] in SHORT_ANSWERS
        return settings.exemplars if self._upper or is_likely or is_short else 0

    def _example_size(self) -> float:
        """Returns the tokens of an example's own text, where a run may have any."""
        most = float(LONGEST_BYTES if self._upper else LONGEST / 4)
        if not self._examples:
            return 0.0
        if not self._reflection.shared_answers:
            return most
        sizes = [
            self._counter.text(problem.problem) + self._counter.text(answer)
            for problem in filter(can_be_example, self._plan.dataset)
            for answer in right_answers(problem)[:1]
        ]
        if not sizes:
            return 0.0
        return min(most, max(sizes) + LONGEST_FORM) if self._upper else fmean(sizes)

    def _around_example(self) -> float:
        """Returns the tokens that a prompt has around the problem and the answer of an example:
        as two turns, of which one asks as the prompt does, or as a line."""
        draft, sizes = Draft(self._library), []
        for number in range(2):
            text = example_text(f"{number}", "0")
            draft.apply(Operation("ADD", derived_id("example", str(number)), text))
            sizes.append(self._prompt_size(draft.library))
        line = self._counter.text(f"{example_text('', '')}\n") + LABEL
        return max(line, sizes[1] - sizes[0] - 2 * self._counter.text("0"))

    def _prompt_size(self, library: Library) -> float:
        """Returns the tokens of the first problem's prompt with a library."""
        plan, problem = self._plan, self._plan.dataset[0]
        objective = plan.settings.agent_objective
        return self._counter.messages(
            rendered(plan.domain, plan.template, library, problem, objective)
        )

    def _prompt_sizes(self) -> dict[str, float]:
        """Returns stage → the mean size of its prompt, without what the run will have said."""
        reflection, counter = self._reflection, self._counter
        values = {
            "agent_objective": reflection.agent_objective,
            "learning_objective": reflection.learning_objective,
            "max_words": str(reflection.max_words),
            "library": prompt_text(self._library),
            "verdict": "12.3456 % right",
            "count": "100",
            **dict.fromkeys(("response", "winners", "losers", "lesson", "lessons", "reason"), ""),
            **dict.fromkeys(("similar", "attempt", "problems", "shown"), ""),
            **dict.fromkeys(("tokens", "cap", "over"), "100000"),
        }
        templates = {
            "summary": reflection.summary,
            "comparison": reflection.single or reflection.comparison,
            "controller": reflection.plan or reflection.controller,
            "missed": reflection.missed,
            "blame": reflection.blame,
            "strategies": reflection.strategies,
            "prune": reflection.prune,
            "reconcile": reflection.reconcile,
            "direct": reflection.direct,
        }
        problems = [
            {"problem": problem.problem, "ground_truth": problem.answer or UNKNOWN}
            for problem in self._plan.dataset
        ]
        sizes = {
            stage: fmean(counter.messages(template.render(values | one)) for one in problems)
            for stage, template in templates.items()
            if template is not None
        }
        sizes["comparison"] = max(sizes["comparison"], sizes.get("missed", 0.0))
        for name, template in prompts_of(self._plan.domain, self._plan.prompts).items():
            sizes[name] = counter.messages(template.render({name: ""}))
        return sizes

    # a step:

    def add_step(self, batch: int, one: AttemptCost) -> None:
        """Adds one step."""
        settings, upper = self._settings, self._upper
        plain = max(1, settings.group_size - settings.hints)
        size = float(plain + settings.hints)
        attempts = size
        if settings.rollouts == "adaptive" and not upper:
            attempts = (min(adaptive.FIRST, size) + size) / 2
        assumed = self._assumed
        unsolved = batch * assumed.unsolved * bool(settings.hints)
        strategy = strategies.TOKENS * self._counter.quoted if upper else 40.0
        hinted = unsolved * settings.hints
        measured = settings.learner == "probation"
        beside = CANDIDATES * self._text * (1.0 if upper else 0.5) if measured else 0.0
        self._attempts(batch * attempts - hinted, one, beside)
        self._attempts(hinted, one, strategy / (settings.hints if upper and hinted else 1) + 32)
        if settings.rollouts == "branch":
            roots = max(1, settings.group_size - 1)
            self._add("next action", "policy", one.glances.longer(self._grown), batch * roots)
        if unsolved:
            shown = plain * (4.0 * strategies.SHOWN + 16 if upper else 150.0)
            self._structured("strategies", unsolved, shown, strategies.TOKENS)
        alone = self._reflection.single is not None
        wrong = assumed.unsolved * (bool(settings.all_wrong) or measured)
        groups = batch * (1.0 if alone else min(1.0, assumed.mixed + wrong))
        if alone or size > 1:
            lessons = self._reflect(groups, attempts, one)
            confirmed = unsolved * assumed.lessons * assumed.mixed
            tried = settings.all_wrong * batch * wrong
            tried += settings.confirm * batch * assumed.mixed * assumed.lessons
            tried += measured * CONFIRMATIONS * min(lessons, MOST_RACES)
            self._attempts(CONFIRMATIONS * confirmed + tried, one, self._text)
            self._control(lessons)

    def _attempts(
        self, number: float, one: AttemptCost, longer: float = 0.0, *, evaluation: bool = False
    ) -> None:
        """Adds attempts, whose prompts are so much longer than with the opening library alone."""
        for (stage, model), usage in one.stages.items():
            if model == "policy":
                usage = usage.longer(self._grown + longer)
            self._add("evaluation" if evaluation else stage, model, usage, number)

    def _reflect(self, groups: float, size: float, one: AttemptCost) -> float:
        """Adds what mixed groups take until they have lessons, and returns how many."""
        upper, quoted = self._upper, self._counter.quoted
        as_it_stands = one.transcript * TOKEN_CHARACTERS <= self._settings.summarise_over
        if as_it_stands and not upper:
            summary = one.transcript
        else:
            self._plain("summary", groups * size, one.transcript + one.details, SUMMARY_TOKENS)
            summary = self._counter.answer("summary", SUMMARY_TOKENS) * quoted
        if upper:  # an attempt may stand as it is, and an empty summary gives way to its beginning
            as_it_is = 4.0 * max(600, self._settings.summarise_over)
            summary = max(summary, min(one.transcript, as_it_is))
        beside = 4.0 * ANSWER_SHOWN + 64 if upper else 20.0
        listed = size * (summary + one.details + beside) + self._blame(size)
        comparisons = groups * self._askings
        self._structured("comparison", comparisons, self._grown + listed, COMPARISON_TOKENS)
        lessons = comparisons * self._assumed.lessons
        if self._reflection.reconcile is not None:
            self._structured(
                "reconcile", groups, self._grown + MOST_LESSONS * self._text, COMPARISON_TOKENS
            )
        return lessons

    def _blame(self, size: float) -> float:
        """Returns the tokens of what a comparison is told of the experiences of its attempts, each
        of which may have been shown all."""
        if not self._settings.blame:
            return 0.0
        each = LABEL if self._upper else LABEL / 2
        return self._prompts["blame"] + size * (24.0 + self._experiences * each)

    @property
    def _text(self) -> float:
        """The tokens of an experience: at most an answer is nothing but lessons."""
        if self._upper:
            return QUOTED * COMPARISON_TOKENS / MOST_LESSONS + LABEL
        return self._settings.max_words * WORD_TOKENS + LABEL

    def _control(self, lessons: float) -> None:
        """Adds the decisions about a step's lessons, and lets the library grow by them."""
        upper, text = self._upper, self._text
        self._changes = lessons * self._assumed.new
        room = max(0.0, self._assumed.library - self._experiences)
        added = min(lessons * self._assumed.new, room)
        new = added * text
        seen = self._grown + (new if upper else new / 2)
        self._experiences += added
        prompt = seen + 2 * text + (SIMILAR if upper else 0.0) + self._notes()
        if self._reflection.plan is not None:
            self._structured("controller", 1.0, prompt + lessons * text, PLAN_TOKENS)
            decisions, new = 0.0, max(new, QUOTED * PLAN_TOKENS if upper else 0.0)
        else:
            decisions = self._decide_each(lessons, added, prompt)
        if self._settings.models.embedding_model:
            self._embed(decisions)
        if self._settings.library_tokens:
            self._prune(lessons, new, seen + text)
        else:
            self._grown += new
        if self._examples:
            self.add_examples()
        if self._settings.gate and upper:
            pruned = self._counter.text(prompt_text(self._library)) + self._grown
            changed = lessons * (2 * text + 64) + (pruned if self._settings.library_tokens else 0)
            self._rejections.append(changed)

    def add_examples(self, times: int = 1) -> None:
        """Lets the library grow by so many times a step's examples."""
        size = self._example_size()
        number = float(min(self._examples * times, self._examples_left)) if size else 0.0
        self._examples_left -= int(number)
        if not self._upper and size:
            cap = self._settings.library_tokens or MOST_TOKENS
            opening = count(prompt_text(self._library))
            number = min(number, max(0.0, cap - opening - self._grown) / size)
        self._grown += number * (size + self._around)
        self._experiences += number

    def _decide_each(self, lessons: float, added: float, prompt: float) -> float:
        """Adds a decision for each lesson; returns how many are asked for."""
        decisions = 0.0 if self._settings.learner == "probation" else lessons
        if decisions and self._settings.lessons_ahead > 1:  # again beside a library that changed
            decisions += EARLY * lessons if self._upper else added
        self._structured("controller", decisions, prompt, CONTROLLER_TOKENS)
        return decisions

    def _notes(self) -> float:
        """Returns the tokens of what the controller is told of rejections and credit."""
        rejected = self._rejections[0] + sum(self._rejections[1:][-REJECTIONS:])
        notes = rejected + self._prompts["rejected"] if rejected else 0.0
        if self._settings.blame:
            notes += self._prompts["misled"] + (self._experiences * LABEL if self._upper else 0.0)
        if self._settings.controller_sees_credit:
            each = CREDIT if self._upper else CREDIT / 4
            notes += self._prompts["credit"] + self._experiences * each
        return notes

    def add_clusters(self, plan: PlannedRun) -> None:
        """Adds an embedding of each problem, where kinds are found by them."""
        problems = (*plan.dataset, *plan.gate, *plan.heldout, *plan.sealed)
        wanted = self._settings.inject == "credited" and self._settings.models.embedding_model
        if wanted and not any(KIND in problem.meta for problem in plan.dataset):
            texts = dict.fromkeys(problem.problem for problem in problems)
            mean = sum(map(self._counter.text, texts)) / max(1, len(texts))
            self._add("embedding", "embedding", PlannedUsage(1.0, mean + LABEL), len(texts))

    def _embed(self, lessons: float) -> None:
        """Adds embeddings: of each text once, the opening library's and those that come."""
        texts = lessons * (2.0 if self._upper else 1.0)
        opening = 0 if self._embedded else len(self._library)
        self._embedded = True
        mean = self._counter.text(prompt_text(self._library)) / max(1, len(self._library))
        self._add("embedding", "embedding", PlannedUsage(1.0, mean + LABEL * 3), opening)
        self._add("embedding", "embedding", PlannedUsage(1.0, self._text + LABEL * 3), texts)

    def _prune(self, lessons: float, new: float, prompt: float) -> None:
        """Adds what a capped library takes: at most every lesson needs all its turns; expected
        is a turn for each new one once the library is full."""
        if self._upper:
            self._structured("prune", lessons * TURNS + self._over, prompt, PRUNE_TOKENS)
            self._over = 0
            self._grown += new
            return
        over = max(0.0, self._grown + new - self._room)
        share = min(1.0, over / new) if new else 0.0
        self._plain("prune", lessons * self._assumed.new * share, prompt, PRUNE_TOKENS)
        self._grown = min(self._grown + new, self._room)

    def add_direct(self) -> None:
        """Adds a library that is written without rollouts."""
        listed = (" ".join(p.problem.split()) for p in self._plan.dataset[: ablations.SHOWN])
        shown = sum(self._counter.text(problem) + 3 for problem in listed)
        self._structured("direct", 1.0, shown, ablations.TOKENS)
        most = self._settings.direct
        self._changes = float(most)
        self._grown += most * self._text if not self._upper else QUOTED * ablations.TOKENS
        self._grown += most * LABEL
        self._experiences += most

    # evaluation:

    def add_gate(self, problems: int, one: AttemptCost, *, examples_alone: bool = False) -> None:
        """Adds a step's trials: of its examples, and of all else that it changes, if it is more
        than examples. A trial of two libraries takes attempts with the candidate, and with the
        one in force where that has no scores yet; a factorial trial as many as both."""
        number = float(problems * self._settings.gate_samples)
        tried = 0 if examples_alone else 1
        is_factorial = bool(tried) and self._is_factorial
        bundles = bool(self._examples) + tried - is_factorial
        self._attempts((bundles + 2 * is_factorial) * number, one, evaluation=True)
        if bundles and not self._measured:
            less = self._grown_in_force - self._grown
            self._attempts(number, one, less, evaluation=True)
        self._measured = not is_factorial and self._settings.inject != "credited"
        self._grown_in_force, self._changes = self._grown, 0.0

    @property
    def _is_factorial(self) -> bool:
        """Whether a step's changes are tried apart, which leaves the library that comes of it
        without scores. At most they always are."""
        wanted = self._settings.gate_trial == "factorial"
        return wanted and (self._upper or self._changes > 1.0)

    def add_choice(self, problems: int, steps: int, one: AttemptCost) -> None:
        """Adds the fresh attempts with the run's libraries, of which the best is chosen: at most
        every step has changed it, likely every other."""
        libraries = float(steps if self._upper else (steps + 1) // 2)
        number = float(problems * self._settings.gate_samples)
        self._attempts(libraries * number, one, evaluation=True)
        for _ in range(2 if self._upper else 1):  # what it began with, and the empty one
            self._attempts(number, one, -self._grown, evaluation=True)

    def add_comparison(self, problems: int, one: AttemptCost) -> None:
        """Adds the held-out attempts, with what was learned and with the empty library."""
        number = float(problems * self._settings.heldout_samples)
        self._attempts(number, one, evaluation=True)
        self._attempts(number, one, -self._grown, evaluation=True)

    # sums:

    def stages(self, prices: Mapping[Model, Price | None]) -> tuple[StageEstimate, ...]:
        """Returns what the stages come to, in the order of `STAGES`."""
        return stage_estimates(self._sums, prices)

    def _add(self, stage: str, model: Model, usage: PlannedUsage, number: float) -> None:
        key = (stage, model)
        self._sums[key] = self._sums.get(key, PlannedUsage()) + usage.times(number)

    def _plain(self, stage: str, number: float, more: float, most: int) -> None:
        prompt = self._prompts[stage] + more
        self._add(stage, "reflection", self._counter.plain(stage, prompt, most), number)

    def _structured(self, stage: str, number: float, more: float, most: int) -> None:
        """Adds structured calls with so much in the prompt beside its template."""
        labels = LABELLED * self._experiences
        prompt = self._prompts[stage] + more + (SCHEMA + labels if self._upper else 0.0)
        usage = self._counter.structured(stage, prompt, most, complaint=labels)
        self._add(stage, "reflection", usage, number)
