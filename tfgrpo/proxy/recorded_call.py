"""One call as it is seen passing by (`Call`), and as the process that records it gets it
(`SeenCall`): what is counted of it, and what its answer says of tokens and in words.

It goes there as bytes of `marshal`, between two processes of one interpreter, which is the fastest
that Python has; so it holds nothing but texts, bytes, numbers and tuples of them.
"""

from __future__ import annotations

import json
import re
import zlib
from contextlib import suppress
from json.decoder import JSONDecoder
from marshal import dumps
from typing import TYPE_CHECKING, Any, NamedTuple

from tfgrpo.model.response import MARK, CountedTokens, counted_tokens
from tfgrpo.model.retried_errors import LOOKED_AT, Refusal, failure_in, page_of
from tfgrpo.model.wire_formats import (
    end_of_events,
    is_framed,
    is_stream,
    stream_failure,
    streamed_text,
)
from tfgrpo.proxy.forwarded_headers import PACKINGS, sent_key, sent_keys

if TYPE_CHECKING:
    from tfgrpo.proxy.http_message import Request
    from tfgrpo.proxy.library_choice import Chosen
    from tfgrpo.proxy.recorder import Recorder
    from tfgrpo.rendering.request_placement import Members
    from tfgrpo.store.activity.traffic import CallRecord

RECORDED = 256 << 10
"""Bytes of a request and of an answer that are kept where words are."""
USAGE = b'"usage'
"""What the key begins with that tokens stand under: `usage`, or Gemini's `usageMetadata`."""
UNPACKED = 16 << 20
"""Bytes that an answer which came packed is read up to."""
TOO_LONG = b"too long"
"""The packing of an answer of which too little was kept to unpack it."""
CUT = 599
"""The status on record where the provider broke off in an answer that was begun."""
_end = re.compile(rb'"(?:finish|stop)(?:_r|R)eason"\s*:\s*("(?:[^"\\]|\\.)*"|null\b|\{[^}]*\})')
_traceparent = re.compile(
    rb"(?!ff)[0-9a-f]{2}-((?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(?:-.*)?"
).fullmatch
READS = (b"GET", b"HEAD")
"""The methods that ask no model, and so take no tokens: an answer may quote another call's."""
MOST_TAGS, MOST_LETTERS = 16, 200
"""Tags of a call, and letters of each."""
_name = re.compile(r"[\w.-]{1,64}").fullmatch
_continued = re.compile(rb"((?:\r\n|\n|\r))data: ?")
_object = re.compile(rb'"usage(?:Metadata)?"\s*:\s*(?=\{)').match
_json = re.compile(rb"\{|\[\s*\{").match
_decoder = JSONDecoder()

BEGINNING = 4 << 10
ENDING = 16 << 10
"""Bytes of an answer that are looked at for its tokens: at its beginning and at its end."""
COMPACTED = 64 << 10
"""Bytes of a stream's events from which on its text alone is kept."""
LENGTH = 4
"""Bytes of the length of a message."""
TRACE = b"traceparent"
"""The header that names the trace which a request belongs to (W3C Trace Context)."""
TAGS = b"x-tfgrpo-tags"
"""The header with tags of a request: `team=blue,feature=search`, percent-encoded."""
PACKED = 256 << 10
"""Bytes of a packed answer, which has to be read from its beginning."""


def message(data: bytes) -> bytes:
    """Returns bytes as they go to the process that records: behind their length, in four."""
    return len(data).to_bytes(LENGTH, "little") + data


