"""What no version's digest covers, and how far it can be checked all the same.

The database itself holds its rows to their types and references; what is checked here is what a
file's check compares (`sqlite/checks.py`), and that the schema is the one that the migrations make.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from tfgrpo.migrations.postgres import MIGRATIONS
from tfgrpo.store.damaged_values import COUNTED, Defect, attempt, call_defects
from tfgrpo.store.history.walks import contains_row
from tfgrpo.store.port import LANE_BITS

if TYPE_CHECKING:
    from tfgrpo.store.postgres.port import PostgresPort
    from tfgrpo.store.postgres.session import Session

StorageCheck: TypeAlias = Callable[["PostgresPort"], Iterator[Defect]]

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
    problems: list[Defect] = []
    for check in (_schema, _places, _births, _names, _texts, _runs, _json, _calls):
        problems += attempt(check.__name__.strip("_"), lambda check=check: check(port))  # type: ignore[misc]
    return problems


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
    """Yields what the migrations make, read out of their scripts."""
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


def _places(port: PostgresPort) -> Iterator[Defect]:
    """A version's events follow right on its parent's, or begin a lane that leaves there."""
    wrong = port.rows(
        f"""
        select v.number from @.versions v join @.versions p on p.number = v.parent
        left join @.lanes l on l.lane = v.position >> {LANE_BITS}
        where v.events < 0 or v.position - v.events <> p.position and not (
            v.events > 0
            and v.position - v.events = (v.position >> {LANE_BITS}) << {LANE_BITS}
            and l.lane > 0 and l.base = p.position
        ) is true
        """
    )
    for (number,) in wrong:
        yield Defect(f"v{number}", "does not follow on its parent where it lies")
    lost = port.rows(
        f"""
        select lane from @.lanes where lane > 0 and not exists (
            select 1 from @.versions
            where position > lane << {LANE_BITS} and position < lane + 1 << {LANE_BITS}
        ) or lane = 0 and base <> 0 or lane < 0
        """
    )
    for (lane,) in lost:
        yield Defect(f"lane {lane}", "is not what any version needs")


def _births(port: PostgresPort) -> Iterator[Defect]:
    """An experience keeps its place: every event repeats the birth of the one it follows on."""
    wrong = port.rows(
        """
        select e.row from @.events e left join @.events r on r.row = e.replaces
        where r.row >= e.row
            or r.experience is distinct from e.experience and e.replaces is not null
            or e.op <> 'ADD' and e.birth is distinct from coalesce(r.birth, r.row)
            or e.op = 'ADD' and e.birth is distinct from r.birth
            or e.op = 'ADD' and e.replaces is not null and r.op is distinct from 'DELETE'
        """
    )
    for (row,) in wrong:
        yield Defect(f"event {row}", "does not have the place of what it follows on")
    fresh = port.rows(
        """
        select e.row, d.row from @.events e join @.events d
            on d.experience = e.experience and d.row < e.row and d.op = 'DELETE'
        where e.op = 'ADD' and e.replaces is null
        """
    )
    for row, deleted in fresh:
        if contains_row(port, deleted, row):
            yield Defect(f"event {row}", "takes back a deletion and does not say so")


def _names(port: PostgresPort) -> Iterator[Defect]:
    """A move repeats where the name stood; a commit's move says its version's message."""
    wrong = port.rows(
        """
        select row, name from (
            select row, name, previous, previous_symbol,
                lag(version) over names as version, lag(symbol) over names as symbol
            from @.reflog window names as (partition by name order by row)
        ) m where previous is distinct from version or previous_symbol is distinct from symbol
        """
    )
    for row, name in wrong:
        yield Defect(f"move {row}", f"of {name}: does not start from where the name stood")
    wrong = port.rows(
        """
        select r.row, r.name from @.reflog r left join @.versions v on v.number = r.version
        where starts_with(r.action, 'commit: ') and (
            v.message is distinct from substr(r.action, 9) or v.author is distinct from r.author
            or starts_with(r.name, 'heads/') and v.parent is distinct from r.previous
        ) and not (r.previous is null and exists (
            select 1 from @.reflog c where c.batch = r.batch and c.row > r.row
                and c.name = r.name and c.previous is not distinct from r.version
                and c.action = r.action
        ))
        """
    )
    for row, name in wrong:
        yield Defect(f"move {row}", f"of {name}: does not go to the version that was committed")
    wrong = port.rows(
        "select r.row, r.name from @.reflog r left join @.reflog b on b.row = r.batch"
        " where b.batch is distinct from r.batch or r.batch > r.row"
    )
    for row, name in wrong:
        yield Defect(f"move {row}", f"of {name}: is not part of the operation it names")


def _texts(port: PostgresPort) -> Iterator[Defect]:
    for digest, text in port.session.stream("select digest, text from @.texts"):
        if hashlib.sha256(text.encode()).digest() != digest:
            yield Defect(f"text {digest.hex()[:12]}", "is not what its digest says")


def _runs(port: PostgresPort) -> Iterator[Defect]:
    for name, digest, config in port.rows("select name, digest, config from @.runs order by id"):
        if hashlib.sha256(config.encode()).hexdigest() != digest:
            yield Defect(f"run {name}", "has other settings than its digest says")


def _json(port: PostgresPort) -> Iterator[Defect]:
    for table, columns in JSON.items():
        for column in columns:
            query = f"select {NUMBERS.get(table, 'id')}, {column} from @.{table}"
            for id, text in port.session.stream(query):
                if not _is_json(text):
                    yield Defect(f"row {id} of {table}", f"has a {column} that is no JSON")
    for digest, text in port.session.stream("select digest, text from @.texts"):
        if not _is_json(text):
            yield Defect(f"text {digest.hex()[:12]}", "is no JSON")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _calls(port: PostgresPort) -> Iterator[Defect]:
    """An answer repeats its tokens; rollouts and scores name calls that are there."""
    columns = f"id, answer, attempts, seconds, {', '.join(COUNTED)}"
    yield from call_defects(port.session.stream(f"select {columns} from @.journal"))
    keys = {key for (key,) in port.rows("select key from @.journal")}
    names = {key.hex() for key in keys}
    for id, calls in port.session.stream("select id, calls from @.rollouts"):
        if _is_json(calls) and not names.issuperset(map(str, json.loads(calls))):
            yield Defect(f"rollout {id}", "names a call that is not there")
    query = "select evaluation, problem, call from @.scores where call is not null"
    for evaluation, problem, call in port.session.stream(query):
        if call not in keys:
            yield Defect(f"evaluation {evaluation}", f"names a call of {problem} that is not there")


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
