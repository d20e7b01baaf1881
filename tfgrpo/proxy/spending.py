"""What calls come to in dollars, as they are recorded; budgets are watched, and it is told.

It works in the process that records calls. A call whose price is not known costs nothing here, and
the log names its model once. A budget is told of at four fifths and when it is spent, once in its
period: in the log, and at the webhook where one is set.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from threading import Thread
from typing import Any, NamedTuple

from tfgrpo.costs.accounts import Dollars
from tfgrpo.production.webhook import post_webhook
from tfgrpo.proxy.keys_and_limits import today
from tfgrpo.store.activity.key_ledger import Budget
from tfgrpo.store.activity.traffic import CallRecord
from tfgrpo.store.errors import StoreError
from tfgrpo.store.opening import open_ledger

LEVELS = (0.8, 1.0)
"""Parts of a budget that are told of."""
LEAVE = 6.0
"""Seconds that a webhook has at the end."""
AGAIN = 30.0
"""Seconds after which a webhook that could not be reached is tried again."""


class SpendingSettings(NamedTuple):
    """Where the ledger lies, the table of prices, (scope, dollars, period) of each budget, and what
    is told of them."""

    ledger: str
    prices: Mapping[str, Any]
    budgets: list[tuple[str, float, str]]
    webhook: str | None
    home: str
    """The library that a revision alone is of."""


class Spending:
    """Adds calls up. `tell` is called with a line for the log."""

    def __init__(self, settings: SpendingSettings, tell: Callable[[str], None]) -> None:
        self._settings = settings
        self._tell = tell
        self._dollars = Dollars(settings.prices)
        self._waiting: dict[tuple[str, str], float] = defaultdict(float)
        self._unknown: set[str] = set()
        self._trouble = False
        self._again = 0.0
        self._watching: Thread | None = None
        self._due = False
        """Whether something was spent since budgets were looked at."""

    def add(self, calls: Iterable[CallRecord]) -> None:
        """Adds calls that were just recorded."""
        for call in calls:
            dollars = self._dollars.of(call)
            if dollars is None:
                self._warn_of_price(call)
                continue
            day = time.strftime("%Y-%m-%d", time.gmtime(call.time / 1e6))
            library = (call.library or "none").partition("@")[0] or self._settings.home
            scopes = ["all", f"library:{library}"]
            if call.key is not None:
                scopes.append(f"key:{call.key}")
            for scope in scopes:
                self._waiting[scope, day] += dollars
        try:
            self._write()
            self._trouble = False
        except StoreError as error:
            if not self._trouble:
                self._tell(f"what was spent is not recorded: {error}")
            self._trouble = True

    def _warn_of_price(self, call: CallRecord) -> None:
        model = f"{call.model} at {call.provider}"
        if model not in self._unknown and call.prompt_tokens is not None:
            self._unknown.add(model)
            self._tell(f"the price of {model} is not known: no budget counts it")

    def _write(self) -> None:
        ledger = open_ledger(self._settings.ledger, create=True)
        try:
            ledger.spend(self._waiting)
            self._waiting.clear()
        finally:
            ledger.close()
        self._due = True
        busy = self._watching is not None and self._watching.is_alive()
        if not busy and time.monotonic() >= self._again:
            self._watching = Thread(target=self._watch, daemon=True)
            self._watching.start()

    def close(self) -> None:
        """Gives what is being told a moment to be."""
        if self._watching is not None:
            self._watching.join(LEAVE)

    def _watch(self) -> None:
        """Tells of budgets, in a thread of its own: the record waits for no webhook."""
        try:
            while self._due and time.monotonic() >= self._again:
                self._due = False
                self._tell_of_budgets()
        except StoreError as error:
            self._tell(f"budgets are not watched: {error}")

    def _tell_of_budgets(self) -> None:
        ledger = open_ledger(self._settings.ledger, create=True)
        try:
            budgets = [(s, Budget(dollars, per)) for s, dollars, per in self._settings.budgets]
            for key in ledger.virtual_keys():
                if key.revoked is None and key.limits.budget is not None:
                    budgets.append((f"key:{key.name}", key.limits.budget))
            notes, spent = ledger.notes(), ledger.spent("")
            for scope, budget in budgets:
                began = budget.began(today())
                sums = [v for (of, day), v in spent.items() if of == scope and day >= began]
                for level in LEVELS:
                    note = f"{scope} {budget} {began} {level}"
                    if sum(sums) >= level * budget.dollars and note not in notes:
                        if not self._announce(scope, budget, sum(sums)):
                            return
                        ledger.note(note)
        finally:
            ledger.close()

    def _announce(self, scope: str, budget: Budget, spent: float) -> bool:
        """Tells of a budget; returns whether that could be done."""
        text = f"budget of {scope}: ${spent:.4g} of {budget} spent"
        self._tell(text)
        if self._settings.webhook is None:
            return True
        event = {"event": "budget", "scope": scope, "spent": spent, "budget": budget.dollars}
        why = post_webhook(self._settings.webhook, {**event, "per": budget.per, "text": text})
        if why is not None:
            self._tell(f"the webhook was not told: {why}")
            self._again = time.monotonic() + AGAIN
        return why is None
