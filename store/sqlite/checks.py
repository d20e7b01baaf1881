"""What no version's digest covers, and how far it can be checked all the same.

Where an event stands (rows, lanes, births), where names stood, and what training left behind
say many things twice. Each check here compares the two. What is said once only, such as a
rollout's reward, cannot be told from what was meant: `docs/format.md` lists it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from tfgrpo.store.damaged_values import COUNTED, Defect, attempt, call_defects
from tfgrpo.store.history.walks import contains_row
from tfgrpo.store.port import LANE_BITS
from tfgrpo.store.sqlite.foreign_schema import foreign, schema
from tfgrpo.store.sqlite.packed_texts import define_plain

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.store.sqlite.port import SqlitePort

StorageCheck: TypeAlias = Callable[["SqlitePort"], Iterator[Defect]]

JSON = {
    "journal": ("answer",),
    "rollouts": ("calls", "verdict"),
    "evaluations": ("config", "summary"),
    "texts": ("text",),
    "decisions": ("content",),
}


def check_storage(port: SqlitePort) -> list[Defect]:
    """Checks the file, the schema, places, names and records, reading all of them."""
    problems: list[Defect] = []
    define_plain(port.connection)
    for check in (_schema, _file, _places, _births, _names, _texts, _runs, _json, _calls):
        problems += attempt(check.__name__.strip("_"), lambda check=check: check(port))  # type: ignore[misc]
    return problems


def check_beside(path: Path | str) -> Callable[[], list[Defect]]:
    """Begins to check the storage at `path` in a thread, whose work is SQLite's for the most part
    and leaves the interpreter to others; returns what waits for its end."""
    from tfgrpo.store.sqlite.port import SqlitePort

    defects: list[Defect] = []
    failed: list[BaseException] = []

    def check() -> Iterator[Defect]:
        port = SqlitePort(path, unchecked=True)
        try:
            with port.reading():
                yield from check_storage(port)
        finally:
            port.close()

    def work() -> None:
        try:
            defects.extend(attempt("storage", check))
        except BaseException as error:  # whoever waits is told
            failed.append(error)

    thread = threading.Thread(target=work, name="tfgrpo-check", daemon=True)
    thread.start()

    def finished() -> list[Defect]:
        thread.join()
        if failed:
            raise failed[0]
        return defects

    return finished


def _file(port: SqlitePort) -> Iterator[Defect]:
    """SQLite's own checks, which compute what indexes and constraints say: only where all of them
    are ours, as the check before has told."""
    with port.translating():
        if foreign(port.connection, schema(port.connection), _expected()):
            return
    for (message,) in port.rows("pragma integrity_check(20)"):
        if message != "ok":
            yield Defect("file", str(message), derived="index" in str(message))
    for table, row, parent, _ in port.rows("pragma foreign_key_check"):
        what = f"row {row} of {table} refers to a row of {parent} that is not there"
        yield Defect("file", what, derived="index" in what)


@cache
def _expected() -> dict[tuple[str, str], str]:
    """The schema that the migrations make, which takes as long as 300 events."""
    return schema(None)


def _schema(port: SqlitePort) -> Iterator[Defect]:
    """Every table, index, trigger and view is one that the migrations make, as they make it."""
    with port.translating():
        there = schema(port.connection)
    expected = _expected()
    for (kind, name), sql in expected.items():
        if (kind, name) not in there:
            yield Defect("schema", f"{name} is missing", derived=kind != "table")
        elif there[kind, name] != sql:
            what = f"{name} is not what the migrations make"
            yield Defect("schema", what, derived=kind != "table")
    for kind, name in there.keys() - expected.keys():
        what = f"{kind} {name} is not of a store: it may change what is written"
        yield Defect("schema", what, derived=kind != "table")


def _places(port: SqlitePort) -> Iterator[Defect]:
    """A version's events follow right on its parent's, or begin a lane that leaves there."""
    wrong = port.rows(
        """
        select v.number from versions v join versions p on p.number = v.parent
        left join lanes l on l.lane = v.position >> :bits
        where v.events < 0 or v.position - v.events <> p.position and not (
            v.events > 0 and v.position - v.events = (v.position >> :bits) << :bits
            and l.lane > 0 and l.base = p.position
        )
        """,
        {"bits": LANE_BITS},
    )
    for (number,) in wrong:
        yield Defect(f"v{number}", "does not follow on its parent where it lies")
    lost = port.rows(
        "select lane from lanes where lane > 0 and not exists"
        " (select 1 from versions where position > lane << :bits and position < lane + 1 << :bits)"
        " or lane = 0 and base <> 0 or lane < 0",
        {"bits": LANE_BITS},
    )
    for (lane,) in lost:
        yield Defect(f"lane {lane}", "is not what any version needs")


def _births(port: SqlitePort) -> Iterator[Defect]:
    """An experience keeps its place: every event repeats the birth of the one it follows on."""
    wrong = port.rows(
        """
        select e.row from events e left join events r on r.row = e.replaces
        where r.row >= e.row or r.experience is not e.experience and e.replaces is not null
            or e.op <> 'ADD' and e.birth is not coalesce(r.birth, r.row)
            or e.op = 'ADD' and e.birth is not r.birth
            or e.op = 'ADD' and e.replaces is not null and r.op is not 'DELETE'
        """
    )
    for (row,) in wrong:
        yield Defect(f"event {row}", "does not have the place of what it follows on")
    fresh = port.rows(
        """
        select e.row, d.row from events e join events d
            on d.experience = e.experience and d.row < e.row and d.op = 'DELETE'
        where e.op = 'ADD' and e.replaces is null
        """
    )
    for row, deleted in fresh:
        if contains_row(port, deleted, row):
            yield Defect(f"event {row}", "takes back a deletion and does not say so")


def _names(port: SqlitePort) -> Iterator[Defect]:
    """A move repeats where the name stood; a commit's move says its version's message. The
    operation of a commit may make the branch first: that move stands at the parent, and the
    commit's own move, of the same operation, leaves from there."""
    wrong = port.rows(
        """
        select row, name from (
            select row, name, previous, previous_symbol,
                lag(version) over names as version, lag(symbol) over names as symbol
            from reflog window names as (partition by name order by row)
        ) where previous is not version or previous_symbol is not symbol
        """
    )
    for row, name in wrong:
        yield Defect(f"move {row}", f"of {name}: does not start from where the name stood")
    wrong = port.rows(
        """
        select r.row, r.name from reflog r left join versions v on v.number = r.version
        where r.action like 'commit: %' and (
            v.message is not substr(r.action, 9) or v.author is not r.author
            or r.name like 'heads/%' and v.parent is not r.previous
        ) and not (r.previous is null and exists (
            select 1 from reflog c where c.batch = r.batch and c.row > r.row
                and c.name = r.name and c.previous is r.version and c.action = r.action
        ))
        """
    )
    for row, name in wrong:
        yield Defect(f"move {row}", f"of {name}: does not go to the version that was committed")
    wrong = port.rows(
        "select r.row, r.name from reflog r left join reflog b on b.row = r.batch"
        " where b.batch is not r.batch or r.batch > r.row"
    )
    for row, name in wrong:
        yield Defect(f"move {row}", f"of {name}: is not part of the operation it names")


