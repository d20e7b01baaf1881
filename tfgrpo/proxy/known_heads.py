"""Heads of requests that are known already: a client sends the same one with each request, but for
the length of the body, and what was read from its bytes once holds for the same bytes again.

So only a head that went through the strict parser is known; it is compared byte by byte, and a
request whose head differs in anything but the digits of its length is parsed as ever.
"""

from __future__ import annotations

import re

from tfgrpo.proxy.http_message import Request, head_around
from tfgrpo.proxy.proxy_settings import Upstream

END = b"\r\n\r\n"
_length = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)\r\n", re.IGNORECASE)
DIGITS = 9
"""Digits of a length at most; longer ones are left to the parser."""


class KnownHead:
    """The head of a request with a body of known length."""

    __slots__ = ("_after", "_before", "_request", "_wires")

    def __init__(self, before: bytes, after: bytes, request: Request) -> None:
        self._before = before
        self._after = after
        self._request = request
        self._wires: dict[Upstream, tuple[bytes, bytes]] = {}

    @classmethod
    def of(cls, data: bytes, request: Request) -> KnownHead | None:
        """Returns the head that `data` begins with, as it was parsed; None where it is none that
        can be known again."""
        end = data.find(END)
        plain = request.keep_alive and not request.chunked and b"expect" not in request.index
        if end < 0 or not plain or not request.length:
            return None
        lines = data[: end + 2]
        many = len(request.headers) + 1
        if not lines.count(b"\r\n") == lines.count(b"\r") == lines.count(b"\n") == many:
            return None  # lines that the parser takes otherwise
        lengths = list(_length.finditer(lines))
        if len(lengths) != 1 or int(lengths[0][1]) != request.length:
            return None
        start, stop = lengths[0].span(1)
        after = data[stop : end + len(END)]
        return cls(data[:start], after, request.with_length(request.length, None))

    def again(self, data: bytes) -> tuple[Request, int] | None:
        """Returns the request that `data` begins with, if it has this head, and where its body
        begins."""
        before, after = self._before, self._after
        if not data.startswith(before):
            return None
        at = len(before)
        stop = data.find(b"\r", at, at + DIGITS + 1)
        digits = data[at:stop]
        if stop < 0 or not digits.isdigit() or not data.startswith(after, stop):
            return None
        length = int(digits)
        return (self._request.with_length(length, self), stop + len(after)) if length else None

    def wire(self, upstream: Upstream, length: int) -> bytes:
        """Returns the head as it goes on to a provider, with a body of that length."""
        around = self._wires.get(upstream)
        if around is None:
            around = head_around(self._request, upstream)
            self._wires[upstream] = around
        return b"%b%d%b" % (around[0], length, around[1])
