"""`tfgrpo mcp`: a library over the Model Context Protocol, as a prompt, a resource and tools.

Few clients show prompts and resources to their model, so the tool `experiences(problem)` has the
same; `feedback(call, score)` records what became of it. Changes are announced to who listens
(protocol 2026-07-28) and as notifications of earlier protocols. Nothing is cached. Its transports
are standard streams and streamable HTTP.
"""

from __future__ import annotations

import hmac
import json
import logging
import math
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import mcp_types as types
import uvicorn
from mcp.server import NotificationOptions, Server
from mcp.server.context import ServerRequestContext
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ServerEvent, event_to_notification
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.responses import Response

from tfgrpo.domains.prompt_library import LiveLibrary, PromptLibrary
from tfgrpo.proxy.proxy_settings import LOOPBACK, listening
from tfgrpo.proxy.telemetry import Labels, sums_of, take_feedback
from tfgrpo.proxy.withheld_words import Finder
from tfgrpo.rendering.render import prompt_text
from tfgrpo.rendering.request_placement import INTRODUCTION
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.store.activity.traffic import (
    CallContent,
    CallRecord,
    FeedbackRefused,
    Traffic,
    UnknownCall,
    keyed,
    make_traffic_folder,
    traffic_path,
)
from tfgrpo.store.errors import SettingsError, StoreError, TfgrpoError
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.records import REDACTED, Library

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import ASGIApp, Receive, Scope, Send

NAME = "tfgrpo"
ROUTE, LIBRARY = "/mcp/experiences", "default"
"""How look-ups are on record, as calls through the proxy are: the route, and the library's name."""
EXPERIENCES, FEEDBACK = "experiences", "feedback"
URI = "tfgrpo://library"
LOOK = 0.25
"""Seconds between two looks whether the library changed; a look costs a microsecond."""
MOST = 20
"""The experiences that a problem gets at most, where training had all in its prompts."""
INSTRUCTIONS = (
    "A library of short experiences, learned from earlier problems of this kind. Call `experiences`"
    " with a problem before solving it, and follow those that fit. When it is known whether the"
    " answer was right, call `feedback` with the call that `experiences` named."
)
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
Subscription: TypeAlias = types.SubscribeRequestParams | types.UnsubscribeRequestParams
log = logging.getLogger("tfgrpo.mcp")


class Lookup(BaseModel):
    """What `experiences` takes. Models write a problem that is a number as one."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
    problem: str = Field("", description="The problem in its own words.")
    most: int | None = Field(None, ge=1, strict=True, description="Experiences at most.")


class LookedUp(BaseModel):
    """What `experiences` returns: the call is what feedback is given on."""

    class One(BaseModel):
        id: str
        label: str
        text: str

    call: str | None = Field(description="What feedback is given on.")
    version: str
    digest: str
    experiences: list[One]


class Lookups:
    """Where look-ups are recorded, beside a store. `content` keeps the problems too, less what a
    pattern finds. Who asks without a `token` is the store's owner; with one, feedback is for the
    calls made with it."""

    def __init__(
        self,
        store: Path | str,
        *,
        content: bool = False,
        pattern: Finder | None = None,
        token: str | None = None,
    ) -> None:
        self._store = store
        self.path = traffic_path(store)
        self._content = content
        self._pattern = pattern or Finder()
        self._token = token
        self._worker = secrets.token_hex(8)
        self._labels = Labels()
        self._trouble = False

    def add(self, library: Library, whole: bool, problem: str, began: float) -> str | None:
        """Records a look-up that found `library`, a part of what is in force unless `whole`;
        `began` is of `perf_counter`. Returns the call's id, or None, which the log tells once."""
        latency = round((time.perf_counter() - began) * 1e6)
        id = f"call-{secrets.token_hex(16)}"
        try:
            with closing(self._open()) as traffic:
                row = CallRecord(
                    id,
                    time.time_ns() // 1000,
                    self._worker,
                    LIBRARY,
                    library.version.name,
                    library.version.digest.hex()[:16],
                    None if whole else json.dumps([e.id for e in library]),
                    *(None, None, None, ROUTE, 200, 0, None, None, None),
                    latency,
                    latency,
                    *(0, 0, self._caller(traffic.secret()), None),
                )
                words = [self._words(id, problem)] if self._content and problem else []
                traffic.add([row], words, sums_of([row], self._labels))
        except (StoreError, OSError) as error:
            if not self._trouble:
                log.warning("look-ups are not recorded: %s", error)
            self._trouble = True
            return None
        self._trouble = False
        return id

    def add_feedback(self, given: Mapping[str, object]) -> str:
        """Records feedback, and returns the call's id. Raises UnknownCall (also for a call of
        somebody else's), FeedbackRefused or StoreError."""
        wanted = given.get("call")
        if not isinstance(wanted, str):
            raise FeedbackRefused("feedback is on a call", hint="give the id that experiences gave")
        with closing(self._open()) as traffic:
            call = traffic.call(wanted)
            ours = self._caller(traffic.secret()) or b""
            theirs = self._token is not None and not (
                call.route == ROUTE and hmac.compare_digest(call.caller or b"", ours)
            )
            if theirs or call.id != wanted:  # a program has the whole id
                raise UnknownCall(f"no call {wanted!r} is on record")
            take_feedback(traffic, call, given, "mcp", self._pattern)
        return call.id

    def _open(self) -> Traffic:
        make_traffic_folder(self._store)
        return open_traffic(self.path, create=True)

    def _caller(self, secret: bytes) -> bytes | None:
        return keyed(secret, self._token.encode()) if self._token else None

    def _words(self, id: str, problem: str) -> CallContent:
        request = {"messages": [{"role": "user", "content": self._pattern.sub(REDACTED, problem)}]}
        return CallContent(id, json.dumps(request, ensure_ascii=False), "")


