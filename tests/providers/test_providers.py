"""A whole small run on every endpoint that people have, with the settings of `docs/models.md`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from documented import STAND_INS
from scripted import LESSON, stage, write_problems
from standins import AUTHORITY, Server

import tfgrpo
from tfgrpo.model.endpoint import Endpoint, Request, Transient
from tfgrpo.model.http_connection import CertificatesUnreadable
from tfgrpo.model.providers import PROVIDERS, Provider, settings_toml
from tfgrpo.notices import Notice, WarningNotice

SMALL = {"epochs": 1, "batch_size": 4, "group_size": 2, "patience": "5s", "policy": "paper"}
BY_ID = {provider.id: provider for provider in PROVIDERS}


def at(address: str, base_url: str) -> str:
    """Returns an address on loopback in place of one, with its path and query."""
    parts, here = urlsplit(base_url), urlsplit(address)
    return urlunsplit(parts._replace(scheme=here.scheme, netloc=here.netloc))


def is_local(provider: Provider) -> bool:
    return "127.0.0.1" in (provider.base_url or "")


def prepare(
    provider: Provider, server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """Writes a folder with a provider's settings, and leads its address to the stand-in: on this
    machine by the port, elsewhere through the proxy. Returns the settings."""
    monkeypatch.chdir(folder)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "TFGRPO_API_KEY", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    settings = dict(provider.settings)
    if is_local(provider):
        settings["base_url"] = at(server.address, settings["base_url"])
        server.key = ""
    else:
        monkeypatch.setenv("HTTPS_PROXY", server.address)
        monkeypatch.setenv("SSL_CERT_FILE", str(AUTHORITY))
        monkeypatch.setenv(provider.key, server.key)
    monkeypatch.setenv("APIM_KEY", "apim-secret-4242")
    (folder / "tfgrpo.toml").write_text(settings_toml(settings))
    write_problems(folder / "problems.jsonl", 4)
    return settings


THINKING_OFF = {"enable_thinking": False}
SENT: dict[str, tuple[tuple[str, object, object], ...]] = {
    "openai-reasoning": (("reasoning_effort", "medium", "low"), ("temperature", None, None)),
    "openrouter": (("provider", *(2 * [{"require_parameters": True}])),),
    "gemini": (("reasoning_effort", "low", "low"), ("seed", None, None)),
    "vllm": (("chat_template_kwargs", None, THINKING_OFF),),
    "sglang": (("chat_template_kwargs", None, THINKING_OFF),),
}
"""Fields of requests that were answered: what attempts sent, and what reflection did."""


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.id)
def test_a_small_run_learns_the_same_library_everywhere(
    provider: Provider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices: list[Notice] = []
    with Server(STAND_INS[provider.id]) as server:
        prepare(provider, server, tmp_path, monkeypatch)
        result = tfgrpo.train_sync("problems.jsonl", on_progress=notices.append, **SMALL)
    assert [experience.text for experience in result.library] == [LESSON]
    assert result.report.failed == result.report.refused == 0
    rollouts = tfgrpo.Store.open(tmp_path / ".tfgrpo/store.db").rollouts(result.run.name)
    assert sorted(row.reward for row in rollouts) == [0.0] * 4 + [1.0] * 4
    host = urlsplit(provider.base_url or "https://api.openai.com").hostname
    assert server.served.hosts == (set() if is_local(provider) else {host})
    for name, *values in SENT.get(provider.id, ()):
        for attempts, value in zip((True, False), values, strict=True):
            bodies = [b for b in server.served.answered if (stage(b) == "rollout") == attempts]
            assert bodies
            assert all(body.get(name) == value for body in bodies), name
    told = [str(notice) for notice in notices if isinstance(notice, WarningNotice)]
    assert (server.key or "sk-") not in json.dumps(told)


def test_a_certificate_of_an_unknown_authority_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        endpoint = Endpoint("m", "https://llm.example.com/v1", "k", 10.0)
        try:
            await endpoint.ask(Request("check", (("user", "hello"),), 0.0, 8))
        finally:
            await endpoint.close()

    with Server(STAND_INS["openai"], key="k") as server:
        monkeypatch.setenv("HTTPS_PROXY", server.address)
        monkeypatch.delenv("SSL_CERT_FILE", raising=False)
        with pytest.raises(Transient, match="SSL_CERT_FILE"):
            asyncio.run(ask())
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(AUTHORITY))
        asyncio.run(ask())
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "nowhere.pem"))
        with pytest.raises(CertificatesUnreadable, match=r"nowhere\.pem"):
            asyncio.run(ask())
