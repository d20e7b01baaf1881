"""Where a text lies in a store file beside the events: in records of training, messages, names.

A text that went through a model is written down many times over: in the requests whose prompt
held it, in answers that quote it, in answers that are JSON and quote it escaped. What no
version's digest covers and no trigger protects can be changed (`REPLACED`); everything else can
only be pointed at.
"""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from tfgrpo.store.canonical import canonical
from tfgrpo.store.records import REDACTED

Kind: TypeAlias = Literal["json", "plain"]

REPLACED: dict[tuple[str, str], Kind] = {
    ("texts", "text"): "json",
    ("journal", "answer"): "json",
    ("rollouts", "verdict"): "json",
    ("evaluations", "config"): "json",
    ("evaluations", "summary"): "json",
    ("scores", "answer"): "plain",
}
"""The columns in which a text may be replaced, and what they hold."""

CHAIN = {"versions", "events"}
ESCAPED = 3
"""How many times over a text may be escaped as JSON within JSON and still be found."""


class Trace(NamedTuple):
    """A place that holds the text: a column of a row. `kept` says why it stays, if it does."""

    table: str
    column: str
    row: int
    kept: str | None = None

    @property
    def where(self) -> str:
        """The place in words: `versions.message of row 3`."""
        return f"{self.table}.{self.column} of row {self.row}"


def forms(texts: Iterable[str]) -> tuple[str, ...]:
    """Returns every way in which texts may be written, longest first.

    As they are, on one line (as prompts have them), and escaped as JSON, with and without
    characters outside ASCII, up to three times over.
    """
    found = {form for text in texts for form in (text, " ".join(text.split()))}
    fresh = found
    for _ in range(ESCAPED):
        fresh = {json.dumps(f, ensure_ascii=a)[1:-1] for f in fresh for a in (True, False)} - found
        found = found | fresh
    return tuple(sorted(found, key=lambda form: (-len(form), form)))


def matcher(written: Iterable[str]) -> re.Pattern[str]:
    """Returns what finds any of these forms."""
    return re.compile("|".join(map(re.escape, written)))


def holding(db: sqlite3.Connection, pattern: re.Pattern[str]) -> None:
    """Gives a connection the SQL function `holds(value)`: whether a text has the pattern in it."""

    def holds(value: object) -> bool:
        return isinstance(value, str) and pattern.search(value) is not None

    db.create_function("holds", 1, holds, deterministic=True)


def traces(db: sqlite3.Connection) -> Iterator[Trace]:
    """Yields the places that hold the pattern given to `holding`.

    Every text column of every table is read, those of tables that this module has never heard
    of as well; the events' own texts and reasons are left to `redact.py`.
    """
    tables = db.execute(
        "select name, sql like '%without rowid%' from sqlite_master where type = 'table'"
        " and sql not like 'create virtual%' and name not like 'sqlite_%' order by name"
    ).fetchall()
    for table, without in tables:
        row = "0" if without else "rowid"
        for column in _text_columns(db, table):
            if table == "events" and column in ("text", "reason"):
                continue
            query = f'select {row} from "{table}" where holds("{column}")'
            why = None if (table, column) in REPLACED else _why(table)
            for (number,) in db.execute(query).fetchall():
                yield Trace(table, column, number, why)


def _text_columns(db: sqlite3.Connection, table: str) -> list[str]:
    columns = db.execute(f'pragma table_info("{table}")').fetchall()
    return [name for _, name, kind, *_ in columns if kind.lower() in ("text", "")]


def _why(table: str) -> str:
    if table in CHAIN:
        return "the digest of its version covers it"
    return "the table is append-only" if table != "rollouts" else "other rows refer to it"


def replace(db: sqlite3.Connection, pattern: re.Pattern[str]) -> int:
    """Replaces the pattern wherever that may be done; returns in how many rows.

    Only inside a transaction, after `holding`.
    """
    changed = 0
    for (table, column), kind in REPLACED.items():
        keys = "evaluation, problem, sample" if table == "scores" else "id"
        found = db.execute(f"select {keys}, {column} from {table} where holds({column})").fetchall()
        for *key, value in found:
            value = _clean_json(value, pattern) if kind == "json" else pattern.sub(REDACTED, value)
            if (table, column) == ("texts", "text"):
                _forget_embedding(db, key[0])
                _put_text(db, key[0], value)
            else:
                if (table, column) == ("journal", "answer"):
                    value = _marked(value)
                where = " and ".join(f"{name} = ?" for name in keys.split(", "))
                db.execute(f"update {table} set {column} = ? where {where}", (value, *key))
        changed += len(found)
    return changed


def _clean_json(value: str, pattern: re.Pattern[str]) -> str:
    try:
        found = json.loads(value)
    except ValueError:  # damaged: what it is worth as JSON is lost already
        return pattern.sub(REDACTED, value)
    return canonical(_clean(found, pattern)).decode()


def _clean(value: object, pattern: re.Pattern[str]) -> object:
    if isinstance(value, str):
        return pattern.sub(REDACTED, value)
    if isinstance(value, list):
        return [_clean(item, pattern) for item in value]
    if isinstance(value, dict):
        return {pattern.sub(REDACTED, k): _clean(v, pattern) for k, v in value.items()}
    return value


def _marked(answer: str) -> str:
    """Says in an answer that it is no longer what the model said, so that none replays it."""
    found = json.loads(answer)
    if isinstance(found, dict):
        found["finish_reason"] = "redacted"
    return canonical(found).decode()


def _forget_embedding(db: sqlite3.Connection, id: int) -> None:
    """Takes the embedding of a text away: a vector tells much of the text it was made of."""
    db.execute(
        "update journal set answer = json_set(answer, '$.content', '', '$.finish_reason',"
        " 'redacted') where request = ? and stage = 'embedding'",
        (id,),
    )


def _put_text(db: sqlite3.Connection, id: int, text: str) -> None:
    """Gives a text that is kept once another content, and the digest that goes with it.

    The old digest has no salt: a short secret could be guessed from it.
    """
    key = hashlib.sha256(text.encode()).digest()
    same = db.execute("select id from texts where digest = ? and id <> ?", (key, id)).fetchone()
    if same is None:
        db.execute("update texts set digest = ?, text = ? where id = ?", (key, text, id))
    else:  # two requests that differed in the secret alone are one now
        db.execute("update journal set request = ? where request = ?", (same[0], id))
        db.execute("delete from texts where id = ?", (id,))
