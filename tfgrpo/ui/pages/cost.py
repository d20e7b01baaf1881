"""Cost: by run, stage, model, step and day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.responses import Response

from tfgrpo.costs.accounts import Total, cost_by_day, cost_report
from tfgrpo.ui.charts import CurvePoint, chart, short
from tfgrpo.ui.page_visit import Route, Visit
from tfgrpo.ui.shown_project import project_of
from tfgrpo.ui.sortable_tables import Column, table

DAYS = 60
"""The days that are drawn, the newest."""


class Spent(NamedTuple):
    """What something has cost: what it is called, in one word or two."""

    names: tuple[str, ...]
    sums: Total


SUMS: tuple[Column[Spent], ...] = (
    Column("dollars", "Cost", lambda one: one.sums.dollars),
    Column("calls", "Calls", lambda one: one.sums.usage.calls),
    Column("tries", "Tries", lambda one: one.sums.usage.calls + one.sums.retries),
    Column("prompt_tokens", "Tokens in", lambda one: one.sums.usage.prompt_tokens),
    Column("cached_tokens", "Cached", lambda one: one.sums.usage.cached_tokens),
    Column("completion_tokens", "Tokens out", lambda one: one.sums.usage.completion_tokens),
    Column("reasoning_tokens", "Reasoning", lambda one: one.sums.usage.reasoning_tokens),
    Column("seconds", "Seconds", lambda one: one.sums.usage.seconds),
)


def _columns(*names: str) -> tuple[Column[Spent], ...]:
    def of(at: int, name: str) -> Column[Spent]:
        return Column(name.lower(), name, lambda one: one.names[at], False)

    return (*(of(at, name) for at, name in enumerate(names)), *SUMS)


def _step(name: str) -> int | None:
    """Returns the number of `step 12`; None for what belongs to no step."""
    kind, _, number = name.partition(" ")
    return int(number) if kind == "step" else None


RUNS, STAGES, MODELS = _columns("Run"), _columns("Stage", "Model"), _columns("Model")
STEPS = (Column[Spent]("step", "Step", lambda one: _step(one.names[0]), drawn=True), *SUMS)
BY_DAY = (Column[Spent]("day", "Day (UTC)", lambda one: one.names[0], False), *SUMS)


def show(visit: Visit) -> Response:
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
            [CurvePoint(f"{d}", t.dollars) for d, t in recent],
            lambda value: f"{value:.2g}",
        ),
        chart("Calls a day", [CurvePoint(f"{d}", t.usage.calls) for d, t in recent], short),
    ]
    tables: list[tuple[str, tuple[Column[Spent], ...], str, Mapping[Any, Total]]] = [
        ("By run", RUNS, "runs", {} if run else _named(report.by_run())),
        ("By stage and model", STAGES, "stages", report.by_stage()),
        ("By model", MODELS, "models", _named(report.by_model())),
        ("By step", STEPS, "steps", _named(report.by_step()) if run else {}),
        ("By day", BY_DAY, "days", {(f"{day}",): sums for day, sums in [*days.items()][::-1]}),
    ]
    shown = []
    for title, columns, key, sums in tables:
        rows = [Spent(names, one) for names, one in sums.items()]
        last = report.total if key == "stages" and len(rows) > 1 else None
        shown.append((title, table(visit, rows, columns, key), last))
    return visit.render(
        "cost.html",
        title=f"Cost of run {name}" if run else "Cost",
        run=run,
        found=report,
        tables=[one for one in shown if one[1].rows],
        charts=[one for one in charts if one is not None] if len(recent) > 1 else [],
    )


def _named(sums: Mapping[str, Total]) -> dict[tuple[str, ...], Total]:
    return {(name,): one for name, one in sums.items()}


ROUTES = (Route("/cost", show),)
