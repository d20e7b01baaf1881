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

A cap on the library is kept whatever the gate says. So what brought a library under it before
anything was learnt is not on trial: both sides have it, and it stays where the rest is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from tfgrpo.data import problems
from tfgrpo.evaluation import evaluate, statistics
from tfgrpo.evaluation.evaluate import EvalProgress, EvalTask
from tfgrpo.evaluation.omissions import Omissions
from tfgrpo.evaluation.statistics import Difference
from tfgrpo.session import Session
from tfgrpo.settings import GateRule, TrainSettings
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.history import first_parents
from tfgrpo.store.records import Json, Library, Operation, Version
from tfgrpo.store.runs import Run, Score
from tfgrpo.store.store import Store
from tfgrpo.training.draft import Draft
from tfgrpo.training.factorial import Changes, FactorialTrial, can_be_factorial, try_changes
from tfgrpo.training.gate_rules import passes
from tfgrpo.training.pruning import is_initial_prune
from tfgrpo.training.retries import RETRIED, is_undecided
from tfgrpo.wording import plural, sampled

Verdict: TypeAlias = Literal["accepted", "rejected"]
REJECTIONS = 5
"""The most rejected candidates that the controller is told of, newest first."""


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


class Gate:
    """Tries candidates of one run on its held-out problems."""

    def __init__(self, session: Session, run: Run, task: EvalTask, settings: TrainSettings) -> None:
        self._session, self._run, self._task = session, run, task
        self._rule, self._is_factorial = settings.gate_rule, settings.gate_trial == "factorial"

    def leave_out(self, omissions: Omissions) -> None:
        """Has trials leave out of a prompt what is predicted to harm its problem's kind."""
        self._task = replace(self._task, omissions=omissions)

    async def trial(
        self,
        library: Library,
        operations: Sequence[Operation],
        progress: EvalProgress | None = None,
    ) -> Trial | FactorialTrial | None:
        """Returns how the library fares with these operations; None where they change no text
        but to bring it under the cap. `progress` is told of each attempt."""
        progress = progress or EvalProgress(0, meter=self._session.meter)
        before = applied(library, (o for o in operations if is_initial_prune(o.evidence)))
        candidate = applied(library, operations)
        if candidate == before:
            return None
        new = [o for o in operations if not is_initial_prune(o.evidence)]
        if self._is_factorial and can_be_factorial(new):
            return await try_changes(
                self._session, self._run, self._task, self._rule, Changes(before, new), progress
            )
        known = self._recorded(library.version) if before == library else None
        library = before
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

    def record(self, trial: Trial | FactorialTrial) -> Json:
        """Returns a trial as it stands in a version's record."""
        return {
            "verdict": trial.verdict,
            "rule": self._rule,
            "dataset": self._task.settings.data,
            "digest": problems.digest(self._task.problems),
            "samples": self._task.settings.samples,
            **trial.to_json(),
        }

    def keep(self, trial: Trial, version: Version) -> None:
        """Keeps a trial's scores with the versions that they are scores of.

        `version` is the candidate's, unless somebody moved the branch and it became another.
        """
        entries = [(trial.library.version, trial.library, trial.scores)]
        entries.append((version, trial.candidate, trial.candidate_scores))
        for at, library, scores in entries:
            if _texts(self._session.store.library(at)) == _texts(library):
                evaluate.record(self._session.store, at, self._task, scores)

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


def side_branch(store: Store, run: Run, step: int) -> str:
    """Returns the name of a branch, not taken yet, for a step's rejected candidate."""
    stem = f"rejected/{run.name}/step_{step + 1}"
    names = (stem if n == 1 else f"{stem}-{n}" for n in range(1, 1000))
    return next(name for name in names if name not in store.branches())


