"""HTTP messages as the proxy handles them: heads as they came, and answers of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import NamedTuple, TypeAlias

Headers: TypeAlias = list[tuple[bytes, bytes]]
HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate"),
        *(b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
"""Headers that are about one connection (RFC 9110, section 7.6.1), beside those that the header
Connection names."""
OURS = b"x-tfgrpo-"
"""What the headers begin with that are meant for the proxy; none of them goes on."""


class BadRequest(Exception):
    """A request that is not passed on: a status, and why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Request:
    """The head of a request: the target and the headers as they came, in order."""

    __slots__ = (
        *("began", "chunked", "headers", "index", "keep_alive", "length", "method", "modern"),
        *("path", "target"),
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
            lower = name.lower()
            if lower in index and (lower.startswith(OURS) or lower in _SINGLE):
                raise BadRequest(400, f"the header {lower.decode('latin-1')} is there twice")
            index.setdefault(lower, value)
        if not target.startswith(b"/"):
            raise BadRequest(400, "the target is not a path")
        if modern and b"host" not in index:
            raise BadRequest(400, "there is no header Host")
        self.path = target.partition(b"?")[0].decode("latin-1")
        self.chunked = b"transfer-encoding" in index
        length = index.get(b"content-length")
        self.length = int(length) if length is not None else None

    @property
    def has_body(self) -> bool:
        """Whether a body follows."""
        return self.chunked or bool(self.length)


_SINGLE = frozenset({b"host", b"content-length", b"authorization", b"x-api-key", b"content-type"})


def request_head(
    request: Request, prefix: str, authority: str, length: int | None, *, chunked: bool = False
) -> bytes:
    """Returns the head of a request as it goes on: all of the caller's headers, but for those
    that are about the connection or for the proxy."""
    index = request.index
    dropped = _named_by(index.get(b"connection"))
    lines = [request.method + b" " + prefix.encode() + request.target + b" HTTP/1.1"]
    sized = length is None
    for name, value in request.headers:
        lower = name.lower()
        if lower == b"host":
            value = authority.encode()
        elif lower == b"content-length":
            if chunked:
                continue
            if length is not None:
                value, sized = b"%d" % length, True
        elif lower in HOP or lower in dropped or lower == b"expect" or lower.startswith(OURS):
            continue
        lines.append(name + b": " + value)
    if not sized:
        lines.append(b"Content-Length: %d" % (length or 0))
    if chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if b"host" not in index:
        lines.append(b"Host: " + authority.encode())
    return b"\r\n".join(lines) + b"\r\n\r\n"


class Framing(NamedTuple):
    """How the body of an answer is sent: in chunks, or until the connection is closed."""

    chunked: bool
    closing: bool


def answer_head(
    status: int, reason: bytes, headers: Headers, more: Iterable[bytes], framing: Framing
) -> bytes:
    """Returns the head of an answer as it goes to the client, `more` lines added at its end."""
    index = next((value for name, value in headers if name.lower() == b"connection"), None)
    dropped = _named_by(index)
    lines = [b"HTTP/1.1 %d %s" % (status, reason)]
    for name, value in headers:
        lower = name.lower()
        if lower not in HOP and lower not in dropped:
            lines.append(name + b": " + value)
    lines += more
    if framing.chunked:
        lines.append(b"Transfer-Encoding: chunked")
    if framing.closing:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def own_answer(
    status: int, body: bytes, *, kind: str = "application/json", closing: bool = False
) -> bytes:
    """Returns an answer of the proxy's own."""
    phrase = HTTPStatus(status).phrase.encode()
    lines = [
        b"HTTP/1.1 %d %s" % (status, phrase),
        b"Content-Type: " + kind.encode(),
        b"Content-Length: %d" % len(body),
        b"X-Tfgrpo-Proxy: 1",
    ]
    if closing:
        lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def error_body(message: str) -> bytes:
    """Returns an error in the form that the clients of both providers read."""
    error: Mapping[str, object] = {"type": "tfgrpo_proxy", "message": message, "code": None}
    return json.dumps({"type": "error", "error": error}).encode()


def _named_by(connection: bytes | None) -> frozenset[bytes]:
    if connection is None or connection in (b"keep-alive", b"Keep-Alive", b"close"):
        return frozenset()
    return frozenset(token.strip().lower() for token in connection.split(b","))
