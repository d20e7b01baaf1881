"""What a proxy is told: where it listens, whom it asks, which libraries it has, and for whom."""

from __future__ import annotations

import base64
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tfgrpo.model.secrets import LONG
from tfgrpo.proxy.withheld_words import Finder
from tfgrpo.rendering.request_placement import ANTHROPIC, APIS, BEDROCK, GOOGLE, OPENAI
from tfgrpo.store.activity.key_ledger import Budget
from tfgrpo.store.errors import SettingsError
from tfgrpo.web_address import server_address

ADDRESSES = {
    OPENAI: "https://api.openai.com",
    ANTHROPIC: "https://api.anthropic.com",
    GOOGLE: "https://generativelanguage.googleapis.com",
}
"""The companies' own, which are asked where none is named; Bedrock has one in each region."""
KEYS = {
    OPENAI: "Authorization: Bearer ",
    ANTHROPIC: "x-api-key: ",
    GOOGLE: "x-goog-api-key: ",
    BEDROCK: "Authorization: Bearer ",
}
"""The header that each takes its key in."""
OUTBOUND = "http://proxy.example.com:3128"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
SHORTEST_TOKEN = 12
"""Characters of a token at least."""
RECORDS = ("off", "counts", "content")
URLS = {OPENAI: "upstream", **{api: api for api in APIS}}
VARIABLES = {OPENAI: "key_env", **{api: f"{api}_key_env" for api in APIS}}
"""By API, what a file calls its base URL and the variable that has its key."""
_version = re.compile(r"/v1(?:(?:alpha|beta)\d*)?\Z")


@dataclass(frozen=True, slots=True)
class OutboundProxy:
    """The proxy that stands between a company's network and providers: where it listens, and the
    header that it knows this program by."""

    host: str
    port: int
    credentials: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Upstream:
    """A provider: the address to connect to, what its paths begin with, whether that stands before
    the `/v1` of a request or in its place, and the query that every request gets."""

    host: str
    port: int
    tls: bool
    authority: str
    prefix: str
    before_v1: bool = True
    query: str = ""
    name: str = ""
    """What it is called on record: its base URL."""
    key: str = field(default="", repr=False)
    """The provider's own key, for callers with a virtual one."""
    api: str = OPENAI
    through: OutboundProxy | None = None

    def __hash__(self) -> int:
        return hash(self.authority)  # which is asked for in every request

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"

    @property
    def credentials(self) -> bytes:
        """The header with the provider's own key."""
        return (KEYS[self.api] + self.key).encode()

    def target(self, wanted: bytes) -> bytes:
        """Returns what is asked of the provider for the target of a request."""
        path, mark, query = wanted.partition(b"?")
        if not self.before_v1 and (path == b"/v1" or path.startswith(b"/v1/")):
            path = path[3:]
        if self.query:
            own = self.query.encode()
            mark, query = b"?", b"%b&%b" % (query, own) if query else own
        return b"".join((self.prefix.encode(), path, mark, query))

    def shown(self, path: str) -> str:
        """Returns the whole address that a request for a path leads to, without the query."""
        target = self.target(path.encode()).decode().partition("?")[0]
        return f"{'https' if self.tls else 'http'}://{self.authority}{target}"


@dataclass(frozen=True, slots=True)
class LibraryChoice:
    """One library that is served: a store, the revision that is in force unless a request names
    another, how many experiences go in (None: as many as in training), and the share that is left
    out of each request by chance, to learn what each is worth."""

    store: Path
    revision: str = "HEAD"
    top_k: int | None = None
    dropout: float = 0.0
    allow: tuple[str, ...] | None = None
    """The revisions beside its own that a request may name; None: any on loopback, none beyond."""

    def allows(self, revision: str, *, local: bool) -> bool:
        """Returns whether a request may name a revision."""
        return revision == self.revision or (
            local if self.allow is None else revision in self.allow
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """Which library a request gets whose header or field has a value: the same, or one that a
    regular expression is found in. `field` is a path in the body, such as `metadata.workflow`."""

    library: str
    header: str | None = None
    field: str | None = None
    equals: str | None = None
    matches: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What one worker takes on at most: bytes of a body and of a head, requests under way and
    connections; seconds for a connection upstream, for a whole request to arrive, and idle."""

    body: int = 64 << 20
    head: int = 64 << 10
    requests: int = 2048
    connections: int = 4096
    connect: float = 20.0
    arrive: float = 60.0
    idle: float = 75.0


@dataclass(frozen=True, slots=True)
class Provider:
    """One of several: its share of requests (0: only where the others fail), and the models that it
    serves, each with the name that it has there (None: all, as they are)."""

    upstream: Upstream
    weight: float = 1.0
    models: Mapping[str, str] | None = None

    def serves(self, model: str | None) -> bool:
        """Returns whether a request for a model may be sent there."""
        return self.models is None or model is None or model in self.models


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds until an answer has begun, and until it is over; None for any time."""

    first_byte: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True)
