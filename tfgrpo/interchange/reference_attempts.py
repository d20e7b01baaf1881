"""Attempts that the reference implementation recorded, as a run of this store.

The rows of its `step_N/rollout.jsonl` become the attempts of a finished run with the model
`imported`, and their problems a dataset. Nothing is learned from them or paid for them. One that
ended in an error has no reward here: an outage is no wrong answer.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tfgrpo.data import problems, readers
from tfgrpo.data.readers import DatasetError, Row
from tfgrpo.model.settings import ModelSettings
from tfgrpo.settings import TrainSettings
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.atomic_write import SHARED, replacing
from tfgrpo.store.canonical import canonical, new_id
from tfgrpo.store.errors import InvalidName
from tfgrpo.store.history.allowed_names import check_name, name_after
from tfgrpo.store.store import Store

FILE = "rollout.jsonl"
STEP = re.compile(r"step_(\d{1,6})\Z")
MODEL = "imported"
HINT = "a row has problem, groundtruth, response and reward, as in step_N/rollout.jsonl"


class ImportedRun(NamedTuple):
    """What became of recorded attempts: the run, the dataset of their problems, and how many
    attempts, problems and steps there are; `unscored` of the attempts have no reward."""

    run: Run
    dataset: Path
    attempts: int
    problems: int
    steps: int
    unscored: int


class PastAttempt(NamedTuple):
    """One attempt as it was recorded elsewhere."""

    step: int
    problem: str
    answer: str
    response: str
    messages: tuple[Mapping[str, Any], ...]
    reward: float | None
    error: str


def import_attempts(store: Store, root: Path, path: Path, name: str | None = None) -> ImportedRun:
    """Records the attempts in a `rollout.jsonl`, or in a folder of steps, as a run called `name` or
    as the folder, and their problems as `<name>-problems.jsonl` in `root`. Raises DatasetError with
    file and line, and InvalidName for what is there already."""
    attempts = [attempt for file, step in _files(path) for attempt in _attempts(file, step)]
    if not attempts:
        raise DatasetError(f"{path} has no attempts in it", hint=HINT)
    folder = path.resolve() if path.is_dir() else path.resolve().parent
    default = folder.parent.name if STEP.match(folder.name) else folder.name
    run_name = name or name_after(default, MODEL)
    check_name("run", run_name)
    dataset = root / f"{run_name}-problems.jsonl"
    if store.runs.find(run_name) is not None or dataset.exists():
        raise InvalidName(
            f"there is already a run {run_name}, or its {dataset.name}",
            hint="choose another name with --run",
        )
    ids: dict[tuple[str, str], str] = {}
    for attempt in attempts:
        ids.setdefault((attempt.problem, attempt.answer), f"problem-{len(ids) + 1}")
    with replacing(dataset, mode=SHARED) as out:
        for (problem, answer), id in ids.items():
            row = {"id": id, "problem": problem, "answer": answer}
            out.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
    try:
        run = _record(store, run_name, dataset, attempts, ids, path)
    except BaseException:
        if store.runs.find(run_name) is None:  # else the run has need of its problems
            dataset.unlink(missing_ok=True)
        raise
    return ImportedRun(
        run,
        dataset,
        len(attempts),
        len(ids),
        len({attempt.step for attempt in attempts}),
        sum(attempt.reward is None for attempt in attempts),
    )


def _record(
    store: Store,
    name: str,
    dataset: Path,
    attempts: list[PastAttempt],
    ids: Mapping[tuple[str, str], str],
    path: Path,
) -> Run:
    base = store.head.version.number
    contents = [_content(attempt) for attempt in attempts]
    groups = Counter((attempt.step, ids[attempt[1:3]]) for attempt in attempts)
    settings = TrainSettings(
        data=dataset.name,
        data_digest=problems.digest(problems.load(dataset, ground_truth=False)),
        models=ModelSettings(model=MODEL),
        group_size=max([2, *groups.values()]),
        batch_size=len(ids),
        epochs=1,
        branch=store.head.branch or "main",
    )
    config = settings.model_dump(mode="json")
    run = store.runs.create(name, new_id(), settings.branch, base, config, store.author)
    samples: Counter[tuple[int, str]] = Counter()
    now = time.time_ns() // 1000
    rows = []
    for attempt, content in zip(attempts, contents, strict=True):
        id = ids[attempt.problem, attempt.answer]
        sample = samples[attempt.step, id]
        samples[attempt.step, id] += 1
        outcome = "failed" if attempt.error else "answered"
        outcome = "unverifiable" if not attempt.error and attempt.reward is None else outcome
        rows.append(
            (run.id, attempt.step, id, sample, base, "[]", outcome, attempt.reward, content, now)
        )
    with closing(store.port.records.writer()) as writer:
        writer.append([], rows)
    store.runs.note(run, "finished", f"imported from {path.name}")
    return run


def _content(attempt: PastAttempt) -> str:
    verdict = {
        "answer": None,
        "reason": attempt.error or "as recorded by the reference implementation",
        "response": attempt.response,
        "messages": list(attempt.messages),
    }
    return canonical(verdict).decode()


def _files(path: Path) -> Iterator[tuple[Path, int]]:
    if not path.is_dir():
        named = STEP.match(path.resolve().parent.name)
        yield path, int(named[1]) if named else 0
        return
    steps = {
        int(match[1]): folder / FILE
        for folder in path.iterdir()
        if (match := STEP.match(folder.name)) and (folder / FILE).is_file()
    }
    if not steps and (path / FILE).is_file():
        steps = {0: path / FILE}
    if not steps:
        raise DatasetError(f"{path} has no step_N/{FILE} in it", hint="give a rollout.jsonl")
    for step in sorted(steps):
        yield steps[step], step


def _attempts(path: Path, step: int) -> Iterator[PastAttempt]:
    for row in readers.read(path):
        problem = row.fields.get("problem", row.fields.get("raw_question"))
        if not isinstance(problem, str) or not problem.strip():
            raise DatasetError(f"{row.where}: no 'problem'", hint=HINT)
        answer = row.fields.get("groundtruth", row.fields.get("correct_answer"))
        response = row.fields.get("response")
        error = row.fields.get("error")
        yield PastAttempt(
            step,
            problem.strip(),
            "" if answer is None else str(answer).strip(),
            response if isinstance(response, str) else "",
            tuple(_followed(row, response if isinstance(response, str) else "")),
            None if error else _reward(row),
            " ".join(str(error).split())[:200] if error else "",
        )


def _reward(row: Row) -> float | None:
    reward = row.fields.get("reward")
    if reward is None:
        return None
    if not isinstance(reward, int | float) or not 0 <= reward <= 1:
        raise DatasetError(
            f"{row.where}: 'reward' is {reward!r}"[:200], hint="a number from 0 to 1 is expected"
        )
    return float(reward)


def _followed(row: Row, response: str) -> Iterator[dict[str, Any]]:
    trajectories = row.fields.get("trajectories")
    last = trajectories[-1] if isinstance(trajectories, list) and trajectories else {}
    turns = last.get("trajectory") if isinstance(last, dict) else None
    began = False
    for turn in turns if isinstance(turns, list) else ():
        role = turn.get("role") if isinstance(turn, dict) else None
        if not isinstance(role, str):
            continue
        began = began or role not in ("system", "developer", "user")
        if began:
            content = turn.get("content")
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            yield {"role": role, "content": "" if content is None else text}
    if not began:
        yield {"role": "assistant", "content": response}
