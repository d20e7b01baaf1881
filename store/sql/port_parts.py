"""The parts of a port: what was redacted, the storage itself, and how much there is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from tfgrpo.store.damaged_values import check_rows, damage_error
from tfgrpo.store.history.walks import row_within
from tfgrpo.store.records import OPS, Redaction

if TYPE_CHECKING:
    import re

    from tfgrpo.store.damaged_values import Defect
    from tfgrpo.store.errors import StoreError
    from tfgrpo.store.port import Work
    from tfgrpo.store.records import Op
    from tfgrpo.store.sql.port import Port
    from tfgrpo.store.text_occurrences import Occurrence

KNOWN = frozenset(OPS)


class SqlRedactions(ABC):
    """What was redacted, and how a text is found and taken out."""

    def __init__(self, port: Port) -> None:
        self._port = port

    def of(self, row: int) -> list[Redaction]:
        """The redactions of the event at `row`, oldest first."""
        query = "select author, time, reason from @.redactions where event = ? order by row"
        rows = check_rows(self._port.rows(query, (row,)), "sts", "redactions")
        return list(map(Redaction._make, rows))

    def append(self, row: int, redactions: Sequence[Redaction]) -> None:
        """Records redactions of the event at `row`. Only inside a transaction."""
        first = self.last() + 1
        rows = [(first + i, row, *redaction) for i, redaction in enumerate(redactions)]
        self._port.insert("redactions", "row, event, author, time, reason", rows)

    def last(self) -> int:
        """A number that grows with every redaction, whoever records it."""
        return self._port.number("select max(row) from @.redactions")

    def rows(self) -> list[int]:
        """The rows of the events whose redaction is on record, ascending."""
        return self._port.column("select distinct event from @.redactions order by event")

    @abstractmethod
    def blank(self, row: int) -> None:
        """Blanks text, reason and salt of a redacted event. Only inside a transaction."""

    def events_holding(self, pattern: re.Pattern[str]) -> list[int]:
        """The rows of the events whose text or reason has the pattern in it, ascending."""
        plain = self._port.records.plain
        rows = self._port.stream(
            f"select row, coalesce({plain('text')}, ''), coalesce({plain('reason')}, '')"
            " from @.events order by row"
        )
        return [row for row, *texts in rows if any(map(pattern.search, texts))]

    def occurrences(self, pattern: re.Pattern[str]) -> list[Occurrence]:
        """Every other place that has the pattern in it, and whether it can be replaced, but for
        what `text_occurrences.is_structure` is about."""
        from tfgrpo.store.text_occurrences import Occurrence, reason_to_stay

        return [
            Occurrence(table, column, row, reason_to_stay(table, column))
            for table, column, key in list(self.text_columns())
            if table != "events" or column not in ("text", "reason")
            for row, text in self._texts(table, column, key)
            if pattern.search(text)
        ]

    def replace(self, pattern: re.Pattern[str]) -> None:
        """Replaces the pattern in these places, and marks answers that had it. Only inside a
        transaction."""
        from tfgrpo.store.text_occurrences import REPLACED, cleaned

        for table, column in REPLACED:
            texts = self._texts(table, column, self.keys(table))
            for *key, text in [row for row in texts if pattern.search(row[-1])]:
                self.put(table, column, key, cleaned(table, column, text, pattern))

    def _texts(self, table: str, column: str, key: str) -> Iterator[Any]:
        """The key and the text of each row that has one of a user's making in a column."""
        from tfgrpo.store.text_occurrences import users_own

        plain = self._port.records.plain(f'"{column}"')
        query = f'select {key}, {plain} from @."{table}" where "{column}" is not null'
        return self._port.stream(query + users_own(table, column))

    @abstractmethod
    def text_columns(self) -> Iterator[tuple[str, str, str]]:
        """Yields the columns of texts: table, column, and what has a row's number for people."""

    @abstractmethod
    def keys(self, table: str) -> str:
        """The columns by which `put` finds a row."""

    @abstractmethod
    def put(self, table: str, column: str, key: Sequence[object], text: str) -> None:
        """Puts a text in the place of another. A text that is named by its digest gets a new one:
        the old one has no salt, and a short secret could be guessed from it."""

    @abstractmethod
    def rewrite(self) -> bool:
        """Removes the last byte of what went; returns False where somebody is reading."""

    def needs_rewrite(self) -> bool:
        """Whether the storage itself says that a `rewrite` is due; a file's plan does instead."""
        return False


