"""OTLP as JSON: spans with the messages of a model call, by GenAI conventions old and new and
Langfuse's; `gen_ai.evaluation.result` events are scores. Corrected answers are `tfgrpo.correct`
and Langfuse's expected output, since no convention has a name for them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tfgrpo.improvement.exchange import (
    Exchange,
    Unread,
    Unusable,
    asked,
    checked_messages,
    mean_score,
    message,
    read_json,
    words,
)
from tfgrpo.proxy.telemetry import (
    ARM,
    CALL,
    EVALUATION,
    EXPLANATION,
    PROMPT_VERSION,
    REQUEST_MODEL,
    SCORE,
    SCORE_LABEL,
)
from tfgrpo.rendering.prompt_templates import Message
from tfgrpo.store.damaged_values import objects

SYSTEM = "gen_ai.system_instructions"
INPUTS = ("gen_ai.input.messages", "langfuse.observation.input", "gen_ai.prompt", "input.value")
OUTPUTS = (
    *("gen_ai.output.messages", "langfuse.observation.output"),
    *("gen_ai.completion", "output.value"),
)
NUMBERED_INPUTS = ("gen_ai.prompt", "llm.prompts", "llm.input_messages")
NUMBERED = re.compile(
    r"(gen_ai\.prompt|gen_ai\.completion|llm\.prompts|llm\.completions|llm\.input_messages"
    r"|llm\.output_messages)\.(\d+)\.(?:message\.)?(role|content|tool_calls)(?:\..*)?"
)
CORRECT = (
    "tfgrpo.correct",
    "langfuse.experiment.item.expected_output",
    "langfuse.observation.metadata.expected_output",
    "langfuse.trace.metadata.expected_output",
)
LANGFUSE_SCORE = "langfuse.score."
RIGHT, WRONG = {"pass", "passed", "correct", "true"}, {"fail", "failed", "incorrect", "false"}
"""Labels of an evaluation that has no number."""


def is_otlp(row: Mapping[str, Any]) -> bool:
    """Whether an object is a batch of spans or of logs."""
    return any(name in row for name in ("resourceSpans", "resourceLogs"))


def exchanges(rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[Exchange | Unread]:
    """Yields the exchanges in (where, batch) pairs; spans that call no model are passed over."""
    evaluations: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for _, row in rows:
        for record in _records(row, "resourceLogs", "scopeLogs", "logRecords"):
            values = attributes(record)
            if EVALUATION in (record.get("eventName"), values.get("event.name")):
                evaluations.setdefault(_place(record), []).append(values)
    for where, row in rows:
        for span in _records(row, "resourceSpans", "scopeSpans", "spans"):
            place = _place(span)
            at = f"{where} span {place[1] or '?'}"
            try:
                exchange = _exchange(span, at, evaluations.get(place, ()))
            except Unusable as error:
                yield Unread(at, str(error))
                continue
            if exchange is not None:
                yield exchange


def _records(row: Mapping[str, Any], *names: str) -> Iterator[Mapping[str, Any]]:
    outer, middle, inner = names
    for resource in objects(row.get(outer)):
        for scope in objects(resource.get(middle)):
            yield from objects(scope.get(inner))


def _place(record: Mapping[str, Any]) -> tuple[str, str]:
    return str(record.get("traceId", "")), str(record.get("spanId", ""))


def attributes(record: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a span, event or log as plain values."""
    return {
        str(one["key"]): _value(one["value"])
        for one in objects(record.get("attributes"))
        if "key" in one and isinstance(one.get("value"), dict)
    }


def _value(wrapped: Mapping[str, Any]) -> Any:
    for kind, value in wrapped.items():
        if kind == "arrayValue":
            return [_value(one) for one in objects(_values(value))]
        if kind == "kvlistValue":
            pairs = [one for one in objects(_values(value)) if isinstance(one.get("value"), dict)]
            return {str(one.get("key")): _value(one["value"]) for one in pairs}
        if kind == "intValue":
            with suppress(TypeError, ValueError, OverflowError):
                return int(value)
        return value
    return None


def _values(wrapped: object) -> object:
    return wrapped.get("values") if isinstance(wrapped, dict) else None


def _exchange(
    span: Mapping[str, Any], where: str, evaluations: Sequence[Mapping[str, Any]]
) -> Exchange | None:
    values = attributes(span)
    events = [(one.get("name"), attributes(one)) for one in objects(span.get("events"))]
    for _, more in events:
        values = {**more, **values}
    values = _numbered(values)
    given = next((values[name] for name in INPUTS if values.get(name)), None)
    if given is None:
        return None
    messages = _messages(values, given)
    judged = [*evaluations, *(more for name, more in events if name == EVALUATION)]
    scores = [score for score in map(_score, judged) if score is not None]
    scores += [
        value
        for name, value in values.items()
        if name.startswith(LANGFUSE_SCORE) and isinstance(value, (int, float))
    ]
    correct = next((_plain(values[name]) for name in CORRECT if values.get(name)), None)
    origin = {
        "trace": span.get("traceId"),
        "span": span.get("spanId"),
        "call": values.get(CALL),
        "model": values.get(REQUEST_MODEL),
        "digest": values.get(PROMPT_VERSION),
        "arm": values.get(ARM),
    }
    trace, own = _place(span)
    return Exchange(
        str(values.get(CALL) or f"{trace}-{own}"),
        where,
        messages,
        _output_text(next((values[name] for name in OUTPUTS if values.get(name)), "")),
        mean_score(scores),
        correct,
        next((str(one[EXPLANATION]) for one in judged if one.get(EXPLANATION)), None),
        origin["arm"],
        {name: value for name, value in origin.items() if value is not None},
    )


def _numbered(values: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes with their numbered messages as lists: OpenLLMetry's `gen_ai.prompt.0.content`,
    OpenInference's `llm.input_messages.0.message.content`."""
    lists: dict[str, dict[int, dict[str, Any]]] = {}
    for name, value in values.items():
        match = NUMBERED.fullmatch(name)
        if match is not None:
            where = INPUTS[0] if match[1] in NUMBERED_INPUTS else OUTPUTS[0]
            one = lists.setdefault(where, {}).setdefault(int(match[2][:6]), {"role": "user"})
            one[match[3]] = _parsed(value) if match[3] != "role" else value
    whole = {name: [ones[n] for n in sorted(ones)] for name, ones in lists.items()}
    return {**whole, **values}


def _messages(values: Mapping[str, Any], given: object) -> tuple[Message, ...]:
    given = _parsed(given)
    if isinstance(given, dict):
        return asked(given)
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list):
        raise Unusable("its input is no list of messages")
    first = words(_parsed(values.get(SYSTEM)))
    system: list[Message] = [("system", first)] if first else []
    return checked_messages((*system, *map(message, given)))


def _output_text(value: object) -> str:
    value = _parsed(value)
    if isinstance(value, list) and value:
        value = value[0]
    if isinstance(value, dict):
        value = words(value.get("parts", value.get("content")))
    return value.strip() if isinstance(value, str) else ""


def _plain(value: object) -> str:
    value = _parsed(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parsed(value: object) -> object:
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{", '"'):
        try:
            return read_json(value)
        except (ValueError, RecursionError):
            return value
    return value


def _score(values: Mapping[str, Any]) -> float | None:
    score, label = values.get(SCORE), str(values.get(SCORE_LABEL, "")).casefold()
    if isinstance(score, (int, float)):
        return score
    return 1.0 if label in RIGHT else 0.0 if label in WRONG else None
