"""Two runs side by side: curves on one scale, what each step came to, settings and lessons that
differ."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import NamedTuple

from starlette.responses import Response

from tfgrpo.runs.run_record import lessons, run_record
from tfgrpo.runs.run_status import StepFigures, run_figures
from tfgrpo.ui.charts import on_one_scale
from tfgrpo.ui.page_visit import Route, Visit
from tfgrpo.ui.shown_project import project_of
from tfgrpo.ui.sortable_tables import Column, table
from tfgrpo.ui.template_environment import in_words


class Setting(NamedTuple):
    """A setting that differs, as each of the two has it; None where one does not say it."""

    name: str
    first: object
    second: object


class StepOfBoth(NamedTuple):
    """A step, counted from 1, of both runs; None of one that has no such step."""

    step: int
    first: StepFigures | None
    second: StepFigures | None


def _columns(a: str, b: str) -> tuple[Column[StepOfBoth], ...]:
    def both(
        name: str, words: str, pick: Callable[[StepFigures], float | None]
    ) -> tuple[Column[StepOfBoth], ...]:
        def of(step: StepFigures | None) -> float | None:
            return pick(step) if step else None

        return (
            Column(f"{name}_a", f"{words} of {a}", lambda one: of(one.first)),
            Column(f"{name}_b", f"of {b}", lambda one: of(one.second)),
        )

    return (
        Column("step", "Step", lambda one: one.step),
        *both("reward", "Reward", lambda step: step.reward and step.reward.mean),
        *both("library", "Library", lambda step: step.library),
        *both("dollars", "Cost", lambda step: step.spent.dollars),
    )


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
    settings = [
        Setting(name, before.get(name), after.get(name))
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]
    setting_columns: tuple[Column[Setting], ...] = (
        Column("setting", "Setting", lambda one: one.name, False),
        Column("a", first.name, lambda one: in_words(one.first), False),
        Column("b", second.name, lambda one: in_words(one.second), False),
    )
    both = zip_longest(figures[0].steps, figures[1].steps)
    steps = [StepOfBoth(number, *one) for number, one in enumerate(both, 1)]
    columns = _columns(first.name, second.name)
    own, others = lessons(store, first), lessons(store, second)
    return visit.render(
        "compare_runs.html",
        title=f"{first.name} and {second.name}",
        names=names,
        a=first.name,
        b=second.name,
        charts=on_one_scale(*figures),
        steps=table(visit, steps, columns, "steps"),
        sums=[one.spent for one in figures],
        settings=table(visit, settings, setting_columns, "settings"),
        only_a=[(id, text) for text, id in own.items() if text not in others],
        only_b=[(id, text) for text, id in others.items() if text not in own],
        both=sum(text in others for text in own),
    )


ROUTES = (Route("/compare-runs", show),)
