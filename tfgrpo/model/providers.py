"""The endpoints that people have: how each is set up, and what there is to know of it.

One table for three readers: `docs/models.md` prints a block of settings for each (`python
docs/providers.py` writes them), `keys_by_host.py` knows from it whose key is whose, and
`tests/providers/` runs a small training on a stand-in of each, made after its public
documentation, with these very settings.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tfgrpo.model.http_connection import LOOPBACK, OPENAI_HOST


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
    lines = [f"[{table}]", *(f"{_name(k)} = {_toml(value)}" for k, value in settings.items())]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_name(name)} = {_toml(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _name(name: str) -> str:
    bare = name.replace("_", "").replace("-", "").isalnum() and name.isascii()
    return name if bare else json.dumps(name)
