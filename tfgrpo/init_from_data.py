"""From a table of somebody's own to a folder that trains: `tfgrpo init --from data.csv`.

Rows are split into those to learn from, for the gate, and sealed; equal texts stay together, a text
with two answers is left out. Labels are dealt out one by one, and sizes fit a local model in two or
three hours.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeAlias

from tfgrpo.costs.prices import LOCAL
from tfgrpo.data import readers
from tfgrpo.data.cell_types import Column, is_empty, look_alikes, read_column
from tfgrpo.data.column_roles import (
    ANSWERS,
    ColumnGuess,
    Kind,
    answer_texts,
    as_text,
    guess_columns,
    is_filled,
)
from tfgrpo.data.compressed_files import DatasetError
from tfgrpo.data.problems import describe_doubt, of_rows, share, sizes
from tfgrpo.data.readers import Row, row_lines
from tfgrpo.data.row_shapes import in_our_shape, option_indices
from tfgrpo.model.settings import DEFAULT_MODEL
from tfgrpo.settings import FILE, LOCAL_TOKENS, SHORT_ANSWERS, SHORT_TOKENS, fitting_samples
from tfgrpo.store.atomic_write import SHARED, write
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.history.allowed_names import name_after
from tfgrpo.toml_text import toml_comment, toml_value
from tfgrpo.wording import plural

SHARES = {"sealed": 0.3, "gate": 0.2}
"""The share of the rows that each file gets at most, beside those to learn from."""
FEWEST = 12
NO_GATE = 40
"""Rows below which none are kept for a gate: it could tell nothing."""


Setting: TypeAlias = tuple[str, object, str]
"""A name, its value, and the comment behind it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many problems are learned from, gate, are held out, at most, and make a step."""

    train: int
    gate: int
    sealed: int
    batch: int


REMOTE = Sizes(train=200, gate=50, sealed=100, batch=100)
LOCAL_SIZES: dict[Kind, Sizes] = {
    "choice": Sizes(train=48, gate=64, sealed=48, batch=16),
    "exact": Sizes(train=32, gate=24, sealed=36, batch=16),
    "json": Sizes(train=24, gate=16, sealed=32, batch=12),
    "math": Sizes(train=16, gate=0, sealed=24, batch=8),
    "rubric": Sizes(train=16, gate=0, sealed=20, batch=8),
}
"""What a model on this machine does in two or three hours at ten tokens a second: 1,200 answers of
a line or 340 worked solutions, and what is learned from them. Of the gate and at the end each
problem is attempted once where there are so many, and more often where there are fewer."""


@dataclass(frozen=True, slots=True)
class OwnData:
    """What somebody says about their data and model; what is None is guessed."""

    problem: str | None = None
    answers: tuple[str, ...] = ()
    kind: Kind | None = None
    model: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None

    @property
    def is_local(self) -> bool:
        """Whether the model runs on this machine, in our own process."""
        if self.model is None:
            return self.base_url is None
        return self.model.startswith(LOCAL)


@dataclass(frozen=True, slots=True)
class DataPlan:
    """The files to write for a table, by name, and what was seen and chosen, a line each."""

    files: Mapping[str, str]
    lines: tuple[str, ...]
    columns: ColumnGuess
    settings: Mapping[str, Mapping[str, object]]
    """The tables that the settings file has to be read as, before it is trusted."""


def read_table(path: Path) -> list[Row]:
    """The rows of a file of any usual kind. Raises DatasetError."""
    return [row._replace(fields=_with_reference(row.fields)) for row in readers.read(path)]


def shaped(rows: Sequence[Row], own: OwnData) -> tuple[list[Row], bool]:
    """Rows in our shape, unless somebody has named the fields, and whether they tell from where
    answers count options. Raises DatasetError."""
    if own.problem is not None or own.answers:
        return list(rows), True
    first, is_certain = option_indices(row.fields for row in rows) or (0, True)
    fitted = [row._replace(fields=in_our_shape(row.fields, row.where, first)) for row in rows]
    return fitted, is_certain


def _with_reference(row: Mapping[str, Any]) -> dict[str, Any]:
    turns, fields = row.get("messages"), dict(row)
    if not isinstance(turns, list) or any(is_filled(row.get(name)) for name in ANSWERS):
        return fields
    left = list(turns)
    while left and isinstance(left[-1], dict) and left[-1].get("role") == "assistant":
        fields["answer"] = left.pop().get("content")
    return fields | {"messages": left}


def plan_files(path: Path, rows: Sequence[Row], own: OwnData) -> DataPlan:
    """What to write for the rows of a table. Raises DatasetError where too few can be used."""
    rows, is_certain = shaped(rows, own)
    columns = guess_columns([row.fields for row in rows], own.problem, own.answers, own.kind)
    several = columns.answers if columns.kind == "json" and len(columns.answers) > 1 else ()
    scalars = {name: read_column(name, [row.fields.get(name) for row in rows]) for name in several}
    items, dropped = _items(rows, columns, scalars)
    if columns.kind == "choice":
        items, misspelled = _well_spelled(items)
        dropped += misspelled
    if len(items) < FEWEST:
        raise DatasetError(
            f"{path} has {len(items)} rows that can be used, and {FEWEST} are the fewest",
            hint=f"asked is {columns.problem!r}, answered {', '.join(columns.answers) or 'nothing'}"
            "; --problem and --answer name others",
        )
    sizes = LOCAL_SIZES[columns.kind] if own.is_local else REMOTE
    split = _split(items, sizes, columns.kind)
    labels = _labels(items) if columns.kind == "choice" else Counter[str]()
    files = {f"data/{name}.jsonl": "".join(row_lines(part)) for name, part in split.items() if part}
    if columns.kind == "choice":
        files["labels.txt"] = "".join(f"{label}\n" for label in sorted(labels))
    elif columns.kind == "json":
        files["fields.toml"] = _fields_toml(items)
    elif columns.kind == "rubric":
        files["rubric.toml"] = RUBRIC
    used = min(len(split["train"]), sizes.train)
    learned = {_label(item) for item in split["train"][:used]} if labels else set()
    unseen = len({_label(item) for item in split["heldout"]} - learned) if labels else 0
    tables = {
        "model": _model_rows(own),
        "train": _train_rows(path, own, columns.kind, split, sizes),
    }
    files[FILE] = _settings(path, own, **tables)
    settings = {table: {name: value for name, value, _ in rows} for table, rows in tables.items()}
    listed = ", ".join(f"{name} {count}" for name, count in labels.most_common())
    named = ", ".join(map(repr, columns.answers))
    answered = f", {named} is the answer" if named else ", and no field is the answer"
    lines = [
        f"{path}: {len(rows):,} rows; {columns.problem!r} is asked{answered}",
        *columns.why,
        *(note for column in scalars.values() for note in column.notes),
        *([] if is_certain else [describe_doubt(str(path))]),
        *_unread(rows, columns),
        *dropped,
        *(_remarks(items) if columns.kind == "math" else ()),
        *([f"{len(labels)} labels, in labels.txt: {listed}"] if labels else []),
        *[f"{plural(unseen, 'held-out label')} in no problem that is learned from"][: bool(unseen)],
        f"{len(split['train'])} to learn from (of which {used} are used), {len(split['gate'])} for "
        f"the gate, {len(split['heldout'])} held out and sealed",
    ]
    return DataPlan(files, tuple(lines), columns, settings)


def _remarks(items: Sequence[Mapping[str, Any]]) -> list[str]:
    """What training will say of how the ground truths are read."""
    from tfgrpo.domains.math import DOMAIN
    from tfgrpo.domains.registry import with_data

    fields = ({"problem": item["problem"], "answer": item["answer"]} for item in items)
    problems = of_rows((Row(n, "", row) for n, row in enumerate(fields)), "the rows")
    domain, _ = with_data(DOMAIN, "math", problems)
    return [f"careful: {line}" for line in domain.remarks(problems)] if domain.remarks else []


def _unread(rows: Sequence[Row], columns: ColumnGuess) -> list[str]:
    used = {columns.problem, *columns.answers, *filter(None, [columns.id])}
    unread, whole = Counter[str](), Counter[str]()
    for row in rows:
        unread.update(sizes(row.fields, used))
        whole.update(sizes(row.fields))
    return [share(unread, whole.total())] if unread else []


def write_files(folder: Path, plan: DataPlan) -> list[Path]:
    """Writes the files of a plan, all or none. Raises InvalidOperation where one is there."""
    paths = {folder / name: text.encode() for name, text in plan.files.items()}
    for path, content in paths.items():
        if path.exists() and path.read_bytes() != content:
            raise InvalidOperation(
                f"{path} is there already, with other content",
                hint="move it away, or run this in another folder",
            )
    for path, content in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, content, mode=SHARED)
    return list(paths)


def _items(
    rows: Sequence[Row], columns: ColumnGuess, scalars: Mapping[str, Column]
) -> tuple[list[dict[str, Any]], list[str]]:
    items: dict[str, dict[str, Any]] = {}
    conflicts: set[str] = set()
    empty = twice = 0
    for number, _, row in rows:
        problem = row.get(columns.problem)
        answer = _answer(row, columns, scalars)
        if not is_filled(problem) or (columns.answers and not answer):
            empty += 1
            continue
        question = problem if isinstance(problem, list) else as_text(problem)
        key = " ".join(as_text(problem).casefold().split())
        id = as_text(row.get(columns.id)) if columns.id else f"line-{number}"
        item = {"id": id, "problem": question} | ({"answer": answer} if answer else {})
        if key in items:
            twice += 1
            if items[key].get("answer") != answer and answer:
                conflicts.add(key)
            continue
        items[key] = item
    left = [item for key, item in items.items() if key not in conflicts]
    out = {
        "rows without a text or an answer": empty,
        "rows with a text that was there already": twice,
        "texts that have two different answers": len(conflicts),
    }
    return left, [f"left out: {count} {what}" for what, count in out.items() if count]


def _labels(items: Sequence[Mapping[str, Any]]) -> Counter[str]:
    return Counter(label for item in items for label in answer_texts(item["answer"]))


def _well_spelled(items: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    alike = look_alikes(_labels(items))
    lines = [f"{pair}: make them one if they are" for pair in alike if not pair.is_rare]
    rare = {pair.label: pair for pair in alike if pair.is_rare}
    for label, pair in rare.items():
        ids = [item["id"] for item in items if label in answer_texts(item["answer"])]
        lines.append(f"left out: {pair}; correct {', '.join(ids[:5])}, or add it to labels.txt")
    return [item for item in items if not rare.keys() & {*answer_texts(item["answer"])}], lines


def _answer(
    row: Mapping[str, Any], columns: ColumnGuess, scalars: Mapping[str, Column]
) -> str | list[str]:
    if not columns.answers:
        return ""
    if scalars:
        values = {name: _scalar(row.get(name), column) for name, column in scalars.items()}
        if all(value is None for value in values.values()):
            return ""
        return json.dumps(values, ensure_ascii=False, default=float)
    value = row.get(columns.answers[0])
    if columns.kind == "json":
        return as_text(value)
    texts = answer_texts(value)
    if columns.kind == "choice":
        texts = tuple(dict.fromkeys(" ".join(text.split()) for text in texts))
    return texts[0] if len(texts) == 1 else list(texts)


def _scalar(cell: object, column: Column) -> object:
    if is_empty(cell):
        return None
    return column.read(cell.strip()) if isinstance(cell, str) else cell


def _split(
    items: Sequence[dict[str, Any]], sizes: Sizes, kind: Kind
) -> dict[str, list[dict[str, Any]]]:
    order = list(items)
    random.Random("tfgrpo/own data").shuffle(order)
    count = len(order)
    held = min(sizes.sealed, max(4, round(SHARES["sealed"] * count)))
    gated = 0 if count < NO_GATE else min(sizes.gate, round(SHARES["gate"] * count))
    if kind == "choice":
        return _split_labels(order, {"heldout": held, "gate": gated})
    heldout, gate = order[:held], order[held : held + gated]
    return {"train": order[held + gated :], "gate": gate, "heldout": heldout}


def _split_labels(
    items: Sequence[dict[str, Any]], wanted: Mapping[str, int]
) -> dict[str, list[dict[str, Any]]]:
    """The items of every file, of which `wanted` says the sizes beside train: of each label a
    file gets its share, and train at least one. Labels that are held out come first there."""
    piles = _piles(items)
    sizes = {label: len(pile) for label, pile in piles.items()}
    split: dict[str, list[dict[str, Any]]] = {}
    for name, size in wanted.items():
        room = {label: len(pile) - 1 for label, pile in piles.items()}
        if sum(room.values()) < size:  # hardly a label has two
            room = {label: len(pile) for label, pile in piles.items()}
        counts = _shares(sizes, size, room)
        split[name] = _dealt([piles[label].pop() for label in piles for _ in range(counts[label])])
    order = [_label(item) for part in split.values() for item in part]
    place = {label: number for number, label in reversed(list(enumerate(order)))}
    labels = sorted(piles, key=lambda label: place.get(label, len(order)))
    return {"train": _dealt([item for label in labels for item in piles[label]]), **split}


def _shares(sizes: Mapping[str, int], size: int, room: Mapping[str, int]) -> dict[str, int]:
    """How many each label gives to a file of a size: its share, and where that is no whole
    number those with the largest remainders one more; none more than it has room for."""
    total = sum(sizes.values())
    exact = {label: size * count / total for label, count in sizes.items()}
    counts = {label: int(share) for label, share in exact.items()}
    by_remainder = sorted(filter(room.get, sizes), key=lambda label: counts[label] - exact[label])
    for label in by_remainder[: size - sum(counts.values())]:
        counts[label] += 1
    return {label: min(count, room[label]) for label, count in counts.items()}


def _label(item: Mapping[str, Any]) -> str:
    return next(iter(answer_texts(item["answer"])), "")


def _piles(items: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    piles: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        piles.setdefault(_label(item), []).append(item)
    return piles


def _dealt(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    turns = zip_longest(*_piles(items).values())
    return [item for turn in turns for item in turn if item is not None]


DOMAINS: dict[Kind, tuple[str, str]] = {
    "math": ("math", "numbers and formulas, in a box (docs/verification.md)"),
    "exact": ("exact", "a text, letter by letter; exact:case=ignore for less"),
    "choice": ("choice:labels.txt", "one of the labels in labels.txt"),
    "json": ("json:fields.toml", "an object, by the rules in fields.toml"),
    "rubric": ("rubric:rubric.toml", "criteria: write your own into rubric.toml"),
}
RUBRIC = """\
# What a good answer is like. Each criterion counts by its weight (docs/conversations.md).

