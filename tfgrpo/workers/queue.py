"""The queue of groups: Procrastinate's, in the database of the store, in a schema of its own.

A job is a group; what it came to is in the journal, so who loses the queue has lost time and no
answer. Small tables say which runs have work, who works, how jobs ended that left no whole group,
and who holds how much of a budget. Ages are told by the database's clock. Connections LISTEN, so a
pooler has to keep sessions whole.
"""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tfgrpo.store.address import (
    CONNECT_SECONDS,
    Address,
    connection_settings,
    is_address,
    parse_address,
)
from tfgrpo.store.errors import InvalidOperation, StoreError

if TYPE_CHECKING:
    from procrastinate import App
    from psycopg import AsyncConnection

TASK = "group"
HEARTBEAT = 5.0
"""Seconds between a worker's signs of life."""
SILENT = 3.0
"""After so many heartbeats without a sign a worker is taken for dead."""
AT_ONCE = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
"""When a job is tried again: a time that is past on every machine, whatever its clock says."""
CHECK = "check that the database is running, and what its user may do"
CONNECTIONS = 4

TABLES = """
create table offers (
    run text primary key,
    name text not null,
    queue text not null,
    work jsonb not null,
    concurrency integer not null,
    budget text,
    seconds double precision not null,
    beat timestamptz not null default now()
);
create table budgets (
    run text primary key,
    in_tokens boolean not null,
    rest numeric not null
);
create table leases (
    run text not null,
    holder text not null,
    amount numeric not null,
    spent numeric not null,
    beat timestamptz not null default now(),
    primary key (run, holder)
);
create table crew (
    id bigint generated always as identity primary key,
    name text not null,
    slots integer not null,
    seconds double precision not null,
    started timestamptz not null default now(),
    beat timestamptz not null default now(),
    ended timestamptz,
    figures jsonb not null default '{}'
);
create table outcomes (
    job bigint primary key references procrastinate_jobs (id) on delete cascade,
    outcome jsonb not null
);
create index jobs_ended on procrastinate_jobs (queue_name)
    where status in ('succeeded', 'failed', 'cancelled', 'aborted');
"""
CREW = """
select id, name, slots, seconds, figures, ended is not null as ended,
       extract(epoch from now() - beat)::float8 as silent,
       extract(epoch from coalesce(ended, now()) - started)::float8 as age
  from crew
 where coalesce(ended, beat) > now() - interval '1 hour'
 order by id
"""
REGISTER = """
with known as (
    update crew set beat = now(), ended = null, figures = %(figures)s
     where figures->>'process' = %(process)s returning id),
made as (
    insert into crew (name, slots, seconds, figures)
    select %(name)s, %(slots)s, %(seconds)s, %(figures)s where not exists (select 1 from known)
    returning id)
select id from known union all select id from made
"""
"""One row for a process, though it asks again where it was not told the answer."""
OFFERS = """
select run, name, queue, work, concurrency, budget from offers
 where beat > now() - seconds * %(silent)s * interval '1 second' order by run
"""
OFFER = """
insert into offers (run, name, queue, work, concurrency, budget, seconds)
values (%(run)s, %(name)s, %(queue)s, %(work)s, %(concurrency)s, %(budget)s, %(seconds)s)
on conflict (run) do update set work = excluded.work, beat = now(), budget = excluded.budget,
    concurrency = excluded.concurrency, seconds = excluded.seconds
"""
STALLED = """
select j.id from procrastinate_jobs j left join procrastinate_workers w on w.id = j.worker_id
 where j.status = 'doing' and j.queue_name = %(queue)s
   and (w.id is null or w.last_heartbeat < now() - %(seconds)s * interval '1 second')
"""
ENDED = """
select j.id, coalesce(o.outcome, case when j.status = 'succeeded' then '{}'::jsonb end) as outcome
  from procrastinate_jobs j left join outcomes o on o.job = j.id
 where j.queue_name = %(queue)s and j.status in ('succeeded', 'failed', 'cancelled', 'aborted')
"""
"""Few, whatever is queued: a driver takes them away as they end."""
STATES = """
select id, status::text as status from procrastinate_jobs where queue_name = %(queue)s
"""
QUEUED = """
select o.name, count(j.id) filter (where j.status = 'todo') as queued,
       count(j.id) filter (where j.status = 'doing') as begun
  from offers o left join procrastinate_jobs j on j.queue_name = o.queue
 group by o.name order by o.name
"""


@dataclass(frozen=True, slots=True)
class Offer:
    """A run that has groups to be made: its uid and name, its queue, the digests that a worker has
    to have, the requests each may have in flight, and its budget."""

    run: str
    name: str
    queue: str
    work: dict[str, str]
    concurrency: int
    budget: str | None = None

    @property
    def terms(self) -> tuple[dict[str, str], str | None]:
        """What a worker cannot change while it works for the run."""
        return self.work, self.budget


