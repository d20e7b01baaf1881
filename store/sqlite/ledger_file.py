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
from tfgrpo.store.sqlite.side_files import SideFile

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


ADD_SPENT = (
    "insert into spent values (?, ?, ?)"
    " on conflict (scope, day) do update set dollars = dollars + excluded.dollars"
)


class SqliteLedger(SideFile):
    """A ledger in one SQLite file."""

    application = 0x74666C65
    migrations = (LEDGER_TABLES,)
    kind = "ledger"
    missing = ("there are no keys at", "`tfgrpo key new` makes one")

    def changes(self) -> int:
        ((version,),) = self._rows("pragma data_version")
        return int(version)

    def virtual_keys(self) -> list[VirtualKey]:
        columns = ", ".join(VirtualKey._fields)
        rows = self._rows(f"select {columns} from keys order by number")
        return [VirtualKey._make((*row[:-1], _limits(row[-1]))) for row in rows]

    def add_key(self, key: VirtualKey) -> None:
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
        self._update("limits", json.dumps(limits._asdict()), name)

    def revoke_key(self, name: str, time: int, number: int | None = None) -> None:
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
        notes = {f"spent {worker} {batch}": amounts for batch, amounts in owed.items()}
        of_worker = ("note >= ? and note < ?", (f"spent {worker} ", f"spent {worker}!"))
        with self._writing():
            query = f"select note from told where {of_worker[0]}"
            known = {note for (note,) in self._db.execute(query, of_worker[1])}
            new = (amounts for note, amounts in notes.items() if note not in known)
            self._db.executemany(
                ADD_SPENT,
                [(*key, dollars) for amounts in new for key, dollars in amounts.items()],
            )
            self._db.execute(f"delete from told where {of_worker[0]}", of_worker[1])
            self._db.executemany("insert into told values (?)", [(note,) for note in notes])

    def spent(self, since: str) -> Spent:
        rows = self._rows("select scope, day, dollars from spent where day >= ?", (since,))
        return {(scope, day): dollars for scope, day, dollars in rows}

    def names_without(self, pattern: re.Pattern[str]) -> dict[str, str]:
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

    def redact(
        self, pattern: re.Pattern[str], renamed: Mapping[str, str], *, dry_run: bool = False
    ) -> int:
        changed = 0
        self._db.execute("pragma secure_delete = on")
        with self._writing():
            query = "select number, name, author, limits from keys"
            for number, *values in self._db.execute(query).fetchall():
                name, author, limits = values
                clean = [renamed.get(name, name), pattern.sub(REDACTED, author)]
                clean.append(_limits_without(pattern, limits))
                if clean == values:
                    continue
                changed += 1
                if not dry_run:
                    sets = "name = ?, author = ?, limits = ?"
                    self._db.execute(f"update keys set {sets} where number = ?", (*clean, number))
            for scope, day, dollars in self._db.execute("select * from spent").fetchall():
                new = scope_without(pattern, scope, renamed)
                if new == scope:
                    continue
                changed += 1
                if not dry_run:
                    self._db.execute("delete from spent where scope = ? and day = ?", (scope, day))
                    self._db.execute(ADD_SPENT, (new, day, dollars))
            for note in self.notes():
                new = _note_without(pattern, note, renamed)
                if new == note:
                    continue
                changed += 1
                if not dry_run:
                    self._db.execute("delete from told where note = ?", (note,))
                    self._db.execute("insert or ignore into told values (?)", (new,))
        if not dry_run:  # what an interrupted redaction took out may be in free pages
            self._overwrite()
        return changed

    def notes(self) -> set[str]:
        query = "select note from told where note not glob 'spent *'"  # which are of `spend`
        return {note for (note,) in self._rows(query)}

    def note(self, line: str) -> None:
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
