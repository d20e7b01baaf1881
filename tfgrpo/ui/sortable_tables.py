"""Tables that readers sort, and take away as CSV or JSON.

A page names the columns of its rows once; the heads of its table, the order of the rows and the
files come of that. `?sort-KEY=calls` is the largest first, `?sort-KEY=-calls` the smallest.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from starlette.responses import Response

from tfgrpo.ui.page_visit import BadForm, Visit
from tfgrpo.wording import inert_cell

Row = TypeVar("Row")
Cell: TypeAlias = "str | int | float | None"
MEDIA = {"csv": "text/csv; charset=utf-8", "json": "application/json"}
"""The kinds of files, and their media types."""
PAGED = ("start", "from")
"""What an address asks for that only another page of the same rows comes of."""


class Column(NamedTuple, Generic[Row]):
    """A column: its name in addresses and files, its head, and its value of a row. A number is
    sorted from the largest on and stands on the right, unless it is `drawn`."""

    name: str
    title: str
    value: Callable[[Row], Cell]
    number: bool = True
    drawn: bool = False


class Head(NamedTuple):
    """The head of a column: its words, the address that sorts by it (empty: none does), and how it
    is sorted now: `ascending`, `descending` or not at all."""

    name: str
    title: str
    address: str
    number: bool
    order: str


class Table(NamedTuple, Generic[Row]):
    """Rows in the order that was order for, and the heads of their columns. `addresses` are those
    of the files, by what they are called."""

    rows: list[Row]
    heads: list[Head]
    addresses: list[tuple[str, str]]

    def without(self, *names: str) -> Table[Row]:
        """Returns the table without the heads of some columns."""
        return self._replace(heads=[one for one in self.heads if one.name not in names])


class FileAsked(Exception):
    """A table was asked for as a file, which is the answer then, and not the page."""

    def __init__(self, response: Response) -> None:
        super().__init__("a table is asked for as a file")
        self.response = response


def table(
    visit: Visit,
    rows: Sequence[Row],
    columns: Sequence[Column[Row]],
    key: str,
    more: Sequence[Column[Row]] = (),
) -> Table[Row]:
    """Returns a table. `key` tells it from the others of its page, in the address. Sorting leads
    back to the first page of its rows. Raises FileAsked where the address asks for its file, which
    has `more` columns."""
    as_file(visit, rows, (*columns, *more), key)
    name, order = f"sort-{key}", visit.query(f"sort-{key}")
    by = next((one for one in columns if one.name == order.removeprefix("-")), None)
    if order and by is None:
        raise BadForm(f"this is not sorted by {order[:40]!r}")
    is_turned = order.startswith("-")
    ordered = list(rows)
    if by is not None:
        known = [row for row in rows if by.value(row) is not None]
        known.sort(key=by.value, reverse=by.number != is_turned)  # type: ignore[arg-type]
        ordered = known + [row for row in rows if by.value(row) is None]
    others = {one: None for one in visit.request.query_params if one.startswith(("sort-", *PAGED))}
    heads = []
    for one in columns:
        is_by = one is by
        again = f"-{one.name}" if is_by and not is_turned else one.name
        address = visit.address(**{**others, name: again})
        way = "descending" if one.number != is_turned else "ascending"
        right = one.number and not one.drawn
        heads.append(Head(one.name, one.title, address, right, way if is_by else ""))
    return Table(ordered, heads, files(visit, key, **others))


def unsorted(rows: Sequence[Row], columns: Sequence[Column[Row]]) -> Table[Row]:
    """Returns a table that is shown alike to everybody: its heads sort nothing."""
    heads = [Head(one.name, one.title, "", one.number and not one.drawn, "") for one in columns]
    return Table(list(rows), heads, [])


def files(visit: Visit, key: str, **others: None) -> list[tuple[str, str]]:
    """Returns the addresses of a table's files, by what they are called."""
    return [(one.upper(), visit.address(**others, **{"as": f"{one}-{key}"})) for one in MEDIA]


def as_file(visit: Visit, rows: Sequence[Row], columns: Sequence[Column[Row]], key: str) -> None:
    """Raises FileAsked with the file of a table, where the address asks for it."""
    kind, _, which = visit.query("as").partition("-")
    if which != key:
        return
    if kind not in MEDIA:
        raise BadForm(f"a table is not written as {kind[:40]!r}", hint="csv or json")
    cells = [{one.name: one.value(row) for one in columns} for row in rows]
    out = io.StringIO()
    if kind == "json":
        json.dump(cells, out, ensure_ascii=False, indent=1)
    else:
        writer = csv.writer(out)
        writer.writerow([one.name for one in columns])
        writer.writerows(
            [inert_cell(value) if isinstance(value, str) else value for value in one.values()]
            for one in cells
        )
    headers = {"Content-Disposition": f'attachment; filename="{key}.{kind}"'}
    body = out.getvalue().encode("utf-8", "replace")
    raise FileAsked(Response(body, media_type=MEDIA[kind], headers=headers))
