"""Answers that have to be of a shape: asked for, checked, asked for again, repaired, or failed.

What does not check is sent back with the error, and with the schema in words where it was out of
shape. If that does not help, `json-repair` has a last try, and items of a list that stay out of
shape are left out; the result says so. What is still unreadable raises `Unreadable`. The schema
comes from the pydantic model that checks the answer.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any, Generic, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError, ValidationInfo

from tfgrpo.model.client import CallPath, Calls
from tfgrpo.model.endpoint import Answer, CallFailed, Request
from tfgrpo.model.settings import error_in_words, first_error
from tfgrpo.store.records import Json
from tfgrpo.wording import without_middle

T = TypeVar("T", bound=BaseModel)
TextCheck: TypeAlias = Callable[[str], str]
"""From a text to what counts of it. Raises ValueError with what is wrong with it."""
FENCE = re.compile(r"```(?:json)?(.*?)```", re.DOTALL)
UNASKED = frozenset({"title", "description", "default", "minLength"})
"""What pydantic says of a field that an endpoint is not told: strict ones refuse the last."""


def _checked(text: str, info: ValidationInfo) -> str:
    return text if info.context is None else str(info.context(text))


CheckedText: TypeAlias = Annotated[str, AfterValidator(_checked)]
"""A field of a model whose text `ask` has looked at by its `text_check`."""


def unbounded_text(limit: int, **more: Any) -> Any:
    """A model's field for a text whose length the schema says nothing of: an endpoint would cut it
    off in the middle of a word. Up to `limit` characters check."""

    def untold(part: dict[str, Any]) -> None:
        del part["maxLength"]

    return Field(max_length=limit, json_schema_extra=untold, **more)


def text_field(target: int, limit: int | None = None, **more: Any) -> Any:
    """A model's field for a text: the schema asks for `target` characters, and up to `limit` check.
    `more` goes to pydantic's `Field`."""
    return Field(max_length=limit, json_schema_extra={"maxLength": target}, **more)


def schema(shape: type[BaseModel], **narrowed: Json | None) -> Json:
    """The JSON schema that an answer of a shape is asked for under: every field required, in order,
    and no other, as strict endpoints want it. `narrowed` has other fields for this request, None
    for one that it does not ask for."""
    whole = _schema(shape)
    fields = {**whole["properties"], **narrowed}
    wanted = {name: field for name, field in fields.items() if field is not None}
    return {**whole, "required": list(wanted), "properties": wanted}


@cache
def _schema(shape: type[BaseModel]) -> Json:
    whole = shape.model_json_schema()

    def strict(part: Json) -> Json:
        if "$ref" in part:
            part = whole["$defs"][part["$ref"].rpartition("/")[2]]
        order = sorted(part.keys() - UNASKED, key=lambda key: (key != "type", key == "items", key))
        members = {name: part[name] for name in order}
        if "items" in members:
            members["items"] = strict(members["items"])
        if "properties" in members:
            fields = {name: strict(field) for name, field in members["properties"].items()}
            return {
                "type": "object",
                "additionalProperties": False,
                "required": list(fields),
                "properties": fields,
            }
        return members

    return strict(whole)


LONGEST = 100_000
"""Characters of an answer: no answer of a shape has a tenth of it."""


class Unreadable(CallFailed):
    """An answer that stayed out of shape."""


@dataclass(frozen=True, slots=True)
class Typed(Generic[T]):
    """A checked answer and its key; `lost` says what was wrong with each item that was left out."""

    value: T
    key: str
    repaired: bool = False
    lost: tuple[str, ...] = ()


async def ask(
    calls: Calls,
    request: Request,
    shape: type[T],
    *,
    call_path: CallPath,
    check: Callable[[T], str | None] = lambda _: None,
    text_check: TextCheck | None = None,
) -> Typed[T]:
    """An answer of the given shape that `check` has no objection to. `check` returns what is wrong
    with a value, or None, and `text_check` what counts of each field that is a `CheckedText`. The
    model is asked once to mend its answer. Raises Unreadable, CallFailed, EndpointError."""
    adaptation = calls.endpoint.adaptation
    current = request
    problem, missed = "", False
    for turn in range(2):
        in_words = adaptation.in_words or current.in_words
        recorded = await calls.ask(current, call_path=(*call_path, turn) if turn else call_path)
        text = recorded.answer.visible
        answered = bool(text.strip())
        value, problem = read(text, shape, text_check)
        shaped = value is not None or read(text, shape)[0] is not None
        if shaped and missed:
            adaptation.schema_missed()
        elif shaped:
            adaptation.schema_followed(asked_in_words=in_words)
        missed = not shaped and not in_words and answered
        if value is None and not answered:
            problem = why_empty(recorded.answer)
        elif value is None and recorded.answer.truncated:
            problem = f"it was cut off at {request.max_tokens} tokens; be brief"
        if value is not None:
            problem = check(value) or ""
            if not problem:
                return Typed(value, recorded.key)
        if not answered:  # some endpoints take no empty message
            current = replace(request, in_words=in_words)
            continue
        complaint = f"That cannot be used: {problem}\nGive the whole answer again, mended."
        current = replace(
            request,
            messages=(
                *request.messages,
                ("assistant", without_middle(text, LONGEST)),
                ("user", complaint),
            ),
            in_words=not shaped,
        )
    cut = recorded.answer.truncated
    value = await asyncio.to_thread(repair, text, shape, text_check, cut=cut)
    if value is not None and check(value) is None:
        return Typed(value, recorded.key, repaired=True)
    value, lost = await asyncio.to_thread(salvage, text, shape, text_check, cut=cut)
    if value is not None and check(value) is None:
        return Typed(value, recorded.key, repaired=True, lost=lost)
    raise Unreadable(f"{request.stage}: {problem}")


