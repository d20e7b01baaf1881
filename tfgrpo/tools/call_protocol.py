"""How a model calls tools: by the chat API, or in plain text where an endpoint takes no tools.

In plain text the tools are described at the end of the system message, and a call is

    <tool>{"name": "python", "arguments": {"code": "6 * 7"}}</tool>

on which the answer ends. Results come back as a message of the user.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tfgrpo.model.endpoint import Answer
from tfgrpo.model.response import visible
from tfgrpo.model.structured_answers import load_repaired
from tfgrpo.rendering import prompt_templates
from tfgrpo.rendering.prompt_templates import Message
from tfgrpo.store.canonical import canonical
from tfgrpo.store.records import Json
from tfgrpo.tools.tool import ToolSpec

OPENED, CLOSED = "<tool>", "</tool>"
ENDS = 20
"""How many ends of a call are looked at for that of a whole object."""


@dataclass(frozen=True, slots=True)
class RequestedCall:
    """A tool call that a model wants. `arguments` is None where they cannot be read."""

    id: str
    name: str
    arguments: dict[str, Any] | None


def api_functions(specs: Iterable[ToolSpec]) -> tuple[Json, ...]:
    """Tools as the chat API takes them."""
    return tuple(
        {
            "type": "function",
            "function": {
                "name": spec.name,
                "description": spec.description,
                "parameters": dict(spec.parameters),
            },
        }
        for spec in specs
    )


def describe_tools(messages: Sequence[Message], specs: Sequence[ToolSpec]) -> tuple[Message, ...]:
    """A prompt whose first message tells of the tools at its end, and how the first is called: a
    small model that sees the form alone makes up results."""
    lines, call = [], ""
    for spec in specs:
        takes = list(spec.parameters.get("properties", {}))
        lines.append(f"- {spec.name}({', '.join(takes)}): {spec.description}")
        form = {"name": spec.name, "arguments": dict.fromkeys(takes, "...")}
        call = call or f"<tool>{json.dumps(form, ensure_ascii=False)}</tool>"
    values = {"tools": "\n".join(lines), "call": call}
    (message,) = prompt_templates.load("tools").render(values)
    (role, content), *rest = messages
    return ((role, f"{content}\n\n{message[1]}"), *rest)


def calls_by_api(answer: Answer) -> list[RequestedCall]:
    """The calls that the chat API gave."""
    return [
        RequestedCall(call["id"], function["name"], _parse_object(function["arguments"]))
        for call in answer.tool_calls
        for function in [call["function"]]
    ]


def calls_in_text(answer: Answer) -> list[RequestedCall]:
    """The call in an answer's text, the first if there are several."""
    written = _call_in(answer.visible)
    if written is None:
        return []
    call = _parse_object(written)
    if call is None or not isinstance(call.get("name"), str):
        return [RequestedCall("call_0", "", None)]
    arguments = call.get("arguments", {})
    return [
        RequestedCall("call_0", call["name"], arguments if isinstance(arguments, dict) else None)
    ]


def until_call(text: str) -> str:
    """An answer up to the end of its first call, without thinking; the rest was made up."""
    shown = visible(text)
    written = _call_in(shown)
    if written is None:
        return text
    return f"{shown[: shown.index(OPENED)]}{OPENED}{written}{CLOSED}"


def _call_in(text: str) -> str | None:
    """What stands in a text's first call: a whole JSON object, else up to the first end."""
    _, opened, rest = text.partition(OPENED)
    if not opened:
        return None
    ends = [match.start() for match in re.finditer(re.escape(CLOSED), rest)][:ENDS]
    whole = (rest[:end] for end in (*ends, len(rest)) if _is_object(rest[:end]))
    return next(whole, rest[: ends[0]] if ends else rest)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _parse_object(text: str) -> dict[str, Any] | None:
    """The object that a text holds, mended where it must be, or None. What cannot be kept, as NaN
    or half a character, is no argument either. No text is no argument at all: endpoints call tools
    that take nothing so."""
    try:
        value = _load(text) if text.strip() else {}
        canonical(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _load(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return load_repaired(text) if "{" in text else None
