"""Two libraries on the same problems, paired, and how many problems would tell them apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from tfgrpo.evaluation import statistics
from tfgrpo.evaluation.scoring import rewards
from tfgrpo.evaluation.statistics import (
    Difference,
    conditions_words,
    interval_object,
    verdict_words,
)
from tfgrpo.result_tables import View, Viewed
from tfgrpo.store.activity.runs import Evaluation
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Json, Version
from tfgrpo.store.store import Store
from tfgrpo.wording import sampled


class ProblemPair(NamedTuple):
    """The mean rewards of two libraries at one problem, each from 0 to 1."""

    problem: str
    control: float
    mean: float

    @property
    def difference(self) -> float:
        """The library's mean reward less the control's."""
        return self.mean - self.control

    @property
    def outcome(self) -> str:
        """Won, lost or even, for the library."""
        if self.difference == 0:
            return "even"
        return "won" if self.difference > 0 else "lost"


@dataclass(frozen=True, slots=True)
class ProblemPairs(Viewed):
    """The problems of two evaluations, the most won first. `control` and `library` name them."""

    control: str
    library: str
    pairs: tuple[ProblemPair, ...]

    def count(self, outcome: str) -> int:
        """How many problems were won, lost or even."""
        return sum(pair.outcome == outcome for pair in self.pairs)

    @property
    def summary(self) -> str:
        """`won 7 problems, lost 2, even on 15`."""
        won = self.count("won")
        noun = "problem" if won == 1 else "problems"
        return f"won {won} {noun}, lost {self.count('lost')}, even on {self.count('even')}"

    def at(self, problem: str) -> ProblemPairs:
        """One problem alone. Raises TfgrpoError where both have no rewards of it."""
        pairs = tuple(pair for pair in self.pairs if pair.problem == problem)
        if not pairs:
            raise TfgrpoError(
                f"{self.control} and {self.library} have no scored problem {problem!r} in common",
                hint="without --problem, all of them are listed",
            )
        return replace(self, pairs=pairs)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yields a row for each problem, for tables and programs."""
        for pair in self.pairs:
            yield {
                "problem": pair.problem,
                self.control: round(pair.control, 6),
                self.library: round(pair.mean, 6),
                "difference": round(pair.difference, 6),
                "outcome": pair.outcome,
            }

    def view(self) -> View:
        rows = [
            (p.problem, f"{p.control:.3f}", f"{p.mean:.3f}", f"{p.difference:+.3f}", p.outcome)
            for p in self.pairs
        ]
        header = ("problem", self.control, self.library, "difference", "outcome")
        return View(f"{self.library} beside {self.control}", header, rows, (self.summary,))


def paired_problems(store: Store, control: Evaluation, evaluation: Evaluation) -> ProblemPairs:
    """Two recorded evaluations by problem. Raises TfgrpoError without one judged under both."""
    names = (f"v{control.version}", f"v{evaluation.version}")
    before, after = (rewards(store.runs.scores(one)) for one in (control, evaluation))
    return pairs_of(before, after, names)


def pairs_of(
    before: Mapping[str, Sequence[float]],
    after: Mapping[str, Sequence[float]],
    names: tuple[str, str],
) -> ProblemPairs:
    """The problems that both have rewards of. Raises TfgrpoError where there is none."""
    common = [problem for problem in before if problem in after]
    if not common:
        raise TfgrpoError(
            f"{names[0]} and {names[1]} have no scored problem in common",
            hint="`tfgrpo show` shows how many samples could not be judged",
        )
    pairs = [ProblemPair(p, fmean(before[p]), fmean(after[p])) for p in common]
    pairs.sort(key=lambda pair: (-pair.difference, pair.problem))
    return ProblemPairs(*names, tuple(pairs))


