"""One HTTP request to the public internet, and to nothing else.

A model chooses the addresses, so a request must not reach what only this machine can: every
name is resolved here, refused unless all its addresses are public, and connected to at the very
address that was looked at (a second look-up could say something else). Redirects go through
the same door. Bodies are cut off, for a page may have no end; and so is what takes too long, for
a server may send a byte now and then.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import SplitResult, quote, urljoin, urlsplit

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

NOT_PUBLIC = (
    "192.0.0.0/24",  # protocol assignments, and a cloud's metadata
    "192.31.196.0/24",  # AS112: whichever is nearest
    "192.52.193.0/24",  # automatic multicast tunnels: whichever is nearest
    "192.88.99.0/24",  # relays of 6to4, deprecated
    "192.175.48.0/24",  # AS112
    "224.0.0.0/4",  # multicast
    "168.63.129.16/32",  # in no registry: the services of a cloud for its own machines
    "2001::/23",  # protocol assignments, Teredo among them
    "2002::/16",  # 6to4: an IPv4 address, by way of a relay
    "2620:4f:8000::/48",  # AS112
    "3fff::/20",  # documentation
)
"""What Python, or some versions of it, take for addresses that anybody could reach."""
GLOBAL_UNICAST = ("0.0.0.0/0", "2000::/3")
"""All of IPv4, and of IPv6 what else has no purpose of its own."""
CARRIES_IPV4 = ("::ffff:0:0/96", "64:ff9b::/96")
"""Where the last 32 bits are the IPv4 address that is meant: mapped, and translated (RFC 6052)."""


def _is_in(address: Address, networks: tuple[str, ...]) -> bool:
    return any(address in ipaddress.ip_network(network) for network in networks)


def is_public(address: Address) -> bool:
    """Whether an address is one that anybody could reach, and not from here alone."""
    if _is_in(address, CARRIES_IPV4):
        address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    public = address.is_global and _is_in(address, GLOBAL_UNICAST)
    return public and not _is_in(address, NOT_PUBLIC)


MOST_BYTES = 5 << 20
REDIRECTS = 5
SECONDS = 30.0
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
    seconds: float = SECONDS,
    private: bool = False,
) -> Page:
    """Gets (with a `body`: posts to) an address. `private` allows addresses that are not public.
    Blocks for `seconds` in all, redirects included, beside the look-up of names. Raises
    FetchError."""
    sent = {"User-Agent": AGENT, "Accept-Encoding": "identity", **(headers or {})}
    end = time.monotonic() + seconds
    for _ in range(REDIRECTS + 1):
        parts = _parts(url)
        status, type, location, content = _request_once(parts, body, sent, end, private)
        if time.monotonic() >= end:
            raise FetchError(f"{parts.netloc} did not come to an end in {seconds:g} s")
        if status in (301, 302, 303, 307, 308) and location:
            target = _parts(location, url)
            # Keys are for the first host alone, and for nobody who listens on the way there.
            if target.netloc != parts.netloc or target.scheme not in (parts.scheme, "https"):
                sent = {name: sent[name] for name in ("User-Agent", "Accept-Encoding")}
                body = None
            url = target.geturl()
            continue
        if status >= 400:
            raise FetchError(f"{parts.netloc} answered {status}")
        return Page(url, type, content)
    raise FetchError("too many redirects")


def _parts(url: str, base: str = "") -> SplitResult:
    try:
        parts = urlsplit(urljoin(base, url))
        if parts.scheme in ("http", "https") and parts.hostname:
            if parts.username or parts.password:
                raise FetchError("an address with a password in it is not visited")
            return parts
    except ValueError:
        pass  # as below
    raise FetchError(f"{url[:200]!r} is no http address")


def _request_once(
    parts: SplitResult, body: bytes | None, headers: Mapping[str, str], end: float, private: bool
) -> tuple[int, str, str | None, bytes]:
    """Makes one request; what came of it after `end` is whatever was there by then."""
    assert parts.hostname is not None, "checked with the address"
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        address = _resolve(parts.hostname, port, private)
        left = max(0.001, end - time.monotonic())
        connection = _Connection(parts.hostname, port, address, parts.scheme == "https", left)
        with closing(connection), _deadline(connection, left):
            method = "GET" if body is None else "POST"
            connection.request(method, _path(parts), body, dict(headers))
            response = connection.getresponse()
            content = response.read(MOST_BYTES)
        location = str(response.headers.get("Location") or "")
        return (
            response.status,
            response.headers.get_content_type(),
            location.encode("latin-1", "replace").decode("utf-8", "replace"),
            content,
        )
    except (OSError, http.client.HTTPException, ValueError) as error:
        late = time.monotonic() >= end
        why = "it took too long" if late else str(error)
        raise FetchError(f"cannot reach {parts.hostname}: {why}"[:300]) from None


def _path(parts: SplitResult) -> str:
    """What is asked for, with what HTTP cannot carry written as it can."""
    safe = "/%:@!$&'()*+,;=~?[]|"
    return quote(parts.path or "/", safe) + (f"?{quote(parts.query, safe)}" if parts.query else "")


@contextmanager
def _deadline(connection: _Connection, seconds: float) -> Iterator[None]:

    def cut() -> None:
        with suppress(OSError):
            if connection.opened is not None:
                socket.socket.shutdown(connection.opened, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _resolve(host: str, port: int, private: bool) -> str:
    """An address of a host. Raises FetchError when one of them is not public."""
    addresses = [info[4][0] for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for address in addresses:
        ip = ipaddress.ip_address(str(address).partition("%")[0])
        if not private and not is_public(ip):
            raise FetchError(f"{host} is at a private address, which is not visited")
    return str(addresses[0])


class _Connection(http.client.HTTPConnection):
    """A connection to an address that was looked at, under the name it was found by."""

    def __init__(self, host: str, port: int, address: str, secure: bool, seconds: float) -> None:
        super().__init__(host, port, timeout=seconds)
        self._address = address
        self._secure = secure
        self.opened: socket.socket | None = None
        """The socket, also where the response alone holds it any more."""

    def connect(self) -> None:
        self.opened = socket.create_connection((self._address, self.port), self.timeout)
        if self._secure:
            self.opened = ssl.create_default_context().wrap_socket(
                self.opened, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.opened.do_handshake()
        self.sock = self.opened
