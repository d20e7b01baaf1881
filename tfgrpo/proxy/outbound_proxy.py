"""The proxy that stands between a company's network and providers: `HTTPS_PROXY` and `NO_PROXY`.

Providers over TLS are reached through it by CONNECT (RFC 9110, section 9.3.6); those over plain
HTTP, which are in the company's own network, are asked directly.
"""

from __future__ import annotations

import asyncio
import base64
import os
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from tfgrpo.store.errors import SettingsError

VARIABLE = "HTTPS_PROXY"
VARIABLES = (VARIABLE.lower(), "all_proxy")
END = b"\r\n\r\n"
LONGEST = 64 << 10
"""Bytes of the head of a proxy's answer."""


@dataclass(frozen=True, slots=True)
class OutboundProxy:
    """Where it listens, and the header that it knows this program by."""

    host: str
    port: int
    credentials: bytes = field(default=b"", repr=False)


def outbound_proxy(host: str) -> OutboundProxy | None:
    """Returns the proxy to a host that the environment names; None for none. Raises
    SettingsError."""
    if not any(name.lower() in VARIABLES for name in os.environ):
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
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or 80
    except ValueError:
        raise SettingsError(f"{VARIABLE} is no URL", hint="http://proxy.example.com:3128") from None
    if parts.scheme != "http" or not parts.hostname:
        raise SettingsError(
            f"{VARIABLE} names no proxy that is spoken to over HTTP",
            hint="http://proxy.example.com:3128",
        )
    credentials = b""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = b"Proxy-Authorization: Basic %b\r\n" % base64.b64encode(pair.encode())
    return OutboundProxy(parts.hostname, port, credentials)


async def tunnel(proxy: OutboundProxy, host: str, port: int) -> asyncio.Transport:
    """Returns a connection to a host through a proxy. Raises OSError."""
    where = f"the outbound proxy {proxy.host}:{proxy.port}"
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()
    try:
        transport, _ = await loop.create_connection(lambda: _Answer(answer), proxy.host, proxy.port)
    except OSError as error:
        raise OSError(f"{where}: {error}") from None
    authority = (f"[{host}]:{port}" if ":" in host else f"{host}:{port}").encode()
    transport.write(
        b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (authority, authority, proxy.credentials)
    )
    try:
        status = (await answer)[9:12].decode("latin-1")
        if status != "200":
            raise OSError(f"{where} answers {status or 'nothing'}")
    except BaseException:
        transport.abort()
        raise
    return transport


class _Answer(asyncio.Protocol):
    """Reads the head of a proxy's answer."""

    def __init__(self, head: asyncio.Future[bytes]) -> None:
        self._head = head
        self._bytes = b""

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        if (END in self._bytes or len(self._bytes) > LONGEST) and not self._head.done():
            self._head.set_result(self._bytes if self._bytes.endswith(END) else b"")

    def connection_lost(self, error: Exception | None) -> None:
        if not self._head.done():
            self._head.set_result(b"")
