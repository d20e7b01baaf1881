"""The gate: a candidate library grows the branch only if held-out problems speak for it.

The library in force and the candidate are put to the same held-out problems, sample by sample
side by side, and compared by problem. The run's rule (gate_rules.py) decides from the mean
difference and its standard error whether the candidate is *accepted* or *rejected*; beside that
the record says whether the difference is significant, since a rule may go by less.

A candidate is judged before it is a version, from answers that are in the journal. So a run
that is killed in between asks for nothing twice and comes to the same verdict, and the verdict
stands in the version's record, which its digest covers. A rejected one becomes a version of a
side branch, in the transaction that gives its own branch a version without events: `step_N`
names the library in force whatever the gate said.

A step's examples are tried before its lessons, and the lessons beside the examples that are kept:
together, lessons that harm would enter on what the examples bring.

A cap on the library is kept whatever the gate says. So what brought a library under it before
anything was learnt is not on trial: both sides have it, and it stays where the rest is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from tfgrpo.data import problems
from tfgrpo.evaluation import evaluate, statistics
from tfgrpo.evaluation.evaluate import EvalProgress, EvalTask
from tfgrpo.evaluation.omissions import Omissions
from tfgrpo.evaluation.statistics import Difference
from tfgrpo.session import Session
from tfgrpo.settings import GateRule, TrainSettings
from tfgrpo.store.records import Json, Library, Operation, Version
from tfgrpo.store.runs import Run, Score
from tfgrpo.store.store import Store
from tfgrpo.training.draft import Draft
from tfgrpo.training.exemplars import adds_example
from tfgrpo.training.factorial import Changes, FactorialTrial, can_be_factorial, try_changes
from tfgrpo.training.gate_rules import passes
from tfgrpo.training.pruning import is_initial_prune
from tfgrpo.training.retries import is_undecided

Verdict: TypeAlias = Literal["accepted", "rejected"]


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate's scores on the held-out problems, beside those of the library in force, as it
    is under the cap."""

    library: Library
    candidate: Library
    scores: tuple[Score, ...]
    candidate_scores: tuple[Score, ...]
    difference: Difference
    rule: GateRule

    @property
    def verdict(self) -> Verdict:
        """Accepted when the difference passes the rule."""
        mean, error, quantile = self._measured
        return "accepted" if passes(self.rule, mean, error, quantile) else "rejected"

    @property
    def _measured(self) -> tuple[float, float, float]:
        """The mean difference, its standard error, and how many of those its interval reaches."""
        mean, _, high, n = self.difference.estimate
        quantile = statistics.t_quantile(0.975, n - 1) if n > 1 else 1.0
        return mean, (high - mean) / quantile, quantile

    def keeps(self, operation: Operation) -> bool:
        """Whether an operation enters: all do or none, but for what brought it under the cap."""
        return self.verdict == "accepted" or is_initial_prune(operation.evidence)

    def leaves_open(self, operation: Operation) -> bool:
        """Whether an operation that does not enter may yet be one that helps."""
        mean, error, _ = self._measured
        return not self.keeps(operation) and is_undecided(mean, error)

    def to_json(self) -> Json:
        """Returns the figures as they stand in a version's record."""
        estimate = self.difference.estimate
        bounds = [estimate.mean, estimate.low, estimate.high]
        return {
            "trial": "bundle",
            "difference_is": self.difference.verdict,
            "problems": estimate.problems,
            "before": _mean(self.scores),
            "after": _mean(self.candidate_scores),
            "difference": [None if abs(v) == float("inf") else round(v, 6) for v in bounds],
            "p": round(self.difference.p, 6),
            "problems_needed": self.difference.problems_needed,
        }


