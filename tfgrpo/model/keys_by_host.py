"""Which key is sent to which host: to its own, or to one that it was named for.

`TFGRPO_API_KEY` and a variable that is named (`--api-key-env`) go to the address that is asked.
Without either, a provider's own variable goes to its host, and `OPENAI_API_KEY` to OpenAI's or to
the address in `OPENAI_BASE_URL`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfgrpo.model.endpoint import EndpointError
from tfgrpo.model.http_connection import OPENAI_HOST, host_of, on_loopback
from tfgrpo.model.providers import provider_at
from tfgrpo.model.secrets import know

ANY_HOST = "TFGRPO_API_KEY"
OPENAI_KEY = "OPENAI_API_KEY"
OPENAI_ADDRESS = "OPENAI_BASE_URL"


def key_for(base_url: str | None, name: str | None, environment: Mapping[str, str]) -> str | None:
    """The key for an address (None: OpenAI's), from the variable that is named or the usual ones;
    None where the host may need none. Raises EndpointError."""
    if name is not None:
        if not environment.get(name):
            raise EndpointError(f"environment variable {name} is not set", hint=f"export {name}=…")
        return know(environment[name], name)
    if environment.get(ANY_HOST):
        return know(environment[ANY_HOST], ANY_HOST)
    own = own_variable(base_url, environment)
    if own is None:
        return None
    if environment.get(own):
        return know(environment[own], own)
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
        hint=f"set {own}, or name the variable that has it: --api-key-env NAME",
    )


def own_variable(base_url: str | None, environment: Mapping[str, str]) -> str | None:
    """The variable whose key belongs to an address without being named, or None."""
    if _same(base_url, environment.get(OPENAI_ADDRESS)):
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


def _same(base_url: str | None, other: str | None) -> bool:
    return bool(base_url and other) and str(base_url).rstrip("/") == str(other).rstrip("/")
