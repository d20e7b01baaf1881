"""The gateway: an address on loopback for each attempt, through which its calls to the model pass.

An attempt is known by a token, which is its key and stands in its address too, for programs that
have a key of their own. Its library goes into each request, where the proxy would put it, unless
it is in there already. The call is then made like all others: looked up, paced, retried, bounded
by the budget, journalled, and handed on when it is on record. It is told from others of its attempt
by what it asks and how often that was answered before. So an attempt that is made again is answered
from the record for as long as it asks the same, and a client that gives up and asks again gets the
answer to its first request.

Connections are served on a thread of their own, and calls are made on the run's event loop. So an
agent that holds this loop up hears that it does.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import secrets
import threading
from collections import Counter, defaultdict
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

import h11

from tfgrpo.agents.wire_conversation import (
    SYSTEM,
    Passed,
    answer_message,
    prompt_of,
    request_messages,
)
from tfgrpo.domains.base import Context, describe_error
from tfgrpo.model.endpoint import CallFailed, Request
from tfgrpo.model.secrets import scrub
from tfgrpo.model.wire_formats import (
    LIMITS,
    RESPONSES,
    limit_of,
    request_turns,
    response_id,
    words,
)
from tfgrpo.rendering.json_splice import NotJson, RepeatedKey, document, edited
from tfgrpo.rendering.render import prompt_text, rules_of
from tfgrpo.rendering.request_placement import KEYS, Addition, addition, place_of
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.store.canonical import canonical, digest
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Json

HOST = "127.0.0.1"
MOST = 64 << 20
"""Bytes of a request's body."""
READ = 256 << 10
COUNTING = ("/messages/count_tokens", "/responses/input_tokens")
PASSED_ON = ("anthropic-version", "anthropic-beta", "openai-beta")
"""Headers of a request that go on with it."""
FINAL = "x-should-retry"
"""The header that tells clients not to try again: that was done here."""
HELD_UP = 30.0
"""Seconds without a turn of the run's event loop after which a client hears that it is held up."""
T = TypeVar("T")


class Reply(NamedTuple):
    """An answer over HTTP."""

    status: int
    body: bytes
    kind: str = "application/json"


class Client:
    """Who sent a request, and whether it `was_answered`. What becomes of its connection is known on
    the gateway's thread alone, and the run's event loop may have an answer before that is."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.was_answered = False

    @property
    def is_gone(self) -> bool:
        """Whether its connection is seen to have ended."""
        return self._reader.at_eof() or self._writer.is_closing()


@dataclass(eq=False, slots=True)
class Pending:
    """A call, and the client that waits for its answer."""

    reply: asyncio.Task[Reply]
    client: Client


@dataclass(eq=False, slots=True)
class Desk:
    """One attempt's place at the gateway: what passed, and what ended it, if anything has."""

    context: Context
    base_url: str
    token: str
    addition: Addition | None
    shown: str
    passed: list[Passed] = field(default_factory=list)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    error: TfgrpoError | None = None
    turns: Counter[bytes] = field(default_factory=Counter)
    pending: dict[bytes, list[Pending]] = field(default_factory=lambda: defaultdict(list))
    messages: dict[bytes, Json] = field(default_factory=dict)

    @property
    def openai_url(self) -> str:
        """The address as clients of OpenAI's take it."""
        return f"{self.base_url}/v1"

    def environment(self) -> dict[str, str]:
        """Returns the variables by which programs find the gateway."""
        own = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
        direct = ",".join(filter(None, (own, HOST, "localhost")))
        return {
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_BASE": self.openai_url,
            "OPENAI_API_KEY": self.token,
            "ANTHROPIC_BASE_URL": self.base_url,
            "ANTHROPIC_API_KEY": self.token,
            "ANTHROPIC_AUTH_TOKEN": self.token,
            "NO_PROXY": direct,
            "no_proxy": direct,
        }

    def shared(self, messages: tuple[Json, ...]) -> tuple[Json, ...]:
        """Returns messages, those that were there before as the same objects: each request has the
        whole conversation."""
        keys = (hashlib.sha256(json.dumps(one, sort_keys=True).encode()) for one in messages)
        return tuple(
            self.messages.setdefault(key.digest(), one)
            for key, one in zip(keys, messages, strict=True)
        )