def _texts(port: SqlitePort) -> Iterator[Defect]:
    for id, digest, text in port.stream("select id, digest, plain(text) from texts"):
        if hashlib.sha256(text.encode()).digest() != digest:
            yield Defect(f"text {id}", "is not what its digest says")


def _runs(port: SqlitePort) -> Iterator[Defect]:
    for name, digest, config in port.rows("select name, digest, config from runs order by id"):
        if not isinstance(config, str) or hashlib.sha256(config.encode()).hexdigest() != digest:
            yield Defect(f"run {name}", "has other settings than its digest says")


def _json(port: SqlitePort) -> Iterator[Defect]:
    for table, columns in JSON.items():
        for column in columns:
            query = f"select id from {table} where not json_valid(plain({column}))"
            for (id,) in port.rows(query):
                yield Defect(f"row {id} of {table}", f"has a {column} that is no JSON")


def _calls(port: SqlitePort) -> Iterator[Defect]:
    """An answer repeats its tokens; rollouts and scores name calls that are there."""
    columns = f"id, plain(answer), attempts, seconds, {', '.join(COUNTED)}"
    yield from call_defects(port.stream(f"select {columns} from journal"))
    keys = {key for (key,) in port.rows("select key from journal")}
    named = {key.hex() for key in keys if isinstance(key, bytes)}
    for id, calls in port.stream("select id, calls from rollouts where json_valid(calls)"):
        if not named.issuperset(map(str, json.loads(calls))):
            yield Defect(f"rollout {id}", "names a call that is not there")
    query = "select evaluation, problem, call from scores where call is not null"
    for evaluation, problem, call in port.stream(query):
        if call not in keys:
            yield Defect(f"evaluation {evaluation}", f"names a call of {problem} that is not there")
