"""Stand-ins of the endpoints that people have, each as its public documentation describes it.

One server on loopback speaks for all of them. It is also the proxy that stands before the
internet: a client that is told `HTTPS_PROXY` reaches `https://api.deepseek.com` through it, with a
certificate that an authority of our own has signed, so that hosted providers are asked at their
real addresses. `server.pem` names the hosts; with another one in the table it is made anew by

    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 ...   # ca.pem
    openssl x509 -req -CA ca.pem -extfile <(echo subjectAltName=DNS:...) ...           # server.pem

The model behind them all is one that can be taught. It is right at every other attempt at a
problem, whatever the seed, so that every group is mixed and every provider's run learns the same.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from scripted import LESSON, stage, teachable

HERE = Path(__file__).parent
AUTHORITY = HERE / "ca.pem"
PROSE = "Certainly! The winners added one more, and the losers did not."
IN_WORDS = "Answer with JSON alone that follows this schema:"
THOUGHT = "Let me think about it. " * 40

Body = dict[str, Any]


@dataclass(frozen=True)
class Refusal(Exception):
    """An answer that is an error: its status, and the body as the provider words it."""

    status: int
    body: Any


@dataclass(frozen=True)
class StandIn:
    """How a provider behaves.

    `path` is what comes before `/chat/completions`, `header` what the key is sent in. `check`
    raises a Refusal for a request that the provider does not take. `schema` says what becomes of
    `response_format`: followed, ignored, or refused with an error. The model thinks for `thinks`
    tokens, which it shows in `shown` (a field, `content`, `parts`, or nowhere); `most` is the
    longest answer, and `context` the tokens of a prompt that are read.
    """

    path: str = "/v1"
    header: str = "authorization"
    check: Callable[[Body, Mapping[str, str]], None] = lambda body, headers: None
    schema: str = "followed"
    thinks: int = 0
    shown: str = ""
    tags: tuple[str, str] = ("<think>", "</think>")
    usage: str = "openai"
    most: int = 1 << 30
    context: int = 1 << 30
    models: tuple[str, ...] = ()
    server: str = "uvicorn"


@dataclass
class Served:
    """What a stand-in was asked, in the order in which it came, and which of it it answered."""

    bodies: list[Body] = field(default_factory=list)
    answered: list[Body] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    refused: Counter[str] = field(default_factory=Counter)
    attempts: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)


def refuse(status: int, message: str, **more: Any) -> None:
    """Raises the refusal in the shape that most providers have."""
    raise Refusal(status, {"error": {"message": message, "type": "invalid_request_error", **more}})


def limit_of(body: Body) -> int:
    """Returns the tokens that an answer may have."""
    return int(body.get("max_completion_tokens") or body.get("max_tokens") or 1 << 30)


def answer(stand_in: StandIn, served: Served, body: Body) -> Body:
    """Returns a provider's response to a request that it takes."""
    limit = min(limit_of(body), stand_in.most)
    template = body.get("chat_template_kwargs") or {}
    thinks = stand_in.thinks if template.get("enable_thinking", True) else 0
    if limit <= thinks:
        return completion(stand_in, body, "", limit, thinking=limit, cut=True)
    return completion(stand_in, body, text_of(stand_in, served, body), limit, thinking=thinks)


def text_of(stand_in: StandIn, served: Served, body: Body) -> str:
    """Returns what the model says, out of shape where it was told of none."""
    prompt = "".join(str(message["content"]) for message in body["messages"])
    if stage(body) != "rollout":
        told = stand_in.schema == "followed" or IN_WORDS in prompt
        return teachable(body) if told or stage(body) == "summary" else PROSE
    asked = body["messages"][-1]["content"]
    match = re.search(r"What is (\d+) op (\d+)\?", asked)
    if match is None:  # not a problem, but a question of `tfgrpo model check`
        return probe(stand_in, body, prompt)
    with served.lock:
        served.attempts[asked] += 1
        right = LESSON in prompt or served.attempts[asked] % 2
    a, b = map(int, match.groups())
    return f"Thinking. \\boxed{{{a + b + (1 if right else 0)}}}"


def probe(stand_in: StandIn, body: Body, prompt: str) -> str:
    """Returns an answer to what a check of an endpoint asks."""
    read = prompt[-4 * stand_in.context :]
    if found := re.search(r"The code word is (\w+)", prompt):
        return found[1] if found[0] in read else "I see no code word."
    if "response_format" in body or IN_WORDS in prompt:
        told = stand_in.schema == "followed" or IN_WORDS in prompt
        return json.dumps({"city": "Paris", "population": 2}) if told else "Paris, of course."
    return "Paris"


