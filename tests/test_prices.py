"""What tokens cost: the settings file first, the installed catalogue next, never a guess."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

import tfgrpo
from tfgrpo.costs.prices import FREE, ModelPrices, Price, PriceInvalid, find
from tfgrpo.model.settings import ModelSettings


def test_prices_of_the_settings_file_win_and_a_local_model_is_free() -> None:
    prices: dict[str, Any] = {
        "m": {"prompt": 0.27, "completion": 1, "cached": 0.07},
        "gpt-4o-mini": {"prompt": 1, "completion": 2},
        "n": {"prompt": 1},
    }
    assert find("m", None, prices) == Price(0.27, 1.0, 0.07)
    assert find("gpt-4o-mini", None, prices) == Price(1.0, 2.0)
    assert find("local:any", None, prices) == FREE
    for bad in (prices["n"], {"prompt": "cheap", "completion": 1}, {"per_call": 1}, 5, None):
        with pytest.raises(PriceInvalid, match="'n'") as caught:
            find("n", None, {"n": bad})
        assert caught.value.hint
    with pytest.raises(PriceInvalid):
        find("n", None, {"n": {"prompt": -1, "completion": 1}})


def test_the_catalogue_is_asked_for_the_provider_at_the_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    openai = find("gpt-4o-mini", None, {})
    assert openai is not None
    assert 0 < (openai.cached or 0) < openai.prompt < openai.completion
    deepseek = find("deepseek-chat", "https://api.deepseek.com/v1", {})
    assert deepseek is not None
    assert deepseek != openai


@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("gpt-4o-mini", "http://127.0.0.1:8000/v1"),
        ("gpt-4o-mini", "https://llm.example.com/v1"),
        ("a-model-that-nobody-sells", None),
        ("deepseek-chat", None),
    ],
)
def test_a_price_that_is_not_known_for_sure_is_unknown(model: str, base_url: str | None) -> None:
    assert find(model, base_url, {}) is None


@pytest.mark.parametrize("base_url", [None, "https://llm.example.com/v1"])
def test_a_session_of_ones_own_has_the_prices_of_its_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base_url: str | None
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")
    models = ModelSettings(model="gpt-4o-mini", base_url=base_url)

    async def prices() -> ModelPrices:
        with tfgrpo.Store.init(tmp_path) as store:
            async with tfgrpo.open_session(store, models) as session:
                return session.prices

    price = find("gpt-4o-mini", base_url, {})
    assert asyncio.run(prices()) == ModelPrices(price, price)


def test_a_price_with_tiers_counts_as_below_the_first() -> None:
    price = find("claude-sonnet-4-5", "https://api.anthropic.com/v1/", {})
    assert price is not None
    assert (price.prompt, price.completion) == (3.0, 15.0)
