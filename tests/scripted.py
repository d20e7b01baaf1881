"""A scripted OpenAI-compatible endpoint on loopback, for tests and benchmarks.

It counts what it is asked. `script` gets the request's JSON and returns the answer's text, or a
`Reply` to misbehave with. The default script is a model that can be taught: it solves a problem
`What is A op B?` by a coin that depends on the sample, or always once its library says how.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waiting import until

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from tfgrpo.model.client import Calls

LIVE: dict[str, ScriptedEndpoint] = {}
"""The endpoints of this process that answer, by their addresses."""
SAID = "x-said"
"""The header of a request whose answer is known by now."""
LESSON = "When two numbers are joined by op, add them and then add one more."


@dataclass
class Reply:
    """An HTTP answer of any kind.

    `close` drops the connection instead, `cut` in the middle of the body; `stall` seconds pass
    first, in which nothing is said. `pieces` is a stream of events in place of the body.
    """

    body: bytes | dict[str, Any] = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    close: bool = False
    cut: bool = False
    stall: float = 0.0
    pieces: Iterable[bytes] | None = None


def stage(request: dict[str, Any]) -> str:
    """Returns which prompt a request was made from."""
    system = request["messages"][0]["content"]
    for name, words in (
        ("plan", "You revise a library"),
        ("comparison", "Several attempts were made"),
        ("comparison", "Here are problems with attempts that were checked"),
        ("objective", "Attempts at problems were made under instructions"),
        ("description", "Attempts at problems were made with tools"),
        ("summary", "You keep a record of attempts"),
    ):
        if words in system:
            return name
    return "rollout"


def comparison_of(lessons: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns what a comparison says, in the form of either policy: the lessons, and the first of
    them as a rule that applies always."""
    said = {
        "right_did": "added one",
        "wrong_did": "did not",
        "right_takes": "c",
        "lessons": list(lessons),
    }
    return {**said, "when": "", "do": lessons[0]["text"] if lessons else ""}


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
            lesson = {"reason": "The right answer is one more.", "text": LESSON}
            return json.dumps(comparison_of([lesson]))
        case _:
            return json.dumps({"operations": list(plain_plan(user))})


def plain_plan(user: str) -> Iterator[dict[str, Any]]:
    """Yields an operation for each text among the lessons: a KEEP of what is there, else an ADD."""
    known = {text: label for label, text in re.findall(r"^\[(G\d+)\] (.*)$", user, re.MULTILINE)}
    lessons: dict[str, list[int]] = {}
    for number, text in re.findall(r"^(\d+)\. (.*)$", user, re.MULTILINE):
        lessons.setdefault(text, []).append(int(number))
    for text, numbers in lessons.items():
        label = known.get(text)
        change = {"op": "add", "text": text} if label is None else {"op": "keep", "text": ""}
        yield {"lessons": numbers, "experience": label, **change}


def restless(request: dict[str, Any]) -> str:
    """A script under which every step changes the library: answers follow from the whole request.

    Rollouts are right by a coin that the library and the seed turn; comparisons teach one lesson
    or two of a few dozen; plans follow from the lessons and the library that they are shown.
    """
    system, user = request["messages"][0]["content"], request["messages"][-1]["content"]
    chance = hashlib.sha256(f"{system}/{user}/{request.get('seed')}".encode()).digest()
    match stage(request):
        case "rollout":
            a, b = map(int, re.search(r"What is (\d+) op (\d+)\?", user).groups())  # type: ignore[union-attr]
            return f"Thinking. \\boxed{{{a + b + chance[0] % 2}}}"
        case "summary":
            return f"Attempt {chance[:3].hex()} joined the numbers."
        case "comparison":
            texts = [f"When case {c % 8} comes up, check part {c % 5} first." for c in chance[:2]]
            lessons = [{"reason": f"It helped {t[10:16]}.", "text": t} for t in texts]
            shown = lessons[: 1 + chance[2] % 2]
            return json.dumps(comparison_of(shown))
    return json.dumps({"operations": list(_restless_plan(user, chance))})


def _restless_plan(user: str, chance: bytes) -> Iterator[dict[str, Any]]:
    """Yields operations for every lesson, some of which cannot be used."""
    labels = re.findall(r"^\[(G\d+)\]", user, re.MULTILINE)
    for n in map(int, re.findall(r"^(\d+)\. When", user, re.MULTILINE)):
        op = ("add", "add", "modify", "keep", "delete")[chance[n % 32] % (5 if labels else 2)]
        label = labels[chance[(n + 5) % 32] % len(labels)] if labels else None
        text = f"When case {chance[(n + 1) % 32] % 8} comes up, do step {chance[n % 32] % 9} twice."
        yield {
            "lessons": [n],
            "op": op,
            "experience": None if op == "add" else label,
            "text": text if op in ("add", "modify") else "",
        }


class Numbered:
    """A script whose n-th answer says that it took n prompt tokens, counted from 1.

    A journal row then tells which request it is the answer to: `requests[n - 1]`.
    """

    def __init__(self, script: Callable[[dict[str, Any]], str | Reply]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._script = script
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any]) -> Reply:
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        reply = self._script(request)
        if isinstance(reply, Reply):
            return reply
        body = completion(reply, model=request["model"])
        body["usage"]["prompt_tokens"] = number
        return Reply(body)


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


