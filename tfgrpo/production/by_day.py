"""Production over time: each day's figures, rollouts, the bounds that were crossed, and how much of
a month's budget is spent.

One pass over the record of traffic gives all figures. Days and months are those of UTC; a day or
month without calls is left out. The cost of a call is unknown where its model's price or its tokens
are unknown; a call that asked no model cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any, NamedTuple

from tfgrpo.costs.accounts import Dollars
from tfgrpo.store.activity.decisions import decide, decisions
from tfgrpo.store.activity.traffic_figures import (
    LiveFigures,
    by_dimension,
    figures,
    grouped,
    served,
)
from tfgrpo.store.errors import InvalidOperation, StaleVersion
from tfgrpo.store.history.revisions import BRANCH
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.records import in_utc
from tfgrpo.store.store import Store
from tfgrpo.wording import plural

KIND = "bounds"
"""The kind of the decisions that set bounds."""
EVERY = "production"
"""What those decisions are about."""
DAY = 86_400_000_000
MOST_ROLLOUTS = 50
"""Moves of a branch that are told of."""
NEARLY = 0.8
"""The part of a budget that is told of before all of it is spent."""


class DayFigures(NamedTuple):
    """A day's calls under a version, or under all of them, in figures."""

    day: date
    figures: LiveFigures


class Rollout(NamedTuple):
    """A branch that was put at another version: when (microseconds since 1970), and to what."""

    time: int
    branch: str
    version: str
    author: str

    @property
    def day(self) -> date:
        """The day on which that was."""
        return in_utc(self.time).date()


class ProductionReport(NamedTuple):
    """Calls in figures: by version, by day, and by day and version, the newest first."""

    versions: list[LiveFigures]
    days: list[DayFigures]
    by_day: list[DayFigures]


class Bounds(NamedTuple):
    """When a day's figures are an alert: a share of failed calls above the bound, a mean score
    below, a 95 % latency above (milliseconds), dollars above. `month` is the budget of a calendar
    month, in dollars. None: no bound."""

    errors: float | None = None
    score: float | None = None
    latency: float | None = None
    dollars: float | None = None
    month: float | None = None


class MonthSpending(NamedTuple):
    """What the calls on record of a month cost; of `unpriced` ones that is unknown."""

    month: str
    dollars: float
    unpriced: int


def production_report(path: str, since: int, prices: Mapping[str, Any]) -> ProductionReport:
    """Returns the calls since then (microseconds) in figures; the first day is whole, as a bound
    is one of a day. Raises StoreError, PriceInvalid."""
    cost = Dollars(prices).of
    with closing(open_traffic(path)) as traffic:
        calls = traffic.measured(since // DAY * DAY)
    by_day: list[DayFigures] = []
    whole: list[DayFigures] = []
    for number, of_day in sorted(grouped(calls, lambda call: call.time // DAY).items())[::-1]:
        day = in_utc(number * DAY).date()
        whole.append(DayFigures(day, figures("every version", of_day, cost)))
        versions = sorted(grouped(of_day, served).items())
        by_day += [DayFigures(day, figures(name, some, cost)) for name, some in versions]
    later = [call for call in calls if call.time >= since]
    return ProductionReport(by_dimension(later, "version", cost), whole, by_day)


def month_began(now: int) -> int:
    """Returns when the calendar month of a time began (both microseconds since 1970)."""
    today = in_utc(now)
    return int(datetime(today.year, today.month, 1, tzinfo=UTC).timestamp()) * 1_000_000


def month_spending(path: str, began: int, prices: Mapping[str, Any]) -> MonthSpending:
    """Returns what the calls since a month began cost. Raises StoreError, PriceInvalid."""
    cost = Dollars(prices).of
    with closing(open_traffic(path)) as traffic:
        alike = [(cost(calls), calls.calls) for calls in traffic.tokens(began)]
    return MonthSpending(
        f"{in_utc(began):%B %Y}",
        sum(dollars for dollars, _ in alike if dollars is not None),
        sum(number for dollars, number in alike if dollars is None),
    )


def rollouts(store: Store, branches: Iterable[str], since: int) -> list[Rollout]:
    """Returns the moves of these branches since a time (microseconds): the last moves of each
    branch, oldest first."""
    moves = [
        Rollout(move.time, branch, f"v{move.version}", move.author)
        for branch in branches
        for move in islice(store.port.names.ref_log(BRANCH + branch), MOST_ROLLOUTS)
        if move.time >= since and move.version is not None
    ]
    return sorted(moves, key=lambda one: one.time)


def bounds(store: Store) -> tuple[Bounds, int]:
    """Returns the bounds that are set, and how often some were."""
    listed = decisions(store, kind=KIND, subject=EVERY)
    if not listed:
        return Bounds(), 0
    values = listed[-1].content
    return Bounds(*(values.get(name) for name in Bounds._fields)), len(listed)


def set_bounds(store: Store, new: Bounds, *, seen: int) -> None:
    """Sets the bounds, on record. `seen` is how often some were set before, as whoever asks saw
    it. Raises StaleVersion where somebody did since, InvalidOperation for a bound that is none."""
    if any(value is not None and value < 0 for value in new):
        raise InvalidOperation("a bound is a number from 0 on")
    with store.port.transaction():
        if bounds(store)[1] != seen:
            raise StaleVersion("somebody has set other bounds meanwhile")
        decide(store, KIND, EVERY, new._asdict())


def crossed(day: DayFigures, set_to: Bounds) -> dict[str, str]:
    """Returns which bounds a day crosses: name → in words. Where a bound on the cost is not crossed
    by what is known, `unpriced` says how many calls have an unknown one."""
    late, score, failed = day.figures.p95 / 1000, day.figures.score, day.figures.failed
    known, unknown = day.figures.dollars or 0.0, day.figures.unpriced
    alerts, (errors, least, latency, dollars, _) = {}, set_to
    if errors is not None and failed > errors:
        alerts["errors"] = f"{failed:.1%} of calls failed, more than {errors:.1%}"
    if least is not None and score is not None and score < least:
        alerts["score"] = f"the mean score is {score:.3f}, less than {least:g}"
    if latency is not None and late > latency:
        alerts["latency"] = f"95 % of calls take up to {late:,.0f} ms, more than {latency:,.0f}"
    if dollars is not None and known > dollars:
        at_least = "at least " * bool(unknown)
        alerts["dollars"] = f"the calls cost {at_least}${known:,.2f}, more than ${dollars:,.2f}"
    elif dollars is not None and unknown:
        alerts["unpriced"] = f"the cost is unknown for {plural(unknown, 'call')}"
    return alerts


def budget_alert(spent: MonthSpending, budget: float) -> dict[str, str]:
    """Returns the strongest notice that is due about a month's budget: that all of it or nearly all
    is spent, or for how many calls the cost is unknown. How much → in words."""
    least = "at least " if spent.unpriced else ""
    words = f"the calls of the month cost {least}${spent.dollars:,.2f}"
    if spent.dollars > budget:
        return {"all": f"{words}, more than the budget of ${budget:,.2f}"}
    if spent.dollars > NEARLY * budget:
        return {"nearly": f"{words}, more than {NEARLY:.0%} of the budget of ${budget:,.2f}"}
    if spent.unpriced:
        return {"unpriced": f"the cost is unknown for {plural(spent.unpriced, 'call')}"}
    return {}
