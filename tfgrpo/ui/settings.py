"""What `tfgrpo ui` is started with."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK = "127.0.0.1"
PORT = 7433


@dataclass(frozen=True, slots=True)
class UiSettings:
    """The store that is shown, where to listen, and who may look.

    `logins` is token → the name under which what its holder does is recorded. `names` are the
    host names, beside the address itself, by which a browser may ask. Without `content` no page
    shows what was asked and said in attempts and calls.
    """

    store: Path
    logins: Mapping[str, str]
    host: str = LOOPBACK
    port: int = PORT
    read_only: bool = False
    names: tuple[str, ...] = field(default=())
    content: bool = True


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
