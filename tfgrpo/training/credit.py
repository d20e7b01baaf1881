"""Credit from what is on record: the rollouts of every run on a version's history with dropout.

What is credited is an experience with the text it has at that version: what an earlier text of
it did is not held for or against it. Attempts under a strategy, and those that confirm a lesson,
had other prompts, and count for nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tfgrpo.store.history import first_parents
from tfgrpo.store.records import Experience, Library, Version
from tfgrpo.store.runs import Run
from tfgrpo.store.store import Store
from tfgrpo.training.dropout import Credit, Trial, estimate
from tfgrpo.training.rollouts import CONFIRMING


@dataclass(frozen=True, slots=True)
class Credited:
    """An experience of a library with its label and its credit; None where nothing is known."""

    label: str
    experience: Experience
    credit: Credit | None

    def __str__(self) -> str:
        found = self.credit
        if found is None:
            return "nothing known"
        return f"{found.effect:+.3f} [{found.low:+.3f}, {found.high:+.3f}], {found.verdict}"

    @property
    def in_prompt(self) -> str:
        """The same as the controller's prompt words it, which the journal's keys cover."""
        return str(self).replace("inconclusive", "undecided")


def credits(
    store: Store, version: Version, *, upto: tuple[Run, int] | None = None
) -> list[Credited]:
    """Returns the credit of each experience of a version's library, best first, the unknown last.

    With `upto`, a run at work and its step, that run counts too, up to that step.
    """
    library = store.library(version)
    found = {credit.experience: credit for credit in estimate(list(_trials(store, version, upto)))}
    listed = [
        Credited(label, library.by_id[id], found.get(_unit(library.by_id[id])))
        for label, id in library.labels.items()
    ]
    known = [one for one in listed if one.credit is not None]
    known.sort(key=lambda one: -one.credit.shrunk if one.credit else 0.0)
    return known + [one for one in listed if one.credit is None]


def _trials(store: Store, version: Version, upto: tuple[Run, int] | None) -> Iterator[Trial]:
    libraries: dict[int, Library] = {}
    names = {ancestor.meta.get("run") for ancestor in first_parents(store, version)}
    if upto is not None:
        names.add(upto[0].name)
    for run in (run for run in store.runs.all() if run.name in names):
        if not run.config.get("dropout"):
            continue
        for row in store.runs.rollouts(run):
            if upto is not None and upto[0].id == run.id and row.step > upto[1]:
                continue
            if row.reward is None or row.sample >= CONFIRMING or "hint" in row.verdict:
                continue
            if row.version not in libraries:
                libraries[row.version] = store.library(store.version(row.version))
            library = libraries[row.version]
            without = set(row.verdict.get("without", ()))
            yield Trial(
                stratum=f"{run.name}/{row.version}/{row.problem}",
                problem=row.problem,
                library=[_unit(experience) for experience in library],
                without=frozenset(_unit(e) for e in library if e.id in without),
                reward=row.reward,
            )


def _unit(experience: Experience) -> str:
    """Returns what is credited: an experience with the event that gave it its text."""
    return f"{experience.id}@{experience.row}"
