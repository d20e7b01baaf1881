"""Conversations off the wire: what a request of any format says so far, and what all requests of
an attempt come to.

Programs send the whole conversation with every request. So a request that begins with what an
earlier one said goes on with it; another begins a conversation of its own, as one of a subordinate
agent does, or one that was summarised to be shorter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tfgrpo.model.endpoint import Answer
from tfgrpo.model.response import as_text, field
from tfgrpo.model.wire_formats import completion, request_turns, words
from tfgrpo.rendering.prompt_templates import Message
from tfgrpo.store.records import Json
from tfgrpo.wording import without_middle

LONGEST = 32_000
"""Characters of a message that are kept: the middle of a longer one is left out."""
SYSTEM = ("system", "developer")


class Passed(NamedTuple):
    """A call that passed: what was asked, as chat messages, and what was said; `goes_on` is the
    response that the request says it follows, and `id` the response's own."""

    request: tuple[Json, ...]
    answer: Json
    key: str
    truncated: bool = False
    goes_on: str | None = None
    id: str | None = None


def request_messages(body: Json) -> tuple[Json, ...]:
    """Returns the messages of a request, of any of the three formats."""
    turns = (turn for turn in request_turns(body) or () if isinstance(turn, dict))
    return tuple(message for turn in turns for message in _turn(turn))


def prompt_of(messages: Sequence[Json]) -> tuple[tuple[Message, ...], tuple[Json, ...]]:
    """Returns the texts that a conversation begins with, each (role, text), and what follows."""
    count = _prompt_length(messages)
    head = tuple((str(m["role"]), str(m["content"])) for m in messages[:count])
    return head, tuple(messages[count:])


def _prompt_length(messages: Sequence[Json]) -> int:
    places = (n for n, one in enumerate(messages) if one["role"] in ("assistant", "tool"))
    return next(places, len(messages))


def answer_message(route: str, answer: Answer) -> Json:
    """Returns an answer as a chat message, with the reasoning that its endpoint told."""
    read: Any = completion(route, answer.wire.get("body"))
    message = field(read, "choices")[0]["message"]
    spoken = _message("assistant", answer.visible, calls=answer.tool_calls)
    thought = message.get("reasoning_content") or message.get("reasoning")
    return (
        {**spoken, "reasoning": without_middle(thought, LONGEST)}
        if isinstance(thought, str) and thought
        else spoken
    )


def transcript(passed: Sequence[Passed], response: str) -> tuple[Json, ...]:
    """Returns what followed the first prompt of an attempt; nothing where that is one answer, which
    is the response."""
    threads: list[list[Json]] = []
    ends: dict[str, list[Json]] = {}
    for call in passed:
        thread = ends.get(call.goes_on or "") or _begun(threads, call.request)
        if thread is None:
            thread = []
            threads.append(thread)
            thread += call.request
        elif call.goes_on:
            thread += _without_system(call.request)
        else:
            thread += call.request[len(thread) :]
        thread.append(call.answer)
        if call.id:
            ends[call.id] = thread
    messages: list[Json] = []
    for number, thread in enumerate(threads):
        start = _prompt_length(thread) if number == 0 else 0
        messages += _without_system(thread[start:])
    only = messages[0] if len(messages) == 1 else {}
    if (
        only.get("role") == "assistant"
        and only.get("content") == response
        and "tool_calls" not in only
    ):
        return ()
    if messages and (messages[-1]["role"] != "assistant" or messages[-1]["content"] != response):
        messages.append(_message("assistant", response))
    return tuple(messages)


def _begun(threads: Sequence[list[Json]], messages: Sequence[Json]) -> list[Json] | None:
    """Returns the longest conversation that messages go on with."""
    keys = [_key(one) for one in messages]
    fitting = [
        thread
        for thread in threads
        if len(thread) <= len(keys) and [_key(one) for one in thread] == keys[: len(thread)]
    ]
    return max(fitting, key=len, default=None)


def _key(message: Json) -> str:
    """Returns what a message is told by: programs keep no reasoning, and name calls anew."""
    calls = [field(call, "function") for call in message.get("tool_calls") or ()]
    return json.dumps([message["role"], str(message["content"]).strip(), calls], sort_keys=True)


def _without_system(messages: Sequence[Json]) -> list[Json]:
    return [one for one in messages if one["role"] not in SYSTEM]


def _turn(turn: Json) -> Iterator[Json]:
    match turn.get("type"):
        case "function_call" | "custom_tool_call":
            given = turn.get("arguments", turn.get("input"))
            yield _message(
                "assistant", "", calls=[_call(turn.get("call_id"), turn.get("name"), given)]
            )
            return
        case "function_call_output" | "custom_tool_call_output":
            yield _message("tool", words(turn.get("output")), id=turn.get("call_id"))
            return
        case "reasoning" | "item_reference":
            return
    role, content = as_text(turn.get("role", "")), turn.get("content")
    blocks = [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []
    for block in blocks:
        if block.get("type") == "tool_result":
            yield _message("tool", words(block.get("content")), id=block.get("tool_use_id"))
    calls = [
        _call(one.get("id"), one.get("name"), one.get("input"))
        for one in blocks
        if one.get("type") == "tool_use"
    ]
    listed = turn.get("tool_calls")
    for call in listed if isinstance(listed, list) else ():
        function = field(call, "function")
        calls.append(
            _call(field(call, "id"), field(function, "name"), field(function, "arguments"))
        )
    text = (
        words([one for one in blocks if "tool" not in str(one.get("type"))])
        if blocks
        else words(content)
    )
    if text or calls or not blocks:
        yield _message(role, text, calls=calls, id=turn.get("tool_call_id"))


def _call(id: object, name: object, given: object) -> Json:
    arguments = given if isinstance(given, str) else json.dumps(given or {})
    function = {"name": as_text(name or ""), "arguments": as_text(arguments)}
    return {"id": as_text(id or ""), "type": "function", "function": function}


def _message(role: str, text: str, *, calls: Sequence[Json] = (), id: object = None) -> Json:
    message: dict[str, Any] = {"role": role, "content": without_middle(as_text(text), LONGEST)}
    if calls:
        message["tool_calls"] = list(calls)
    if id:
        message["tool_call_id"] = as_text(id)
    return message
