"""Rewards by a command: it gets what there is to know of an attempt, and prints a number.

It reads JSON on standard input (`problem` with its ground truth, `answer`, `messages`, `files`,
`workspace`) and runs in the attempt's workspace, where there is one. It prints a number from 0 to
1; words after it are shown to the reflection model.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfgrpo.agents.agent_settings import AgentSettings
from tfgrpo.agents.command_agent import command_identity, command_parts, of_problem
from tfgrpo.agents.user_program import Limits, Task, check_command, run
from tfgrpo.agents.workspace import Workspace, remove
from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Trajectory, Verdict
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.records import Json

NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.%])")
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
        """A digest of the command and of the files that it names."""
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
                remove(copy)
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
        return output.decode("utf-8", "replace")


def _no_reward(problem: Problem, verdict: Verdict) -> SettingsError:
    why = verdict.reason.removeprefix("unverifiable: ")
    return SettingsError(
        f"the reward command gives no reward for {problem.id}: {why}",
        hint="it gets JSON on standard input, prints a number from 0 to 1 first, then words if it "
        "likes, and ends with 0",
    )


def read_reward(output: str, response: str) -> Verdict:
    """Returns what a command printed as a verdict; what is no number is unverifiable."""
    match = NUMBER.match(output)
    if match is None:
        printed = repr(output.strip()[:80]) if output.strip() else "nothing"
        return Verdict(None, None, f"unverifiable: the reward printed {printed}, no number first")
    return judged_as(float(match[1]), output[match.end() :].strip(" \t\r\n:;,-–—"), response)


def judged_as(reward: float | None, words: str, response: str) -> Verdict:
    """Returns a reward with its words as a verdict; one that is not from 0 to 1 is none."""
    if reward is None:
        return Verdict(None, None, "unverifiable: the agent told no reward")
    if not 0.0 <= reward <= 1.0:
        return Verdict(None, None, f"unverifiable: the reward {reward:g} is not from 0 to 1")
    answer = response.strip() if len(response) <= SHORT else None
    details = {"words": words} if words else {}
    return Verdict(reward, answer, words[:SHORT] or f"the reward is {reward:g}", details)