def why_empty(answer: Answer) -> str:
    """What is wrong with an answer of which nothing can be seen."""
    if answer.truncated:
        thought = answer.reasoning_tokens or answer.completion_tokens
        return (
            f"it is empty: {thought:,} tokens of thinking took all that it may have "
            "(max_completion_tokens in [model] allows more, a lower reasoning_effort takes less)"
        )
    return f"it is empty (finish_reason {answer.finish_reason})"


def read(text: str, shape: type[T], text_check: TextCheck | None = None) -> tuple[T | None, str]:
    """The value that a text holds, or None and what is wrong with it."""
    try:
        return shape.model_validate(parse_json(text), context=text_check), ""
    except ValidationError as error:
        return None, first_error(error)
    except (ValueError, RecursionError) as error:
        return None, f"it is not JSON: {error}"[:300]


def parse_json(text: str) -> object:
    """The JSON of a text, or of a fence within it. Raises ValueError or RecursionError."""
    try:
        return check_encodable(json.loads(text))
    except json.JSONDecodeError:
        fenced = FENCE.search(text)
        if fenced is None:
            raise
        return check_encodable(json.loads(fenced[1]))


def repair(
    text: str, shape: type[T], text_check: TextCheck | None = None, *, cut: bool = False
) -> T | None:
    """What json-repair makes of a text (`cut` off at a limit or not), if that checks."""
    try:
        value = _load(text, cut=cut)
        return shape.model_validate(value, context=text_check) if isinstance(value, dict) else None
    except (ValueError, RecursionError):  # a ValidationError is a ValueError
        return None


def salvage(
    text: str, shape: type[T], text_check: TextCheck | None = None, *, cut: bool = False
) -> tuple[T | None, tuple[str, ...]]:
    """What a text holds without the items of its lists that are out of shape, and what was wrong
    with each; None where something else is wrong, or no list would have anything left."""
    try:
        value = _load(text, cut=cut)
        shape.model_validate(value, context=text_check)
    except ValidationError as error:
        wrong: dict[tuple[str, int], str] = {}
        for one in error.errors():
            match one["loc"]:
                case (str(name), int(item), *_):
                    wrong.setdefault((name, item), error_in_words(one))
                case _:
                    return None, ()
    except (ValueError, RecursionError):
        return None, ()
    else:
        return None, ()
    if not isinstance(value, dict):
        return None, ()
    for name, item in sorted(wrong, reverse=True):
        del value[name][item]
    if not any(isinstance(value.get(name), list) and value[name] for name in shape.model_fields):
        return None, ()
    try:
        return shape.model_validate(value, context=text_check), tuple(wrong.values())
    except ValidationError:
        return None, ()


def _load(text: str, *, cut: bool) -> object:
    """The JSON that json-repair sees in a text; of one that was `cut` off without the last item.
    Raises ValueError, also where it ends with no list, or RecursionError."""
    value = load_repaired(text)
    if cut:
        last = [*value.values()][-1:] if isinstance(value, dict) else []
        if not (last and isinstance(last[0], list) and last[0]):
            raise ValueError("it was cut off")
        last[0].pop()
    return value


REPAIR_SECONDS = 1.0
"""What one text may take."""
LONGEST_REPAIRED = 1_000_000
"""Characters of a text beyond which it is not tried."""


class _TimeIsUp(BaseException):
    """Raised within the thread: no handler of the library's takes it for an error of its own."""


def load_repaired(text: str) -> object:
    """The JSON that json-repair sees in a text within `REPAIR_SECONDS`. Raises ValueError, for half
    a character and for what takes too long among others, or RecursionError."""
    if len(text) > LONGEST_REPAIRED:
        raise ValueError(f"more than {LONGEST_REPAIRED:,} characters cannot be repaired")
    outcome: list[object] = []

    def work() -> None:
        try:
            import json_repair

            outcome.append(json_repair.loads(text))
        except _TimeIsUp:
            outcome.append(ValueError("it takes too long to repair"))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="tfgrpo-repair", daemon=True)
    thread.start()
    thread.join(REPAIR_SECONDS)
    if thread.is_alive() and thread.ident is not None:
        identity, exception = ctypes.c_ulong(thread.ident), ctypes.py_object(_TimeIsUp)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(identity, exception)
        thread.join()
    match outcome:
        case [RecursionError() as error]:
            raise error
        case [Exception() as error]:
            raise ValueError(str(error))
        case [value]:
            return check_encodable(value)
    raise ValueError("it takes too long to repair")


def check_encodable(value: object) -> object:
    """A JSON value that can be written. Raises ValueError for half a character."""
    json.dumps(value, ensure_ascii=False).encode()
    return value
