"""The ledger of virtual keys and spending in one SQLite file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from tfgrpo.store.activity.key_ledger import (
    Budget,
    KeyLimits,
    Owed,
    Spent,
    VirtualKey,
    scope_without,
)
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.records import REDACTED
from tfgrpo.store.sqlite.side_files import Row, SideFile

GLOBS = ("models", "libraries", "paths")
IN_A_GLOB = REDACTED.replace("[", "[[]")
"""What stands for a text in a pattern of names: as it is, it would fit any of its letters."""

BUDGET_NOTE = re.compile(r"(.+?)( \$\S+(?: [\w-]*)? [0-9.]+)", re.DOTALL)
"""A line that was told of a budget: of which scope, and how much since when."""

LEDGER_TABLES = """
create table keys (
    number integer primary key, name text not null, digest blob not null unique,
    author text not null, created integer not null, revoked integer, limits text not null
);
create unique index keys_by_name on keys (name) where revoked is null;
create table spent (
    scope text not null, day text not null, dollars real not null, primary key (scope, day)
) without rowid;
create table told (note text primary key) without rowid;
"""


ADD_DOLLARS = "do update set dollars = dollars + excluded.dollars"
OF_SPEND = "spent "
"""How the notes of `SqliteLedger.spend` begin."""


class SqliteLedger(SideFile):
    """A ledger in one SQLite file."""

    application = 0x74666C65
    migrations = (LEDGER_TABLES,)
    kind = "ledger"
    missing = ("there are no keys at", "`tfgrpo key new` makes one")

    def changes(self) -> int:
        """A number that changes after anybody else has written."""
        ((version,),) = self._rows("pragma data_version")
        return int(version)

    def virtual_keys(self) -> list[VirtualKey]:
        """All keys, oldest first."""
        columns = ", ".join(VirtualKey._fields)
        rows = self._rows(f"select {columns} from keys order by number")
        return [VirtualKey._make((*row[:-1], _limits(row[-1]))) for row in rows]

    def add_key(self, key: VirtualKey) -> None:
        """Records a new key. Raises InvalidOperation where a key in use has that name."""
        columns = ", ".join(VirtualKey._fields[1:])
        values = (*key[1:-1], json.dumps(key.limits._asdict()))
        with self._writing():
            if self._db.execute(
                "select 1 from keys where name = ? and revoked is null", (key.name,)
            ).fetchone():
                raise InvalidOperation(
                    f"there is a key {key.name!r}", hint="`tfgrpo key revoke` ends it"
                )
            self._db.execute(f"insert into keys ({columns}) values (?, ?, ?, ?, ?, ?)", values)

    def change_key(self, name: str, limits: KeyLimits) -> None:
        """Gives a key other limits. Raises InvalidOperation where none has that name."""
        self._update("limits", json.dumps(limits._asdict()), name)

    def revoke_key(self, name: str, time: int, number: int | None = None) -> None:
        """Revokes a key. Raises InvalidOperation where none has that name and, if given, that
        number."""
        self._update("revoked", time, name, number)

    def _update(self, column: str, value: object, name: str, number: int | None = None) -> None:
        query = (
            f"update keys set {column} = ?"
            " where name = ? and revoked is null and number = coalesce(?, number)"
        )
        with self._writing():
            if not self._db.execute(query, (value, name, number)).rowcount:
                raise InvalidOperation(
                    f"there is no key {name!r}", hint="`tfgrpo key list` lists them"
                )

    def spend(self, worker: str, owed: Owed) -> None:
        """Adds to the spending. A batch that was already added, as one that the worker's calls owed
        the last time, is not added again. Raises StoreError."""
        notes = {f"spent {worker} {batch}": amounts for batch, amounts in owed.items()}
        of_worker = ("note >= ? and note < ?", (f"spent {worker} ", f"spent {worker}!"))
        with self._writing():
            query = f"select note from told where {of_worker[0]}"
            known = {note for (note,) in self._db.execute(query, of_worker[1])}
            new = (amounts for note, amounts in notes.items() if note not in known)
            self._db.executemany(
                f"insert into spent values (?, ?, ?) on conflict (scope, day) {ADD_DOLLARS}",
                [(*key, dollars) for amounts in new for key, dollars in amounts.items()],
            )
            self._db.execute(f"delete from told where {of_worker[0]}", of_worker[1])
            self._db.executemany("insert into told values (?)", [(note,) for note in notes])

    def spent(self, since: str) -> Spent:
        """The spending from a day on."""
        rows = self._rows("select scope, day, dollars from spent where day >= ?", (since,))
        return {(scope, day): dollars for scope, day, dollars in rows}

    def names_without(self, pattern: re.Pattern[str]) -> dict[str, str]:
        """Names of keys that have a pattern in them → those that `redact` gives them, no two the
        same."""
        rows = self._rows("select name, min(number) from keys group by name order by 2")
        taken, renamed = {name for name, _ in rows}, dict[str, str]()
        for name, number in rows:
            new = pattern.sub(REDACTED, name)
            if new == name:
                continue
            while new in taken:  # each keeps its own spending
                new = f"{new} {number}"
            taken.add(new)
            renamed[name] = new
        return renamed

    def _redact(self, pattern: re.Pattern[str], renamed: Mapping[str, str]) -> int:
        def key(row: Row) -> Row:
            return row | {
                "name": renamed.get(row["name"], row["name"]),
                "author": pattern.sub(REDACTED, row["author"]),
                "limits": _limits_without(pattern, row["limits"]),
            }

        def spent(row: Row) -> Row:
            return row | {"scope": scope_without(pattern, row["scope"], renamed)}

        def note(row: Row) -> Row:
            own = row["note"].startswith(OF_SPEND)
            return row if own else {"note": _note_without(pattern, row["note"], renamed)}

        return (
            self._replace("keys", "number", key)
            + self._replace("spent", "scope, day", spent, ADD_DOLLARS)
            + self._replace("told", "note", note)
        )

    def notes(self) -> set[str]:
        """The lines that were told already."""
        notes = self._rows("select note from told")
        return {note for (note,) in notes if not note.startswith(OF_SPEND)}

    def note(self, line: str) -> None:
        """Records that something was told."""
        with self._writing():
            self._db.execute("insert or ignore into told values (?)", (line,))


def _limits(written: str) -> KeyLimits:
    fields = json.loads(written)
    for name in GLOBS:
        fields[name] = None if fields[name] is None else tuple(fields[name])
    fields["budget"] = None if fields["budget"] is None else Budget(*fields["budget"])
    return KeyLimits(**fields)


def _limits_without(pattern: re.Pattern[str], written: str) -> str:
    """Limits with a pattern taken out of their globs, which then fit nothing more than before."""
    fields = json.loads(written)
    clean = dict(fields)
    for name in GLOBS:
        globs = fields[name]
        clean[name] = globs and [pattern.sub(IN_A_GLOB, one) for one in globs]
    return written if clean == fields else json.dumps(clean)


def _note_without(pattern: re.Pattern[str], note: str, renamed: Mapping[str, str]) -> str:
    """A line that was told of a budget, under its scope's new name: it is not told again."""
    matched = BUDGET_NOTE.fullmatch(note)
    if matched is None:
        return pattern.sub(REDACTED, note)
    return scope_without(pattern, matched[1], renamed) + matched[2]
