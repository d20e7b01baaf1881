"""Two runs side by side: curves on one scale, what each step came to, settings and lessons that
differ."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.runs.candidate_outcomes import lessons
from tfgrpo.runs.run_record import run_record
from tfgrpo.runs.run_status import run_figures
from tfgrpo.ui.charts import on_one_scale
from tfgrpo.ui.page_route import Route
from tfgrpo.ui.shown_project import project_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from tfgrpo.ui.page_visit import Visit


class Setting(NamedTuple):
    """A setting that differs, as each of the two has it; None where one does not say it."""

    name: str
    first: object
    second: object


def show(visit: Visit) -> Response:
    """Answers with two runs, or with the form that chooses them."""
    store = visit.store
    names = [run.name for run in store.runs.listed()][::-1]
    chosen = [visit.query("a") or (names[1] if len(names) > 1 else ""), visit.query("b")]
    chosen[1] = chosen[1] or (names[0] if names else "")
    if not all(chosen):
        return visit.render("compare_runs.html", title="Compare runs", names=names, a="", b="")
    first, second = (store.runs.get(name) for name in chosen)
    prices = project_of(visit).table("prices")
    figures = [run_figures(store, run, prices) for run in (first, second)]
    before, after = (run_record(store, run).settings for run in (first, second))
    own, others = lessons(store, first), lessons(store, second)
    return visit.render(
        "compare_runs.html",
        title=f"{first.name} and {second.name}",
        names=names,
        a=first.name,
        b=second.name,
        charts=on_one_scale(*figures),
        steps=list(zip_longest(figures[0].steps, figures[1].steps)),
        sums=[one.spent for one in figures],
        settings=[
            Setting(name, before.get(name), after.get(name))
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        ],
        only_a=[(id, text) for text, id in own.items() if text not in others],
        only_b=[(id, text) for text, id in others.items() if text not in own],
        both=sum(text in others for text in own),
    )


ROUTES = (Route("/compare-runs", show),)
