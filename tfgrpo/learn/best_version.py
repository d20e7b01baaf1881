"""The version that a run leaves in force: all are scored once more, and the best is taken.

A gate decides step by step from few attempts, so some of a run's versions were accepted by luck. At
the end each distinct library of the run, the one it began with and the empty one attempt the gate's
problems afresh, and the branch and the tag `RUN/best` name the best one (of equal ones the newest).
The scores are evaluations on record, so a run that is killed here asks for nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tfgrpo.evaluation.scores import Scores, read_scores
from tfgrpo.evaluation.scoring import EvalProgress, EvalTask, evaluate, rewards
from tfgrpo.notices import OnProgress, ignore
from tfgrpo.runs.run_versions import versions_of
from tfgrpo.session import Session
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store
from tfgrpo.wording import sampled


@dataclass(frozen=True, slots=True)
class Choice:
    """The version that was chosen, the run's last one, the scores, the chosen one's first, and what
    it was chosen by: the mean reward of each library, by its version's number."""

    version: Version
    last: Version
    scores: Scores
    means: Mapping[int, float]

    def __str__(self) -> str:
        mean, none = self.means[self.version.number], self.means[0]
        if mean < none:
            return (
                f"warning: the best library of the run, {self.version.name}, scored below the "
                f"empty one on fresh attempts at the gate's problems: {mean:.3f} against {none:.3f}"
            )
        which = "the last" if self.version.number == self.last.number else "not the last"
        summary = self.scores.libraries[0].evaluation.summary
        tried = sampled(summary["problems"], summary["samples"])
        return (
            f"best of {len(self.scores.libraries)} libraries on fresh attempts at the gate's "
            f"problems: {self.version.name}, {which} ({mean:.3f}; the empty one {none:.3f}; "
            f"{tried}, temperature {self.scores.temperature:g})"
        )


def best_tag(run: Run) -> str:
    """The name of the tag of a run's chosen version."""
    return f"{run.name}/best"


def final_version(store: Store, run: Run) -> Version:
    """The version that a finished run leaves in force: the chosen one, else the last."""
    number = store.tags().get(best_tag(run))
    return versions_of(store, run)[-1] if number is None else store.version(number)


async def choose_version(
    session: Session, run: Run, task: EvalTask, *, on_progress: OnProgress = ignore
) -> Choice | None:
    """Scores a finished run's libraries and lets the branch and `RUN/best` name the best. `task` is
    the gate's problems with attempts of their own. Where somebody has moved the branch since the
    last step it stays, and only the tag is set. Returns None, and makes no call, where the run has
    one library alone. Raises EndpointError, BudgetReached."""
    store = session.store
    candidates = _candidates(store, run)
    if len(candidates) > 1:
        progress = EvalProgress.announced(on_progress)
        versions = [*candidates, store.version(0)]
        await evaluate(session, versions, task, run=run, progress=progress)
    choice = read_choice(store, run, task)
    best = choice.version if choice else versions_of(store, run)[-1]
    tag = best_tag(run)
    if tag not in store.tags():
        last = versions_of(store, run)[-1]
        with store.operation(f"choose {best.name} as the best of {run.name}"):
            store.create_tag(tag, best)
            if best.number != last.number and store.tip(run.branch).number == last.number:
                store.move_branch(run.branch, best)
    return choice


def read_choice(store: Store, run: Run, task: EvalTask) -> Choice | None:
    """A run's choice from the scores on record; None where it had none to make."""
    candidates, empty = _candidates(store, run), store.version(0)
    known = [v for v in candidates if store.runs.evaluation(v.number, task.key) is not None]
    if len(known) < 2 or store.runs.evaluation(empty.number, task.key) is None:
        return None
    means = _means(store, [*known, empty], task)
    ranked = sorted(known, key=lambda v: (means[v.number], v.number), reverse=True)
    scores = read_scores(store, ranked, task)
    return Choice(ranked[0], versions_of(store, run)[-1], scores, means)


def _means(store: Store, versions: Sequence[Version], task: EvalTask) -> dict[int, float]:
    """The mean reward of each version by its number, over the problems that were judged under all
    of them, if there are any: a library is no better for a hard problem without a verdict."""
    judged = {}
    for version in versions:
        evaluation = store.runs.evaluation(version.number, task.key)
        judged[version.number] = rewards(store.runs.scores(evaluation) if evaluation else ())
    common = set.intersection(*(set(there) for there in judged.values()))
    return {
        number: fmean([fmean(there[problem]) for problem in common or there] or [0.0])
        for number, there in judged.items()
    }


def _candidates(store: Store, run: Run) -> Sequence[Version]:
    newest: dict[tuple[tuple[str, str], ...], Version] = {}
    for version in [store.version(run.base), *versions_of(store, run)]:
        library = store.library(version)
        newest[tuple((e.id, e.text) for e in library.readable)] = version
    return sorted(newest.values(), key=lambda version: version.number)
