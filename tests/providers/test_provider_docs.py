"""`docs/models.md` has a block of settings for each provider, from the table that the tests use."""

from __future__ import annotations

import re
import runpy
import tomllib

import pytest
from conftest import ROOT
from documented import STAND_INS

from tfgrpo.model.providers import PROVIDERS, Provider, provider_at, settings_toml
from tfgrpo.model.settings import ModelSettings

PAGE = (ROOT / "docs/models.md").read_text(encoding="utf-8")


def test_the_page_is_what_its_writer_writes() -> None:
    written = runpy.run_path(str(ROOT / "docs/providers.py"))["written"]
    assert written(PAGE) == PAGE, "run: python docs/providers.py"


def test_every_provider_has_a_stand_in_and_every_stand_in_a_provider() -> None:
    assert {provider.id for provider in PROVIDERS} == STAND_INS.keys()


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
def test_a_block_is_settings_that_can_be_used(provider: Provider) -> None:
    section = PAGE[PAGE.index(f"### {provider.title}\n") :]
    block = re.search(r"```toml\n(.*?)```", section, re.DOTALL)
    assert block is not None
    assert tomllib.loads(block[1]) == {"model": dict(provider.settings)}
    assert ModelSettings(**tomllib.loads(settings_toml(provider.settings))["model"])
    if provider.hosted or not provider.key:
        found = provider_at(provider.base_url)
        assert found is not None
        assert found.base_url == provider.base_url


def test_every_other_block_of_settings_on_the_page_can_be_used() -> None:
    for block in re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL):
        table = tomllib.loads(block).get("model")
        if table is not None:
            ModelSettings(**table)