class _Announcing(Server[Any]):
    """A server that tells clients of earlier protocols, too, that its lists change."""

    def create_initialization_options(self, *_: Any, **__: Any) -> InitializationOptions:
        changing = NotificationOptions(prompts_changed=True, resources_changed=True)
        return super().create_initialization_options(changing)


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
        self._subscribed: set[int] = set()
        """Clients by the `id` of their parameters, which a connection has once."""
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
            on_subscribe_resource=partial(self._subscribe, self._subscribed.add),
            on_unsubscribe_resource=partial(self._subscribe, self._subscribed.discard),
            on_subscriptions_listen=self._listening,
        )
        self.server.add_notification_handler(
            "notifications/initialized", types.NotificationParams, self._announce_to
        )

    # changes:

    @asynccontextmanager
    async def announcing(self) -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._announce_changes)
            try:
                yield
            finally:
                self.end_listening()
                tasks.cancel_scope.cancel()

    def end_listening(self) -> None:
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
                for event in (PromptsListChanged(), ResourcesListChanged(), ResourceUpdated(URI)):
                    await self._bus.publish(event)

    async def _announce_to(self, context: Context, params: object) -> None:
        """Tells a client of an earlier protocol what changes; its connection's end cancels this."""
        session, client = context.session, id(context.session.client_params)
        sending, changes = anyio.create_memory_object_stream[ServerEvent](math.inf)
        leave = self._bus.subscribe(sending.send_nowait)
        try:
            async for event in changes:
                if not isinstance(event, ResourceUpdated) or client in self._subscribed:
                    await session.send_notification(event_to_notification(event, {}))
        finally:
            leave()
            self._subscribed.discard(client)

    async def _subscribe(
        self, change: Callable[[int], None], context: Context, params: Subscription
    ) -> types.EmptyResult:
        self._check(params.uri)
        change(id(context.session.client_params))
        return types.EmptyResult()

    # the prompt and the resource:

    def _described(self) -> str:
        library = self.live.library
        return f"{len(library.readable)} experiences, as of {library.version.name}"

    async def _list_prompts(self, context: Context, params: object) -> types.ListPromptsResult:
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
        if params.name != EXPERIENCES:
            raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name!r}")
        problem = (params.arguments or {}).get("problem", "")
        part = self._fitting(self.live.library, problem, None)
        text = f"{INTRODUCTION}\n{prompt_text(part)}" + (f"\n\n{problem}" if problem else "")
        message = types.PromptMessage(role="user", content=_text(text)[0])
        return types.GetPromptResult(description=self._described(), messages=[message])

    async def _list_resources(self, context: Context, params: object) -> types.ListResourcesResult:
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
        self._check(params.uri)
        text = prompt_text(self.live.library)
        content = types.TextResourceContents(uri=URI, mime_type="text/plain", text=text)
        return types.ReadResourceResult(contents=[content])

    def _check(self, uri: object) -> None:
        if str(uri) != URI:
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {uri}")

    def _fitting(self, library: PromptLibrary, problem: str, most: int | None) -> Library:
        """What fits a problem best, as much as in training by default; without one all."""
        usual = self._top_k or library.top_k or MOST
        return relevant(library, problem, most or usual if problem else most)

    # the tools:

    async def _list_tools(self, context: Context, params: object) -> types.ListToolsResult:
        tools = [
            types.Tool(
                name=EXPERIENCES,
                title="Experiences that fit a problem",
                description="Returns short experiences from earlier problems that fit a problem "
                "(all of them without one). Call it before solving a problem, and follow those "
                "that fit.",
                input_schema=Lookup.model_json_schema(),
                output_schema=LookedUp.model_json_schema(),
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
        began = time.perf_counter()
        try:
            wanted = Lookup.model_validate(given)
        except ValidationError as error:
            wrong = error.errors()[0]
            return _failed(f"{wrong['loc'][0]}: {wrong['msg']}")
        library = self.live.library
        part = self._fitting(library, wanted.problem, wanted.most)
        call = None
        if self._lookups is not None:
            whole = part is library
            call = await anyio.to_thread.run_sync(
                self._lookups.add, part, whole, wanted.problem, began, abandon_on_cancel=True
            )
        readable, label = part.readable, part.label_of
        experiences = [LookedUp.One(id=e.id, label=label[e.id], text=e.text) for e in readable]
        version, digest = library.version.name, library.version.digest.hex()[:16]
        answer = LookedUp(call=call, version=version, digest=digest, experiences=experiences)
        text = f"{INTRODUCTION}\n{prompt_text(part)}" if readable else "There are none yet."
        if call is not None:
            text += (
                f"\n\nThis call is {call}: give feedback on it once it is known whether the answer "
                "was right."
            )
        return types.CallToolResult(content=_text(text), structured_content=answer.model_dump())


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
