"""The agent: thinks, acts and looks until it can answer (ReAct, arXiv 2210.03629). At a limit of
turns, tokens or (recorded) seconds it is asked once more, without tools."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from tfgrpo.agents.agent_attempts import AgentRollout
from tfgrpo.costs.prices import LOCAL
from tfgrpo.domains.base import Context, Domain, Elsewhere, Trajectory, answer_once
from tfgrpo.model.endpoint import Answer, NoTools, Request
from tfgrpo.rendering.experience_texts import instructions
from tfgrpo.rollout.attempt import make_trajectory
from tfgrpo.rollout.exact_rewards import exactly
from tfgrpo.settings import Settings
from tfgrpo.store.errors import InvalidOperation, SettingsError
from tfgrpo.store.records import Json
from tfgrpo.tools import call_protocol as protocol
from tfgrpo.tools import toolbox
from tfgrpo.tools.call_protocol import RequestedCall
from tfgrpo.tools.tool import Result, Tool, ToolSpec
from tfgrpo.tools.tool_call_record import ToolRecord
from tfgrpo.tools.toolbox import Toolbox

STAGE = "rollout"


def bounded(domain: Domain, concurrency: int) -> Domain:
    """A domain with `concurrency` attempts at once at most, where one is more than a call."""
    if domain.rollout is answer_once:
        return domain
    return replace(domain, rollout=_Bounded(domain, concurrency).rollout)


class _Bounded:
    """A rollout, and the attempts that are under way."""

    def __init__(self, domain: Domain, concurrency: int) -> None:
        self._domain = domain
        self._free = asyncio.Semaphore(concurrency)
        self._first = asyncio.Lock()
        self._dearest: Answer | None = None

    async def rollout(self, context: Context) -> Trajectory:
        """Makes one attempt. Raises what the rollout raises, and BudgetReached."""
        async with self._free:
            if self._dearest is None and context.calls.is_bounded:
                async with self._first:
                    if self._dearest is None:
                        return await self._counted(context, Answer("", ""))
            return await self._counted(context, self._dearest or Answer("", ""))

    async def _counted(self, context: Context, likely: Answer) -> Trajectory:
        give_back = await context.calls.set_aside(likely)
        keys: list[str] = []
        loop = asyncio.get_running_loop()

        def note_late(report: Elsewhere) -> None:
            try:
                loop.call_soon_threadsafe(self._note_late, context, report)
            except RuntimeError:  # the loop is closed
                raise InvalidOperation(
                    "the run is over: this call is not recorded",
                    hint="report a call as soon as it is answered",
                ) from None

        try:
            trajectory = await make_trajectory(self._domain, context)
        finally:
            reports = context.elsewhere.close(note_late)
            try:  # whoever waits may be gone: all are on record
                noted = [_note(context, one) for one in reports]
                keys = list(await asyncio.shield(asyncio.gather(*noted)))
            finally:
                give_back()
            self._learn(reports)
        return replace(trajectory, calls=(*keys, *trajectory.calls)) if keys else trajectory

    def _note_late(self, context: Context, report: Elsewhere) -> None:
        _note(context, report)
        self._learn(list(context.elsewhere))

    def _learn(self, reported: Sequence[Elsewhere]) -> None:
        """Takes note of what an attempt took elsewhere, for those that follow."""
        before = self._dearest or Answer("", "")
        self._dearest = Answer(
            "",
            "",
            max(before.prompt_tokens, sum(one.prompt_tokens for one in reported)),
            0,
            max(before.completion_tokens, sum(one.completion_tokens for one in reported)),
        )


def _note(context: Context, one: Elsewhere) -> asyncio.Task[str]:
    request = Request(STAGE, one.messages, 0.0, one.completion_tokens)
    answer = Answer(one.answer, "stop", one.prompt_tokens, one.cached_tokens, one.completion_tokens)
    return context.calls.note(request, answer, call_path=(*context.call_path, context.sample))


Protocol: TypeAlias = Literal["auto", "api", "text"]
FINISH = "No more tools. Give the answer now, with what you know."
CALLS = 8
"""The most tool calls of a turn that are made; what a model wants beyond is left out."""


@dataclass(frozen=True, slots=True)
class AttemptLimits:
    """What one attempt may take: turns, tokens of the model, and seconds."""

    turns: int = 10
    tokens: int = 32_000
    seconds: float = 900.0


class Agent:
    """Makes rollouts with the tools of a toolbox."""

    def __init__(
        self,
        toolbox: Toolbox,
        record: ToolRecord,
        *,
        limits: AttemptLimits | None = None,
        protocol: Protocol = "auto",
    ) -> None:
        self._toolbox = toolbox
        self._record = record
        self._limits = limits or AttemptLimits()
        self._by_api = protocol != "text"
        self._forced = protocol == "api"

    async def specs(self) -> list[ToolSpec]:
        """Returns what a model is told of the tools where no library says otherwise."""
        tools = self._toolbox.tools()
        try:
            return [tool.spec for tool in tools]
        finally:
            await asyncio.gather(*(tool.close() for tool in tools))

    async def rollout(self, context: Context) -> Trajectory:
        """Makes one attempt. Raises CallFailed, EndpointError and ToolError."""
        tools = {tool.spec.name: tool for tool in self._toolbox.tools()}
        try:
            if self._by_api:
                try:
                    return await self._attempt(context, tools, by_api=True)
                except NoTools:
                    if self._forced:
                        raise
                    self._by_api = False  # and from now on
            return await self._attempt(context, tools, by_api=False)
        finally:
            await asyncio.gather(*(tool.close() for tool in tools.values()))

    async def _attempt(
        self, context: Context, tools: dict[str, Tool], *, by_api: bool
    ) -> Trajectory:
        limits = self._limits
        words = instructions(context.library) if context.library is not None else {}
        specs = [
            replace(tool.spec, description=words.get(name, tool.spec.description))
            for name, tool in tools.items()
        ]
        messages = context.messages if by_api else protocol.describe_tools(context.messages, specs)
        turns, calls = list[Json](), list[str]()
        done = 0
        tokens, seconds = 0, 0.0
        while True:
            last = done + 1 >= limits.turns or tokens >= limits.tokens or seconds >= limits.seconds
            sent = [*turns, {"role": "user", "content": FINISH}] if last and turns else turns
            recorded = await context.ask(
                messages,
                turn=done,
                turns=tuple(map(_api_message, sent)),
                tools=() if last or not by_api else protocol.api_functions(specs),
            )
            answer = recorded.answer
            calls.append(recorded.key)
            done += 1
            tokens += answer.completion_tokens
            seconds += answer.seconds
            read = protocol.calls_by_api if by_api else protocol.calls_in_text
            requested = [] if last else (await asyncio.to_thread(read, answer))[:CALLS]
            turns.append(_assistant_message(answer, by_api=by_api, more=bool(requested)))
            if not requested:
                return Trajectory(answer.visible, tuple(calls), answer.truncated, tuple(turns))
            for one in requested:
                message, took = await self._use(tools, one, context, by_api=by_api)
                seconds += took
                turns.append(message)

    async def _use(
        self, tools: dict[str, Tool], requested: RequestedCall, context: Context, *, by_api: bool
    ) -> tuple[Json, float]:
        """Makes a call; returns the message that tells the model of it, and the seconds it took."""
        tool, cached, seconds = tools.get(requested.name), False, 0.0
        if requested.arguments is None and (tool is not None or not requested.name):
            result = Result("the arguments cannot be read: write a JSON object", failed=True)
        elif tool is None or requested.arguments is None:
            result = Result(f"there is no tool {requested.name!r}: {', '.join(tools)}", failed=True)
        else:
            step = context.call_path[0] if isinstance(context.call_path[0], int) else None
            result, cached, seconds = await self._record.call(tool, requested.arguments, step=step)
        text = result.text[: self._toolbox.settings.output]
        message: dict[str, object] = {
            "role": "tool" if by_api else "user",
            "content": text if by_api else f"Result:\n{text}",
            "name": requested.name,
            "arguments": requested.arguments,
            "failed": result.failed,
            "cached": cached,
            "seconds": round(seconds, 3),
        }
        if by_api:
            message["tool_call_id"] = requested.id
        return message, seconds


@asynccontextmanager
async def equipped(
    domain: Domain,
    settings: Settings,
    record: ToolRecord,
    *,
    folder: Path,
    functions: Sequence[Callable[..., object]] = (),
) -> AsyncIterator[tuple[Domain, Agent | None]]:
    """Yields a domain attempted as settings say: by the user's agent, ours, exact rewards, or as
    it was. `folder` is tools' own, `functions` are more tools. Raises ToolError."""
    if isinstance(domain.rollout, AgentRollout):
        async with domain.rollout.opened(settings.task_timeout) as rollout:
            yield bounded(replace(domain, rollout=rollout), settings.concurrency), None
        return
    if settings.mode == "prompt":
        yield bounded(exactly(domain, settings), settings.concurrency), None
        return
    async with toolbox.opened(settings.tools, folder, functions) as box:
        limits = AttemptLimits(turns=settings.turns, seconds=settings.task_timeout)
        is_local = settings.models.model.startswith(LOCAL)  # small models follow plain text better
        agent = Agent(box, record, limits=limits, protocol="text" if is_local else "auto")
        yield bounded(replace(domain, rollout=agent.rollout), settings.concurrency), agent


