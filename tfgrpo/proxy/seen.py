"""A call as the process that records it gets it, and what its answer says of tokens and in words.

It goes there as bytes of `marshal`, between two processes of one interpreter, which is the fastest
that Python has; so it holds nothing but texts, bytes, numbers and tuples of them.
"""

from __future__ import annotations

import json
import re
import zlib
from json.decoder import JSONDecoder
from typing import Any

from tfgrpo.store.named_tuple import NamedTuple

RECORDED = 256 << 10
"""Bytes of a request and of an answer that are kept where words are."""
OUTPUT = "response.output_text.delta"
"""Events of a response that bring its text; others bring thoughts, or the words for tools."""
USAGE = b'"usage"'
PACKINGS = (b"gzip", b"deflate")
TOO_LONG = b"too long"
"""The packing of an answer of which too little was kept to unpack it."""
_object = re.compile(rb'"usage"\s*:\s*(?=\{)').match
_decoder = JSONDecoder()


class Tokens(NamedTuple):
    """Tokens by the provider's count: in, of these from its cache, and out."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None


class SeenCall(NamedTuple):
    """A call that is over; times are microseconds, `time` since 1970. `key` is the caller's, which
    no file ever holds; `pieces` are the parts of the answer that may say its tokens, `request` and
    `response` the words, None where they are not kept; with `cut` the answer has more of them."""

    id: str
    time: int
    library: str | None
    version: str | None
    digest: str | None
    experiences: tuple[str, ...] | None
    arm: str | None
    stale: bool
    subject: str | None
    model: str | None
    path: str
    status: int
    streamed: bool
    latency: int
    first: int | None
    added: int
    key: bytes | None
    error: str | None
    packing: bytes
    pieces: tuple[bytes, ...]
    request: bytes | None
    response: bytes | None
    cut: bool

    def tokens(self) -> tuple[Tokens, str | None]:
        """Returns what the answer says of its tokens, and why it cannot be read, if it cannot."""
        pieces = self.pieces
        if self.packing == TOO_LONG:
            return Tokens(), "the answer is not read: it is too long for one that is packed"
        if self.packing and any(pieces):
            name = self.packing.decode("latin-1")
            if self.packing not in PACKINGS:
                return Tokens(), f"the answer is not read: it came packed as {name}"
            try:
                pieces = (zlib.decompressobj(wbits=47).decompress(pieces[0]),)
            except zlib.error as error:
                return Tokens(), f"the answer is not read: it is not {name}, as it says: {error}"
        total: dict[str, Any] = {}
        for piece in pieces:
            at = piece.find(USAGE)
            while at >= 0:
                match = None if piece[at - 1 : at] == b"\\" else _object(piece, at)
                at = piece.find(USAGE, at + 1)
                if match is None:
                    continue
                try:
                    usage, _ = _decoder.raw_decode(piece[match.end() :].decode(errors="replace"))
                except (ValueError, RecursionError):
                    continue
                for key, value in usage.items():
                    if value is not None:
                        total[key] = value
        return _tokens(total), None

    def answer(self) -> tuple[bytes, bool]:
        """Returns the answer's words, where they are kept: its body, or of a stream the text; and
        whether they are all of it. They are empty where it cannot be read: `tokens` says why.

        What a pattern is to take out may be split between the events of a stream.
        """
        content, whole = self.response or b"", not self.cut
        if self.packing in PACKINGS:
            unpacking = zlib.decompressobj(wbits=47)
            try:
                content = unpacking.decompress(content, RECORDED)
            except zlib.error:
                return b"", True
            whole = whole and not unpacking.unconsumed_tail
        elif self.packing:
            return b"", True
        return (streamed_text(content) if is_stream(content) else content), whole


def is_stream(content: bytes | bytearray) -> bool:
    """Returns whether an answer comes as events."""
    return content.startswith((b"data:", b"event:", b":"))


def streamed_text(stream: bytes | bytearray) -> bytes:
    """Returns the text that the events of a stream bring piece by piece, of any route: that of the
    answer, without what a model thinks or calls tools with."""
    pieces: list[str] = []
    for line in stream.splitlines():
        if not line.startswith(b"data:"):
            continue
        try:
            event = json.loads(line[5:])
        except (ValueError, RecursionError):
            continue
        if not isinstance(event, dict):
            continue
        choices = event.get("choices")
        deltas = [one.get("delta") for one in choices or () if _is_first(one)]
        if event.get("type", OUTPUT) == OUTPUT or isinstance(event.get("delta"), dict):
            deltas.append(event.get("delta"))
        for delta in deltas:
            if isinstance(delta, dict):
                delta = delta.get("content", delta.get("text"))
            if isinstance(delta, str):
                pieces.append(delta)
    return "".join(pieces).encode("utf-8", "surrogatepass")


def _is_first(choice: object) -> bool:
    return isinstance(choice, dict) and choice.get("index") in (None, 0)


def _tokens(usage: dict[str, Any]) -> Tokens:
    """Returns the tokens of a usage in the words of any route."""
    cached = usage.get("cache_read_input_tokens")
    for key in ("prompt_tokens_details", "input_tokens_details"):
        details = usage.get(key)
        if isinstance(details, dict) and isinstance(details.get("cached_tokens"), int):
            cached = details["cached_tokens"]
    prompt = _first_number(usage, "prompt_tokens", "input_tokens")
    if prompt is not None and cached is usage.get("cache_read_input_tokens"):
        # Anthropic counts what was read from the cache, or written to it, beside the others.
        for key in ("cache_read_input_tokens", "cache_creation_input_tokens"):
            prompt += _first_number(usage, key) or 0
    return Tokens(
        prompt,
        _first_number({"cached": cached}, "cached"),
        _first_number(usage, "completion_tokens", "output_tokens"),
    )


def _first_number(usage: dict[str, Any], *keys: str) -> int | None:
    for key in keys:
        number = usage.get(key)
        if isinstance(number, int) and number.bit_length() < 64:  # as a file can hold it
            return number
    return None
