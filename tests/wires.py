"""A model on loopback that speaks three wire formats, whole and as streams, for tests of agents.

`WireEndpoint` answers chat completions, responses and Anthropic's messages, and keeps what it was
asked, by path. Its script gets the request and returns the answer's text, or a call of a tool as
(name, arguments).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Said = str | tuple[str, dict[str, Any]]
USAGE = (50, 10)


class WireEndpoint:
    """The server; a context manager. `requests` are pairs of path and body."""

    def __init__(self, script: Callable[[str, dict[str, Any]], Said]) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        endpoint, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                path = self.path.removeprefix("/v1")
                with lock:
                    endpoint.requests.append((path, body))
                    endpoint.headers.append({k.lower(): v for k, v in self.headers.items()})
                said = script(path, body)
                streamed = body.get("stream") is True
                data = b"".join(stream(path, body, said)) if streamed else whole(path, said)
                kind = "text/event-stream" if streamed else "application/json"
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *_: object) -> None:
                """A client that was killed leaves a broken pipe: expected here."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> WireEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def whole(path: str, said: Said) -> bytes:
    """Returns an answer in one piece."""
    return json.dumps(answer(path, said)).encode()


def answer(path: str, said: Said) -> dict[str, Any]:
    prompt, completion = USAGE
    text = said if isinstance(said, str) else ""
    name, given = ("", {}) if isinstance(said, str) else said
    if path == "/chat/completions":
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if name:
            function = {"name": name, "arguments": json.dumps(given)}
            message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if name else "stop"}
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": 60}
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
            "usage": usage,
        }
    if path == "/messages":
        block = {"type": "text", "text": text}
        if name:
            block = {"type": "tool_use", "id": "toolu_1", "name": name, "input": given}  # type: ignore[dict-item]
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "m",
            "content": [block],
            "stop_reason": "tool_use" if name else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": prompt - 20,
                "cache_read_input_tokens": 20,
                "output_tokens": completion,
            },
        }
    part = {"type": "output_text", "text": text, "annotations": []}
    item: dict[str, Any] = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [part],
    }
    if name:
        item = {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": name,
            "arguments": json.dumps(given),
            "status": "completed",
        }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": "m",
        "status": "completed",
        "output": [item],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": prompt,
            "output_tokens": completion,
            "total_tokens": 60,
            "input_tokens_details": {"cached_tokens": 20},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def stream(path: str, body: dict[str, Any], said: Said) -> Iterator[bytes]:
    """Yields an answer as the events of a stream."""
    made = answer(path, said)
    if path == "/chat/completions":
        yield from _chat_stream(made, body)
    elif path == "/messages":
        yield from _message_stream(made)
    else:
        yield from _response_stream(made)


def _event(body: dict[str, Any], *, named: bool) -> bytes:
    name = f"event: {body['type']}\n" if named else ""
    return f"{name}data: {json.dumps(body)}\n\n".encode()


def _chat_stream(made: dict[str, Any], body: dict[str, Any]) -> Iterator[bytes]:
    message = made["choices"][0]["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in _pieces(message["content"])]
    for call in message.get("tool_calls", ()):
        begun = {"name": call["function"]["name"], "arguments": ""}
        deltas.append({"tool_calls": [{"index": 0, **call, "function": begun}]})
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
            for piece in _pieces(call["function"]["arguments"])
        ]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    for delta in deltas:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield _event({**head, "choices": [choice]}, named=False)
    reason = made["choices"][0]["finish_reason"]
    last = {"index": 0, "delta": {}, "finish_reason": reason}
    yield _event({**head, "choices": [last]}, named=False)
    if (body.get("stream_options") or {}).get("include_usage"):
        yield _event({**head, "choices": [], "usage": made["usage"]}, named=False)
    yield b"data: [DONE]\n\n"


def _message_stream(made: dict[str, Any]) -> Iterator[bytes]:
    block = made["content"][0]
    start = {**made, "content": [], "stop_reason": None}
    yield _event({"type": "message_start", "message": start}, named=True)
    empty = {**block, **({"text": ""} if block["type"] == "text" else {"input": {}})}
    yield _event({"type": "content_block_start", "index": 0, "content_block": empty}, named=True)
    if block["type"] == "text":
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
    else:
        given = json.dumps(block["input"])
        deltas = [{"type": "input_json_delta", "partial_json": p} for p in _pieces(given)]
    for delta in deltas:
        yield _event({"type": "content_block_delta", "index": 0, "delta": delta}, named=True)
    yield _event({"type": "content_block_stop", "index": 0}, named=True)
    ended = {"stop_reason": made["stop_reason"], "stop_sequence": None}
    usage = {"output_tokens": made["usage"]["output_tokens"]}
    yield _event({"type": "message_delta", "delta": ended, "usage": usage}, named=True)
    yield _event({"type": "message_stop"}, named=True)


def _response_stream(made: dict[str, Any]) -> Iterator[bytes]:
    begun = {**made, "status": "in_progress", "output": [], "usage": None}
    yield _event({"type": "response.created", "sequence_number": 0, "response": begun}, named=True)
    item = made["output"][0]
    if item["type"] == "message":
        for number, piece in enumerate(_pieces(item["content"][0]["text"])):
            event = {
                "type": "response.output_text.delta",
                "sequence_number": 1 + number,
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "delta": piece,
                "logprobs": [],
            }
            yield _event(event, named=True)
    done = {"type": "response.completed", "sequence_number": 99, "response": made}
    yield _event(done, named=True)


def _pieces(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]
