"""How alike new problems are to those that a run learns from.

An example does more where the problem is like its own. What examples do at a run's problems is what
they will do at new ones only where these are as like the examples' as new ones are. A gate's
problems say how like that is: by their texts alone, nobody looks at an answer for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from tfgrpo.data.problems import Problem
from tfgrpo.rendering.near_duplicates import NgramIndex, similarity

MOST = 200
"""New problems that are looked at: more say no more."""


def usual_likeness(problems: Sequence[Problem], new: Sequence[Problem]) -> float | None:
    """How alike a new problem is to that of a run's `problems` that is nearest to it, in [0, 1]:
    the median over the new ones; None where there are none."""
    if not problems or not new:
        return None
    texts = {str(place): one.problem for place, one in enumerate(problems)}
    index, some = NgramIndex(texts), new[:: -(-len(new) // MOST)]
    nearest = ((one.problem, texts[index.ranked(one.problem)[0]]) for one in some)
    return median(similarity(text, other) for text, other in nearest)
