"""Problems: what the model is asked, and what the right answer is.

A dataset is a JSONL file with a `problem` and an `answer` on every row, and an `id` where there
is one. Everything is checked when it is loaded, before a token is spent.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tfgrpo.store.errors import TfgrpoError

FIELDS = ("problem", "answer", "id")


class DatasetError(TfgrpoError):
    """A dataset that cannot be used; the message names the file and the line."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem, its ground truth, and an id that is unique in its dataset."""

    id: str
    problem: str
    answer: str


def load(path: Path, fields: Mapping[str, str] | None = None) -> tuple[Problem, ...]:
    """Reads a JSONL dataset.

    `fields` maps our names (problem, answer, id) to the file's. Rows without an id are called
    after their line, `line-7`. Raises DatasetError at the first row that cannot be used.
    """
    names = {name: name for name in FIELDS} | dict(fields or {})
    unknown = set(names) - set(FIELDS)
    if unknown:
        raise DatasetError(
            f"there is no field {min(unknown)!r}", hint="map one of: " + ", ".join(FIELDS)
        )
    problems: dict[str, Problem] = {}
    for number, line in enumerate(_read(path).split("\n"), 1):
        if line.strip():
            problem = _row(path, number, line, names)
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
    rows = [[p.id, p.problem, p.answer] for p in problems]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


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


def _row(path: Path, number: int, line: str, names: Mapping[str, str]) -> Problem:
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
    values = {}
    for name in ("problem", "answer"):
        value = row.get(names[name])
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            value = ""
        values[name] = str(value).strip()
        if not values[name]:
            raise DatasetError(
                f"{where}: no {names[name]!r}",
                hint=f"the row has {', '.join(map(str, row)) or 'nothing'}; "
                f"map one with --field {name}=NAME",
            )
    id = row.get(names["id"])
    return Problem(f"line-{number}" if id is None else str(id), values["problem"], values["answer"])
