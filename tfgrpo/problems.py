"""Problems: what the model is asked, and what the right answer is.

A dataset is a JSONL file with a `problem` and an `answer` on every row, and an `id` where there
is one. Everything is checked when it is loaded, before a token is spent.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Json
from tfgrpo.templates import Message

FIELDS = ("problem", "answer", "id")
ROLES = ("system", "user", "assistant")


class DatasetError(TfgrpoError):
    """A dataset that cannot be used; the message names the file and the line."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, its ground truth, and an id that is unique in its dataset.

    A problem may be a conversation: `messages` are its turns, and `problem` the same as text.
    `meta` holds what else its domain needs (criteria, a persona, a level), as JSON.
    """

    id: str
    problem: str
    answer: str = ""
    messages: tuple[Message, ...] = ()
    meta: Json = field(default_factory=dict, hash=False)


def load(
    path: Path,
    fields: Mapping[str, str] | None = None,
    *,
    extra: Sequence[str] = (),
    ground_truth: bool = True,
) -> tuple[Problem, ...]:
    """Reads a JSONL dataset.

    `fields` maps our names (problem, answer, id, and those in `extra`) to the file's. Fields
    named in `extra` go into `meta` where a row has them. A problem is a text, or a list of chat
    messages. Rows without an id are called after their line, `line-7`. Raises DatasetError at
    the first row that cannot be used; without `ground_truth` one may lack an answer.
    """
    ours = (*FIELDS, *extra)
    names = {name: name for name in ours} | dict(fields or {})
    unknown = set(names) - set(ours)
    if unknown:
        raise DatasetError(
            f"there is no field {min(unknown)!r}", hint="map one of: " + ", ".join(ours)
        )
    problems: dict[str, Problem] = {}
    for number, line in enumerate(_read(path).split("\n"), 1):
        if line.strip():
            problem = _row(path, number, line, names, ground_truth)
            if problem.id in problems:
                raise DatasetError(
                    f"{path}:{number}: the id {problem.id!r} stands twice",
                    hint="give every row its own id, or none at all",
                )
            problems[problem.id] = problem
    if not problems:
        raise DatasetError(f"{path} holds no problems", hint="one JSON object a line is expected")
    return tuple(problems.values())


def digest(problems: Sequence[Problem]) -> str:
    """Returns a SHA-256 in hex over the problems in order."""
    rows = [
        [p.id, p.problem, p.answer]
        + ([p.messages, dict(p.meta)] if p.messages or p.meta else [])  # as it was without them
        for p in problems
    ]
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()


def batches(
    problems: Sequence[Problem], size: int, *, epoch: int, seed: int
) -> list[tuple[Problem, ...]]:
    """Returns the batches of an epoch: shuffled anew for each, the last partial one included."""
    order = list(problems)
    random.Random(f"{seed}/{epoch}").shuffle(order)
    return [tuple(order[i : i + size]) for i in range(0, len(order), size)]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise DatasetError(f"no file {path}", hint="name a JSONL file of problems") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(f"cannot read {path}: {error}", hint="UTF-8 JSONL is expected") from None


def _row(
    path: Path, number: int, line: str, names: Mapping[str, str], ground_truth: bool
) -> Problem:
    where = f"{path}:{number}"
    try:
        row = json.loads(line)
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DatasetError(
            f"{where}: holds half a character", hint="write whole Unicode characters"
        ) from None
    except (ValueError, RecursionError) as error:
        raise DatasetError(
            f"{where}: not JSON: {error}"[:200], hint="one JSON object a line is expected"
        ) from None
    if not isinstance(row, dict):
        raise DatasetError(f"{where}: not an object", hint='write {"problem": …, "answer": …}')
    messages = _messages(row.get(names["problem"]))
    values = {}
    for name in ("problem", "answer"):
        value = row.get(names[name])
        if name == "problem" and messages:
            value = "\n\n".join(f"{role}: {content}" for role, content in messages)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            value = ""
        values[name] = str(value).strip()
        if not values[name] and (name == "problem" or ground_truth):
            raise DatasetError(
                f"{where}: no {names[name]!r}",
                hint=f"the row has {', '.join(map(str, row)) or 'nothing'}; "
                f"map one with --field {name}=NAME",
            )
    id = row.get(names["id"])
    meta = {name: row[names[name]] for name in names if name not in FIELDS and names[name] in row}
    id = f"line-{number}" if id is None else str(id)
    return Problem(id, values["problem"], values["answer"], messages, meta)


def _messages(value: object) -> tuple[Message, ...]:
    """Returns the turns that a problem consists of; none when it is no conversation."""
    if not isinstance(value, list):
        return ()
    turns = []
    for turn in value:
        if not isinstance(turn, dict) or turn.get("role") not in ROLES:
            return ()
        if not isinstance(turn.get("content"), str) or not turn["content"].strip():
            return ()
        turns.append((str(turn["role"]), str(turn["content"])))
    return tuple(turns)
