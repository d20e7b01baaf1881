"""One call as it is seen passing by: what is counted of it, and what goes to the record."""

from __future__ import annotations

import json
from marshal import dumps
from typing import TYPE_CHECKING, Any

from tfgrpo.model.event_streams import end_of_events, is_framed, is_stream
from tfgrpo.proxy.http_message import sent_key
from tfgrpo.proxy.recorded_call import (
    CERTAIN,
    ENDS,
    RECORDED,
    TOO_LONG,
    USAGE,
    WHOLE,
    Doubt,
    doubtful,
    streamed_text,
)

if TYPE_CHECKING:
    from tfgrpo.proxy.http_message import Request
    from tfgrpo.proxy.library_choice import Chosen
    from tfgrpo.proxy.recorder import Recorder
    from tfgrpo.rendering.request_placement import Members

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

    def packed(self) -> bytes:
        """Returns the call, which is over, as a message with a `SeenCall` in it: its length in
        four bytes, and the call in the bytes of `marshal`."""
        chosen, began, first = self.chosen, self.began, self.first
        index = self.request.index
        if chosen is None:
            under: tuple[Any, ...] = (None, None, None, None, None, False)
        else:
            trouble = bool(chosen.trouble)
            under = (*chosen[:4], chosen.arm, trouble)
        doubt = self._doubt()
        message = dumps(
            (
                self.id,
                self.time,
                *under,
                self.subject,
                self.model,
                self.path,
                self.status,
                self.streamed,
                int((self.ended - began) * 1e6),
                int((first - began) * 1e6) if first else None,
                int((self.sent - began) * 1e6) if self.sent else 0,
                sent_key(index),
                self.error,
                self.packing,
                self._pieces() if doubt == CERTAIN else self._ends(),
                self.asked,
                self._words(),
                self._cut,
                doubt,
                index.get(TRACE),
                index.get(TAGS),
                self.metadata,
                self.key,
                self.provider,
                self.tries,
            )
        )
        return len(message).to_bytes(LENGTH, "little") + message

    def _doubt(self) -> Doubt:
        """Returns whether the answer may be none, though its status is 200."""
        if self.status != 200 or self.request.method != b"POST" or self.packing == TOO_LONG:
            return CERTAIN
        beginning, ending = self._beginning, self._ending
        if not self.packing and not doubtful(beginning, ending):
            return CERTAIN
        return WHOLE if self.packing or ending.startswith(beginning) else ENDS

    def _ends(self) -> tuple[bytes, ...]:
        """Returns the answer, or its beginning and its end."""
        beginning, ending = self._beginning, bytes(self._ending)
        whole = self.packing or ending.startswith(beginning)
        return (ending,) if whole else (beginning, ending)

    def _pieces(self) -> tuple[bytes, ...]:
        """Returns the parts of the answer that may say its tokens; of a packed one, all of it."""
        beginning, ending = self._beginning, self._ending
        if self.packing:
            return (bytes(ending),)
        if len(ending) <= BEGINNING:  # which is then the beginning too
            at = ending.find(USAGE)
            return (bytes(ending[max(0, at - 1) :]),) if at >= 0 else ()
        both = (ending,) if ending.startswith(beginning) else (beginning, ending)
        return tuple(
            bytes(piece[max(0, at - 1) :]) for piece in both if (at := piece.find(USAGE)) >= 0
        )
