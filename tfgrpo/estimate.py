"""What a run will take, before anything is spent: calls, tokens and US dollars, by stage.

Prompts are rendered for real, every problem with the run's own templates and the library the
branch stands at. Two figures are given. The *upper* one holds whatever the model says, as long
as the server keeps to `max_tokens`: every group is mixed, every answer as long as it may be,
every lesson becomes an experience of the most words, everything that can be asked again is. The
*expected* one takes answers to be as long as this store has seen them from the same model, or
else as `ANSWER` says, half the groups mixed, and half the lessons new.

Tokens are counted by `tokens.py`, for a provider's own tokenizer is not at hand for most models;
upper figures count a prompt's bytes, of which a byte-level token has at least one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tfgrpo.advantage import COMPARISON_TOKENS, SUMMARY_TOKENS, Reflection
from tfgrpo.budget import PER_MESSAGE
from tfgrpo.capacity import PRUNE_TOKENS, TURNS
from tfgrpo.controller import CONTROLLER_TOKENS
from tfgrpo.domain import Domain
from tfgrpo.prices import Price
from tfgrpo.problems import Problem
from tfgrpo.render import prompt_text
from tfgrpo.settings import TrainSettings
from tfgrpo.store.records import Library
from tfgrpo.store.store import Store
from tfgrpo.templates import Message, Template
from tfgrpo.tokens import count

ANSWER = {
    "rollout": 800.0,
    "summary": 200.0,
    "comparison": 250.0,
    "controller": 80.0,
    "prune": 80.0,
    "evaluation": 800.0,
}
"""Tokens of an answer, before this store has seen any from the model."""
STAGES = tuple(ANSWER)
MIXED, NEW = 0.5, 0.5
MOST_LESSONS, LESSONS = 2.0, 1.5
"""Lessons of one comparison, at most and as expected."""
WORD_BYTES, WORD_TOKENS = 12.0, 1.4
LABEL = 8.0
SIMILAR_BYTES = 250.0
"""The most that is said of what is like a lesson."""
SCHEMA_BYTES, COMPLAINT_BYTES = 2_000.0, 400.0
QUOTED = 2.0
"""The most tokens that a token of an answer becomes in another model's prompt."""


@dataclass(frozen=True, slots=True)
class StageEstimate:
    """What one stage takes in all steps. `dollars` is None where the price is unknown."""

    stage: str
    calls: float
    prompt_tokens: float
    completion_tokens: float
    dollars: float | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A run's stages, expected and at most."""

    expected: tuple[StageEstimate, ...]
    upper: tuple[StageEstimate, ...]


def answer_lengths(store: Store, model: str) -> dict[str, float]:
    """Returns stage → mean tokens of the answers that a model has given so far."""
    sums: dict[str, tuple[int, int]] = {}
    for spent in store.runs.spent():
        if spent.model == model:
            calls, tokens = sums.get(spent.stage, (0, 0))
            usage = spent.usage
            sums[spent.stage] = calls + usage.calls, tokens + usage.completion_tokens
    means = {stage: tokens / calls for stage, (calls, tokens) in sums.items() if tokens}
    if "rollout" in means:
        means.setdefault("evaluation", means["rollout"])
    return means


def estimate(
    dataset: Sequence[Problem],
    settings: TrainSettings,
    library: Library,
    domain: Domain,
    template: Template,
    reflection: Reflection,
    *,
    heldout: Sequence[Problem] = (),
    gate: Sequence[Problem] = (),
    sealed: Sequence[Problem] = (),
    price: Price | None,
    reflection_price: Price | None,
    lengths: Mapping[str, float] | None = None,
) -> Estimate:
    """Returns what training on a dataset will take, from the library that it starts at.

    `heldout` and `sealed` are the problems that it is compared on at the end, against the empty
    library, and `gate` those on which each step's candidate is tried;
    `lengths` gives the mean answer of each stage in tokens, where it is known.
    """
    figures = []
    for upper in (False, True):
        work = _Work(upper, settings, {**ANSWER, **(lengths or {})}, library)
        asked = (*heldout, *gate, *sealed)
        prompts = _prompts(work, dataset, asked, settings, library, domain, template, reflection)
        for _ in range(settings.epochs):
            for start in range(0, len(dataset), settings.batch_size):
                work.step(min(settings.batch_size, len(dataset) - start), prompts)
                work.gate(len(gate), prompts["evaluation"])
        work.comparison_at_the_end(len(heldout) + len(sealed), prompts["evaluation"])
        figures.append(
            tuple(
                work.stage(stage, price if stage in ("rollout", "evaluation") else reflection_price)
                for stage in STAGES
                if work.calls[stage]
            )
        )
    return Estimate(*figures)