class SpendLimit:
    """US dollars in a period for all calls, or for those of one library; with `stop` more are
    refused, else that is told alone."""

    budget: Budget
    library: str | None = None
    stop: bool = False

    @property
    def scope(self) -> str:
        """What the spending counts under."""
        return "all" if self.library is None else f"library:{self.library}"


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """All that a proxy is told. Without a `token` it answers only on this machine.

    `record` is `off`, `counts`, or `content` for the words of calls too, less what a built-in
    pattern or a regular expression of `redact` finds; `keep` is for how many seconds (None: for
    good), and `sample` the share of calls whose words are kept. `drain` is how many seconds
    requests under way have when the proxy ends, and `access_log` a file that gets a line for each
    request. `tags` are the keys of a body's `metadata` that are recorded as tags of its call.
    `others` are the providers of APIs beside those two, by name.
    Where `personal` are countries, none or more, telephones and addresses of machines are taken out
    of words too. With `require_key` every request has a virtual key; `budgets` are watched by the
    table `prices`, and `webhook` is told. Where there are `providers`, they take the place of
    `openai` and `anthropic`, and what fails is sent again so many `retries`.
    """

    libraries: Mapping[str, LibraryChoice]
    default: str
    openai: Upstream
    anthropic: Upstream
    others: Mapping[str, Upstream] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8484
    token: str | None = None
    record: str = "counts"
    keep: float | None = 30 * 86400.0
    redact: tuple[str, ...] = ()
    sample: float = 1.0
    drain: float = 30.0
    access_log: str | None = None
    tags: tuple[str, ...] = ()
    personal: tuple[str, ...] | None = None
    require_key: bool = False
    budgets: tuple[SpendLimit, ...] = ()
    webhook: str | None = field(default=None, repr=False)
    prices: Mapping[str, Any] = field(default_factory=dict)
    providers: tuple[Provider, ...] = ()
    retries: int = 2
    timeouts: Timeouts = Timeouts()
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.record not in RECORDS:
            raise SettingsError(f"record is no {self.record!r}", hint=", ".join(RECORDS))
        Finder(self.redact, self.personal)
        if isinstance(self.sample, bool) or not 0 <= self.sample <= 1:
            raise SettingsError(f"sample is no {self.sample!r}", hint="a share, such as 0.1")
        if isinstance(self.drain, bool) or not 0 <= self.drain <= 86400:
            raise SettingsError(f"drain is no {self.drain!r}", hint="seconds, such as 30")
        if not isinstance(self.require_key, bool):
            raise SettingsError("require_key is true or false", hint="require_key = true")
        if self.require_key and not self.has_keys:
            raise SettingsError("require_key needs the provider's key", hint="name it: key_env")
        if self.record == "off" and (self.has_keys or self.budgets):
            raise SettingsError(
                "what is not recorded cannot be counted", hint='record = "counts", or no keys'
            )
        if self.host not in LOOPBACK and not (self.token or self.require_key):
            raise SettingsError(
                f"listening on {self.host} needs a token",
                hint="set TFGRPO_PROXY_TOKEN to a long random text; "
                "clients send it as the header x-tfgrpo-token",
            )
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise SettingsError(
                f"the token has {len(self.token)} characters, which can be guessed",
                hint=f"use {SHORTEST_TOKEN} or more, such as what `openssl rand -hex 32` prints",
            )

    def reloaded(self, other: ProxySettings) -> tuple[ProxySettings, list[str]]:
        """Returns these settings with what may change while the proxy runs as another has it, and
        the names of what else is not as there: it waits for a restart. Raises SettingsError."""
        if other.has_keys and not self.has_keys and not self.budgets:
            raise SettingsError(
                "virtual keys take effect only after a restart", hint="restart the proxy"
            )
        names = [one.name for one in fields(self) if one.name not in RELOADED]
        waiting = [name for name in names if getattr(self, name) != getattr(other, name)]
        return replace(self, **{name: getattr(other, name) for name in RELOADED}), waiting

    @property
    def upstreams(self) -> dict[str, Upstream]:
        """The providers by API; of several the first."""
        return {OPENAI: self.openai, ANTHROPIC: self.anthropic, **self.others}

    @property
    def has_keys(self) -> bool:
        """Whether virtual keys are taken: the key of a provider is here."""
        return any(one.key for one in self._every_upstream)

    @property
    def keys(self) -> frozenset[bytes]:
        """The keys of providers; one that is as short as a word is known in no text."""
        return frozenset(o.key.encode() for o in self._every_upstream if len(o.key) >= LONG)

    @property
    def _every_upstream(self) -> tuple[Upstream, ...]:
        return (*self.upstreams.values(), *(one.upstream for one in self.providers))


def listening(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at an address. Raises SettingsError where it cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            hint="choose another with --port",
        ) from error
    listener.setblocking(False)
    return listener


