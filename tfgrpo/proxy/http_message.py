"""HTTP messages as the proxy handles them: heads as they came, and answers of its own."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import TypeAlias

from tfgrpo.proxy.forwarded_headers import (
    CREDENTIALS,
    header_name,
    own_key,
    sent_key,
    virtual_key,
)
from tfgrpo.rendering.request_placement import api_of

Headers: TypeAlias = list[tuple[bytes, bytes]]
IDEMPOTENT = frozenset({b"GET", b"HEAD", b"OPTIONS", b"PUT", b"DELETE", b"TRACE"})


class BadRequest(Exception):
    """A request that is not passed on: a status, why, and after how many seconds it may be."""

    def __init__(self, status: int, message: str, *, after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.after = after


class Request:
    """The head of a request: the target and the headers as they came, in order."""

    __slots__ = (
        *("api", "began", "chunked", "has_body", "headers", "index", "keep_alive"),
        *("length", "method", "modern", "path", "target"),
    )

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
        self.index: dict[bytes, bytes] = {}
        index = self.index
        for name, value in headers:
            lower, is_single, _, _ = header_name(name)
            if lower not in index:
                index[lower] = value
            elif is_single:
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