@dataclass(frozen=True, slots=True)
class CrewMember:
    """A worker as others see it: its `figures`, and seconds since its last sign and its begin."""

    id: int
    name: str
    slots: int
    seconds: float
    ended: bool
    silent: float
    age: float
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Whether it gives signs of life."""
        return not self.ended and self.silent < SILENT * self.seconds

    @property
    def lost(self) -> bool:
        """Whether it has died without a word."""
        return not self.ended and not self.alive

    def works_for(self, run: str) -> bool:
        """Whether it makes groups of the run with that uid."""
        return self.alive and run in self.figures.get("runs", ())


class Queue:
    """A queue that is open. Raises StoreError where the database cannot be reached."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def rows(self, query: str, **values: Any) -> list[dict[str, Any]]:
        """A query's rows."""
        with _translating():
            connector: Any = self.app.connector
            rows: list[dict[str, Any]] = await connector.execute_query_all_async(query, **values)
            return rows

    async def execute(self, query: str, **values: Any) -> None:
        """Runs a statement."""
        with _translating():
            connector: Any = self.app.connector
            await connector.execute_query_async(query, **values)

    async def crew(self) -> list[CrewMember]:
        """The workers of the last hour, oldest first."""
        return [CrewMember(**row) for row in await self.rows(CREW)]

    async def tell(self, worker: int, figures: dict[str, Any]) -> bool:
        """Has a worker give a sign of life, with what it does; returns whether it is known."""
        rows = await self.rows(
            "update crew set beat = now(), figures = %(figures)s where id = %(id)s returning id",
            id=worker,
            figures=figures,
        )
        return bool(rows)

    async def offers(self) -> list[Offer]:
        """The runs that have work now."""
        return [Offer(**row) for row in await self.rows(OFFERS, silent=SILENT)]

    async def stalled(self, queue: str, seconds: float) -> list[int]:
        """The jobs whose worker has given no sign of life for so long."""
        return [row["id"] for row in await self.rows(STALLED, queue=queue, seconds=seconds)]

    async def drop(self, jobs: list[int], status: str) -> None:
        """Takes those of some jobs out of the queue that are at `status` still."""
        await self.execute(
            "delete from procrastinate_jobs where id = any(%(jobs)s)"
            " and status = %(status)s::procrastinate_job_status",
            jobs=jobs,
            status=status,
        )

    async def retry(self, job: int) -> None:
        """Queues a job anew that somebody had begun with; not one that has ended meanwhile."""
        from procrastinate import exceptions

        with suppress(exceptions.ConnectorException):
            await self.app.job_manager.retry_job_by_id_async(job, retry_at=AT_ONCE)


def queue_address(store: str) -> Address:
    """The database that a store's queue is in. Raises InvalidOperation for a store that is a
    file."""
    if not is_address(store):
        raise InvalidOperation(
            f"workers need a shared store, and {store} is a file",
            hint="--store postgresql://USER@HOST/DATABASE; docs/scale.md says how to move there",
        )
    return parse_address(store)


@asynccontextmanager
async def opened(address: Address, name: str = "tfgrpo") -> AsyncIterator[Queue]:
    """Opens, or makes, the queue at an address for the block's length. Raises StoreError."""
    from procrastinate import App, PsycopgConnector

    async def configure(connection: AsyncConnection[Any]) -> None:
        # not as options of the connection, which poolers refuse; each statement is a transaction,
        # which takes half of the round trips
        await connection.set_autocommit(True)
        await connection.execute("select set_config('search_path', %s, false)", (address.queue,))

    await _prepare(address)
    connector = PsycopgConnector(
        conninfo=address.conninfo,
        kwargs=connection_settings(address, name),
        min_size=1,
        max_size=CONNECTIONS,
        timeout=CONNECT_SECONDS,
        reconnect_timeout=CONNECT_SECONDS,
        configure=configure,
    )
    app = App(connector=connector)
    with _translating():
        await app.open_async()
    try:
        yield Queue(app)
    finally:
        await app.close_async()


async def _prepare(address: Address) -> None:
    """Makes the queue's schema where there is none, whoever else does so too."""
    import psycopg
    from procrastinate.schema import SchemaManager
    from psycopg import sql

    digest = hashlib.sha256(address.queue.encode()).digest()
    number = int.from_bytes(digest[:8], "big", signed=True)
    schema = sql.Identifier(address.queue)
    with _translating():
        connection = await psycopg.AsyncConnection.connect(
            address.conninfo, **connection_settings(address)
        )
        async with connection:
            if await _is_there(connection, address.queue, "outcomes"):
                return
            await connection.execute("select pg_advisory_xact_lock(%s)", (number,))
            if await _is_there(connection, address.queue, "outcomes"):
                return
            await connection.execute(sql.SQL("create schema if not exists {}").format(schema))
            await connection.execute(sql.SQL("set local search_path to {}").format(schema))
            await connection.execute(SchemaManager.get_schema().encode())
            await connection.execute(TABLES.encode())
            await _let_members_in(connection, address)


