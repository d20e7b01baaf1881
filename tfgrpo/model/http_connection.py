"""How an address is reached: the key in its header, other headers, proxies, certificates.

Azure's older addresses (`?api-version=…`) take the key in the header `api-key`. Proxies come from
the usual variables, and are never asked for this machine's own loopback.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from tfgrpo.model import response as responses
from tfgrpo.model import secrets
from tfgrpo.model.retried_errors import no_answer, unreadable
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.exit_codes import NOT_BEGUN
from tfgrpo.web_address import server_address

if TYPE_CHECKING:
    import openai


AUTHORITIES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class CertificatesUnreadable(TfgrpoError):
    """The file of authorities that the environment names is none."""


def authorities(tls: bool) -> ssl.SSLContext | None:
    """The context for an address of https (`tls`) or not; None where the environment names no
    authorities. Raises CertificatesUnreadable, without `tls` only when they are needed."""
    file = next(filter(None, map(os.environ.get, AUTHORITIES)), None)
    folder = os.environ.get("SSL_CERT_DIR") or None
    if not tls:
        return _WhenNeeded(file, folder)
    return _loaded(file, folder) if file or folder else None


class _WhenNeeded(ssl.SSLContext):
    """A context that loads its authorities when a first connection is made with it."""

    def __new__(cls, *_: object) -> _WhenNeeded:
        return super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)

    def __init__(self, file: str | None, folder: str | None) -> None:
        self._named = (file, folder)

    def set_alpn_protocols(self, alpn_protocols: Any) -> None:
        _loaded(*self._named).set_alpn_protocols(alpn_protocols)

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        return _loaded(*self._named).wrap_bio(*arguments, **named)

    def wrap_socket(self, *arguments: Any, **named: Any) -> ssl.SSLSocket:
        return _loaded(*self._named).wrap_socket(*arguments, **named)


@lru_cache(maxsize=8)
def _loaded(file: str | None, folder: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context()
        if file or folder:
            context.load_verify_locations(file, folder)
    except (OSError, ssl.SSLError) as error:
        raise CertificatesUnreadable(
            f"the certificates at {file or folder} cannot be read: {error}",
            hint="SSL_CERT_FILE is a PEM file of authorities",
        ) from None
    return context


class ProxiesUnreadable(TfgrpoError):
    """A proxy that the environment names has an address that is none."""

    exit_code = NOT_BEGUN


@contextmanager
def reading_proxies() -> Iterator[None]:
    """Turns what httpx or httpx2 says of the environment's proxies as a client is made into
    ProxiesUnreadable: its words may have a part of a password."""
    try:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            if url := os.environ.get(name) or os.environ.get(name.upper()):
                server_address(url if "://" in url else f"http://{url}", PROXIES)
        yield
    except Exception as error:
        if not isinstance(error, ValueError) and type(error).__name__ != "InvalidURL":
            raise
        raise ProxiesUnreadable(
            "HTTPS_PROXY, HTTP_PROXY, ALL_PROXY or NO_PROXY has an address that cannot be read",
            hint="such as http://USER:PASSWORD@HOST:PORT, with %2F for a / in the password",
        ) from None


PROXIES = ("http", "https", "socks5", "socks5h")
"""How a proxy may be spoken to."""
OPENAI_HOST = "api.openai.com"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CONNECT = 20.0
"""Seconds within which a connection has to stand."""
LISTING = 30.0
"""Seconds that a list of models may take."""
API_VERSION = "api-version"


class ModelsUnknown(TfgrpoError):
    """An endpoint does not say which models it has, or has several."""


class SeveralModels(ModelsUnknown):
    """An endpoint has several models, and none is named."""

    exit_code = NOT_BEGUN


@dataclass(frozen=True, slots=True)
class Connection:
    """Where requests go and what every one of them carries. `base_url` None is OpenAI's. `watch` is
    told the headers of every response."""

    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    watch: Callable[[Mapping[str, str]], object] | None = None


def open_client(where: Connection, timeout: float) -> openai.AsyncOpenAI:
    """A client of an address, whose requests may take `timeout` seconds. Raises
    CertificatesUnreadable and ProxiesUnreadable."""
    import openai

    async def watch(response: Any) -> None:
        if where.watch is not None:
            where.watch({name.lower(): value for name, value in response.headers.items()})

    async def own_headers(request: Any) -> None:
        _own_headers(where, request)

    with reading_proxies():
        http_client = openai.DefaultAsyncHttpxClient(
            **_transport(where, timeout),
            event_hooks={
                "request": [own_headers],
                "response": [responses.read_body, watch],
            },
        )
    return openai.AsyncOpenAI(http_client=http_client, **_client(where, timeout))


def models_at(where: Connection) -> list[dict[str, Any]]:
    """What an address says of its models, each with an `id`. Raises ModelsUnknown, and what
    `open_client` does."""
    import openai

    address = where.base_url or "the default endpoint"
    with reading_proxies():
        http_client = openai.DefaultHttpxClient(
            **_transport(where, LISTING),
            event_hooks={"request": [partial(_own_headers, where)]},
        )
    client = openai.OpenAI(http_client=http_client, **_client(where, LISTING))
    try:
        answer = client.get("/models", cast_to=object)
    except openai.APIStatusError as error:
        reason = f"its list of models cannot be had: {error.status_code}"
    except (openai.APIError, ValueError, TypeError, AttributeError) as error:
        cause = error.__cause__ or error
        reason = f"cannot be reached: {str(cause) or type(cause).__name__}"
        reason = unreadable(getattr(error, "doc", None)) or reason
    else:
        listed = responses.field(answer, "data")
        listed = listed if isinstance(listed, list) else []
        models = [one for one in listed if isinstance(responses.field(one, "id"), str)]
        if models:
            return [{**one, "id": responses.as_text(one["id"], 256)} for one in models]
        reason = no_answer(answer, "list of models")
    finally:
        client.close()
    reason = secrets.scrub(reason, where.api_key, *where.headers.values())
    raise ModelsUnknown(f"{address}: {reason}", hint="name the model: --model NAME")


def only_model_at(where: Connection) -> str:
    """The one model that an address serves. Raises SeveralModels, which names them,
    and ModelsUnknown."""
    names = sorted({str(one["id"]) for one in models_at(where)})
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    raise SeveralModels(
        f"{where.base_url} serves {len(names)} models: {shown}", hint="choose one with --model"
    )


def host_of(base_url: str | None) -> str:
    """The host of an address, OpenAI's where there is none; nothing of what is no address."""
    try:
        return (urlsplit(base_url).hostname or "") if base_url else OPENAI_HOST
    except ValueError:
        return ""


