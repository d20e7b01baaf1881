"""Evaluations: what was scored, and two of them side by side, problem by problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from tfgrpo.evaluation.by_problem import ProblemPair
from tfgrpo.evaluation.comparison import compared
from tfgrpo.evaluation.figures_json import conditions_words, verdict_words
from tfgrpo.ui.page_route import Route
from tfgrpo.ui.pages.attempts import evaluation_group, evaluation_of, of_evaluation

if TYPE_CHECKING:
    from starlette.responses import Response

    from tfgrpo.store.activity.runs import Evaluation
    from tfgrpo.ui.page_visit import Visit

OUTCOMES = ("", "won", "lost", "even")
MOST = 500
"""Problems on a page."""


class Conditions(NamedTuple):
    """Evaluations that can be compared: the same problems, model, prompt and sampling."""

    dataset: str
    model: str
    words: str
    evaluations: tuple[Evaluation, ...]


class LinkedPair(NamedTuple):
    """A problem of two evaluations, with where its attempts are."""

    pair: ProblemPair
    control: str
    library: str


def listed(visit: Visit) -> Response:
    """Answers with every evaluation, those that can be compared together, newest first."""
    groups: dict[str, list[Evaluation]] = {}
    for one in visit.store.runs.all_evaluations():
        groups.setdefault(one.digest, []).append(one)
    conditions = [
        Conditions(
            ones[-1].dataset,
            str(ones[-1].config.get("model", "")),
            conditions_words(ones[-1].config),
            tuple(sorted(ones, key=lambda one: one.version)),
        )
        for ones in sorted(groups.values(), key=lambda ones: -ones[-1].time)
    ]
    return visit.render("evaluations.html", title="Evaluations", found=conditions)


def paired(visit: Visit) -> Response:
    """Answers with two evaluations under the same conditions, problem by problem."""
    store, digest = visit.store, visit.path("digest")
    control = evaluation_of(store, visit.path("control"), digest)
    library = evaluation_of(store, visit.path("version"), digest)
    (comparison,) = compared(store, [control, library])
    show = visit.query("show")
    show = show if show in OUTCOMES else ""
    pairs = [pair for pair in comparison.pairs.pairs if show in ("", pair.outcome)]
    first = min(visit.number("from", 0), max(0, len(pairs) - 1)) // MOST * MOST
    here = f"/paired/{control.version}/{library.version}/{digest}"

    def address(at: int) -> str:
        return f"{here}?{urlencode({'show': show, 'from': at})}"

    def group(version: int, problem: str) -> str:
        return f"/evaluation-group/{version}/{digest}?{urlencode({'problem': problem})}"

    return visit.render(
        "paired.html",
        title=f"{comparison.version.name} beside {comparison.control.name} on {comparison.dataset}",
        found=comparison,
        digest=digest,
        conditions=conditions_words(comparison.conditions),
        verdict=verdict_words(comparison.difference, int(comparison.conditions["samples"])),
        counts={name: comparison.pairs.count(name) for name in OUTCOMES[1:]},
        address=here,
        show=show,
        pairs=[
            LinkedPair(
                pair,
                group(control.version, pair.problem),
                group(library.version, pair.problem),
            )
            for pair in pairs[first : first + MOST]
        ],
        before=address(first - MOST) if first else None,
        after=address(first + MOST) if first + MOST < len(pairs) else None,
    )


ROUTES = (
    Route("/evaluations", listed),
    Route("/paired/{control}/{version}/{digest}", paired),
    Route("/evaluation/{version}/{digest}", of_evaluation),
    Route("/evaluation-group/{version}/{digest}", evaluation_group),
)
