"""Separate SQLite files beside a store, read and written in whole transactions, and one of them:
the record of traffic. `ledger_file.py` is the other one."""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, ClassVar, TypeAlias

from tfgrpo.store.activity import traffic
from tfgrpo.store.activity.key_ledger import Owed, scope_without
from tfgrpo.store.errors import StoreError
from tfgrpo.store.records import REDACTED
from tfgrpo.store.sqlite.checks import Schema, refuse_foreign, schema
from tfgrpo.store.sqlite.file import UnchangingFile, open_database, translated, use_wal, whole

Row: TypeAlias = dict[str, Any]
"""Column → value."""


class SideFile(ABC):
    """A file of one kind, with the tables and the mark of that kind."""

    application: ClassVar[int]
    migrations: ClassVar[tuple[str, ...]]
    """What makes its tables: the first schema, and each change since. Released ones stay as they
    are; `pragma user_version` is how many of them have run."""
    kind: ClassVar[str]
    missing: ClassVar[tuple[str, str]]
    """What is said where there is none, before its path, and how one comes about."""

    def __init__(self, path: str, *, create: bool = False) -> None:
        self.path = path
        if not create and not os.path.isfile(path):
            raise StoreError(f"{self.missing[0]} {path}", hint=self.missing[1])
        with self._translating():
            if create and not os.path.exists(path):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            self._db = open_database(path, timeout=10)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def _prepare(self) -> None:
        version, newest = self._schema(), len(self.migrations)
        # In this order: what is made meanwhile has its tables and its mark at once.
        (tables,) = self._db.execute("select count(*) from sqlite_master").fetchone()
        (application,) = self._db.execute("pragma application_id").fetchone()
        if (application != self.application and tables) or version > newest:
            raise StoreError(f"{self.path} is no {self.kind}", hint="move it away")
        if not isinstance(self._db, UnchangingFile):
            use_wal(self._db)
        self._db.execute("pragma synchronous = normal")
        if version:
            refuse_foreign(self._db, self.path, lambda: self._expected(version))
        if version < newest:
            with self._writing():
                self._migrate()

    def _schema(self) -> int:
        (version,) = self._db.execute("pragma user_version").fetchone()
        return int(version)

    def _migrate(self) -> None:
        version = self._schema()  # another process may have been quicker
        for script in self.migrations[version:]:
            for statement in script.split(";"):
                self._db.execute(statement)
        if not version:
            self._fill()
            self._db.execute(f"pragma application_id = {self.application}")
        self._db.execute(f"pragma user_version = {len(self.migrations)}")

    def _expected(self, version: int) -> Schema:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.executescript(";".join(self.migrations[:version]))
            return schema(connection)

    def _fill(self) -> None:  # noqa: B027 (a file may begin empty)
        """Writes what a new file holds."""

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except (UnicodeError, OverflowError) as error:  # values that no SQL can hold
            raise translated(error, self.path) from error
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path}: {error}", hint="is the disk full?") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._translating(), whole(self._db):
            yield

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[Any]:
        with self._translating():
            return self._db.execute(query, values).fetchall()

    def redact(
        self, pattern: re.Pattern[str], renamed: Mapping[str, str], *, dry_run: bool = False
    ) -> int:
        """Takes a pattern out of every text, gives virtual keys their new names, and takes the
        bytes out of the file; returns from how many rows. With `dry_run` it only counts them."""
        self._db.execute("pragma secure_delete = on")
        with self._translating(), whole(self._db, dry_run=dry_run):
            changed = self._redact(pattern, renamed)
        if not dry_run:  # what an interrupted redaction took out may be in free pages
            with self._translating():
                self._db.execute("vacuum")
                self._db.execute("pragma wal_checkpoint(truncate)")
        return changed

    @abstractmethod
    def _redact(self, pattern: re.Pattern[str], renamed: Mapping[str, str]) -> int:
        """Does it in a transaction; returns how many rows were changed."""

    def _replace(
        self, table: str, key: str, clean: Callable[[Row], Row], again: str = "do nothing"
    ) -> int:
        """Puts other rows in the place of those that `clean` changes; returns how many those were.
        `key` has the names of the primary key, `again` says what is done where it is there."""
        cursor = self._db.execute(f"select * from {table}")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, values, strict=True)) for values in cursor.fetchall()]
        changed = [(row, new) for row in rows if (new := clean(row)) != row]
        where = " and ".join(f"{name} = :{name}" for name in key.split(", "))
        marks = ", ".join(f":{name}" for name in names)
        for row, new in changed:
            self._db.execute(f"delete from {table} where {where}", row)
            self._db.execute(
                f"insert into {table} values ({marks}) on conflict ({key}) {again}", new
            )
        return len(changed)

    def close(self) -> None:
        self._db.close()


