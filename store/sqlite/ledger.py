"""Virtual keys and what was spent, in one SQLite file."""

from __future__ import annotations

import json

from tfgrpo.store.activity.key_ledger import Budget, KeyLimits, Spent, VirtualKey
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.sqlite.side_file import SideFile

TABLES = """
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


class SqliteLedger(SideFile):
    """A ledger in one SQLite file."""

    application = 0x74666C65
    tables = TABLES
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

    def revoke_key(self, name: str, time: int) -> None:
        self._update("revoked", time, name)

    def _update(self, column: str, value: object, name: str) -> None:
        query = f"update keys set {column} = ? where name = ? and revoked is null"
        with self._writing():
            if not self._db.execute(query, (value, name)).rowcount:
                raise InvalidOperation(
                    f"there is no key {name!r}", hint="`tfgrpo key list` lists them"
                )

    def spend(self, amounts: Spent) -> None:
        with self._writing():
            self._db.executemany(
                "insert into spent values (?, ?, ?)"
                " on conflict (scope, day) do update set dollars = dollars + excluded.dollars",
                [(*key, dollars) for key, dollars in amounts.items()],
            )

    def spent(self, since: str) -> Spent:
        rows = self._rows("select scope, day, dollars from spent where day >= ?", (since,))
        return {(scope, day): dollars for scope, day, dollars in rows}

    def notes(self) -> set[str]:
        return {note for (note,) in self._rows("select note from told")}

    def note(self, line: str) -> None:
        with self._writing():
            self._db.execute("insert or ignore into told values (?)", (line,))


def _limits(written: str) -> KeyLimits:
    fields = json.loads(written)
    for name in ("models", "libraries", "paths"):
        fields[name] = None if fields[name] is None else tuple(fields[name])
    fields["budget"] = None if fields["budget"] is None else Budget(*fields["budget"])
    return KeyLimits(**fields)
