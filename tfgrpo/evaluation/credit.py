"""Credit: the effect of each experience's presence on the reward.

Training leaves a random part of the library out of each prompt, so rewards are regressed on
presence within strata: the rollouts of one problem under one library. Intervals are cluster-robust
by problem (CR1, Student's t; Cameron and Miller, 2015). They count the problems where presence
varied: an experience that belongs to four problems has 3 degrees of freedom, however many others
there are. One more problem of unknown effect is counted in, so that two that agree are no
certainty. Estimates are also shrunk towards 0 by empirical Bayes. An experience is credited with
the text that it has at a version; examples have one credit together. Attempts that try a lesson at
its own problem count for nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import NamedTuple

import numpy as np

from tfgrpo.data.problems import KIND
from tfgrpo.evaluation.measured_runs import measures
from tfgrpo.evaluation.presence_effects import Chunk, Credit, Estimate, Places, estimate
from tfgrpo.rendering.experience_texts import EXAMPLES, is_example
from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.store.activity.runs import RewardRow, Run
from tfgrpo.store.canonical import digest
from tfgrpo.store.damaged_values import text
from tfgrpo.store.history.walks import first_parents
from tfgrpo.store.records import Experience, Library, Version, evidence_of
from tfgrpo.store.store import Store

AT_ONCE = 2048
"""Attempts that are laid out as a matrix together."""


class RecordedStep(NamedTuple):
    """A step (from 0) of a run with attempts that count, and the version they were drawn under."""

    run: Run
    step: int
    version: int


class RecordedAttempts:
    """The attempts that the credit of a version's library is read from."""

    def __init__(self, store: Store, version: Version) -> None:
        self._store = store
        names = {text(ancestor.meta.get("run")) for ancestor in first_parents(store, version)}
        self._runs = [run for run in store.runs.all() if run.name in names and measures(run)]
        self.steps: list[RecordedStep] = [
            RecordedStep(run, step, version)
            for run in self._runs
            for step, version in store.runs.reward_steps(run, CONFIRMING, None)
        ]
        """The steps that there are attempts of, in the order in which they are read."""
        self._libraries: dict[int, _Shown] = {}
        libraries = {one.version: store.library(store.version(one.version)) for one in self.steps}
        self._ids = sorted({unit(e) for library in libraries.values() for e in library})
        columns = {name: column for column, name in enumerate(self._ids)}
        for number, library in libraries.items():
            units = list(dict.fromkeys(map(unit, library)))
            self._libraries[number] = _Shown(
                np.array([columns[name] for name in units], dtype=np.intp),
                {name.rpartition("@")[0]: place for place, name in enumerate(units)},
                {e.id for e in library if is_example(e.text)},
            )

    def estimates(self, ends: Sequence[int] = (), *, by: str = "") -> dict[str, list[Estimate]]:
        """The credits from the first N of `steps`, for each N in `ends`; without `ends`, from all
        steps. With `by`, separately for each value of that entry of verdicts."""
        with self._store.port.reading():
            read = list(self._read(by))
        groups = dict.fromkeys(group for _, group, _ in read)

        def first(end: int, group: str) -> Estimate:
            chunks = [chunk for place, name, chunk in read if name == group and place < end]
            return estimate(self._ids, chunks)

        ends = ends or [len(self.steps)]
        return {group: [first(end, group) for end in ends] for group in groups}

    def _read(self, by: str) -> Iterator[tuple[int, str, Chunk]]:
        """Yields attempts of one of `steps`, with its place, and of one group. What has begun since
        is left out."""
        places = {(one.run.uid, one.step, one.version): n for n, one in enumerate(self.steps)}
        for run in self._runs:
            rows = self._store.runs.rewards(run, CONFIRMING, None, by)
            for (step, version), some in groupby(rows, key=lambda row: (row.step, row.version)):
                place = places.get((run.uid, step, version))
                while place is not None and (batch := list(islice(some, AT_ONCE))):
                    groups: dict[str, list[RewardRow]] = {}
                    for row in batch if not by else filter(lambda row: row.kind, batch):
                        groups.setdefault(row.kind if by else "", []).append(row)
                    for group, drawn in groups.items():
                        chunk = _chunk((run.uid, version), self._libraries[version], drawn)
                        yield place, group, chunk


class _Shown(NamedTuple):
    """A library as attempts were shown it: the columns of its units, the place of each among those
    by its id, and the ids of its examples."""

    columns: Places
    places: Mapping[str, int]
    examples: Collection[str]


def _chunk(lot: tuple[str, int], library: _Shown, rows: Sequence[RewardRow]) -> Chunk:
    """What some attempts of one library were shown. A candidate that was not tried at a problem was
    in no prompt there, and nothing is known of it; where some are tried, no word of it is none.
    Attempts that left examples out one by one, beside others on probation, tell nothing of all of
    them together."""
    columns, places, examples = library
    present = np.ones((len(rows), len(columns)), dtype=bool)
    tried: dict[str | None, list[int]] = {}
    for number, row in enumerate(rows):
        if row.without is not None:
            out = [places[id] for id in json.loads(row.without) if id in places]
            present[number, out] = False
        tried.setdefault(row.belongs, []).append(number)
    known = np.full(len(columns), float(len(rows)))
    for belongs, numbers in tried.items() if tried.keys() != {None} else ():
        there = {name.partition(" ")[0] for name in json.loads(belongs or "[]")}
        if not there.isdisjoint(examples):
            there.discard(EXAMPLES)
        out = [place for id, place in places.items() if id not in there]
        present[np.ix_(numbers, out)] = False
        known[out] -= len(numbers)
    problems = [row.problem for row in rows]
    rewards = np.array([row.reward for row in rows])
    return Chunk(lot, columns, present, known, problems, problems, rewards)


