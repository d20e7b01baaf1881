"""Answers that have to be of a shape: read, asked for again, repaired on record, or refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from scripted import Numbered, ScriptedEndpoint, opened_calls

from tfgrpo.model import structured_answers
from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import Request
from tfgrpo.model.structured_answers import Typed, Unreadable, read, repair, text_field


class Shape(BaseModel):
    text: str
    number: int = 0


GOOD = '{"text": "yes", "number": 3}'
ASKED = Request("comparison", (("system", "s"), ("user", "u")), 0.2, 100)


def asked(
    folder: Path, answers: list[str], check: Callable[[Shape], str | None] = lambda _: None
) -> tuple[Typed[Shape] | Unreadable, list[dict[str, Any]]]:
    """Asks a server that gives `answers` in order; returns what came of it, and the requests."""
    script = Numbered(lambda _: answers[len(script.requests) - 1])
    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:
        return asyncio.run(_ask(calls, check)), server.requests


async def _ask(calls: Calls, check: Callable[[Shape], str | None]) -> Typed[Shape] | Unreadable:
    try:
        return await structured_answers.ask(calls, ASKED, Shape, call_path=(1, "p"), check=check)
    except Unreadable as error:
        return error
    finally:
        await calls.endpoint.close()


def test_an_answer_of_the_shape_is_taken_at_once(tmp_path: Path) -> None:
    found, requests = asked(tmp_path, [GOOD])
    assert isinstance(found, Typed)
    assert (found.value, found.repaired) == (Shape(text="yes", number=3), False)
    assert len(requests) == 1


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"  {GOOD}\n",
        f"```json\n{GOOD}\n```",
        f"```\n{GOOD}\n```",
        f"Here it is:\n```json\n{GOOD}\n```\nI hope it helps.",
    ],
)
def test_json_is_read_with_or_without_a_fence(text: str) -> None:
    assert read(text, Shape) == (Shape(text="yes", number=3), "")


@given(st.text(st.characters(codec="utf-8")), st.integers())
def test_any_value_comes_back_from_its_json(text: str, number: int) -> None:
    value = Shape(text=text, number=number)
    plain = json.dumps({"text": text, "number": number})
    assert read(plain, Shape) == (value, "")


def test_a_fence_inside_a_text_is_part_of_the_text() -> None:
    text = "Write ```python\nprint(1)\n``` when asked for code."
    assert read(json.dumps({"text": text}), Shape) == (Shape(text=text), "")


def test_a_bad_answer_goes_back_with_the_error_once(tmp_path: Path) -> None:
    found, requests = asked(tmp_path, ['{"text": 5, "number": "x"}', GOOD])
    assert isinstance(found, Typed)
    assert not found.repaired
    assert len(requests) == 2
    first, second = requests
    assert second["messages"][:2] == first["messages"]
    assistant, complaint = second["messages"][2:]
    assert assistant == {"role": "assistant", "content": '{"text": 5, "number": "x"}'}
    assert complaint["role"] == "user"
    assert "text: Input should be a valid string" in complaint["content"]


def test_what_is_no_json_is_said_so(tmp_path: Path) -> None:
    found, requests = asked(tmp_path, ["I would say yes.", GOOD])
    assert isinstance(found, Typed)
    assert "it is not JSON" in requests[1]["messages"][-1]["content"]


def test_an_objection_goes_back_in_its_own_words(tmp_path: Path) -> None:
    def check(value: Shape) -> str | None:
        return "the number is too small" if value.number < 9 else None

    found, requests = asked(tmp_path, [GOOD, '{"text": "yes", "number": 9}'], check)
    assert isinstance(found, Typed)
    assert found.value.number == 9
    assert "the number is too small" in requests[1]["messages"][-1]["content"]


def test_json_that_stays_broken_is_repaired_and_marked(tmp_path: Path) -> None:
    found, requests = asked(tmp_path, ["{'text': 'yes', number: 3", "{'text': 'yes', number: 4"])
    assert isinstance(found, Typed)
    assert (found.value, found.repaired) == (Shape(text="yes", number=4), True)
    assert len(requests) == 2


@pytest.mark.parametrize("text", ["no", "", '{"number": 3}', "[1, 2]", "5", "null"])
def test_what_cannot_be_repaired_is_unreadable_and_says_which_stage(
    tmp_path: Path, text: str
) -> None:
    found, requests = asked(tmp_path, [text, text])
    assert isinstance(found, Unreadable)
    assert str(found).startswith("comparison: ")
    assert len(requests) == 2


def test_an_objection_holds_for_repaired_answers_too(tmp_path: Path) -> None:
    found, _ = asked(tmp_path, ["{'text': 'a'", "{'text': 'a'"], lambda _: "never")
    assert isinstance(found, Unreadable)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"text": ' * 20_000, '{"number": ' + "1" * 5000 + "}"]
)
def test_an_answer_without_end_is_an_unreadable_one(tmp_path: Path, text: str) -> None:
    found, _ = asked(tmp_path, [text, text])
    assert isinstance(found, Unreadable)


def test_half_a_character_in_json_is_mended_or_unreadable_but_never_let_through() -> None:
    value, _ = read('{"text": "so \\ud83d"}', Shape)
    value = value or repair('{"text": "so \\ud83d"}', Shape)
    assert value is None or value.text.encode()


def test_each_turn_is_a_call_of_its_own_in_the_journal(tmp_path: Path) -> None:
    script = Numbered(lambda _: "no")
    with ScriptedEndpoint(script) as server:
        for _ in range(2):
            with opened_calls(tmp_path, server.base_url) as calls:
                assert isinstance(asyncio.run(_ask(calls, lambda _: None)), Unreadable)
        assert len(server.requests) == 2


class Listed(BaseModel):
    items: list[Shape]


@pytest.mark.parametrize(
    ("text", "kept", "lost"),
    [
        ('{"items": [{"text": "a"}, {"number": 1}]}', ["a"], ["items.1.text: Field required"]),
        (
            '{"items": [5, {"text": "a"}, {"text": "b"}, {"text": 1, "number": "x"}]}',
            ["a", "b"],
            ["items.0", "items.3.text"],
        ),
    ],
)
def test_one_bad_item_of_a_list_does_not_cost_the_others_and_is_told(
    text: str, kept: list[str], lost: list[str]
) -> None:
    value, told = structured_answers.salvage(text, Listed)
    assert value is not None
    assert [item.text for item in value.items] == kept
    assert len(told) == len(lost)
    assert all(found.startswith(what) for found, what in zip(told, lost, strict=True))


@pytest.mark.parametrize(
    "text", ["", "[]", "no", '{"items": 5}', '{"items": [5]}', "{}", "[" * 9000, "null"]
)
def test_where_nothing_is_left_nothing_is_salvaged(text: str) -> None:
    assert structured_answers.salvage(text, Listed) == (None, ())


class Inner(BaseModel):
    text: str = text_field(20, 100, min_length=1)


class Outer(BaseModel):
    """What a model knows of itself, and an endpoint need not."""

    why: str = text_field(10, 50, default="")
    kind: Literal["a", "b"]
    parts: list[Inner] = Field(json_schema_extra={"maxItems": 2})
    label: str | None = None


def test_the_schema_that_is_asked_for_comes_from_the_model_that_checks() -> None:
    assert structured_answers.schema(Outer, label={"enum": ["G0", None]}) == {
        "type": "object",
        "additionalProperties": False,
        "required": ["why", "kind", "parts", "label"],
        "properties": {
            "why": {"type": "string", "maxLength": 10},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "parts": {
                "type": "array",
                "maxItems": 2,
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["text"],
                    "properties": {"text": {"type": "string", "maxLength": 20}},
                },
            },
            "label": {"enum": ["G0", None]},
        },
    }
    assert "G0" not in json.dumps(structured_answers.schema(Outer)), (
        "what is narrowed is for one request"
    )
