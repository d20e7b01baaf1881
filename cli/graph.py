"""A history drawn as git draws it: a star for each version, lines to its parents.

The drawing needs only the versions that were drawn already, so it streams. A column is a line
that waits for a version; two lines that wait for the same one are joined at once.

    *   v5          a merge of two parents
    |\\
    | * v4
    * | v3
    |/
    * v2
"""

from __future__ import annotations

from collections.abc import Sequence

from tfgrpo.cli import printing

COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan")


class Graph:
    """The lines that are open. `draw` adds a version; versions come newest first."""

    def __init__(self) -> None:
        self._columns: list[int] = []

    def draw(self, number: int, parents: Sequence[int]) -> list[str]:
        """The row with the version's star, and the rows in which lines fork and join."""
        columns = self._columns
        if number not in columns:
            columns.append(number)
        at = columns.index(number)
        rows = ["".join("* " if i == at else "| " for i in range(len(columns)))]
        parents = list(dict.fromkeys(parents))
        right = len(columns) - at - 1
        columns[at : at + 1] = parents
        if len(parents) == 2:
            rows.append("| " * at + "|\\" + " \\" * right)
        elif not parents and right:
            rows.append("| " * at + " /" * right)
        while (joined := self._join()) is not None:
            rows += joined
        return rows

    def padding(self) -> str:
        """The row between two versions: the open lines."""
        return "| " * len(self._columns)

    def _join(self) -> list[str] | None:
        """Joins the first line that waits for what one to its left waits for; returns the rows."""
        columns = self._columns
        for here, number in enumerate(columns):
            to = columns.index(number)
            if to == here:
                continue
            right = " /" * (len(columns) - here - 1)
            del columns[here]
            if here == to + 1:
                return ["| " * to + "|/" + right]
            crossed = "| " * (to + 1) + "|_" * (here - to - 2) + "|/" + right
            return [crossed, "| " * to + "|/" + "| " * (len(columns) - to - 1)]
        return None


def coloured(row: str) -> str:
    """A row with each line in its column's colour."""
    return "".join(
        printing.style(sign, fg="yellow", bold=True)
        if sign == "*"
        else printing.style(sign, fg=COLOURS[(place + 1) // 2 % len(COLOURS)])
        if sign != " "
        else sign
        for place, sign in enumerate(row)
    )


def cut(row: str, room: int) -> str:
    """A row that takes no more than `room` characters, marked where it was cut."""
    return row if len(row) <= room else row[: room - 2] + "… "
