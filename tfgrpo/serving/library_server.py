"""`tfgrpo mcp`: a library over the Model Context Protocol, as a prompt, a resource and tools.

Few clients show prompts and resources to their model, so the tool `experiences(problem)` has the
same; `feedback(call, score)` records what became of it. Changes are announced to who listens
(protocol 2026-07-28) and as notifications of earlier protocols. Nothing is cached. Its transports
are standard streams and streamable HTTP.
"""

from __future__ import annotations

import hmac
import logging
import socket
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import mcp_types as types
import uvicorn
from mcp.server import NotificationOptions, Server
from mcp.server.context import ServerRequestContext
from mcp.server.models import InitializationOptions
from mcp.server.session import ServerSession
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.responses import Response

from tfgrpo.domains.prompt_library import LiveLibrary, PromptLibrary
from tfgrpo.proxy.proxy_settings import LOOPBACK, listening
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rendering.request_placement import INTRODUCTION
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.serving.mcp_lookups import Lookups
from tfgrpo.store.errors import SettingsError, TfgrpoError
from tfgrpo.store.records import Library

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

NAME = "tfgrpo"
EXPERIENCES, FEEDBACK = "experiences", "feedback"
URI = "tfgrpo://library"
LOOK = 0.25
"""Seconds between two looks whether the library changed; a look costs a microsecond."""
MOST = 20
"""The experiences that a problem gets at most, where training had all in its prompts."""
SESSIONS = 1024
"""Clients of earlier protocols that changes are announced to; the ones heard of last stay."""
INSTRUCTIONS = (
    "A library of short experiences, learned from earlier problems of this kind. Call `experiences`"
    " with a problem before solving it, and follow those that fit. When it is known whether the"
    " answer was right, call `feedback` with the call that `experiences` named."
)
PROBLEM = {"type": "string", "description": "The problem in its own words."}
LOOKUP: dict[str, Any] = {
    "type": "object",
    "properties": {
        "problem": PROBLEM,
        "most": {"type": "integer", "minimum": 1, "description": "Experiences at most."},
    },
    "additionalProperties": False,
}
LOOKUP_RESULT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "call": {"type": ["string", "null"], "description": "What feedback is given on."},
        "version": {"type": "string"},
        "digest": {"type": "string"},
        "experiences": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {key: {"type": "string"} for key in ("id", "label", "text")},
                "required": ["id", "label", "text"],
            },
        },
    },
    "required": ["call", "version", "digest", "experiences"],
}
FEEDBACK_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "call": {"type": "string", "description": "The call that `experiences` named."},
        "score": {
            "type": ["boolean", "number"],
            "description": "Whether the answer was right, or how good it was.",
        },
        "correct": {"type": "string", "description": "The answer that would have been right."},
        "label": {"type": "string", "description": "A word for what is wrong or right."},
        "comment": {"type": "string"},
    },
    "required": ["call", "score"],
    "additionalProperties": False,
}
TOKEN = "TFGRPO_MCP_TOKEN"
PATH = "/mcp"
REFUSAL = {"content-type": "text/plain", "www-authenticate": 'Bearer realm="tfgrpo"'}
PATIENCE = 2
"""Seconds that requests under way have at the end."""
Context: TypeAlias = ServerRequestContext[Any, Any]
log = logging.getLogger("tfgrpo.mcp")