def on_loopback(base_url: str | None) -> bool:
    """Whether an address is on this machine."""
    return host_of(base_url) in LOOPBACK


def _client(where: Connection, timeout: float) -> dict[str, Any]:
    import openai

    # A connection that is kept may hold what answers no request of ours: the next request on it
    # would take that for its answer.
    headers: dict[str, Any] = {"Connection": "close", **where.headers}
    # Named, so that the client takes no address of the environment's.
    parts = urlsplit(where.base_url or f"https://{OPENAI_HOST}/v1")
    query: dict[str, object] = dict(parse_qsl(parts.query))
    base_url = urlunsplit(parts._replace(query=""))
    if _keyed(where):
        headers["api-key"] = where.api_key
    return {
        "api_key": where.api_key or "none",
        "base_url": base_url,
        "max_retries": 0,
        "timeout": openai.Timeout(timeout, connect=min(CONNECT, timeout)),
        "default_headers": {"Accept-Encoding": responses.PACKINGS, **headers},
        "default_query": query or None,
    }


def _keyed(where: Connection) -> bool:
    """Whether an address takes the key in `api-key`, and a bearer token for another."""
    named = dict(parse_qsl(urlsplit(where.base_url or "").query))
    return API_VERSION in named and bool(where.api_key)


def _own_headers(where: Connection, request: Any) -> None:
    """Leaves out what the client takes from the environment for OpenAI, elsewhere than there."""
    named = os.environ.get("OPENAI_BASE_URL", "").rstrip("/")
    is_named = bool(named) and (where.base_url or "").rstrip("/") == named
    if not is_named and not f".{host_of(where.base_url)}".endswith(f".{OPENAI_HOST}"):
        lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines()
        foreign = [line.partition(":")[0].strip().lower() for line in lines]
        ours = {name.lower(): value for name, value in where.headers.items()}
        ours["authorization"] = ours.get("authorization", f"Bearer {where.api_key or 'none'}")
        for name in (*foreign, "openai-organization", "openai-project"):
            request.headers.pop(name, None)
            if name in ours:
                request.headers[name] = ours[name]
    if _keyed(where):
        request.headers.pop("authorization", None)


def _transport(where: Connection, timeout: float) -> dict[str, Any]:
    import openai

    arguments: dict[str, Any] = {
        # A proxy from the environment has no way to this machine's own loopback.
        "trust_env": not on_loopback(where.base_url),
        "timeout": openai.Timeout(timeout, connect=min(CONNECT, timeout)),
    }
    context = authorities(tls=not (where.base_url or "").lower().startswith("http:"))
    return {**arguments, "verify": context} if context is not None else arguments
