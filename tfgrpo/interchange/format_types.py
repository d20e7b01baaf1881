"""What a format is, what it reads from and what it gives back."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.records import Json, Operation

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.interchange.library_files import Outgoing


class UnreadableLibrary(TfgrpoError):
    """A file that holds no library. Its message begins with the file, and the line if one is."""


NOTHING: Json = MappingProxyType({})
SHORT = 200
"""Characters of a value that is kept as evidence."""
STRING = r'"(?:[^"\\]|\\.)*"'


class Item(NamedTuple):
    """A text from a file, the experience's id where the file carries it, what else the file knows
    (`evidence`), and its line, from 1."""

    text: str
    id: str | None = None
    reason: str | None = None
    evidence: Json | None = None
    line: int | None = None


class Skipped(NamedTuple):
    """Lines of a file that became no experience: the first and the last by number, from 1, what
    they are, and how they begin. A `first` of 0 is a part of the file that has no line."""

    first: int
    last: int
    what: str
    text: str = ""

    @classmethod
    def at(cls, line: int | None, what: str, text: str = "") -> Self:
        """A part at one line, if that is known, and how its text begins."""
        return cls(line or 0, line or 0, what, " ".join(text.split())[:60])

    def __str__(self) -> str:
        where = "" if not self.first else f"line {self.first}"
        if self.last > self.first:
            where = f"lines {self.first}–{self.last}"
        return ": ".join(filter(None, (where, self.what, self.text)))


class Batch(NamedTuple):
    """The operations of one version that a file tells of, its digest in hex, the line of each, and
    `origin`: who made it and when. `order` is that of its library where the version changed it."""

    digest: str
    message: str
    origin: Json
    operations: Sequence[Operation]
    lines: Sequence[int]
    order: Sequence[str] | None = None


class Document(NamedTuple):
    """A file that was read: the items of a library, or the batches of a history. `sha256` is of its
    bytes, `meta` about the whole library, `skipped` became nothing."""

    path: Path
    name: str
    sha256: str
    format: str
    items: tuple[Item, ...] = ()
    batches: tuple[Batch, ...] = ()
    meta: Json = NOTHING
    skipped: tuple[Skipped, ...] = ()

    @property
    def provenance(self) -> dict[str, str]:
        """What a version and its events say about this file."""
        return {"source": self.name, "sha256": self.sha256, "format": self.format}


class Content(NamedTuple):
    """What a format reads out of a source."""

    items: Sequence[Item] = ()
    batches: Sequence[Batch] = ()
    meta: Json = NOTHING
    skipped: Sequence[Skipped] = ()


class SourceFile:
    """A file's text while formats look at it."""

    def __init__(self, path: Path, data: bytes) -> None:
        """Takes a file's bytes. Raises UnreadableLibrary when they are no UTF-8."""
        import hashlib  # here and below: what is written has no need of it

        self.path = path
        self.sha256 = hashlib.sha256(data).hexdigest()
        try:
            self.text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise self.wrong("not UTF-8", line, hint="save it as UTF-8 and try again") from None

    @cached_property
    def lines(self) -> list[str]:
        """Its lines, with Windows' line ends taken off; other line separators are text."""
        return [line.removesuffix("\r") for line in self.text.split("\n")]

    @property
    def name(self) -> str:
        """The name of the file, with marks for what is no text in it."""
        return self.path.name.encode(errors="surrogateescape").decode(errors="replace")

    @cached_property
    def first_line(self) -> str:
        """Its first line that is not blank."""
        return next((line for line in self.lines if line.strip()), "")

    @cached_property
    def json(self) -> object:
        """Its value as JSON, each object as `Pairs`; None when it is none (`null` is none)."""
        return self._value_or_none(self.text)

    @cached_property
    def first_row(self) -> object:
        """The value of its first line that is not blank, as JSON; None when it is none."""
        return self._value_or_none(self.first_line)

    def _value_or_none(self, text: str) -> object:
        try:
            return self.value(text)
        except (ValueError, RecursionError):
            return None

    def value(self, text: str, line: int | None = None) -> Any:
        """A text of it as JSON; what is no number is None. Raises ValueError, RecursionError, and
        UnreadableLibrary for half a character."""
        import json

        value = json.loads(
            text,
            object_pairs_hook=Pairs,
            parse_float=lambda digits: _finite(float(digits)),
            parse_constant=lambda _: None,
        )
        if "\\u" in text:
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except UnicodeEncodeError:
                raise self.wrong(
                    "has half a character (a lone surrogate)",
                    line or self._line_of_half(),
                    hint="write the whole character, or take it out",
                ) from None
        return value

    def rows(self) -> Iterator[tuple[int, dict[str, object]]]:
        """Yields (line, object) of JSONL. Raises UnreadableLibrary with the line."""
        for number, line in enumerate(self.lines, 1):
            if not line.strip():
                continue
            try:
                row = self.value(line, number)
            except (ValueError, RecursionError) as error:
                raise self.wrong(
                    f"not JSON: {error}", number, hint="is the line complete?"
                ) from None
            if not isinstance(row, dict):
                raise self.wrong("not an object", number, hint="expected one object per line")
            yield number, row

    @cached_property
    def key_lines(self) -> dict[str, int]:
        """The lines of its keys as JSON: key → where it first stands."""
        return self._lines_of(rf"({STRING})\s*:|{STRING}")

    @cached_property
    def id_lines(self) -> dict[str, int]:
        """The lines of the values of `id` as JSON: value → where it first stands."""
        return self._lines_of(rf'"id"\s*:\s*({STRING}|-?\d{{1,40}})')

    def _lines_of(self, pattern: str) -> dict[str, int]:
        import json

        lines: dict[str, int] = {}
        at, line = 0, 1
        for match in re.finditer(pattern, self.text):
            if match[1]:
                line += self.text.count("\n", at, match.start())
                at = match.start()
                lines.setdefault(str(json.loads(match[1], strict=False)), line)
        return lines

    def _line_of_half(self) -> int | None:
        """The line where half a character is first written, as `\\ud83d` without its other
        half."""
        match = re.search(
            r"\\u(?:d[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..\\u)d[c-f]..)", self.text, re.IGNORECASE
        )
        return None if match is None else self.text.count("\n", 0, match.start()) + 1

    def line_of(self, fragment: str) -> int | None:
        """The line where a piece of the text first stands."""
        at = self.text.find(fragment)
        return None if at < 0 else self.text.count("\n", 0, at) + 1

    def wrong(self, what: str, line: int | None = None, *, hint: str) -> UnreadableLibrary:
        """The error that says what is wrong with the file, and where."""
        place = f"{self.path}:{line}" if line else f"{self.path}"
        return UnreadableLibrary(f"{place}: {' '.join(what.split())[:200]}", hint=hint)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def short_values(row: Mapping[str, object], keys: Iterable[str]) -> dict[str, object]:
    """The values of a row under these keys that are short texts or numbers."""
    return {
        key: value
        for key in keys
        if isinstance(value := row.get(key), str | int | float) and len(str(value)) <= SHORT
    }


class Pairs(dict[str, object]):
    """A JSON object that remembers a key that it was given twice."""

    def __init__(self, pairs: Sequence[tuple[str, object]]) -> None:
        super().__init__(pairs)
        keys: set[str] = set()
        self.twice: str | None = None
        for key, _ in pairs:
            if key in keys:
                self.twice = key
            keys.add(key)


class Format(NamedTuple):
    """A kind of file. `keeps` says what survives the way there and back: `history` every operation,
    `ids` texts and identity, `texts` the letters, `words` the words. `detect` is how sure it is of
    a source, from 0 to 4 (it cannot be else). `read` raises UnreadableLibrary; `write` may be
    None."""

    name: str
    about: str
    ending: str
    keeps: Literal["history", "ids", "texts", "words"]
    detect: Callable[[SourceFile], int]
    read: Callable[[SourceFile], Content]
    write: Callable[[Outgoing], Iterator[str]] | None = None