def completion(
    stand_in: StandIn, body: Body, text: str, limit: int, *, thinking: int, cut: bool = False
) -> Body:
    """Returns a response in the provider's shape."""
    message: Body = {"role": "assistant", "content": text}
    thought = (THOUGHT * 10)[: 4 * thinking] if thinking else ""
    opened, closed = stand_in.tags
    match stand_in.shown:
        case "content":
            message["content"] = f"{opened}{thought}" + ("" if cut else f"{closed}\n\n{text}")
        case "parts":
            parts: list[Body] = [
                {"type": "thinking", "thinking": [{"type": "text", "text": thought}]}
            ]
            message["content"] = parts + ([] if cut else [{"type": "text", "text": text}])
        case "":
            pass
        case name:
            message[name] = thought
    prompt = sum(len(str(one["content"])) // 4 + 4 for one in body["messages"])
    usage: Body = {"prompt_tokens": min(prompt, stand_in.context)}
    written = len(text) // 4 + 1
    usage["completion_tokens"] = limit if cut else thinking + written
    match stand_in.usage:
        case "openai":
            usage["completion_tokens_details"] = {"reasoning_tokens": thinking}
        case "total":  # thinking is in the total alone
            usage["completion_tokens"] -= thinking
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    usage["total_tokens"] += thinking if stand_in.usage == "total" else 0
    choice: Body = {"index": 0, "message": message, "finish_reason": "length" if cut else "stop"}
    if body.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": "P", "top_logprobs": [{"logprob": -0.1}]}]}
    if body.get("tools"):
        call = {"name": body["tools"][0]["function"]["name"], "arguments": '{"city": "Paris"}'}
        message |= {
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": call}],
        }
        choice["finish_reason"] = "tool_calls"
    return {"id": "c", "object": "chat.completion", "model": body.get("model"),
            "choices": [choice], "usage": usage}  # fmt: skip


class Server:
    """Serves a stand-in on loopback, and as a proxy; a context manager."""

    def __init__(self, stand_in: StandIn, key: str = "sk-of-the-provider-4242") -> None:
        self.stand_in = stand_in
        self.key = key
        self.served = Served()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 20

            def do_CONNECT(self) -> None:
                owner.served.hosts.add(self.path.partition(":")[0])
                self.send_response_only(200, "Connection established")
                self.end_headers()
                self.wfile.flush()
                self.connection = _tls().wrap_socket(self.connection, server_side=True)
                self.rfile = self.connection.makefile("rb")
                self.wfile = self.connection.makefile("wb", buffering=0)
                self.close_connection = False

            def do_GET(self) -> None:
                owner._reply(self, None)

            def do_POST(self) -> None:
                owner._reply(self, json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def log_message(self, *_: object) -> None:
                pass

        class Threading(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: object) -> None:
                """A client that has gone: expected here."""

        self._server = Threading(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def _reply(self, handler: BaseHTTPRequestHandler, body: Body | None) -> None:
        headers = {name.lower(): value for name, value in handler.headers.items()}
        stand_in = self.stand_in
        try:
            if not handler.path.startswith(stand_in.path):
                refuse(404, f"Not Found: {handler.path}")
            given = headers.get(stand_in.header, "").removeprefix("Bearer ")
            if self.key and given != self.key:
                refuse(401, "Incorrect API key provided")
            if body is None:
                names = stand_in.models or ("one-model",)
                found: Body = {"object": "list", "data": [{"id": name} for name in names]}
            else:
                with self.served.lock:
                    self.served.bodies.append(body)
                    self.served.headers.append(headers)
                    self.served.paths.append(handler.path)
                stand_in.check(body, headers)
                if stand_in.schema == "refused" and "response_format" in body:
                    refuse(400, "This response_format type is unavailable now")
                found = answer(stand_in, self.served, body)
                with self.served.lock:
                    self.served.answered.append(body)
            status = 200
        except Refusal as refusal:
            status, found = refusal.status, refusal.body
            with self.served.lock:
                self.served.refused[json.dumps(found)] += 1
        data = json.dumps(found).encode()
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(HERE / "server.pem")
    return context