class Gateway:
    """The server. Use `start`, and `close` at the end, on one event loop: the run's."""

    def __init__(self) -> None:
        self._desks: dict[str, Desk] = {}
        self._run_loop: asyncio.AbstractEventLoop | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tfgrpo gateway", daemon=True
        )
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()
        self._port = 0

    async def start(self) -> None:
        """Begins to listen. Raises OSError."""
        self._run_loop = asyncio.get_running_loop()
        self._thread.start()
        self._server = await _on(self._loop, self._listen())
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Ends all connections."""
        await _on(self._loop, self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def admit(self, context: Context) -> Desk:
        """Opens a place for an attempt."""
        token = f"attempt-{secrets.token_hex(16)}"
        library = context.library
        readable = library is not None and bool(library.readable)
        new = addition(library) if readable and library is not None else None
        shown = prompt_text(rules_of(library)) if readable and library is not None else ""
        desk = Desk(context, f"http://{HOST}:{self._port}/{token}", token, new, shown)
        self._desks[token] = desk
        return desk

    def dismiss(self, desk: Desk) -> None:
        """Closes an attempt's place: its token leads nowhere from now on, and what it still waits
        for is given up."""
        self._desks.pop(desk.token, None)
        for pending in desk.pending.values():
            for one in pending:
                one.reply.cancel()

    # connections, on the thread of their own:

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._serve, HOST, 0, limit=READ)

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._requests(reader, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the client is gone, or the gateway ends
        finally:
            self._open.discard(task)
            writer.close()

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER)
        while True:
            try:
                request, body = await _read(http, reader, writer)
            except h11.RemoteProtocolError as error:
                reply, request = _refused(400, f"the request is not HTTP/1.1: {error}"), None
            else:
                if request is None:
                    return
                client = Client(reader, writer)
                reply = await self._reply(request, body, client)
                client.was_answered = not client.is_gone
            is_head = request is not None and request.method == b"HEAD"
            await _send(http, writer, reply, is_head=is_head)
            if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
                return
            http.start_next_cycle()

    async def _reply(self, request: h11.Request, body: bytes | None, client: Client) -> Reply:
        """Has a request answered on the run's event loop."""
        assert self._run_loop is not None
        try:
            async with asyncio.timeout(HELD_UP):
                await _on(self._run_loop, asyncio.sleep(0))
        except TimeoutError:
            why = (
                f"the run's event loop was blocked for {HELD_UP:g} s: use an asynchronous client "
                "in an `async` function, or make it a plain function"
            )
            return _refused(500, why)
        try:
            return await _on(self._run_loop, self._answer(request, body, client))
        except Exception as error:  # a client that hears nothing would ask again
            return _refused(500, f"a bug of the gateway: {describe_error(error)}")

    # answers, on the run's event loop:

    async def _answer(self, request: h11.Request, body: bytes | None, client: Client) -> Reply:
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        desk, path = self._desk(request.target.decode("latin-1").partition("?")[0], headers)
        if desk is None:
            return _refused(401, "the key is no attempt's, or its attempt is over")
        if body is None:
            return _refused(413, f"the body has more than {MOST >> 20} MiB")
        path = "/" + "/".join(part for part in path.split("/") if part)
        route = path.removeprefix("/v1")
        model = desk.context.calls.endpoint.model
        if request.method in (b"GET", b"HEAD") and route.startswith("/models"):
            listed = {"id": model, "object": "model", "created": 0, "owned_by": "tfgrpo"}
            one = route != "/models"
            return _json(200, listed if one else {"object": "list", "data": [listed]})
        if request.method != b"POST" or route not in (*LIMITS, *COUNTING):
            offered = ", ".join((*LIMITS, *COUNTING, "/models"))
            return _refused(404, f"an attempt's gateway answers {offered}, not {path}")
        try:
            placed = _placed(desk, path, body)
        except RepeatedKey as error:
            return _refused(400, f"the body has the key {error} twice")
        except (NotJson, ValueError, RecursionError) as error:
            why = f"the body is no JSON object that can be recorded: {error}"
            return _refused(400, why)
        if route in COUNTING:
            return _json(200, {"input_tokens": count_tokens(json.dumps(placed))})
        more = {name: headers[name] for name in PASSED_ON if name in headers}
        wire = {"route": route, "body": {k: v for k, v in placed.items() if k != "model"}}
        return await self._once(desk, {**wire, "headers": more}, client)

    def _desk(self, path: str, headers: Mapping[str, str]) -> tuple[Desk | None, str]:
        """Returns whose request it is, by its address or its key, and the path."""
        first, _, rest = path.lstrip("/").partition("/")
        if first in self._desks:
            return self._desks[first], rest
        key = headers.get("authorization", "").removeprefix("Bearer ").strip()
        keys = (key, headers.get("x-api-key", ""), headers.get("api-key", ""))
        return next((self._desks[one] for one in keys if one in self._desks), None), path

    async def _once(self, desk: Desk, wire: Json, client: Client) -> Reply:
        """Answers a request. One whose client is gone is taken up by whoever asks the same."""
        same = digest(["tfgrpo.agent", wire])
        pending = [one for one in desk.pending[same] if not one.client.was_answered]
        desk.pending[same] = pending
        call = next((one for one in pending if one.client.is_gone), None)
        if call is None:
            turn, desk.turns[same] = desk.turns[same], desk.turns[same] + 1
            call = Pending(asyncio.create_task(self._ask(desk, wire, turn)), client)
            pending.append(call)
        call.client = client
        return await asyncio.shield(call.reply)

    async def _ask(self, desk: Desk, wire: Json, turn: int) -> Reply:
        if desk.error is not None:
            return _refused(403, str(desk.error))
        route, body = wire["route"], wire["body"]
        context, messages = desk.context, desk.shared(request_messages(body))
        prompt, turns = prompt_of(messages)
        most = limit_of(wire) or context.sampling.max_tokens
        request = Request("rollout", prompt, 0.0, most, turns=turns, wire=wire)
        call_path = (*context.call_path, turn) if turn else context.call_path
        try:
            recorded = await context.calls.ask(request, call_path=call_path, sample=context.sample)
        except CallFailed as error:
            return _refused(400, str(error))
        except TfgrpoError as error:  # the budget's, the endpoint's, the store's: the run's end
            desk.error = error
            desk.over.set()
            return _refused(403, str(error))
        answer = recorded.answer
        given, before = answer.wire.get("body"), body.get("previous_response_id")
        desk.passed.append(
            Passed(
                messages,
                answer_message(route, answer),
                recorded.key,
                answer.truncated,
                before if isinstance(before, str) else None,
                response_id(given) if route == RESPONSES else None,
            )
        )
        if isinstance(given, str):
            return Reply(200, given.encode(), "text/event-stream; charset=utf-8")
        return _json(200, given)


