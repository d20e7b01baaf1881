"""One HTTP request to the public internet, and to nothing else.

A model chooses the addresses, so a request must not reach what only this machine can: every
name is resolved here, refused unless all its addresses are public, and connected to at the very
address that was looked at (a second look-up could say something else). Redirects go through
the same door. Bodies are cut off, for a page may have no end.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

MOST_BYTES = 5 << 20
REDIRECTS = 5
AGENT = "tfgrpo (https://pypi.org/project/tfgrpo)"


class FetchError(Exception):
    """A page that could not be had, in words for a model."""


@dataclass(frozen=True, slots=True)
class Page:
    """What an address gave: where it was found in the end, its type, and its body."""

    url: str
    type: str
    body: bytes


def fetch(
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = 20.0,
    private: bool = False,
) -> Page:
    """Gets (with a `body`: posts to) an address. `private` allows addresses that are not public.

    Blocks for up to `seconds` for each wait. Raises FetchError.
    """
    sent = {"User-Agent": AGENT, "Accept-Encoding": "identity", **(headers or {})}
    for _ in range(REDIRECTS + 1):
        status, type, location, found = _once(url, body, sent, seconds, private)
        if status in (301, 302, 303, 307, 308) and location:
            target = urljoin(url, location)
            if urlsplit(target).netloc != urlsplit(url).netloc:  # keys are for the first host alone
                sent = {name: sent[name] for name in ("User-Agent", "Accept-Encoding")}
                body = None
            url = target
            continue
        if status >= 400:
            raise FetchError(f"{urlsplit(url).netloc} answered {status}")
        return Page(url, type, found)
    raise FetchError("too many redirects")


def _once(
    url: str, body: bytes | None, headers: Mapping[str, str], seconds: float, private: bool
) -> tuple[int, str, str | None, bytes]:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise FetchError(f"{url[:200]!r} is no http address")
    if parts.username or parts.password:
        raise FetchError("an address with a password in it is not visited")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = _resolved(parts.hostname, port, private)
        connection = _Connection(parts.hostname, port, address, parts.scheme == "https", seconds)
        try:
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET" if body is None else "POST", path, body, dict(headers))
            response = connection.getresponse()
            found = response.read(MOST_BYTES)
            return (
                response.status,
                response.headers.get_content_type(),
                response.headers.get("Location"),
                found,
            )
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise FetchError(f"cannot reach {parts.hostname}: {error}"[:300]) from None


def _resolved(host: str, port: int, private: bool) -> str:
    """Returns an address of a host. Raises FetchError when one of them is not public."""
    found = [info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for address in found:
        ip = ipaddress.ip_address(str(address).partition("%")[0])
        inner = getattr(ip, "ipv4_mapped", None) or getattr(ip, "sixtofour", None) or ip
        if not private and not (ip.is_global and inner.is_global and not ip.is_multicast):
            raise FetchError(f"{host} is at a private address, which is not visited")
    return str(found[0])


class _Connection(http.client.HTTPConnection):
    """A connection to an address that was looked at, under the name it was found by."""

    def __init__(self, host: str, port: int, address: str, secure: bool, seconds: float) -> None:
        super().__init__(host, port, timeout=seconds)
        self._address = address
        self._secure = secure

    def connect(self) -> None:
        self.sock = socket.create_connection((self._address, self.port), self.timeout)
        if self._secure:
            context = ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)
