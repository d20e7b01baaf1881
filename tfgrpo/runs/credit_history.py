"""Credit over time: each experience's effect from the attempts of a step and of all before it.
An experience that was given other words starts anew, with no figure between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tfgrpo.evaluation.measured_runs import measures
from tfgrpo.evaluation.presence_effects import Credit
from tfgrpo.evaluation.recorded_attempts import RecordedAttempts, RecordedStep, unit
from tfgrpo.store.records import Library, Version
from tfgrpo.store.store import Store

MOST = 16
"""Moments that are looked at; of a longer history as many, evenly spread, and the last."""


class CreditMoment(NamedTuple):
    """What was known after a step (from 1; None: by now) with the library of `version`."""

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
    ends = _spread(_step_ends(recorded.steps), most)
    if not ends:
        return ()
    estimates = recorded.estimates(ends).get("", [])
    moments = []
    for end, known in zip(ends, estimates, strict=False):
        last = recorded.steps[end - 1]
        library = store.library(store.version(last.version))
        credits = _by_experience(library, known.credits)
        moments.append(CreditMoment(last.run.name, last.step + 1, last.version, library, credits))
    if estimates:
        library = store.library(version)
        credits = _by_experience(library, estimates[-1].credits)
        moments.append(CreditMoment("", None, version.number, library, credits))
    return tuple(moments)


def credit_points(moments: Sequence[CreditMoment], id: str) -> list[CreditPoint]:
    """One experience's credit over time, with a point of nothing known where it got other words;
    the last moment counts only if it tells more than the step before."""
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


def _step_ends(steps: Sequence[RecordedStep]) -> list[int]:
    """Where each step is over, of which each version has a place of its own."""
    of = [(one.run.uid, one.step) for one in steps]
    return [n for n in range(1, len(of) + 1) if n == len(of) or of[n] != of[n - 1]]


def _spread(ends: Sequence[int], most: int) -> list[int]:
    if len(ends) <= most:
        return list(ends)
    return [ends[round((k + 1) * len(ends) / most) - 1] for k in range(most)]
