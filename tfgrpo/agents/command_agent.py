"""An agent, or a reward, that is a command: one process for each attempt, in any language.

An agent gets the problem as JSON on standard input and in `TFGRPO_PROBLEM`, and the attempt's
address in the variables that clients of OpenAI's and Anthropic's read. Its answer is what it
prints; or the `answer` of a JSON object in the last line, which may tell `messages` and `usage`
too; or what stands in the answer file.

A reward gets what there is to know of an attempt as JSON on standard input (`problem` with its
ground truth, `answer`, `messages`, `files`, `workspace`) and runs in the attempt's workspace, where
there is one. It prints a number from 0 to 1; words after it are shown to the reflection model.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import shlex
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfgrpo.agents.agent_settings import INSPECT, AgentSettings
from tfgrpo.agents.command_code import command_identity
from tfgrpo.agents.function_agent import Attempt, Place
from tfgrpo.agents.user_program import Limits, Task, check_command, last_words, run
from tfgrpo.agents.workspace import Workspace
from tfgrpo.data.problems import Problem, without_answer
from tfgrpo.domains.base import Context, Trajectory, Verdict
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.model.response import field
from tfgrpo.model.secrets import scrub
from tfgrpo.store import child_processes
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.records import Json
from tfgrpo.tools.session_bounds import remove_scratch

GIVEN = (
    *("library", "system", "base_url", "model", "sample", "seed"),
    *("temperature", "max_tokens", "deadline"),
)
"""What a command gets of an `AgentContext`."""
LONGEST = 96 << 10
"""Bytes of a variable: systems take no longer ones. A longer problem is on standard input alone."""


class CommandAgent:
    """Makes attempts by a command. Raises SettingsError for one that is not there."""

    def __init__(self, settings: AgentSettings, root: Path, workspace: Workspace | None) -> None:
        assert settings.command is not None
        self._settings, self._root = settings, root
        self._command = command_parts(settings.command, root, workspace)
        check_command(self._command, root if workspace is None else workspace.folder, "agent")
        self.name = settings.command

    @property
    def identity(self) -> str:
        """A digest of the command and of its code."""
        parts = self._command
        if self.name.startswith(INSPECT):  # the file is before the name of its task
            parts = ["inspect", *self.name.removeprefix(INSPECT).rsplit("@", 1)]
        return command_identity(parts, self._root)

    async def run(self, place: Place) -> Attempt:
        """Makes one attempt. Raises CallFailed with the last words of a command that fails."""
        desk, settings = place.desk, self._settings
        task_text = json.dumps(problem_json(place)).encode()
        environment = desk.environment()
        environment["TFGRPO_MODEL"] = desk.context.calls.endpoint.model
        environment["TFGRPO_SAMPLE"] = str(desk.context.sample)
        environment["TFGRPO_SEED"] = str(desk.context.seed)
        if len(task_text) <= LONGEST:
            environment["TFGRPO_PROBLEM"] = task_text.decode()
        limits = Limits(place.seconds, settings.memory, settings.output)
        folder = place.workspace or self._root
        task = Task(self._command, folder, environment, task_text)
        output, errors = await run(task, limits, desk.token)
        if settings.answer_file is not None:
            path = folder / settings.answer_file
            return Attempt(await asyncio.to_thread(_read, path, settings.output))
        attempt = _read_output(output.decode("utf-8", "replace"), desk.context)
        if not attempt.response:
            raise CallFailed(f"the agent printed no answer{last_words(b'', errors)}")
        return attempt


def problem_json(place: Place) -> dict[str, Any]:
    """Returns what a command is reported of its attempt."""
    context = place.agent_context(sync=True)
    fields = {name: getattr(context, name) for name in GIVEN}
    problem = of_problem(without_answer(place.desk.context.problem))
    return {**problem, "prompt": context.messages, **fields}


def of_problem(problem: Problem) -> dict[str, Any]:
    """Returns a problem as JSON; the ground truth where it is there."""
    fields: dict[str, Any] = {"id": problem.id, "problem": problem.problem}
    if problem.messages:
        fields["messages"] = [{"role": role, "content": text} for role, text in problem.messages]
    if problem.answer:
        fields["answer"] = problem.answer
    return fields | ({"meta": dict(problem.meta)} if problem.meta else {})


def command_from(command: str, here: Path, root: Path, workspace: str | None) -> str:
    """Returns a command in which files that are named as seen from `here` are named as seen from
    `root`, where it runs, unless the workspace has one of the same name; so are folders whose names
    are paths, where there is no workspace."""
    here, root = here.resolve(), root.resolve()
    if here == root or command.startswith(INSPECT):
        return command
    try:
        parts = shlex.split(command)
    except ValueError:  # which is said where settings are checked
        return command

    def seen(number: int, part: str) -> str:
        option, equals, path = part.rpartition("=") if part.startswith("-") else ("", "", part)
        is_path, there = os.sep in path, here / path
        by_name = number == 0 and not is_path  # a program that the system looks for
        is_there = os.path.isfile(there) or (is_path and not workspace and os.path.isdir(there))
        if by_name or os.path.isabs(path) or not is_there:
            return part
        if workspace and os.path.exists(os.path.join(workspace, path)):
            return part
        path = os.path.relpath(there, root)
        return f"{option}{equals}{path if os.sep in path else os.path.join('.', path)}"

    moved = [seen(number, part) for number, part in enumerate(parts)]
    return command if moved == parts else shlex.join(moved)


def command_parts(command: str, root: Path, workspace: Workspace | None) -> list[str]:
    """Returns a command's parts. Files of the project that it names are found from a workspace too,
    unless that has one of the same name."""
    parts = shlex.split(command)
    if command.startswith(INSPECT):
        return child_processes.python(
            "-m", "tfgrpo.agents.inspect_task", command.removeprefix(INSPECT)
        )
    if workspace is None:
        return parts
    there = workspace.folder
    return [
        str(root / part)
        if os.path.isfile(root / part) and not os.path.exists(there / part)
        else part
        for part in parts
    ]


def _read(path: Path, most: int) -> str:
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe would wait
        if not stat.S_ISREG(os.fstat(number).st_mode):
            os.close(number)
            raise CallFailed(f"the answer file {path.name} is no file")
        with open(number, "rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise CallFailed(f"there is no answer file {path.name}: {error.strerror}") from None
    if len(data) > most:
        raise CallFailed(f"the answer file {path.name} has more than {most:,} bytes")
    return data.decode("utf-8", "replace").strip()


USAGE = (
    ("prompt_tokens", "input_tokens"),
    ("completion_tokens", "output_tokens"),
    ("cached_tokens", "cache_read_input_tokens"),
)
"""What an agent may call the tokens that it read, wrote, and had in a cache."""

BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")
"""Tokens that were read too, and that who says `input_tokens` with them has not counted there."""


def _tokens(usage: Json, names: Sequence[str]) -> int:
    counts = (field(usage, name) for name in names)
    return next((n for n in counts if isinstance(n, int) and n > 0), 0)


def _read_output(text: str, context: Context) -> Attempt:
    text = text.strip()
    last = text.rpartition("\n")[2].strip()
    try:
        reported = json.loads(last) if last.startswith("{") else None
    except (ValueError, RecursionError):
        reported = None
    if not isinstance(reported, dict) or "answer" not in reported:
        return Attempt(text)
    answer, usage = reported["answer"], reported.get("usage")
    if isinstance(usage, dict):
        tokens = [_tokens(usage, names) for names in USAGE]
        if "prompt_tokens" not in usage:
            tokens[0] += sum(_tokens(usage, [name]) for name in BESIDE)
        if usage and not any(name in usage for names in (*USAGE, BESIDE) for name in names):
            raise SettingsError(
                f"the agent's usage says nothing of tokens: {', '.join(map(str, usage))}"[:200],
                hint="it has prompt_tokens and completion_tokens, or input_ and output_tokens",
            )
        context.record(
            str(answer),
            prompt_tokens=tokens[0],
            completion_tokens=tokens[1],
            cached_tokens=tokens[2],
        )
    messages = reported.get("messages")
    listed = messages if isinstance(messages, list) else ()
    if answer is None:
        return Attempt("")
    return Attempt(
        answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False),
        [one for one in listed if isinstance(one, dict)],
        reward=own if isinstance(own := reported.get("reward"), int | float) else None,
        words=str(reported.get("words") or ""),
    )


NUMBER = re.compile(
    r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    r"(?=[,;:]?(?:\s|\Z))(?!\s*[/÷∕⁄%‰]|\s+(?:out\s+)?of\b)"
)
"""A number that stands alone: no part of a fraction, of a share or of a decimal comma."""
OF_SO_MANY = re.compile(r"[ \t]+(?:[^\W\d_]+[ \t]+){1,2}\d")
"""What stands behind a count in any language: a word or two, and how many there are."""
REHEARSAL = 10.0
"""Seconds that the command may take before a run."""
SHORT = 200
"""Characters of an answer that is told from others by its text."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What is judged: an attempt at a problem, and where it was made."""

    problem: Problem
    trajectory: Trajectory
    files: Json
    workspace: Path | None = None


