"""What was spent: calls, tokens, seconds and US dollars at today's prices, from the journal,
which has every answered call. Models without a known price are named."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import cache, reduce
from typing import Any, TypeVar

from tfgrpo.costs import prices
from tfgrpo.costs.prices import Price
from tfgrpo.store.activity.runs import Run, Spent, Usage
from tfgrpo.store.activity.traffic_figures import PricedCalls
from tfgrpo.store.store import Store
from tfgrpo.wording import money

BROKEN_OFF = (499, 502, 504, 599)
"""The statuses of calls whose answer may have been begun, and paid for."""


def _cached(table: Mapping[str, Any]) -> Callable[[str, str | None], Price | None]:
    return cache(lambda model, address: prices.find(model, address, table))


class Dollars:
    """The prices of calls, each model's looked up once."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._price = _cached(table)

    def of(self, call: PricedCalls) -> float | None:
        """What a call cost, in US dollars; None where that is not known. One that asked no model
        and took no tokens, or that was refused without a word of them, cost nothing. Raises
        PriceInvalid."""
        if call.model is None and call.provider is None:
            return 0.0
        if call.prompt_tokens is None and call.completion_tokens is None:
            return None if call.status < 400 or call.status in BROKEN_OFF else 0.0
        if call.model is None:
            return 0.0 if call.prompt_tokens == call.completion_tokens == 0 else None
        price = self._price(call.model, call.provider)
        if price is None:
            return None
        cached = call.cached_tokens or 0
        return price.of(call.prompt_tokens or 0, cached, call.completion_tokens or 0)


K = TypeVar("K", bound=Hashable)
NOTHING = Usage()
EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Cost:
    """The calls of one stage, model and step of a run (None: an evaluation). `retries` are tries
    before the answered ones, `dollars` is None where the price is unknown, and `endpoint` where
    nothing says which of several answered."""

    run: str | None
    step: int | None
    stage: str
    model: str
    retries: int
    usage: Usage
    dollars: float | None
    endpoint: str | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """Costs, added up. `unknown` names the models without a price, which `priced`, the dollars of
    the others, leaves out."""

    usage: Usage = NOTHING
    retries: int = 0
    priced: float = 0.0
    unknown: tuple[str, ...] = ()

    @property
    def dollars(self) -> float | None:
        """What all of it cost; None where a price is unknown."""
        return None if self.unknown else self.priced

    @property
    def words(self) -> str:
        """The dollars as people read them, and whether they leave something out."""
        if not self.unknown:
            return money(self.priced)
        return f"{money(self.priced)} + unknown" if self.priced else "unknown"

    def plus(self, cost: Cost) -> Total:
        """The sum with another cost."""
        unknown = self.unknown
        if cost.dollars is None and cost.model not in unknown:
            unknown = (*unknown, cost.model)
        return Total(
            Usage._make(a + b for a, b in zip(self.usage, cost.usage, strict=True)),
            self.retries + cost.retries,
            self.priced + (cost.dollars or 0.0),
            unknown,
        )


def costs(
    store: Store, overrides: Mapping[str, Any], run: Run | None = None, base_url: str | None = None
) -> list[Cost]:
    """What a run, or everything in the store, has cost, in the order of the calls, with [prices] as
    `overrides` and the address of models that no run names. Raises PriceInvalid."""
    pricing = Pricing(store, overrides, base_url)
    return [
        pricing.cost(spent) for spent in store.runs.spent(run, by_endpoint=names_endpoints(run))
    ]


def names_endpoints(run: Run | None) -> bool:
    """Whether answers of a run, or of the store, may name the endpoint that gave them: one of
    several, or that of a reflection model elsewhere."""
    models = {} if run is None else run.config["models"]
    return run is None or bool(models.get("endpoints") or models.get("reflection_base_url"))


