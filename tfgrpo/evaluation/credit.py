"""Credit: what the presence of each experience does to the reward.

Training leaves a random part of the library out of each prompt, so rewards are regressed on
presence within strata: the rollouts of one problem under one library. Intervals are cluster-robust
by problem (CR1, Student's t with problems - 1 degrees of freedom; Cameron and Miller, 2015).
Estimates are also shrunk towards 0 by empirical Bayes. An experience is credited with the text that
it has at a version. Attempts that try a lesson at its own problem count for nothing.
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
    """One rollout: its problem and library (`stratum`), the ids in force, those left out."""

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
    """The credit of each experience of a version, best first, the unknown last."""
    estimates = RecordedAttempts(store, version).estimates()
    return _credited(store.library(version), estimates[""][-1].credits if estimates else [])


def credits_by_kind(store: Store, version: Version) -> dict[str, list[Credited]]:
    """The credits of each kind of problems (a run's field `kind`), by name."""
    library = store.library(version)
    estimates = RecordedAttempts(store, version).estimates(by=KIND)
    return {kind: _credited(library, estimates[kind][-1].credits) for kind in sorted(estimates)}


def unconfirmed(store: Store, version: Version) -> dict[str, int]:
    """Experience → how many steps of runs have passed since one added, changed or kept it."""
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
    """Credits of experiences present and absent in a stratum, best first; none for one problem."""
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