class RewardCommand:
    """Judges attempts by a command. Raises SettingsError for one that is not there."""

    def __init__(self, settings: AgentSettings, root: Path, workspace: Workspace | None) -> None:
        assert settings.reward_command is not None
        self._root, self._workspace = root, workspace
        self._proved = False
        self._command = command_parts(settings.reward_command, root, workspace)
        check_command(self._command, root if workspace is None else workspace.folder, "reward")
        self._memory, self._output = settings.memory, settings.output

    @property
    def identity(self) -> str:
        """A digest of the command and of its code."""
        return command_identity(self._command, self._root)

    def rehearse(self, problem: Problem) -> None:
        """Has the command judge the ground truth of a problem, or an empty answer where there is
        none, before an attempt is paid for. Raises SettingsError where it ends well and prints no
        reward. One that fails may need what an attempt leaves: the first attempt tells."""
        copy = None if self._workspace is None else self._workspace.copy()
        try:
            judged = Judged(problem, Trajectory(problem.answer), {}, copy)
            output = asyncio.run(self._output_of(judged, REHEARSAL))
        except CallFailed:
            return
        finally:
            if copy is not None:
                remove_scratch(copy)
        verdict = read_reward(output, problem.answer)
        if verdict.reward is None:
            raise _no_reward(problem, verdict)
        self._proved = True

    async def verdict(self, judged: Judged, seconds: float) -> Verdict:
        """Returns the verdict on an attempt; an unverifiable one where the command gives none.
        Raises SettingsError where it never gave one yet."""
        try:
            output = await self._output_of(judged, seconds)
            verdict = read_reward(output, judged.trajectory.response)
        except CallFailed as error:
            verdict = Verdict(None, None, f"unverifiable: {error}")
        if verdict.reward is None and not self._proved:
            raise _no_reward(judged.problem, verdict)
        self._proved = True
        return verdict

    async def _output_of(self, judged: Judged, seconds: float) -> str:
        trajectory, workspace = judged.trajectory, judged.workspace
        fields: dict[str, Any] = {
            "problem": of_problem(judged.problem),
            "answer": trajectory.response,
            "messages": list(trajectory.messages),
            "files": dict(judged.files),
            "workspace": None if workspace is None else str(workspace),
        }
        limits = Limits(seconds, self._memory, self._output)
        task = Task(self._command, workspace or self._root, {}, json.dumps(fields).encode())
        output, _ = await run(task, limits, f"reward-{secrets.token_hex(16)}")
        return scrub(output.decode("utf-8", "replace"))


