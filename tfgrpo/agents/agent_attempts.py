"""Attempts by an agent, as a domain's rollout: opened with a run, closed with it.

An attempt gets a place at the gateway and, where there is a workspace, a copy of it. What the agent
answers is the response; what passed through the gateway is the trajectory. Where a command judges,
it does so before the copy is removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from tfgrpo.agents.agent_settings import AgentSettings
from tfgrpo.agents.command_agent import CommandAgent, Judged, RewardCommand, judged_as
from tfgrpo.agents.function_agent import Attempt, FunctionAgent, Place, recordable
from tfgrpo.agents.gateway import Desk, Gateway
from tfgrpo.agents.wire_conversation import transcript
from tfgrpo.agents.workspace import Workspace
from tfgrpo.data.problems import REST
from tfgrpo.domains import base
from tfgrpo.domains.base import Context, Domain, Trajectory, Verdict
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.rendering.retrieve import OBJECT
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.records import Json
from tfgrpo.tools.session_bounds import remove_scratch

AROUND = (
    "received no call in an attempt that has an answer: the agent bypasses its gateway, so it is "
    "shown no library and its cost is not counted. Send its calls to OPENAI_BASE_URL or "
    "ANTHROPIC_BASE_URL, and report calls made elsewhere by context.record(...) or `usage`"
)


Runner: TypeAlias = FunctionAgent | CommandAgent
"""What runs an agent: it has a `name`, an `identity`, and makes one attempt by `run`."""


class AgentRollout:
    """A rollout by an agent. `opened` gives the one that can be called."""

    def __init__(self, runner: Runner, workspace: Workspace | None, judge: Judge | None) -> None:
        self._runner, self._workspace, self._judge = runner, workspace, judge

    async def __call__(self, context: Context) -> Trajectory:
        raise SettingsError("an agent's attempts are made in a run", hint="tfgrpo.train(agent=…)")

    @asynccontextmanager
    async def opened(self, seconds: float) -> AsyncIterator[base.Attempt]:
        """Yields the rollout whose attempts take at most so many seconds, with its gateway open."""
        gateway = Gateway()
        await gateway.start()

        async def rollout(context: Context) -> Trajectory:
            desk = gateway.admit(context)
            try:
                async with _copied(self._workspace) as copy:
                    return await self._attempt(Place(desk, seconds, copy))
            finally:
                gateway.dismiss(desk)

        try:
            yield rollout
        finally:
            await gateway.close()

    async def _attempt(self, place: Place) -> Trajectory:
        desk, context = place.desk, place.desk.context
        attempt = recordable(await _until_over(desk, self._runner.run(place)))
        files = attempt.files
        if self._workspace is not None and place.workspace is not None:
            files = await asyncio.to_thread(self._workspace.changes, place.workspace)
        if not desk.passed and not context.elsewhere and attempt.response.strip():
            context.calls.endpoint.adaptation.note(AROUND)
        trajectory = _trajectory(desk, attempt, files)
        if self._judge is not None:
            judged = Judged(context.problem, trajectory, files, place.workspace)
            await self._judge.look(context, judged, attempt)
        return trajectory


@asynccontextmanager
async def _copied(workspace: Workspace | None) -> AsyncIterator[Path | None]:
    """Yields a copy of a workspace, where there is one, and removes it. Cancelled while a thread
    still makes it, it waits for that."""
    if workspace is None:
        yield None
        return
    making = asyncio.ensure_future(asyncio.to_thread(workspace.copy))

    async def remove() -> None:
        with suppress(OSError, SettingsError):  # which was raised already
            await asyncio.to_thread(remove_scratch, await making)

    try:
        yield await asyncio.shield(making)
    finally:
        await asyncio.shield(remove())


async def _until_over(desk: Desk, running: Any) -> Attempt:
    """Returns what an agent did; ends it where its calls can come to nothing any more. Raises what
    ended them, and what the agent raises."""
    work = asyncio.ensure_future(running)
    over = asyncio.ensure_future(desk.over.wait())
    try:
        await asyncio.wait({work, over}, return_when=asyncio.FIRST_COMPLETED)
        if desk.error is not None:
            raise desk.error
        if work.cancelled():
            raise CallFailed("the agent cancelled itself")
        attempt: Attempt = await work
        return attempt
    finally:
        for task in (work, over):
            task.cancel()
        await asyncio.gather(work, over, return_exceptions=True)


def _trajectory(desk: Desk, attempt: Attempt, files: Json) -> Trajectory:
    response, passed = attempt.response, desk.passed
    messages: Sequence[Json] = attempt.messages or transcript(passed, response)
    if files:
        change_text = "\n".join(f"{path}: {change}" for path, change in files.items())
        answer_message = {"role": "assistant", "content": response}
        messages = (*(messages or (answer_message,)), {"role": "files", "content": change_text})
    truncated = bool(passed) and passed[-1].truncated and passed[-1].answer["content"] == response
    return Trajectory(response, tuple(one.key for one in passed), truncated, tuple(messages))


class Judge:
    """The verdicts of a command, made while the workspace is there, or of the agent itself."""

    def __init__(self, command: RewardCommand | None) -> None:
        self._command = command

    async def look(self, context: Context, judged: Judged, attempt: Attempt) -> None:
        """Judges an attempt before its workspace goes."""
        context.judged.append(await self._verdict(context, judged, attempt))

    async def __call__(self, context: Context, trajectory: Trajectory) -> Verdict:
        """Returns the verdict on an attempt: the one that was made already, if there is one."""
        if context.judged:
            return context.judged.pop()
        judged = Judged(context.problem, trajectory, {})
        return await self._verdict(context, judged, Attempt(trajectory.response))

    async def _verdict(self, context: Context, judged: Judged, attempt: Attempt) -> Verdict:
        if self._command is None:
            return judged_as(attempt.reward, attempt.words, attempt.response)
        return await self._command.verdict(judged, context.verifier.seconds)


def by_agent(
    domain: Domain,
    settings: AgentSettings,
    root: Path,
    functions: Mapping[str, Callable[..., Any]],
    concurrency: int,
) -> Domain:
    """Returns a domain whose attempts an agent makes, and a command judges, as far as settings say
    so; the same where they do not. Paths are relative to `root`, and `functions` are those that
    were given as objects, by their names. Everything is looked up here: raises SettingsError for
    what is not there."""
    if not settings.run and settings.reward is None:
        return domain
    workspace = None
    if settings.workspace is not None:
        workspace = Workspace(root / settings.workspace, settings.copy_limit)
    judges = settings.reward_command is not None
    command = RewardCommand(settings, root, workspace) if judges else None
    judge = None if settings.reward is None else Judge(command)
    parts: list[str] = []
    changes: dict[str, Any] = {}
    if judge is not None:
        parts.append(f"reward:{'agent' if command is None else command.identity}")
        changes |= {"verify": judge, "at_once": None, "check": None, "answers": None}
        changes |= {"ground_truth": False, "shared_answers": False}
        changes["judge_calls"] = base.no_judge_calls
        changes["rehearse"] = None if command is None else command.rehearse
    if settings.run:
        runner = _runner(settings, root, (workspace, functions), concurrency)
        parts.append(f"agent:{runner.identity}")
        changes["rollout"] = AgentRollout(runner, workspace, judge)
    if workspace is not None:
        parts.append(f"workspace:{workspace.identity}")

    def changed(one: Domain) -> Domain:
        extra = (*one.extra, REST) if settings.run else one.extra
        identity = " ".join(filter(None, (one.identity, *parts)))
        return replace(one, **changes, extra=extra, identity=identity)

    configure = domain.configure
    if configure is None:
        return changed(domain)
    return replace(changed(domain), configure=lambda options: changed(configure(options)))


def _runner(
    settings: AgentSettings,
    root: Path,
    given: tuple[Workspace | None, Mapping[str, Callable[..., Any]]],
    concurrency: int,
) -> Runner:
    workspace, functions = given
    spec = settings.function
    if spec is None:
        return CommandAgent(settings, root, workspace)
    if not spec.startswith(OBJECT):
        places = (Path.cwd(), root)
        function = base.load_named(spec, f"the agent {spec}", SettingsError, places)
        return FunctionAgent(function, concurrency, spec)
    name = spec[len(OBJECT) :]
    if spec not in functions:
        raise SettingsError(
            f"the agent {name} is a Python object of the program that began this run",
            hint="pass it again from Python: tfgrpo.train(resume=…, agent=…)",
        )
    return FunctionAgent(functions[spec], concurrency, name)
