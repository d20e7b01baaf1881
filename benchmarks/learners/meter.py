"""A meter before one OpenAI-compatible server: what each learner spends, in compute-seconds.

    python -m benchmarks.learners.race measure --base-url URL --model M -o speeds.json
    python -m benchmarks.learners.race meter --base-url URL --model M --speeds speeds.json \
        --ledgers spent --budget 3600 --port 8900

A learner is given `http://127.0.0.1:8900/NAME/v1` for its endpoint, and everything that it asks
there counts for NAME: attempts, reflection, a second thought. A call costs its uncached prompt
tokens by the speed of reading and its completion tokens by the speed of writing, so a busy machine
changes nothing. Both speeds are measured once. The meter keeps no answers. What was spent is in a
file for each name, which is read when the meter starts again. A name whose budget is spent gets
HTTP 402 for every further call, and `/NAME/spent` tells how far it is.
"""

from __future__ import annotations

import http.client
import json
import statistics
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

FORWARDED = ("content-type", "accept", "user-agent")
"""The headers of a request that go on to the server."""
ANSWER_SECONDS = 1800.0
"""What one answer may take."""


class Speeds(NamedTuple):
    """What a server reads and writes, in tokens a second, one request at a time."""

    prefill: float
    decode: float

    @staticmethod
    def read(path: Path) -> Speeds:
        """Returns the speeds that `measure` wrote. Raises OSError, KeyError."""
        values = json.loads(path.read_text(encoding="utf-8"))
        return Speeds(float(values["prefill"]), float(values["decode"]))

    def seconds(self, used: Used) -> float:
        """Returns the compute-seconds of a call."""
        return (used.prompt - used.cached) / self.prefill + used.completion / self.decode


class Used(NamedTuple):
    """The tokens of a call; `estimated` where the server did not say."""

    prompt: int
    cached: int
    completion: int
    estimated: bool = False