async def _let_members_in(connection: Any, address: Address) -> None:
    """Lets those use a new queue who may train the library that it belongs to."""
    from psycopg import sql

    if not await _is_there(connection, address.schema, "members"):
        return
    cursor = await connection.execute(
        sql.SQL(
            "select m.name from {}.members m join pg_roles r on r.rolname = m.name"
            " where m.level in ('trainer', 'owner') and m.name <> session_user"
        ).format(sql.Identifier(address.schema))
    )
    for (name,) in await cursor.fetchall():
        for what in ("usage on", "all on all tables in", "all on all sequences in"):
            grant = sql.SQL(f"grant {what} schema {{}} to {{}}")
            named = grant.format(sql.Identifier(address.queue), sql.Identifier(name))
            await connection.execute(named)


async def _is_there(connection: Any, schema: str, table: str) -> bool:
    cursor = await connection.execute(
        "select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = %s and c.relname = %s",
        (schema, table),
    )
    return await cursor.fetchone() is not None


@contextmanager
def _translating() -> Iterator[None]:
    """Turns the errors of a database that is away into StoreError."""
    import psycopg
    import psycopg_pool
    from procrastinate import exceptions
    from psycopg import errors

    try:
        yield
    except (psycopg.Error, psycopg_pool.PoolTimeout, exceptions.ConnectorException) as error:
        cause = error.__cause__ or error
        if isinstance(cause, (errors.UndefinedTable, errors.InsufficientPrivilege)):
            raise StoreError(
                "this user of the database may not use the queue of workers",
                hint="ask an owner of the library for the level of a trainer",
            ) from error
        raise StoreError(
            f"the queue of workers cannot be reached: {_reason(cause)}", hint=CHECK
        ) from error


def _reason(error: BaseException) -> str:
    return (str(error).strip().splitlines() or ["no answer"])[0]


@dataclass(frozen=True, slots=True)
class QueuedRun:
    """A run that has work: how many of its groups are queued, and how many are worked on."""

    name: str
    queued: int
    begun: int


@dataclass(frozen=True, slots=True)
class Crew:
    """The workers of the last hour, oldest first, and the runs that have work."""

    members: tuple[CrewMember, ...] = ()
    runs: tuple[QueuedRun, ...] = ()

    def object(self) -> dict[str, Any]:
        """It as JSON for programs."""
        return {
            "workers": [_object(one) for one in self.members],
            "runs": [asdict(one) for one in self.runs],
        }


def read_crew(address: Address) -> Crew:
    """Who works at a queue; nobody where there never was one. Nothing is written. Raises
    StoreError."""
    import psycopg
    from psycopg.rows import dict_row

    settings = connection_settings(address)
    try:
        with psycopg.connect(address.conninfo, autocommit=True, **settings) as connection:
            cursor = connection.cursor(row_factory=dict_row)
            cursor.execute("select set_config('search_path', %s, false)", (address.queue,))
            cursor.execute("select to_regclass('outcomes') is not null as there")
            if not any(row["there"] for row in cursor):
                return Crew()
            members = tuple(CrewMember(**row) for row in cursor.execute(CREW).fetchall())
            runs = tuple(QueuedRun(**row) for row in cursor.execute(QUEUED).fetchall())
    except psycopg.Error as error:
        raise StoreError(
            f"the queue of workers cannot be read: {_reason(error)}", hint=CHECK
        ) from error
    return Crew(members, runs)


def state_of(member: CrewMember) -> str:
    """What a worker is at: working, idle, refusing, stopping, left or lost."""
    if member.lost:
        return "lost"
    if member.ended:
        return "left"
    if member.figures.get("stopping"):
        return "stopping"
    if member.figures.get("doing"):
        return "working"
    refuses = member.figures.get("refuses") and not member.figures.get("runs")
    return "refusing" if refuses else "idle"


def _object(member: CrewMember) -> dict[str, Any]:
    figures = member.figures
    names = ("groups", "attempts", "calls", "replayed", "retries", "failed", "handed_back")
    return {
        "name": member.name,
        "state": state_of(member),
        "slots": member.slots,
        "seconds": round(member.age, 3),
        "silent": round(member.silent, 3),
        "doing": [
            {"run": run, "step": step, "problem": problem}
            for run, step, problem in figures.get("doing", ())
        ],
        "rate": figures.get("rate", 0.0),
        "in_flight": figures.get("in_flight", 0),
        **{name: figures.get(name, 0) for name in names},
        "trouble": figures.get("trouble"),
        "refuses": list(figures.get("refuses", {}).values()),
    }
