"""Problems: what the model is asked and what the right answer is, checked when they are loaded."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from typing import Any

from tfgrpo.data.compressed_files import ReadingInvalid
from tfgrpo.data.readers import DatasetError, Row
from tfgrpo.data.row_shapes import ABOUT, Indices, fold, in_our_shape, option_indices
from tfgrpo.rendering.prompt_templates import Message
from tfgrpo.store.records import Json

FIELDS = ("problem", "answer", "id")
KIND = "kind"
"""The field that says of what kind a problem is, where one is named: credit is told apart by it."""
USUAL = {
    "problem": (
        *("question", "prompt", "Problem", "Question", "query", "extra_info.question"),
        *("messages", "conversations", "conversation", "input", "text", "sentence", "ctx"),
    ),
    "answer": (
        *("final_answer", "ground_truth", "gold", "target", "expected_answer", "Answer"),
        *("groundtruth", "reward_model.ground_truth", "extra_info.answer", "solution", "ideal"),
        *("label", "output", "response", "completion"),
    ),
    "id": ("unique_id", "ID", "uid"),
}
"""What others call our fields, in the order in which they are looked for."""
FINAL = re.compile(r"\A(?:.*\n)?[ \t]*####[ \t]*(?=\S[^\n]*\Z|\Z)", re.DOTALL)
"""What stands before the answer where a solution is kept with it, as in GSM8K: `####` begins
the last line."""
REST = "*"
"""Stands in `extra` for all fields that are not read otherwise and not called as answers are."""
_answer_name = re.compile(
    r"(?:.*_)?(?:answers?|solutions?|golds?|(?:ground_?)?truths?|correct|expected|rationales?)"
    r"(?!_(?:types?|formats?|units?)\Z)(?:_.*)?\Z"
).match
"""What names of answers have in them, folded: `correct_idx`, `canonical_solution`, but no name of
an answer's type, format or unit."""
ORIGIN = "from"
"""The object in which `tfgrpo collect` writes where a problem comes from: it is no part of it."""
MISSING = object()
ROLES = ("system", "user", "assistant")
SHAREGPT = {
    "system": "system",
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bard", "model", "bot"), "assistant"),
}
"""Who speaks in ShareGPT's conversations, `{"from": "human", "value": "…"}`."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, its ground truth, its id in the dataset. `messages` are a conversation's turns,
    `meta` what its domain needs as JSON, `unread` the characters of its other fields, `indices` how
    its table's answers name options by number."""

    id: str
    problem: str
    answer: str = ""
    messages: tuple[Message, ...] = ()
    meta: Json = field(default_factory=dict, hash=False)
    unread: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)
    row_size: int = field(default=0, compare=False, repr=False)
    indices: Indices | None = field(default=None, compare=False, repr=False)

    @property
    def ground_truths(self) -> tuple[str, ...]:
        """The answers that are right, at least one: `answer`, and the list `answers` of `meta`."""
        listed = self.meta.get("answers")
        more = [str(answer) for answer in listed] if isinstance(listed, list) else []
        known = [answer for answer in (self.answer, *more) if answer]
        return tuple(dict.fromkeys(known)) or ("",)


def of_rows(
    rows: Iterable[Row],
    source: str,
    fields: Mapping[str, str] | None = None,
    *,
    extra: Sequence[str] = (),
    ground_truth: bool = True,
    as_json: bool = False,
) -> tuple[Problem, ...]:
    """The problems that rows are. Raises DatasetError at the first that is none.

    `fields` maps our names (problem, answer, id, kind, those in `extra`) to the rows'; `a.b` is the
    field b of the object a, and usual names are taken where ours are not there. `extra`, or with
    REST all that is left and is JSON, goes into `meta`. An answer whose last line is `#### 42` is
    42, several in a list are all right, and without `ground_truth` one may lack. With `as_json` an
    object is its JSON text.
    """
    ours = (*FIELDS, *(name for name in extra if name != REST), *({KIND} & set(fields or ())))
    names = {name: name for name in ours} | dict(fields or {})
    unknown = set(names) - set(ours)
    if unknown:
        raise ReadingInvalid(
            f"there is no field {min(unknown)!r}",
            hint="map one of: " + ", ".join(dict.fromkeys((*ours, KIND))),
        )
    usual = {name: aliases for name, aliases in USUAL.items() if name not in (fields or {})}
    problems: dict[str, Problem] = {}
    rows = list(rows)
    key = None if "answer" in usual else names["answer"]
    indices = None
    if "problem" in usual:
        indices = option_indices((_flat(row.fields, key) for row in rows), key)
    base = indices.first if indices is not None else 0
    for row in rows:
        size = sum(sizes(row.fields).values())
        if "problem" in usual:
            row = row._replace(fields=_shaped(row, names, key, base))
        if as_json:
            row = _with_json(row, (names["answer"], *usual.get("answer", ())))
        problem = _problem(row, names, usual, ground_truth)
        problem = replace(problem, row_size=size, indices=indices)
        if REST in extra:
            problem = _with_rest(
                problem, row, {"answers", *names.values(), *chain(*USUAL.values())}
            )
        if problem.id in problems:
            raise DatasetError(
                f"{row.where}: the id {problem.id!r} is used twice",
                hint="give every row a unique id, or none at all",
            )
        problems[problem.id] = problem
    if not problems:
        raise DatasetError(
            f"{source} contains no problems", hint="expected one JSON object per line"
        )
    listed = tuple(problems.values())
    return _without_truths(listed, ("answers", *ours)) if REST in extra else listed