class PartsTrial(NamedTuple):
    """The trial of a step's examples, and that of all else that it changes, with the examples
    beside it that are kept.

    Lessons that are worth something in an empty library can harm one that holds examples; tried
    together, they enter on what the examples bring.
    """

    examples: Trial
    lessons: Trial | FactorialTrial

    @property
    def verdict(self) -> Verdict:
        """Accepted when anything is kept."""
        verdicts = {self.examples.verdict, self.lessons.verdict}
        return "accepted" if "accepted" in verdicts else "rejected"

    def keeps(self, operation: Operation) -> bool:
        """Whether an operation enters."""
        return self._of(operation).keeps(operation)

    def leaves_open(self, operation: Operation) -> bool:
        """Whether an operation that does not enter may yet be one that helps."""
        return self._of(operation).leaves_open(operation)

    def _of(self, operation: Operation) -> Trial | FactorialTrial:
        return self.examples if adds_example(operation) else self.lessons

    def to_json(self) -> Json:
        """Returns the figures as they stand in a version's record."""
        parts = {
            "examples": {"verdict": self.examples.verdict, **self.examples.to_json()},
            "lessons": {"verdict": self.lessons.verdict, **self.lessons.to_json()},
        }
        accepted = [part for part in parts.values() if part["verdict"] == "accepted"]
        before = parts["examples"]["before"]
        after = accepted[-1]["after"] if accepted else parts["lessons"]["after"]
        return {"trial": "parts", "before": before, "after": after, **parts}


AnyTrial: TypeAlias = Trial | FactorialTrial | PartsTrial


def trials_of(trial: AnyTrial) -> list[Trial]:
    """Returns the comparisons of two libraries that a trial consists of."""
    parts = trial if isinstance(trial, PartsTrial) else (trial,)
    return [part for part in parts if isinstance(part, Trial)]


class Candidate(NamedTuple):
    """A library in force and a candidate, the operations between them, and the former's scores
    where they are on record."""

    library: Library
    candidate: Library
    operations: Sequence[Operation]
    known: list[Score] | None


