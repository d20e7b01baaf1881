"""A tool as an agent sees it: a name, what it is for, what it takes, and a call.

Tools are opened for one trajectory and closed with it. `state` says what a call depends on beside
its arguments, so that the same call in the same state can be answered without being made again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfgrpo.store.errors import TfgrpoError

Arguments = Mapping[str, Any]
"""What a model passes to a tool: the members of a JSON object."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What a model is told of a tool. `parameters` is a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Result:
    """What a tool gave back: text for the model, and whether it went wrong."""

    text: str
    failed: bool = False


def text_spec(name: str, description: str, argument: str, about: str) -> ToolSpec:
    """What a model is told of a tool that takes one text."""
    properties = {argument: {"type": "string", "description": about}}
    required = {"required": [argument], "additionalProperties": False}
    return ToolSpec(name, description, {"type": "object", "properties": properties, **required})


class ToolError(TfgrpoError):
    """Tools that cannot be used at all: a missing package, corpus, server or sandbox."""


class ToolFailure(Exception):
    """One call that cannot be answered; the text is for the model."""


class Tool(ABC):
    """One tool, for the length of one trajectory. `spec` is what a model is told of it."""

    spec: ToolSpec

    @property
    def state(self) -> str:
        """What a call would depend on beside its arguments; empty when it depends on nothing."""
        return ""

    @abstractmethod
    async def call(self, arguments: Arguments) -> Result:
        """Does what is asked. What goes wrong is a failed result, in words for the model."""

    def recall(self, arguments: Arguments, result: Result) -> None:  # noqa: B027
        """Takes note that a call was answered from the record, as if it had been made here."""

    async def close(self) -> None:  # noqa: B027
        """Ends whatever the tool holds."""


def text_argument(arguments: Arguments, name: str) -> str | None:
    """An argument that must be a text with something in it, or None."""
    value = arguments.get(name)
    return value if isinstance(value, str) and value.strip() else None


def cut(text: str, characters: int) -> str:
    """A text of at most so many characters, and a word on it where that is not all."""
    return text if len(text) <= characters else text[:characters] + "\n[cut]"
