"""The attempts of a version's history that showed a random part of what there was, by run and
step, read as they lie in the store and never all held."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.evaluation.measured_runs import measures
from tfgrpo.evaluation.presence_effects import Chunk, Estimate, LotEnd, estimate
from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.store.activity.runs import RewardRow, Run
from tfgrpo.store.canonical import digest
from tfgrpo.store.history.walks import first_parents
from tfgrpo.store.records import Experience, Version
from tfgrpo.store.store import Store
from tfgrpo.store.strange_values import text

if TYPE_CHECKING:
    from tfgrpo.evaluation.presence_effects import Places

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
        units: dict[int, list[str]] = {}
        for one in self.steps:
            if one.version not in units:
                library = store.library(store.version(one.version))
                units[one.version] = [unit(experience) for experience in library]
        self._ids = sorted({name for names in units.values() for name in names})
        self._places = {name: place for place, name in enumerate(self._ids)}
        self._columns = {version: self._columns_of(names) for version, names in units.items()}

    def _columns_of(self, names: Sequence[str]) -> Places:
        import numpy as np

        return np.array([self._places[name] for name in names], dtype=np.intp)

    def estimates(
        self, ends: Sequence[int] = (), *, by: str = "", level: float = 0.95
    ) -> dict[str, list[Estimate]]:
        """The credits from the first so many of `steps`, for each of `ends`, ascending; without,
        from all. With `by`, for each value of that entry of verdicts by itself."""
        ends = ends or [len(self.steps)]
        with self._store.port.reading():
            return estimate(self._ids, lambda: self._read(ends, by), parts=len(ends), level=level)

    def _read(self, ends: Sequence[int], by: str) -> Iterator[Chunk | LotEnd]:
        """Yields attempts, step by step, and when the last of a version were there."""
        parts: dict[tuple[str, int], int] = {}
        over: dict[tuple[str, int], int] = {}
        for number, one in enumerate(self.steps):
            part = next((part for part, end in enumerate(ends) if number < end), None)
            if part is not None:
                parts.setdefault((one.run.uid, one.step), part)
            over[one.run.uid, one.version] = one.step
        for run in self._runs:
            at_work: set[int] = set()
            rows = self._store.runs.rewards(run, CONFIRMING, None, by)
            for step, drawn in groupby(rows, key=lambda row: row.step):
                for version in [v for v in at_work if over[run.uid, v] < step]:
                    at_work.remove(version)
                    yield LotEnd((run.uid, version))
                part = parts.get((run.uid, step))
                if part is None:
                    continue
                for version, some in groupby(drawn, key=lambda row: row.version):
                    at_work.add(version)
                    while batch := list(islice(some, AT_ONCE)):
                        yield from self._chunks((run.uid, version), batch, part, bool(by))
            for version in at_work:
                yield LotEnd((run.uid, version))

    def _chunks(
        self, lot: tuple[str, int], rows: Sequence[RewardRow], part: int, apart: bool
    ) -> Iterator[Chunk]:
        columns = self._columns[lot[1]]
        places = {
            self._ids[column].rpartition("@")[0]: n for n, column in enumerate(columns.tolist())
        }
        if not apart:
            yield _chunk("", part, lot, columns, places, rows)
            return
        groups: dict[str, list[RewardRow]] = {}
        for row in rows:
            if row.kind:
                groups.setdefault(row.kind, []).append(row)
        for group, some in groups.items():
            yield _chunk(group, part, lot, columns, places, some)


def _chunk(
    group: str,
    part: int,
    lot: tuple[str, int],
    columns: Places,
    places: Mapping[str, int],
    rows: Sequence[RewardRow],
) -> Chunk:
    import numpy as np

    present = np.ones((len(rows), len(columns)))
    at: list[int] = []
    absent: list[int] = []
    for number, row in enumerate(rows):
        if row.without is not None:
            ids: Iterable[str] = json.loads(row.without)
            out = [places[id] for id in ids if id in places]
            absent += out
            at += [number] * len(out)
    present[at, absent] = 0.0
    problems = [row.problem for row in rows]
    known = np.full(len(columns), float(len(rows)))
    rewards = np.array([row.reward for row in rows])
    return Chunk(group, part, lot, columns, present, known, problems, problems, rewards)


def unit(experience: Experience) -> str:
    """What is credited: an experience with its text, on whichever branch."""
    return f"{experience.id}@{digest([experience.text])[:8].hex()}"