class Pricing:
    """What calls cost at today's prices; a price is looked up once."""

    def __init__(
        self, store: Store, overrides: Mapping[str, Any], base_url: str | None = None
    ) -> None:
        self._runs = {run.id: run for run in store.runs.all()}
        self._known: dict[str, str | None] = {}
        for one in self._runs.values():
            self._known.update(addresses(one))
        self._at, self._base_url = _cached(overrides), base_url

    def cost(self, spent: Spent) -> Cost:
        """What calls of one kind have cost, at the endpoint that answered. Raises PriceInvalid."""
        of = self._runs[spent.run] if spent.run is not None else None
        at = spent.endpoint
        per = self._price(spent.model, of) if at is None else self._at(spent.model, at)
        usage, dollars = spent.usage, None
        if per is not None:
            dollars = per.of(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
        name, kind = of.name if of else None, (spent.step, spent.stage, spent.model)
        return Cost(name, *kind, spent.retries, usage, dollars, at)

    def _price(self, model: str, of: Run | None) -> Price | None:
        address = addresses(of).get(model) if of else self._known.get(model, self._base_url)
        return self._at(model, address)


def addresses(run: Run) -> dict[str, str | None]:
    """The models that a run asks, and where."""
    models = run.config["models"]
    policy, reflection = models["model"], models.get("reflection_model")
    known: dict[str, str | None] = {policy: models.get("base_url")}
    if reflection is not None and reflection not in known:
        known[reflection] = models.get("reflection_base_url") or models.get("base_url")
    return known


def total(parts: Iterable[Cost]) -> Total:
    """The sum of costs."""
    return reduce(Total.plus, parts, Total())


def group_by(parts: Iterable[Cost], key: Callable[[Cost], K]) -> dict[K, Total]:
    """The sums of costs that share a key, in the order in which the keys come up."""
    sums: dict[K, Total] = {}
    for cost in parts:
        sums[key(cost)] = sums.get(key(cost), Total()).plus(cost)
    return sums


def spent(store: Store, run: Run, overrides: Mapping[str, Any], *, in_tokens: bool) -> float:
    """What a budget has to count as spent by a run that goes on: tokens or dollars."""
    spending = total(costs(store, overrides, run))
    if in_tokens:
        return spending.usage.prompt_tokens + spending.usage.completion_tokens
    return spending.priced


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
        """The sums of each step, and after them of what belongs to none: evaluations, those of the
        gate too."""
        ordered = sorted(self.costs, key=lambda one: (one.step is None, one.step or 0))
        return group_by(
            ordered, lambda one: "evaluation" if one.step is None else f"step {one.step + 1}"
        )

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
    answered = group_by((one for one in calls if one.endpoint), lambda one: one.endpoint or "")
    sums = {endpoint: answered[endpoint] for endpoint in sorted(answered)}
    return CostReport(run, calls, store.runs.estimated(run), sums)


def cached_share(sums: Total) -> float:
    """The share of prompts' tokens that a server had cached."""
    return round(sums.usage.cached_tokens / max(1, sums.usage.prompt_tokens), 4)


def cost_by_day(
    store: Store, prices: Mapping[str, Any], run: Run | None = None, base_url: str | None = None
) -> dict[date, Total]:
    """The sums of each day (UTC) with a call, oldest first. Raises PriceInvalid."""
    pricing = Pricing(store, prices, base_url)
    days: dict[int, list[Cost]] = {}
    for day, spent in store.runs.spent_by_day(run, by_endpoint=names_endpoints(run)):
        days.setdefault(day, []).append(pricing.cost(spent))
    return {EPOCH + timedelta(days=day): total(days[day]) for day in sorted(days)}


def _object(one: Cost) -> dict[str, Any]:
    return {
        "run": one.run,
        "step": one.step,
        "stage": one.stage,
        "model": one.model,
        **one.usage._asdict(),
        "retries": one.retries,
        "dollars": one.dollars,
        "endpoint": one.endpoint,
    }


def _totals(sums: Total) -> dict[str, Any]:
    return {
        **sums.usage._asdict(),
        "retries": sums.retries,
        "dollars": sums.dollars,
        "unknown_prices": list(sums.unknown),
    }