def unit(experience: Experience) -> str:
    """The unit of credit: an experience with its text, on any branch, or all examples as one, since
    attempts were shown all of them or none."""
    if is_example(experience.text):
        return f"{EXAMPLES}@"
    return f"{experience.id}@{digest([experience.text])[:8].hex()}"


class Observation(NamedTuple):
    """One rollout: its problem and library (`stratum`), the ids in force, those left out."""

    stratum: str
    problem: str
    library: Sequence[str]
    without: frozenset[str]
    reward: float


@dataclass(frozen=True, slots=True)
class Credited:
    """An experience of a library with its label and its credit; None where nothing is known. Where
    it `was_chosen` by its measured effect, the credit includes attempts that chose it, and is too
    high."""

    label: str
    experience: Experience
    credit: Credit | None
    was_chosen: bool

    def __str__(self) -> str:
        return "nothing known" if self.credit is None else str(self.credit)


def credits(store: Store, version: Version) -> list[Credited]:
    """The credit of each experience of a version, best first, the unknown last."""
    estimates = RecordedAttempts(store, version).estimates()
    return _credited(store, version, estimates[""][-1].credits if estimates else [])


def credits_by_kind(store: Store, version: Version) -> dict[str, list[Credited]]:
    """The credits of each kind of problems (a run's field `kind`), by name."""
    estimates = RecordedAttempts(store, version).estimates(by=KIND)
    return {k: _credited(store, version, estimates[k][-1].credits) for k in sorted(estimates)}


def _credited(store: Store, version: Version, credits: Sequence[Credit]) -> list[Credited]:
    known = {credit.experience: credit for credit in credits}
    library = store.library(version)
    events = store.events_at(one.row for one in library)
    chosen = {row for row, event in events.items() if evidence_of(event).measured is not None}
    there = [(label, library.by_id[id]) for label, id in library.labels.items()]
    listed = [Credited(label, one, known.get(unit(one)), one.row in chosen) for label, one in there]
    return sorted(listed, key=lambda one: -one.credit.shrunk if one.credit else math.inf)


def estimate_effects(observations: Sequence[Observation]) -> list[Credit]:
    """Credits of experiences present and absent in strata of two problems, best first."""
    ids = sorted({id for one in observations for id in one.library})
    known = np.array([[id in one.library for id in ids] for one in observations])
    absent = np.array([[id in one.without for id in ids] for one in observations])
    if not observations:
        return []
    whole = Chunk(
        "",
        np.arange(len(ids)),
        known & ~absent,
        known.sum(axis=0, dtype=float),
        [one.stratum for one in observations],
        [one.problem for one in observations],
        np.array([one.reward for one in observations]),
    )
    return estimate(ids, [whole]).credits


MOST = 16
"""Moments that are looked at; of a longer history as many, evenly spread, and the last."""


class CreditMoment(NamedTuple):
    """The credits that were known after a step (from 1; None: by now) with the library of
    `version`."""

    run: str
    step: int | None
    version: int
    library: Library
    credits: Mapping[str, Credit]


class CreditPoint(NamedTuple):
    """An experience's credit at a moment, None where nothing was known of it with that text."""

    name: str
    credit: Credit | None


def credit_history(store: Store, version: Version, *, most: int = MOST) -> tuple[CreditMoment, ...]:
    """What was known of every experience after each step that measured some, oldest first."""
    if not any(measures(run) for run in store.runs.all()):
        return ()
    recorded = RecordedAttempts(store, version)
    of = [(one.run.uid, one.step) for one in recorded.steps]  # each version has a place of its own
    ends = [n for n in range(1, len(of) + 1) if n == len(of) or of[n] != of[n - 1]]
    if len(ends) > most:
        ends = [ends[round((k + 1) * len(ends) / most) - 1] for k in range(most)]
    if not ends:
        return ()
    estimates = recorded.estimates(ends).get("", [])
    if not estimates:
        return ()
    moments = []
    for end, known in zip(ends, estimates, strict=True):
        last = recorded.steps[end - 1]
        library = store.library(store.version(last.version))
        credits = _by_experience(library, known.credits)
        moments.append(CreditMoment(last.run.name, last.step + 1, last.version, library, credits))
    library = store.library(version)
    credits = _by_experience(library, estimates[-1].credits)
    return (*moments, CreditMoment("", None, version.number, library, credits))


def credit_points(moments: Sequence[CreditMoment], id: str) -> list[CreditPoint]:
    """One experience's credit over time, with an empty point where its text changed; the last
    moment counts only if it says more than the step before."""
    points: list[CreditPoint] = []
    before: str | None = None
    for moment in moments:
        there = moment.library.by_id.get(id)
        if there is None:
            if before is not None and moment.step is not None:
                points.append(CreditPoint(_name(moment), None))
            continue
        now = unit(there)
        if before not in (None, now):
            points.append(CreditPoint(f"v{moment.version}, other words", None))
        if moment.step is not None:
            points.append(CreditPoint(_name(moment), moment.credits.get(id)))
        before = now
    return points


def _name(moment: CreditMoment) -> str:
    return f"v{moment.version}, step {moment.step}"


def _by_experience(library: Library, credits: Sequence[Credit]) -> dict[str, Credit]:
    known = {one.experience: one for one in credits}
    units = {e.id: unit(e) for e in library}
    return {id: known[name] for id, name in units.items() if name in known}
