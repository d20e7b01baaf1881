"""One call as it is seen passing by: what is counted of it, and what an answer says of tokens."""

from __future__ import annotations

import json
import re
import zlib
from json.decoder import JSONDecoder
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tfgrpo.proxy.choice import Chosen
    from tfgrpo.proxy.message import Request
    from tfgrpo.proxy.placement import Members

BEGINNING = 4 << 10
ENDING = 16 << 10
"""Bytes of an answer that are looked at for its tokens: at its beginning and at its end."""
PACKED = 256 << 10
"""Bytes of a packed answer, which has to be read from its beginning."""
RECORDED = 256 << 10
"""Bytes of a request and of an answer that are kept where words are."""
USAGE = b'"usage"'
_object = re.compile(rb'"usage"\s*:\s*(?=\{)').match
_decoder = JSONDecoder()


class Tokens(NamedTuple):
    """Tokens by the provider's count: in, of these from its cache, and out."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None


class Call:
    """What is seen of a call. Times are of `perf_counter`, in seconds, apart from `time`, which is
    microseconds since 1970."""

    __slots__ = (
        *("began", "chosen", "ended", "error", "first", "id", "model", "path"),
        *("request", "sent", "status", "streamed", "subject", "time"),
        *("_beginning", "_ending", "packing", "_whole", "asked", "counted"),
    )

    def __init__(self, id: str, time: int, request: Request) -> None:
        self.id = id
        self.time = time
        self.request = request
        self.path = request.path
        self.began = request.began
        self.sent = self.first = self.ended = 0.0
        self.chosen: Chosen | None = None
        self.subject: str | None = None
        self.model: str | None = None
        self.streamed = False
        self.status = 0
        self.error: str | None = None
        self.packing = b""
        self._beginning = b""
        self._ending = bytearray()
        self._whole: bytearray | None = None
        self.counted = False
        self.asked: bytes | None = None
        """The body of the request before the library went in, where words are kept."""

    def keep(self, request: bytes) -> None:
        """Keeps the words of the call, as far as they are not too many."""
        self.asked = request[:RECORDED]
        self._whole = bytearray()

    def read(self, members: Members, subject: str | None) -> None:
        """Takes from the request whom it is for and which model it asks."""
        model = members["model"].value if "model" in members else None
        self.model = model if isinstance(model, str) else None
        self.streamed = "stream" in members and members["stream"].value is True
        self.subject = subject

    def tap(self, data: bytes) -> None:
        """Takes a copy of the ends of an answer; no more of it than that."""
        if self._whole is not None and len(self._whole) < RECORDED:
            self._whole += data[: RECORDED - len(self._whole)]
        if len(self._beginning) < BEGINNING:
            self._beginning += data[:BEGINNING]
        ending = self._ending
        ending += data
        most = PACKED if self.packing else ENDING
        if len(ending) > 2 * most and not self.packing:
            del ending[:-most]
        elif len(ending) > most and self.packing:
            ending.clear()
            self.packing = b"too long"

    @property
    def added(self) -> float:
        """Seconds that the request waited here before it went on."""
        return max(0.0, self.sent - self.began) if self.sent else 0.0

    @property
    def latency(self) -> float:
        """Seconds from the whole request to the last byte of its answer."""
        return max(0.0, (self.ended or perf_counter()) - self.began)

    @property
    def first_byte(self) -> float | None:
        """Seconds from the whole request to the first byte of its answer."""
        return max(0.0, self.first - self.began) if self.first else None

    def answer(self) -> bytes:
        """Returns the answer's words, where they are kept: its body, or of a stream the text.

        What a pattern is to take out may be split between the events of a stream.
        """
        content = bytes(self._whole or b"")
        if self.packing in (b"gzip", b"deflate"):
            try:
                content = zlib.decompressobj(wbits=47).decompress(content, RECORDED)
            except zlib.error:
                return b""
        elif self.packing:
            return b""
        return (
            streamed_text(content) if content.startswith((b"data:", b"event:", b":")) else content
        )

    def tokens(self) -> Tokens:
        """Returns what the answer says of its tokens."""
        if not self._beginning:
            return Tokens()
        beginning, ending = self._beginning, bytes(self._ending)
        if self.packing in (b"gzip", b"deflate"):
            try:
                ending = zlib.decompressobj(wbits=47).decompress(ending)
            except zlib.error:
                return Tokens()
            beginning = ending[:BEGINNING]
        elif self.packing:
            return Tokens()
        total: dict[str, Any] = {}
        for piece in (ending,) if ending.startswith(beginning) else (beginning, ending):
            at = piece.find(USAGE)
            while at >= 0:
                match = None if piece[at - 1 : at] == b"\\" else _object(piece, at)
                at = piece.find(USAGE, at + 1)
                if match is None:
                    continue
                try:
                    usage, _ = _decoder.raw_decode(piece[match.end() :].decode(errors="replace"))
                except json.JSONDecodeError:
                    continue
                for key, value in usage.items():
                    if value is not None:
                        total[key] = value
        return _tokens(total)


def streamed_text(stream: bytes) -> bytes:
    """Returns the text that the events of a stream bring piece by piece, of any route."""
    pieces: list[str] = []
    for line in stream.splitlines():
        if not line.startswith(b"data:"):
            continue
        try:
            event = json.loads(line[5:])
        except ValueError:
            continue
        choices = event.get("choices") if isinstance(event, dict) else None
        deltas = [choice.get("delta") for choice in choices or () if isinstance(choice, dict)]
        if isinstance(event, dict):
            deltas.append(event.get("delta"))
        for delta in deltas:
            if isinstance(delta, dict):
                delta = delta.get("content", delta.get("text"))
            if isinstance(delta, str):
                pieces.append(delta)
    return "".join(pieces).encode()


def _tokens(usage: dict[str, Any]) -> Tokens:
    """Returns the tokens of a usage in the words of any route."""
    cached = usage.get("cache_read_input_tokens")
    for key in ("prompt_tokens_details", "input_tokens_details"):
        details = usage.get(key)
        if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
            cached = details["cached_tokens"]
    return Tokens(
        _first_number(usage, "prompt_tokens", "input_tokens"),
        cached if isinstance(cached, int) else None,
        _first_number(usage, "completion_tokens", "output_tokens"),
    )


def _first_number(usage: dict[str, Any], *keys: str) -> int | None:
    for key in keys:
        number = usage.get(key)
        if isinstance(number, int):
            return number
    return None
