"""The record of improvements: two decisions each, beginning and end. A problem belongs to one part
(train, gate, heldout) of one improvement for good: no proposal is judged by problems that it was
trained on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from tfgrpo.data import leakage, readers
from tfgrpo.improvement.collection import Row, problems_of, write_rows
from tfgrpo.store.activity.decisions import by_subject, decide, decisions
from tfgrpo.store.address import project_root
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.store import Store

RETURNED = ("given up", "over budget")
"""How improvements end that come to nothing: what no finished step learned from is new again."""
IMPROVEMENT = "improvement"
"""The kind of decisions about improvements."""
FOLDER = "improvements"
"""Where their problems lie, beside the store."""
SHARE = 0.3
"""The share of new problems that is held out, and that for the gate, where no set is named."""
LEARNED = 0.4
"""The share of them that is learned from at least."""


class Part(NamedTuple):
    """Files of an improvement's problems in the project's folder; None: the settings name a set."""

    train: str
    gate: str | None
    heldout: str | None


@dataclass(frozen=True, slots=True)
class Round:
    """One improvement. `problems` are the digests of its problems, `base` the version of `target`
    that it began with; `ended` is its outcome, None while it has none."""

    name: str
    target: str
    base: str
    parts: Part
    problems: tuple[str, ...]
    ended: str | None = None

    @property
    def branch(self) -> str:
        return f"proposal/{self.name}"


def rounds(store: Store, target: str) -> list[Round]:
    """The improvements of a target, oldest first."""
    return [
        Round(
            name,
            target,
            begun.content["base"],
            Part(**begun.content["parts"]),
            tuple(begun.content["problems"]),
            later[-1].content["state"] if later else None,
        )
        for name, (begun, *later) in by_subject(store, IMPROVEMENT).items()
        if begun.content["target"] == target
    ]


def problem_digest(row: Row) -> str:
    """The digest by which an improvement knows a collected problem."""
    return hashlib.sha256(json.dumps(row["problem"], sort_keys=True).encode()).hexdigest()[:16]


def unused(
    store: Store,
    target: str,
    rows: Sequence[Row],
    fields: Mapping[str, str],
    *,
    giving_up: bool = False,
) -> list[Row]:
    """The rows that no improvement of a target was about, by record or files. Of an improvement
    that came to nothing (with `giving_up` also of one under way), only rows that a finished step
    learned from count as used. `fields` maps our names to the data's. Raises DatasetError."""
    used: set[str] = set()
    for one in rounds(store, target):
        if one.ended in RETURNED or (giving_up and one.ended is None):
            used |= _learned_from(store, one, fields)
        else:
            rows_now = chain.from_iterable(_rows_of(store, part) for part in one.parts)
            used |= {*one.problems, *_digests(rows_now, fields)}
    return [row for row in rows if problem_digest(row) not in used]


def _digests(rows: Iterable[readers.Row], fields: Mapping[str, str]) -> Iterator[str]:
    for row in rows:
        for name in {"problem", fields.get("problem", "problem")} & row.fields.keys():
            yield problem_digest({"problem": row.fields[name]})


def _learned_from(store: Store, one: Round, fields: Mapping[str, str]) -> set[str]:
    run = store.runs.find(one.name)
    if run is None:
        return set()
    tags, step = store.tags(), 0
    names: set[str] = set()
    while f"{one.name}/step_{step + 1}" in tags:
        names |= {rollout.problem for rollout in store.runs.rollouts(run, step)}
        step += 1
    id = fields.get("id", "id")
    rows = _rows_of(store, one.parts.train)
    return {*_digests((row for row in rows if str(row.fields.get(id)) in names), fields)}


def sizes(store: Store, one: Round) -> dict[str, int]:
    """Part → how many of an improvement's problems are in it. Raises DatasetError."""
    return {
        name: sum(1 for _ in _rows_of(store, part))
        for name, part in one.parts._asdict().items()
        if part is not None
    }


def _rows_of(store: Store, part: str | None) -> Iterator[readers.Row]:
    path = None if part is None else project_root(store.path) / part
    return readers.read(path) if path is not None and path.is_file() else iter(())


def begin(
    store: Store,
    target: str,
    rows: Sequence[Row],
    fields: Mapping[str, str],
    own: Sequence[str],
) -> Round:
    """Records a new improvement of a target with these rows, and its branch. `fields` maps our
    names to the data's; `own` are the parts that take rows beside `train`."""
    names = {one.subject for one in decisions(store, kind=IMPROVEMENT)}
    name = f"improve-{len(names) + 1}"
    base, root = store.tip(target), project_root(store.path).resolve()
    folder = Path(store.path).parent / FOLDER / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths: dict[str, str] = {}
    for part, portion in split(rows, own).items():
        path = folder / f"{part}.jsonl"
        write_rows(path, mapped(portion, fields))
        if portion:
            paths[part] = str(path.resolve().relative_to(root))
    parts = Part(paths["train"], paths.get("gate"), paths.get("heldout"))
    problems = tuple(map(problem_digest, rows))
    begun = Round(name, target, base.digest.hex(), parts, problems)
    content = {
        "state": "begun",
        "target": target,
        "base": begun.base,
        "parts": parts._asdict(),
        "problems": list(problems),
    }
    with store.operation(f"begin {name}"):
        if begun.branch in store.branches():
            raise InvalidOperation(
                f"there is a branch {begun.branch}", hint="delete or rename it with `tfgrpo branch`"
            )
        store.create_branch(begun.branch, base)
        decide(store, IMPROVEMENT, name, content)
    return begun


def end(store: Store, one: Round, state: str, why: str | None = None, **more: Any) -> None:
    """Records what came of an improvement."""
    decide(store, IMPROVEMENT, one.name, {"state": state, **more}, why=why)


def split(rows: Sequence[Row], parts: Sequence[str]) -> dict[str, list[Row]]:
    """Deals rows into the parts and `train` by digest. A row that is nearly the same as a training
    row is a training row too, and of few rows more go to training than to the other parts."""
    left = sorted(rows, key=problem_digest)
    dealt: dict[str, list[Row]] = {}
    most = (len(rows) - max(1, int(LEARNED * len(rows)))) // max(1, len(parts))
    count = min(max(2, round(SHARE * len(rows))), most)
    for part in parts:
        dealt[part], left = left[:count], left[count:]
    train = problems_of(left)
    for part, portion in dealt.items():
        near = {leak.evaluation for leak in leakage.leaks(train, problems_of(portion))}
        left += [row for row in portion if row["id"] in near]
        dealt[part] = [row for row in portion if row["id"] not in near]
    return {**dealt, "train": left}


def mapped(rows: Iterable[Row], fields: Mapping[str, str]) -> Iterator[Row]:
    """Yields rows with the names of fields that the project's data has."""
    return ({fields.get(name, name): value for name, value in row.items()} for row in rows)
