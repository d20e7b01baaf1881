"""Rows of parquet, Arrow folders (both by pyarrow), and Excel's workbooks of a limited size."""

from __future__ import annotations

import importlib
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tfgrpo.data import compressed_files
from tfgrpo.data.cell_types import plain
from tfgrpo.data.contents import Contents, DatasetError
from tfgrpo.store.errors import install_hint

EXTRA = "hub"
"""What brings pyarrow and datasets."""
EXCEL = "excel"
STATE, SPLITS = "state.json", "dataset_dict.json"
"""What `save_to_disk` writes beside the rows of a dataset, and beside the splits of several."""


def parquet(content: Contents) -> Iterator[dict[str, Any]]:
    """Yields the rows of a parquet file. Raises DatasetError."""
    module = _needed("pyarrow.parquet", content.name, EXTRA)
    try:
        with module.ParquetFile(io.BytesIO(content.data)) as file:
            for batch in file.iter_batches(1000):
                yield from batch.to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors and OSErrors
        raise DatasetError(
            f"cannot read {content.name}: {error}", hint="the file must be Parquet"
        ) from None


def saved_folder(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a folder that `Dataset.save_to_disk` wrote. Raises DatasetError."""
    if (path / SPLITS).is_file():
        splits = _json(path / SPLITS).get("splits")
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
    files = _json(path / STATE).get("_data_files")
    if not isinstance(files, list) or not files:
        raise DatasetError(f"{path / STATE} names no files of rows", hint="save it again")
    ipc = _needed("pyarrow", str(path), EXTRA).ipc
    for entry in files:
        name = Path(str(entry.get("filename") if isinstance(entry, dict) else entry)).name
        try:
            with open(path / name, "rb") as file, ipc.open_stream(file) as reader:
                for batch in reader:
                    yield from batch.to_pylist()
        except (OSError, ValueError) as error:
            raise DatasetError(
                f"cannot read {path / name}: {error}", hint="save the dataset again"
            ) from None


def workbook(content: Contents) -> Iterator[tuple[int, list[object]]]:
    """Yields (row number, cells as a reader sees them) of a workbook. Raises DatasetError."""
    openpyxl = _needed("openpyxl", content.name, EXCEL)
    try:
        with zipfile.ZipFile(io.BytesIO(content.data)) as archive:
            size = sum(info.file_size for info in archive.infolist())
        if size > compressed_files.LARGEST:
            raise DatasetError(
                f"{content.name} unpacks to {size / 1e6:,.0f} MB, of which at most "
                f"{compressed_files.LARGEST / 1e6:,.0f} are read",
                hint="save it as CSV",
            )
        book = openpyxl.load_workbook(io.BytesIO(content.data), read_only=True, data_only=True)
    except DatasetError:
        raise
    except Exception as error:  # of many kinds, by what is wrong with the XML in it
        raise DatasetError(
            f"cannot read {content.name}: {error}", hint="the file must be an Excel workbook"
        ) from None
    sheets = [(sheet.title, sheet) for sheet in book.worksheets if _first_row(sheet)]
    if len(sheets) > 1:
        raise DatasetError(
            f"{content.name} has rows in {len(sheets)} sheets "
            f"({', '.join(title for title, _ in sheets[:5])}), where one is expected",
            hint="save the sheet that is meant as a file of its own",
        )
    for _, sheet in sheets:
        for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
            yield number, [_cell(value) for value in row]


def _first_row(sheet: Any) -> Sequence[object] | None:
    rows = sheet.iter_rows(values_only=True)
    return next((row for row in rows if any(cell is not None for cell in row)), None)


def _cell(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else plain(value)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"cannot read {path}: {error}", hint="save it again") from None
    return value if isinstance(value, dict) else {}


def _needed(module: str, name: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise DatasetError(
            f"cannot read {name}: {package} is not installed", hint=install_hint(extra)
        ) from None
