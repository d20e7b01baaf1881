"""JSONL of events: the whole history of a library, an event a line, oldest first.

It is the line of first parents, in which a merge's operations are its own. A version that put its
library in another order has a line `MOVE` with the order. Reading it makes versions signed by who
reads; the file's authors and times are kept beside them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tfgrpo.interchange.format_types import Batch, Content, Format, SourceFile
from tfgrpo.interchange.library_files import Outgoing
from tfgrpo.store.canonical import is_id
from tfgrpo.store.history.library_order import ORDER, ids_of
from tfgrpo.store.history.walks import first_parents
from tfgrpo.store.records import OPS, Op, Operation

MOVE = "MOVE"
HINT = "an object with version, op, experience, text, reason and evidence is expected"


def detect(source: SourceFile) -> int:
    row = source.first_row
    return 3 * (isinstance(row, dict) and "op" in row and "version" in row)


def read(source: SourceFile) -> Content:
    batches: list[Batch] = []
    operations: list[Operation] = []
    lines: list[int] = []
    digests: set[str] = set()
    for number, row in source.rows():
        version, message = row.get("version"), row.get("message")
        if not isinstance(version, str):
            raise source.wrong("names no version", number, hint=HINT)
        if not batches or batches[-1].digest != version:
            if version in digests:
                raise source.wrong(f"{version[:12]} comes twice", number, hint=HINT)
            digests.add(version)
            origin = {k: row[k] for k in ("author", "time") if isinstance(row.get(k), str)}
            message_text = message if isinstance(message, str) else f"import {source.name}"
            operations, lines = [], []
            batches.append(Batch(version, message_text, origin, operations, lines))
        if row.get("op") == MOVE:
            batches[-1] = batches[-1]._replace(order=_order(source, number, row))
            continue
        operations.append(_operation(source, number, row))
        lines.append(number)
    return Content(batches=batches)


def _order(source: SourceFile, number: int, row: dict[str, object]) -> list[str]:
    order = row.get(ORDER)
    if not isinstance(order, list) or not all(isinstance(id, str) and is_id(id) for id in order):
        raise source.wrong("a MOVE has the ids of a library in order", number, hint=HINT)
    return order


def _operation(source: SourceFile, number: int, row: dict[str, object]) -> Operation:
    op: Op | None = next((known for known in OPS if known == row.get("op")), None)
    id, text, reason, evidence = (row.get(k) for k in ("experience", "text", "reason", "evidence"))
    if op is None:
        raise source.wrong(f"there is no operation {row.get('op')!r}", number, hint=HINT)
    if not isinstance(id, str) or not is_id(id):
        raise source.wrong(f"{id!r} is not an experience id", number, hint=HINT)
    if op in ("ADD", "MODIFY") and (not isinstance(text, str) or not text.strip()):
        raise source.wrong(
            f"{op} of {id} has no text",
            number,
            hint="was it redacted? `tfgrpo mirror git` carries such histories",
        )
    return Operation(
        op,
        id,
        text if isinstance(text, str) else None,
        reason if isinstance(reason, str) else None,
        evidence if isinstance(evidence, dict) else None,
    )


def write(out: Outgoing) -> Iterator[str]:
    numbers = [version.number for version in first_parents(out.store, out.version)]
    for number in numbers[-2::-1]:  # all but v0, which has no event
        version = out.store.version(number)
        record = {
            "author": version.author,
            "time": version.when.isoformat(),
            "message": version.message,
        }
        rows: list[dict[str, object]] = [
            {
                "op": event.op,
                "experience": event.experience,
                "text": event.text,
                "reason": event.reason,
                "evidence": event.evidence,
            }
            for event in out.store.events(version)
        ]
        if ORDER in version.meta:
            rows.append({"op": MOVE, ORDER: ids_of(out.store.library(version))})
        for row in rows:
            line = {"version": version.digest.hex(), **row, **record}
            yield json.dumps(line, ensure_ascii=False) + "\n"


FORMAT = Format(
    "events",
    "programs and auditors: JSONL, every event of the history",
    "jsonl",
    "history",
    detect,
    read,
    write,
)
