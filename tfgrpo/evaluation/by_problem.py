"""Two evaluations by problem: where a library wins, loses or draws, where both could be judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

from tfgrpo.evaluation.scoring import rewards
from tfgrpo.result_tables import View, Viewed
from tfgrpo.store.activity.runs import Evaluation
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.store import Store


class ProblemPair(NamedTuple):
    """The mean rewards of two libraries at one problem, each from 0 to 1."""

    problem: str
    control: float
    mean: float

    @property
    def difference(self) -> float:
        """What the library has more than the control."""
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
