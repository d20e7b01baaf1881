"""Requests that a program of the user's wrote, in three wire formats: chat completions, responses
and Anthropic's messages. A request goes on as it was written, but for the model and the limit of
tokens; an answer is handed on as it came, and read here as a chat completion.

A stream is server-sent events (WHATWG HTML, section 9.2.6): a mark of the order of bytes may come
first, lines end in three ways, and an event's data may be several lines. Or it is that of Amazon,
`application/vnd.amazon.eventstream`: frames of a length, headers, data and sums.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tfgrpo.model import retried_errors, secrets
from tfgrpo.model.response import MARK, field
from tfgrpo.model.retried_errors import Refusal, ended_wrong
from tfgrpo.rendering.request_placement import GEMINI_SYSTEM
from tfgrpo.store.records import Json

CHAT, RESPONSES, MESSAGES = "/chat/completions", "/responses", "/messages"
LIMITS: Mapping[str, tuple[str, ...]] = {
    CHAT: ("max_completion_tokens", "max_tokens"),
    RESPONSES: ("max_output_tokens",),
    MESSAGES: ("max_tokens",),
}
"""The routes, and what the limit of an answer's tokens is called there."""
VERSION = "2023-06-01"
"""Of Anthropic's API, where a request names none."""
STOPS = {
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
}


def request_turns(body: Json) -> list[Any] | None:
    """The turns of a request of any route in its provider's shape, with what it says of the system
    first; None where it has none."""
    system = [body[name] for name in ("instructions", "system") if body.get(name)]
    gemini = (body[name] for name in GEMINI_SYSTEM if isinstance(body.get(name), dict))
    system += [content.get("parts") for content in gemini]
    turns = body.get("messages", body.get("input", body.get("contents")))
    if isinstance(turns, str):
        turns = [{"role": "user", "content": turns}]
    if not isinstance(turns, list):
        if not system:
            return None
        turns = []
    return [*({"role": "system", "content": content} for content in system), *turns]


def limit_of(wire: Json) -> int | None:
    """The most tokens that a request's answer may have, where it says so."""
    named = (wire["body"].get(name) for name in LIMITS[wire["route"]])
    return next((n for n in named if isinstance(n, int) and n > 0), None)


def arguments(wire: Json, model: str, most: int, *, renamed: bool) -> dict[str, Any]:
    """The body of a request as it is sent, its answer having at most so many tokens. `renamed` says
    that the endpoint takes the newer name of the limit alone."""
    route, body = wire["route"], dict(wire["body"])
    names = [name for name in LIMITS[route] if isinstance(body.get(name), int)]
    usual = "max_completion_tokens" if renamed and route == CHAT else LIMITS[route][-1]
    body |= {"model": model, **dict.fromkeys(names or [usual], most)}
    if route == CHAT and body.get("stream") is True:
        options = body.get("stream_options")
        options = options if isinstance(options, dict) else {}
        body["stream_options"] = {**options, "include_usage": True}
    return body


def headers(wire: Json, key: str | None) -> dict[str, str]:
    """The headers that go with a request beside the endpoint's own."""
    more = dict(wire["headers"])
    if wire["route"] == MESSAGES:
        more.setdefault("anthropic-version", VERSION)
        if key:
            more["x-api-key"] = key
    return more


def failure_in(response: object) -> Refusal | None:
    """What is wrong with what came under status 200; None for an answer."""
    if isinstance(response, str) and is_stream(response.encode()):
        return stream_failure(response.encode())
    return retried_errors.failure_in(response)


def handed_on(wire: Json, response: object) -> object:
    """An answer as its reader gets it: a chat's stream without usage that was not asked for."""
    wants_usage = field(wire["body"].get("stream_options"), "include_usage")
    if wire["route"] != CHAT or wants_usage or not isinstance(response, str):
        return response
    pieces = response.replace("\r\n", "\n").split("\n\n")
    return "\n\n".join(piece for piece in pieces if not _tells_usage_alone(piece))


