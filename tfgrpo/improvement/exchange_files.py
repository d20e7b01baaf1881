"""Files of exchanges: JSON objects, one a line, or one value: a batch, a list, a page (`{"data":
[…]}`). Spans are read by `otlp_files.py`, and these are rows of OpenAI's platform:

    chat       {"messages": [... {"role": "assistant", …}]}   the last answer is the right one
    batch      {"custom_id", "body": {…}, "response": {…}}    a request and its answer
    preferred  {"input": {…}, "preferred_output": […], "non_preferred_output": […]}
    completion {"object": "chat.completion", "messages", "choices", "metadata"}   stored ones
    output     {"object": "eval.run.output_item", "datasource_item", "results", "sample"}

An answer with a score is not taken for the right one. `score`, `correct` and `comment` stand in the
row or its `metadata`. Others are named by line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfgrpo.data import compressed_files
from tfgrpo.data.problems import USUAL
from tfgrpo.improvement import otlp_files
from tfgrpo.improvement.exchange import (
    Exchange,
    Unread,
    Unusable,
    answer_of,
    asked,
    mean_score,
    message,
    read_json,
)
from tfgrpo.rendering.prompt_templates import Message

ANSWERS = ("correct", "ideal", "expected", "expected_output", "reference", "reference_answer")
"""What a right answer is called in rows, before the names that datasets use."""


def kind_of(row: Mapping[str, Any]) -> str | None:
    """What a row is, by the names above; None for what is none of them."""
    if row.get("object") == "eval.run.output_item" or {"datasource_item", "results"} <= row.keys():
        return "output"
    if {"preferred_output", "non_preferred_output"} <= row.keys():
        return "preferred"
    if "choices" in row and ("messages" in row or "input" in row or "object" in row):
        return "completion"
    if "body" in row or {"request", "response"} <= row.keys():
        return "batch"
    return "chat" if isinstance(row.get("messages"), list) else None


def exchange(row: Mapping[str, Any], where: str) -> Exchange:
    """The exchange that a row is. Raises Unusable."""
    kind = kind_of(row)
    if kind is None:
        raise Unusable("it is none of the known shapes")
    try:
        return READERS[kind](row, where)
    except (LookupError, ArithmeticError, AttributeError, TypeError, ValueError) as error:
        if isinstance(error, Unusable):
            raise
        raise Unusable(f"its shape is not that of {kind}: {error!r}"[:160]) from None


def _chat(row: Mapping[str, Any], where: str) -> Exchange:
    turns = list(row["messages"])
    answer = ""
    if turns and isinstance(turns[-1], dict) and turns[-1].get("role") == "assistant":
        answer = message(turns.pop())[1]
    known = _known(row)
    if "score" not in known and "correct" not in known and answer:
        known["correct"], answer = answer, ""
    return _exchange(row, where, asked({"messages": turns}), answer, known)


def _batch(row: Mapping[str, Any], where: str) -> Exchange:
    request = row.get("request", row)
    body = request.get("body", request)
    response = row.get("response") or {}
    answer = answer_of(response.get("body", response)) or ""
    return _exchange(row, where, asked(body), answer, _known(row))


def _preferred(row: Mapping[str, Any], where: str) -> Exchange:
    better, worse = (
        message(row[name][-1])[1] for name in ("preferred_output", "non_preferred_output")
    )
    known = {**_known(row), "correct": better}
    return _exchange(row, where, asked(row["input"]), worse, known)


def _completion(row: Mapping[str, Any], where: str) -> Exchange:
    request = row.get("request") or {}
    given = row.get("messages") or row.get("input") or request.get("messages")
    if not given:
        raise Unusable("a completion without the messages that it answers: export those too")
    if isinstance(given, dict):  # a page of them, as the platform lists them
        given = given["data"]
    return _exchange(row, where, asked({"messages": given}), answer_of(row) or "", _known(row))


def _output(row: Mapping[str, Any], where: str) -> Exchange:
    source, sample = row.get("datasource_item") or {}, row.get("sample") or {}
    item = source["item"] if isinstance(source.get("item"), dict) else source
    given = sample.get("input") or item.get("messages") or item.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not given:
        named = (item.get(name) for name in ("problem", *USUAL["problem"]))
        text = next((value for value in named if isinstance(value, str) and value.strip()), None)
        if text is None:
            raise Unusable("it has neither a sample's input nor a question")
        given = [{"role": "user", "content": text}]
    output = sample.get("output") or []
    answer = message(output[-1])[1] if isinstance(output, list) and output else str(output or "")
    known = _known({**item, **_known(row)})
    results = [one for one in row.get("results") or [] if isinstance(one, dict)]
    if results:
        passed = [one.get("passed") for one in results]
        scores = [one["score"] for one in results if isinstance(one.get("score"), (int, float))]
        known["score"] = 0.0 if False in passed else mean_score(scores) if scores else 1.0
        failed = [one for one in results if one.get("passed") is False]
        names = ", ".join(f"failed {one.get('name', 'a grader')}" for one in failed)
        known.setdefault("comment", names or None)
    return _exchange(row, where, asked({"messages": given}), answer, known)


def _known(row: Mapping[str, Any]) -> dict[str, Any]:
    metadata = row.get("metadata")
    fields = {**(metadata if isinstance(metadata, dict) else {}), **row}
    known: dict[str, Any] = {}
    score = fields.get("score")
    if isinstance(score, str):  # metadata holds strings alone
        score = {"true": 1.0, "false": 0.0}.get(score.lower(), score)
    if score is not None:
        known["score"] = mean_score([float(score)])
    for name in (*ANSWERS, *USUAL["answer"]):
        value = fields.get(name)
        if name not in ("output", "label", "input") and value not in (None, "", [], {}):
            known["correct"] = value if isinstance(value, str) else json.dumps(value)
            break
    if isinstance(fields.get("comment"), str):
        known["comment"] = fields["comment"]
    return known


def _exchange(
    row: Mapping[str, Any],
    where: str,
    messages: tuple[Message, ...],
    answer: str,
    known: Mapping[str, Any],
) -> Exchange:
    name = next((row[key] for key in ("id", "custom_id") if row.get(key)), None)
    origin = {"file": where, "id": name, "model": row.get("model")}
    return Exchange(
        str(name or where),
        where,
        messages,
        answer.strip(),
        known.get("score"),
        known.get("correct"),
        known.get("comment"),
        None,
        {key: value for key, value in origin.items() if value is not None},
    )


READERS = {
    "chat": _chat,
    "batch": _batch,
    "preferred": _preferred,
    "completion": _completion,
    "output": _output,
}


PAGES = ("data", "output_items", "items", "rows")
"""What holds the rows where a whole file is one object."""


def read_exchanges(path: Path) -> Iterator[Exchange | Unread]:
    """Yields the exchanges of a file, and what could not be read of it. Raises DatasetError."""
    batches: list[tuple[str, Mapping[str, Any]]] = []
    for where, row in _rows(path):
        if isinstance(row, Unread):
            yield row
        elif otlp_files.is_otlp(row):
            batches.append((where, row))
        else:
            try:
                yield exchange(row, where)
            except Unusable as error:
                yield Unread(where, str(error))
    yield from otlp_files.exchanges(batches)


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any] | Unread]]:
    text = compressed_files.text(compressed_files.read_contents(path))
    try:
        whole = read_json(text)
    except (ValueError, RecursionError):
        whole = None
    if whole is None:
        for number, line in enumerate(text.split("\n"), 1):
            where = f"{path}:{number}"
            if not line.strip():
                continue
            try:
                yield _object(read_json(line), where)
            except (ValueError, RecursionError) as error:
                yield where, Unread(where, f"not JSON: {error}"[:120])
        return
    if isinstance(whole, dict) and not otlp_files.is_otlp(whole):
        pages = [whole[name] for name in PAGES if isinstance(whole.get(name), list)]
        whole = pages[0] if pages and kind_of(whole) is None else whole
    for number, row in enumerate(whole if isinstance(whole, list) else [whole], 1):
        yield _object(row, f"{path}:{number}")


def _object(row: object, where: str) -> tuple[str, Mapping[str, Any] | Unread]:
    return where, row if isinstance(row, dict) else Unread(where, "not an object")
