"""A file's bytes, and what they are as text: UTF-8, or UTF-16 with a byte order mark."""

from __future__ import annotations

import codecs
from typing import NamedTuple

from tfgrpo.store.errors import TfgrpoError

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class DatasetError(TfgrpoError):
    """A dataset that cannot be used; the message names the file and the line."""


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