def rejections(store: Store, version: Version) -> list[str]:
    """Returns what the gate rejected on a version's history as harmful, newest first, in words.

    What was rejected because nothing was shown is left out: it may be worth another trial, and a
    weak controller drops whatever is like it.
    """
    lines: list[str] = []
    for ancestor in first_parents(store, version):
        gate = ancestor.meta.get("gate")
        if len(lines) == REJECTIONS:
            break
        if isinstance(gate, dict) and "candidate" in gate and _is_harmful(gate):
            try:
                candidate = store.resolve(str(gate["candidate"]))
            except UnknownRevision:  # a clone has the versions of the names it fetched
                continue
            changes = " ".join(_changes(store, candidate))
            lines.append(f"- {changes} (reward {describe_figures(gate)})")
    return lines


def _is_harmful(gate: Json) -> bool:
    if gate.get("trial") == "factorial":
        highs = (change["effect"][2] for change in gate["changes"] if not change["kept"])
        return any(high is not None and high < 0 for high in highs)
    return bool(gate.get("difference_is") == "worse")


def describe_gate(gate: Json) -> str:
    """Returns what a record says was done, and by what: `kept by the gate: 0.350 → 0.440, +0.090
    [-0.010, +0.190], not significant (about 61 problems × 4 samples would decide)`."""
    waiting = len(gate.get(RETRIED, ()))
    again = (
        f"; {plural(waiting, 'change')} to be tried again with the next step's" if waiting else ""
    )
    if gate.get("trial") == "factorial":
        accepted = sum(change["kept"] for change in gate["changes"])
        whole = len(gate["changes"])
        return f"{accepted} of {whole} changes kept by the gate: {describe_figures(gate)}{again}"
    done = "kept" if gate["verdict"] == "accepted" else "rejected"
    open_ = ", not significant" if gate.get("difference_is") == "inconclusive" else ""
    needed = gate.get("problems_needed") if open_ else None
    if needed:
        open_ += f" (about {sampled(needed, gate['samples'])} would decide)"
    return f"{done} by the gate: {describe_figures(gate)}{open_}{again}"


def gate_word(gate: Json) -> str:
    """Returns what became of a candidate in a word or two, as a record says it. What the trial
    could not decide is called that, and not rejected: nothing was found against it."""
    if gate.get("trial") == "factorial":
        accepted = sum(bool(change["kept"]) for change in gate["changes"])
        return f"{accepted} of {len(gate['changes'])} changes kept"
    if gate["verdict"] == "accepted":
        return "kept"
    return "not kept: inconclusive" if gate.get("difference_is") == "inconclusive" else "rejected"


def describe_figures(gate: Json) -> str:
    """Returns a record's numbers: `0.350 → 0.440, +0.090 [-0.010, +0.190]`, and of a factorial
    trial the effects of what was kept and of what was not."""
    means = f"{gate['before']:.3f} → {gate['after']:.3f}"
    if gate.get("trial") == "factorial":
        effects = [
            ("kept" if change["kept"] else "rejected", change["effect"][0])
            for change in gate["changes"]
        ]
        return f"{means}, " + ", ".join(f"{done} {effect:+.3f}" for done, effect in effects)
    mean, low, high = gate["difference"]
    bounds = "" if low is None else f" [{low:+.3f}, {high:+.3f}]"
    return f"{means}, {mean:+.3f}{bounds}"


def _changes(store: Store, candidate: Version) -> Iterator[str]:
    before: dict[str, Any] = {}
    if candidate.parent is not None:
        before = {e.id: e.text for e in store.library(store.version(candidate.parent))}
    for event in store.events(candidate):
        if event.redacted or event.op == "KEEP" or is_initial_prune(event.evidence):
            continue
        old = before.get(event.experience, "")
        if event.op == "ADD":
            yield f'added: "{event.text}"'
        elif event.op == "MODIFY":
            yield f'changed "{old}" to: "{event.text}"'
        else:
            yield f'deleted: "{old}"'


def _texts(library: Library) -> list[str]:
    return [experience.text for experience in library.readable]


def _mean(scores: Sequence[Score]) -> float:
    return round(evaluate.figures(scores).mean.mean, 6)
