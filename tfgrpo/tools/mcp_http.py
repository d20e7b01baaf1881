"""How an MCP server at an address is spoken to: an answer has an end and is as long as it was sent,
and a connection that breaks is an answer that failed, for `mcp` would end them all.

Streams of events are bounded by the size of each event and the time that a call may take.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

MOST_BYTES = 8 << 20
"""Bytes of one answer."""
SECONDS, SILENT_SECONDS = 30.0, 300.0
"""In which a connection is made, and in which something comes over one; as `mcp` has it."""
EVENTS = "text/event-stream"
BAD_GATEWAY = 502


@asynccontextmanager
async def streams(url: str) -> AsyncIterator[TransportStreams]:
    """Opens what `mcp` speaks to a server over, for the length of a `with`."""
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

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

    async with (
        Http(
            timeout=httpx2.Timeout(SECONDS, read=SILENT_SECONDS),
            headers={"accept-encoding": "identity"},
        ) as http,
        streamable_http_client(url, http_client=http) as opened,
    ):
        yield opened
