"""Answers under status 200 in every form in which they come over the wire, good ones and failed.

Written in the shapes of providers' documentation: chat completions, completions, responses and
messages, each as one body and as a stream.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

JSON = "application/json"
EVENTS = "text/event-stream"
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"


class Wire(NamedTuple):
    """An answer: its route, type and body, whether it failed, and the status that its error stands
    for, None where that cannot be told."""

    name: str
    route: str
    kind: str
    body: bytes
    failed: bool
    status: int | None = None


ERRORS: dict[str, tuple[Any, int | None]] = {
    "a number": ({"message": "provider went away", "code": 502}, 502),
    "a number as text": ({"message": "slow down", "code": "429"}, 429),
    "a name as its code": ({"message": "slow down", "code": "rate_limit_exceeded"}, 429),
    "a name as its type": ({"message": "too busy", "type": "overloaded_error"}, 529),
    "a name of no status": ({"message": "it went wrong", "type": "strange"}, None),
    "a message alone": ({"message": "it went wrong"}, None),
    "a code alone": ({"code": 503}, 503),
    "a text": ("upstream went away", None),
}
REASONS: dict[str, Any] = {
    "error": "error",
    "capitals": "ERROR",
    "abort": "abort",
    "aborted": "aborted",
    "cancelled": "cancelled",
    "no resources": "insufficient_system_resource",
    "network": "network_error",
    "null": None,
    "an object": {"type": "abort", "message": "aborted"},
}
GOOD = ("stop", "length", "tool_calls", "content_filter", "eos", "STOP")


def _json(name: str, route: str, value: Any, failed: bool, status: int | None = None) -> Wire:
    return Wire(name, route, JSON, json.dumps(value).encode(), failed, status)


def frames(*events: Any, named: bool = False, done: bool = False) -> bytes:
    """Returns events as a stream."""
    lines = []
    for event in events:
        name = f"event: {event['type']}\n" if named else ""
        lines.append(f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
    return "".join([*lines, "data: [DONE]\n\n" if done else ""]).encode()


def chunk(text: str, reason: Any = None, **more: Any) -> dict[str, Any]:
    """Returns a chunk of a chat completion."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": reason, **more}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}


def completion(text: str, reason: Any = "stop", **more: Any) -> dict[str, Any]:
    """Returns a chat completion."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": reason, **more}
    return {"id": "c", "object": "chat.completion", "choices": [choice]}


def message(text: str, reason: Any = "end_turn") -> dict[str, Any]:
    """Returns a message of Anthropic's."""
    content = [{"type": "text", "text": text}]
    head = {"id": "msg", "type": "message", "role": "assistant"}
    return {**head, "content": content, "stop_reason": reason}


def response(text: str, status: str = "completed", error: Any = None) -> dict[str, Any]:
    """Returns a response of OpenAI's."""
    content = [{"type": "output_text", "text": text}]
    output = [{"type": "message", "role": "assistant", "status": status, "content": content}]
    return {"id": "r", "object": "response", "status": status, "error": error, "output": output}


def message_events(*end: Any) -> bytes:
    """Returns a stream of a message, up to its end."""
    start = {"type": "message_start", "message": {**message("", None), "content": []}}
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Half"}}
    return frames(start, delta, *end, named=True)


def response_events(*end: Any) -> bytes:
    """Returns a stream of a response, up to its end."""
    start = {"type": "response.created", "response": response("", "in_progress")}
    delta = {"type": "response.output_text.delta", "delta": "Half"}
    return frames(start, delta, *end, named=True)


def failed() -> Iterator[Wire]:
    """Yields answers that are none."""
    for name, (error, status) in ERRORS.items():
        whole = error if isinstance(error, dict) else {"message": error}
        yield _json(f"body, {name}", CHAT, {"error": error}, True, status)
        yield _json(f"list, {name}", CHAT, [{"error": error}], True, status)
        yield _json(
            f"beside choices, {name}",
            CHAT,
            {**completion("Half", None), "error": error},
            True,
            status,
        )
        yield _json(f"choice, {name}", CHAT, completion("", "error", error=error), True, status)
        yield _json(
            f"half a choice, {name}", CHAT, completion("4", "stop", error=error), True, status
        )
        first = (chunk("Half an"), chunk(" answer"))
        yield Wire(f"frame, {name}", CHAT, EVENTS, frames(*first, {"error": error}), True, status)
        last = frames(*first, chunk("", "error", error=error), done=True)
        yield Wire(f"choice of a frame, {name}", CHAT, EVENTS, last, True, status)
        only = frames({"error": error}, done=True)
        yield Wire(f"first frame, {name}", CHAT, EVENTS, only, True, status)
        ends = message_events({"type": "error", "error": whole})
        yield Wire(f"event of a message, {name}", MESSAGES, EVENTS, ends, True, status)
        yield _json(f"message, {name}", MESSAGES, {"type": "error", "error": whole}, True, status)
        failure = response("Half", "failed", whole)
        ends = response_events({"type": "response.failed", "response": failure})
        yield Wire(f"event of a response, {name}", RESPONSES, EVENTS, ends, True, status)
        yield _json(f"response, {name}", RESPONSES, failure, True, status)
        ends = response_events({"type": "error", **whole})
        yield Wire(f"error event of a response, {name}", RESPONSES, EVENTS, ends, True, status)
        yield _json(f"text, {name}", TEXT, {"error": error}, True, status)
    for name, reason in REASONS.items():
        yield _json(f"reason {name}", CHAT, completion("", reason), True)
        yield _json(f"reason {name}, half an answer", CHAT, completion("\\boxed{4", reason), True)
        yield _json(f"reason {name}, long", CHAT, completion("word " * 20_000, reason), True)
        text = {"choices": [{"index": 0, "text": "Half", "finish_reason": reason}]}
        yield _json(f"text, reason {name}", TEXT, text, True)
        yield _json(f"message, reason {name}", MESSAGES, message("Half", reason), True)
        stream = frames(chunk("Half"), chunk("", reason), done=True)
        yield Wire(f"stream, reason {name}", CHAT, EVENTS, stream, True)
        long = frames(*[chunk("word ")] * 2000, chunk("", reason), done=True)
        yield Wire(f"long stream, reason {name}", CHAT, EVENTS, long, True)
    yield Wire("stream without an end", CHAT, EVENTS, frames(chunk("Half")), True)
    yield Wire("message without an end", MESSAGES, EVENTS, message_events(), True)
    yield Wire("response without an end", RESPONSES, EVENTS, response_events(), True)
    yield _json("cancelled response", RESPONSES, response("Half", "cancelled"), True)
    yield Wire(
        "an event named error, in words", CHAT, EVENTS, b"event: error\ndata: upstream\n\n", True
    )
    yield Wire("half a body", CHAT, JSON, json.dumps(completion("Half")).encode()[:-30], True)
    yield Wire("no body", CHAT, JSON, b"", True)
    page = b"<!doctype html><title>Bad gateway</title><h1>502</h1>"
    yield Wire("a page", CHAT, "text/html", page, True)


