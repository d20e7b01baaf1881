"""The gate: a candidate library grows the branch only if held-out problems speak for it.

The library in force and the candidate are put to the same problems, sample by sample side by side,
and compared by problem. The run's rule decides from the mean difference and its standard error. A
rule that accepts whatever is not shown to be worse is almost no gate, because an affordable trial
seldom shows anything. A rule that asks for significance keeps out most of what helps. So the record
also says whether the difference is significant.

A library that won a trial did so partly by luck, and its scores overrate it. So it attempts the
problems afresh, under another seed, before candidates are compared with it.

A candidate is judged before it is a version, from answers that are in the journal: a run that is
killed in between asks for nothing twice and comes to the same verdict, which stands in the
version's record. A rejected one becomes a version of a side branch, in the transaction that gives
its own branch a version without events: `step_N` names the library in force whatever the gate said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from tfgrpo.data import problems
from tfgrpo.evaluation import scoring, statistics
from tfgrpo.evaluation.scoring import EvalProgress, EvalTask
from tfgrpo.evaluation.statistics import Difference
from tfgrpo.learn.library_draft import Draft
from tfgrpo.session import Session
from tfgrpo.settings import GateRule, TrainSettings
from tfgrpo.store.activity.runs import Run, Score
from tfgrpo.store.canonical import digest
from tfgrpo.store.records import Json, Library, Operation, Version
from tfgrpo.store.store import Store

SEED = 7
"""Digits, in hex, of a seed that comes of a library: it and the run's own fit in 32 bits."""
ROUNDING = 1e-9
"""Where one problem alone differs, its mean is one standard error, give or take the last digit."""


def passes(rule: GateRule, mean: float, error: float, quantile: float) -> bool:
    """Returns whether an effect passes a rule.

    `mean` is the effect in reward, `error` its standard error (infinite where it is not known),
    `quantile` how many standard errors a 95 % interval reaches. Works elementwise on arrays.

    - one-se: better by more than one standard error;
    - above-zero: better at all;
    - significant: the interval lies above zero;
    - not-worse: the interval does not lie below zero.
    """
    match rule:
        case "one-se":
            return mean > error + ROUNDING
        case "above-zero":
            return mean > ROUNDING
        case "significant":
            return mean > quantile * error + ROUNDING
        case "not-worse":
            return mean >= -quantile * error - ROUNDING


Verdict: TypeAlias = Literal["accepted", "rejected"]


@dataclass(frozen=True, slots=True)
class Trial:
    """A candidate's scores on a gate's problems, beside those of the library in force."""

    task: EvalTask
    library: Library
    candidate: Library
    scores: tuple[Score, ...]
    candidate_scores: tuple[Score, ...]
    difference: Difference
    rule: GateRule

    @property
    def verdict(self) -> Verdict:
        """Accepted when the difference passes the rule."""
        mean, _, high, n = self.difference.estimate
        quantile = statistics.t_quantile(0.975, n - 1) if n > 1 else 1.0
        error = (high - mean) / quantile
        return "accepted" if passes(self.rule, mean, error, quantile) else "rejected"


class Gate:
    """Tries candidates of one run on its held-out problems."""

    def __init__(self, session: Session, run: Run, task: EvalTask, settings: TrainSettings) -> None:
        self._session, self._run, self._task = session, run, task
        self._rule = settings.gate_rule
        store = session.store
        self._start = _texts(store.library(store.version(run.base)))

    async def trial(
        self, library: Library, operations: Sequence[Operation], progress: EvalProgress | None
    ) -> Trial | None:
        """How the library fares with these operations; None where they change no text. `progress`
        is told of each attempt."""
        candidate = Draft(library).after(operations).library
        if candidate == library:
            return None
        runs, task = self._session.store.runs, self._task_under(library)
        evaluation = runs.evaluation(library.version.number, task.key)
        known = None if evaluation is None else runs.scores(evaluation)
        libraries = [candidate] if known else [library, candidate]
        scored = await scoring.examine(
            self._session, libraries, task, run=self._run, progress=progress
        )
        scores, after = known or scored[0], scored[-1]
        rewards = scoring.rewards(scores), scoring.rewards(after)
        if rewards[0].keys() & rewards[1].keys():
            difference = statistics.paired(*rewards)
        else:  # no problem could be judged under both: nothing is known
            none = statistics.Estimate(0.0, float("-inf"), float("inf"), 0)
            means = [scoring.figures(one)["mean"][0] for one in (scores, after)]
            difference = Difference(none, "inconclusive", (means[0], means[1]))
        return Trial(task, library, candidate, tuple(scores), tuple(after), difference, self._rule)

    def _task_under(self, library: Library) -> EvalTask:
        """The trial of candidates for a library: with attempts of its own, unless the run began
        with it."""
        texts = _texts(library)
        if texts == self._start:
            return self._task
        settings = self._task.settings
        fresh = settings.seed + int(digest(texts).hex()[:SEED], 16)
        return replace(self._task, settings=settings.model_copy(update={"seed": fresh}))

    def record(self, trial: Trial) -> Json:
        """A trial as it stands in a version's record."""
        difference = trial.difference
        before, after = difference.means
        return {
            "verdict": trial.verdict,
            "rule": self._rule,
            "dataset": trial.task.settings.data,
            "digest": problems.digest(trial.task.problems),
            "samples": trial.task.settings.samples,
            "seed": trial.task.settings.seed,
            "difference_is": difference.verdict,
            "problems": difference.estimate.problems,
            "before": before,
            "after": after,
            "difference": [*difference.estimate.recorded],
            "p": round(difference.p, 6),
            "problems_needed": difference.problems_needed,
        }

    def keep(self, trial: Trial, versions: Iterable[Version]) -> None:
        """Keeps a trial's scores with the versions that they are scores of: the one in force, and
        of these `versions` those whose library was tried."""
        store = self._session.store
        scoring.record(store, trial.library.version, trial.task, trial.scores)
        for version in versions:
            if _texts(store.library(version)) == _texts(trial.candidate):
                scoring.record(store, version, trial.task, trial.candidate_scores)


def side_branch(store: Store, run: Run, step: int) -> str:
    """The name of a branch, not taken yet, for a step's rejected candidate."""
    stem = f"rejected/{run.name}/step_{step + 1}"
    names = (stem if n == 1 else f"{stem}-{n}" for n in range(1, 1000))
    return next(name for name in names if name not in store.branches())


def _texts(library: Library) -> list[str]:
    return [experience.text for experience in library.readable]