class SeenCall(NamedTuple):
    """A call that is over: its record as it was seen, and what the rest of it is read from. `key`
    is the caller's, which no file ever holds; `pieces` are the parts of the answer that may say its
    tokens, `request` and `response` the words, None where they are not kept; with `cut` the answer
    has more of them. `asks` is whether it may have asked a model. `keys` are those that were sent,
    which an answer may quote."""

    record: CallRecord
    experiences: tuple[str, ...] | None
    key: bytes | None
    packing: bytes
    pieces: tuple[bytes, ...]
    request: bytes | None
    response: bytes | None
    cut: bool
    asks: bool
    traceparent: bytes | None
    labels: bytes | None
    metadata: tuple[tuple[str, str], ...]
    keys: tuple[bytes, ...] = ()

    def trace(self) -> str | None:
        """Returns the trace that the caller named, the span in it and its flags, in hex; None where
        it named none (https://www.w3.org/TR/trace-context/)."""
        match = _traceparent(self.traceparent or b"")
        return match[1].decode() if match else None

    def tags(self) -> dict[str, str]:
        """Returns what the application said of the call, by its header and in the metadata that is
        recorded; of many or long ones a part."""
        from urllib.parse import unquote

        pairs = [*self.metadata]
        for pair in (self.labels or b"").decode("latin-1").split(","):
            name, equals, value = pair.partition("=")
            if equals and name.strip():
                pairs.append((unquote(name.strip()), unquote(value.strip())))
        return {name[:MOST_LETTERS]: value[:MOST_LETTERS] for name, value in pairs[-MOST_TAGS:]}

    def outcome(self) -> tuple[int, str | None]:
        """Returns the status on record and why the call failed, if it did: of an error under status
        200 the status that it stands for, else `CUT`. Of the provider's words nothing is told but
        the name of the error, for they may quote the request."""
        status, error = self.record.status, self.record.error
        may_fail = status == 200 and self.asks and error is None and self.packing != TOO_LONG
        pieces = self._unpacked() if may_fail else None
        failure = None if pieces is None else _failure(pieces)
        if failure is None:
            return status, error
        name = next((f": {one}" for one in (failure.code, failure.type) if _name(one)), "")
        return failure.status or CUT, f"an error under status {status}{name}"

    def _unpacked(self) -> tuple[bytes, ...] | None:
        """Returns the parts of the answer as they were before they were packed; None where they
        cannot be read."""
        if not self.packing:
            return self.pieces
        if self.packing not in PACKINGS:
            return None
        content, whole = inflate(self.pieces[0], UNPACKED)
        return (content,) if whole else None

    def tokens(self) -> tuple[CountedTokens, str | None]:
        """Returns what the answer says of its tokens, and why it cannot be read, if it cannot."""
        pieces = self.pieces
        if self.packing == TOO_LONG:
            return CountedTokens(), "the answer is not read: it is too long for one that is packed"
        if self.packing and any(pieces):
            name = self.packing.decode("latin-1")
            if self.packing not in PACKINGS:
                return CountedTokens(), f"the answer is not read: it came packed as {name}"
            unpacked = self._unpacked()
            if unpacked is None:
                return CountedTokens(), f"the answer is not read: it is not {name}, as it says"
            pieces = unpacked
        total: dict[str, Any] = {}
        for piece in pieces:
            if b"data:" in piece:  # an event's data may be several lines
                piece = _continued.sub(b"\\1", piece)
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
        return counted_tokens(total), None

    def answer(self) -> tuple[bytes, bool, bool]:
        """The answer's words, where they are kept: its body, or of a stream the text; whether they
        are all of it; and whether it is a stream. They are empty where it cannot be read: `tokens`
        says why. What a pattern is to take out may be split between the events of a stream."""
        content, whole = self.response or b"", not self.cut
        if self.packing in PACKINGS:
            content, inflated = inflate(content, RECORDED)
            if inflated is None:
                return b"", True, False
            whole = whole and inflated
        elif self.packing:
            return b"", True, False
        if is_stream(content):
            return streamed_text(content), whole, True
        return content, whole, False


def inflate(packed: bytes, most: int) -> tuple[bytes, bool | None]:
    """Returns what was packed, up to so many bytes, and whether that is all; None: it is none."""
    unpacking = zlib.decompressobj(wbits=47)
    try:
        content = unpacking.decompress(packed, most)
        return content, not (unpacking.unconsumed_tail or unpacking.unused_data)
    except zlib.error:
        return b"", None


def _failure(pieces: tuple[bytes, ...]) -> Refusal | None:
    """Returns what is wrong with an answer of which these are the parts, the only one or its
    beginning and its end; None for an answer."""
    first, last, whole = pieces[0], pieces[-1], len(pieces) == 1
    if is_stream(first):  # an event that is cut in two is no JSON, and passed over
        return stream_failure(last if whole else first + b"\n\n" + last, whole=whole)
    content = first.removeprefix(MARK).strip()
    if not content:
        return Refusal(CUT, "no answer")
    if page_of(content[:LOOKED_AT].decode("utf-8", "replace")) is not None:
        return Refusal(0, "a web page")
    if _json(content) is None:  # such as the words of a recording
        return None
    if not whole:
        reason = "stop"
        with suppress(IndexError, ValueError, RecursionError):
            reason = json.loads(_end.findall(last)[-1])
        return failure_in({"choices": [{"finish_reason": reason}]})
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):  # it may be several lines of JSON
        return None if content[-1:] in (b"}", b"]") else Refusal(0, "the answer is cut off")
    events = body if isinstance(body, list) else [body]  # a list is a stream of Gemini's
    return next(filter(None, map(failure_in, events)), None)


