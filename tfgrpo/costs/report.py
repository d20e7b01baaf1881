"""What was spent, added up as people ask for it, for the terminal, JSON and pages alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from tfgrpo.costs.accounts import Cost, Total, costs, daily_costs, endpoint_costs, group_by, total
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.store import Store

EVALUATIONS = "evaluations"
"""What calls of no run are listed as."""


@dataclass(frozen=True, slots=True)
class CostReport:
    """What a run has cost, or everything in the store. `estimated` counts the calls whose tokens
    the server did not tell; `by_endpoint` has the sums of what each of several has answered."""

    run: Run | None
    costs: tuple[Cost, ...]
    estimated: int
    by_endpoint: Mapping[str, Total] = field(default_factory=dict)

    @property
    def total(self) -> Total:
        """The sum of it all."""
        return total(self.costs)

    def by_run(self) -> dict[str, Total]:
        """The sums of each run; evaluations of no run are one of their own."""
        return group_by(self.costs, lambda one: one.run or EVALUATIONS)

    def by_stage(self) -> dict[tuple[str, str], Total]:
        """The sums of each stage with each model."""
        return group_by(self.costs, lambda one: (one.stage, one.model))

    def by_model(self) -> dict[str, Total]:
        """The sums of each model."""
        return group_by(self.costs, lambda one: one.model)

    def by_step(self) -> dict[str, Total]:
        """The sums of each step, and of what belongs to none."""
        return group_by(self.costs, when_spent)

    def object(self) -> dict[str, Any]:
        """The report as JSON for programs."""
        return {
            "calls": [_object(one) for one in self.costs],
            "total": _totals(self.total) | {"estimated_calls": self.estimated},
            "endpoints": [
                {"endpoint": name, **_totals(sums), "cached_share": cached_share(sums)}
                for name, sums in self.by_endpoint.items()
            ],
        }


def cost_report(
    store: Store, prices: Mapping[str, Any], run: Run | None = None, base_url: str | None = None
) -> CostReport:
    """What a run has cost, or everything in the store. `prices` is the settings file's [prices],
    `base_url` the address of models that no run names. Raises PriceInvalid."""
    calls = tuple(costs(store, prices, run, base_url))
    answered: dict[str, list[Cost]] = {}
    for endpoint, cost in endpoint_costs(store, prices, run):
        answered.setdefault(endpoint, []).append(cost)
    sums = {endpoint: total(answered[endpoint]) for endpoint in sorted(answered)}
    return CostReport(run, calls, store.runs.estimated(run), sums)


def cached_share(sums: Total) -> float:
    """The share of prompts' tokens that a server had cached."""
    return round(sums.usage.cached_tokens / max(1, sums.usage.prompt_tokens), 4)


def cost_by_day(
    store: Store, prices: Mapping[str, Any], run: Run | None = None, base_url: str | None = None
) -> dict[date, Total]:
    """The sums of each day (UTC) with a call, oldest first. Raises PriceInvalid."""
    days: dict[date, list[Cost]] = {}
    for day, cost in daily_costs(store, prices, run, base_url):
        days.setdefault(day, []).append(cost)
    return {day: total(days[day]) for day in sorted(days)}


def when_spent(one: Cost) -> str:
    """Where in a run a call belongs."""
    if one.step is not None:
        return f"step {one.step + 1}"
    return "held-out"


def _object(one: Cost) -> dict[str, Any]:
    return {
        "run": one.run,
        "step": one.step,
        "stage": one.stage,
        "model": one.model,
        **one.usage._asdict(),
        "retries": one.retries,
        "dollars": one.dollars,
    }


def _totals(sums: Total) -> dict[str, Any]:
    return {
        **sums.usage._asdict(),
        "retries": sums.retries,
        "dollars": None if sums.unknown else sums.dollars,
        "unknown_prices": list(sums.unknown),
    }