def _placed(desk: Desk, path: str, body: bytes) -> dict[str, Any]:
    """Returns a request's body with the attempt's library in it, and without known secrets. Raises
    NotJson, RepeatedKey and ValueError, for what cannot be recorded too."""
    text = body.decode()
    members = document(text, KEYS)
    whole: dict[str, Any] = json.loads(text)
    canonical(whole)
    there = bool(desk.shown) and desk.shown in _instructions(whole)
    place = place_of(b"POST", path)
    if desk.addition is None or there or place is None:
        return scrub(whole)
    placed: dict[str, Any] = json.loads(edited(body, text, place(text, members, desk.addition)))
    return scrub(placed)


def _instructions(body: Json) -> str:
    """Returns what a request says for the system, and for the user before the first answer."""
    turns = [turn for turn in request_turns(body) or () if isinstance(turn, dict)]
    before = takewhile(lambda turn: turn.get("role") in (*SYSTEM, "user"), turns)
    parts = [*before, *(turn for turn in turns if turn.get("role") in SYSTEM)]
    return "\n".join(words(turn.get("content")) for turn in parts)


async def _on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Returns what comes of work on another thread's event loop."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


async def _read(
    http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> tuple[h11.Request | None, bytes | None]:
    """Returns the next request and its body: no request where the client is gone, and no body where
    that is too long. Raises RemoteProtocolError."""
    request: h11.Request | None = None
    pieces: list[bytes] = []
    size = 0
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            if http.they_are_waiting_for_100_continue:
                go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
                writer.write(http.send(go_on) or b"")
            data = await reader.read(READ)
            if not data and request is None:
                return None, b""
            http.receive_data(data)
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            size += len(event.data)
            if size > MOST:
                return request, None
            pieces.append(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            return request, b"".join(pieces)
        else:  # the connection is closed
            return None, b""


async def _send(
    http: h11.Connection, writer: asyncio.StreamWriter, reply: Reply, *, is_head: bool
) -> None:
    headers = [("content-type", reply.kind), ("content-length", str(len(reply.body)))]
    if reply.status >= 400:
        headers.append((FINAL, "false"))
    response = h11.Response(status_code=reply.status, headers=headers)
    parts = [response, h11.Data(data=reply.body), h11.EndOfMessage()]
    if is_head:
        del parts[1]
    writer.write(b"".join(http.send(part) or b"" for part in parts))
    await writer.drain()


def _json(status: int, value: object) -> Reply:
    return Reply(status, json.dumps(value).encode())


def _refused(status: int, message: str) -> Reply:
    """Returns an error in the form that the clients of both providers read."""
    error = {"type": "tfgrpo_gateway", "message": message, "code": None}
    return _json(status, {"type": "error", "error": error})
