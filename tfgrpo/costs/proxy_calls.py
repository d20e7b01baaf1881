"""What calls through the proxy cost when they are looked at, by tokens on record and the prices
at the address that was asked (`costs/prices.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfgrpo.costs import prices
from tfgrpo.store.activity.traffic import CallRecord, MeasuredCall


class Dollars:
    """The prices of calls, each model's looked up once."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._table = table
        self._known: dict[tuple[str, str], prices.Price | None] = {}

    def of(self, call: CallRecord | MeasuredCall) -> float | None:
        """What a call cost, in US dollars; None where that is not known. One that failed without
        a word of tokens cost nothing. Raises PriceInvalid."""
        if call.prompt_tokens is None and call.completion_tokens is None:
            return 0.0 if call.status >= 400 and call.status < 499 else None
        if call.model is None or call.provider is None:
            return None
        key = call.model, call.provider
        if key not in self._known:
            self._known[key] = prices.find(*key, self._table)
        price = self._known[key]
        if price is None:
            return None
        cached = call.cached_tokens or 0
        return price.of(call.prompt_tokens or 0, cached, call.completion_tokens or 0)
