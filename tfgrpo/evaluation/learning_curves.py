"""Learning curves: how the libraries of a run scored, version by version, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tfgrpo.store.records import Version
from tfgrpo.store.store import Store


class CurveScore(NamedTuple):
    """A version's (mean reward, low, high), with a 95 % interval or None as bounds."""

    version: Version
    mean: tuple[float, float | None, float | None]


class ScoreCurve(NamedTuple):
    """Versions that were scored under the same conditions, in their order."""

    dataset: str
    samples: int
    digest: str
    points: tuple[CurveScore, ...]


def score_curves(store: Store, versions: Sequence[Version]) -> list[ScoreCurve]:
    """A curve for each set of conditions that two or more of the versions were evaluated under."""
    if not store.port.storage.evaluated():
        return []
    curves: dict[str, tuple[str, int, list[CurveScore]]] = {}
    for version in versions:
        for one in store.runs.evaluations(version.number):
            mean = [*one.summary.get("mean", ())][:3]
            if len(mean) == 3:
                samples = int(one.summary.get("samples", 0))
                _, _, points = curves.setdefault(one.digest, (one.dataset, samples, []))
                points.append(CurveScore(version, (mean[0], mean[1], mean[2])))
    return [
        ScoreCurve(dataset, samples, digest, tuple(points))
        for digest, (dataset, samples, points) in curves.items()
        if len(points) > 1
    ]
