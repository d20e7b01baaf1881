"""The scores of libraries on a dataset, as they are on record, and how they compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tfgrpo.evaluation.comparison import library_name, unscored_words
from tfgrpo.evaluation.scoring import EvalTask, difference
from tfgrpo.evaluation.statistics import (
    Difference,
    conditions_words,
    interval_object,
    summary_object,
    verdict_words,
)
from tfgrpo.result_tables import View, Viewed
from tfgrpo.store.activity.runs import Evaluation, Score
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store
from tfgrpo.wording import sampled

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class LibraryScores:
    """One library's evaluation, with its samples, by problem and sample."""

    version: Version
    evaluation: Evaluation
    samples: tuple[Score, ...]

    @property
    def mean(self) -> float:
        """The mean reward (mean@k), from 0 to 1."""
        return float(self.evaluation.summary["mean"][0])

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of the mean, clustered by problem; None where there is no end."""
        _, low, high = self.evaluation.summary["mean"]
        return low, high


@dataclass(frozen=True, slots=True)
class Scores(Viewed):
    """Evaluations under the same conditions; `differences` are the first's minus each other's."""

    dataset: str
    model: str
    temperature: float
    libraries: tuple[LibraryScores, ...]
    differences: tuple[Difference, ...]

    @property
    def mean(self) -> float:
        """The first library's mean reward, from 0 to 1."""
        return self.libraries[0].mean

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of the first library's mean."""
        return self.libraries[0].interval

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each sample. Raises ImportError without pandas."""
        import pandas

        rows = [
            (one.version.name, sample.problem, sample.sample, sample.reward, sample.answer)
            for one in self.libraries
            for sample in one.samples
        ]
        columns = ["version", "problem", "sample", "reward", "answer"]
        return pandas.DataFrame(rows, columns=columns)

    def view(self) -> View:
        summary = self.libraries[0].evaluation.summary
        samples = summary["samples"]
        ks = sorted({k for one in self.libraries for k in one.evaluation.summary["pass"]}, key=int)
        ks = [k for k in ks if k != "1"]
        header = ["library", f"mean@{samples}", *(f"pass@{k}" for k in ks), f"maj@{samples}"]
        rows = [list(_cells(one, ks)) for one in self.libraries]
        title = (
            f"{self.dataset}: {sampled(summary['problems'], samples)}, {self.model}, "
            f"temperature {self.temperature:g}"
        )
        settings = conditions_words(self.libraries[0].evaluation.config)
        counts = ((one.version, one.evaluation.summary["unscored"]) for one in self.libraries)
        unscored = [unscored_words(version, count) for version, count in counts if count]
        notes = [settings, *unscored, *self._difference_lines()]
        return View(title, header, rows, notes)

    def _difference_lines(self) -> Iterator[str]:
        first = self.libraries[0].version.name
        samples = self.libraries[0].evaluation.summary["samples"]
        for one, other in zip(self.libraries[1:], self.differences, strict=True):
            yield (
                f"{first} - {one.version.name}: {other.words}, paired over "
                f"{other.estimate.problems} problems: {verdict_words(other, samples)}"
            )


def read_scores(store: Store, versions: Sequence[Version], task: EvalTask) -> Scores:
    """Evaluations that are on record; the empty library joins where it has one too."""
    empty = store.version(0)
    if all(version.number != 0 for version in versions):
        versions = [*versions, empty]
    recorded = ((version, store.runs.evaluation(version.number, task.key)) for version in versions)
    libraries = tuple(
        LibraryScores(version, evaluation, tuple(store.runs.scores(evaluation)))
        for version, evaluation in recorded
        if evaluation is not None
    )
    first = libraries[0].evaluation
    return Scores(
        task.settings.data,
        task.settings.models.model,
        task.settings.temperature,
        libraries,
        tuple(difference(store, one.evaluation, first) for one in libraries[1:]),
    )


def scores_object(scores: Scores) -> dict[str, Any]:
    """Scores as JSON for programs."""
    first = scores.libraries[0].version
    return {
        "dataset": scores.dataset,
        "evaluations": [
            {
                "version": one.version.name,
                "conditions": one.evaluation.config,
                **summary_object(one.evaluation.summary),
            }
            for one in scores.libraries
        ],
        "differences": [
            {
                "version": first.name,
                "against": one.version.name,
                "difference": interval_object(other.estimate.mean, *other.estimate.bounds),
                "problems": other.estimate.problems,
                "p": other.p,
                "verdict": other.verdict,
                "problems_needed": other.problems_needed,
            }
            for one, other in zip(scores.libraries[1:], scores.differences, strict=True)
        ],
    }


def _cells(one: LibraryScores, ks: Sequence[str]) -> Iterator[str]:
    summary = one.evaluation.summary
    yield library_name(one.version)
    mean, low, high = summary["mean"]
    yield f"{mean:.3f}" if low is None else f"{mean:.3f} [{low:.3f}, {high:.3f}]"
    yield from (f"{summary['pass'][k][0]:.3f}" if k in summary["pass"] else "–" for k in ks)
    yield "–" if summary["maj"] is None else f"{summary['maj'][0]:.3f}"


class CurveScore(NamedTuple):
    """A version's (mean reward, low, high), with a 95 % interval or None as bounds."""

    version: Version
    mean: tuple[float, float | None, float | None]


class ScoreCurve(NamedTuple):
    """Versions that were scored under the same conditions, in their order."""

    dataset: str
    samples: int
    digest: str
    points: tuple[CurveScore, ...] = ()


def score_curves(store: Store, versions: Sequence[Version]) -> list[ScoreCurve]:
    """A curve for each set of conditions that two or more of the versions were evaluated under."""
    if not store.port.storage.evaluated():
        return []
    curves: dict[str, ScoreCurve] = {}
    for version in versions:
        for one in store.runs.evaluations(version.number):
            mean = [*one.summary.get("mean", ())][:3]
            if len(mean) == 3:
                samples = int(one.summary.get("samples", 0))
                curve = curves.setdefault(one.digest, ScoreCurve(one.dataset, samples, one.digest))
                point = CurveScore(version, (mean[0], mean[1], mean[2]))
                curves[one.digest] = curve._replace(points=(*curve.points, point))
    return [curve for curve in curves.values() if len(curve.points) > 1]