def without_answer(problem: Problem) -> Problem:
    """A problem as who answers it is told it: without its ground truths, and without what of its
    `meta` is called as answers are."""
    return replace(problem, answer="", meta=_unanswered(problem.meta))


def _unanswered(value: Any) -> Any:
    if isinstance(value, Mapping):
        left = {name: one for name, one in value.items() if not _answer_name(fold(name))}
        return {name: _unanswered(one) for name, one in left.items()}
    return [_unanswered(one) for one in value] if isinstance(value, list) else value


def without(problems: Sequence[Problem], ids: Iterable[str]) -> tuple[Problem, ...]:
    """The problems that have none of these ids, in order."""
    left_out = set(ids)
    return tuple(problem for problem in problems if problem.id not in left_out)


def batches(
    problems: Sequence[Problem], size: int, *, epoch: int, seed: int
) -> list[tuple[Problem, ...]]:
    """The batches of an epoch: shuffled anew for each, the last partial one included."""
    order = list(problems)
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return [tuple(order[i : i + size]) for i in range(0, len(order), size)]


def digest(problems: Sequence[Problem]) -> str:
    """A SHA-256 in hex over the problems in order."""
    rows = [
        [p.id, p.problem, p.answer]
        + ([p.messages, dict(p.meta)] if p.messages or p.meta else [])  # as it was without them
        for p in problems
    ]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def _problem(
    row: Row, names: Mapping[str, str], usual: Mapping[str, Sequence[str]], ground_truth: bool
) -> Problem:
    raw: dict[str, object] = {}
    used = set()
    read_from = dict(names)
    for name, their_name in names.items():
        candidates = (their_name, *usual.get(name, ()))
        present = (one for one in candidates if field_of(row.fields, one) not in (MISSING, None))
        there = (one for one in candidates if field_of(row.fields, one) is not MISSING)
        chosen = read_from[name] = next(present, next(there, their_name))
        raw[name] = field_of(row.fields, chosen)
        used.add(chosen)
    if "problem" in usual:
        question = raw["problem"]
        raw["problem"] = _instructed(row.fields, question)
        used |= {"instruction"} if raw["problem"] is not question else set()
    messages, reference = _without_reference(_messages(raw["problem"]))
    listed = raw["answer"] if isinstance(raw["answer"], list) else []
    answers = [_as_text(one) for one in listed]
    if not answers or not all(answers):
        answers = [reference] if reference else []
    values = {}
    for name in ("problem", "answer"):
        value = (
            answers[0] if name == "answer" and answers and not _as_text(raw[name]) else raw[name]
        )
        if name == "problem" and messages:
            value = "\n\n".join(f"{role}: {content}" for role, content in messages)
            if len(messages) == 1 and messages[0][0] == "user":  # a question like any other
                value, messages = messages[0][1], ()
        text = _as_text(value)
        values[name] = FINAL.sub("", text) if name == "answer" else text
        if not values[name] and (name == "problem" or ground_truth):
            raise _missing_field(row, name, read_from[name], value)
    given = raw["id"]
    nameless = given is MISSING or given is None or (isinstance(given, str) and not given.strip())
    id = f"line-{row.number}" if nameless else str(given)
    meta = {
        name: value for name, value in raw.items() if name not in FIELDS and value is not MISSING
    }
    if len(answers) > 1:
        more = meta.get("answers")
        meta["answers"] = [*answers, *(more if isinstance(more, list) else ())]
    for name, value in meta.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise DatasetError(
                f"{row.where}: {names[name]!r}: {error}",
                hint="the value must be representable in JSON",
            ) from None
    if isinstance(row.fields.get(ORIGIN), dict):
        used.add(ORIGIN)
    unread = sizes(row.fields, used)
    return Problem(id, values["problem"], values["answer"], messages, meta, unread)


