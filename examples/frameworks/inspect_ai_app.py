"""A task of inspect_ai, asked under the library in force at every request."""

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message

import tfgrpo

library = tfgrpo.live("prod")  # store="path/to/project" where it is not at or above this folder


def instructions() -> str:
    return f"You answer customers of a bike hire.\n\n{library.prompt()}"


def answer(question: str) -> str:
    # It takes a template: double the braces of a library that has any.
    task = Task(
        dataset=[Sample(question, target="8")],
        solver=[system_message(instructions()), generate()],
        scorer=includes(),
    )
    (log,) = eval(task, model="openai/gpt-5-mini", display="none")
    return log.samples[0].output.completion
