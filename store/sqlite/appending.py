"""What an append asks and inserts, in as few steps as SQLite and Python's `sqlite3` allow."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from tfgrpo.store.port import BranchTip, EventRow
from tfgrpo.store.records import Version
from tfgrpo.store.row_checks import check_row, damage_error

TIP_QUERY = """
select v.number, v.digest, v.parent, v.merged, v.position, v.events, v.author, v.time, v.message,
    v.meta, r.symbol, (select max(number) from versions), (select max(row) from reflog),
    not exists (
        select 1 from events where row > v.position and row < ((v.position >> 40) + 1) << 40
    ),
    (select version from reflog where name = 'protected/' || r.name order by row desc limit 1)
        is not null
from (select name, version, symbol from reflog where name = ? order by row desc limit 1) r
cross join versions v on v.number = r.version
"""

INSERT_EVENT = (
    "insert into events values"
    " (?,?,?,nullif(?,-1),nullif(?,-1),nullif(?,-1),nullif(?,-1),nullif(?,-1),"
    "nullif(?,-1),nullif(?,-1),?)"
)
"""Takes what `event_values` makes of an event."""


def tip_of(name: str, tip: Version, columns: tuple[Any, ...]) -> BranchTip:
    """Returns a row of `TIP_QUERY`; `columns` are those after the version's, `tip`. Raises
    StoreError."""
    symbol, newest, last_move, ends, protected = check_row(columns, "Siiii", "moves of names")
    if not tip.number <= newest < 1 << 40:
        raise damage_error(f"v{newest} cannot be")
    return BranchTip(
        name=name,
        tip=tip,
        version=tip.number,
        symbol=symbol,
        last_version=newest,
        last_move=last_move,
        ends_lane=bool(ends),
        is_protected=bool(protected),
    )


def deletions_query(ids: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Returns the query for the DELETEs of these experiences in row order, and its values."""
    columns = "select e.experience, e.row, e.birth from"
    if len(ids) == 1:  # as in most versions by hand: a list of one costs more than its search
        query = f"{columns} events e where e.experience = ? and e.op = 'DELETE' order by e.row"
        return query, (*ids,)
    import json

    query = (
        f"{columns} json_each(?) j cross join events e on e.experience = j.value"
        " where e.op = 'DELETE' order by e.row"
    )
    return query, (json.dumps(list(ids)),)


def event_values(events: Iterable[EventRow]) -> list[tuple[object, ...]]:
    """Returns events as `INSERT_EVENT` takes them.

    Python's `sqlite3` looks for an adapter of each value that is None or bytes, which takes a
    third of an insert; of an integer and a bytearray it does not. No column has -1.
    """
    return [
        (
            row,
            op,
            experience,
            -1 if text is None else text,
            -1 if reason is None else reason,
            -1 if evidence is None else evidence,
            -1 if replaces is None else replaces,
            -1 if birth is None else birth,
            -1 if seal is None else bytearray(seal),
            -1 if salt is None else bytearray(salt),
            schema,
        )
        for row, op, experience, text, reason, evidence, replaces, birth, seal, salt, schema in (
            events
        )
    ]
