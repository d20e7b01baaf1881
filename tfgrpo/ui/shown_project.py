"""The project around the store that is shown: its settings, prices and data, its branches, the
record of traffic beside it; and the numbers in forms about that."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TypeAlias, TypeVar

from tfgrpo.data.problems import Problem
from tfgrpo.learn.turned_down import PROPOSAL
from tfgrpo.project import Project, open_project
from tfgrpo.runs.run_versions import pool_branch
from tfgrpo.store.activity.decisions import decisions
from tfgrpo.store.activity.traffic import Traffic, traffic_path
from tfgrpo.store.address import project_root
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.store import Store
from tfgrpo.ui.page_visit import BadForm, Visit

T = TypeVar("T")
REMEMBERED = 30.0
"""Seconds for which figures are shown as they were, whatever was recorded since."""
DAY = 86_400.0
STALE_AFTER = 15.0
"""Seconds for which problems that were read are taken to be the same."""
KnownProblems: TypeAlias = tuple[Mapping[str, Problem], str]
"""Problems by id, and why there are none."""


def project_of(visit: Visit) -> Project:
    """Returns the project of the store that is shown. Raises SettingsError."""
    return open_project(project_root(visit.site.settings.store))


def problems_of(visit: Visit, key: str, read: Callable[[Project], KnownProblems]) -> KnownProblems:
    """Returns the problems that `read` gives, which is not asked again for a while: who goes from
    group to group reads the same file. `key` tells them apart."""
    memory = visit.site.memory
    return memory.get(("problems", key), STALE_AFTER, lambda: read(project_of(visit)))


def remembered(visit: Visit, key: tuple[Hashable, ...], compute: Callable[[], T]) -> T:
    """Returns what `compute` gives of the store: some seconds old at most while others commit, and
    not computed again while nobody does. `key` tells it apart."""
    memory = visit.site.memory
    unchanged = (key, threading.get_ident(), visit.store.port.changes())  # a thread has its store
    return memory.get(key, REMEMBERED, lambda: memory.get(unchanged, DAY, compute))


def places(store: Store) -> list[str]:
    return ["HEAD", *store.branches(), *list(store.tags())[-200:]]


def branches_of_people(visit: Visit) -> dict[str, int]:
    """Returns branch → version number, without those of proposals and of runs' candidates: these
    are looked at as such, and what was turned down lies aside."""
    store = visit.store
    others = {one.content.get("branch") for one in decisions(store, kind=PROPOSAL)}
    others |= {pool_branch(run) for run in store.runs.all()}
    return {
        name: number
        for name, number in store.branches().items()
        if name not in others and not name.startswith("rejected/")
    }


@contextmanager
def traffic_of(visit: Visit) -> Iterator[Traffic | None]:
    """Opens the record for a block; gives None where no traffic was recorded."""
    if not has_traffic(visit):
        yield None
        return
    with closing(open_traffic(traffic_path(visit.store.file))) as traffic:
        yield traffic


@contextmanager
def recorded_traffic(visit: Visit) -> Iterator[Traffic]:
    """Opens the record for a block. Raises UnknownRevision where there is none."""
    with traffic_of(visit) as traffic:
        if traffic is None:
            raise UnknownRevision("no traffic is on record")
        yield traffic


def has_traffic(visit: Visit) -> bool:
    return os.path.isfile(traffic_path(visit.store.file))


def number_in(value: str) -> float | None:
    """Returns the number that a field says, true and false included. Raises BadForm."""
    if not value:
        return None
    if value.lower() in ("true", "false"):
        return float(value.lower() == "true")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadForm(f"{value[:40]!r} is no number", hint="such as 0.5; true is 1")
    return number
