"""Which IP addresses are the public internet's: those that IANA's registries of October 2025
(iana-ipv4-special-registry and iana-ipv6-special-registry) call globally reachable, written out
because every version of Python has its own edition. Anycast and tunnels are none."""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

NOT_PUBLIC_IPV4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private use
            "100.64.0.0/10",  # shared address space of carriers
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local, and the metadata of clouds
            "172.16.0.0/12",  # private use
            "192.0.0.0/24",  # protocol assignments, and a cloud's metadata
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112: whichever is nearest
            "192.52.193.0/24",  # automatic multicast tunnels: whichever is nearest
            "192.88.99.0/24",  # relays of 6to4, deprecated
            "192.168.0.0/16",  # private use
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarking
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            "168.63.129.16/32",  # in no registry: the services of a cloud for its own machines
        ),
    )
)
PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")
"""All of global unicast; whatever else there is has a purpose of its own."""
NOT_PUBLIC_IPV6 = tuple(
    map(
        ipaddress.IPv6Network,
        (
            "2001::/23",  # protocol assignments, Teredo among them
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4: an IPv4 address, by way of a relay
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)
CARRIES_IPV4 = tuple(map(ipaddress.IPv6Network, ("::ffff:0:0/96", "64:ff9b::/96")))
"""Where the last 32 bits are the IPv4 address that is meant: mapped, and translated (RFC 6052)."""


def is_public(address: Address) -> bool:
    """Whether an address is one that anybody could reach, and not from here alone."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in NOT_PUBLIC_IPV4)
    if any(address in network for network in CARRIES_IPV4):
        return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return address in PUBLIC_IPV6 and not any(address in network for network in NOT_PUBLIC_IPV6)
