"""Cost: by run, stage, model, step and day."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgrpo.costs.report import cost_by_day, cost_report
from tfgrpo.ui.charts import CurvePoint, chart, short
from tfgrpo.ui.page_route import Route
from tfgrpo.ui.shown_project import project_of

if TYPE_CHECKING:
    from starlette.responses import Response

    from tfgrpo.ui.page_visit import Visit

DAYS = 60
"""The days that are drawn, the newest."""


def show(visit: Visit) -> Response:
    """Answers with what the store, or a run of it, has cost."""
    store, name = visit.store, visit.query("run")
    run = store.runs.get(name) if name else None
    project = project_of(visit)
    prices, address = project.table("prices"), project.table("model").get("base_url")
    report = cost_report(store, prices, run, address)
    days = cost_by_day(store, prices, run, address)
    recent = list(days.items())[-DAYS:]
    charts = [
        chart(
            "Dollars a day",
            [CurvePoint(f"{d}", None if t.unknown else t.dollars) for d, t in recent],
            lambda value: f"{value:.2g}",
        ),
        chart("Calls a day", [CurvePoint(f"{d}", t.usage.calls) for d, t in recent], short),
    ]
    stages = report.by_stage().items()
    return visit.render(
        "cost.html",
        title=f"Cost of run {name}" if run else "Cost",
        run=run,
        found=report,
        stages=[(stage, model, sums) for (stage, model), sums in stages],
        days=list(days.items())[::-1],
        charts=[one for one in charts if one is not None] if len(recent) > 1 else [],
    )


ROUTES = (Route("/cost", show),)
