"""The address of a server, taken apart: one reader for all that users give."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import SplitResult, urlsplit

HTTP = ("http", "https")
_PLACE = re.compile(r"(?:\[[0-9A-Za-z:.%]+\]|[^\[\]:\s]+)(?::\d*)?")
"""A host, an IPv6 address in brackets, and a port."""


def server_address(url: str, schemes: Collection[str] = HTTP) -> SplitResult:
    """Takes an address with one of these schemes apart, without the white space around it. Raises
    ValueError, whose words repeat nothing of it, where a scheme or a host is missing, white space
    is in it, or the host or the port cannot be one."""
    try:
        text = url.strip()
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # whose words may have a password
        raise ValueError("the address cannot be read") from None
    if parts.scheme not in schemes or not (parts.hostname or "").strip("."):
        listed = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ValueError(f"an address begins with {listed}, and names a host")
    place = parts.netloc.rpartition("@")[2]
    rest = text.partition(parts.netloc)[2]
    spaced = re.search(r"\s", rest) or re.search(r"[\t\r\n]", text)
    if port == 0 or spaced or not _PLACE.fullmatch(place):
        raise ValueError("the address cannot be read")
    return parts
