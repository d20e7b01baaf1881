"""The problems of a run, checked before it is paid for; one that resumes has to find the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfgrpo.data import leakage, problems
from tfgrpo.data.problems import Problem, describe_indices, describe_unread
from tfgrpo.data.readers import DatasetError
from tfgrpo.domains.base import Domain
from tfgrpo.domains.registry import with_data
from tfgrpo.domains.verifier import verifiable
from tfgrpo.runs.run_record import looks
from tfgrpo.settings import TrainSettings
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.project import Project

KINDS = ("heldout", "gate", "sealed")
PROMPTS = ("rollout", "summary", "comparison", "lesson", "plan")
"""The prompts that a run may use, which have to be there before it begins."""


@dataclass(frozen=True, slots=True)
class RunProblems:
    """A run's problems by what they are for. `skipped` are the ids left out as unverifiable."""

    train: tuple[Problem, ...]
    heldout: tuple[Problem, ...] = ()
    gate: tuple[Problem, ...] = ()
    sealed: tuple[Problem, ...] = ()
    skipped: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, kind: str) -> tuple[Problem, ...]:
        """The problems of a kind: train, heldout, gate or sealed."""
        chosen: tuple[Problem, ...] = getattr(self, kind)
        return chosen

    @property
    def all(self) -> tuple[Problem, ...]:
        """The problems of every kind."""
        return (*self.train, *self.heldout, *self.gate, *self.sealed)

    def digests(self) -> dict[str, Any]:
        """The settings that hold a run to these very problems."""
        digests = {
            f"{kind}_digest": problems.digest(self.of(kind))
            for kind in ("gate", "sealed")
            if self.of(kind)
        }
        return {"data_digest": problems.digest(self.train), "skipped": self.skipped, **digests}


def load_problems(
    store: Store, settings: TrainSettings, domain: Domain
) -> tuple[RunProblems, list[str]]:
    """The problems of settings, relative to the working folder, and warnings. Raises DatasetError,
    TemplateError, and SettingsError for sealed problems that serve for something else too."""
    warnings: list[str] = []
    train = domain.problems(settings.data, settings.fields)
    names = {kind: getattr(settings, kind) for kind in KINDS if getattr(settings, kind)}
    read = {kind: domain.problems(name, settings.fields) for kind, name in names.items()}
    domain, _ = with_data(domain, settings.domain, (*train, *chain(*read.values())))
    train, ids = verifiable(train, settings.data, domain, warnings, skip=settings.skip_unverifiable)
    skipped = {"data": ids} if ids else {}
    warnings += [
        *describe_indices(train, settings.data),
        *describe_unread(train, settings.data),
        *leakage.describe_duplicates(train, settings.data),
    ]
    others: dict[str, tuple[Problem, ...]] = {}
    for kind, name in names.items():
        there, ids = verifiable(read[kind], name, domain, warnings, skip=settings.skip_unverifiable)
        skipped |= {kind: ids} if ids else {}
        warnings += [
            *describe_indices(there, name, train, settings.data),
            *describe_unread(there, name),
            *leakage.describe_duplicates(there, name),
            *leakage.describe_leaks(train, there, settings.data),
        ]
        others[kind] = there
    for kind in ("heldout", "sealed"):
        gate, there = others.get("gate", ()), others.get(kind, ())
        name, what = settings.gate or "", "the gate's own choice"
        warnings += leakage.describe_leaks(gate, there, name, what)
    loaded = RunProblems(train, **others, skipped=skipped)
    if settings.sealed:
        warnings += _check_sealed(store, settings.sealed, loaded)
    for prompt in PROMPTS:
        domain.template(prompt, Path(settings.prompts) if settings.prompts else None)
    return loaded, warnings


def reload_problems(
    project: Project, run: Run, settings: TrainSettings, domain: Domain
) -> RunProblems:
    """The problems of a run on record. Raises DatasetError where they have changed."""
    kinds = [kind for kind in KINDS if getattr(settings, kind)]
    train = reload_part(project, run, settings, domain)
    others = {kind: reload_part(project, run, settings, domain, kind) for kind in kinds}
    return RunProblems(train, **others, skipped=settings.skipped)


def reload_part(
    project: Project, run: Run, settings: TrainSettings, domain: Domain, kind: str = "data"
) -> tuple[Problem, ...]:
    """A run's problems of a kind, or those that it learns from. Raises DatasetError where they have
    changed."""
    path = project.open_data(getattr(settings, kind))
    loaded = problems.without(
        domain.problems(path, settings.fields), settings.skipped.get(kind, ())
    )
    digest = getattr(settings, f"{kind}_digest", "")
    if digest and problems.digest(loaded) != digest:
        raise DatasetError(
            f"{path} has changed since run {run.name} began",
            hint="restore the file to resume the run, or start another one with --new",
        )
    return loaded


def _check_sealed(store: Store, name: str, loaded: RunProblems) -> Sequence[str]:
    """Warnings about sealed problems. Raises SettingsError where they are not apart."""
    digest = problems.digest(loaded.sealed)
    others = (loaded.train, loaded.heldout, loaded.gate)
    if digest in {problems.digest(other) for other in others if other}:
        raise SettingsError(
            f"{name} is sealed, and used for something else too",
            hint="sealed problems are for the end alone",
        )
    times = len(looks(store, digest))
    if not times:
        return []
    count = "one library was" if times == 1 else f"{times} libraries were"
    return [f"{name} is not fresh: {count} scored on it before"]
