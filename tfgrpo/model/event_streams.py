"""Streams of events as servers write them, and what a stream says of how it ended.

The format is that of server-sent events (WHATWG HTML, section 9.2.6): a mark of the order of bytes
may come first, lines end in three ways, and an event's data may be several lines. Or it is that of
Amazon, `application/vnd.amazon.eventstream`: frames of a length, headers, data and sums.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from tfgrpo.model.error_bodies import Refusal, ended_wrong, failure_in
from tfgrpo.model.response import MARK

BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b":")
LINE_END = re.compile(r"\r\n|\n|\r")
UNENDED = "the stream ended before its answer did"
ENDS = ("response.completed", "response.incomplete", "message_stop", "messageStop")
BEGINS = ("response.created", "response.in_progress", "message_start", "messageStart")
GAPS = (b"\n\n", b"\r\n\r\n", b"\r\r")
"""What stands between events."""
PRELUDE = struct.Struct(">III")
"""A frame begins with its length, that of its headers, and the sum of both."""
_kind = re.compile(rb":(event|exception)-type\x07(..)", re.DOTALL).search


class Event(NamedTuple):
    """An event of a stream: its name, which is mostly empty, and its data."""

    name: str
    data: str

    def json(self) -> Any:
        """The data as JSON; None for what is none."""
        try:
            return json.loads(self.data)
        except (ValueError, RecursionError):
            return None


def is_stream(content: bytes | bytearray) -> bool:
    """Whether an answer comes as events."""
    if is_framed(content):
        return True
    return content[:64].removeprefix(MARK).lstrip(b"\r\n").startswith(BEGINNINGS)


def is_framed(content: bytes | bytearray) -> bool:
    """Returns whether an answer comes in frames."""
    return content[:1] == b"\0" and _is_frame(content, 0)


def _is_frame(content: bytes | bytearray, at: int) -> bool:
    """Returns whether a frame begins at a place."""
    if at + PRELUDE.size > len(content):
        return False
    return bool(PRELUDE.unpack_from(content, at)[2] == zlib.crc32(content[at : at + 8]))


def end_of_events(stream: bytes | bytearray) -> int:
    """Returns where the last event ends that a stream, which may be cut off, has all of."""
    if is_framed(stream):
        return max((end for _, end in _frames(stream)), default=0)
    return max((stream.rfind(gap) + len(gap) for gap in GAPS if gap in stream), default=0)


def _frames(stream: bytes | bytearray) -> Iterator[tuple[Event, int]]:
    """Yields the events in frames, each with where its frame ends; what is between them, where a
    part of the stream is missing, is passed over."""
    at = 0
    while at + PRELUDE.size < len(stream):
        length, heads, _ = PRELUDE.unpack_from(stream, at)
        if not _is_frame(stream, at) or not PRELUDE.size < length <= len(stream) - at:
            at += 1
            continue
        body = at + PRELUDE.size + heads
        kind = _kind(stream, at, body)
        data = stream[body : at + length - 4].decode("utf-8", "replace")
        if kind is not None:
            end = kind.end() + int.from_bytes(kind[2], "big")
            name = stream[kind.end() : end].decode("utf-8", "replace")
            if kind[1] == b"exception":
                data = json.dumps({"error": {"code": name, "message": data}})
            yield Event(name, data), at + length
        at += length


def events_of(stream: bytes | bytearray) -> Iterator[Event]:
    """Yields the events of a stream, the last one also where no empty line follows it."""
    if is_framed(stream):
        yield from (event for event, _ in _frames(stream))
        return
    name, data = "", []
    text = stream.removeprefix(MARK).decode("utf-8", "replace")
    for line in (*LINE_END.split(text), ""):
        field, _, value = line.partition(":")
        if field == "event":
            name = value.removeprefix(" ")
        elif field == "data":
            data.append(value.removeprefix(" "))
        elif not line:
            if data or name:
                yield Event(name, "\n".join(data))
            name, data = "", []


def stream_failure(stream: bytes | bytearray, *, whole: bool = True) -> Refusal | None:
    """What a stream says went wrong; None for one that brought an answer to its end, which has to
    be said. With `whole` false something of it is missing."""
    begun: set[object] = set()
    ended: set[object] = set()
    for event in events_of(stream):
        body = event.json()
        if event.name == "error" and not isinstance(body, dict):
            return Refusal(0, event.data or "an event that is named error")
        if not isinstance(body, dict):
            continue
        kind = body.get("type") or event.name
        inner = body.get("response") if str(kind).startswith("response.") else None
        failure = failure_in(inner if isinstance(inner, dict) else body, partial=True)
        if failure is None and kind in ("error", "response.failed"):
            failure = Refusal(0, f"the event {kind}")
        if failure is not None:
            return failure
        if kind in BEGINS:
            begun.add("")
        elif kind in ENDS:
            ended.add("")
        delta = body.get("delta")
        if isinstance(delta, dict) and delta.get("stop_reason"):
            ended.add("")
            if ended_wrong(delta["stop_reason"]):
                return Refusal(0, f"the answer ended with {delta['stop_reason']!r}")
        choices = body.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and "finish_reason" in choice:
                index = str(choice.get("index", 0))
                (begun if choice["finish_reason"] is None else ended).add(index)
        candidates = body.get("candidates")
        for candidate in candidates if isinstance(candidates, list) else ():
            if isinstance(candidate, dict):
                index = str(candidate.get("index", 0))
                (ended if candidate.get("finishReason") else begun).add(index)
    unended = begun - ended if whole else begun if not ended else set()
    return Refusal(0, UNENDED) if unended else None
