"""How a database is checked beside what `sql/checks.py` compares: that its schema is the one that
the migrations make. The database itself holds its rows to their types and references."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfgrpo.migrations.postgres import MIGRATIONS
from tfgrpo.store.defects import Defect
from tfgrpo.store.sql.checks import check_storage as sql_checks
from tfgrpo.store.sql.checks import is_json, text_name

if TYPE_CHECKING:
    from tfgrpo.store.postgres.port import PostgresPort
    from tfgrpo.store.postgres.session import Session

JSON = {
    "journal": ("answer",),
    "rollouts": ("calls", "verdict"),
    "evaluations": ("config", "summary"),
    "decisions": ("content",),
}
NUMBERS = {"decisions": "row"}
"""What numbers the rows of a table, where that is no `id`."""

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


def check_storage(port: PostgresPort) -> list[Defect]:
    """Checks the schema, places, names and records, reading all of them."""
    return sql_checks(port, _schema, _json)


def _schema(port: PostgresPort) -> Iterator[Defect]:
    """Every table, index, trigger and function is one that the migrations make."""
    there = {one for (one,) in port.rows(THERE, {"n": port.session.quoted})}
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
        source = port.session.sql(body).decode()
        digest = hashlib.md5(source.encode(), usedforsecurity=False).hexdigest()
        yield f"function {name} {digest} {'true' if 'security definer' in head else 'false'}"


def _json(port: PostgresPort) -> Iterator[Defect]:
    for table, columns in JSON.items():
        for column in columns:
            query = f"select {NUMBERS.get(table, 'id')}, {column} from @.{table}"
            for id, text in port.session.stream(query):
                if not is_json(text):
                    yield Defect(f"row {id} of {table}", f"has a {column} that is no JSON")
    for digest, text in port.session.stream("select digest, text from @.texts"):
        if not is_json(text):
            yield Defect(f"text {text_name(digest)}", "is no JSON")


def rebuild(session: Session) -> None:
    """Makes indexes anew and switches triggers on again, and has rows that were restored from
    another server count as old. Only inside a transaction, and by an owner."""
    tables = session.rows(
        "select relname::text from pg_class where relnamespace = %s::regnamespace"
        " and relkind = 'r' order by relname",
        (session.quoted,),
    )
    for (table,) in tables:
        session.execute(f'alter table @."{table}" enable trigger user')
    for index in re.findall(r"create index \w+ [^;]+", "".join(MIGRATIONS)):
        session.execute(index.replace("create index", "create index if not exists"))
    for (table,) in tables:
        session.execute(f'reindex table @."{table}"')
    for table in ("journal", "rollouts"):
        session.execute(
            f"update @.{table} set tx = 1"
            " where tx >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
        )
