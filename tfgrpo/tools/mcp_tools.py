"""Tools of MCP servers (modelcontextprotocol.io), by the official `mcp` package.

A server is a command that is started and spoken to over its standard streams, or an address.
One connection serves all trajectories of a run; a tool appears to the model as `server_tool`. A
command that has ended is started again for the calls that come after.
What a server keeps to itself is not known here, so the state of a call is the server's name and
the calls that the trajectory made to it before.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tfgrpo.model import secrets
from tfgrpo.store.canonical import digest
from tfgrpo.store.errors import install_hint
from tfgrpo.tools.tool import Arguments, Result, Tool, ToolError, ToolSpec, cut

if TYPE_CHECKING:
    from mcp import Client
    from mcp.client._transport import TransportStreams

MOST_BYTES = 8 << 20
"""Bytes of one answer."""
CLOSING_SECONDS = 10.0
"""In which a connection is closed; what a server holds up longer is left."""
SECONDS, SILENT_SECONDS = 30.0, 300.0
"""In which a connection is made, and in which something comes over one; as `mcp` has it."""
CLOSED = -32000
"""The code of `mcp`'s errors for a connection that was closed. A call whose own stream ended has it
too, and a server may give it to whatever it refuses."""
EVENTS = "text/event-stream"
BAD_GATEWAY = 502
PAGES = 100
"""Pages of a list of tools that are asked for: a server may go on for ever."""
MOST_TOOLS = 128
"""Tools of one server, as many as chat APIs take; all of them go into every prompt."""
LONGEST = 20_000
"""Characters in which a tool may be described, its arguments included."""


ServerTools: TypeAlias = Callable[[int], list[Tool]]


class ServerError(ToolError):
    """An MCP server that cannot be used."""


class Server(BaseModel):
    """How an MCP server is reached: a command with arguments, or an address. `env` names variables
    that the command may see; a `$NAME` in an argument or the address is read when it is reached."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    url: str | None = None
    seconds: float = Field(default=30.0, gt=0)

    @model_validator(mode="after")
    def _one_way(self) -> Server:
        if (self.command is None) == (self.url is None):
            raise ValueError("an MCP server has either a command or a url")
        secrets.check_settings(self.url, **{"command and args": [self.command, *self.args]})
        if not all(map(secrets.NAME.fullmatch, self.env)):
            raise ValueError("env takes the names of environment variables, never their values")
        return self

    @property
    def filled(self) -> list[str]:
        """The variables that its arguments and its address name."""
        return secrets.variables([*self.args, self.url or ""])

    @property
    def variables(self) -> set[str]:
        """All variables that it is given."""
        return {*self.env, *self.filled}


class Connection:
    """The connection to a server, made again where it was closed. A task of its own opens and
    closes it, since `mcp` has both done by one."""

    def __init__(self, name: str, make: Callable[[], Client]) -> None:
        self._name, self._make = name, make
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._over, self._ends = asyncio.Event(), False
        self._task = asyncio.create_task(self._keep())

    async def client(self) -> Client:
        """What speaks to the server. Raises ServerError where it cannot be reached."""
        return await asyncio.shield(self._ready)

    async def renew(self, client: Client) -> None:
        """Has the connection made again where it is closed, unless somebody else had before. One
        that still answers is open: calls beside go on over it."""
        try:
            await client.list_tools(cache_mode="bypass")  # as the server has it now
        except Exception as error:  # the server's, the transport's, or a list of no known shape
            if _is_closed(error) and self._is(client):
                self._ready = asyncio.get_running_loop().create_future()
                self._over.set()

    def _is(self, client: Client) -> bool:
        ready = self._ready
        return ready.done() and not ready.exception() and ready.result() is client

    async def close(self) -> None:
        """Ends the connection, also in the midst of a handshake."""
        if not self._ready.done() and not self._over.is_set():
            self._task.cancel()
        self._ends = True
        self._over.set()
        (ended,) = await asyncio.gather(self._task, return_exceptions=True)
        if isinstance(ended, Exception):
            raise ended
        if self._ready.done():
            self._ready.exception()  # which whoever waited for it has seen

    async def _keep(self) -> None:
        while not self._ends:
            client = self._make()
            try:
                await client.__aenter__()
            except Exception as error:  # whatever the transport raises, in groups of groups
                self._ready.set_exception(_unusable(self._name, error))
                return
            self._ready.set_result(client)
            await self._over.wait()
            await self._leave(client)
            self._over.clear()

    async def _leave(self, client: Client) -> None:
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                await client.__aexit__(None, None, None)  # told of an error it puts it into groups
        except Exception as error:
            # of one that is made again, the next handshake tells whether it can be used
            if self._ends and not isinstance(error, TimeoutError):
                raise


@dataclass(eq=False)
class RemoteTool(Tool):
    """A server's tool `name`, for one trajectory; those of one server share `history`."""

    connection: Connection
    server: str
    name: str
    spec: ToolSpec
    history: list[str]
    characters: int

    @property
    def state(self) -> str:
        """The server, what was asked of it before in this trajectory, and how much is given."""
        return digest([self.server, self.characters, *self.history]).hex()

    async def call(self, arguments: Arguments) -> Result:
        """Passes the call on. What the server cannot do is a failed result, and so is a call during
        which it ended. Raises ServerError where it has ended and does not start again."""
        client = await self.connection.client()
        try:
            answer = await client.call_tool(self.name, dict(arguments))
        except Exception as error:  # the server's, the transport's, or an answer of no known shape
            if _is_closed(error):
                await self.connection.renew(client)
            text = secrets.scrub(f"{self.spec.name} failed: {_first_cause(error)}")
            result = Result(text[:500], failed=True)
        else:
            text = "\n".join(part.text for part in answer.content if part.type == "text")
            given = cut(secrets.scrub(text), self.characters) or "(no text)"
            result = Result(given, failed=bool(answer.is_error))
        self.recall(arguments, result)
        return result

    def recall(self, arguments: Arguments, result: Result) -> None:
        """Takes note of the call."""
        self.history.append(digest([self.name, dict(arguments)]).hex())


