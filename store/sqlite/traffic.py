"""The record of traffic in one SQLite file."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence

from tfgrpo.store.activity.traffic import (
    ArmCall,
    ArmScore,
    CallContent,
    CallFilter,
    CallRecord,
    Feedback,
    FoundCalls,
    ListedCall,
    MeasuredCall,
    Place,
    Scale,
    Scales,
    Sums,
    Tags,
    TokenSum,
    UnknownCall,
)
from tfgrpo.store.records import REDACTED
from tfgrpo.store.sqlite.side_file import SideFile

TABLES = """
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
CALL = ", ".join(CallRecord._fields)
TAGGED = "exists (select 1 from json_each(tags) t where t.key = ? and t.value = ?)"
FEEDBACK = ", ".join(Feedback._fields)
LOOKED_AT = 2_000
"""Calls whose words one search reads."""
ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})|\\.", re.ASCII)


class SqliteTraffic(SideFile):
    """Traffic in one SQLite file."""

    application = 0x74667472
    tables = TABLES
    kind = "record of traffic"
    missing = ("no traffic is on record at", "`tfgrpo proxy` records it")

    def _fill(self) -> None:
        self._db.execute("insert into facts values ('secret', ?)", (secrets.token_bytes(32),))

    def secret(self) -> bytes:
        ((value,),) = self._rows("select value from facts where name = 'secret'")
        return bytes(value)

    def add(
        self, calls: Sequence[CallRecord], contents: Sequence[CallContent], sums: Sums | None = None
    ) -> None:
        workers: dict[str, int] = {}
        for call in calls:
            workers[call.worker] = workers.get(call.worker, 0) + 1
        marks = ",".join("?" * len(CallRecord._fields))
        with self._writing():
            self._db.executemany(f"insert or ignore into calls ({CALL}) values ({marks})", calls)
            self._db.executemany("insert or ignore into contents values (?, ?, ?)", contents)
            self._db.executemany(
                "insert into workers values (?, ?)"
                " on conflict (id) do update set recorded = recorded + excluded.recorded",
                workers.items(),
            )
            self._add_up(sums)

    def _add_up(self, sums: Sums | None) -> None:
        rows = [(*key, value) for key, value in (sums or {}).items()]
        self._db.executemany(
            "insert into totals values (?, ?, ?)"
            " on conflict (name, labels) do update set value = value + excluded.value",
            rows,
        )

    def totals(self) -> Sums:
        rows = self._rows("select name, labels, value from totals")
        return {(name, labels): value for name, labels, value in rows}

    def add_feedback(self, feedback: Feedback, sums: Sums | None = None) -> None:
        self.call(feedback.call)
        marks = ",".join("?" * len(feedback))
        with self._writing():
            self._db.execute(f"insert into feedback ({FEEDBACK}) values ({marks})", feedback)
            self._add_up(sums)

    def withdraw_feedback(self, feedback: Feedback, sums: Sums | None = None) -> bool:
        same = " and ".join(f"{name} is ?" for name in Feedback._fields)
        query = f"delete from feedback where row = (select min(row) from feedback where {same})"
        with self._writing():
            was_there = self._db.execute(query, feedback).rowcount > 0
            if was_there:
                self._add_up(sums)
        return was_there

    def scales(self) -> Scales:
        rows = self._rows(
            "select name, value from facts where name >= 'scale:' and name < 'scale;'"
        )
        return {name.partition(":")[2]: Scale(*json.loads(value)) for name, value in rows}

    def set_scale(self, label: str, scale: Scale) -> None:
        with self._writing():
            self._db.execute(
                "insert into facts values (?, ?)"
                " on conflict (name) do update set value = excluded.value",
                (f"scale:{label}", json.dumps(scale)),
            )

    def call(self, id: str) -> CallRecord:
        query = f"select {CALL} from calls where id >= ? and id < ? order by id limit 2"
        rows = self._rows(query, (id, id + "\U0010ffff")) if id and id.isascii() else []
        exact = [row for row in rows if row[0] == id]
        if len(exact or rows) != 1:
            raise UnknownCall(
                f"no call {id!r} is on record" if not rows else f"{id!r} is ambiguous",
                hint="`tfgrpo traffic` lists calls; old ones are deleted (--keep)",
            )
        return CallRecord._make((exact or rows)[0])

    def content(self, id: str) -> CallContent | None:
        rows = self._rows("select call, request, answer from contents where call = ?", (id,))
        return CallContent._make(rows[0]) if rows else None

    def feedback(self, id: str) -> list[Feedback]:
        query = f"select {FEEDBACK} from feedback where call = ? order by time, row"
        return [Feedback._make(row) for row in self._rows(query, (id,))]

    def calls(self, which: CallFilter, most: int) -> list[ListedCall]:
        query, values = _listing(which)
        return [
            ListedCall(CallRecord._make(row[:-2]), row[-2], row[-1])
            for row in self._rows(f"select * {query} limit ?", [*values, most])
        ]

    def search(self, which: CallFilter, words: str, most: int) -> FoundCalls:
        wanted, fitting, reached = words.casefold(), list[ListedCall](), None
        query, values = _listing(which)
        known_words = (
            "(select group_concat(author || ' ' || coalesce(label, '') || ' ' ||"
            " coalesce(comment, '') || ' ' || coalesce(correct, ''), ' ')"
            " from feedback where call = listed.id), listed.error,"
            " (select request || ' ' || answer from contents where call = listed.id)"
        )
        with self._translating():
            rows = self._db.execute(
                f"select *, {known_words} {query} limit ?", [*values, LOOKED_AT + 1]
            )
            for number, (*row, feedback, error, content) in enumerate(rows):
                if number == LOOKED_AT or len(fitting) == most:
                    return FoundCalls(fitting, reached)
                call = CallRecord._make(row[:-2])
                reached = Place(call.time, call.id)
                if any(wanted in _plain(text) for text in (feedback, error, content) if text):
                    fitting.append(ListedCall(call, row[-2], row[-1]))
        return FoundCalls(fitting, None)

    def measured(self, since: int, tags: Tags = ()) -> list[MeasuredCall]:
        scored = "select call, avg(score) from feedback where score is not null group by call"
        scores = dict(self._rows(scored))
        columns = ", ".join(MeasuredCall._fields[:-1])
        # `+` has the file read in its order: by an index, each call would be looked up by itself.
        where = " and ".join(["+time >= ?", *[TAGGED] * len(tags)])
        values = [since, *(part for tag in tags for part in tag)]
        rows = self._rows(f"select {columns}, id from calls where {where}", values)
        return [MeasuredCall._make((*row[:-1], scores.get(row[-1]))) for row in rows]

    def tokens(self, since: int) -> list[TokenSum]:
        query = (
            "select model, provider, status, sum(prompt_tokens),"
            " sum(min(coalesce(cached_tokens, 0), prompt_tokens)), sum(completion_tokens), count(*)"
            " from calls where +time >= ?"
            " group by model, provider, status, prompt_tokens is null, completion_tokens is null"
        )
        return [TokenSum._make(row) for row in self._rows(query, (since,))]

    def prompts(self, since: int) -> list[tuple[str, str | None, int]]:
        query = (
            "select digest, experiences, count(*) from calls"
            " where +time >= ? and digest is not null group by digest, experiences"
        )
        return self._rows(query, (since,))

    def arm_calls(self, arms: Sequence[str], since: int, tags: Tags = ()) -> list[ArmCall]:
        marks = ",".join("?" * len(arms)) + ")" + f" and {TAGGED}" * len(tags)
        values = [part for tag in tags for part in tag]
        query = (
            f"select {', '.join(ArmCall._fields)} from calls"
            f" where time >= ? and arm in ({marks} order by time, id"
        )
        return [ArmCall._make(row) for row in self._rows(query, (since, *arms, *values))]

    def arm_scores(self, arms: Sequence[str], since: int, tags: Tags = ()) -> list[ArmScore]:
        marks = ",".join("?" * len(arms)) + ")" + f" and {TAGGED}" * len(tags)
        values = [part for tag in tags for part in tag]
        query = (
            "select f.call, f.score, f.label from feedback f join calls c on c.id = f.call"
            f" where f.score is not null and c.time >= ? and c.arm in ({marks} order by f.row"
        )
        return [ArmScore._make(row) for row in self._rows(query, (since, *arms, *values))]

    def score_ranges(self) -> Mapping[str | None, tuple[float, float]]:
        query = (
            "select label, min(score), max(score) from feedback where score is not null"
            " group by label"
        )
        return {label: (low, high) for label, low, high in self._rows(query)}

    def count_lost(self, number: int) -> None:
        with self._writing():
            self._db.execute(
                "insert into facts values ('lost', ?)"
                " on conflict (name) do update set value = value + excluded.value",
                (number,),
            )

    def lost(self) -> int:
        rows = self._rows("select value from facts where name = 'lost'")
        return int(rows[0][0]) if rows else 0

    def recorded(self, worker: str) -> int:
        rows = self._rows("select recorded from workers where id = ?", (worker,))
        return int(rows[0][0]) if rows else 0

    def delete_before(self, time: int) -> int:
        if not self._rows("select 1 from calls where time < ? limit 1", (time,)):
            return 0
        self._db.execute("pragma secure_delete = on")
        with self._writing():
            old = "(select id from calls where time < ?)"
            for table in ("contents", "feedback"):
                self._db.execute(f"delete from {table} where call in {old}", (time,))
            deleted = self._db.execute("delete from calls where time < ?", (time,)).rowcount
        with self._translating():  # what they were is in the log of writes too
            self._db.execute("pragma wal_checkpoint(truncate)")
        return deleted

    def redact(self, pattern: re.Pattern[str], *, dry_run: bool = False) -> int:
        changed = 0
        places = {
            "contents": ("call", ("request", "answer")),
            "feedback": ("row", ("author", "label", "comment", "correct")),
            "calls": ("id", ("model", "route", "error", "tags")),
        }
        self._db.execute("pragma secure_delete = on")
        with self._writing():
            for table, (key, columns) in places.items():
                query = f"select {key}, {', '.join(columns)} from {table}"
                for row in self._db.execute(query).fetchall():
                    clean = [v and pattern.sub(REDACTED, v) for v in row[1:]]
                    if clean != list(row[1:]):
                        changed += 1
                        if dry_run:
                            continue
                        sets = ", ".join(f"{column} = ?" for column in columns)
                        self._db.execute(
                            f"update {table} set {sets} where {key} = ?", (*clean, row[0])
                        )
            changed += self._redact_totals(pattern, dry_run=dry_run)
        if not dry_run:  # what an interrupted redaction took out may be in free pages
            with self._translating():
                self._db.execute("vacuum")
                self._db.execute("pragma wal_checkpoint(truncate)")
        return changed

    def _redact_totals(self, pattern: re.Pattern[str], *, dry_run: bool) -> int:
        """Takes a pattern out of the labels of sums; those that have the same ones then are one."""
        changed = 0
        for name, labels, value in self._db.execute("select * from totals").fetchall():
            pairs = json.loads(labels)
            clean = {key: pattern.sub(REDACTED, label) for key, label in pairs.items()}
            if clean == pairs:
                continue
            changed += 1
            if not dry_run:
                key = (name, labels)
                self._db.execute("delete from totals where name = ? and labels = ?", key)
                self._add_up({(name, json.dumps(clean)): value})
        return changed