TRAFFIC_TABLES = """
create table calls (
    id text primary key, time integer not null, worker text not null, library text, version text,
    digest text, experiences text, subject text, arm text, model text, route text not null,
    status integer not null, streamed integer not null, prompt_tokens integer,
    cached_tokens integer, completion_tokens integer, latency integer not null, first integer,
    added integer not null, stale integer not null, caller blob, error text, trace text, tags text,
    key text, provider text, tries integer
) without rowid;
create index calls_by_time on calls (time);
create table contents (
    call text primary key, request text not null, answer text not null
) without rowid;
create table feedback (
    row integer primary key, call text not null, time integer not null, author text not null,
    score real, label text, comment text, correct text
);
create index feedback_by_call on feedback (call);
create table workers (id text primary key, recorded integer not null) without rowid;
create table totals (
    name text not null, labels text not null, value real not null, primary key (name, labels)
) without rowid;
create table facts (name text primary key, value blob not null) without rowid;
"""
WITHDRAWN = "alter table feedback add column withdrawn integer not null default 0"
"""Feedback that was taken back stays, marked: an experiment has counted it, an undo brings it back,
and a redaction reaches it."""
CALL = ", ".join(traffic.CallRecord._fields)
TAGGED = "exists (select 1 from json_each(tags) t where t.key = ? and t.value = ?)"
FEEDBACK = ", ".join(traffic.Feedback._fields)
MEAN = """avg(coalesce(max(0.0, min(1.0,
    (score - json_extract(value, '$[0]'))
    / (1.0 * json_extract(value, '$[1]') - json_extract(value, '$[0]')))), score))"""
"""The mean of scores of feedback, each by where it lies on its label's scale (`Scale.place`)."""
SCORED = (
    "feedback left join facts on name = 'scale:' || coalesce(label, '') where not withdrawn and"
)
REDACTED_IN = {"contents": "call", "feedback": "row", "calls": "id"}
"""Table with words or names of somebody's own → its key."""
WORDS = frozenset(
    (
        *("request", "answer", "author", "label", "comment", "correct", "model", "route"),
        *("error", "tags", "key", "library", "arm", "provider"),
    )
)
"""Their columns that have them."""
ADD_UP = "do update set value = value + excluded.value"
LABELLED, DELETED = "scale:", "deleted "
"""What the names of facts about a label, and about an arm, begin with."""
LOOKED_AT = 2_000
"""Calls whose words one search reads."""
ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\.", re.ASCII)


