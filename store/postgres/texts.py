"""Texts as PostgreSQL takes them, and integers of one width. It refuses NUL, which is written as
`\x01` and `0`, and a `\x01` as `\x01` and `1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from psycopg.adapt import Buffer, Loader
from psycopg.types.numeric import Int8Dumper
from psycopg.types.string import StrDumper, StrDumperUnknown

if TYPE_CHECKING:
    import psycopg


class TextDumper(StrDumperUnknown):
    """A text of no type in particular, as most parameters are."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class TypedTextDumper(StrDumper):
    """A text within an array."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(escaped(obj))


class TextLoader(Loader):
    def load(self, data: Buffer) -> str:
        return unescaped(bytes(data).decode())


def escaped(text: str) -> str:
    """A text as it is stored."""
    if "\x00" in text or "\x01" in text:
        return text.replace("\x01", "\x011").replace("\x00", "\x010")
    return text


def unescaped(text: str) -> str:
    """A text as it was before it was stored."""
    if "\x01" in text:
        return text.replace("\x010", "\x00").replace("\x011", "\x01")
    return text


def register(connection: psycopg.Connection[Any]) -> None:
    """Has a connection write and read texts so, and every integer as one of 64 bits."""
    adapters = connection.adapters
    adapters.register_dumper(str, TypedTextDumper)
    adapters.register_dumper(str, TextDumper)
    adapters.register_loader("text", TextLoader)
    adapters.register_dumper(int, Int8Dumper)