SAMPLES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Comparison(Viewed):
    """How much better `version` is than `control`; `pairs` are the problems won and lost."""

    control: Version
    version: Version
    dataset: str
    conditions: Json
    difference: Difference
    pairs: ProblemPairs
    control_unscored: int = 0
    unscored: int = 0

    @property
    def model(self) -> str:
        """The model that attempted the problems."""
        return str(self.conditions["model"])

    @property
    def control_mean(self) -> float:
        """The control's mean reward over the problems that both have a verdict of."""
        return self.difference.means[0]

    @property
    def mean(self) -> float:
        """The version's mean reward over the same problems."""
        return self.difference.means[1]

    @property
    def verdict(self) -> str:
        """Better, worse or inconclusive."""
        return self.difference.verdict

    def view(self) -> View:
        samples, estimate = int(self.conditions["samples"]), self.difference.estimate
        title = (
            f"{self.dataset}: {sampled(estimate.problems, samples)}, {self.model}, "
            f"temperature {self.conditions['temperature']:g}"
        )
        rows = [
            (library_name(self.control), f"{self.control_mean:.3f}"),
            (library_name(self.version), f"{self.mean:.3f}"),
        ]
        pair = f"{self.version.name} - {self.control.name}"
        notes = [
            conditions_words(self.conditions),
            f"{pair}: {self.difference.words}, permutation p {self.difference.p:.2g}",
            self.pairs.summary,
            verdict_words(self.difference, samples),
        ]
        return View(title, ("library", f"mean@{samples}"), rows, [*self.unscored_notes(), *notes])

    def object(self) -> dict[str, Any]:
        """The comparison as JSON for programs."""
        estimate = self.difference.estimate
        return {
            "dataset": self.dataset,
            "model": self.model,
            "control": self.control.name,
            "version": self.version.name,
            "control_mean": self.control_mean,
            "mean": self.mean,
            "difference": interval_object(estimate.mean, *estimate.bounds),
            "problems": estimate.problems,
            "won": self.pairs.count("won"),
            "lost": self.pairs.count("lost"),
            "p": self.difference.p,
            "verdict": self.difference.verdict,
            "problems_needed": self.difference.problems_needed,
            "unscored": {"control": self.control_unscored, "version": self.unscored},
            "conditions": self.conditions,
        }

    def unscored_notes(self) -> Iterator[str]:
        """Yields how many samples of each library could not be judged, where any could not."""
        counts = ((self.control, self.control_unscored), (self.version, self.unscored))
        for version, count in counts:
            if count:
                yield unscored_words(version, count)


@dataclass(frozen=True, slots=True)
class Power:
    """What a comparison needs to decide a difference at 95 % with a power of 80 %: the difference,
    and the standard deviations of true differences over problems (`between`) and of one sample's
    reward (`within`)."""

    difference: float
    between: float
    within: float

    def problems(self, samples: int) -> int | None:
        """How many problems decide it at so many samples of each; None for a difference of 0."""
        spread = statistics.spread_of(self.between, self.within, samples)
        return statistics.problems_needed(self.difference, spread)

    def table(self, samples: Iterable[int] = SAMPLES) -> list[tuple[int, int]]:
        """(samples, problems) that decide it; empty for a difference of 0."""
        sizes = ((n, self.problems(n)) for n in samples)
        return [(n, problems) for n, problems in sizes if problems is not None]


def compared(store: Store, evaluations: Sequence[Evaluation]) -> list[Comparison]:
    """Each evaluation against the first. Raises TfgrpoError without a judged problem in common."""
    control = evaluations[0]
    base = rewards(store.runs.scores(control))

    def beside(evaluation: Evaluation) -> Comparison:
        scored = rewards(store.runs.scores(evaluation))
        return Comparison(
            store.version(control.version),
            store.version(evaluation.version),
            evaluation.dataset,
            evaluation.config,
            statistics.paired(base, scored),
            pairs_of(base, scored, (f"v{control.version}", f"v{evaluation.version}")),
            *(int(one.summary.get("unscored", 0)) for one in (control, evaluation)),
        )

    return [beside(evaluation) for evaluation in evaluations[1:]]


def recorded_pairs(
    store: Store, a: Version, b: Version, dataset: str | None = None
) -> list[tuple[Evaluation, Evaluation]]:
    """The evaluations of two versions under the same conditions (on `dataset`), oldest first."""
    there = {evaluation.digest: evaluation for evaluation in store.runs.evaluations(a.number)}
    return [
        (there[evaluation.digest], evaluation)
        for evaluation in store.runs.evaluations(b.number)
        if evaluation.digest in there and dataset in (None, evaluation.dataset)
    ]


def power_of(store: Store, a: Evaluation, b: Evaluation) -> Power:
    """The plan to decide a difference like the one between two evaluations."""
    before, after = rewards(store.runs.scores(a)), rewards(store.runs.scores(b))
    between, within = statistics.spreads(before, after)
    return Power(statistics.paired(before, after).estimate.mean, between, within)


def unscored_words(version: Version, count: int) -> str:
    """A note that so many samples of a library could not be judged."""
    samples = "1 sample" if count == 1 else f"{count:,} samples"
    return f"{version.name}: {samples} could not be judged and do not count"


def library_name(version: Version) -> str:
    """A version's name, and that it is the empty library where it is."""
    return version.name + (" (empty)" if version.number == 0 else "")