def good() -> Iterator[Wire]:
    """Yields answers that are some, also where they speak of errors."""
    for words in ("4", "", '{"error": {"message": "no", "code": 500}}', "finish_reason: error"):
        for reason in GOOD:
            yield _json(f"{reason}: {words}", CHAT, completion(words, reason, error=None), False)
            stream = frames(chunk(words), chunk("", reason), done=True)
            yield Wire(f"stream, {reason}: {words}", CHAT, EVENTS, stream, False)
        usage = {"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}}
        last = {**chunk("", None), "usage": usage["usage"], "error": None}
        for name, end in (("usage", usage), ("usage in a chunk", last)):
            stream = frames(chunk(words), chunk("", "stop"), end, done=True)
            yield Wire(f"stream, {name}: {words}", CHAT, EVENTS, stream, False)
        for reason in ("end_turn", "max_tokens", "tool_use", "refusal", "pause_turn"):
            yield _json(f"message, {reason}: {words}", MESSAGES, message(words, reason), False)
            ends = (
                {"type": "message_delta", "delta": {"stop_reason": reason}},
                {"type": "message_stop"},
            )
            stream = message_events(*ends)
            yield Wire(f"message stream, {reason}: {words}", MESSAGES, EVENTS, stream, False)
        for status in ("completed", "incomplete"):
            yield _json(f"response, {status}: {words}", RESPONSES, response(words, status), False)
            end = {"type": f"response.{status}", "response": response(words, status)}
            stream = response_events(end)
            yield Wire(f"response stream, {status}: {words}", RESPONSES, EVENTS, stream, False)
        yield _json(f"long: {words}", CHAT, completion(f"{words} abort " * 3000), False)
        stream = frames(*[chunk(f"{words} error ")] * 1000, chunk("", "stop"), done=True)
        yield Wire(f"long stream: {words}", CHAT, EVENTS, stream, False)
    yield _json("a queued response", RESPONSES, response("", "queued"), False)
    bare = frames({"choices": [{"delta": {"content": "4"}}]}, done=True)
    yield Wire("a stream that tells no reason", CHAT, EVENTS, bare, False)
    untold = {"choices": [{"message": {"content": "4"}}]}
    yield _json("an answer that tells no reason", CHAT, untold, False)
    body = json.dumps(completion("4"), indent=1).encode()
    for kind in ("text/plain", "text/plain; charset=iso-8859-1", "application/octet-stream", ""):
        yield Wire(f"JSON as {kind or 'nothing'}", CHAT, kind, body, False)
    yield Wire("JSON with a mark of its order of bytes", CHAT, JSON, b"\xef\xbb\xbf" + body, False)
    yield Wire("the same as text", CHAT, "text/plain", b"\xef\xbb\xbf\r\n" + body, False)


def rewritten(stream: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields a stream as other servers write the same events: with a mark of the order of bytes,
    other ends of lines, no blank after the colon, comments, ids, and events of several lines."""
    yield "mark", b"\xef\xbb\xbf" + stream
    yield "crlf", stream.replace(b"\n", b"\r\n")
    yield "cr", stream.replace(b"\n", b"\r")
    yield "no blank", stream.replace(b"data: ", b"data:")
    yield "comments", b": begun\n\n" + stream.replace(b"data: ", b": at work\ndata: ")
    yield "ids", stream.replace(b"data: ", b"id: 7\nretry: 10\ndata: ")
    yield "blank lines first", b"\n\n" + stream
    lines = []
    for line in stream.split(b"\n"):
        if line.startswith(b"data: {"):
            pretty = json.dumps(json.loads(line[6:]), indent=1, ensure_ascii=False).split("\n")
            lines += [b"data: " + part.encode() for part in pretty]
        else:
            lines.append(line)
    yield "several lines", b"\n".join(lines)
    yield "all of it", b"\xef\xbb\xbf" + b"\r\n".join(lines)
