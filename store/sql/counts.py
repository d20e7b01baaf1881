"""Counts over events, versions and snapshots in SQL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tfgrpo.store.damage import damage_error
from tfgrpo.store.history import row_within
from tfgrpo.store.sql.rows import KNOWN

if TYPE_CHECKING:
    from tfgrpo.store.records import Op
    from tfgrpo.store.sql.port import SqlPort


class SqlCounts(ABC):
    """What there is in a database, counted."""

    def __init__(self, port: SqlPort) -> None:
        self._port = port

    @abstractmethod
    def size(self) -> int: ...

    def events(self) -> int:
        return self._port.number("select count(*) from @.events")

    def ops(self, after: int, upto: int) -> dict[Op, int]:
        query = "select op, count(*) from @.events where row > ? and row <= ? group by op"
        counts = dict(self._port.rows(query, (after, upto)))
        if not KNOWN.issuperset(counts):
            raise damage_error("an event has an operation that there is not")
        return counts

    def versions(self, ranges: Sequence[tuple[int, int]]) -> int:
        return self._port.number(
            f"select count(*) from {self._port.dialect.pairs} r join @.versions v"
            " on v.position > r.after and v.position <= r.upto where v.events > 0",
            (_pairs(ranges),),
        )

    def modified(self, ranges: Sequence[tuple[int, int]]) -> dict[str, int]:
        rows = self._port.rows(
            f"select e.experience, count(*) from {self._port.dialect.pairs} r join @.events e"
            " on e.row > r.after and e.row <= r.upto where e.op = 'MODIFY' group by e.experience",
            (_pairs(ranges),),
        )
        return dict(rows)

    def keeps(self, rows: Mapping[str, int], ranges: Sequence[tuple[int, int]]) -> dict[int, int]:
        # A KEEP comes after what it confirms: nothing of an experience's earlier life is read.
        import json

        query = f"""
            select k.replaces, k.row from {self._port.dialect.numbers} j
            join @.events k on k.experience = j.key and k.row > j.value
            where k.replaces = j.value and k.op = 'KEEP'
            """
        keeps = self._port.rows(query, (json.dumps(dict(rows)),))
        return dict(Counter(of for of, row in keeps if row_within(row, ranges)))

    def snapshot_positions(self) -> list[int]:
        return self._port.column("select position from @.snapshots order by position")

    def snapshot_sizes(self) -> list[int]:
        size = self._port.dialect.bytes_of_snapshot
        return self._port.column(f"select {size} from @.snapshots order by position")


def _pairs(ranges: Sequence[tuple[int, int]]) -> str:
    return str([list(pair) for pair in ranges])
