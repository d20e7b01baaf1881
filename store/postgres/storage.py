"""A library's schema itself: checked, mended and locked; and its members, by grants of PostgreSQL.

The database holds its rows to their types and references. Nobody may UPDATE or DELETE records: a
redaction calls functions of the schema's own role (`SECURITY DEFINER`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tfgrpo.migrations.postgres import MIGRATIONS
from tfgrpo.store.damaged_values import Defect
from tfgrpo.store.errors import StoreError
from tfgrpo.store.port import Level, Member, Work
from tfgrpo.store.postgres.rights import (
    FUNCTIONS,
    INSERTED,
    REDACTING,
    REPLACED,
    WORDS,
    WORK,
    refused,
)
from tfgrpo.store.postgres.session import Session, lost_error
from tfgrpo.store.sql.checks import check_storage
from tfgrpo.store.sql.port_parts import SqlStorage

if TYPE_CHECKING:
    from tfgrpo.store.postgres.port import PostgresPort

OWNING: tuple[Level, ...] = ("owner",)
GONE = 30
"""Seconds after which the database asks a silent machine whether it is there, up to four times."""

THERE = """
select 'table ' || c.relname from pg_class c where c.relnamespace = %(n)s::regnamespace
    and c.relkind in ('r', 'v', 'm')
union all select 'index ' || c.relname from pg_class c where c.relnamespace = %(n)s::regnamespace
    and c.relkind = 'i'
union all select 'trigger ' || t.tgname || ' of ' || c.relname from pg_trigger t
    join pg_class c on c.oid = t.tgrelid
    where c.relnamespace = %(n)s::regnamespace and not t.tgisinternal and t.tgenabled in ('O', 'A')
union all select 'rule ' || r.rulename || ' of ' || c.relname from pg_rewrite r
    join pg_class c on c.oid = r.ev_class where c.relnamespace = %(n)s::regnamespace
union all select 'function ' || p.proname || ' ' || md5(p.prosrc) || ' ' || p.prosecdef
    from pg_proc p where p.pronamespace = %(n)s::regnamespace
"""
"""What is in a schema, each with what it is made of as far as a check compares it."""


class PostgresStorage(SqlStorage):
    """The schema of one library of a database."""

    _port: PostgresPort

    def __init__(self, port: PostgresPort) -> None:
        super().__init__(port)
        self._locks: dict[str, Session] = {}  # those that were taken, each with its connection

    def recorder(self, number: int) -> str | None:
        query = "select recorded_by from @.versions where number = ?"
        return str(self._port.row(query, (number,))[0])

    def size(self) -> int:
        return self._port.number(
            "select sum(pg_total_relation_size(c.oid))::bigint from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname = ? and c.relkind = 'r'",
            (self._port.address.schema,),
        )

    def content(self) -> bytes:
        raise StoreError(
            "a store in a database is no file",
            hint=f"copy it into one: `tfgrpo clone '{self._port.address.text}' FOLDER`",
        )

    def check(self) -> list[Defect]:
        return check_storage(self._port, _schema)

    def rebuild(self) -> None:
        # Makes indexes anew and switches triggers on again, and has rows that were restored from
        # another server count as old. It takes an owner.
        port = self._port
        with port.transaction():
            tables = port.column(
                "select relname::text from pg_class where relnamespace = %s::regnamespace"
                " and relkind = 'r' order by relname",
                (port.quoted,),
            )
            for table in tables:
                port.execute(f'alter table @."{table}" enable trigger user')
            for index in re.findall(r"create index \w+ [^;]+", "".join(MIGRATIONS)):
                port.execute(index.replace("create index", "create index if not exists"))
            for table in tables:
                port.execute(f'reindex table @."{table}"')
            for table in ("journal", "rollouts"):
                port.execute(
                    f"update @.{table} set tx = 1"
                    " where tx >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
                )

    @contextmanager
    def hold(self, name: str) -> Iterator[bool]:
        session = Session(self._port.address)
        try:
            free = self._take(session, name)
            if free:
                self._locks[name] = session
            yield free
        finally:
            if self._locks.get(name) is session:
                del self._locks[name]
            session.roll_back()  # the database notices a closed connection some time later
            session.close()

    def is_ours(self, name: str) -> bool:
        session = self._locks.get(name)
        if session is None:
            return False
        opened = session.opened
        session.row("select 1")
        return session.opened == opened or self._take(session, name)

    def is_held(self, name: str) -> bool:
        key = self._key(name) & (1 << 64) - 1
        (there,) = self._port.row(
            "select exists (select 1 from pg_locks l join pg_database d on d.oid = l.database"
            " where d.datname = current_database() and l.locktype = 'advisory' and l.granted"
            " and l.objsubid = 1 and l.classid::bigint = %s and l.objid::bigint = %s)",
            (key >> 32, key & (1 << 32) - 1),
        )
        return bool(there)

    def refusal(self, work: Work) -> StoreError | None:
        what, levels = WORK[work]
        may = holds(self._port, levels)
        return None if may else refused(self._port.address.place, what, levels)

    def _take(self, session: Session, name: str) -> bool:
        """Takes a lock for its connection's life; returns whether it was free."""
        session.close()
        session.execute(
            f"begin; set local idle_in_transaction_session_timeout = 0;"
            f" set local tcp_keepalives_idle = {GONE};"
            f" set local tcp_keepalives_interval = {GONE // 3};"
            f" set local tcp_keepalives_count = 3"
        )
        opened = session.opened
        (free,) = session.row(f"select pg_try_advisory_xact_lock({self._key(name)})")
        if session.opened != opened:  # outside of the transaction, then: given back at once
            raise lost_error(session.address)
        return bool(free)

    def _key(self, name: str) -> int:
        text = f"{self._port.address.schema}/{name}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "big", signed=True)


