"""Which addresses a model may have visited: the registries of IANA, row by row."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.tools.http_fetch import FetchError, fetch, is_public

NOT_REACHABLE = """
0.0.0.0/8 0.0.0.0/32 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12
192.0.0.0/24 192.0.0.0/29 192.0.0.8/32 192.0.0.170/32 192.0.0.171/32 192.0.2.0/24
192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4
255.255.255.255/32 224.0.0.0/4 168.63.129.16/32 192.0.0.192/32
::1/128 ::/128 ::/96 ::ffff:0.0.0.0/104 ::ffff:10.0.0.0/104 ::ffff:127.0.0.0/104
::ffff:0:0:0/96 64:ff9b:1::/48 100::/64 100:0:0:1::/64 2001::/32 2001:2::/48 2001:10::/28
2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8
64:ff9b::10.0.0.0/104 64:ff9b::127.0.0.0/104 64:ff9b::169.254.0.0/112
"""
REACHABLE = """
93.184.215.14 1.1.1.1 192.0.1.1 192.88.98.1 168.63.129.15 223.255.255.1
2606:2800:21f:cb07::1 2a00::1 64:ff9b::1.1.1.1 2001:200::1 2001:4860::1
"""


@pytest.mark.parametrize("block", NOT_REACHABLE.split())
def test_nothing_in_a_block_that_is_not_globally_reachable_is_public(block: str) -> None:
    network = ipaddress.ip_network(block)
    last = network.num_addresses - 1
    for at in {0, min(1, last), last // 3, last // 2, max(0, last - 1), last}:
        assert not is_public(network[at]), network[at]


@pytest.mark.parametrize("address", REACHABLE.split())
def test_the_internet_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@given(st.ip_addresses())
def test_what_python_calls_local_is_never_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    carried = getattr(address, "ipv4_mapped", None) or address
    if address in ipaddress.ip_network("64:ff9b::/96"):
        carried = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if not carried.is_global or carried.is_multicast or carried.is_reserved:
        assert not is_public(address)


@pytest.mark.parametrize("host", ["192.0.0.192", "168.63.129.16", "192.88.99.1", "[2001::1]"])
def test_visiting_them_is_refused(host: str) -> None:
    with pytest.raises(FetchError, match="private address"):
        fetch(f"http://{host}/")
