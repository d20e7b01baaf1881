"""What becomes of a header on its way through the proxy, by its name."""

from __future__ import annotations

import re

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
FORWARD, DROP, HOST, LENGTH, CODINGS = range(5)
"""What becomes of a header on its way: it goes on, it does not, it is written anew, or it goes on
without the codings that no record could be made of."""
PLAIN, HOPS, CONNECTION, CODING, SIZE, PACKING = range(6)
"""What a header of an answer is: one to go on, one of the connection (the one that names others,
and the one for chunks, apart), the body's length, how the body is packed."""
CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key"})
"""The headers that a caller's key may be in."""
PACKINGS = (b"gzip", b"deflate")
"""How an answer may be packed that can be read here."""
READABLE = frozenset({*PACKINGS, b"identity"})
_zero = re.compile(rb"[qQ]=0(?:\.0{0,3})?").fullmatch
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
        self.fate = DROP if ours or lower in HOP or lower == b"expect" else FORWARD
        if lower == b"host":
            self.fate = HOST
        elif lower == b"content-length":
            self.fate = LENGTH
        elif lower == b"accept-encoding":
            self.fate = CODINGS
        self.part = _PARTS.get(lower, PLAIN)


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
    refused = [one for one in codings if _refused(one)]
    readable = [one for one in codings if one not in refused and _named(one) in READABLE]
    if len(refused) + len(readable) == len(codings):
        return accepted
    return b", ".join([*readable, *refused]) if readable else b"identity"


def _named(coding: bytes) -> bytes:
    return coding.partition(b";")[0].strip().lower()


def _refused(coding: bytes) -> bool:
    """Returns whether a coding has the weight 0 (RFC 9110, section 12.4.2): it is not wanted."""
    return _zero(coding.partition(b";")[2].strip()) is not None


def named_by(connection: bytes | None) -> frozenset[bytes]:
    """Returns the headers that the header Connection names, in small letters."""
    if connection is None or connection in (b"keep-alive", b"Keep-Alive", b"close"):
        return frozenset()
    return frozenset(token.strip().lower() for token in connection.split(b","))
