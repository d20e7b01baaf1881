"""How alike new problems are to those that a run learns from.

An example has a larger effect where the problem is like its own. So the effect of examples at a
run's problems holds for new ones only if the run's problems are no more like the examples' than new
ones are. The texts of a gate's problems, never their answers, say how like that is. Problems are
matched by rank: a problem that is as near to the run's others as their median may have an example
as near as the median of the new problems has (quantile matching). Few new problems say little, so
the upper bound of their distribution is used (Massart, The Annals of Probability, 1990): where new
problems may well be as near as the run's own, nearly every example is measured at every problem.

Where answers are few and shared, as labels are, and no gate says otherwise, new problems are
assumed to be as near as the run's are to one another: an answer that another problem has too is
what is to be learned. Elsewhere that is unknown, and the half of the examples that is most like a
problem is hidden from it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice
from math import ceil, log, sqrt

from tfgrpo.data.problems import Problem
from tfgrpo.rendering.near_duplicates import NgramIndex, similarity

MOST = 200
"""Problems of each kind that are looked at: more say no more."""
LOOKED_AT = 8
"""The problems that fit one best, of which the nearest is taken."""
DOUBT = 0.1
"""The chance that the distribution of new problems is beyond its bound."""


class NewProblems:
    """How alike `new` problems, and a run's own, are to the nearest of the run's other problems."""

    def __init__(self, problems: Sequence[Problem], new: Sequence[Problem]) -> None:
        is_known = len(problems) > 1 and len(new) > 0
        self._texts = {one.id: one.problem for one in problems} if is_known else {}
        self._index = NgramIndex(self._texts)
        self._own, self._new = (
            sorted(map(self._to_others, some[:: -(-len(some) // MOST)])) if is_known else []
            for some in (problems, new)
        )

    def usual(self, problem: Problem) -> float | None:
        """The likeness in [0, 1] that the nearest problem of the run may have to a new problem of
        the same rank as this one; None where that is unknown."""
        if not self._new:
            return None
        count = len(self._new)
        rank = bisect_right(self._own, self._to_others(problem)) / len(self._own)
        place = ceil(count * (rank + sqrt(log(1 / DOUBT) / (2 * count))))
        return self._new[min(place, count) - 1]

    def _to_others(self, problem: Problem) -> float:
        others = (id for id in self._index.ranked(problem.problem) if id != problem.id)
        nearest = islice(others, LOOKED_AT)
        return max(similarity(self._texts[id], problem.problem) for id in nearest)
