"""An error of a provider's on its way to a caller with a virtual key: without the provider's own
key, which such an error may quote."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.proxy.forwarded_headers import PACKINGS
from tfgrpo.proxy.http_message import error_body
from tfgrpo.proxy.recorded_call import inflate
from tfgrpo.proxy.withheld_words import Finder, without_values
from tfgrpo.store.records import REDACTED

LONGEST = 1 << 20
"""Bytes of an error that is read, as it came and unpacked."""
UNREAD = "the provider's error is not read here, and could quote its key"


class ProviderError(NamedTuple):
    """The answer: its status and reason, its headers as lines, how its body is packed, and as much
    of that as has come; it waits here until it is whole."""

    status: int
    reason: bytes
    lines: list[bytes]
    packing: bytes
    body: bytearray

    def add(self, data: bytes) -> None:
        """Takes more of the body."""
        if len(self.body) <= LONGEST:
            self.body.extend(data)

    def without(self, keys: tuple[bytes, ...], *, bodiless: bool) -> ProviderError:
        """Returns it as it goes on, with the length of its body unless it is `bodiless`. What
        holds no key is as it was, to the byte; one that cannot be read has a body of ours."""
        withheld = Finder.of(keys)
        reason, *lines = (_clean(one, withheld) for one in (self.reason, *self.lines))
        if bodiless:
            return self._replace(reason=reason, lines=lines)
        body, text = self.body, self._text()
        clean = None if text is None else without_values(text, withheld)
        if clean is None or clean != text:
            body = bytearray(error_body(UNREAD) if clean is None else clean.encode())
            lines = _without(lines, b"content-encoding")
        lines = [*_without(lines, b"content-length"), b"Content-Length: %d" % len(body)]
        return self._replace(reason=reason, lines=lines, body=body)

    def _text(self) -> str | None:
        """Returns the body as it was before it was packed; None where it cannot be read."""
        content, whole = bytes(self.body), len(self.body) <= LONGEST
        if self.packing and content:
            if self.packing not in PACKINGS:
                return None
            content, unpacked = inflate(content, LONGEST)
            whole = whole and bool(unpacked)
        return content.decode(errors="replace") if whole else None


def _clean(line: bytes, withheld: Finder) -> bytes:
    return withheld.sub(REDACTED, line.decode(errors="surrogateescape")).encode(
        errors="surrogateescape"
    )


def _without(lines: list[bytes], name: bytes) -> list[bytes]:
    return [one for one in lines if one.partition(b":")[0].lower() != name]
