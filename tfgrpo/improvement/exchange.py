"""Exchanges: an application's request to a model, the answer, and the feedback on it. Only words
count, since images, tools and what a provider keeps cannot be asked again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from tfgrpo.model.wire_formats import request_turns
from tfgrpo.rendering.prompt_templates import Message
from tfgrpo.store.activity.traffic import (
    ALL,
    CUT_OFF,
    CallContent,
    CallFilter,
    CallRecord,
    Feedback,
    Traffic,
    is_score,
    place_of,
)
from tfgrpo.store.records import Json, in_utc

ROLES = {"system": "system", "developer": "system", "user": "user"}
ROLES |= {"assistant": "assistant", "model": "assistant"}
TEXTS = ("text", "input_text", "output_text")
"""The types of parts that are text, on any route."""


_half = re.compile(r"\\u[dD][89abcdefABCDEF]").search
FINE = "nothing is known against it"


class Unusable(ValueError):
    """An exchange that cannot become a problem, and why, in words."""


class Exchange(NamedTuple):
    """One request with its answer, without the library: a unique `id`, the mean `score`, the last
    correction, the `arm` of an experiment, its provenance (`origin`)."""

    id: str
    where: str
    messages: tuple[Message, ...]
    answer: str
    score: float | None = None
    correct: str | None = None
    comment: str | None = None
    arm: str | None = None
    origin: Mapping[str, Any] = {}


class Unread(NamedTuple):
    """Something that could not be read as an exchange: its place, and why."""

    where: str
    why: str


def of_traffic(
    traffic: Traffic, which: CallFilter, author: str | None = None, *, every: bool = False
) -> Iterator[Exchange | Unread]:
    """Yields the calls on record, oldest first, with the scores of `author` on the scale from 0 to
    1, and those that cannot be used. Calls with neither feedback nor an arm of an experiment are
    included only with `every`."""
    scales = traffic.scales()
    for listed in reversed(traffic.calls(which, ALL)):
        call = listed.call
        if not (every or listed.feedback or call.arm):
            yield Unread(call.id, FINE)
            continue
        feedback = traffic.feedback(call.id)
        content = traffic.content(call.id)
        if content is None:
            yield Unread(call.id, "its words were not kept (tfgrpo proxy --record content)")
            continue
        correct = next((one.correct for one in reversed(feedback) if one.correct), None)
        if correct is None and (why := _no_answer(call, content)):
            yield Unread(call.id, why)
            continue
        judged = [one for one in feedback if author in (None, one.author)]
        try:
            messages = asked(_body(content.request))
            places = [place_of(one, scales) for one in judged]
            score = mean_score([place for place in places if place is not None])
        except Unusable as error:
            yield Unread(call.id, str(error))
            continue
        yield Exchange(
            call.id,
            call.id,
            messages,
            answered(content.answer),
            score,
            correct,
            next((one.comment for one in reversed(feedback) if one.comment), None),
            call.arm,
            _provenance(call, feedback),
        )


def _no_answer(call: CallRecord, content: CallContent) -> str | None:
    if call.status >= 400 or not call.status:
        return "it failed before there was an answer"
    if content.answer.endswith(CUT_OFF):
        return "its answer is too long to have been kept whole"
    return call.error  # such as an answer packed in a way that is not read


def read_json(text: str) -> Any:
    """A value of JSON whose texts can be written: half of a surrogate pair, which programs that cut
    strings send, is U+FFFD in it. Raises ValueError, RecursionError."""
    value = json.loads(text)
    if _half(text) is None:
        return value
    whole = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return json.loads(whole.decode("utf-16", "replace"))


def mean_score(scores: Sequence[float]) -> float | None:
    """The mean of scores, None of none. Raises Unusable for what is no score."""
    if not all(is_score(score) for score in scores):
        raise Unusable("one of its scores is not a number, or is far too large")
    return fmean(scores) if scores else None


def _provenance(call: CallRecord, feedback: Sequence[Feedback]) -> Json:
    known = {
        "call": call.id,
        "time": in_utc(call.time).isoformat(timespec="seconds"),
        "library": call.library,
        "version": call.version,
        "digest": call.digest,
        "arm": call.arm,
        "model": call.model,
        "label": next((one.label for one in reversed(feedback) if one.label), None),
    }
    return {name: value for name, value in known.items() if value is not None}


def _body(text: str) -> Mapping[str, Any]:
    try:
        body = read_json(text)
    except (ValueError, RecursionError):
        raise Unusable("its request is too long to have been kept whole") from None
    if not isinstance(body, dict):
        raise Unusable("its request is no object")
    return body


def asked(body: Mapping[str, Any]) -> tuple[Message, ...]:
    """The messages of a request, of any of the routes. Raises Unusable."""
    if body.get("previous_response_id") or body.get("conversation"):
        raise Unusable("it goes on from an earlier request that is kept elsewhere")
    turns = request_turns(body)
    if turns is None:
        raise Unusable("it has no messages")
    return checked_messages(tuple(map(message, turns)))


def checked_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Messages with a user's among them, not the assistant's at the end. Raises Unusable."""
    written = tuple(one for one in messages if one[1].strip())
    if not any(role == "user" for role, _ in written):
        raise Unusable("no user says anything in it")
    if written[-1][0] == "assistant":
        raise Unusable("its last message is the assistant's")
    return written