def require_search(domain: Domain, settings: Settings) -> None:
    """Raises SettingsError where a domain's questions take searching, and nothing can search."""
    if not domain.needs_search or domain.rollout is not answer_once:
        return
    tools = settings.tools
    if settings.mode == "agent" and ("search" in tools.use or tools.functions or tools.mcp):
        return
    lacks = "this one has no search tool" if settings.mode == "agent" else "there is no agent"
    raise SettingsError(
        f"{domain.name} questions need an agent that can search, and {lacks}",
        hint="--mode agent --corpus passages.jsonl, or a provider in [tools] (docs/web.md)",
    )


def sandbox_warnings(settings: Settings) -> list[str]:
    """A warning where an agent's Python does not run in the strongest sandbox."""
    if settings.mode != "agent" or "python" not in settings.tools.use:
        return []
    from tfgrpo.tools.sandbox import strength

    wall = strength(settings.tools.sandbox)
    if wall.level == "bubblewrap":
        return []
    return [f"Python runs in {wall}, not in bubblewrap; --sandbox require refuses that"]


def _assistant_message(answer: Answer, *, by_api: bool, more: bool) -> Json:
    content = protocol.until_call(answer.content) if more and not by_api else answer.content
    message: dict[str, object] = {"role": "assistant", "content": content}
    if by_api and more:
        message["tool_calls"] = list(answer.tool_calls)[:CALLS]
    if answer.uncertainty is not None:
        message["uncertainty"] = round(answer.uncertainty, 4)
    return message


def _api_message(message: Json) -> Json:
    ours = ("name", "arguments", "failed", "cached", "seconds", "uncertainty")
    return {key: value for key, value in message.items() if key not in ours}
