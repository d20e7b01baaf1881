"""What `tfgrpo ui` is started with."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK = "127.0.0.1"
PORT = 7433


@dataclass(frozen=True, slots=True)
class UiSettings:
    """The store that is shown, where to listen, and who may look. `logins` is token → the name
    under which what its holder does is recorded. `names` are the host names, beside the address
    itself, by which a browser may ask. Without `content` no page shows what was asked and said in
    attempts and calls. `readers` are the tokens whose holders only look. `notify` are the addresses
    that are told what waits for a person, and `public` how the pages are called in what it is
    told."""

    store: Path
    logins: Mapping[str, str]
    host: str = LOOPBACK
    port: int = PORT
    read_only: bool = False
    names: tuple[str, ...] = field(default=())
    content: bool = True
    readers: frozenset[str] = frozenset()
    notify: tuple[str, ...] = ()
    public: str = ""


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def reachable(host: str, names: Sequence[str] = ()) -> list[str]:
    """Returns the addresses by which a browser can ask a server that listens to `host`: those names
    of it that were given, and the address itself; of one that stands for all addresses of this
    machine, which none can open, the ones that there are."""
    try:
        every = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        every = False
    if not every:
        return [*names, host]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    addresses: list[str] = []
    away = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((away, 9))  # of a datagram socket this sends nothing: it chooses a route
        addresses.append(str(probe.getsockname()[0]))
    with suppress(OSError):
        own = socket.getaddrinfo(socket.gethostname(), None, family, socket.SOCK_STREAM)
        addresses += [str(one[4][0]) for one in own]
    loopback = "::1" if family == socket.AF_INET6 else LOOPBACK
    return list(
        dict.fromkeys([*names, *(one for one in addresses if not is_loopback(one)), loopback])
    )
