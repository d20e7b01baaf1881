"""A connection to the library's schema, opened again after a restart; its errors get hints here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import psycopg
from psycopg import ServerCursor, errors
from psycopg.adapt import Buffer, Loader
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper, StrDumperUnknown

from tfgrpo.migrations.postgres import MIGRATIONS, POSTGRES_SCHEMA
from tfgrpo.store.address import connection_settings
from tfgrpo.store.errors import RowRefused, StoreAway, StoreError, not_unicode, upgrade_hint
from tfgrpo.store.postgres.rights import refusal_of

if TYPE_CHECKING:
    from tfgrpo.store.address import Address


class TextDumper(StrDumperUnknown):
    """A text of no type in particular, as most parameters are."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class TypedTextDumper(StrDumper):
    """A text within an array."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return unescaped(bytes(data).decode())


def escaped(text: str) -> str:
    """A text as it is stored."""
    if "\x00" in text or "\x01" in text:
        return text.replace("\x01", "\x011").replace("\x00", "\x010")
    return text


def unescaped(text: str) -> str:
    """A text as it was before it was stored."""
    if "\x01" in text:
        return text.replace("\x010", "\x00").replace("\x011", "\x01")
    return text


def register(connection: psycopg.Connection[Any]) -> None:
    """Has a connection write and read texts so, and every integer as one of 64 bits."""
    adapters = connection.adapters
    adapters.register_dumper(str, TypedTextDumper)
    adapters.register_dumper(str, TextDumper)
    adapters.register_loader("text", TextLoader)
    adapters.register_dumper(int, Int8Dumper)


Values: TypeAlias = Sequence[object] | Mapping[str, object]
T = TypeVar("T")
WAIT = "60s"
"""How long a writer waits for its turn."""
IDLE = "5min"
"""How long a transaction may stand still before the database ends it: its holder has gone."""

SIGNS_OF_AWAY = (
    *("is the server running", "refused", "timeout", "timed out", "unreachable", "no route to"),
    *("starting up", "shutting down", "recovery mode", "not yet accepting", "too many clients"),
    *("connection slots", "closed the connection", "connection reset", "terminating connection"),
)
"""What libpq and a server say of a database that is restarted, unplugged or too busy for one more.
A host without an address, a user or a database that is not there is none of these."""


class Session:
    """Runs queries in a library's schema, which they write as `@`, for one thread at a time."""

    in_transaction = False

    def __init__(self, address: Address) -> None:
        self.address = address
        self.quoted = '"' + address.schema + '"'
        digest = hashlib.sha256(address.schema.encode()).digest()
        self.lock = int.from_bytes(digest[:8], "big", signed=True)
        self.channel = f"tfgrpo_{digest.hex()[:24]}"
        self.opened = 0
        self._connection: psycopg.Connection[Any] | None = None
        self._streams = 0

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """The connection, opened when it is not. Raises StoreError."""
        if self._connection is None or self._connection.closed:
            if self.in_transaction:
                raise lost_error(self.address)
            self._connection = connect(self.address)
            self.opened += 1
        return self._connection

    @property
    def broken(self) -> bool:
        """Whether the connection was lost."""
        return self._connection is None or self._connection.closed

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def sql(self, query: str) -> bytes:
        """A query with the schema in its place, and places for values as psycopg has them."""
        return query.replace("@.", self.quoted + ".").replace("?", "%s").encode()

    def again(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        """The result of `work` with the connection; once more with a new one where the old one
        turns out to be lost and nothing was begun. Raises StoreError."""
        connection = self.connection
        try:
            return work(connection)
        except psycopg.OperationalError as error:
            if not connection.closed or self.in_transaction:
                raise translated(error, self.address) from error
        except (psycopg.Error, UnicodeError) as error:
            raise translated(error, self.address) from error
        try:
            return work(self.connection)
        except (psycopg.Error, UnicodeError) as error:
            raise translated(error, self.address) from error

    def rows(self, query: str, values: Values = ()) -> list[Any]:
        """A query's rows."""
        text = self.sql(query)
        return self.again(lambda c: c.execute(text, values).fetchall())

    def row(self, query: str, values: Values = ()) -> Any:
        """A query's first row, or None."""
        text = self.sql(query)
        return self.again(lambda c: c.execute(text, values).fetchone())

    def execute(self, query: str, values: Values = ()) -> int:
        """Runs a statement; returns how many rows it was about."""
        text = self.sql(query)
        return self.again(lambda c: c.execute(text, values).rowcount)

    def stream(self, query: str, values: Values = ()) -> Generator[Any, None, None]:
        """A query's rows as they are read, a thousand to a round trip."""
        if self.in_transaction:
            self._streams += 1  # one may be read while another is
            name = f"tfgrpo_rows_{self._streams}"
            with self.translating(), ServerCursor(self.connection, name) as cursor:
                cursor.itersize = 1000
                yield from cursor.execute(self.sql(query), values)
        else:
            yield from self.rows(query, values)

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Turns PostgreSQL's errors into ours."""
        try:
            yield
        except (psycopg.Error, UnicodeError) as error:
            raise translated(error, self.address) from error

    @contextmanager
    def begun(self, begin: str) -> Iterator[None]:
        """A transaction that `begin` opens; whole or not at all."""
        try:
            self.again(lambda c: c.execute(begin.encode()))
        except BaseException:  # it may have begun, and have waited for its turn in vain
            self.roll_back()
            raise
        self.in_transaction = True
        connection = self.connection
        try:
            with self.translating():
                yield
                connection.execute("commit")
        except BaseException:
            self.roll_back()
            raise
        finally:
            self.in_transaction = False

    def roll_back(self) -> None:
        """Ends what was begun, if anything is; its locks are free when this returns."""
        connection = self._connection
        if connection is not None and not connection.closed:
            with suppress(Exception):  # a connection that is lost has ended it already
                connection.execute("rollback")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """A transaction that writes, when it is this writer's turn; joins one that is open. Its
        commit is told to whoever listens."""
        if self.in_transaction:
            yield
            return
        begin = (
            f"begin; set local lock_timeout = '{WAIT}';"
            f" set local idle_in_transaction_session_timeout = '{IDLE}';"
            f" select pg_advisory_xact_lock({self.lock}); notify {self.channel}"
        )
        with self.begun(begin):
            yield


def connect(address: Address) -> psycopg.Connection[Any]:
    """Opens a connection in autocommit mode. Raises StoreError."""
    try:
        connection: psycopg.Connection[Any] = psycopg.connect(
            address.conninfo,
            autocommit=True,
            client_encoding="UTF8",
            prepare_threshold=None,  # a pooler may give each transaction another server process
            **connection_settings(address),
        )
    except psycopg.Error as error:
        raise unreachable_error(error, address) from None
    except UnicodeError:
        raise StoreError("the address of the database cannot be read", hint="use ASCII") from None
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        connection.close()
        raise StoreError(
            f"{address.database or 'the database'} has the encoding {encoding}",
            hint="create one with `createdb --encoding UTF8 --template template0 NAME`",
        )
    register(connection)
    return connection


def unreachable_error(error: Exception, address: Address) -> StoreError:
    """The error for a connection that could not be made: StoreAway where one may be made later."""
    lines = str(error).strip().splitlines()
    message = lines[-1].strip() if lines else "no answer"
    is_away = any(sign in str(error).lower() for sign in SIGNS_OF_AWAY)
    return (StoreAway if is_away else StoreError)(
        f"cannot reach the database on {address.host}: {message}",
        hint="check the address, postgresql://USER@HOST/DATABASE?library=NAME, the password "
        "(PGPASSWORD, ~/.pgpass), and that the database is there (`createdb`) and running",
    )


def lost_error(address: Address) -> StoreError:
    """The error for a connection that broke in a transaction."""
    return StoreAway(
        f"the connection to the database on {address.host} was lost",
        hint="nothing of what was not committed is recorded; run the same command again",
    )


def translated(error: Exception, address: Address) -> StoreError:
    """The error that a user should read in place of PostgreSQL's."""
    if isinstance(error, UnicodeEncodeError):
        return not_unicode(error)
    assert isinstance(error, (psycopg.Error, UnicodeError))
    message = str(error).strip().partition("\n")[0]
    if isinstance(error, errors.LockNotAvailable):
        return StoreError(
            f"{address.place} is busy: somebody has been writing to it for over a minute",
            hint="run the same command again when that is done",
        )
    if isinstance(error, errors.InsufficientPrivilege):
        return refusal_of(address.place, message)
    if isinstance(error, (errors.UndefinedTable, errors.InvalidSchemaName)):
        return missing_error(address)
    if isinstance(error, (errors.DiskFull, errors.OutOfMemory)):
        return StoreError(
            f"cannot write {address.place}: {message}",
            hint="free some space on the server and run the same command again",
        )
    if isinstance(error, (errors.IntegrityError, errors.DataError)):
        return RowRefused(f"{address.place}: {message}", hint="nothing was recorded")
    if isinstance(error, psycopg.OperationalError):
        return lost_error(address)
    return StoreError(f"{address.place}: {message}", hint="`tfgrpo fsck` checks the store")


def missing_error(address: Address) -> StoreError:
    """The error for a library that is not there."""
    return StoreError(
        f"there is no {address.place}",
        hint=f"create it with `tfgrpo --store '{address.text}' init`",
    )


def prepare(session: Session, *, create: bool, watching: bool = False) -> None:
    """Makes or migrates the library's schema where that is needed. Raises StoreError."""
    schema = _schema_number(session)
    if schema is None and not create:
        raise missing_error(session.address)
    schema = schema or 0
    if schema > POSTGRES_SCHEMA:
        raise StoreError(
            f"{session.address.place} has schema {schema}; this tfgrpo reads {POSTGRES_SCHEMA}",
            hint=upgrade_hint(),
        )
    if schema < POSTGRES_SCHEMA:
        if schema and (watching or not _owns(session)):
            raise StoreError(
                f"{session.address.place} has the older schema {schema}",
                hint="any command of whoever created it, such as `tfgrpo log`, brings it up to "
                "date",
            )
        migrate(session)


def _owns(session: Session) -> bool:
    """Whether the connected user may change the schema itself."""
    (owns,) = session.row(
        "select pg_has_role(session_user, nspowner, 'USAGE') from pg_namespace where nspname = %s",
        (session.address.schema,),
    )
    return bool(owns)


def has_schema(session: Session) -> bool:
    """Whether a session's library is in its database."""
    return _schema_number(session) is not None


def _schema_number(session: Session) -> int | None:
    there = session.row(
        "select 1 from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = %s and c.relname = 'migrations'",
        (session.address.schema,),
    )
    if there is None:
        return None
    return int(session.row("select coalesce(max(number), 0) from @.migrations")[0])


def migrate(session: Session) -> None:
    """Brings a library's schema to the present one, whole or not at all, whoever else tries."""
    with session.writing():
        schema = _schema_number(session)
        if schema is None:
            session.execute(f"create schema if not exists {session.quoted}")
        for number, script in enumerate(MIGRATIONS, 1):
            if number > (schema or 0):
                with session.translating():
                    session.connection.execute(session.sql(script))
                session.execute("insert into @.migrations (number) values (%s)", (number,))
        if schema is None:
            session.execute("insert into @.members values (session_user, 'owner')")
