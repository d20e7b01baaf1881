"""What the contract tests of the port append: events, versions, moves, runs, calls, scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence

from tfgrpo.store import Op, RefMove, Version
from tfgrpo.store.activity.runs import Call, Evaluation, RolloutRow, Run
from tfgrpo.store.canonical import canonical
from tfgrpo.store.port import CallValues, RolloutValues
from tfgrpo.store.records import EventRow
from tfgrpo.store.sql.port import Port
from tfgrpo.store.sql.runs import SqlRecords

Another = Callable[[], Port]


def event(row: int, op: Op = "ADD", experience: str = "", **fields: object) -> EventRow:
    blank = EventRow(
        row=row,
        op=op,
        experience=experience or f"e{row:011}",
        text=f"text {row}" if op in ("ADD", "MODIFY") else None,
        reason="why",
        evidence='{"reward":1}',
        replaces=None,
        birth=None,
        seal=b"\x01" * 32,
        salt=b"\x02" * 16,
        schema=1,
    )
    return blank._replace(**fields)  # type: ignore[arg-type]


def version(number: int, position: int, events: int, **fields: object) -> Version:
    blank = Version(
        number=number,
        digest=hashlib.sha256(str(number).encode()).digest(),
        parent=number - 1 if number else None,
        merged=None,
        position=position,
        events=events,
        author="ann",
        time=number * 1000,
        message=f"m{number}",
        meta={},
    )
    return blank._replace(**fields)  # type: ignore[arg-type]


def move(name: str, to: int | None, **fields: object) -> RefMove:
    blank = RefMove(0, 0, name, to, None, None, None, "ann", 1, "act")
    return blank._replace(**fields)  # type: ignore[arg-type]


def record(port: Port, number: int, rows: Sequence[EventRow], position: int = 0) -> Version:
    """Records a version of these rows in a transaction of its own."""
    new = version(number, rows[-1].row if rows else position, len(rows))
    with port.transaction():
        port.append_version(new, rows)
    return new


def run(name: str, base: int = 0, **fields: object) -> Run:
    config = {"seed": 1, "note": "ü"}
    blank = Run(77, name, f"uid-{name}", "main", base, f"digest {name}", config, "ann", 5)
    return blank._replace(**fields)  # type: ignore[arg-type]


def call(key: str, run: int | None = None, **fields: object) -> Call:
    blank = Call(
        key=key.encode(),
        run=run,
        stage="rollout",
        step=0,
        model="m",
        request='["the same request"]',
        answer={"content": f"hi {key}", "finish_reason": "stop"},
        prompt_tokens=10,
        cached_tokens=3,
        completion_tokens=5,
        reasoning_tokens=1,
        attempts=2,
        seconds=0.5,
        time=123,
    )
    return blank._replace(**fields)  # type: ignore[arg-type]


def rollout(run: int, sample: int = 0, **fields: object) -> RolloutRow:
    verdict = {"answer": "42"}
    blank = RolloutRow(run, 0, "p", sample, 0, ("6b", "6c"), "answered", 1.0, verdict, 5)
    return blank._replace(**fields)  # type: ignore[arg-type]


def evaluation(version: int, digest: str = "d", **fields: object) -> Evaluation:
    blank = Evaluation(77, version, "aime", digest, {"k": 1}, {"mean": 0.5}, 6)
    return blank._replace(**fields)  # type: ignore[arg-type]


def call_values(one: Call) -> CallValues:
    """Returns a call as a writer takes it."""
    return (*one[:6], canonical(one.answer).decode(), *one[7:])


def rollout_values(one: RolloutRow) -> RolloutValues:
    """Returns a rollout as a writer takes it."""
    verdict = canonical(one.verdict).decode()
    return (*one[:5], json.dumps(one.calls), *one[6:8], verdict, one.time)


def one_call(records: SqlRecords, key: bytes) -> Call | None:
    """Returns the call of that key."""
    return next(iter(records.calls_by_key([key])), None)


def made(port: Port, new: Run) -> Run:
    """Records a run in a transaction of its own; returns it with its id."""
    with port.transaction():
        port.records.append_run(new)
    (found,) = port.records.runs(name=new.name)
    return found


def write(port: Port, calls: Sequence[Call] = (), rollouts: Sequence[RolloutRow] = ()) -> None:
    """Appends to the journal with a writer of its own."""
    writer = port.records.writer()
    try:
        writer.append([*map(call_values, calls)], [*map(rollout_values, rollouts)])
    finally:
        writer.close()
