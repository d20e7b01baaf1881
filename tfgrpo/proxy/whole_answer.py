"""An answer that waits until it is whole before a caller with a virtual key gets it, without the
keys of providers: an error, which may quote one, and what came packed."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.proxy.forwarded_headers import PACKINGS
from tfgrpo.proxy.http_message import error_body
from tfgrpo.proxy.recorded_call import UNPACKED, inflate
from tfgrpo.proxy.withheld_keys import WithheldKeys

LONGEST = 1 << 20
"""Bytes of an error that is read, as it came and unpacked; of another answer it is `UNPACKED`."""
UNREAD = "the provider's answer is not read here, and could quote its key"


class WholeAnswer(NamedTuple):
    """The answer: its status and reason, its headers as lines, how its body is packed, and as much
    of that as has come."""

    status: int
    reason: bytes
    lines: list[bytes]
    packing: bytes
    body: bytearray

    @property
    def _longest(self) -> int:
        return LONGEST if self.status >= 400 else UNPACKED

    def add(self, data: bytes) -> None:
        """Takes more of the body."""
        if len(self.body) <= self._longest:
            self.body.extend(data)

    def without(self, withheld: WithheldKeys, *, bodiless: bool) -> WholeAnswer:
        """Returns it as it goes on, with the length of its body unless it is `bodiless`. A body
        that holds no key is as it was, to the byte; in the place of one that cannot be read is an
        error of ours."""
        if bodiless:
            return self
        content = self._unpacked()
        clean = error_body(UNREAD) if content is None else withheld.without(content)
        body, lines = self.body, _without(self.lines, b"content-length")
        if clean != content:
            body, lines = bytearray(clean), _without(lines, b"content-encoding")
        lines = [*lines, b"Content-Length: %d" % len(body)]
        answer = self._replace(lines=lines, body=body)
        if content is None and self.status < 400:
            return answer._replace(status=502, reason=b"Bad Gateway")
        return answer

    def _unpacked(self) -> bytes | None:
        """Returns the body as it was before it was packed; None where it cannot be read."""
        content, most = bytes(self.body), self._longest
        whole = len(content) <= most
        if self.packing and content:
            if self.packing not in PACKINGS:
                return None
            content, unpacked = inflate(content, most)
            whole = whole and bool(unpacked)
        return content if whole else None


def _without(lines: list[bytes], name: bytes) -> list[bytes]:
    return [one for one in lines if one.partition(b":")[0].lower() != name]
