"""The order in which a run meets its problems: shuffled for each epoch, in batches."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tfgrpo.data.problems import Problem


def batches(
    problems: Sequence[Problem], size: int, *, epoch: int, seed: int
) -> list[tuple[Problem, ...]]:
    """The batches of an epoch: shuffled anew for each, the last partial one included."""
    order = list(problems)
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return [tuple(order[i : i + size]) for i in range(0, len(order), size)]