@asynccontextmanager
async def connected(name: str, server: Server) -> AsyncIterator[ServerTools]:
    """Connects to a server for the length of a `with`, and yields what gives its tools for one
    trajectory, whose results have so many characters. Raises ServerError."""
    try:
        from mcp import Client, StdioServerParameters
    except ImportError:
        raise ServerError("MCP servers need the package `mcp`", hint=install_hint("mcp")) from None
    missing = [name for name in server.filled if not os.environ.get(name, "").strip()]
    if missing:
        raise ServerError(
            f"MCP server {name} needs ${missing[0]}, which is not set",
            hint=f"export {missing[0]}=…",
        )

    def make() -> Client:
        target: Any
        if server.url is not None:
            target = streams(secrets.fill(server.url, os.environ))
        else:
            names = (name for name in server.env if name in os.environ)
            env = {name: secrets.know(os.environ[name], name) for name in names}
            assert server.command is not None
            args = [secrets.fill(argument, os.environ) for argument in server.args]
            target = StdioServerParameters(command=server.command, args=args, env=env)
        return Client(target, read_timeout_seconds=server.seconds)

    connection = Connection(name, make)
    try:
        client = await connection.client()
        try:
            async with asyncio.timeout(server.seconds):  # of all pages together
                offered = await _list_tools(client, name)
        except Exception as error:  # the server's, the transport's, or a list of no known shape
            raise _unusable(name, error) from None

        def tools(characters: int) -> list[Tool]:
            history: list[str] = []
            return [
                RemoteTool(connection, name, own_name, spec, history, characters)
                for own_name, spec in offered
            ]

        yield tools
    finally:
        await connection.close()


async def _list_tools(client: Client, server: str) -> list[tuple[str, ToolSpec]]:
    specs: dict[str, tuple[str, ToolSpec]] = {}
    cursor: str | None = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            name, number = _function_name(f"{server}_{tool.name}"), 1
            while name in specs:  # what differs in signs that no function's name has
                number += 1
                name = f"{_function_name(f'{server}_{tool.name}')[:60]}_{number}"
            spec = ToolSpec(name, tool.description or tool.name, tool.input_schema)
            size = len(spec.description) + len(json.dumps(spec.parameters))
            if size > LONGEST or len(specs) == MOST_TOOLS:
                raise ValueError(
                    f"it describes {name} in {size:,} characters, more than {LONGEST:,}"
                    if size > LONGEST
                    else f"it offers more than {MOST_TOOLS} tools"
                )
            specs[name] = (tool.name, spec)
        cursor = page.next_cursor
        if not cursor:
            break
    return list(specs.values())


def _function_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


def _unusable(name: str, error: Exception) -> ServerError:
    return ServerError(
        secrets.scrub(f"MCP server {name} cannot be used: {_first_cause(error)}")[:300],
        hint=f"check [tools.mcp.{name}] in tfgrpo.toml",
    )


def _is_closed(error: Exception) -> bool:
    return getattr(error, "code", None) == CLOSED


def _first_cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split()) or type(error).__name__


@asynccontextmanager
async def streams(url: str) -> AsyncIterator[TransportStreams]:
    """Opens what `mcp` speaks to a server at an address over, for the length of a `with`.

    An answer has an end and is as long as it was sent, and a connection that breaks is an answer
    that failed, for `mcp` would end them all. Streams of events are bounded by the size of each
    event and the time that a call may take.
    """
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    from tfgrpo.model.http_connection import reading_proxies

    class Body(httpx2.AsyncByteStream):
        """A body that ends with the one error that `mcp` takes for an answer's, where it is packed,
        breaks off, or goes on beyond `MOST_BYTES`."""

        def __init__(self, body: httpx2.AsyncByteStream, packed: str) -> None:
            self._body, self._packed = body, packed

        async def __aiter__(self) -> AsyncIterator[bytes]:
            length = 0
            if self._packed:
                raise httpx2.StreamError(f"it came as {self._packed}, which was not asked for")
            try:
                async for piece in self._body:
                    length += len(piece)
                    if length > MOST_BYTES:
                        raise httpx2.StreamError(f"it has more than {MOST_BYTES:,} bytes")
                    yield piece
            except httpx2.TransportError as error:
                raise httpx2.StreamError(f"it broke off: {error}") from error

        async def aclose(self) -> None:
            await self._body.aclose()

    class Http(httpx2.AsyncClient):
        async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            try:
                response = await super().send(request, **options)
            except httpx2.TransportError as error:
                words = f"{type(error).__name__} {error}".strip()
                failure = {"jsonrpc": "2.0", "id": None, "error": {"code": 0, "message": words}}
                about = {"content-type": "application/json"}
                content = json.dumps(failure).encode()
                return httpx2.Response(BAD_GATEWAY, headers=about, content=content, request=request)
            packed = response.headers.get("content-encoding", "").strip().lower()
            packed = "" if packed == "identity" else packed[:40]
            plain = not response.headers.get("content-type", "").lower().startswith(EVENTS)
            if isinstance(response.stream, httpx2.AsyncByteStream) and (plain or packed):
                response.stream = Body(response.stream, packed)
            return response

    with reading_proxies():
        client = Http(
            timeout=httpx2.Timeout(SECONDS, read=SILENT_SECONDS),
            headers={"accept-encoding": "identity"},
        )
    async with (
        client as http,
        streamable_http_client(url, http_client=http) as opened,
    ):
        yield opened
