"""Rows of files that hold a table: a JSON object by columns or rows, as pandas and the Hub write
tables (the level that names columns is told by usual names), parquet and Arrow folders (both by
pyarrow), and Excel's workbooks of a limited size."""

from __future__ import annotations

import importlib
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tfgrpo.data import compressed_files
from tfgrpo.data.cell_types import plain
from tfgrpo.data.column_roles import QUESTIONS
from tfgrpo.data.compressed_files import Contents, DatasetError, readable
from tfgrpo.store.errors import install_hint

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
        rows = rows_in(inner[0], name)
        return rows if rows != inner else [whole]
    lists = [value for value in inner if _is_rows(value)]
    return lists[0] if len(lists) == 1 and not _is_row(whole, lists[0]) else [whole]


def _page(whole: Fields, name: str) -> list[Any] | None:
    listed = whole.get("rows")
    if not isinstance(listed, list) or not listed or not all(map(_is_page_row, listed)):
        return None
    for one in listed:
        if cut := one.get("truncated_cells"):
            cells = ", ".join(map(repr, cut)) if isinstance(cut, list) else "a cell"
            raise DatasetError(
                f"{name}: row {one['row_idx']}: {cells[:80]} was cut short by the Hub",
                hint="download the dataset's Parquet file, which is whole",
            )
    return [one["row"] for one in listed]


def _split(whole: Fields) -> list[Any] | None:
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
    if not isinstance(value, list):
        return False
    return not (value and isinstance(value[0], dict) and _is_turn(value[0]))


def _is_turn(value: Fields) -> bool:
    return bool({"role", "from"} & value.keys())


EXTRA = "hub"
"""What brings pyarrow and datasets."""
EXCEL = "excel"
OF_PYARROW = (OSError, ValueError)
"""What pyarrow's own errors are."""
STATE, SPLITS = "state.json", "dataset_dict.json"
"""What `save_to_disk` writes beside the rows of a dataset, and beside the splits of several."""


def parquet(content: Contents) -> Iterator[dict[str, Any]]:
    """Yields the rows of a parquet file. Raises DatasetError."""
    module = _needed("pyarrow.parquet", content.name, EXTRA)
    with (
        readable(content.name, "the file must be Parquet", *OF_PYARROW),
        module.ParquetFile(io.BytesIO(content.data)) as file,
    ):
        for batch in file.iter_batches(1000):
            yield from batch.to_pylist()


def saved_folder(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a folder that `Dataset.save_to_disk` wrote. Raises DatasetError."""
    if (path / SPLITS).is_file():
        splits = _read_json(path / SPLITS).get("splits")
        names = [name for name in splits if isinstance(name, str)] if splits else []
        raise DatasetError(
            f"{path} has the splits {', '.join(names)}: one of them is expected",
            hint=f"give {path / (names[0] if names else 'train')}",
        )
    if not (path / STATE).is_file():
        raise DatasetError(
            f"{path} is a folder, and none that datasets' save_to_disk wrote",
            hint="give a file of problems",
        )
    files = _read_json(path / STATE).get("_data_files")
    if not isinstance(files, list) or not files:
        raise DatasetError(f"{path / STATE} names no files of rows", hint="save it again")
    ipc = _needed("pyarrow", str(path), EXTRA).ipc
    for entry in files:
        name = Path(str(entry.get("filename") if isinstance(entry, dict) else entry)).name
        with (
            readable(path / name, "save the dataset again", *OF_PYARROW),
            open(path / name, "rb") as file,
            ipc.open_stream(file) as reader,
        ):
            for batch in reader:
                yield from batch.to_pylist()


def workbook(content: Contents) -> Iterator[tuple[int, list[object]]]:
    """Yields (row number, cells as a reader sees them) of a workbook. Raises DatasetError."""
    openpyxl = _needed("openpyxl", content.name, EXCEL)
    # Errors are of many kinds, by what is wrong with the XML in it.
    with readable(content.name, "the file must be an Excel workbook", Exception):
        with zipfile.ZipFile(io.BytesIO(content.data)) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > compressed_files.LARGEST:
            raise DatasetError(
                f"{content.name} unpacks to {size / 1e6:,.0f} MB, of which at most "
                f"{compressed_files.LARGEST / 1e6:,.0f} are read",
                hint="save it as CSV",
            )
        book = openpyxl.load_workbook(io.BytesIO(content.data), read_only=True, data_only=True)
    sheets = [(sheet.title, sheet) for sheet in book.worksheets if _first_row(sheet)]
    if len(sheets) > 1:
        raise DatasetError(
            f"{content.name} has rows in {len(sheets)} sheets "
            f"({', '.join(title for title, _ in sheets[:5])}), where one is expected",
            hint="save the sheet that is meant as a file of its own",
        )
    width = 0
    for _, sheet in sheets:
        for number, row in enumerate(_rows(sheet), 1):
            width = max(width, len(row))
            yield number, [_cell(value) for value in row] + [None] * (width - len(row))


def _first_row(sheet: Any) -> Sequence[object] | None:
    return next((row for row in _rows(sheet) if any(cell is not None for cell in row)), None)


def _rows(sheet: Any) -> Iterator[Sequence[object]]:
    """Yields the rows of a sheet, each with as many cells as it has: the size that is stored with
    them may be that of an earlier time."""
    sheet.reset_dimensions()
    return iter(sheet.iter_rows(values_only=True))


def _cell(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else plain(value)


def _read_json(path: Path) -> dict[str, Any]:
    with readable(path, "save it again", OSError, ValueError, RecursionError):
        value = json.loads(path.read_text(encoding="utf-8"))
    return value if isinstance(value, dict) else {}


def _needed(module: str, name: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise DatasetError(
            f"cannot read {name}: {package} is not installed", hint=install_hint(extra)
        ) from None
