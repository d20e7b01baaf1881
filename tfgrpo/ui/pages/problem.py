"""A problem's history: what attempts at it came to, over runs and evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from urllib.parse import quote, urlencode

from starlette.responses import Response

from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.ui.page_visit import Route, Visit
from tfgrpo.ui.sortable_tables import Column, table

MOST = 200
"""The last runs and evaluations that are looked at, of each."""


class Try(NamedTuple):
    """The attempts at a problem in a step or an evaluation, which has no step: how many, of these
    with a reward, their mean, and the version that they were made under. `time` is microseconds."""

    time: int
    where: str
    address: str
    step: int | None
    version: int
    attempts: int
    scored: int
    mean: float | None


COLUMNS: tuple[Column[Try], ...] = (
    Column("where", "Where", lambda one: one.where, False),
    Column("step", "Step", lambda one: one.step),
    Column("version", "Version", lambda one: one.version),
    Column("attempts", "Attempts", lambda one: one.attempts),
    Column("scored", "With a reward", lambda one: one.scored),
    Column("mean", "Mean reward", lambda one: one.mean),
)


def show(visit: Visit) -> Response:
    """Answers with every step and evaluation that had the problem, the newest first."""
    id = visit.query("id")
    tries = sorted((*_in_runs(visit, id), *_in_evaluations(visit, id)), key=lambda one: -one.time)
    if not tries:
        raise UnknownRevision(f"no attempt at {id[:80]!r} is on record")
    shown = table(visit, tries, COLUMNS, "problem")
    return visit.render("problem.html", title=f"Problem {id}", id=id, tries=shown)


def _in_runs(visit: Visit, id: str) -> Iterator[Try]:
    runs = visit.store.runs
    for run in runs.listed()[-MOST:]:
        rows = [row for row in runs.rollouts(run, problem=id) if row.sample < CONFIRMING]
        for step in sorted({row.step for row in rows}):
            here = [row for row in rows if row.step == step]
            query = urlencode({"step": step + 1, "problem": id})
            yield _try(
                (here[0].time, f"run {run.name}", f"/group/{quote(run.name)}?{query}"),
                step + 1,
                here[0].version,
                [row.reward for row in here],
            )


def _in_evaluations(visit: Visit, id: str) -> Iterator[Try]:
    runs = visit.store.runs
    for one in runs.all_evaluations()[-MOST:]:
        rewards = [score.reward for score in runs.scores(one) if score.problem == id]
        if rewards:
            address = f"/evaluation-group/{one.version}/{one.digest}?{urlencode({'problem': id})}"
            yield _try((one.time, f"{one.dataset}", address), None, one.version, rewards)


def _try(
    place: tuple[int, str, str], step: int | None, version: int, rewards: Iterable[float | None]
) -> Try:
    every = list(rewards)
    known = [reward for reward in every if reward is not None]
    mean = sum(known) / len(known) if known else None
    return Try(*place, step, version, len(every), len(known), mean)


ROUTES = (Route("/problem", show),)
