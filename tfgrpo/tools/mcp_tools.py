"""Tools of MCP servers (modelcontextprotocol.io), by the official `mcp` package.

A server is a command that is started and spoken to over its standard streams, or an address.
One connection serves all trajectories of a run; a tool appears to the model as `server_tool`.
What a server keeps to itself is not known here, so the state of a call is the server's name and
the calls that the trajectory made to it before.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tfgrpo.model import secrets
from tfgrpo.store.canonical import digest
from tfgrpo.store.errors import install_hint
from tfgrpo.tools import mcp_http
from tfgrpo.tools.tool import Arguments, Result, Tool, ToolError, ToolSpec, cut

if TYPE_CHECKING:
    from mcp import Client
PAGES = 100
"""Pages of a list of tools that are asked for: a server may go on for ever."""
MOST_TOOLS = 128
"""Tools of one server, as many as chat APIs take; all of them go into every prompt."""
LONGEST = 20_000
"""Characters in which a tool may be described, its arguments included."""


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
        line = [self.command, *self.args]
        for name, value in (("command and args", line), ("url", self.url)):
            place = secrets.literal(name, value)
            if place is not None:
                raise ValueError(f"{place} looks like a secret: {secrets.HINT}")
        wrong = [name for name in self.env if not secrets.NAME.fullmatch(name)]
        if wrong:
            raise ValueError("env takes the names of environment variables, never their values")
        return self


class RemoteTool(Tool):
    """A server's tool, for one trajectory; those of one server share `history`."""

    def __init__(
        self,
        client: Client,
        server: str,
        name: str,
        spec: ToolSpec,
        history: list[str],
        *,
        characters: int,
    ) -> None:
        self._client = client
        self._server = server
        self._name = name
        self.spec = spec
        self._history = history
        self._characters = characters

    @property
    def state(self) -> str:
        """The server, what was asked of it before in this trajectory, and how much is given."""
        return digest([self._server, self._characters, *self._history]).hex()

    async def call(self, arguments: Arguments) -> Result:
        """Passes the call on. What the server cannot do is a failed result."""
        try:
            answer = await self._client.call_tool(self._name, dict(arguments))
        except Exception as error:  # the server's, the transport's, or an answer of no known shape
            text = secrets.scrub(f"{self.spec.name} failed: {_first_cause(error)}")
            result = Result(text[:500], failed=True)
        else:
            text = "\n".join(part.text for part in answer.content if part.type == "text")
            given = cut(secrets.scrub(text), self._characters) or "(no text)"
            result = Result(given, failed=bool(answer.is_error))
        self.recall(arguments, result)
        return result

    def recall(self, arguments: Arguments, result: Result) -> None:
        """Takes note of the call."""
        self._history.append(digest([self._name, dict(arguments)]).hex())


class Connection:
    """A server that is connected, and the tools it offers."""

    def __init__(self, client: Client, name: str, tools: list[tuple[str, ToolSpec]]) -> None:
        self._client = client
        self._name = name
        self._tools = tools

    def tools(self, characters: int) -> list[RemoteTool]:
        """The server's tools for one trajectory; results have so many characters."""
        history: list[str] = []
        return [
            RemoteTool(self._client, self._name, name, spec, history, characters=characters)
            for name, spec in self._tools
        ]


@asynccontextmanager
async def connected(name: str, server: Server) -> AsyncIterator[Connection]:
    """Connects to a server for the length of a `with`. Raises ServerError."""
    try:
        from mcp import Client, StdioServerParameters
    except ImportError:
        raise ServerError("MCP servers need the package `mcp`", hint=install_hint("mcp")) from None
    missing = [
        name
        for name in secrets.variables([*server.args, server.url or ""])
        if not os.environ.get(name)
    ]
    if missing:
        raise ServerError(
            f"MCP server {name} needs ${missing[0]}, which is not set",
            hint=f"export {missing[0]}=…",
        )
    target: Any
    if server.url is not None:
        target = mcp_http.streams(secrets.fill(server.url, os.environ))
    else:
        env = {
            name: secrets.know(os.environ[name], name) for name in server.env if name in os.environ
        }
        assert server.command is not None
        args = [secrets.fill(argument, os.environ) for argument in server.args]
        target = StdioServerParameters(command=server.command, args=args, env=env)
    client = Client(target, read_timeout_seconds=server.seconds)
    try:
        await client.__aenter__()
    except Exception as error:  # whatever the transport raises, in groups of groups
        raise _unusable(name, error) from None
    try:
        try:
            async with asyncio.timeout(server.seconds):  # of all pages together
                tools = await _list_tools(client, name)
        except Exception as error:  # the server's, the transport's, or a list of no known shape
            raise _unusable(name, error) from None
        yield Connection(client, name, tools)
    finally:  # told of an error it would put it into groups
        await client.__aexit__(None, None, None)


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


def _first_cause(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return " ".join(str(error).split()) or type(error).__name__
