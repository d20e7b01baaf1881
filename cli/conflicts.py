"""How the conflicts of a merge are shown."""

from __future__ import annotations

from tfgrpo.cli import printing
from tfgrpo.store.history.merge import Conflict, MergeConflict


def show_conflicts(error: MergeConflict) -> None:
    """Prints what each side says of every experience that has to be decided."""
    for conflict in error.conflicts:
        for line in conflict_lines(conflict):
            printing.echo(line, err=True)


def conflict_lines(conflict: Conflict) -> list[str]:
    """Returns the lines about one experience: what it was, and what each side has."""
    lines = [printing.style(f"conflict {conflict.experience}", fg="red", bold=True)]
    for name in ("base", "ours", "theirs"):
        words = getattr(conflict, name)
        styled = (
            printing.words(words) if words is not None else printing.words("(not there)", dim=True)
        )
        lines += printing.wrap(styled, first=f"  {name}: ", indent=10)
    return lines
