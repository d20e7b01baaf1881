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
    """Whether an experience is an example."""
    return example_parts(text) is not None


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