[[criteria]]
name = "keep to 120 words"
max_words = 120

[[criteria]]
name = "answer what was asked"
question = "Does the answer say what the message asks for?"
weight = 2
"""


def _train_rows(
    path: Path,
    own: OwnData,
    kind: Kind,
    split: Mapping[str, Sequence[object]],
    sizes: Sizes,
) -> list[Setting]:
    local = own.is_local
    used = min(len(split["train"]), sizes.train)
    batch = -(-used // max(1, -(-used // sizes.batch)))
    tokens = SHORT_ANSWERS.get(kind, LOCAL_TOKENS) if local else SHORT_TOKENS
    if kind in ("math", "rubric") and not local:
        tokens = 16_384
    train = "data/train.jsonl" if used == len(split["train"]) else f"data/train.jsonl:{used}"
    rows: list[Setting] = [
        ("run", name_after(path.stem), "what runs are called"),
        ("domain", *DOMAINS[kind]),
        ("data", train, f"{len(split['train'])} problems to learn from; :N takes the first N"),
    ]
    if split["gate"]:
        rows.append(("gate", "data/gate.jsonl", "each step has to prove itself on these"))
    samples = fitting_samples(sizes.sealed, len(split["heldout"])) if local else 2
    return [
        *rows,
        ("sealed", "data/heldout.jsonl", "compared once, at the end; look at them only then"),
        ("epochs", 3, "passes over the problems"),
        ("batch_size", batch, "problems of a step; each step makes a version"),
        ("group_size", 6 if local else 5, "attempts at each problem"),
        ("max_tokens", tokens, "the longest answer" + (", as a local model is slow" * local)),
        ("heldout_samples", samples, "attempts at each problem that the library is checked on"),
    ]


def _settings(path: Path, own: OwnData, model: list[Setting], train: list[Setting]) -> str:
    url = '# base_url = "http://…/v1"        # an OpenAI-compatible endpoint'
    key = '# api_key_env = "…"               # the variable with its key'
    lines = [
        toml_comment(f"Written by `tfgrpo init --from {path.name}`."),
        "# `tfgrpo train --estimate` says what it takes, `tfgrpo train` begins; flags win.",
        "",
        "[model]",
        *_table(model),
        *([] if own.base_url else [url]),
        *([] if own.api_key_env else [key]),
        "",
        "[train]",
        *_table(train),
        "# agent_objective = …             # what attempts are for, in your own words",
        "# learning_objective = …          # what is to be learned",
        "",
    ]
    return "\n".join(lines)


def _model_rows(own: OwnData) -> list[Setting]:
    rows: list[Setting] = []
    if own.model or not own.base_url:  # else the server is asked which it has
        rows.append(("model", own.model or DEFAULT_MODEL, "local:NAME, or a name at base_url"))
    if own.base_url:
        rows.append(("base_url", own.base_url, "an OpenAI-compatible endpoint"))
    if own.api_key_env:
        rows.append(("api_key_env", own.api_key_env, "the variable with its key"))
    return rows


def _table(rows: Sequence[Setting]) -> list[str]:
    lines = [f"{name} = {toml_value(value)}" for name, value, _ in rows]
    width = min(34, max(map(len, lines)) + 2)
    return [f"{line:<{width}}  # {about}" for line, (_, _, about) in zip(lines, rows, strict=True)]


def _fields_toml(items: Sequence[Mapping[str, Any]]) -> str:
    from tfgrpo.data.problems import Problem
    from tfgrpo.domains.json_fields import FieldRules, fields_in

    golds = [Problem(item["id"], "?", item["answer"]) for item in items]
    fields = json.loads(fields_in(golds, FieldRules()))["fields"]
    lines = [
        '# How each field is compared. For all: tolerance = 0.01 (or "1%"), case = "ignore",',
        '# accents, punctuation and order = "ignore", extra = "wrong", schema = "schema.json".',
    ]
    about = '# description = "…"               # told to the model; also weight, tolerance'
    for name, rule in fields.items():
        kind = toml_value(rule.get("type", "any"))
        lines += ["", f"[fields.{toml_value(name)}]", f"type = {kind}", about]
    return "\n".join([*lines, ""])
