"""The ref log, the remotes and the record of redactions in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from tfgrpo.store.damaged_values import check_row, check_rows, damage_error, parse_json
from tfgrpo.store.records import TAGGED, BranchTip, Redaction, RefMove, Version
from tfgrpo.store.sql.rows import OF_VERSION, REF_COLUMNS, moves_of, version_of

if TYPE_CHECKING:
    from tfgrpo.store.sql.port import SqlPort


OF_MOVE = ", ".join("r." + column for column in REF_COLUMNS.split(", "))
BY_NAME = itemgetter(2)
PAGES = (10, 100, 1000)
"""Moves that are read at a time: few at first, because most who ask need the newest."""

HEAD_QUERY = f"""
select h.symbol, {OF_VERSION}
from (select symbol, version from @.reflog where name = 'HEAD' order by row desc limit 1) h
join @.versions v on v.number = case when h.symbol is null then h.version else
    (select version from @.reflog where name = h.symbol order by row desc limit 1) end
"""
TIP_QUERY = f"""
select {OF_VERSION}, r.symbol, (select max(number) from @.versions),
    (select max(row) from @.reflog), not exists (
        select 1 from @.events where row > v.position and row < ((v.position >> 40) + 1) << 40
    ), (
        select version from @.reflog where name = 'protected/' || r.name order by row desc limit 1
    ) is not null
from (select name, version, symbol from @.reflog where name = ? order by row desc limit 1) r
join @.versions v on v.number = r.version
"""
LATEST_QUERY = f"""
with recursive names (name) as (
    select min(name) from @.reflog where name >= ? and name < ?
    union all select (
        select min(l.name) from @.reflog l where l.name > names.name and l.name < ?
    ) from names where names.name is not null
)
select {OF_MOVE} from names join @.reflog r
    on r.row = (select max(l.row) from @.reflog l where l.name = names.name)
"""
MARKS_QUERY = """
select r.name, a.number, a.meta from (
    select number, meta from @.versions where number = ? union all
    select c.number, c.meta from @.versions v join @.versions c on c.position = v.position
    where v.number = ? and c.parent = v.number and c.events = 0 and c.meta is not null
) a join @.reflog r on r.version = a.number
where r.name > 'heads0' and not (r.name >= 'protected/' and r.name < 'protected0')
    and r.row <= ? and not exists (
        select 1 from @.reflog l where l.name = r.name and l.row > r.row and l.row <= ?
    )
"""


class SqlNames:
    """The names of a database: branches, tags, HEAD, remotes."""

    def __init__(self, port: SqlPort) -> None:
        self._port = port

    def ref(self, name: str) -> RefMove | None:
        query = f"select {REF_COLUMNS} from @.reflog where name = ? order by row desc limit 1"
        row = self._port.row(query, (name,))
        return None if row is None else moves_of([row])[0]

    def refs(self, prefix: str) -> list[RefMove]:
        high = prefix + "\U0010ffff"
        return sorted(moves_of(self._port.rows(LATEST_QUERY, (prefix, high, high))), key=BY_NAME)

    def last_move(self) -> int:
        return self._port.number("select max(row) from @.reflog")

    def marks_at(self, number: int, upto: int) -> list[str]:
        rows = self._port.rows(MARKS_QUERY, (number, number, upto, upto))
        return sorted(
            name
            for name, at, meta in check_rows(rows, "siS", "moves of names")
            if at == number
            or (name.startswith("tags/") and TAGGED in parse_json(meta, f"the meta of v{at}"))
        )

    def head(self) -> tuple[str | None, Version] | None:
        row = self._port.row(HEAD_QUERY)
        if row is None or not isinstance(row[0], str | None):
            return None
        return row[0], version_of(row[1:])

    def standing(self, name: str) -> Version | None:
        row = self._port.row(
            f"select {OF_VERSION} from @.versions v where v.number ="
            " (select version from @.reflog where name = ? order by row desc limit 1)",
            (name,),
        )
        return None if row is None else version_of(row)

    def branch_tip(self, name: str) -> BranchTip | None:
        row = self._port.row(TIP_QUERY, (name,))
        if row is None:
            return None
        tip = version_of(row[:10])
        symbol, newest, last_move, ends, protected = row[10:]
        check_row((symbol, newest, last_move), "Sii", "moves of names")
        if not tip.number <= newest < 1 << 40:
            raise damage_error(f"v{newest} cannot be")
        return BranchTip(
            name, tip, tip.number, symbol, newest, last_move, bool(ends), bool(protected)
        )

    def ref_log(self, name: str | None) -> Iterator[RefMove]:
        where, of = ("row < ?", ()) if name is None else ("row < ? and name = ?", (name,))
        query = f"select {REF_COLUMNS} from @.reflog where {where} order by row desc limit ?"
        before, page = 1 << 62, 0
        while True:
            limit = PAGES[min(page, len(PAGES) - 1)]
            rows = self._port.rows(query, (before, *of, limit))
            yield from moves_of(rows)
            if len(rows) < limit:
                return
            before, page = rows[-1][0], page + 1

    def append_refs(
        self, moves: Sequence[RefMove], batch: int | None = None, *, after: int | None = None
    ) -> int:
        self._port.moved()
        first = (self.last_move() if after is None else after) + 1
        batch = batch or first
        rows = [(first + i, batch, *move[2:]) for i, move in enumerate(moves)]
        self._port.insert("reflog", REF_COLUMNS, rows)
        return batch

    def remotes(self) -> dict[str, str]:
        return dict(self._port.rows("select name, location from @.remotes order by name"))

    def put_remote(self, name: str, location: str) -> None:
        self._port.execute(
            "insert into @.remotes (name, location) values (?, ?)"
            " on conflict (name) do update set location = excluded.location",
            (name, location),
        )

    def drop_remote(self, name: str) -> None:
        self._port.execute("delete from @.remotes where name = ?", (name,))


class SqlRedactions:
    """Which events were redacted, by whom and why."""

    def __init__(self, port: SqlPort) -> None:
        self._port = port

    def of(self, row: int) -> list[Redaction]:
        query = "select author, time, reason from @.redactions where event = ? order by row"
        return list(map(Redaction._make, self._port.rows(query, (row,))))

    def append(self, row: int, redactions: Sequence[Redaction]) -> None:
        self._port.moved()
        first = self.last() + 1
        rows = [(first + i, row, *redaction) for i, redaction in enumerate(redactions)]
        self._port.insert("redactions", "row, event, author, time, reason", rows)

    def last(self) -> int:
        return self._port.number("select max(row) from @.redactions")

    def rows(self) -> list[int]:
        return self._port.column("select distinct event from @.redactions order by event")
