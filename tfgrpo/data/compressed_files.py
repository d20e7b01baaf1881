"""A file's bytes, unpacked up to `LARGEST` from `.gz` or a `.zip` with one file, and what they are
as text: UTF-8, or UTF-16 with a byte order mark."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.exit_codes import NOT_BEGUN

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class DatasetError(TfgrpoError):
    """A dataset that cannot be used; the message names the file and the line."""


class ReadingInvalid(DatasetError):
    """What an option says of how data are read cannot be used."""

    exit_code = NOT_BEGUN


@contextmanager
def readable(name: object, hint: str, *errors: type[Exception]) -> Iterator[None]:
    """Raises DatasetError for errors of these kinds in the block: what is called so is no data."""
    try:
        yield
    except DatasetError:
        raise
    except errors as error:
        raise DatasetError(f"cannot read {name}: {error}", hint=hint) from None


class Contents(NamedTuple):
    """The bytes of a file, what it is called in messages, and the ending that says its kind."""

    name: str
    ending: str
    data: bytes


def text(content: Contents) -> str:
    """A text file's text, without its byte order mark. Raises DatasetError."""
    data = content.data
    coding = next((name for mark, name in MARKS if data.startswith(mark)), "utf-8")
    try:
        return data.decode(coding)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{data[error.start]:02x} is not {'UTF-16' if '16' in coding else 'UTF-8'}"
        raise DatasetError(
            f"cannot read {content.name}: line {line}: {what}",
            hint="the file must be UTF-8, or UTF-16 with a byte order mark; "
            'from Excel, save as "CSV UTF-8"',
        ) from None


LARGEST = 1_000_000_000
"""Bytes that a packed file is unpacked to at most."""
CHUNK = 1_000_000
GIVE = "give a file of problems, such as JSONL"


def read_contents(path: Path) -> Contents:
    """What is in a file, unpacked where it is packed. Raises DatasetError."""
    try:
        if os.path.exists(path) and not path.is_file():
            raise DatasetError(
                f"{path} is a pipe or a device, not a file",
                hint="data is read again when a run is resumed: write it to a file first",
            )
        ending = path.suffix.lower()
        if ending == ".gz":
            with gzip.open(path) as file:
                return Contents(str(path), Path(path.stem).suffix.lower(), _limited(file, path))
        if ending == ".zip":
            return _zipped(path)
        return Contents(str(path), ending, path.read_bytes())
    except FileNotFoundError:
        raise DatasetError(f"no file {path}", hint=GIVE) from None
    except (OSError, ValueError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError) as error:
        raise DatasetError(
            f"cannot read {path}: {error}", hint="is the file complete, and without a password?"
        ) from None


def _zipped(path: Path) -> Contents:
    with zipfile.ZipFile(path) as archive:
        members = [
            info
            for info in archive.infolist()
            if not info.is_dir()
            and not info.filename.startswith("__MACOSX/")
            and not os.path.basename(info.filename).startswith(".")
        ]
        if len(members) != 1:
            names = ", ".join(info.filename for info in members[:5]) or "none"
            raise DatasetError(
                f"{path} holds {len(members)} files ({names}), where one is expected",
                hint="unpack it and give the file that is meant",
            )
        with archive.open(members[0]) as file:
            data = _limited(file, path)
        return Contents(str(path), Path(members[0].filename).suffix.lower(), data)


def _limited(file: IO[bytes] | gzip.GzipFile, path: Path) -> bytes:
    pieces = io.BytesIO()
    while piece := file.read(CHUNK):
        pieces.write(piece)
        if pieces.tell() > LARGEST:
            raise DatasetError(
                f"{path} unpacks to more than {LARGEST / 1e6:,.0f} MB",
                hint="unpack it yourself if that is meant, and give the file",
            )
    return pieces.getvalue()
