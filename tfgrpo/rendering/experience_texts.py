"""What an experience's text may be beside a lesson, known by how it begins.

An example is a problem and its right answer. Words for the prompt are `[objective] Solve …` for
`agent_objective` and `[tool search] Searches …` for a tool's description; the last of each counts,
and an attempt that is not shown one has the words of the settings.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tfgrpo.store.records import Library


def one_line(text: str) -> str:
    """A text as one line with single blanks: an experience is a line of every list."""
    return " ".join(text.split())


EXAMPLE = "Example: "
ANSWERED = " → "


class ExampleParts(NamedTuple):
    """What an example says."""

    problem: str
    answer: str


EXAMPLES = "examples"
"""What all examples are called where they are shown or hidden as one."""


def is_example(text: str) -> bool:
    """Whether an experience is an example."""
    return text.startswith(EXAMPLE) and example_parts(text) is not None


def example_text(problem: str, answer: str) -> str:
    """A problem and an answer as the text of an experience."""
    return f"{example_beginning(problem)}{one_line(answer)}"


def example_beginning(problem: str) -> str:
    """How the examples of a problem begin; its own arrows are written otherwise."""
    return f"{EXAMPLE}{one_line(problem).replace(ANSWERED.strip(), '->')}{ANSWERED}"


def example_parts(text: str) -> ExampleParts | None:
    """What an experience says, if it is an example with an answer."""
    problem, arrow, answer = text.removeprefix(EXAMPLE).partition(ANSWERED)
    if not (text.startswith(EXAMPLE) and arrow and problem.strip() and answer.strip()):
        return None
    return ExampleParts(problem.strip(), answer.strip())


def of_other_problems(library: Library, problem: str) -> Library:
    """A library without the examples of a problem; itself where it has none."""
    own = example_beginning(problem)
    ids = frozenset(e.id for e in library.readable if e.text.startswith(own))
    return library.less(ids) if ids else library


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
