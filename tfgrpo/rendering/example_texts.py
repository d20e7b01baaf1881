"""Examples as texts: a problem and its right answer in one experience, known by how it begins."""

from __future__ import annotations

from typing import NamedTuple

from tfgrpo.rendering.text_lines import one_line
from tfgrpo.store.records import Library

EXAMPLE = "Example: "
ANSWERED = " → "


class ExampleParts(NamedTuple):
    """What an example says."""

    problem: str
    answer: str


def is_example(text: str) -> bool:
    """Returns whether an experience is an example."""
    return example_parts(text) is not None


def example_text(problem: str, answer: str) -> str:
    """Returns a problem and an answer as the text of an experience."""
    return f"{example_beginning(problem)}{one_line(answer)}"


def example_beginning(problem: str) -> str:
    """Returns how the examples of a problem begin. An arrow of the problem's own is written
    otherwise: the first is the one before the answer."""
    return f"{EXAMPLE}{one_line(problem).replace(ANSWERED.strip(), '->')}{ANSWERED}"


def example_parts(text: str) -> ExampleParts | None:
    """Returns what an experience says, if it is an example with an answer."""
    problem, arrow, answer = text.removeprefix(EXAMPLE).partition(ANSWERED)
    if not (text.startswith(EXAMPLE) and arrow and problem.strip() and answer.strip()):
        return None
    return ExampleParts(problem.strip(), answer.strip())


def of_other_problems(library: Library, problem: str) -> Library:
    """Returns a library without the examples of a problem; itself where it has none."""
    own = example_beginning(problem)
    ids = frozenset(e.id for e in library.readable if e.text.startswith(own))
    return library.less(ids) if ids else library
