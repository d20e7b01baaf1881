"""The members of a library: grants of PostgreSQL on its schema. Nobody may UPDATE or DELETE
records; a redaction calls functions of the schema's own role (`SECURITY DEFINER`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tfgrpo.store.errors import StoreError
from tfgrpo.store.port import Level

if TYPE_CHECKING:
    from tfgrpo.store.postgres.port import PostgresPort

OF_VERSIONS = ("versions", "events", "lanes", "snapshots", "reflog")
OF_CALLS = ("texts", "journal", "evaluations", "scores")
INSERTED: dict[Level, tuple[str, ...]] = {
    "reader": (),
    "trainer": (*OF_VERSIONS, *OF_CALLS, "runs", "run_states", "rollouts"),
    "reviewer": (*OF_VERSIONS, *OF_CALLS, "decisions", "redactions"),
    "owner": (
        *(*OF_VERSIONS, *OF_CALLS, "runs", "run_states", "rollouts"),
        *("decisions", "redactions", "remotes", "members"),
    ),
}
"""The tables to which each level may append."""
REPLACED: dict[Level, tuple[str, ...]] = {
    "reader": (),
    "trainer": ("snapshots",),
    "reviewer": ("snapshots",),
    "owner": ("snapshots", "remotes", "members"),
}
"""The tables of which rows may go or change: what is derived, and settings."""
REDACTING: tuple[Level, ...] = ("reviewer", "owner")
FUNCTIONS = (
    "blank_event(bigint)",
    "put_redacted(text, text[], text)",
    "put_redacted_request(bytea, bytea, text)",
)


class Member(NamedTuple):
    """A user of the database, and what they may do in a library."""

    name: str
    level: Level


class PostgresMembers:
    """The members of one library of a database."""

    def __init__(self, port: PostgresPort) -> None:
        self._port = port
        self._session = port.session

    def all(self) -> list[Member]:
        """The members, names ascending."""
        rows = self._session.rows("select name, level from @.members order by name")
        return [Member._make(row) for row in rows]

    def grant(self, name: str, level: Level) -> None:
        """Lets a user of the database do what `level` may, and nothing more. Raises StoreError."""
        user = self._user(name)
        with self._port.transaction():
            self._set(name, level)
            self._grant_queue(user, level)

    def revoke(self, name: str) -> None:
        """Takes away whatever a user may do. Raises StoreError for somebody who is no member."""
        if name not in {member.name for member in self.all()}:
            raise StoreError(f"{name} is no member", hint="`tfgrpo store members` lists them")
        user = self._user(name)
        with self._port.transaction():
            self._set(name, None)
            self._grant_queue(user, None)

    def _set(self, name: str, level: Level | None) -> None:
        # By a function of the schema's own role: whoever may call it, the grants are that role's.
        of = level or "reader"
        self._session.rows(
            "select @.set_member(%s, %s, %s::text[], %s::text[], %s::text[])",
            (
                *(name, level, list(INSERTED[of]), list(REPLACED[of])),
                list(FUNCTIONS if level in REDACTING else ()),
            ),
        )

    def _user(self, name: str) -> str:
        row = self._session.row(
            "select quote_ident(rolname)::text, rolname = session_user or rolsuper from pg_roles"
            " where rolname = %s",
            (name,),
        )
        if row is None:
            raise StoreError(
                f"the database has no user {name}",
                hint=f"create one with `createuser --pwprompt {name}`",
            )
        if row[1]:
            raise StoreError(
                f"{name} owns the library or the server, and may do everything",
                hint="name another user",
            )
        return str(row[0])

    def _grant_queue(self, user: str, level: Level | None) -> None:
        """Lets those who train use the workers' queue, where there is one of this user's."""
        schema = self._session.address.schema + "_queue"
        own = self._session.row(
            "select 1 from pg_namespace where nspname = %s"
            " and pg_has_role(session_user, nspowner, 'MEMBER')",
            (schema,),
        )
        if own is None:
            return
        verb, to = ("grant", "to") if level in ("trainer", "owner") else ("revoke", "from")
        run = self._session.execute
        run(f'{verb} usage on schema "{schema}" {to} {user}')
        for what in ("tables", "sequences", "functions"):
            run(f'{verb} all on all {what} in schema "{schema}" {to} {user}')