def streamed(words: Iterable[str], usage: tuple[int, int] = (7, 3)) -> Iterator[bytes]:
    """Yields the events of a chat completion that is told piece by piece."""

    def event(body: dict[str, Any]) -> bytes:
        return f"data: {json.dumps(body, ensure_ascii=False)}\n\n".encode()

    for word in words:
        yield event({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
    yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    counts = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
    yield event({"choices": [], "usage": counts}) + b"data: [DONE]\n\n"


def with_chances(chances: Mapping[str, float]) -> dict[str, Any]:
    """Returns a chat completion of one token, the most likely of these, with the log-probability
    of each that can be."""
    listed = sorted(((t, p) for t, p in chances.items() if p > 0), key=lambda one: -one[1])
    body = completion(listed[0][0], finish_reason="length")
    top = [{"token": token, "logprob": math.log(chance)} for token, chance in listed]
    body["choices"][0]["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    return body


class ScriptedEndpoint:
    """The server; a context manager. `stages` counts answers by their kind, each before it is
    sent: whoever has read one finds it counted."""

    def __init__(
        self, script: Callable[[dict[str, Any]], str | Reply] = teachable, *, delay: float = 0.0
    ) -> None:
        self.script = script
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.headers: list[dict[str, str]] = []
        self.stages: Counter[str] = Counter()
        self.delay = delay
        self._lock = threading.Lock()
        self._open = 0
        self._said: dict[str, Reply] = {}
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

            def process_request(self, *of: Any) -> None:
                with endpoint._lock:
                    endpoint._open += 1
                super().process_request(*of)

            def shutdown_request(self, request: Any) -> None:
                super().shutdown_request(request)
                with endpoint._lock:
                    endpoint._open -= 1

        self._server = Server(("127.0.0.1", 0), Handler)
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def settle(self) -> None:
        """Waits until everything is read that clients had sent which are no more: killed ones. Only
        for when none is left, for one that lives may keep its connection open."""
        with socket.create_connection(self._server.server_address[:2]) as last:  # after all theirs
            last.sendall(b"GET / HTTP/1.0\r\n\r\n")
            while last.recv(4096):
                pass
        until(lambda: not self._open, pause=0.001)

    def say(self, request: dict[str, Any], headers: Mapping[str, str]) -> Reply:
        """Counts a request; returns what is answered to it."""
        with self._lock:
            self.requests.append(request)
            self.headers.append({name.lower(): v for name, v in headers.items()})
            self.keys.append(self.headers[-1].get("authorization"))
        if self.delay:
            threading.Event().wait(self.delay)
        reply = self.script(request)
        return Reply(completion(reply, model=request["model"])) if isinstance(reply, str) else reply

    def _answer(self, handler: BaseHTTPRequestHandler, request: dict[str, Any]) -> None:
        kept = self._said.pop(handler.headers.get(SAID, ""), None)
        reply = kept or self.say(request, dict(handler.headers))
        if reply.stall:
            threading.Event().wait(reply.stall)
        if reply.close:
            handler.close_connection = True
            handler.connection.close()
            return
        body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        if reply.pieces is not None:
            handler.send_response(reply.status)
            handler.send_header("content-type", "text/event-stream")
            handler.send_header("connection", "close")
            handler.end_headers()
            for piece in reply.pieces:
                handler.wfile.write(piece)
                handler.wfile.flush()
            handler.close_connection = True
            return
        handler.send_response(reply.status)
        kind = {name.lower() for name in reply.headers}
        if "content-type" not in kind:
            handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        if reply.cut:
            handler.wfile.write(body[: len(body) // 2])
            handler.wfile.flush()
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        if reply.status == 200:
            with self._lock:
                self.stages[stage(request)] += 1
        handler.wfile.write(body)
        handler.wfile.flush()

    def keep(self, reply: Reply) -> dict[str, str]:
        """Returns the header of a request that gets this reply, and is not counted again."""
        self._said[str(id(reply))] = reply
        return {SAID: str(id(reply))}

    def __enter__(self) -> ScriptedEndpoint:
        LIVE[self.base_url] = self
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        del LIVE[self.base_url]
        self._server.shutdown()
        self._server.server_close()


class Spoken:
    """A client of a scripted endpoint of this process, for tests of what is made of answers: it is
    told them on the spot. Failures alone go over a connection, which takes most of a call's time.
    """

    def __init__(self, server: ScriptedEndpoint, client: AsyncOpenAI) -> None:
        self._server, self._client, self.close = server, client, client.close

    async def post(self, path: str, *, body: object, options: Any, **more: Any) -> Any:
        request = json.loads(json.dumps(body))
        reply = self._server.say(request, self._client.auth_headers)
        if not isinstance(reply.body, dict) or reply != Reply(reply.body):
            options = {
                **options,
                "headers": {**options.get("headers", {}), **self._server.keep(reply)},
            }
            return await self._client.post(path, body=body, options=options, **more)
        self._server.stages[stage(request)] += 1
        return json.loads(json.dumps(reply.body))


def write_problems(path: Path, count: int, *, start: int = 1) -> Path:
    """Writes a dataset of `What is A op B?`, where op adds the numbers and one more."""
    rows = [
        {"id": f"p{n}", "problem": f"What is {n} op {n + 3}?", "answer": str(2 * n + 4)}
        for n in range(start, start + count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@contextmanager
def opened_calls(folder: Path, base_url: str, **options: Any) -> Iterator[Calls]:
    """Opens calls to an endpoint, with a store and a journal at `folder/store.db`.

    `options` are those of `CallConditions`, and `model`, `api_key` and `request_timeout` of the
    endpoint.
    """
    from tfgrpo.model.client import CallConditions, Calls
    from tfgrpo.model.endpoint import Endpoint
    from tfgrpo.store.activity.journal import Journal
    from tfgrpo.store.store import Store

    endpoint = Endpoint(
        options.pop("model", "scripted"),
        base_url,
        options.pop("api_key", None),
        options.pop("request_timeout", 30.0),
    )
    with Store.init(folder / "store.db") as store:
        journal = Journal(store.port.records.writer())
        try:
            yield Calls(endpoint, journal, store.runs, CallConditions("tests", **options))
        finally:
            journal.close()
