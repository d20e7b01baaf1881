"""How the conflicts of a merge are shown."""

from __future__ import annotations

from tfgrpo.cli import printing
from tfgrpo.store.history.merge import Conflict, MergeConflict


def show_conflicts(error: MergeConflict) -> None:
    """Prints what each side says of every experience that has to be decided."""
    for conflict in error.conflicts:
        printing.echo_each(conflict_lines(conflict), err=True)


def conflict_lines(conflict: Conflict) -> list[str]:
    """The lines about one experience: what it was, and what each side has."""
    lines = [printing.style(f"conflict {conflict.experience}", fg="red", bold=True)]
    for name in ("base", "ours", "theirs"):
        words = getattr(conflict, name)
        text = "(not there)" if words is None else words
        lines += printing.wrapped(text, first=f"  {name}: ", indent=10, dim=words is None)
    return lines
