"""Credit: what the presence of each experience does to the reward.

Training leaves a random part of the library out of each rollout's prompt. What was left out is
chance, so the difference an experience makes can be read off the rollouts that were
paid for anyway: rewards are regressed on presence within strata (the rollouts of one problem
under one library), which takes out how hard a problem is. Intervals are robust to rewards of
one problem being alike (cluster-robust covariance, CR1, Student's t with problems - 1 degrees
of freedom; Cameron and Miller, 2015). Estimates are also shrunk towards their common mean 0 by
empirical Bayes, so that a ranking of many experiences is not led by the noisiest one.

What is credited is an experience with the text it has at a version: what an earlier text of it
did is not held for or against it. Attempts that try a lesson at its own problem had other prompts,
and count for nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tfgrpo.data.problems import KIND
from tfgrpo.evaluation.presence_effects import Chunk, Credit, estimate
from tfgrpo.evaluation.recorded_attempts import RecordedAttempts, unit
from tfgrpo.store.history.walks import first_parents
from tfgrpo.store.records import Experience, Library, Version
from tfgrpo.store.store import Store


class Observation(NamedTuple):
    """One rollout, as the estimator sees it.

    `stratum` names the problem and library it was drawn under, `problem` its problem alone;
    `library` are the ids that were in force, `without` those that were left out of the prompt.
    """

    stratum: str
    problem: str
    library: Sequence[str]
    without: frozenset[str]
    reward: float


@dataclass(frozen=True, slots=True)
class Credited:
    """An experience of a library with its label and its credit; None where nothing is known."""

    label: str
    experience: Experience
    credit: Credit | None

    def __str__(self) -> str:
        return "nothing known" if self.credit is None else str(self.credit)


def credits(store: Store, version: Version) -> list[Credited]:
    """Returns the credit of each experience of a version, best first, the unknown last."""
    estimates = RecordedAttempts(store, version).estimates()
    return _credited(store.library(version), estimates[""][-1].credits if estimates else [])


def credits_by_kind(store: Store, version: Version) -> dict[str, list[Credited]]:
    """Returns the same for each kind of problems by itself, kinds in the order of their names.

    Kinds are what the field says that a run was told of as `kind`; without one there are none.
    An experience may help one kind and harm another, which the effect over all of them hides.
    """
    library = store.library(version)
    estimates = RecordedAttempts(store, version).estimates(by=KIND)
    return {kind: _credited(library, estimates[kind][-1].credits) for kind in sorted(estimates)}


def unconfirmed(store: Store, version: Version) -> dict[str, int]:
    """Returns for each experience of a version's library how many steps of runs have passed since
    one added, changed or kept it."""
    left = {experience.id for experience in store.library(version)}
    ages: dict[str, int] = {}
    steps = 0
    for ancestor in first_parents(store, version):
        if not left:
            break
        for event in store.events(ancestor):
            if event.experience in left:
                left.discard(event.experience)
                ages[event.experience] = steps
        steps += "step" in ancestor.meta
    return ages | dict.fromkeys(left, steps)


def _credited(library: Library, credits: Sequence[Credit]) -> list[Credited]:
    known = {credit.experience: credit for credit in credits}
    listed = [
        Credited(label, library.by_id[id], known.get(unit(library.by_id[id])))
        for label, id in library.labels.items()
    ]
    return sorted(listed, key=lambda one: -one.credit.shrunk if one.credit else math.inf)


def estimate_effects(observations: Sequence[Observation], *, level: float = 0.95) -> list[Credit]:
    """Returns the credit of each experience that was both present and absent, best first.

    An experience that was never left out while others of its stratum held it cannot be told
    apart from its problems, and has no estimate. With fewer than two problems there is none.
    """
    import numpy as np

    ids = sorted({id for one in observations for id in one.library})
    column = {id: i for i, id in enumerate(ids)}
    known = np.zeros((len(observations), len(ids)))
    present = np.zeros((len(observations), len(ids)))
    for row, one in enumerate(observations):
        there = [column[id] for id in one.library]
        known[row, there] = present[row, there] = 1.0
        present[row, [column[id] for id in one.without if id in column]] = 0.0
    if not observations:
        return []
    whole = Chunk(
        "",
        0,
        None,
        np.arange(len(ids)),
        present,
        known.sum(axis=0),
        [one.stratum for one in observations],
        [one.problem for one in observations],
        np.array([one.reward for one in observations]),
    )
    return estimate(ids, lambda: [whole], level=level)[""][-1].credits