class SqliteTraffic(SideFile):
    """Traffic in one SQLite file."""

    application = 0x74667472
    migrations = (TRAFFIC_TABLES, WITHDRAWN)
    kind = "record of traffic"
    missing = ("no traffic is on record at", "`tfgrpo proxy` records it")

    def _fill(self) -> None:
        self._db.execute("insert into facts values ('secret', ?)", (secrets.token_bytes(32),))

    def secret(self) -> bytes:
        """The secret under which callers and subjects are digested here."""
        ((value,),) = self._rows("select value from facts where name = 'secret'")
        return bytes(value)

    def add(
        self,
        calls: Sequence[traffic.CallRecord],
        contents: Sequence[traffic.CallContent],
        sums: traffic.Sums | None = None,
        owed: Owed | None = None,
    ) -> None:
        """Records calls of a worker, adds to sums, and puts down what its calls owe the ledger if
        that is not nothing, all of it or nothing. Raises StoreError."""
        workers: dict[str, int] = {}
        for call in calls:
            workers[call.worker] = workers.get(call.worker, 0) + 1
        marks = ",".join("?" * len(traffic.CallRecord._fields))
        with self._writing():
            self._db.executemany(f"insert or ignore into calls ({CALL}) values ({marks})", calls)
            self._db.executemany("insert or ignore into contents values (?, ?, ?)", contents)
            self._db.executemany(
                "insert into workers values (?, ?)"
                " on conflict (id) do update set recorded = recorded + excluded.recorded",
                workers.items(),
            )
            self._add_up(sums)
            if owed:
                batches = {one: [(*k, v) for k, v in of.items()] for one, of in owed.items()}
                for worker in workers:
                    self._set_fact(f"owed {worker}", batches)

    def _set_fact(self, name: str, value: object) -> None:
        self._db.execute(
            "insert into facts values (?, ?)"
            " on conflict (name) do update set value = excluded.value",
            (name, json.dumps(value)),
        )

    def _add_up(self, sums: traffic.Sums | None) -> None:
        rows = [(*key, value) for key, value in (sums or {}).items()]
        self._db.executemany(
            f"insert into totals values (?, ?, ?) on conflict (name, labels) {ADD_UP}",
            rows,
        )

    def totals(self) -> traffic.Sums:
        """The sums."""
        rows = self._rows("select name, labels, value from totals")
        return {(name, labels): value for name, labels, value in rows}

    def add_feedback(self, feedback: traffic.Feedback, sums: traffic.Sums | None = None) -> None:
        """Records feedback on a call, and adds to sums. Raises UnknownCall or StoreError."""
        self.call(feedback.call)
        marks = ",".join("?" * len(feedback))
        with self._writing():
            self._db.execute(f"insert into feedback ({FEEDBACK}) values ({marks})", feedback)
            self._add_up(sums)

    def withdraw_feedback(
        self, call: str, which: str, *, back: bool = False
    ) -> traffic.Feedback | None:
        """Takes one feedback on a call back, or brings it `back`; `which` is its `key`. Returns
        it; None where there is none to take or bring back. Sums stay as they are."""
        query = (
            f"select row, {FEEDBACK} from feedback"
            " where call = ? and time || '/' || author = ? and withdrawn = ? limit 1"
        )
        with self._writing():
            for row, *values in self._db.execute(query, (call, which, back)).fetchall():
                change = "update feedback set withdrawn = ? where row = ?"
                self._db.execute(change, (not back, row))
                return traffic.Feedback._make(values)
        return None

    def scales(self) -> traffic.Scales:
        """The scales that were set."""
        rows = self._rows(
            "select name, value from facts where name >= 'scale:' and name < 'scale;'"
        )
        return {name.partition(":")[2]: traffic.Scale(*json.loads(value)) for name, value in rows}

    def set_scale(self, label: str, scale: traffic.Scale) -> None:
        """Sets the scale of a label's scores, from now on. Raises StoreError."""
        with self._writing():
            self._set_fact(f"scale:{label}", scale)

    def call(self, id: str) -> traffic.CallRecord:
        """The call of that id, or of the only id that begins so. Raises UnknownCall."""
        query = f"select {CALL} from calls where id >= ? and id < ? order by id limit 2"
        rows = self._rows(query, (id, id + "\U0010ffff")) if id and id.isascii() else []
        exact = [row for row in rows if row[0] == id]
        if len(exact or rows) != 1:
            raise traffic.UnknownCall(
                f"no call {id!r} is on record" if not rows else f"{id!r} is ambiguous",
                hint="`tfgrpo traffic` lists calls; old ones are deleted (--keep)",
            )
        return traffic.CallRecord._make((exact or rows)[0])

    def content(self, id: str) -> traffic.CallContent | None:
        """The words of a call, where they were kept."""
        rows = self._rows("select call, request, answer from contents where call = ?", (id,))
        return traffic.CallContent._make(rows[0]) if rows else None

    def feedback(self, id: str) -> list[traffic.Feedback]:
        """The feedback on a call, oldest first, without what was taken back."""
        stands = "call = ? and not withdrawn"
        query = f"select {FEEDBACK} from feedback where {stands} order by time, row"
        return [traffic.Feedback._make(row) for row in self._rows(query, (id,))]

    def calls(self, which: traffic.CallFilter, most: int) -> list[traffic.ListedCall]:
        """Calls, newest first."""
        query, values = _listing(which)
        return [
            traffic.ListedCall(traffic.CallRecord._make(row[:-2]), row[-2], row[-1])
            for row in self._rows(f"select * {query} limit ?", [*values, most])
        ]

    def search(self, which: traffic.CallFilter, words: str, most: int) -> traffic.FoundCalls:
        """The calls in whose question, answer, error or feedback some words stand, in
        capitals or not. It looks at a limited number of calls, and says how far it came."""
        wanted, fitting, reached = words.casefold(), list[traffic.ListedCall](), None
        query, values = _listing(which)
        known_words = (
            "(select group_concat(author || ' ' || coalesce(label, '') || ' ' ||"
            " coalesce(comment, '') || ' ' || coalesce(correct, ''), ' ')"
            " from feedback where call = listed.id and not withdrawn), listed.error,"
            " (select request || ' ' || answer from contents where call = listed.id)"
        )
        with self._translating():
            rows = self._db.execute(
                f"select *, {known_words} {query} limit ?", [*values, LOOKED_AT + 1]
            )
            for number, (*row, feedback, error, content) in enumerate(rows):
                if number == LOOKED_AT or len(fitting) == most:
                    return traffic.FoundCalls(fitting, reached)
                call = traffic.CallRecord._make(row[:-2])
                reached = traffic.Place(call.time, call.id)
                if any(wanted in _plain(text) for text in (feedback, error, content) if text):
                    fitting.append(traffic.ListedCall(call, row[-2], row[-1]))
        return traffic.FoundCalls(fitting, None)

    def measured(self, since: int, tags: traffic.Tags = ()) -> list[traffic.MeasuredCall]:
        """The calls since then (microseconds) with all of these tags, in no order."""
        scored = f"select call, {MEAN} from {SCORED} score is not null group by call"
        scores = dict(self._rows(scored))
        columns = ", ".join(traffic.MeasuredCall._fields[:-1])
        # `+` has the file read in its order: by an index, each call would be looked up by itself.
        tagged, values = _tagged(tags)
        rows = self._rows(
            f"select {columns}, id from calls where +time >= ?{tagged}", (since, *values)
        )
        return [traffic.MeasuredCall._make((*row[:-1], scores.get(row[-1]))) for row in rows]

    def tokens(self, since: int) -> list[traffic.TokenSum]:
        """The tokens of the calls since then (microseconds), added up."""
        query = (
            "select model, provider, status, sum(prompt_tokens),"
            " sum(min(coalesce(cached_tokens, 0), prompt_tokens)), sum(completion_tokens), count(*)"
            " from calls where +time >= ?"
            " group by model, provider, status, prompt_tokens is null, completion_tokens is null"
        )
        return [traffic.TokenSum._make(row) for row in self._rows(query, (since,))]

    def prompts(self, since: int) -> list[tuple[str, str | None, int]]:
        """How many calls since then (microseconds) had each prompt: the digest of its
        library, its experiences as in `CallRecord`, and the number."""
        query = (
            "select digest, experiences, count(*) from calls"
            " where +time >= ? and digest is not null group by digest, experiences"
        )
        return self._rows(query, (since,))

    def arm_calls(
        self, arms: Sequence[str], since: int, tags: traffic.Tags = ()
    ) -> list[traffic.ArmCall]:
        """The calls in these arms since then (microseconds) with these tags, oldest first."""
        columns = ", ".join(traffic.ArmCall._fields)
        rows = self._of_arms(f"{columns} from calls c where true", "time, id", arms, since, tags)
        return [traffic.ArmCall._make(row) for row in rows]

    def arm_scores(
        self, arms: Sequence[str], since: int, tags: traffic.Tags = ()
    ) -> list[traffic.ArmScore]:
        """The scores of the same calls, in the order in which they arrived, with those that were
        taken back since."""
        scores = "f.call, f.score, f.label from feedback f join calls c on c.id = f.call"
        query = f"{scores} where f.score is not null"
        rows = self._of_arms(query, "f.row", arms, since, tags)
        return [traffic.ArmScore._make(row) for row in rows]

    def _of_arms(
        self, query: str, order: str, arms: Sequence[str], since: int, tags: traffic.Tags
    ) -> list[Any]:
        tagged, values = _tagged(tags)
        arm = f"c.arm in ({','.join('?' * len(arms))})"
        return self._rows(
            f"select {query} and c.time >= ? and {arm}{tagged} order by {order}",
            (since, *arms, *values),
        )

    def score_ranges(self) -> Mapping[str | None, tuple[float, float]]:
        """Label → the least and the largest score with it; None for scores without."""
        query = (
            "select label, min(score), max(score) from feedback"
            " where score is not null and not withdrawn group by label"
        )
        return {label: (low, high) for label, low, high in self._rows(query)}

    def count_lost(self, worker: str, begun: int) -> None:
        """Adds the calls that an ended worker had begun and did not record to the number of lost
        calls, and marks them as recorded, so that they are counted once. Raises StoreError."""
        with self._writing():
            missing = begun - self.recorded(worker).calls
            if missing <= 0:
                return
            self._db.execute(
                "insert into facts values ('lost', ?)"
                " on conflict (name) do update set value = value + excluded.value",
                (missing,),
            )
            self._db.execute(
                "insert into workers values (?, ?)"
                " on conflict (id) do update set recorded = excluded.recorded",
                (worker, begun),
            )

    def lost(self) -> int:
        """The number of calls that were lost before they were recorded."""
        rows = self._rows("select value from facts where name = 'lost'")
        return int(rows[0][0]) if rows else 0

    def recorded(self, worker: str) -> traffic.Recorded:
        """What was recorded of a worker."""
        query = (
            "select recorded, (select value from facts where name = 'owed ' || id) from workers"
            " where id = ?"
        )
        ((calls, owed),) = self._rows(query, (worker,)) or [(0, None)]
        batches = json.loads(owed or "{}").items()
        return traffic.Recorded(
            calls, {batch: {(k, day): v for k, day, v in amounts} for batch, amounts in batches}
        )

    def delete_before(self, time: int) -> int:
        """Deletes calls from before a time, with their words and feedback; returns how many."""
        if not self._rows("select 1 from calls where time < ? limit 1", (time,)):
            return 0
        self._db.execute("pragma secure_delete = on")
        with self._writing():
            arms = (
                "select 'deleted ' || arm, max(time) from calls where arm is not null and time < ?"
            )
            self._db.execute(
                f"insert into facts {arms} group by arm"
                " on conflict (name) do update set value = max(value, excluded.value)",
                (time,),
            )
            old = "(select id from calls where time < ?)"
            for table in ("contents", "feedback"):
                self._db.execute(f"delete from {table} where call in {old}", (time,))
            deleted = self._db.execute("delete from calls where time < ?", (time,)).rowcount
        with self._translating():  # what they were is in the log of writes too
            self._db.execute("pragma wal_checkpoint(truncate)")
        return deleted

    def deleted(self, arms: Sequence[str]) -> int | None:
        """The time (microseconds) of the last call of these arms that was deleted for its age; None
        where none was."""
        names = [f"deleted {arm}" for arm in arms]
        query = f"select max(value) from facts where name in ({', '.join('?' * len(names))})"
        ((time,),) = self._rows(query, names)
        return None if time is None else int(time)

    def _redact(self, pattern: re.Pattern[str], renamed: Mapping[str, str]) -> int:
        def call(row: Row) -> Row:
            words = {name: row[name] for name in WORDS.intersection(row) if row[name]}
            clean = {name: pattern.sub(REDACTED, text) for name, text in words.items()}
            if "arm" in words:
                clean["arm"] = _arm_without(pattern, words["arm"])
            if words.get("key") in renamed:
                clean["key"] = renamed[words["key"]]
            return row | clean

        def fact(row: Row) -> Row:
            name, value = _fact_without(pattern, row["name"]), row["value"]
            if name.startswith("owed "):
                before = json.loads(value)
                owed = {
                    batch: [[scope_without(pattern, scope, renamed), *rest] for scope, *rest in of]
                    for batch, of in before.items()
                }
                value = value if owed == before else json.dumps(owed)
            return {"name": name, "value": value}

        def total(row: Row) -> Row:  # those that have the same labels then are one
            labels = json.loads(row["labels"])
            clean = {key: pattern.sub(REDACTED, label) for key, label in labels.items()}
            return row if clean == labels else row | {"labels": json.dumps(clean)}

        return (
            sum(self._replace(table, key, call) for table, key in REDACTED_IN.items())
            + self._replace("totals", "name, labels", total, ADD_UP)
            + self._replace("facts", "name", fact)
        )