def _with_rest(problem: Problem, row: Row, known: Collection[str]) -> Problem:
    answers = {fold(name) for name in USUAL["answer"]}
    hidden = {name for name, _ in leaves(row.fields, known) if fold(name) in answers}
    rest = _pruned(row.fields, {*known, *hidden, ORIGIN})
    for name, value in list(rest.items()):
        try:
            json.dumps(value)
        except (TypeError, ValueError):  # a date of a table, say: it is told of as not used
            del rest[name]
    unread = {
        name: size
        for name, size in problem.unread.items()
        if name not in rest and name.split(".")[0] not in rest
    }
    return replace(problem, meta={**rest, **problem.meta}, unread=unread)


def _without_truths(problems: tuple[Problem, ...], ours: Collection[str]) -> tuple[Problem, ...]:
    """Problems without those fields of `meta` that are the ground truth in every row that has them:
    they are the answer under another name. What is `ours` stays."""
    is_truth: dict[str, bool] = {}
    for problem in problems:
        truths = problem.ground_truths
        for name, value in leaves(problem.meta, ours):
            texts = [_as_text(one) for one in (value if isinstance(value, list) else [value])]
            if any(texts):
                same = all(FINAL.sub("", text) in truths for text in texts)
                is_truth[name] = same and is_truth.get(name, True)
    hidden = {name for name, same in is_truth.items() if same}
    return tuple(replace(one, meta=_pruned(one.meta, hidden)) for one in problems)


def _pruned(fields: Mapping[str, Any], hidden: Collection[str], before: str = "") -> dict[str, Any]:
    """Fields without those that are hidden, by their whole names, and objects that lose all."""
    left: dict[str, Any] = {}
    for key, value in fields.items():
        name = f"{before}{key}"
        if name in hidden:
            continue
        inner = _pruned(value, hidden, f"{name}.") if isinstance(value, dict) else value
        if inner or not value:
            left[key] = inner
    return left


def _shaped(row: Row, names: Mapping[str, str], key: str | None, base: int) -> dict[str, Any]:
    """A row's fields with options and context in what is asked; fields that our names are mapped
    to, or that a domain needs, stay where they are. `key` is the field that the answer is mapped
    to: where it names an option, the answer is its letter."""
    fields = _flat(row.fields, key)
    shaped = in_our_shape(fields, row.where, base, key)
    if shaped == fields:
        return dict(row.fields)
    own = {
        name: row.fields[name]
        for ours, name in names.items()
        if ours != "problem" and name in row.fields and name != key
    }
    if key is None:
        return {**own, **shaped}
    if key in fields and key not in shaped:
        shaped[key] = shaped["answer"]
    return {**shaped, **own}


def _flat(fields: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    """Fields with a field of a field beside them, under its whole name."""
    value = MISSING if name is None else field_of(fields, name)
    return fields if name is None or value is MISSING else {**fields, name: value}


def _with_json(row: Row, names: Iterable[str]) -> Row:
    objects = {
        name: json.dumps(row.fields[name], ensure_ascii=False, default=float)
        for name in names
        if isinstance(row.fields.get(name), dict)
    }
    return row._replace(fields={**row.fields, **objects})


def _instructed(fields: Mapping[str, Any], value: object) -> object:
    instruction = fields.get("instruction")
    whole = isinstance(instruction, str) and instruction.strip()
    if not whole or value not in (MISSING, "", *map(fields.get, ABOUT)):
        return value
    about = _as_text(value)
    return f"{whole}\n\n{about}" if about else whole


def _without_reference(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], str]:
    """A conversation up to what is asked, and the assistant's last turns: the reference answer."""
    reference = ""
    while messages and messages[-1][0] == "assistant":
        *rest, (_, content) = messages
        messages, reference = tuple(rest), reference or content
    return messages, reference


