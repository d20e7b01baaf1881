"""Rewards by a command: it gets what there is to know of an attempt, and prints a number.

It reads JSON on standard input (`problem` with its ground truth, `answer`, `messages`, `files`,
`workspace`) and runs in the attempt's workspace, where there is one. It prints a number from 0 to
1; words after it are shown to the reflection model.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfgrpo.agents.agent_settings import AgentSettings
from tfgrpo.agents.command_agent import command_identity, command_parts, of_problem
from tfgrpo.agents.user_program import Limits, Task, check_command, run
from tfgrpo.agents.workspace import Workspace
from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Trajectory, Verdict
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.store.records import Json

NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.%])")
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
        self._root = root
        self._command = command_parts(settings.reward_command, root, workspace)
        check_command(self._command, root if workspace is None else workspace.folder, "reward")
        self._memory, self._output = settings.memory, settings.output

    @property
    def identity(self) -> str:
        """A digest of the command and of the files that it names."""
        return command_identity(self._command, self._root)

    async def verdict(self, judged: Judged, seconds: float) -> Verdict:
        """Returns the verdict on an attempt; an unverifiable one where the command gives none."""
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
        try:
            output, _ = await run(task, limits, f"reward-{secrets.token_hex(16)}")
        except CallFailed as error:
            return Verdict(None, None, f"unverifiable: {error}")
        return read_reward(output.decode("utf-8", "replace"), trajectory.response)


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