def read_usage(answer: dict[str, Any], request: bytes, written: int) -> Used:
    """Returns the tokens of an answer. `written` are the characters that it holds, `request` the
    body: where the server gives no usage, four characters are taken for a token."""
    usage = answer.get("usage")
    if not isinstance(usage, dict) or not isinstance(usage.get("prompt_tokens"), int):
        return Used(len(request) // 4, 0, -(-written // 4), estimated=True)
    details = usage.get("prompt_tokens_details") or {}
    timings = answer.get("timings") or {}  # llama.cpp tells it there
    cached = details.get("cached_tokens") or timings.get("cache_n") or 0
    prompt = usage["prompt_tokens"]
    return Used(prompt, min(int(cached), prompt), int(usage.get("completion_tokens") or 0))


class Ledger:
    """What one name has spent, in a file of one line for each call. Safe for threads."""

    def __init__(self, path: Path, budget: float | None) -> None:
        self.path, self.budget = path, budget
        self.spent, self.calls, self.refused, self.prompt, self.completion = 0.0, 0, 0, 0, 0
        self._lock = threading.Lock()
        if path.exists():
            text = path.read_text(encoding="utf-8")
            whole = text[: text.rfind("\n") + 1]  # a line that was cut off in the middle is none
            for line in whole.splitlines():
                self._count(json.loads(line))
            if len(whole) < len(text):
                path.write_text(whole, encoding="utf-8")

    @property
    def is_spent(self) -> bool:
        """Whether nothing more is to be asked."""
        return self.budget is not None and self.spent >= self.budget

    def _count(self, row: dict[str, Any]) -> None:
        self.spent += row["seconds"]
        self.calls += 1
        self.prompt += row["prompt"]
        self.completion += row["completion"]

    def add(self, used: Used, seconds: float, kind: str) -> None:
        """Records a call."""
        row = {**used._asdict(), "seconds": seconds, "kind": kind, "at": round(time.time(), 3)}
        with self._lock:
            self._count(row)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def refuse(self) -> None:
        """Counts a call that was turned away."""
        with self._lock:
            self.refused += 1

    def totals(self) -> dict[str, Any]:
        """Returns what was spent, and the budget."""
        return {
            "spent": self.spent,
            "budget": self.budget,
            "calls": self.calls,
            "refused": self.refused,
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
        }


class Upstream(NamedTuple):
    """The server behind a meter: its address, ending in /v1 or alike, and its key."""

    base_url: str
    key: str | None = None

    def connect(self) -> http.client.HTTPConnection:
        """Returns a connection of its own."""
        parts = urllib.parse.urlsplit(self.base_url)
        kind = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        return kind(parts.netloc, timeout=ANSWER_SECONDS)

    @property
    def path(self) -> str:
        """What stands before `/chat/completions`."""
        return urllib.parse.urlsplit(self.base_url).path.rstrip("/")


class Meter:
    """The proxy, on a thread of its own; a context manager. `budget` is that of every name that
    `limit` gives no other."""

    def __init__(
        self,
        upstream: Upstream,
        speeds: Speeds,
        folder: Path,
        *,
        budget: float | None = None,
        port: int = 0,
    ) -> None:
        self.upstream, self.speeds, self.folder, self.budget = upstream, speeds, folder, budget
        self._ledgers: dict[str, Ledger] = {}
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        meter = self

        class Handler(_Handler):
            owner = meter

        self._server = _Server(("127.0.0.1", port), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    def url(self, name: str) -> str:
        """Returns the endpoint under which everything counts for a name."""
        return f"{self.address}/{name}/v1"

    def limit(self, name: str, budget: float | None) -> Ledger:
        """Returns the ledger of a name, whose budget this is from now on."""
        ledger = self.ledger(name)
        ledger.budget = budget
        return ledger

    def ledger(self, name: str) -> Ledger:
        """Returns the ledger of a name, with what was spent before."""
        with self._lock:
            if name not in self._ledgers:
                self._ledgers[name] = Ledger(self.folder / f"{name}.jsonl", self.budget)
            return self._ledgers[name]

    def serve(self) -> None:
        """Serves until it is ended."""
        self._server.serve_forever(poll_interval=0.05)

    def __enter__(self) -> Meter:
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that goes away leaves a broken pipe: that is its own affair."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: Meter

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        name, rest = self._split()
        if rest == "/spent":
            self._reply(200, json.dumps(self.owner.ledger(name).totals()).encode())
        else:
            self._forward(name, rest, b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        name, rest = self._split()
        ledger = self.owner.ledger(name)
        if ledger.is_spent:
            ledger.refuse()
            message = f"the budget of {ledger.budget:g} compute-seconds is spent"
            error = {"message": message, "type": "insufficient_quota", "code": "budget_spent"}
            self._reply(402, json.dumps({"error": error}).encode())
        else:
            self._forward(name, rest, body)

    def _split(self) -> tuple[str, str]:
        """Returns the name in the path, and the path after it without `/v1`."""
        name, _, rest = self.path.lstrip("/").partition("/")
        safe = "".join(c for c in urllib.parse.unquote(name) if c.isalnum() or c in "-_.")
        return safe or "unnamed", "/" + rest.removeprefix("v1").lstrip("/")

    def _reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _forward(self, name: str, rest: str, body: bytes) -> None:
        upstream, streams, wanted = self.owner.upstream, False, False
        if body:
            request = json.loads(body)
            streams = bool(request.get("stream"))
            if streams:
                options = request.get("stream_options") or {}
                wanted = bool(options.get("include_usage"))
                request["stream_options"] = {**options, "include_usage": True}
                body = json.dumps(request).encode()
        headers = {h: self.headers[h] for h in FORWARDED if self.headers[h] is not None}
        if upstream.key is not None:
            headers["authorization"] = f"Bearer {upstream.key}"
        connection = upstream.connect()
        try:
            connection.request(self.command, upstream.path + rest, body or None, headers)
            answer = connection.getresponse()
            kind = answer.headers.get("content-type", "application/json")
            if answer.status == 200 and streams:
                self._stream(name, rest, body, answer, wanted)
                return
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            text = f"the server behind the meter: {type(error).__name__}: {error}"
            self._reply(502, json.dumps({"error": {"message": text}}).encode())
            return
        finally:
            connection.close()
        if body and answer.status == 200:
            reply = _parsed(data) or {}
            self._record(name, rest, read_usage(reply, body, _written(reply)))
        self._reply(answer.status, data, kind)

    def _record(self, name: str, rest: str, used: Used) -> None:
        seconds = self.owner.speeds.seconds(used)
        self.owner.ledger(name).add(used, seconds, rest.strip("/"))

    def _stream(
        self, name: str, rest: str, body: bytes, answer: http.client.HTTPResponse, wanted: bool
    ) -> None:
        """Passes events on as they come. A client that goes away still pays for its answer."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        there, last, written = True, {}, 0
        for event in _events(answer):
            piece = _parsed(event)
            if piece is not None:
                written += _written(piece)
                last = piece if isinstance(piece.get("usage"), dict) else last
                if piece.get("choices") == [] and not wanted:
                    continue  # the usage that this client did not ask for
            if there:
                try:
                    self.wfile.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
                    self.wfile.flush()
                except OSError:
                    there = False
        self._record(name, rest, read_usage(last, body, written))
        if there:
            self.wfile.write(b"0\r\n\r\n")


def _events(answer: http.client.HTTPResponse) -> Iterator[bytes]:
    """Yields server-sent events, each with the blank line after it."""
    event = b""
    while line := answer.readline():
        event += line
        if not line.strip():
            yield event
            event = b""
    if event:
        yield event


def _parsed(event: bytes) -> dict[str, Any] | None:
    text = event.strip().removeprefix(b"data:").strip()
    if not text.startswith(b"{"):
        return None
    try:
        reply: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return reply


def _written(answer: dict[str, Any]) -> int:
    """Returns the characters of an answer's texts, or of a piece of one."""
    count = 0
    for choice in answer.get("choices") or ():
        part = choice.get("message") or choice.get("delta") or {}
        count += len(part.get("content") or "") + len(part.get("reasoning_content") or "")
    return count


def measure(upstream: Upstream, model: str, *, rounds: int = 3) -> dict[str, Any]:
    """Measures how fast a server reads and writes, with nothing else going on, one at a time.

    Reading is a long prompt that no cache can know beside a short one, an answer of one token
    each; writing a long answer beside an answer of one token. Medians of `rounds`. Raises OSError
    where the server does not answer, or gives no usage that tells the two apart.
    """
    stamp = time.time_ns()
    reading, writing = [], []
    for turn in range(rounds):
        words = [f"{(stamp + turn * 7919 + n * 104_729) % 99_991}" for n in range(400)]
        short = _timed(upstream, model, f"{words[0]} {words[1]}: say yes.", 1)
        long = _timed(upstream, model, f"{' '.join(words)}: say yes.", 1)
        counting = _timed(upstream, model, f"{words[2]}: count from 1 to 300, in words.", 160)
        reading.append((long[0] - short[0]) / max(1e-6, long[2] - short[2]))
        writing.append((counting[1] - 1) / max(1e-6, counting[2] - short[2]))
    if min(statistics.median(reading), statistics.median(writing)) <= 0:
        raise OSError(
            f"{upstream.base_url} says no more tokens of a long prompt than of a short one"
        )
    return {
        "prefill": round(statistics.median(reading), 2),
        "decode": round(statistics.median(writing), 2),
        "model": model,
        "rounds": rounds,
    }


def _timed(upstream: Upstream, model: str, text: str, tokens: int) -> tuple[int, int, float]:
    """Returns the uncached prompt tokens, the completion tokens and the seconds of a call."""
    request = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
    }
    headers = {"content-type": "application/json"}
    if upstream.key is not None:
        headers["authorization"] = f"Bearer {upstream.key}"
    connection, body = upstream.connect(), json.dumps(request).encode()
    started = time.perf_counter()
    try:
        connection.request("POST", f"{upstream.path}/chat/completions", body, headers)
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    seconds = time.perf_counter() - started
    if answer.status != 200:
        raise OSError(f"{upstream.base_url}: {answer.status}: {data[:200]!r}")
    used = read_usage(json.loads(data), body, tokens * 4)
    return used.prompt - used.cached, used.completion, seconds
