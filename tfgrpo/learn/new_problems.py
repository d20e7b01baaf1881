"""How alike new problems are to those that a run learns from.

An example does more where the problem is like its own. What examples do at a run's problems is what
they will do at new ones only where these are as like the examples' as new ones are. A gate's
problems say how like that is: by their texts alone, nobody looks at an answer for it. Problems are
matched by rank: what is as near to the run's others as the median of them may have an example as
near as the median of the new ones has (quantile matching). Few new problems tell little, so the
bound is the upper one of their distribution (Massart, The Annals of Probability, 1990): where new
problems may well be as the run's are, nearly every example is measured at every problem.

Where answers are few and shared, as labels are, and no gate says otherwise, new problems are taken
to be as the run's are to one another: an answer that another problem has too is what there is to
learn. Elsewhere nobody knows, and the half that is most like a problem is hidden there.
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
        """How alike the nearest problem of the run may be to a new one of the same rank as one of
        the run's, in [0, 1]; None where nobody knows."""
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
