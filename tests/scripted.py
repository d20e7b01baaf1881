"""A scripted OpenAI-compatible endpoint on loopback, for tests and benchmarks.

It counts what it is asked. `script` gets the request's JSON and returns the answer's text, or a
`Reply` to misbehave with. The default script is a model that can be taught: it solves a problem
`What is A op B?` by a coin that depends on the sample, or always once its library says how.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LESSON = "When two numbers are joined by op, add them and then add one more."


@dataclass
class Reply:
    """An HTTP answer of any kind. `close` drops the connection instead."""

    body: bytes | dict[str, Any] = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    close: bool = False


def stage(request: dict[str, Any]) -> str:
    """Returns which prompt a request was made from."""
    system = request["messages"][0]["content"]
    for name, words in (
        ("controller", "You look after a library"),
        ("comparison", "Several attempts were made"),
        ("summary", "You keep a record of attempts"),
    ):
        if words in system:
            return name
    return "rollout"


def teachable(request: dict[str, Any]) -> str:
    """The default script."""
    user = request["messages"][-1]["content"]
    match stage(request):
        case "rollout":
            a, b = map(int, re.search(r"What is (\d+) op (\d+)\?", user).groups())  # type: ignore[union-attr]
            taught = LESSON in request["messages"][0]["content"]
            coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()[0]
            right = taught or coin % 2
            return f"Thinking. \\boxed{{{a + b + (1 if right else 0)}}}"
        case "summary":
            return "It joined the numbers and gave the sum."
        case "comparison":
            return json.dumps(
                {
                    "right_did": "added one",
                    "wrong_did": "did not",
                    "lessons": [{"reason": "The right answer is one more.", "text": LESSON}],
                }
            )
        case _:
            return json.dumps({"closest": "G0", "decision": "same", "text": ""})


def completion(
    text: str, *, finish_reason: str = "stop", model: str = "scripted"
) -> dict[str, Any]:
    """Returns a chat completion with that content."""
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": text},
            }
        ],
        "usage": {"prompt_tokens": 50, "completion_tokens": 10, "total_tokens": 60},
    }


class ScriptedEndpoint:
    """The server; a context manager. `answered` counts requests by digest, `stages` by kind."""

    def __init__(
        self, script: Callable[[dict[str, Any]], str | Reply] = teachable, *, delay: float = 0.0
    ) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.answered: Counter[str] = Counter()
        self.stages: Counter[str] = Counter()
        self.delay = delay
        self._lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                endpoint._answer(self, json.loads(body))

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """A client that was killed leaves a broken pipe: expected here."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def _answer(self, handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        with self._lock:
            self.requests.append(request)
            self.keys.append(handler.headers.get("authorization"))
        if self.delay:
            threading.Event().wait(self.delay)
        reply = self.script(request)
        if isinstance(reply, str):
            reply = Reply(completion(reply, model=request["model"]))
        if reply.close:
            handler.close_connection = True
            handler.connection.close()
            return
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        handler.send_response(reply.status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)
        handler.wfile.flush()
        if reply.status == 200:
            with self._lock:
                self.answered[hashlib.sha256(json.dumps(request).encode()).hexdigest()] += 1
                self.stages[stage(request)] += 1

    def __enter__(self) -> ScriptedEndpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
