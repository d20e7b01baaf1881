"""A call as a conversation: its turns as they were sent, with the library in them, and the answer.

What is kept of a call is its body without the library. The prompt that was sent is made again by
the very function that made it: where the proxy places a library in a request of that route.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tfgrpo.improvement.exchange import read_json
from tfgrpo.model.wire_formats import request_turns
from tfgrpo.rendering.json_splice import NotJson, RepeatedKey, document, edited
from tfgrpo.rendering.request_placement import KEYS, addition, place_of
from tfgrpo.rendering.retrieve import Part
from tfgrpo.runs.group_details import PromptPart, highlighted
from tfgrpo.store.activity.traffic import CallContent, CallRecord
from tfgrpo.store.records import Library

SYSTEM = ("system", "developer")
CALLS = ("tool_use", "function_call")
RESULTS = ("tool_result", "function_call_output")


class Turn(NamedTuple):
    """What one side said. `calls` are the tools that it called, each with its arguments."""

    role: str
    text: str
    calls: tuple[tuple[str, str], ...] = ()


class SentTurn(NamedTuple):
    """A turn as it was sent. In `parts` the library stands out: `added` says of each whether the
    library brought it."""

    turn: Turn
    parts: tuple[tuple[PromptPart, bool], ...]


def turns_of(body: object) -> list[Turn] | None:
    """Returns the turns of a request or of an answer, of any of the routes; None where it is none
    of a known shape."""
    if not isinstance(body, dict):
        return None
    choices = body.get("choices")
    if isinstance(choices, list):
        listed: object = [one.get("message") for one in choices[:1] if isinstance(one, dict)]
    elif isinstance(body.get("candidates"), list):
        listed = [one.get("content") for one in body["candidates"][:1] if isinstance(one, dict)]
    elif isinstance(body.get("output"), dict):
        listed = [body["output"].get("message")]
    elif isinstance(body.get("content"), list | str):
        listed = [{"role": body.get("role", "assistant"), "content": body["content"]}]
    else:
        turns = request_turns(body)
        listed = body.get("output") if turns is None else turns
    if isinstance(listed, str):
        listed = [{"role": "user", "content": listed}]
    return [turn for one in listed for turn in _turns(one)] if isinstance(listed, list) else None


def _turns(item: object) -> Iterator[Turn]:
    """Yields what one message says: its words, and what tools gave, which some providers send in
    the user's turn."""
    if not isinstance(item, dict):
        yield Turn("user", _words(item))
        return
    kind = str(item.get("type") or "")
    if kind in RESULTS:
        yield Turn("tool", _words(item.get("output", item.get("content"))))
        return
    role = str(item.get("role") or ("assistant" if kind in CALLS else kind or "user"))
    role = "assistant" if role == "model" else role
    parts = item.get("content", item.get("parts"))
    listed = parts if isinstance(parts, list) else []
    results = [one for one in listed if isinstance(one, dict) and one.get("type") in RESULTS]
    calls = [one for one in listed if isinstance(one, dict) and one.get("type") in CALLS]
    calls += item.get("tool_calls") or []
    calls += [item] if kind in CALLS else []
    rest = [one for one in listed if one not in results and one not in calls]
    for one in results:
        yield from _turns(one)
    text = _words(rest if isinstance(parts, list) else parts)
    if text or calls or not results:
        yield Turn(role, text, tuple(_called(one) for one in calls))


def _called(call: object) -> tuple[str, str]:
    if not isinstance(call, dict):
        return "", _words(call)
    function = call.get("function")
    named = function if isinstance(function, dict) else call
    arguments = named.get("arguments", named.get("input", ""))
    return str(named.get("name", "")), _words(arguments)


def _words(content: object) -> str:
    """Returns the text of a content; of a part that is no text, what it is."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text for one in content if (text := _part(one)))
    return _json(content)


def _part(part: object) -> str:
    if not isinstance(part, dict):
        return _words(part)
    for name in ("text", "thinking", "refusal", "content"):
        if isinstance(part.get(name), str):
            return str(part[name])
    return f"[{part['type']}]" if isinstance(part.get("type"), str) else _json(part)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


def parsed(text: str) -> Any:
    """Returns what a text of JSON says; None where it is none, or was cut off."""
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return None


def answer_turns(text: str) -> list[Turn]:
    """Returns what was answered: of JSON the turns, of a stream's text that was kept all of it."""
    turns = turns_of(parsed(text))
    return [Turn("assistant", text)] if turns is None else turns


def with_library(call: CallRecord, content: CallContent, library: Library) -> str | None:
    """Returns the body that was sent, with the part of the library that it had; None where none
    was placed, or the body was not kept as it was."""
    place = place_of(b"POST", call.route.partition("?")[0])
    if place is None:
        return None
    if call.experiences is not None:
        ids = parsed(call.experiences)
        library = Part(library, ids if isinstance(ids, list) else [])
    if not library.readable:
        return content.request
    text = content.request
    try:
        edits = place(text, document(text, KEYS), addition(library))
    except (NotJson, RepeatedKey):
        return None
    return edited(text.encode(), text, edits).decode() if edits else None


def sent_turns(
    own: Sequence[Turn], sent: Sequence[Turn], library: Library | None
) -> list[SentTurn]:
    """Returns the turns of a request as they were sent, in which what the library brought stands
    out; `own` are those that the application sent."""
    shown: list[SentTurn] = []
    at = 0
    for turn in sent:
        before = own[at] if at < len(own) else None
        if turn == before:
            shown.append(SentTurn(turn, ((PromptPart(turn.text), False),)))
            at += 1
        elif before and turn.role in SYSTEM and turn.text.startswith(before.text):
            added = _marked(turn.text[len(before.text) :], library)
            shown.append(SentTurn(turn, ((PromptPart(before.text), False), *added)))
            at += 1
        else:
            shown.append(SentTurn(turn, _marked(turn.text, library)))
    return shown


def _marked(text: str, library: Library | None) -> tuple[tuple[PromptPart, bool], ...]:
    if library is None:
        return ((PromptPart(text), True),)
    ((_, parts),) = highlighted([("system", text)], library)
    return tuple((part, True) for part in parts)
