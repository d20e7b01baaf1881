"""The library's MCP server on its transports: standard streams, and streamable HTTP."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from mcp.server.stdio import stdio_server

from tfgrpo.proxy.proxy_settings import LOOPBACK, listening
from tfgrpo.store.errors import SettingsError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from tfgrpo.serving.library_server import LibraryServer

TOKEN = "TFGRPO_MCP_TOKEN"
PATH = "/mcp"
PATIENCE = 2
"""Seconds that requests under way have at the end."""


def checked_address(host: str, token: str | None) -> None:
    """Raises SettingsError for an address beyond this machine without a token."""
    if host not in LOOPBACK and not token:
        raise SettingsError(
            f"listening on {host} needs a token",
            hint=f"set {TOKEN} to a long random text; clients send it as a bearer token",
        )


def serve_stdio(library: LibraryServer) -> None:
    """Answers on standard input and output until the input ends."""

    async def main() -> None:
        server = library.server
        async with stdio_server() as (reading, writing), library.announcing():
            await server.run(reading, writing, server.create_initialization_options())

    anyio.run(main)


def serve_http(
    library: LibraryServer, host: str, port: int, token: str | None, ready: Callable[[int], None]
) -> None:
    """Answers on `http://HOST:PORT/mcp` until SIGTERM or SIGINT; `ready` is called with the port.
    With a `token` requests must bring it; on loopback, Host and Origin must be this machine's.
    Raises SettingsError where the address cannot be had."""
    checked_address(host, token)
    listener = listening(host, port)
    app: ASGIApp = library.server.streamable_http_app(streamable_http_path=PATH, host=host)
    if token:
        app = _Guarded(app, token)

    async def main() -> None:
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=PATIENCE)
        server = _Noticing(config, library)
        async with library.announcing():
            ready(int(listener.getsockname()[1]))
            await server.serve(sockets=[listener])

    with listener:
        anyio.run(main)


class _Noticing(uvicorn.Server):
    """A server that ends the streams of listeners before it waits for requests under way."""

    def __init__(self, config: uvicorn.Config, library: LibraryServer) -> None:
        super().__init__(config)
        self._library = library

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._library.end_listening()
        await super().shutdown(sockets)


class _Guarded:
    """An application that answers only who brings the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._wanted = b"Bearer " + token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            if len(given) != 1 or not hmac.compare_digest(given[0], self._wanted):
                await _refuse(send)
                return
        await self._app(scope, receive, send)


async def _refuse(send: Send) -> None:
    headers: list[tuple[bytes, bytes]] = [
        (b"content-type", b"text/plain"),
        (b"www-authenticate", b'Bearer realm="tfgrpo"'),
    ]
    start: dict[str, Any] = {"type": "http.response.start", "status": 401, "headers": headers}
    await send(start)
    await send({"type": "http.response.body", "body": b"the server's token is missing\n"})
