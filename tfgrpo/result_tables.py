"""A result as a table: one projection for text, rich terminals and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from tfgrpo.terminal_safe import shown

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class View:
    """A title, a table and lines below it. Cells are plain text."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()

    def text(self) -> str:
        """The view as plain lines."""
        cells = [self.header, *self.rows] if self.rows else []
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, *lines, *self.notes])

    def rich(self) -> RenderableType:
        """The view for a rich console."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="dim")
        for cell in self.header:
            table.add_column(Text(shown(cell)))
        for row in self.rows:
            table.add_row(*(Text(shown(cell)) for cell in row))
        title, notes = Text(shown(self.title), style="bold"), (Text(shown(n)) for n in self.notes)
        return Group(title, table, *notes) if self.rows else Group(title, *notes)

    def html(self) -> str:
        """The view as HTML; every text in it is escaped."""
        head = "".join(f"<th>{escape(shown(cell))}</th>" for cell in self.header)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(shown(cell))}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        notes = "".join(f"<p>{escape(shown(note))}</p>" for note in self.notes)
        return f"<p><b>{escape(shown(self.title))}</b></p>{table if self.rows else ''}{notes}"


class Viewed:
    """What shows itself as its `view()`: printed, on a rich console and in a notebook."""

    __slots__ = ()

    def view(self) -> View:
        """The view of this result."""
        raise TypeError(f"{type(self).__name__} has no view")

    def __str__(self) -> str:
        return self.view().text()

    def __rich__(self) -> RenderableType:
        return self.view().rich()

    def _repr_html_(self) -> str:
        return self.view().html()
