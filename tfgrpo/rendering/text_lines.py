"""Texts as lines."""

from __future__ import annotations


def one_line(text: str) -> str:
    """A text as one line with single blanks: an experience is a line of every list."""
    return " ".join(text.split())
