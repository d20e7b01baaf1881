"""What tokens cost: [prices] of `tfgrpo.toml`, then the installed catalogue of genai-prices for
a provider that the address names. An unknown price is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.exit_codes import NOT_BEGUN

if TYPE_CHECKING:
    from tfgrpo.model.endpoint import Answer
    from tfgrpo.model.settings import ModelSettings

LOCAL, TOOL = "local:", "tool:"


class PriceInvalid(TfgrpoError):
    """A price in the settings file that cannot be read."""

    exit_code = NOT_BEGUN


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars for a million tokens; `cached` are the prompt's, reasoning is completion."""

    prompt: float
    completion: float
    cached: float | None = None

    def cost(self, answer: Answer) -> float:
        """What an answer cost, in US dollars."""
        return self.of(answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens)

    def of(self, prompt_tokens: float, cached_tokens: float, completion_tokens: float) -> float:
        """The cost in US dollars; cached tokens are among the prompt's."""
        cached = self.prompt if self.cached is None else self.cached
        cached_tokens = min(cached_tokens, prompt_tokens)
        parts = (prompt_tokens - cached_tokens) * self.prompt + cached_tokens * cached
        return (parts + completion_tokens * self.completion) / 1e6


FREE = Price(0.0, 0.0)


def find(model: str, base_url: str | None, prices: Mapping[str, Any]) -> Price | None:
    """What a model costs at an address (None: the client's default): nothing if local, None if
    unknown. `prices` is `"name or address" = {prompt = 0.27, completion = 1.10, cached = 0.07}` in
    US dollars for a million tokens. Raises PriceInvalid."""
    if model.startswith((LOCAL, TOOL)):
        return FREE
    named = base_url if base_url is not None and base_url in prices else model
    if named not in prices:
        return _catalogue(model, base_url)
    try:
        price = Price(**{name: float(value) for name, value in prices[named].items()})
        amounts = (price.prompt, price.completion, price.cached or 0.0)
        if all(0 <= amount < inf for amount in amounts):
            return price
    except (TypeError, ValueError, AttributeError):
        pass
    raise PriceInvalid(
        f"[prices] {named!r} cannot be read",
        hint='write "name" = {prompt = 0.27, completion = 1.10}',
    )


def _catalogue(model: str, base_url: str | None) -> Price | None:
    from genai_prices import Usage, calc_price

    try:
        if base_url is None:
            price = calc_price(Usage(), model, provider_id="openai").model_price
        else:
            price = calc_price(Usage(), model, provider_api_url=base_url).model_price
    except LookupError:
        return None

    def base(value: Any) -> float | None:
        """A tier's price below its first threshold: calls here are far shorter."""
        return None if value is None else float(getattr(value, "base", value))

    prompt, completion = base(price.input_mtok), base(price.output_mtok)
    if prompt is None or completion is None:
        return None
    return Price(prompt, completion, base(price.cache_read_mtok))


@dataclass(frozen=True, slots=True)
class ModelPrices:
    """What the models of a run cost; None where a price is unknown."""

    policy: Price | None = None
    reflection: Price | None = None

    @property
    def known(self) -> bool:
        """Whether every price is."""
        return None not in (self.policy, self.reflection)


def model_prices(models: ModelSettings, prices: Mapping[str, Any]) -> ModelPrices:
    """What the models of a run cost, with the settings' table `prices`. Raises PriceInvalid."""
    policy = reflection = find(models.model, models.base_url, prices)
    if models.reflection_model or models.reflection_base_url:
        address = models.reflection_base_url or models.base_url
        reflection = find(models.reflection_model or models.model, address, prices)
    return ModelPrices(policy, reflection)
