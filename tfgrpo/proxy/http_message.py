"""HTTP messages as the proxy handles them: heads as they came, and answers of its own.

A client sends the same head with each request, but for the length of the body: what was read from
its bytes once holds for the same bytes again. So only a head that went through the strict parser is
known; one that differs in anything but the digits of its length is parsed as ever.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

from tfgrpo.proxy.forwarded_headers import (
    CREDENTIALS,
    NAMES,
    head_around,
    header_name,
    own_key,
    sent_key,
    virtual_key,
)
from tfgrpo.rendering.request_placement import api_of

if TYPE_CHECKING:
    from tfgrpo.proxy.proxy_settings import Upstream

Headers: TypeAlias = list[tuple[bytes, bytes]]
IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"TRACE"})
_length = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)\r\n", re.IGNORECASE)
END, DIGITS = b"\r\n\r\n", 9
"""The end of a head, and digits of a length at most; longer ones are left to the parser."""


class BadRequest(Exception):
    """A request that is not passed on: a status, why, and after how many seconds it may be."""

    def __init__(self, status: int, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.after = after


class Request:
    """The head of a request: the target and the headers as they came, in order."""

    __slots__ = (
        *("api", "began", "chunked", "has_body", "headers", "index", "keep_alive", "known"),
        *("length", "method", "modern", "path", "target"),
    )
    known: KnownHead | None
    """The head, where it is one that was parsed before."""

    def __init__(
        self, method: bytes, target: bytes, headers: Headers, *, modern: bool, keep_alive: bool
    ) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.modern = modern
        """Whether the client speaks HTTP/1.1, and so takes chunks."""
        self.keep_alive = keep_alive
        self.began = 0.0
        self.known = None
        self.index: dict[bytes, bytes] = {}
        index = self.index
        names = NAMES
        for name, value in headers:
            known = names.get(name) or header_name(name)
            lower = known.lower
            if lower not in index:
                index[lower] = value
            elif known.single:
                raise BadRequest(400, f"the header {lower.decode('latin-1')} is there twice")
        self._check_own_keys()
        if not target.startswith(b"/"):
            raise BadRequest(400, "the target is not a path")
        if modern and b"host" not in index:
            raise BadRequest(400, "there is no header Host")
        self.path = target.partition(b"?")[0].decode("latin-1")
        self.api = api_of(self.path, index)
        """Whose API it is for."""
        self.chunked = b"transfer-encoding" in index
        length = index.get(b"content-length")
        self.length = int(length) if length is not None else None
        self.has_body = self.chunked or bool(self.length)
        """Whether a body follows."""

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent once more where nobody knows if it was read: what it does is done
        once (RFC 9110, section 9.2.2, and the key that says so)."""
        return self.method in IDEMPOTENT or b"idempotency-key" in self.index

    def _check_own_keys(self) -> None:
        """Raises BadRequest for a key of the proxy's own that would go on to the provider."""
        names = {name.lower() for name, value in self.headers if own_key(value)}
        is_known = virtual_key(sent_key(self.index)) is not None
        if own_key(self.target) or not names <= (CREDENTIALS if is_known else frozenset()):
            raise BadRequest(
                401,
                "a key of this proxy goes into one header: Authorization, "
                "x-api-key, api-key or x-goog-api-key",
            )

    def with_length(self, length: int, known: KnownHead | None) -> Request:
        """Returns a request with this head, but for the length of its body."""
        other = Request.__new__(Request)
        other.method, other.target = self.method, self.target
        other.path, other.api = self.path, self.api
        other.headers, other.index = self.headers, self.index
        other.modern, other.keep_alive = self.modern, self.keep_alive
        other.chunked, other.has_body = False, True
        other.length, other.known = length, known
        return other


def answer_head(
    status: int, reason: bytes, headers: Iterable[bytes], *, chunked: bool, closing: bool
) -> bytes:
    """Returns the head of an answer as it goes to the client, with these lines. Its body is sent in
    chunks, or until the connection is closed."""
    lines = [b"HTTP/1.1 %d %b" % (status, reason), *headers]
    if chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if closing:
        lines.append(b"Connection: close")
    lines.append(b"\r\n")
    return b"\r\n".join(lines)


def pause(transport: asyncio.Transport | None, paused: bool) -> None:
    """Reads no more from a connection that is open for the moment, or does so again."""
    if transport is not None and not transport.is_closing():
        (transport.pause_reading if paused else transport.resume_reading)()


def own_answer(
    status: int,
    body: bytes,
    *,
    kind: str = "application/json",
    closing: bool = False,
    after: float | None = None,
) -> bytes:
    """Returns an answer of the proxy's own; `after` is when to ask again, in seconds."""
    lines = [
        b"Content-Type: " + kind.encode(),
        b"Content-Length: %d" % len(body),
        b"X-Tfgrpo-Proxy: 1",
    ]
    if after is not None:
        lines.append(b"Retry-After: %d" % math.ceil(after))
    phrase = HTTPStatus(status).phrase.encode()
    return answer_head(status, phrase, lines, chunked=False, closing=closing) + body


def error_body(message: str) -> bytes:
    """Returns an error in the form that the clients of all providers read."""
    error: Mapping[str, object] = {"type": "tfgrpo_proxy", "message": message, "code": None}
    return json.dumps({"type": "error", "error": error, "message": message}).encode()


class KnownHead:
    """The head of a request with a body of known length, which was parsed before."""

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
        """The request that `data` begins with, if it has this head, and where its body begins."""
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
