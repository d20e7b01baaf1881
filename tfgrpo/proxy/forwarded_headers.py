"""What becomes of headers on their way through the proxy, by their names: those of a request, with
the caller's key, and those of an answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tfgrpo.model.secrets import LONG
from tfgrpo.store.activity.key_ledger import PREFIX

if TYPE_CHECKING:
    from tfgrpo.proxy.http_message import Headers, Request
    from tfgrpo.proxy.proxy_settings import Upstream

HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate"),
        *(b"proxy-authorization", b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
"""Headers that are about one connection (RFC 9110, section 7.6.1), beside those that the header
Connection names."""
OURS = b"x-tfgrpo-"
"""What the headers begin with that are meant for the proxy, and those that it gives an answer; none
of them goes on, either way."""
FORWARD, DROP, HOST, LENGTH, CODINGS = range(5)
"""What becomes of a header on its way: it goes on, it does not, it is written anew, or it goes on
without the codings that no record could be made of."""
PLAIN, HOPS, CONNECTION, CODING, SIZE, PACKING = range(6)
"""What a header of an answer is: one to go on, one that ends here, such as those of the connection
(the one that names others, and the one for chunks, apart), the body's length, how the body is
packed."""
CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"})
"""The headers that a caller's key may be in."""
EXTENSIONS = frozenset({b"sec-websocket-extensions"})
"""The header that asks for what a socket brings to be packed, so that no key is seen in it."""
PACKINGS = (b"gzip", b"deflate")
"""How an answer may be packed that can be read here."""
READABLE = frozenset({*PACKINGS, b"identity"})
own_key = re.compile(rb"(?<![\w-])%b[\w-]{40,}" % PREFIX.encode()).search
"""A key of the proxy's own, wherever it stands."""
_FATES = {
    **dict.fromkeys({*HOP, b"expect"}, DROP),
    b"host": HOST,
    b"content-length": LENGTH,
    b"accept-encoding": CODINGS,
}
_PARTS = {
    **dict.fromkeys(HOP, HOPS),
    b"connection": CONNECTION,
    b"transfer-encoding": CODING,
    b"content-length": SIZE,
    b"content-encoding": PACKING,
}
_SINGLE = frozenset({b"host", b"content-length", b"content-type"}) | CREDENTIALS
MOST_NAMES = 1000
"""Names of headers that are remembered: there are few, and each comes with every request."""


class HeaderName:
    """What there is to know of a header by its name."""

    __slots__ = ("fate", "lower", "part", "single")

    def __init__(self, name: bytes) -> None:
        self.lower = lower = name.lower()
        ours = lower.startswith(OURS)
        self.single = ours or lower in _SINGLE
        """Whether a request with it twice is refused."""
        self.fate = DROP if ours else _FATES.get(lower, FORWARD)
        self.part = HOPS if ours else _PARTS.get(lower, PLAIN)


NAMES: dict[bytes, HeaderName] = {}
"""Those that came so far."""


def header_name(name: bytes) -> HeaderName:
    """Returns what there is to know of a header."""
    known = NAMES.get(name)
    if known is None:
        known = HeaderName(name)
        if len(NAMES) < MOST_NAMES:
            NAMES[name] = known
    return known


def readable_codings(accepted: bytes) -> bytes:
    """Returns the value of Accept-Encoding without the codings that cannot be read here: what an
    answer says of its tokens and in words would be lost on the record."""
    codings = [one.strip() for one in accepted.split(b",")]
    readable = [one for one in codings if one.partition(b";")[0].strip().lower() in READABLE]
    if len(readable) == len(codings):
        return accepted
    return b", ".join(readable) or b"identity"


def named_by(connection: bytes | None) -> frozenset[bytes]:
    """Returns the headers that the header Connection names, in small letters."""
    if connection is None or connection in (b"keep-alive", b"Keep-Alive", b"close"):
        return frozenset()
    return frozenset(token.strip().lower() for token in connection.split(b","))


