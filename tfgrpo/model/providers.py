"""The endpoints that people have: how each is set up, and what there is to know of it.

One table for three readers: `docs/models.md` prints a block of settings for each (`python
docs/providers.py` writes them), `key_for` knows from it whose key is whose, and
`tests/providers/` runs a small training on a stand-in of each, made after its public
documentation, with these very settings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tfgrpo.model.endpoint import EndpointError
from tfgrpo.model.http_connection import LOOPBACK, OPENAI_HOST, host_of, on_loopback
from tfgrpo.model.secrets import know
from tfgrpo.toml_text import toml_key, toml_value


@dataclass(frozen=True, slots=True)
class Provider:
    """An endpoint that people have.

    `settings` are those of [model] in `tfgrpo.toml`. `key` is the variable that its own
    documentation keeps the key in, empty where it needs none; `hosted` says that its address is
    the provider's own, the same for everybody. `start` starts a server of one's own, or sets the
    environment; `note` is what there is to know, in Markdown, and `source` its documentation.
    """

    id: str
    title: str
    settings: Mapping[str, Any]
    note: str
    source: str
    key: str = ""
    hosted: bool = False
    start: str = ""

    @property
    def base_url(self) -> str | None:
        """Its address; None for OpenAI's."""
        return self.settings.get("base_url")


with Path(__file__).with_name("providers.toml").open("rb") as file:
    PROVIDERS = tuple(Provider(**table) for table in tomllib.load(file)["provider"])


def provider_at(base_url: str | None) -> Provider | None:
    """The provider whose address this is: by its host, or on this machine by its port."""
    try:
        parts = urlsplit(base_url or f"https://{OPENAI_HOST}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    for provider in PROVIDERS:
        known = urlsplit(provider.base_url or f"https://{OPENAI_HOST}")
        if known.hostname in LOOPBACK:
            if host in LOOPBACK and port == known.port:
                return provider
        elif provider.hosted and host == known.hostname:
            return provider
    return None


def settings_toml(settings: Mapping[str, Any], table: str = "model") -> str:
    """Settings as a table of `tfgrpo.toml`."""
    values = (f"{toml_key(name)} = {toml_value(value)}" for name, value in settings.items())
    lines = [f"[{table}]", *values]
    return "\n".join(lines) + "\n"


ANY_HOST = "TFGRPO_API_KEY"
OPENAI_KEY = "OPENAI_API_KEY"
OPENAI_ADDRESS = "OPENAI_BASE_URL"


def key_for(base_url: str | None, name: str | None, environment: Mapping[str, str]) -> str | None:
    """The key for an address (None: OpenAI's), from the variable that is named or the usual ones;
    None where the host may need none. White space around a key is none of it. Raises
    EndpointError, also for a key that no header can carry, which is not repeated."""
    variable = key_variable(base_url, name, environment)
    if variable is None:
        return None
    if key := _key_in(variable, environment):
        return key
    if name is not None:
        raise EndpointError(f"environment variable {name} is not set", hint=f"export {name}=…")
    if base_url is None:
        raise EndpointError(
            "no API key",
            hint="set OPENAI_API_KEY or TFGRPO_API_KEY, use a server with --base-url, "
            "or use a local model: --model local:qwen2.5-coder-1.5b",
        )
    if on_loopback(base_url):
        return None
    raise EndpointError(
        f"no API key for {host_of(base_url)}",
        hint=f"set {variable}, or name the variable that has it: --api-key-env NAME",
    )


def key_variable(
    base_url: str | None, name: str | None, environment: Mapping[str, str]
) -> str | None:
    """The variable that holds the key for an address: the one that is named, or of the usual ones
    the one that is read. None where none is."""
    if name is not None or not environment.get(ANY_HOST, "").strip():
        return name or own_variable(base_url, environment)
    return ANY_HOST


def _key_in(name: str, environment: Mapping[str, str]) -> str | None:
    key = environment.get(name, "").strip()
    if not (key.isascii() and key.isprintable()):  # HTTP would quote it in what it says of it
        raise EndpointError(
            f"the environment variable {name} contains invalid characters",
            hint=f"set {name} again: a key has letters, digits and signs of ASCII",
        )
    return know(key, name) if key else None


def own_variable(base_url: str | None, environment: Mapping[str, str]) -> str | None:
    """The variable whose key belongs to an address without being named, or None."""
    named = environment.get(OPENAI_ADDRESS)
    if base_url and named and base_url.rstrip("/") == named.rstrip("/"):
        return OPENAI_KEY
    if host_of(base_url).endswith(f".{OPENAI_HOST}"):
        return OPENAI_KEY
    provider = provider_at(base_url)
    return (provider.key or None) if provider is not None else None


def unsent_key(base_url: str | None, environment: Mapping[str, str]) -> str | None:
    """What to say where `OPENAI_API_KEY` is set and not sent to an address, or None."""
    if base_url is None or on_loopback(base_url) or not environment.get(OPENAI_KEY):
        return None
    if environment.get(ANY_HOST) or own_variable(base_url, environment) is not None:
        return None
    return (
        f"OPENAI_API_KEY is not sent to {host_of(base_url)}; "
        "if it is for that host, name it: --api-key-env OPENAI_API_KEY"
    )
