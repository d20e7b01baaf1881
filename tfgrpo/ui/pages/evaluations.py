"""Evaluations: what was scored, and two of them side by side, problem by problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from tfgrpo import wording
from tfgrpo.evaluation.comparison import ProblemPair, compared
from tfgrpo.evaluation.statistics import conditions_words, verdict_words
from tfgrpo.store.activity.runs import Evaluation
from tfgrpo.ui.page_visit import Route, Visit
from tfgrpo.ui.pages.attempts import evaluation_group, evaluation_of, of_evaluation
from tfgrpo.ui.sortable_tables import Column, Table, as_file, table

OUTCOMES = ("", "won", "lost", "even")
BESIDE = 12
"""Versions that each is shown beside."""
MOST = 500
"""Problems on a page."""


class Conditions(NamedTuple):
    """Evaluations that can be compared: the same problems, model, prompt and sampling. `beside` has
    the versions that each version is shown beside."""

    dataset: str
    model: str
    words: str
    evaluations: Table[Evaluation]
    beside: dict[int, list[int]]


def _mean(one: Evaluation) -> Any:
    return one.summary.get("mean") or (None, None, None)


SCORES: tuple[Column[Evaluation], ...] = (
    Column("version", "Library", lambda one: one.version),
    Column("mean", "Mean reward", lambda one: _mean(one)[0]),
    Column("unscored", "Not judged", lambda one: one.summary.get("unscored")),
    Column("time", "When", lambda one: wording.iso(one.time), False),
)
BOUNDS: tuple[Column[Evaluation], ...] = (
    Column("low", "From", lambda one: _mean(one)[1]),
    Column("high", "to", lambda one: _mean(one)[2]),
)
"""Columns of a file beside those of the page."""


def listed(visit: Visit) -> Response:
    groups: dict[str, list[Evaluation]] = {}
    for one in visit.store.runs.all_evaluations():
        groups.setdefault(one.digest, []).append(one)
    for digest, ones in groups.items():
        as_file(visit, ones, (*SCORES, *BOUNDS), _key(digest))
    conditions = [
        Conditions(
            ones[-1].dataset,
            str(ones[-1].config.get("model", "")),
            conditions_words(ones[-1].config),
            table(visit, sorted(ones, key=lambda one: one.version), SCORES, _key(digest)),
            _nearest([one.version for one in ones]),
        )
        for digest, ones in sorted(groups.items(), key=lambda group: -group[1][-1].time)
    ]
    return visit.render("evaluations.html", title="Evaluations", found=conditions)


def _nearest(versions: Sequence[int]) -> dict[int, list[int]]:
    """Returns version → the versions that are nearest to it in their order, in that order."""
    ordered = sorted(set(versions))

    def around(at: int) -> list[int]:
        places = range(max(0, at - BESIDE), min(len(ordered), at + BESIDE + 1))
        nearest = sorted(places, key=lambda place: abs(place - at))[1 : BESIDE + 1]
        return [ordered[place] for place in sorted(nearest)]

    return {version: around(at) for at, version in enumerate(ordered)}


def _key(digest: str) -> str:
    return f"scores-{digest[:12]}"


def paired(visit: Visit) -> Response:
    store, digest = visit.store, visit.path("digest")
    control = evaluation_of(store, visit.path("control"), digest)
    library = evaluation_of(store, visit.path("version"), digest)
    (comparison,) = compared(store, [control, library])
    show = visit.query("show")
    show = show if show in OUTCOMES else ""
    pairs = [pair for pair in comparison.pairs.pairs if show in ("", pair.outcome)]
    columns: tuple[Column[ProblemPair], ...] = (
        Column("problem", "Problem", lambda one: one.problem, False),
        Column("control", comparison.control.name, lambda one: one.control),
        Column("library", comparison.version.name, lambda one: one.mean),
        Column("difference", "Difference", lambda one: one.difference),
        Column("outcome", "Outcome", lambda one: one.outcome, False),
    )
    ordered = table(visit, pairs, columns, "pairs")
    first = min(visit.number("from", 0), max(0, len(pairs) - 1)) // MOST * MOST
    here = f"/paired/{control.version}/{library.version}/{digest}"

    def group(version: int, problem: str) -> str:
        return f"/evaluation-group/{version}/{digest}?{urlencode({'problem': problem})}"

    return visit.render(
        "paired.html",
        title=f"{comparison.version.name} beside {comparison.control.name} on {comparison.dataset}",
        found=comparison,
        conditions=conditions_words(comparison.conditions),
        verdict=verdict_words(comparison.difference, int(comparison.conditions["samples"])),
        counts={name: comparison.pairs.count(name) for name in OUTCOMES[1:]},
        address=here,
        show=show,
        ordered=ordered,
        pairs=[
            (pair, group(control.version, pair.problem), group(library.version, pair.problem))
            for pair in ordered.rows[first : first + MOST]
        ],
        before=visit.address(**{"from": first - MOST}) if first else None,
        after=visit.address(**{"from": first + MOST}) if first + MOST < len(pairs) else None,
    )


ROUTES = (
    Route("/evaluations", listed),
    Route("/paired/{control}/{version}/{digest}", paired),
    Route("/evaluation/{version}/{digest}", of_evaluation),
    Route("/evaluation-group/{version}/{digest}", evaluation_group),
)