def _schema(port: PostgresPort) -> Iterator[Defect]:
    """Every table, index, trigger and function is one that the migrations make."""
    there = set(port.column(THERE, {"n": port.quoted}))
    expected = set(_expected(port))
    for one in sorted(expected - there):
        yield Defect("schema", f"{one} is missing, disabled or another one")
    for one in sorted(there - expected):
        if not one.startswith(("index ", "table ")):
            yield Defect("schema", f"{one} is not of a store: it may change what is written")


def _expected(port: PostgresPort) -> Iterator[str]:
    script = "".join(MIGRATIONS)
    for name in re.findall(r"create table @\.(\w+)", script):
        yield f"table {name}"
    for name in re.findall(r"create index (\w+)", script):
        yield f"index {name}"
    for name, table in re.findall(r"create trigger (\w+) [^;]*? on @\.(\w+)", script):
        yield f"trigger {name} of {table}"
    functions = re.findall(r"create function @\.(\w+)\((.*?)\$\$(.*?)\$\$", script, re.S)
    for name, head, body in functions:
        digest = hashlib.md5(port.sql(body), usedforsecurity=False).hexdigest()
        yield f"function {name} {digest} {'true' if 'security definer' in head else 'false'}"


def holds(port: PostgresPort, levels: Sequence[Level]) -> bool:
    """Whether the connected user is of one of these levels, or owns the schema or the server."""
    (may,) = port.row(
        "select pg_has_role(session_user, relowner, 'USAGE') or exists"
        " (select 1 from @.members where name = session_user and level = any(%s))"
        " from pg_class where oid = '@.members'::regclass",
        (list(levels),),
    )
    return bool(may)


class PostgresMembers:
    """The members of one library of a database.

    A reader reads. A trainer appends runs, versions and moves of unprotected names. A reviewer also
    moves protected names, decides and redacts, and has no runs. An owner does all of it and says
    who may do what.
    """

    def __init__(self, port: PostgresPort) -> None:
        self._port = port

    def all(self) -> list[Member]:
        """The members, names ascending."""
        rows = self._port.rows("select name, level from @.members order by name")
        return [Member._make(row) for row in rows]

    def grant(self, name: str, level: Level) -> None:
        """Lets a user of the database do what `level` may, and nothing more. Raises StoreError."""
        self._set(name, level)

    def revoke(self, name: str) -> None:
        """Takes away whatever a user may do. Raises StoreError for somebody who is no member."""
        if name not in {member.name for member in self.all()}:
            raise StoreError(f"{name} is no member", hint="`tfgrpo store members` lists them")
        self._set(name, None)

    def _set(self, name: str, level: Level | None) -> None:
        # By a function of the schema's own role: whoever may call it, the grants are that role's.
        if not holds(self._port, OWNING):
            raise refused(self._port.address.place, WORDS["members"], OWNING)
        user, of = self._user(name), level or "reader"
        functions = list(FUNCTIONS if level in REDACTING else ())
        with self._port.transaction():
            self._port.rows(
                "select @.set_member(%s, %s, %s::text[], %s::text[], %s::text[])",
                (name, level, list(INSERTED[of]), list(REPLACED[of]), functions),
            )
            self._grant_queue(user, level)

    def _user(self, name: str) -> str:
        row = self._port.row(
            "select quote_ident(rolname)::text, rolname = session_user, rolsuper or r.oid ="
            " (select relowner from pg_class where oid = '@.members'::regclass)"
            " from pg_roles r where rolname = %s",
            (name,),
        )
        if row is None:
            raise StoreError(
                f"the database has no user {name}",
                hint=f"create one with `createuser --pwprompt {name}`",
            )
        if row[2]:
            raise StoreError(
                f"{name} owns the library or the server, and may do everything",
                hint="name another user",
            )
        if row[1]:
            raise StoreError(
                "nobody changes what they may do themselves", hint="another owner can do it"
            )
        return str(row[0])

    def _grant_queue(self, user: str, level: Level | None) -> None:
        """Lets those who train use the workers' queue, where there is one of this user's."""
        schema = self._port.address.queue
        own = self._port.row(
            "select 1 from pg_namespace where nspname = %s"
            " and pg_has_role(session_user, nspowner, 'MEMBER')",
            (schema,),
        )
        if own is None:
            return
        verb, to = ("grant", "to") if level in ("trainer", "owner") else ("revoke", "from")
        self._port.execute(f'{verb} usage on schema "{schema}" {to} {user}')
        for what in ("tables", "sequences", "functions"):
            self._port.execute(f'{verb} all on all {what} in schema "{schema}" {to} {user}')