def _tells_usage_alone(piece: str) -> bool:
    bodies = [event.json() for event in events_of(piece.encode())]
    return any(isinstance(b, dict) and b.get("usage") and b.get("choices") == [] for b in bodies)


def completion(route: str, response: object) -> object:
    """An answer or stream of a route as a chat completion; anything else as it is."""
    if isinstance(response, str) and is_stream(response.encode()):
        events = list(events_of(response.encode()))
        response = {CHAT: _chat_stream, RESPONSES: _last_response, MESSAGES: _message_stream}[
            route
        ](events)
    if not isinstance(response, dict) or route == CHAT:
        return response
    return _of_response(response) if route == RESPONSES else _of_message(response)


# streams:


def _bodies(events: list[Event]) -> list[dict[str, Any]]:
    return [body for event in events if isinstance(body := event.json(), dict)]


def _chat_stream(events: list[Event]) -> Json:
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    whole: dict[str, Any] = {"choices": [{"index": 0, "message": message}]}
    for body in _bodies(events):
        if body.get("usage"):
            whole["usage"] = body["usage"]
        for choice in body.get("choices") or ():
            if not isinstance(choice, dict) or choice.get("index") not in (None, 0):
                continue
            if choice.get("finish_reason"):
                whole["choices"][0]["finish_reason"] = choice["finish_reason"]
            delta = choice.get("delta") or {}
            for name in ("content", "reasoning_content", "reasoning", "refusal"):
                if isinstance(delta.get(name), str):
                    message[name] = message.get(name, "") + delta[name]
            for call in delta.get("tool_calls") or ():
                _add_call(calls, call)
    if calls:
        message["tool_calls"] = [calls[number] for number in sorted(calls)]
    return whole


class ChatWords:
    """The words of a chat completion that comes as a stream, told as far as they have come; without
    the secrets that are given: what may be the beginning of one waits for the rest."""

    def __init__(self, tell: Callable[[str], None], hidden: Sequence[str] = ()) -> None:
        self._tell, self._rest, self._words = tell, b"", ""
        self._hidden = [secret for secret in hidden if len(secret) >= secrets.LONG]

    def take(self, part: bytes) -> None:
        """Takes the next part of the stream, which may end in the middle of an event."""
        whole, mark, self._rest = (self._rest + part).replace(b"\r\n", b"\n").rpartition(b"\n\n")
        text = streamed_text(whole + mark).decode("utf-8", "surrogatepass")
        if not text:
            return
        self._words += text
        words = secrets.scrub(self._words, *self._hidden)
        starts = (n for one in self._hidden for n in range(1, len(one)) if words.endswith(one[:n]))
        self._tell(words[: len(words) - max(starts, default=0)])


def _add_call(calls: dict[int, dict[str, Any]], delta: Json) -> None:
    number = delta.get("index") or 0
    call = calls.setdefault(number, {"id": "", "function": {"name": "", "arguments": ""}})
    call["id"] = delta.get("id") or call["id"]
    function = delta.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def _last_response(events: list[Event]) -> object:
    held = [body["response"] for body in _bodies(events) if isinstance(body.get("response"), dict)]
    return held[-1] if held else None


def response_id(body: object) -> str | None:
    """The id of a response, or of one that came as a stream."""
    if isinstance(body, str):
        body = _last_response(list(events_of(body.encode())))
    id = field(body, "id")
    return id if isinstance(id, str) else None


def _message_stream(events: list[Event]) -> Json:
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for body in _bodies(events):
        match body.get("type"):
            case "message_start":
                message = dict(body.get("message") or {})
            case "content_block_start":
                blocks[body.get("index", 0)] = dict(body.get("content_block") or {})
            case "content_block_delta":
                block, delta = blocks.setdefault(body.get("index", 0), {}), body.get("delta") or {}
                for name in ("text", "thinking", "partial_json"):
                    if isinstance(delta.get(name), str):
                        block[name] = block.get(name, "") + delta[name]
            case "message_delta":
                message |= body.get("delta") or {}
                message["usage"] = {**message.get("usage", {}), **(body.get("usage") or {})}
    message["content"] = [blocks[number] for number in sorted(blocks)]
    return message


