"""Every change to the schema, in order, as a sqlite-utils `Migrations` set.

A migration that has been released is never edited. Events are not migrated at all: they carry
their own schema number and are upcast when read. `docs/format.md` explains the tables.
"""

from __future__ import annotations

import sqlite3

from sqlite_utils import Database, Migrations

from tfgrpo.migrations import APPLICATION_ID, tables

migrations = Migrations("tfgrpo")

UNIQUE = {
    "versions": ("number", "digest"),
    "events": ("row",),
    "lanes": ("lane",),
    "reflog": ("row",),
    "redactions": ("row",),
    "runs": ("id", "name", "uid"),
    "run_states": ("row",),
}
"""The append-only tables, and what no two rows of each may share."""

UNCHANGED = " and ".join(
    f"new.{column} is old.{column}"
    for column in ("row", "op", "experience", "evidence", "replaces", "birth", "seal", "schema")
)

EVENT_TRIGGERS = f"""
create trigger events_no_delete before delete on events
begin select raise(abort, 'events are append-only'); end;

create trigger events_no_update before update on events
when not (
    {UNCHANGED}
    and new.text is null and new.reason is null and new.salt is null
    and exists (select 1 from redactions where event = old.row)
)
begin select raise(abort, 'events are append-only'); end;
"""


@migrations()
def m001_first(db: Database) -> None:
    """The first schema: versions, events, refs, and what training leaves behind."""
    for script in (tables.VERSIONS_AND_EVENTS, tables.REFS, tables.TRAINING, EVENT_TRIGGERS):
        run_script(db, script)
    for table in UNIQUE.keys() - {"events"}:  # whose triggers know of redaction
        for verb in ("update", "delete"):
            db.execute(
                f"create trigger {table}_no_{verb} before {verb} on {table} "
                f"begin select raise(abort, '{table} is append-only'); end"
            )
    for table, keys in UNIQUE.items():
        same = " or ".join(f"{key} = new.{key}" for key in keys)
        db.execute(  # `insert or replace` would delete without asking the delete trigger
            f"create trigger {table}_no_replace before insert on {table} "
            f"when exists (select 1 from {table} where {same}) "
            f"begin select raise(abort, '{table} is append-only'); end"
        )
    db.execute(f"pragma application_id = {APPLICATION_ID}")
    db.execute("pragma user_version = 1")


@migrations()
def m002_remotes(db: Database) -> None:
    """Where other stores are, by the name that their branches are known under here."""
    run_script(db, tables.REMOTES)
    db.execute("pragma user_version = 2")


@migrations()
def m003_indexes(db: Database) -> None:
    """Which tags stand at a version, without reading all of them."""
    run_script(db, tables.INDEXES)
    db.execute("pragma user_version = 3")


DECISION_TRIGGERS = """
create trigger decisions_no_delete before delete on decisions
begin select raise(abort, 'decisions is append-only'); end;

create trigger decisions_no_update before update on decisions
when not (
    new.row is old.row and new.id is old.id and new.time is old.time
    and new.author is old.author and new.kind is old.kind
    and exists (select 1 from decisions where kind = 'redaction' and subject = old.id)
)
begin select raise(abort, 'decisions is append-only'); end;

create trigger decisions_no_replace before insert on decisions
when exists (select 1 from decisions where row = new.row or id = new.id)
begin select raise(abort, 'decisions is append-only'); end;
"""


@migrations()
def m004_decisions(db: Database) -> None:
    """Who decided what about production, when, on what evidence and why."""
    run_script(db, tables.DECISIONS + DECISION_TRIGGERS)
    db.execute("pragma user_version = 4")


@migrations()
def m005_merges(db: Database) -> None:
    """What a history has of other branches, without reading all of its versions."""
    run_script(db, tables.MERGES)
    db.execute("pragma user_version = 5")


def run_script(db: Database, script: str) -> None:
    """Runs a script statement by statement: `executescript` would end the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""