def message(turn: object) -> Message:
    """A turn in any provider's shape as role and text. Raises Unusable."""
    if not isinstance(turn, dict):
        raise Unusable("a message in it is no object")
    role = ROLES.get(str(turn.get("role", "user" if "parts" in turn else "")))
    if role is None or turn.get("tool_calls") or turn.get("function_call"):
        raise Unusable("tools were called in it")
    return role, words(turn.get("content", turn.get("parts")))


def words(content: object) -> str:
    """The text of a content: a string, or a list of parts. Raises Unusable for other parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Unusable("a message in it is no text")
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
            continue
        kind = part.get("type", "text") if isinstance(part, dict) else None
        text = part.get("text", part.get("content")) if isinstance(part, dict) else None
        if kind in ("thinking", "reasoning") or (kind and part.get("thought") is True):
            continue
        if kind not in TEXTS or not isinstance(text, str):
            raise Unusable(f"a message in it has a part of the type {kind!r}, which is no text")
        texts.append(text)
    return "\n".join(texts)


def answered(text: str) -> str:
    """The text of an answer: the first choice's of a provider's JSON (any route); anything else,
    such as the recorded text of a stream, as it is."""
    try:
        body = read_json(text)
    except (ValueError, RecursionError):
        return text.strip()
    bodies = body if isinstance(body, list) else [body]  # a list is a stream of Gemini's
    texts = [_text_of(one) if isinstance(one, dict) else None for one in bodies]
    return "".join(map(str, texts)).strip() if texts and None not in texts else text.strip()


def answer_of(body: Mapping[str, Any]) -> str | None:
    """The text of a provider's answer; None where it is none of a known shape."""
    text = _text_of(body)
    return None if text is None else text.strip()


def _text_of(body: Mapping[str, Any]) -> str | None:
    try:
        choices, output = body.get("choices"), body.get("output")
        if isinstance(choices, list):
            first = choices[0] if choices and isinstance(choices[0], dict) else {}
            return words((first.get("message") or {}).get("content"))
        if isinstance(output, list):
            messages = [one for one in output if isinstance(one, dict) and "content" in one]
            return "\n".join(words(one["content"]) for one in messages)
        if isinstance(output, dict):
            return words(output["message"]["content"])
        if isinstance(body.get("candidates"), list):
            return words(body["candidates"][0]["content"].get("parts"))
        if isinstance(body.get("content"), list):
            return words(body["content"])
    except (Unusable, AttributeError, LookupError, TypeError):
        return ""
    return None