def _listing(which: CallFilter) -> tuple[str, list[object]]:
    """The query for calls, newest first, from `from` on, and its values."""
    values: list[object] = [which.since]
    conditions = ["time >= ?"]
    parts: Mapping[str, object] = {
        "library = ?": which.library,
        "model = ?": which.model,
        "subject = ?": which.subject,
        "arm = ?": which.arm,
        "key = ?": which.key,
        "score < ?": which.below,
        "time < ?": which.until,
    }
    for condition, value in parts.items():
        if value is not None:
            conditions.append(condition)
            values.append(value)
    if which.version is not None:
        conditions.append("(version = ? or digest glob ?)")
        values += [which.version, which.version + "*"]
    if which.trace is not None:
        conditions.append("trace glob ?")
        values.append(which.trace + "*")
    conditions += [TAGGED] * len(which.tags)
    values += [part for tag in which.tags for part in tag]
    if which.failed:
        conditions.append("(status >= 400 or status = 0)")
    if which.with_feedback:
        conditions.append("feedback > 0")
    if which.after is not None:
        conditions.append("(time < ? or (time = ? and id > ?))")
        values += [which.after.time, which.after.time, which.after.id]
    columns = ", ".join(f"calls.{name}" for name in CallRecord._fields)
    query = (
        f"from (select {columns},"
        " (select count(*) from feedback where call = calls.id) as feedback,"
        " (select avg(score) from feedback where call = calls.id) as score from calls) as listed"
        f" where {' and '.join(conditions)} order by time desc, id"
    )
    return query, values


def _plain(text: str) -> str:
    """A text as words are looked for in it: JSON's escapes are the letters they stand
    for, in small letters."""
    if "\\" in text:
        halves = ESCAPE.sub(_letter, text).encode("utf-16", "surrogatepass")
        text = halves.decode("utf-16", "replace")
    return text.casefold()


def _letter(escape: re.Match[str]) -> str:
    code = escape[1]
    if code is None:
        return " " if escape[0] in ("\\n", "\\t", "\\r") else escape[0][1:]
    return chr(int(code, 16))
