"""What is said of an agent: how it is run, and what each of its attempts may take."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tfgrpo.rendering.retrieve import OBJECT
from tfgrpo.trust.permissions import OWN_REWARD

INSPECT = "inspect:"
"""What the name of a task of inspect_ai begins with, before its `FILE@TASK`."""
_function = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z").match


class AgentSettings(BaseModel):
    """An agent. `run` is `module:function` or a command; empty where attempts need none. `reward`
    is a command that judges, or `agent` where the agent tells its reward. `memory` is in MiB for
    all processes of an attempt together, `output` the bytes of standard output that are kept, and
    `copy_limit` the MiB of a workspace."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    run: str = ""
    """Make attempts with a command, or with a Python function: module:function."""
    workspace: str | None = None
    """With --agent: make each attempt in a copy of this folder."""
    reward: str | None = None
    """Judge by a command that prints a number from 0 to 1."""
    answer_file: str | None = None
    """File in the workspace with the answer."""
    memory: int = Field(default=4096, ge=16)
    output: int = Field(default=1 << 20, ge=1024)
    copy_limit: int = Field(default=1024, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for name, command in (("agent", self.command), ("reward", self.reward_command)):
            try:
                empty = command is not None and not shlex.split(command)
            except ValueError as error:
                raise ValueError(f"the {name} {command!r} is no command: {error}") from None
            if empty:
                raise ValueError(f"the {name} is an empty command")
        if self.answer_file is not None and (self.command is None or self.workspace is None):
            raise ValueError(
                "an answer file needs an agent that is a command, and a workspace: "
                "--agent COMMAND --workspace FOLDER"
            )
        if self.answer_file is not None:
            path = PurePath(self.answer_file)
            if path.is_absolute() or ".." in path.parts or not path.name:
                raise ValueError(
                    f"the answer file {self.answer_file} is not a path within the workspace"
                )
        if self.reward == OWN_REWARD and not self.run:
            raise ValueError("the reward `agent` needs --agent, which reports it")
        if self.workspace is not None and not self.run:
            raise ValueError("a workspace needs --agent")
        return self

    @property
    def function(self) -> str | None:
        """The function, as `module:function` or by its name as an object; None for a command."""
        is_function = self.run.startswith(OBJECT) or _function(self.run)
        return self.run if is_function else None

    @property
    def reward_command(self) -> str | None:
        """The command that judges; None where there is none."""
        return None if self.reward == OWN_REWARD else self.reward

    @property
    def command(self) -> str | None:
        """The command; None for a function, and where there is no agent."""
        return None if not self.run or self.function else self.run