def _prompts(
    work: _Work,
    dataset: Sequence[Problem],
    heldout: Sequence[Problem],
    settings: TrainSettings,
    library: Library,
    domain: Domain,
    template: Template,
    reflection: Reflection,
) -> dict[str, float]:
    """Returns stage → the mean size of its prompt, without what the run will have said."""
    common = {
        "agent_objective": reflection.agent_objective,
        "learning_objective": reflection.learning_objective,
        "max_words": str(reflection.max_words),
        "library": prompt_text(library),
        "verdict": "wrong",
        **dict.fromkeys(("response", "winners", "losers", "lesson", "reason", "similar"), ""),
        **dict.fromkeys(("tokens", "cap", "over"), "100000"),
    }
    used = {
        "summary": reflection.summary,
        "comparison": reflection.comparison,
        "controller": reflection.controller,
    }
    if reflection.prune is not None:
        used["prune"] = reflection.prune
    objective = settings.agent_objective

    def rollouts(problems: Sequence[Problem]) -> float:
        sizes = [
            work.size(domain.render(template, library, problem, objective)) for problem in problems
        ]
        return fmean(sizes) if sizes else 0.0

    found = {"rollout": rollouts(dataset), "evaluation": rollouts(heldout)}
    for stage, prompt in used.items():
        values = ({"problem": p.problem, "ground_truth": p.answer or "", **common} for p in dataset)
        found[stage] = fmean(work.size(prompt.render(value)) for value in values)
    return found


class _Work:
    """Adds up calls and tokens, as expected or as an upper bound."""

    def __init__(
        self, upper: bool, settings: TrainSettings, lengths: Mapping[str, float], library: Library
    ) -> None:
        caps = {
            "rollout": settings.max_tokens,
            "summary": SUMMARY_TOKENS,
            "comparison": COMPARISON_TOKENS,
            "controller": CONTROLLER_TOKENS,
            "prune": PRUNE_TOKENS,
            "evaluation": settings.max_tokens,
        }
        self.calls = dict.fromkeys(STAGES, 0.0)
        self._upper, self._settings = upper, settings
        self._prompts = dict.fromkeys(STAGES, 0.0)
        self._answer = {
            stage: float(cap if upper else min(lengths[stage], cap)) for stage, cap in caps.items()
        }
        self._quoted = QUOTED if upper else 1.0
        self._grown = 0.0
        self._gated = False
        self._room = max(0.0, float(settings.library_tokens or 0) - count(prompt_text(library)))
        self._opening = float(len(library))

    def size(self, messages: Sequence[Message]) -> float:
        """Returns a prompt's tokens."""
        if self._upper:
            return float(sum(len(text.encode()) + PER_MESSAGE for _, text in messages))
        return float(sum(count(text) + 4 for _, text in messages))

    def step(self, batch: int, prompts: Mapping[str, float]) -> None:
        """Adds one step."""
        size, upper, answer = self._settings.group_size, self._upper, self._answer
        self._add("rollout", batch * size, prompts["rollout"] + self._grown)
        groups = batch * (1.0 if upper else MIXED) * (size > 1)
        said = answer["rollout"] * self._quoted
        self._add("summary", groups * size, prompts["summary"] + said)
        listed = size * answer["summary"] * self._quoted
        self._typed("comparison", groups, prompts["comparison"] + self._grown + listed)
        lessons = groups * (MOST_LESSONS if upper else LESSONS)
        text = self._settings.max_words * (WORD_BYTES if upper else WORD_TOKENS) + LABEL
        new = lessons * text * (1.0 if upper else NEW)
        seen = self._grown + (new if upper else new / 2)
        prompt = prompts["controller"] + seen + 2 * text + (SIMILAR_BYTES if upper else 0.0)
        self._typed("controller", lessons, prompt)
        if self._settings.library_tokens:
            self._prune(lessons, new, prompts["prune"] + seen + text)
        else:
            self._grown += new

    def _prune(self, lessons: float, new: float, prompt: float) -> None:
        """Adds what a capped library takes: at most every lesson needs all its turns; expected
        is a turn for each new one once the library is full."""
        if self._upper:
            self._typed("prune", lessons * TURNS + self._opening, prompt)
            self._opening += lessons
            self._grown += new
            return
        over = max(0.0, self._grown + new - self._room)
        self._add("prune", lessons * NEW * min(1.0, over / new) if new else 0.0, prompt)
        self._grown = min(self._grown + new, self._room)

    def gate(self, problems: int, prompt: float) -> None:
        """Adds a step's candidate and the library in force, which only the first is new to."""
        calls = problems * self._settings.gate_samples
        self._add("evaluation", calls, prompt + self._grown)
        if not self._gated:
            self._add("evaluation", calls, prompt)
        self._gated = True

    def comparison_at_the_end(self, problems: int, prompt: float) -> None:
        """Adds the held-out attempts, with what was learned and with the empty library."""
        calls = problems * self._settings.heldout_samples
        self._add("evaluation", calls, prompt + self._grown)
        self._add("evaluation", calls, prompt)

    def stage(self, stage: str, price: Price | None) -> StageEstimate:
        """Returns what a stage comes to."""
        calls, prompts = self.calls[stage], self._prompts[stage]
        answers = calls * self._answer[stage]
        dollars = None if price is None else price.of(prompts, 0, answers)
        return StageEstimate(stage, calls, prompts, answers, dollars)

    def _add(self, stage: str, calls: float, prompt: float) -> None:
        self.calls[stage] += calls
        self._prompts[stage] += calls * prompt

    def _typed(self, stage: str, calls: float, prompt: float) -> None:
        """Adds structured calls, each of which may be made again with the answer on top."""
        if not self._upper:
            self._add(stage, calls, prompt)
            return
        prompt += SCHEMA_BYTES
        self._add(stage, calls, prompt)
        again = self._answer[stage] * QUOTED + COMPLAINT_BYTES
        self._add(stage, calls, prompt + again)
