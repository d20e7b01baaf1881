"""A result as a table: one projection for text, rich terminals and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import TYPE_CHECKING

from tfgrpo.terminal_safe import aligned, safe_row, shown

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, slots=True)
class View:
    """A title, a table and lines below it, as plain text: what would command a terminal is shown,
    whichever form it takes."""

    title: str
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        put = partial(object.__setattr__, self)
        put("title", shown(self.title))
        put("header", safe_row(self.header))
        put("rows", list(map(safe_row, self.rows)))
        put("notes", list(map(shown, self.notes)))

    def text(self) -> str:
        """The view as plain lines."""
        table = aligned([self.header, *self.rows]) if self.rows else []
        return "\n".join([self.title, *table, *self.notes])

    def rich(self) -> RenderableType:
        """The view for a rich console."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, header_style="dim")
        for cell in map(Text, self.header):
            table.add_column(cell)
        for row in self.rows:
            table.add_row(*map(Text, row))
        title, *notes = map(Text, (self.title, *self.notes))
        title.stylize("bold")
        return Group(title, table, *notes) if self.rows else Group(title, *notes)

    def html(self) -> str:
        """The view as HTML; every text in it is escaped."""
        head = "".join(f"<th>{escape(cell)}</th>" for cell in self.header)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
            for row in self.rows
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return f"<p><b>{escape(self.title)}</b></p>{table if self.rows else ''}{notes}"


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