RELOADED = (
    *("libraries", "default", "rules", "tags", "openai", "anthropic", "others"),
    *("providers", "retries", "timeouts", "drain", "sample"),
)
"""What a reload takes: not where the proxy listens, who may ask, or what is recorded where."""


def with_key(upstream: Upstream, variable: str | None) -> Upstream:
    """Returns a provider with its key, which the environment has. Raises SettingsError."""
    if variable is None:
        return upstream
    key = os.environ.get(variable, "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise SettingsError(f"the variable {variable} has no key", hint=f"export {variable}=…")
    return replace(upstream, key=key)


def with_keys(settings: dict[str, Any], variables: Mapping[str, str | None]) -> None:
    """Gives the providers in settings, by API, the keys that variables have. Raises
    SettingsError."""
    for api, variable in variables.items():
        where = settings if api in settings else settings["others"]
        if variable is not None and api not in where:
            raise SettingsError(f"{VARIABLES[api]} needs a provider", hint=f"name it: {URLS[api]}")
        if variable is not None:
            where[api] = with_key(where[api], variable)


def outbound_proxy(host: str) -> OutboundProxy | None:
    """Returns the proxy to a host that the environment names, as HTTPS_PROXY and NO_PROXY do; None
    for none. Those over plain HTTP, which are in the company's own network, are asked directly.
    Raises SettingsError."""
    if not any(name.lower() in ("https_proxy", "all_proxy") for name in os.environ):
        return None
    from urllib.request import (  # type: ignore[attr-defined]  # 2 MB
        getproxies_environment,
        proxy_bypass_environment,
    )

    named = getproxies_environment()
    url = named.get("https") or named.get("all")
    if not url or proxy_bypass_environment(host):
        return None
    try:
        parts = server_address(url if "://" in url else f"http://{url}", ("http",))
    except ValueError:
        raise SettingsError(
            "HTTPS_PROXY names no proxy that is spoken to over HTTP", hint=OUTBOUND
        ) from None
    credentials = b""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = b"Proxy-Authorization: Basic %b\r\n" % base64.b64encode(pair.encode())
    return OutboundProxy(parts.hostname or "", parts.port or 80, credentials)


def parse_upstream(url: str, api: str = OPENAI) -> Upstream:
    """Returns the provider at a base URL as OpenAI's clients take it: what it ends in takes the
    place of `/v1`, which is added only where there is no path at all. Other APIs' clients take one
    that the version follows (`/v1`, `/v1beta`). Raises SettingsError."""
    try:
        parts = server_address(url)
        if parts.username:
            raise ValueError("it has a user")
    except ValueError:  # it is not repeated: any part may be a password's
        raise SettingsError(
            "an upstream is no URL of a provider", hint="such as https://host/v1, with no user"
        ) from None
    path = parts.path.rstrip("/")
    prefix = path.removesuffix("/v1") if api != GOOGLE else _version.sub("", path)
    before_v1 = api != OPENAI or not path or path != prefix
    tls = parts.scheme == "https"
    port, authority, host = parts.port or (443 if tls else 80), parts.netloc, parts.hostname or ""
    name = f"{parts.scheme}://{authority}{path}"
    way = outbound_proxy(host) if tls else None
    return Upstream(
        *(host, port, tls, authority, prefix, before_v1, parts.query, name), api=api, through=way
    )


def upstreams(named: Mapping[str, str | None]) -> dict[str, Any]:
    """Returns the providers by API as settings, from base URLs: one that is named alone answers for
    all, and where none is they are the companies' own. Raises SettingsError."""
    others = {api: parse_upstream(url, api) for api, url in _addresses(named).items() if url}
    return {OPENAI: others.pop(OPENAI), ANTHROPIC: others.pop(ANTHROPIC), "others": others}


def _addresses(named: Mapping[str, str | None]) -> dict[str, str | None]:
    every = next((url for api in (OPENAI, *APIS) if (url := named.get(api))), None)
    return {api: named.get(api) or every or ADDRESSES.get(api) for api in (OPENAI, *APIS)}


def named_providers(tables: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the providers as settings, with their keys: those that a file's `tables` name, but
    for what is `given` by the same names. Raises SettingsError, also where the key of one of the
    file's providers would go to another."""
    both = {**tables, **given}
    now, before = ({api: of.get(name) for api, name in URLS.items()} for of in (both, tables))
    for api, name in VARIABLES.items():
        strange = _addresses(now)[api] != _addresses(before)[api]
        if strange and name in tables and name not in given:
            has_option = api in (OPENAI, ANTHROPIC)
            where = f"--{name.replace('_', '-')}" if has_option else f"{URLS[api]} in the file"
            raise SettingsError(f"{name} is the key of another provider", hint=f"name {where}")
    settings = upstreams(now)
    with_keys(settings, {api: both.get(name) for api, name in VARIABLES.items()})
    return settings