# formats:


def _of_response(response: Json) -> Json:
    text, thought, calls = "", "", list[Json]()
    for item in response.get("output") or ():
        match field(item, "type"):
            case "message":
                text += words(item.get("content"))
            case "reasoning":
                thought += words(item.get("summary")) or words(item.get("content"))
            case "function_call":
                function = {"name": item.get("name"), "arguments": item.get("arguments")}
                calls.append({"id": item.get("call_id"), "function": function})
            case "custom_tool_call":
                function = {"name": item.get("name"), "arguments": item.get("input")}
                calls.append({"id": item.get("call_id"), "function": function})
    reason = field(response.get("incomplete_details"), "reason")
    ended = STOPS.get(reason or "", reason) or ("tool_calls" if calls else "stop")
    return _completion((text, thought, calls), ended, response.get("usage"))


def _of_message(message: Json) -> Json:
    text, thought, calls = "", "", list[Json]()
    for block in message.get("content") or ():
        match field(block, "type"):
            case "text":
                text += block.get("text") or ""
            case "thinking":
                thought += block.get("thinking") or ""
            case "tool_use":
                given = block.get("partial_json") or json.dumps(block.get("input") or {})
                function = {"name": block.get("name"), "arguments": given}
                calls.append({"id": block.get("id"), "function": function})
    reason = message.get("stop_reason") or "stop"
    ended = "tool_calls" if reason == "tool_use" else STOPS.get(reason, reason)
    return _completion((text, thought, calls), ended, message.get("usage"))


def _completion(parts: tuple[str, str, list[Json]], reason: str, usage: object) -> Json:
    text, thought, calls = parts
    message = {"role": "assistant", "content": text, "reasoning_content": thought}
    if calls:
        message = {**message, "tool_calls": calls}  # type: ignore[dict-item]
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}


def words(content: object) -> str:
    """The texts of a content in any provider's shape."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (part if isinstance(part, str) else field(part, "text") for part in parts)
    return "".join(text for text in texts if isinstance(text, str))


OUTPUT = "response.output_text.delta"
"""Events of a response that bring its text; others bring thoughts, or the words for tools."""
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


def streamed_text(stream: bytes | bytearray) -> bytes:
    """Returns the text that the events of a stream bring piece by piece, of any route: that of the
    answer, without what a model thinks or calls tools with."""
    pieces: list[str] = []
    for one in events_of(stream):
        event = one.json()
        if not isinstance(event, dict):
            continue
        deltas = [one.get("delta") for one in _firsts(event, "choices")]
        for candidate in _firsts(event, "candidates"):
            content = candidate.get("content")
            parts = content.get("parts") if isinstance(content, dict) else None
            for part in parts if isinstance(parts, list) else ():
                if isinstance(part, dict) and not part.get("thought"):
                    deltas.append(part.get("text"))
        if event.get("type", OUTPUT) == OUTPUT or isinstance(event.get("delta"), dict):
            deltas.append(event.get("delta"))
        for delta in deltas:
            if isinstance(delta, dict):
                delta = delta.get("content", delta.get("text"))
            if isinstance(delta, str):
                pieces.append(delta)
    return "".join(pieces).encode("utf-8", "surrogatepass")


def _firsts(event: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """What an event brings for the first of the answers under a name, whatever stands there."""
    listed = event.get(name)
    return [
        one
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict) and one.get("index") in (None, 0)
    ]


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
        event_body = inner if isinstance(inner, dict) else body
        failure = retried_errors.failure_in(event_body, partial=True)
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