class _Announcing(Server[Any]):
    """A server that tells clients of earlier protocols, too, that its lists change."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        changing = NotificationOptions(prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(
            notification_options or changing, experimental_capabilities, extensions
        )


class LibraryServer:
    """A library over MCP; `server` is run on a transport while `announcing` is entered."""

    def __init__(
        self, live: LiveLibrary, lookups: Lookups | None, *, top_k: int | None = None
    ) -> None:
        self.live = live
        self._lookups = lookups
        self._top_k = top_k
        self._bus = InMemorySubscriptionBus()
        self._listening = ListenHandler(self._bus)
        self._sessions: OrderedDict[str, ServerSession] = OrderedDict()
        self._subscribed: set[str] = set()
        from tfgrpo import __version__

        self.server: Server[Any] = _Announcing(
            NAME,
            version=__version__,
            title="Learned experiences",
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_list_resources=self._list_resources,
            on_read_resource=self._read_resource,
            on_subscribe_resource=self._subscribe,
            on_unsubscribe_resource=self._unsubscribe,
            on_subscriptions_listen=self._listening,
        )

    # changes:

    @asynccontextmanager
    async def announcing(self) -> AsyncIterator[None]:
        """Announces changes of the library for as long as the block runs."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._announce_changes)
            try:
                yield
            finally:
                self.end_listening()
                tasks.cancel_scope.cancel()

    def end_listening(self) -> None:
        """Ends the streams of those who listen, in good order."""
        self._listening.close()

    async def _announce_changes(self) -> None:
        known = self.live.library
        trouble: str | None = None
        while True:
            await anyio.sleep(LOOK)
            library = self.live.library
            if self.live.trouble != trouble:
                trouble = self.live.trouble
                if trouble:
                    log.warning("%s; %s goes on", trouble, library.version.name)
            if library is not known:
                known = library
                await self._announce()

    async def _announce(self) -> None:
        for event in (PromptsListChanged(), ResourcesListChanged(), ResourceUpdated(URI)):
            await self._bus.publish(event)
        for name, session in list(self._sessions.items()):
            try:
                await session.send_prompt_list_changed()
                await session.send_resource_list_changed()
                if name in self._subscribed:
                    await session.send_resource_updated(URI)
            except (MCPError, anyio.ClosedResourceError, anyio.BrokenResourceError):
                self._forget(name)

    def _heard(self, context: Context) -> str:
        """Remembers a client of an earlier protocol, and returns its name among them."""
        headers = getattr(context.request, "headers", {})
        name = str(headers.get("mcp-session-id", ""))
        if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            self._sessions[name] = context.session
            self._sessions.move_to_end(name)
            if len(self._sessions) > SESSIONS:
                self._forget(next(iter(self._sessions)))
        return name

    def _forget(self, name: str) -> None:
        self._sessions.pop(name, None)
        self._subscribed.discard(name)

    # the prompt and the resource:

    def _described(self) -> str:
        library = self.live.library
        return f"{len(library.readable)} experiences, as of {library.version.name}"

    async def _list_prompts(self, context: Context, params: object) -> types.ListPromptsResult:
        self._heard(context)
        problem = types.PromptArgument(
            name="problem", description="Only the experiences that fit it best.", required=False
        )
        prompt = types.Prompt(
            name=EXPERIENCES,
            title="Experiences from earlier problems",
            description=self._described(),
            arguments=[problem],
        )
        return types.ListPromptsResult(prompts=[prompt])

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        self._heard(context)
        if params.name != EXPERIENCES:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name!r}")
        problem = (params.arguments or {}).get("problem", "")
        part = self._fitting(self.live.library, problem, None)
        text = f"{INTRODUCTION}\n{prompt_text(part)}" + (f"\n\n{problem}" if problem else "")
        message = types.PromptMessage(role="user", content=_text(text)[0])
        return types.GetPromptResult(description=self._described(), messages=[message])

    async def _list_resources(self, context: Context, params: object) -> types.ListResourcesResult:
        self._heard(context)
        resource = types.Resource(
            name="library",
            uri=URI,
            title="Experiences from earlier problems",
            description=self._described(),
            mime_type="text/plain",
        )
        return types.ListResourcesResult(resources=[resource])

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        self._heard(context)
        self._check(params.uri)
        text = prompt_text(self.live.library)
        content = types.TextResourceContents(uri=URI, mime_type="text/plain", text=text)
        return types.ReadResourceResult(contents=[content])

    async def _subscribe(
        self, context: Context, params: types.SubscribeRequestParams
    ) -> types.EmptyResult:
        self._check(params.uri)
        self._subscribed.add(self._heard(context))
        return types.EmptyResult()

    async def _unsubscribe(
        self, context: Context, params: types.UnsubscribeRequestParams
    ) -> types.EmptyResult:
        self._subscribed.discard(self._heard(context))
        return types.EmptyResult()

    def _check(self, uri: object) -> None:
        if str(uri) != URI:
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {uri}")

    def _fitting(self, library: PromptLibrary, problem: str, most: int | None) -> Library:
        """What fits a problem best, as much as in training by default; without one all."""
        usual = self._top_k or library.top_k or MOST
        return relevant(library, problem, most or usual if problem else most)

    # the tools:

    async def _list_tools(self, context: Context, params: object) -> types.ListToolsResult:
        self._heard(context)
        tools = [
            types.Tool(
                name=EXPERIENCES,
                title="Experiences that fit a problem",
                description="Returns short experiences from earlier problems that fit a problem "
                "(all of them without one). Call it before solving a problem, and follow those "
                "that fit.",
                input_schema=LOOKUP,
                output_schema=LOOKUP_RESULT,
                annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
            )
        ]
        if self._lookups is not None:
            tools.append(
                types.Tool(
                    name=FEEDBACK,
                    title="What became of an answer",
                    description="Records whether an answer for which experiences were looked up "
                    "was right: true, false or a number, and the right answer where it is known.",
                    input_schema=FEEDBACK_SCHEMA,
                    annotations=types.ToolAnnotations(
                        read_only_hint=False, destructive_hint=False, open_world_hint=False
                    ),
                )
            )
        return types.ListToolsResult(tools=tools)

    async def _call_tool(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        self._heard(context)
        given = params.arguments or {}
        if params.name == EXPERIENCES:
            return await self._look_up(given)
        if params.name == FEEDBACK and self._lookups is not None:
            try:
                call = await anyio.to_thread.run_sync(self._lookups.add_feedback, given)
            except TfgrpoError as error:
                return _failed(f"{error}" + (f" ({error.hint})" if error.hint else ""))
            return types.CallToolResult(content=_text(f"recorded feedback on {call}"))
        raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name!r}")

    async def _look_up(self, given: Mapping[str, object]) -> types.CallToolResult:
        began = perf_counter()
        problem, most = given.get("problem", ""), given.get("most")
        if unknown := sorted(given.keys() - LOOKUP["properties"].keys()):
            return _failed(f"experiences takes a problem and most, and no {', '.join(unknown)}")
        if isinstance(problem, (int, float)) and not isinstance(problem, bool):
            problem = str(problem)  # models write a problem that is a number as one
        if not isinstance(problem, str):
            return _failed("a problem is a text")
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            return _failed("most is a number of experiences, at least 1")
        library = self.live.library
        part = self._fitting(library, problem, most)
        call = None
        if self._lookups is not None:
            whole = part is library
            call = await anyio.to_thread.run_sync(
                self._lookups.add, part, whole, problem, began, abandon_on_cancel=True
            )
        readable, labels = part.readable, part.label_of
        answer = {
            "call": call,
            "version": library.version.name,
            "digest": library.version.digest.hex()[:16],
            "experiences": [{"id": e.id, "label": labels[e.id], "text": e.text} for e in readable],
        }
        text = f"{INTRODUCTION}\n{prompt_text(part)}" if readable else "There are none yet."
        if call is not None:
            text += (
                f"\n\nThis call is {call}: give feedback on it once it is known whether the answer "
                "was right."
            )
        return types.CallToolResult(content=_text(text), structured_content=answer)


def _text(text: str) -> list[types.ContentBlock]:
    return [types.TextContent(type="text", text=text)]


def _failed(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=_text(text), is_error=True)


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
        app = self._app
        if scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            if len(given) != 1 or not hmac.compare_digest(given[0], self._wanted):
                app = Response("the server's token is missing\n", 401, REFUSAL)
        await app(scope, receive, send)
