"""What `--inject credited` leaves out of a prompt: what harms problems of this kind, by prediction.

An experience may help one kind of problems and harm another. Credit by kind (`credit.py`) tells it
from attempts that went without a random part of the library, and an experience whose effect on a
kind is more than one standard error below zero is left out for problems of that kind, with the text
that was credited. At 95 % hardly anything of one kind would ever be left out, as a kind has few
attempts, and one error is what the gate goes by too.

In training with dropout the coin is turned round for what is left out: it is in the prompt with the
chance with which others are not, so its effect goes on being measured, and what was left out by
chance comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from tfgrpo.data.problems import KIND, Problem
from tfgrpo.evaluation.recorded import RecordedAttempts, unit
from tfgrpo.store.records import Json, Library, Version
from tfgrpo.store.runs import Run
from tfgrpo.store.store import Store

ONE_ERROR = 0.6827
"""The confidence of an interval of one standard error to either side."""
LEAST = 6
"""Problems of a kind that there have to be before anything is predicted of it."""

Omissions: TypeAlias = Mapping[str, frozenset[str]]
"""Kind → what is left out for it: experiences with the event that gave them their text."""


def predict_harm(
    store: Store, versions: Iterable[Version], *, upto: tuple[Run, int] | None = None
) -> Omissions:
    """Returns what is left out for each kind, by what is known of these versions' libraries.

    With `upto`, a run at work and its step, that run counts too, up to that step. Kinds with
    nothing to leave out are not there.
    """
    harms: dict[str, frozenset[str]] = {}
    for version in versions:
        estimates = RecordedAttempts(store, version, upto).estimates(by=KIND, level=ONE_ERROR)
        for kind, (known,) in estimates.items():
            if known.problems < LEAST:
                continue
            harmful = frozenset(one.experience for one in known.credits if one.high < 0)
            if harmful:
                harms[kind] = harms.get(kind, frozenset()) | harmful
    return harms


def kind_of(problem: Problem, clusters: Mapping[str, str] | None = None) -> str:
    """Returns the kind of a problem: what its row says, else the cluster of its text, else none."""
    return str(problem.meta.get(KIND, "")) or (clusters or {}).get(problem.problem, "")


def left_out_for(library: Library, kind: str, omissions: Omissions) -> frozenset[str]:
    """Returns the ids of a library's experiences that are left out for a kind."""
    harmful = omissions.get(kind, frozenset())
    return frozenset(one.id for one in library if unit(one) in harmful) if harmful else harmful


def omissions_json(omissions: Omissions) -> Json:
    """Returns omissions as they stand in records and digests."""
    return {kind: sorted(omissions[kind]) for kind in sorted(omissions)}
