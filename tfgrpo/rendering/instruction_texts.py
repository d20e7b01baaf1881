"""What of a prompt beside lessons is in a library, known by how its text begins: `[objective]
Solve …` for `agent_objective`, `[tool search] Searches …` for a tool's description; the last of
each counts. An attempt that is not shown one has the words of the settings."""

from __future__ import annotations

import re

from tfgrpo.store.records import Library

OBJECTIVE = ""
"""Stands for the base prompt where tools stand by their names."""
MARK = re.compile(r"\[(?:objective|tool (?P<tool>[\w.-]{1,64}))\]\s+(?P<words>\S.*)\Z", re.DOTALL)


def instruction(text: str) -> tuple[str, str] | None:
    """Whose words a text is (a tool's name or `OBJECTIVE`), and the words; None for other texts."""
    match = MARK.match(text)
    return None if match is None else (match["tool"] or OBJECTIVE, match["words"])


def instruction_text(of: str, words: str) -> str:
    """Words for a tool by its name, or for the base prompt (`OBJECTIVE`), as a text."""
    return f"[tool {of}] {words}" if of else f"[objective] {words}"


def instructions(library: Library) -> dict[str, str]:
    """The words of a library for the base prompt and for tools, by what they are of."""
    return dict(one for e in library.readable if (one := instruction(e.text)) is not None)


def instruction_ids(library: Library) -> frozenset[str]:
    """The ids of the experiences that are such words."""
    return frozenset(e.id for e in library.readable if instruction(e.text) is not None)