class SqlStorage(ABC):
    """The file or database itself: checked, mended, copied, locked. What is not for a database
    alone is a file's: it knows nobody, and its locks are files of its own machine."""

    def __init__(self, port: Port) -> None:
        self._port = port

    def evaluated(self) -> bool:
        """Whether there is any evaluation: asked where `records` takes long to load."""
        return self._port.row("select 1 from @.evaluations limit 1") is not None

    def drop_snapshots(self) -> None:
        """Forgets every snapshot."""
        with self._port.transaction():
            self._port.execute("delete from @.snapshots")

    @abstractmethod
    def size(self) -> int:
        """How many bytes the storage takes."""

    @abstractmethod
    def content(self) -> bytes:
        """What a file with all of this storage in it holds."""

    @abstractmethod
    def check(self) -> list[Defect]:
        """What is wrong with the storage and with what no digest covers. Raises nothing."""

    @abstractmethod
    def rebuild(self) -> None:
        """Makes anew what the storage derives from what is stored: indexes and triggers."""

    def recorder(self, number: int) -> str | None:
        """The database's user by whom a version was recorded; None for a file."""
        return None

    def hold(self, name: str) -> AbstractContextManager[bool]:
        """Holds a lock over the whole store while this process lives; yields whether it was
        free."""
        return nullcontext(True)

    def is_ours(self, name: str) -> bool:
        """Whether a lock that we took is ours still; a lost one is taken again where it can be."""
        return True

    def is_held(self, name: str) -> bool:
        """Whether some process holds the lock of that name over the whole store."""
        return False

    def refusal(self, work: Work) -> StoreError | None:
        """The error for work that the connected user may not do; None where they may."""
        return None


class SqlCounts:
    """What there is in a database, counted."""

    def __init__(self, port: Port) -> None:
        self._port = port

    def events(self) -> int:
        """How many events there are."""
        return self._port.number("select count(*) from @.events")

    def ops(self, after: int, upto: int) -> dict[Op, int]:
        """How many events of each kind have after < row <= upto."""
        query = "select op, count(*) from @.events where row > ? and row <= ? group by op"
        counts = dict(self._port.rows(query, (after, upto)))
        check_ops(counts)
        return counts

    def versions(self, ranges: Sequence[tuple[int, int]]) -> int:
        """How many versions with events end in these ranges (after, upto] of rows."""
        return self._port.number(
            f"select count(*) from {self._port.dialect.pairs} r join @.versions v"
            " on v.position > r.after and v.position <= r.upto where v.events > 0",
            (_pairs(ranges),),
        )

    def modified(self, ranges: Sequence[tuple[int, int]]) -> dict[str, int]:
        """Experience → how many MODIFYs it has in these ranges (after, upto] of rows."""
        rows = self._port.rows(
            f"select e.experience, count(*) from {self._port.dialect.pairs} r join @.events e"
            " on e.row > r.after and e.row <= r.upto where e.op = 'MODIFY' group by e.experience",
            (_pairs(ranges),),
        )
        return dict(rows)

    def keeps(self, rows: Mapping[str, int], ranges: Sequence[tuple[int, int]]) -> dict[int, int]:
        """Row → how many KEEPs in these ranges (after, upto] confirm the event there. `rows` has
        the rows to look at by experience: an experience has one live event at most."""
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
        """The positions of all snapshots, ascending."""
        return self._port.column("select position from @.snapshots order by position")

    def snapshot_sizes(self) -> list[int]:
        """How many bytes each snapshot takes, by position."""
        size = self._port.dialect.bytes_of_snapshot
        return self._port.column(f"select {size} from @.snapshots order by position")


def check_ops(ops: Iterable[str]) -> None:
    """Raises StoreError for an operation that there is not."""
    if not KNOWN.issuperset(ops):
        raise damage_error("an event has an operation that there is not")


def _pairs(ranges: Sequence[tuple[int, int]]) -> str:
    return str([list(pair) for pair in ranges])