def _as_text(value: object) -> str:
    """A text, or a number, true or false as text; nothing for what is none of them."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return ""  # what tables of numbers have where there is none
    return str(value).strip() if isinstance(value, str | int | float | Decimal) else ""


def _missing_field(row: Row, name: str, their_name: str, value: object) -> DatasetError:
    if value is None or (isinstance(value, str | float) and not _as_text(value)):
        return DatasetError(
            f"{row.where}: {their_name!r} is empty",
            hint=f"fill it in, leave the row out, or read another field with --field {name}=NAME",
        )
    if value is MISSING:
        return DatasetError(
            f"{row.where}: no {their_name!r}",
            hint=f"the row has {', '.join(map(str, row.fields)) or 'nothing'}; "
            f"map one with --field {name}=NAME",
        )
    messages = f", or chat messages whose role is {', '.join(ROLES)}" if name == "problem" else ""
    cause = ""
    if name == "problem" and isinstance(value, list):
        cause = f" ({_not_a_conversation(value)})"
    return DatasetError(
        f"{row.where}: {their_name!r} cannot be used{cause}: {value!r}"[:250],
        hint=f"expected text or a number{messages}",
    )


def field_of(value: Any, name: str) -> Any:
    """The field of an object by its whole name, `a.b` being the field b of a; `MISSING` if it is
    not there."""
    if not isinstance(value, Mapping):
        return MISSING
    if name in value:
        return value[name]
    parts = name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        within = value.get(".".join(parts[:cut]))
        if isinstance(within, dict):
            return field_of(within, ".".join(parts[cut:]))
    return MISSING


def _messages(value: object) -> tuple[Message, ...]:
    """The turns of a conversation (`role` and `content`, or ShareGPT's), none for what is none."""
    if not isinstance(value, list):
        return ()
    turns = []
    for turn in value:
        if not isinstance(turn, dict):
            return ()
        role, content = turn.get("role"), _content(turn.get("content"))
        if "from" in turn and "value" in turn:
            role, content = SHAREGPT.get(str(turn["from"])), _content(turn["value"])
        if role not in ROLES or not content.strip():
            return ()
        turns.append((str(role), content))
    return tuple(turns)


def _content(value: object) -> str:
    if not isinstance(value, list):
        return value if isinstance(value, str) else ""
    texts = [part.get("text") if isinstance(part, dict) else part for part in value]
    return "\n".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else ""


def _not_a_conversation(value: list[object]) -> str:
    for number, turn in enumerate(value, 1):
        if _messages([turn]):
            continue
        if not isinstance(turn, dict):
            return f"entry {number} is no message"
        role, spoken = turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))
        if role not in (*ROLES, *SHAREGPT):
            return f"message {number} has the role {role!r}"
        parts = spoken if isinstance(spoken, list) else []
        kinds = [
            part.get("type") for part in parts if isinstance(part, dict) and "text" not in part
        ]
        if kinds:
            return f"message {number} has a part of the type {kinds[0]!r}, which is no text"
        return f"message {number} says nothing"
    return "an empty list"


SHOWN = 6
"""Fields that are named; of more, those with most text."""


def sizes(fields: Mapping[str, Any], used: Collection[str] = ()) -> dict[str, int]:
    """The characters of each field of a row that has text and is none of those `used`."""
    counted = ((name, _size(value)) for name, value in leaves(fields, used))
    return {name: size for name, size in counted if size}


def leaves(
    fields: Mapping[str, Any], used: Collection[str] = (), before: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yields the fields by their whole names, those of objects within as `outer.inner`, but for
    what is `used`."""
    for key, value in fields.items():
        name = f"{before}{key}"
        if name in used:
            continue
        if isinstance(value, dict) and value:
            yield from leaves(value, used, f"{name}.")
        else:
            yield name, value


def _size(value: object) -> int:
    if isinstance(value, list | dict):
        return sum(map(_size, value.values() if isinstance(value, dict) else value))
    return 0 if value is None else len(str(value))


def describe_unread(problems: Iterable[Problem], name: str) -> list[str]:
    """What a person should know of a dataset's rows that is in no problem; nothing where all of
    their text is. `name` is what the dataset is called."""
    unread, whole = Counter[str](), 0
    for problem in problems:
        unread.update(problem.unread)
        whole += problem.row_size
    return [f"{name}: {share(unread, whole)}"] if unread else []


def describe_indices(
    problems: Sequence[Problem], name: str, train: Sequence[Problem] = (), data: str = ""
) -> list[str]:
    """Warns of answers that are numbers of options where the rows of a dataset, called `name`, do
    not tell from where they count, or count otherwise than those of `train`, called `data`."""
    indices = problems[0].indices if problems else None
    before = train[0].indices if train else None
    lines = []
    if indices is not None and not indices.is_certain:
        lines.append(describe_doubt(name))
    if indices is not None and before is not None and before.first != indices.first:
        lines.append(
            f"{name}: its answers are read as option numbers from {indices.first}, those of {data} "
            f"from {before.first}; if both files count alike, write letters in both"
        )
    return lines


def describe_doubt(name: str) -> str:
    """The warning that a dataset does not tell from where its answers count options."""
    return (
        f"{name}: the answers are read as option numbers from 0; none is 0 or the number of "
        "options, so they may count from 1: write letters or the options' texts to be sure"
    )


def share(unread: Mapping[str, int], whole: int) -> str:
    """Which fields are not used, and their share of `whole`, all characters of the rows."""
    names = sorted(unread, key=lambda name: -unread[name])
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    part = 100 * sum(unread.values()) / whole
    percent = f"{part:.0f}%" if part >= 1 else "less than 1%"
    return f"not used: {', '.join(names[:SHOWN])}{more} ({percent} of the text)"
