"""Tools of MCP servers (modelcontextprotocol.io), by the official `mcp` package.

A server is a command that is started and spoken to over its standard streams, or an address.
One connection serves all trajectories of a run; a tool appears to the model as `server_tool`.
What a server keeps to itself is not known here, so the state of a call is the server's name and
the calls that the trajectory made to it before.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tfgrpo.store.canonical import digest
from tfgrpo.tools.tool import Arguments, Result, Spec, ToolError

if TYPE_CHECKING:
    from mcp import Client


class ServerError(ToolError):
    """An MCP server that cannot be used."""


class Server(BaseModel):
    """How an MCP server is reached: a command with arguments, or an address.

    `env` names variables of this process's environment that the command may see.
    """

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
        return self


class RemoteTool:
    """One tool of a server, for one trajectory. Those of one server share `history`."""

    def __init__(self, client: Client, server: str, name: str, spec: Spec, history: list[str]):
        self._client = client
        self._server = server
        self._name = name
        self._spec = spec
        self._history = history

    @property
    def spec(self) -> Spec:
        """What a model is told of it."""
        return self._spec

    @property
    def state(self) -> str:
        """The server and what was asked of it before in this trajectory."""
        return digest([self._server, *self._history]).hex()

    async def call(self, arguments: Arguments) -> Result:
        """Passes the call on. What the server cannot do is a failed result."""
        from mcp import MCPError

        try:
            answer = await self._client.call_tool(self._name, dict(arguments))
        except (MCPError, TimeoutError, RuntimeError) as error:
            result = Result(f"{self._spec.name} failed: {error}"[:500], failed=True)
        else:
            texts = [part.text for part in answer.content if part.type == "text"]
            result = Result("\n".join(texts) or "(no text)", failed=bool(answer.is_error))
        self.recall(arguments, result)
        return result

    def recall(self, arguments: Arguments, result: Result) -> None:
        """Takes note of the call."""
        self._history.append(digest([self._name, dict(arguments)]).hex())

    async def close(self) -> None:
        """The connection is the run's: whoever opened it closes it."""


class Connection:
    """A server that is connected, and the tools it offers."""

    def __init__(self, client: Client, name: str, tools: list[tuple[str, Spec]]) -> None:
        self._client = client
        self._name = name
        self._tools = tools

    def tools(self) -> list[RemoteTool]:
        """Returns the server's tools for one trajectory."""
        history: list[str] = []
        return [
            RemoteTool(self._client, self._name, name, spec, history) for name, spec in self._tools
        ]


@asynccontextmanager
async def connected(name: str, server: Server) -> AsyncIterator[Connection]:
    """Connects to a server for the length of a `with`. Raises ServerError."""
    try:
        from mcp import Client, StdioServerParameters
    except ImportError:
        raise ServerError(
            "MCP servers need the package `mcp`", hint="pip install 'tfgrpo[mcp]'"
        ) from None
    target: Any = server.url
    if server.command is not None:
        env = {name: os.environ[name] for name in server.env if name in os.environ}
        target = StdioServerParameters(command=server.command, args=list(server.args), env=env)
    client = Client(target, read_timeout_seconds=server.seconds)
    try:
        await client.__aenter__()
    except Exception as error:  # whatever the transport raises, in groups of groups
        raise ServerError(
            f"MCP server {name} cannot be used: {_first(error)}"[:300],
            hint=f"check [tools.mcp.{name}] in tfgrpo.toml",
        ) from None
    try:
        listed = await client.list_tools()
        tools = [
            (
                tool.name,
                Spec(
                    _plain(f"{name}_{tool.name}"), tool.description or tool.name, tool.input_schema
                ),
            )
            for tool in listed.tools
        ]
        yield Connection(client, name, tools)
    finally:
        await client.__aexit__(None, None, None)


def _plain(name: str) -> str:
    """Returns a name that chat APIs take for a function."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64]


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
