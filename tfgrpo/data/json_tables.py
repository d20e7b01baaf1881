"""Rows of a JSON object, by columns or rows as pandas and the Hub write tables; the level that
names columns is told by usual names (`columns.QUESTIONS`)."""

from __future__ import annotations

from typing import Any, TypeAlias

from tfgrpo.data.column_roles import QUESTIONS
from tfgrpo.data.contents import DatasetError

Fields: TypeAlias = dict[str, Any]
SURE = QUESTIONS[: QUESTIONS.index("ticket")]
"""The names of what is asked that are seldom anything else's, such as a whole file's `title`."""


def rows_in(whole: Fields, name: str) -> list[Any]:
    """The rows that an object holds; itself where it is a row. Raises DatasetError for a table
    that is not whole. `name` is what the file is called."""
    rows = _page(whole, name) or _split(whole) or _by_name(whole) or _columns(whole, name)
    if rows is not None:
        return rows
    inner = list(whole.values())
    if len(inner) == 1 and isinstance(inner[0], dict) and not _asks(whole):
        return rows_in(inner[0], name) if _is_table(inner[0], name) else [whole]
    lists = [value for value in inner if _is_rows(value)]
    return lists[0] if len(lists) == 1 and not _is_row(whole, lists[0]) else [whole]


def _is_table(whole: Fields, name: str) -> bool:
    return rows_in(whole, name) != [whole]


def _page(whole: Fields, name: str) -> list[Any] | None:
    """The rows of a page of the Hub's. Raises DatasetError where a cell was cut short."""
    listed = whole.get("rows")
    if not isinstance(listed, list) or not listed or not all(map(_is_page_row, listed)):
        return None
    for one in listed:
        if one.get("truncated_cells"):
            raise DatasetError(
                f"{name}: row {one['row_idx']}: {one['truncated_cells'][0]!r} was cut short by the "
                "Hub",
                hint="download the dataset's Parquet file, which is whole",
            )
    return [one["row"] for one in listed]


def _split(whole: Fields) -> list[Any] | None:
    """The rows where names and cells stand apart, as in pandas' `split`."""
    names, data = whole.get("columns"), whole.get("data")
    if not isinstance(names, list) or not isinstance(data, list):
        return None
    if not all(isinstance(cells, list) for cells in data):
        return None
    return [dict(zip(map(str, names), cells, strict=False)) for cells in data]


def _by_name(whole: Fields) -> list[Any] | None:
    """The rows where each cell has the name of its row, or each row one of its own."""
    inner = list(whole.values())
    if not inner or not all(isinstance(one, dict) and one for one in inner):
        return None
    keys = list(inner[0])
    if all(map(_asks, inner)) and not _asks(whole):
        if any(isinstance(cell, list | dict) for row in inner for cell in _questions(row)):
            return None
        numbered = all(key.isdecimal() for key in whole)
        return [row if numbered else {"id": key, **row} for key, row in whole.items()]
    numbered = all(key.isdecimal() for key in keys)
    if (numbered or _asks(whole)) and all(list(one) == keys for one in inner):
        return [{name: cells[key] for name, cells in whole.items()} for key in keys]
    return None


def _columns(whole: Fields, name: str) -> list[Any] | None:
    """The rows where each column is a list. Raises DatasetError where one is shorter."""
    columns = list(whole.values())
    if not columns or not all(isinstance(one, list) and one for one in columns):
        return None
    if any(isinstance(one[0], dict) and _is_turn(one[0]) for one in columns):
        return None  # a row with a conversation
    known = _asks(whole)
    if not known and (len(columns) < 2 or any(isinstance(one[0], dict) for one in columns)):
        return None
    lengths = {key: len(cells) for key, cells in whole.items()}
    if len({*lengths.values()}) > 1:
        if not known:
            return None
        (one, most), (other, least) = (
            pick(lengths.items(), key=lambda pair: pair[1]) for pick in (max, min)
        )
        raise DatasetError(
            f"{name}: {one!r} has {most} cells and {other!r} {least}",
            hint="each column of a table has a cell for every row",
        )
    return [dict(zip(whole, cells, strict=True)) for cells in zip(*columns, strict=True)]


def _asks(fields: Fields) -> bool:
    return bool(_questions(fields))


def _questions(fields: Fields) -> list[Any]:
    """The cells whose fields have a usual name of what is asked."""
    return [cell for key, cell in fields.items() if key.strip().casefold() in QUESTIONS]


def _is_row(whole: Fields, listed: list[Any]) -> bool:
    """Whether an object is a row with a list in a cell: it says what is asked better than the
    list."""
    ours = min((place for place, one in enumerate(SURE) if one in whole), default=len(SURE))
    first = listed[0] if listed and isinstance(listed[0], dict) else {}
    return ours < min((place for place, one in enumerate(SURE) if one in first), default=len(SURE))


def _is_page_row(value: object) -> bool:
    return isinstance(value, dict) and "row_idx" in value and isinstance(value.get("row"), dict)


def _is_rows(value: object) -> bool:
    """Whether a value may be what the file holds: a list, and no row's conversation."""
    if not isinstance(value, list):
        return False
    return not (value and isinstance(value[0], dict) and _is_turn(value[0]))


def _is_turn(value: Fields) -> bool:
    return bool({"role", "from"} & value.keys())