class Gate:
    """Tries candidates of one run on its held-out problems."""

    def __init__(self, session: Session, run: Run, task: EvalTask, settings: TrainSettings) -> None:
        self._session, self._run, self._task = session, run, task
        self._rule, self._is_factorial = settings.gate_rule, settings.gate_trial == "factorial"
        self._cap = settings.library_tokens

    def leave_out(self, omissions: Omissions) -> None:
        """Has trials leave out of a prompt what is predicted to harm its problem's kind."""
        self._task = replace(self._task, omissions=omissions)

    async def trial(
        self,
        library: Library,
        operations: Sequence[Operation],
        progress: EvalProgress | None = None,
    ) -> AnyTrial | None:
        """Returns how the library fares with these operations; None where they change no text
        but to bring it under the cap. `progress` is told of each attempt.

        Examples are tried before the rest, and the rest beside those that are kept.
        """
        progress = progress or EvalProgress(0, meter=self._session.meter)
        pruned = [o for o in operations if is_initial_prune(o.evidence)]
        before, candidate = applied(library, pruned), applied(library, operations)
        if candidate == before:
            return None
        known = self._recorded(library.version) if before == library else None
        new = [o for o in operations if not is_initial_prune(o.evidence)]
        parts = split_examples(before, new, self._cap)
        if parts is None:
            tried = Candidate(before, candidate, new, known)
            is_examples = all(map(adds_example, new))  # too many to have an effect each
            return await (self._bundle if is_examples else self._try)(tried, progress)
        examples, lessons = parts
        with_examples = applied(before, examples)
        each = len(self._task.problems) * self._task.settings.samples
        progress.expect((1 if known else 2) * each)
        progress.expect((2 if self._tries_apart(lessons) else 1) * each)
        first = await self._bundle(Candidate(before, with_examples, examples, known), progress)
        if first.verdict == "rejected":
            second = Candidate(before, applied(before, lessons), lessons, list(first.scores))
        else:  # in the order in which they would enter
            scores = list(first.candidate_scores)
            second = Candidate(with_examples, candidate, lessons, scores)
        return PartsTrial(first, await self._try(second, progress))

    def _tries_apart(self, operations: Sequence[Operation]) -> bool:
        """Whether changes are tried apart, which takes as many attempts as two libraries."""
        return self._is_factorial and can_be_factorial(operations)

    async def _try(self, tried: Candidate, progress: EvalProgress) -> Trial | FactorialTrial:
        if self._tries_apart(tried.operations):
            changes = Changes(tried.library, tried.operations)
            where = (self._session, self._run, self._task, self._rule)
            return await try_changes(*where, changes, progress)
        return await self._bundle(tried, progress)

    async def _bundle(self, tried: Candidate, progress: EvalProgress) -> Trial:
        library, candidate, _, known = tried
        libraries = [candidate] if known else [library, candidate]
        scored = await evaluate.examine(
            self._session,
            libraries,
            self._task,
            run=self._run,
            progress=progress,
        )
        scores, after = known or scored[0], scored[-1]
        rewards = evaluate.rewards(scores), evaluate.rewards(after)
        if rewards[0].keys() & rewards[1].keys():
            difference = statistics.paired(*rewards)
        else:  # no problem could be judged under both: nothing is known
            none = statistics.Estimate(0.0, float("-inf"), float("inf"), 0)
            difference = Difference(none, "inconclusive")
        return Trial(library, candidate, tuple(scores), tuple(after), difference, self._rule)

    def record(self, trial: AnyTrial) -> Json:
        """Returns a trial as it stands in a version's record."""
        return {
            "verdict": trial.verdict,
            "rule": self._rule,
            "dataset": self._task.settings.data,
            "digest": problems.digest(self._task.problems),
            "samples": self._task.settings.samples,
            **trial.to_json(),
        }

    def keep(self, trial: AnyTrial, versions: Iterable[Version]) -> None:
        """Keeps a trial's scores with the versions that they are scores of: the one in force, and
        of these `versions` those whose library was tried."""
        store = self._session.store
        for one in trials_of(trial):
            entries = [(one.library.version, one.library, one.scores)]
            entries += [(at, one.candidate, one.candidate_scores) for at in versions]
            for at, library, scores in entries:
                if _texts(store.library(at)) == _texts(library):
                    evaluate.record(store, at, self._task, scores)

    def _recorded(self, version: Version) -> list[Score] | None:
        runs = self._session.store.runs
        evaluation = runs.evaluation(version.number, self._task.key)
        return None if evaluation is None else runs.scores(evaluation)


def applied(library: Library, operations: Iterable[Operation]) -> Library:
    """Returns a library with operations applied, before they are events."""
    draft = Draft(library)
    for operation in operations:
        draft.apply(operation)
    return draft.library


def split_examples(
    library: Library, operations: Sequence[Operation], cap: int | None
) -> tuple[list[Operation], list[Operation]] | None:
    """Returns the operations that add examples, and the others; None where these or those change
    nothing, or where the examples would cross the cap, in tokens, without the others."""
    examples = [o for o in operations if adds_example(o)]
    lessons = [o for o in operations if not adds_example(o)]
    with_examples = applied(library, examples)
    if library in (with_examples, applied(library, lessons)):
        return None
    if cap is not None and Draft(with_examples).tokens > cap:
        return None
    return examples, lessons


def side_branch(store: Store, run: Run, step: int) -> str:
    """Returns the name of a branch, not taken yet, for a step's rejected candidate."""
    stem = f"rejected/{run.name}/step_{step + 1}"
    names = (stem if n == 1 else f"{stem}-{n}" for n in range(1, 1000))
    return next(name for name in names if name not in store.branches())


def _texts(library: Library) -> list[str]:
    return [experience.text for experience in library.readable]


def _mean(scores: Sequence[Score]) -> float:
    return round(evaluate.figures(scores).mean.mean, 6)