class Call:
    """What is seen of a call. Times are of `perf_counter`, in seconds, apart from `time`, which is
    microseconds since 1970."""

    __slots__ = (
        *("began", "chosen", "ended", "error", "first", "id", "model", "path"),
        *("request", "sent", "status", "streamed", "subject", "time"),
        *("_beginning", "_ending", "packing", "_whole", "asked", "recorder"),
        *("_cut", "_text", "key", "metadata", "provider", "tries"),
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
        self._text = b""
        self._cut = False
        self.metadata: tuple[tuple[str, str], ...] = ()
        """Of the body's metadata, what is recorded as tags."""
        self.key: str | None = None
        """The name of the virtual key."""
        self.provider: str | None = None
        self.tries = 0
        self.recorder: Recorder | None = None
        """Where it was counted, once it is about to be made."""
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
        if self._whole is not None and not self._cut:
            self._keep(self._whole, data)
        if len(self._beginning) < BEGINNING:
            self._beginning += data[:BEGINNING]
        ending = self._ending
        ending += data
        most = PACKED if self.packing else ENDING
        if len(ending) > 2 * most and not self.packing:
            del ending[:-most]
        elif len(ending) > most and self.packing:
            ending.clear()
            self.packing = TOO_LONG

    def _keep(self, whole: bytearray, data: bytes) -> None:
        """Keeps more of the answer's words; of a stream that is long already, its text alone, for
        the events around it are many times as long."""
        whole += data
        if len(whole) > COMPACTED and not self.packing and (self._text or is_stream(whole)):
            end = end_of_events(whole)
            self._text += streamed_text(whole[:end])
            del whole[:end]
        more = len(whole) + len(self._text) - RECORDED
        if more > 0:
            self._cut = True
            del whole[max(0, len(whole) - more) :]

    def _words(self) -> bytes | None:
        """Returns what is kept of the answer; a stream's text so far is its first event."""
        if self._whole is None or not self._text:
            return None if self._whole is None else bytes(self._whole)
        text, rest = self._text, self._whole
        if is_framed(rest):
            text, rest = text + streamed_text(rest), bytearray()
        event = {"delta": text[:RECORDED].decode("utf-8", "replace")}
        return b"data: %s\n\n%s" % (json.dumps(event).encode(), rest)

    def packed(self, own_keys: tuple[bytes, ...] = ()) -> bytes:
        """Returns the call, which is over, as a message with a `SeenCall` in it: its length in
        four bytes, and the call in the bytes of `marshal`. `own_keys` are those of providers."""
        began, first = self.began, self.first
        index, method = self.request.index, self.request.method
        name, version, digest, experiences, _, trouble, _, arm = self.chosen or (None,) * 8
        tokens = (0, 0, 0) if method in READS else (None, None, None)
        record = (
            *(self.id, self.time, "", name, version, digest, None, self.subject, arm, self.model),
            *(self.path, self.status, int(self.streamed), *tokens),
            int((self.ended - began) * 1e6),
            int((first - began) * 1e6) if first else None,
            int((self.sent - began) * 1e6) if self.sent else 0,
            *(int(bool(trouble)), None, self.error, None, None),
            *(self.key, self.provider, self.tries or None),
        )
        seen = dumps(
            (
                record,
                experiences,
                sent_key(index),
                self.packing,
                self._pieces(),
                *(self.asked, self._words(), self._cut, method == b"POST"),
                *(index.get(TRACE), index.get(TAGS), self.metadata),
                (*own_keys, *sent_keys(self.request)),
            )
        )
        return message(seen)

    def _pieces(self) -> tuple[bytes, ...]:
        """Returns the answer, or its beginning and its end. A packed one has to be whole."""
        beginning, ending = self._beginning, bytes(self._ending)
        whole = self.packing or ending.startswith(beginning)
        return (ending,) if whole else (beginning, ending)
