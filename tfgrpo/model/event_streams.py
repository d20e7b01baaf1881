"""Streams of server-sent events (WHATWG HTML, section 9.2.6), and what one says of how it ended."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tfgrpo.model.error_bodies import Refusal, ended_wrong, failure_in
from tfgrpo.model.response import MARK

BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b":")
LINE_END = re.compile(r"\r\n|\n|\r")
UNENDED = "the stream ended before its answer did"
ENDS = ("response.completed", "response.incomplete", "message_stop")
BEGINS = ("response.created", "response.in_progress", "message_start")


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
    return content[:64].removeprefix(MARK).lstrip(b"\r\n").startswith(BEGINNINGS)


def events_of(stream: bytes | bytearray) -> Iterator[Event]:
    """Yields the events of a stream, the last one also where no empty line follows it."""
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
    unended = begun - ended if whole else begun if not ended else set()
    return Refusal(0, UNENDED) if unended else None