def _fact_without(pattern: re.Pattern[str], name: str) -> str:
    """The name of a fact without a pattern: only labels and arms in it are somebody's words."""
    if name.startswith(LABELLED):
        return LABELLED + pattern.sub(REDACTED, name.removeprefix(LABELLED))
    if name.startswith(DELETED):
        return DELETED + _arm_without(pattern, name.removeprefix(DELETED))
    return name


def _arm_without(pattern: re.Pattern[str], arm: str) -> str:
    """An arm without a pattern; which arm of its experiment it is stays."""
    experiment, slash, which = arm.rpartition("/")
    if which in traffic.ARMS:
        return pattern.sub(REDACTED, experiment) + slash + which
    return pattern.sub(REDACTED, arm)


def _tagged(tags: traffic.Tags) -> tuple[str, list[object]]:
    """The condition that calls have all of these tags, behind others, and its values."""
    return f" and {TAGGED}" * len(tags), [part for tag in tags for part in tag]


def _listing(which: traffic.CallFilter) -> tuple[str, list[object]]:
    """The query for calls, newest first, from `from` on, and its values."""
    after = which.after
    wanted: dict[str, tuple[object, ...]] = {
        "time >= ?": (which.since,),
        f"coalesce(nullif(library, ''), '{traffic.NONE}') = ?": (which.library,),
        "model = ?": (which.model,),
        "subject = ?": (which.subject,),
        "arm = ?": (which.arm,),
        "key = ?": (which.key,),
        "score < ?": (which.below,),
        "time < ?": (which.until,),
        f"(coalesce(version, '{traffic.NONE}') = ? or digest glob ?)": (
            which.version,
            _begins(which.version),
        ),
        "trace glob ?": (_begins(which.trace),),
        "(status >= 400 or status = 0)": () if which.failed else (None,),
        "feedback > 0": () if which.with_feedback else (None,),
        "(time < ? or (time = ? and id > ?))": (after.time, *after) if after else (None,),
    }
    conditions = {one: values for one, values in wanted.items() if None not in values}
    tagged, of_tags = _tagged(which.tags)
    values = [value for some in conditions.values() for value in some] + of_tags
    columns = ", ".join(f"calls.{name}" for name in traffic.CallRecord._fields)
    query = (
        f"from (select {columns},"
        " (select count(*) from feedback where call = calls.id and not withdrawn) as feedback,"
        f" (select {MEAN} from {SCORED} call = calls.id) as score from calls) as listed"
        f" where {' and '.join(conditions)}{tagged} order by time desc, id"
    )
    return query, values


def _begins(text: str | None) -> str | None:
    return None if text is None else text + "*"


def _plain(text: str) -> str:
    """A text as words are looked for in it: without JSON's escapes, in small letters."""
    if "\\" in text:
        halves = ESCAPE.sub(_letter, text).encode("utf-16", "surrogatepass")
        text = halves.decode("utf-16", "replace")
    return text.casefold()


def _letter(escape: re.Match[str]) -> str:
    code = escape[1]
    if code is None:
        return " " if escape[0] in ("\\n", "\\t", "\\r") else escape[0][1:]
    return chr(int(code, 16))
