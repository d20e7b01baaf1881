"""A library as inference sees it: labels, prompt text, messages.

Labels (`[G0]`, `[G1]` …) are given anew for every rendering; identity stays with the
experience's id. An empty library renders into the same prompt, with a word in its place, so the
control for "does the library help" is the same prompt with an empty library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgrpo.store.records import Library

if TYPE_CHECKING:
    from tfgrpo.rendering import templates

EMPTY = "(none yet)"
AGENT_OBJECTIVE = "Solve the problem. Work briefly, then give the final answer in \\boxed{}."
LEARNING_OBJECTIVE = "Rules that make attempts at problems like these come out right."


def prompt_text(library: Library) -> str:
    """Returns a line `[G0] …` for each experience, or a word for none.

    What was redacted is left out; the others keep their labels.
    """
    label = library.label_of
    return "\n".join(f"[{label[e.id]}] {one_line(e.text)}" for e in library.readable) or EMPTY


def one_line(text: str) -> str:
    """Returns a text as one line with single blanks: an experience is a line of every prompt."""
    return " ".join(text.split())


def rollout_messages(
    template: templates.Template, library: Library, problem: str, agent_objective: str
) -> tuple[templates.Message, ...]:
    """Returns the messages of a rollout: the task and the library, then the problem."""
    return template.render(
        {
            "agent_objective": agent_objective,
            "library": prompt_text(library),
            "problem": problem,
        }
    )