def _no_reward(problem: Problem, verdict: Verdict) -> SettingsError:
    why = verdict.reason.removeprefix("unverifiable: ")
    return SettingsError(
        f"the reward command gives no reward for {problem.id}: {why}",
        hint="it reads JSON on standard input, prints a number from 0 to 1, then words if any, and "
        "exits with 0",
    )


def read_reward(output: str, response: str) -> Verdict:
    """Returns what a command printed as a verdict; what is no number is unverifiable."""
    match = NUMBER.match(output)
    if match is None or (match[1].isdigit() and OF_SO_MANY.match(output, match.end())):
        printed = repr(output.strip()[:80]) if output.strip() else "nothing"
        why = f"the reward printed {printed}, which does not begin with a number that stands alone"
        return Verdict(None, None, f"unverifiable: {why}")
    return judged_as(float(match[1]), output[match.end() :].strip(" \t\r\n:;,-–—"), response)


def judged_as(reward: float | None, words: str, response: str) -> Verdict:
    """Returns a reward with its words as a verdict; one that is not from 0 to 1 is none."""
    if reward is None:
        return Verdict(None, None, "unverifiable: the agent reported no reward")
    if not 0.0 <= reward <= 1.0:
        return Verdict(None, None, f"unverifiable: the reward {reward:g} is not from 0 to 1")
    answer = response.strip() if len(response) <= SHORT else None
    details = {"words": words} if words else {}
    return Verdict(reward, answer, words[:SHORT] or f"the reward is {reward:g}", details)
