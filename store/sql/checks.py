"""Checks data that no version's digest covers, where the file has it twice: the places of events
(rows, lanes, births), the moves of names, training records. `docs/format.md` lists what it has only
once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgrpo.store.damaged_values import COUNTED, Defect, attempt, call_defects, is_json
from tfgrpo.store.history.walks import rows_contained
from tfgrpo.store.records import LANE_BITS

if TYPE_CHECKING:
    from tfgrpo.store.sql.port import Port

JSON = (
    ("rollouts", "id", "calls"),
    ("rollouts", "id", "verdict"),
    ("evaluations", "id", "config"),
    ("evaluations", "id", "summary"),
    ("decisions", "row", "content"),
)
"""Table, key and column of what is JSON, beside calls and their requests."""
StorageCheck: TypeAlias = Callable[[Any], Iterator[Defect]]
"""From a port of the database to what is wrong with it."""


def check_storage(port: Port, *own: StorageCheck) -> list[Defect]:
    """What `own` checks of a kind of database find wrong, and the checks of places, names and
    records here. Reads all of it, and raises nothing."""
    problems: list[Defect] = []
    for check in (*own, _json, _places, _births, _names, _texts, _runs, _calls):
        problems += attempt(check.__name__.strip("_"), lambda check=check: check(port))  # type: ignore[misc]
    return problems


def _places(port: Port) -> Iterator[Defect]:
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
        yield Defect(f"v{number}", "does not directly follow its parent's events")
    lost = port.rows(
        f"""
        select lane from @.lanes where lane > 0 and not exists (
            select 1 from @.versions
            where position > lane << {LANE_BITS} and position < lane + 1 << {LANE_BITS}
        ) or lane = 0 and base <> 0 or lane < 0
        """
    )
    for (lane,) in lost:
        yield Defect(f"lane {lane}", "belongs to no version")


def _births(port: Port) -> Iterator[Defect]:
    """An experience keeps its place: every event repeats the birth of the one it follows on."""
    differs = port.dialect.differs
    wrong = port.rows(
        f"""
        select e.row from @.events e left join @.events r on r.row = e.replaces
        where r.row >= e.row
            or r.experience {differs} e.experience and e.replaces is not null
            or e.op <> 'ADD' and e.birth {differs} coalesce(r.birth, r.row)
            or e.op = 'ADD' and e.birth {differs} r.birth
            or e.op = 'ADD' and e.replaces is not null and r.op {differs} 'DELETE'
        """
    )
    for (row,) in wrong:
        yield Defect(f"event {row}", "does not fit the event that it replaces")
    fresh = port.rows(
        """
        select e.row, d.row from @.events e join @.events d
            on d.experience = e.experience and d.row < e.row and d.op = 'DELETE'
        where e.op = 'ADD' and e.replaces is null
        """
    )
    for row, deleted in fresh:
        if deleted in rows_contained(port, [deleted], row):
            yield Defect(
                f"event {row}", "brings a deleted experience back without naming its DELETE"
            )


def _names(port: Port) -> Iterator[Defect]:
    """A move repeats where the name stood; a commit's move says its version's message. A commit may
    make the branch first: that move stands at the parent, from where the commit's own leaves."""
    differs = port.dialect.differs
    wrong = port.rows(
        f"""
        select row, name from (
            select row, name, previous, previous_symbol,
                lag(version) over names as version, lag(symbol) over names as symbol
            from @.reflog window names as (partition by name order by row)
        ) m where previous {differs} version or previous_symbol {differs} symbol
        """
    )
    for row, name in wrong:
        yield Defect(f"move {row}", f"of {name}: does not start from where the name stood")
    wrong = port.rows(
        f"""
        select r.row, r.name from @.reflog r left join @.versions v on v.number = r.version
        where substr(r.action, 1, 8) = 'commit: ' and (
            v.message {differs} substr(r.action, 9) or v.author {differs} r.author
            or substr(r.name, 1, 6) = 'heads/' and v.parent {differs} r.previous
        ) and not (r.previous is null and exists (
            select 1 from @.reflog c where c.batch = r.batch and c.row > r.row
                and c.name = r.name and c.previous = r.version and c.action = r.action
        ))
        """
    )
    for row, name in wrong:
        yield Defect(f"move {row}", f"of {name}: does not go to the version that was committed")
    wrong = port.rows(
        "select r.row, r.name from @.reflog r left join @.reflog b on b.row = r.batch"
        f" where b.batch {differs} r.batch or r.batch > r.row"
    )
    for row, name in wrong:
        yield Defect(f"move {row}", f"of {name}: is not part of the operation it names")


def _texts(port: Port) -> Iterator[Defect]:
    key, text_column = port.dialect.text_key, port.records.plain("text")
    for name, digest, text in port.stream(f"select {key}, digest, {text_column} from @.texts"):
        if hashlib.sha256(text.encode()).digest() != digest:
            yield Defect(f"text {_text_name(name)}", "is not what its digest says")
        elif not is_json(text):
            yield Defect(f"text {_text_name(name)}", "is no JSON")


def _text_name(key: int | bytes) -> str:
    """The name of a text for people, by what calls name it by."""
    return key.hex()[:12] if isinstance(key, bytes) else str(key)


def _json(port: Port) -> Iterator[Defect]:
    for table, key, column in JSON:
        for number, text in port.stream(f"select {key}, {column} from @.{table}"):
            if not is_json(text):
                yield Defect(f"row {number} of {table}", f"has a {column} that is no JSON")


def _runs(port: Port) -> Iterator[Defect]:
    for name, digest, config in port.rows("select name, digest, config from @.runs order by id"):
        if not isinstance(config, str) or hashlib.sha256(config.encode()).hexdigest() != digest:
            yield Defect(f"run {name}", "has other settings than its digest says")


def _calls(port: Port) -> Iterator[Defect]:
    """An answer repeats its tokens; rollouts and scores name calls that are there."""
    columns = f"id, {port.records.plain('answer')}, attempts, seconds, {', '.join(COUNTED)}"
    yield from call_defects(port.stream(f"select {columns} from @.journal"))
    keys = {key for (key,) in port.rows("select key from @.journal")}
    named = {key.hex() for key in keys if isinstance(key, bytes)}
    for id, calls in port.stream("select id, calls from @.rollouts"):
        if is_json(calls) and not named.issuperset(map(str, json.loads(calls))):
            yield Defect(f"rollout {id}", "names a call that is not there")
    query = "select evaluation, problem, call from @.scores where call is not null"
    for evaluation, problem, call in port.stream(query):
        if call not in keys:
            yield Defect(f"evaluation {evaluation}", f"names a call of {problem} that is not there")