def head_around(
    request: Request, upstream: Upstream, *, chunked: bool = False
) -> tuple[bytes, bytes]:
    """Returns the head of a request as it goes on, what stands before the digits of the body's
    length and what stands behind them: all of the caller's headers, but for those that are about
    the connection or for the proxy. Without a length, what stands before is empty. A caller with a
    virtual key gets an answer that is read on its way, and so none that is packed."""
    index = request.index
    dropped = named_by(index.get(b"connection"))
    pieces = [request.method, b" ", upstream.target(request.target), b" HTTP/1.1\r\n"]
    authority = upstream.authority
    before, virtual = b"", virtual_key(sent_key(index))
    if virtual:
        dropped |= CREDENTIALS | EXTENSIONS
        if upstream.key:
            pieces += (upstream.credentials, b"\r\n")
    for name, value in request.headers:
        known = NAMES.get(name) or header_name(name)
        fate = known.fate
        if fate in (FORWARD, CODINGS):
            if dropped and known.lower in dropped:
                continue
            if fate == CODINGS:
                value = b"identity" if virtual else readable_codings(value)
        elif fate == HOST:
            value = authority.encode()
        elif fate == DROP or chunked:
            continue
        else:
            before = b"".join((*pieces, name, b": "))
            pieces = [b"\r\n"]
            continue
        pieces += (name, b": ", value, b"\r\n")
    if chunked:
        pieces.append(b"Transfer-Encoding: chunked\r\n")
    if b"host" not in index:
        pieces.append(b"Host: %b\r\n" % authority.encode())
    pieces.append(b"\r\n")
    return before, b"".join(pieces)


def request_head(
    request: Request, upstream: Upstream, length: int | None, *, chunked: bool = False
) -> bytes:
    """Returns the head of a request as it goes on, with a body of that length, or, with None, with
    the length that it came with, if any."""
    before, after = head_around(request, upstream, chunked=chunked)
    if before:  # the caller named a length
        shown = request.length if length is None else length
        assert shown is not None
        return b"%b%d%b" % (before, shown, after)
    if length is not None:
        return b"%bContent-Length: %d\r\n\r\n" % (after[:-2], length)
    return after


def sent_key(index: Mapping[bytes, bytes]) -> bytes | None:
    """Returns the key in a request's headers; None where there is none."""
    key = index.get(b"authorization") or index.get(b"x-api-key") or index.get(b"api-key")
    return key or index.get(b"x-goog-api-key")


def sent_keys(request: Request) -> tuple[bytes, ...]:
    """Returns each key that a request brings, without the word before it (`Bearer`): those of its
    headers and of its query (`key`). Short ones are words of somebody's."""
    values = [value for name in CREDENTIALS if (value := request.index.get(name))]
    if query := request.target.partition(b"?")[2]:
        values += [one[4:] for one in query.split(b"&") if one.startswith(b"key=")]
    keys = (value.rpartition(b" ")[2] for value in values)
    return tuple(key for key in keys if len(key) >= LONG)


def virtual_key(sent: bytes | None) -> bytes | None:
    """Returns the key of this proxy's own that a header of a request has; None for another."""
    if sent is None:
        return None
    if sent[:7].lower() == b"bearer ":
        sent = sent[7:].strip()
    return sent if sent.startswith(PREFIX.encode()) else None


def answer_headers(headers: Headers) -> tuple[list[bytes], bytes, bool]:
    """Returns the headers of an answer as they go to the client, how its body is packed (in small
    letters), and whether they say how long it is."""
    packing, dropped, lines = b"", named_by(None), list[bytes]()
    sized = chunked = False
    for name, value in headers:
        part = (NAMES.get(name) or header_name(name)).part
        if part == SIZE:
            sized = True
        elif part == PACKING:
            packing = b"" if value.lower() == b"identity" else value.lower()
        elif part != PLAIN:
            chunked = chunked or part == CODING
            if part == CONNECTION and not dropped:
                dropped = named_by(value)
            continue
        lines.append(b"%b: %b" % (name, value))
    if dropped:
        lines = [x for x in lines if x.partition(b":")[0].lower() not in dropped]
    return lines, packing, sized and not chunked
