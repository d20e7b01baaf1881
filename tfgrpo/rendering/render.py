"""A library as inference sees it: labels, prompt text, messages.

Labels (`[G0]`, `[G1]` …) are given anew for every rendering; identity stays with the
experience's id. An empty library renders into the same prompt, with a word in its place, so the
control for "does the library help" is the same prompt with an empty library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgrpo.store.records import Library as StoredLibrary

if TYPE_CHECKING:
    from pathlib import Path

    from tfgrpo.data.problems import Problem
    from tfgrpo.domains.base import Domain
    from tfgrpo.rendering import templates

EMPTY = "(none yet)"
AGENT_OBJECTIVE = "Solve the problem. Work briefly, then give the final answer in \\boxed{}."
LEARNING_OBJECTIVE = "Rules that make attempts at problems like these come out right."


class Library(StoredLibrary):
    """A library that can put itself into a prompt."""

    __slots__ = ("_domain", "_prompts", "agent_objective")

    def __init__(
        self,
        stored: StoredLibrary,
        *,
        agent_objective: str = AGENT_OBJECTIVE,
        prompts: Path | None = None,
        domain: Domain | None = None,
    ) -> None:
        super().__init__(stored.version, tuple(stored))
        self.agent_objective = agent_objective
        self._prompts = prompts
        self._domain = domain

    def prompt(self, problem: str = "", *, top_k: int | None = None) -> str:
        """Returns the library as prompt text: a line `[G0] …` for each experience.

        With `top_k` it has the experiences that fit a problem best, in library order and with
        the labels that they have in the whole.
        """
        from tfgrpo.rendering.retrieve import relevant

        return prompt_text(relevant(self, problem, top_k))

    def render(self, problem: str | Problem, *, top_k: int | None = None) -> list[dict[str, str]]:
        """Returns the chat messages for a problem, as the `openai` client takes them.

        The whole library is in them, or the `top_k` experiences that fit the problem best.
        """
        from tfgrpo.data.problems import Problem
        from tfgrpo.rendering import templates  # which a checkout does not need
        from tfgrpo.rendering.retrieve import relevant

        if isinstance(problem, str):
            problem = Problem("", problem)
        template = templates.load(
            "rollout", self._prompts, self._domain.prompts if self._domain else None
        )
        render = self._domain.render if self._domain else problem_messages
        return [
            {"role": role, "content": content}
            for role, content in render(
                template, relevant(self, problem.problem, top_k), problem, self.agent_objective
            )
        ]


def prompt_text(library: StoredLibrary) -> str:
    """Returns a line `[G0] …` for each experience, or a word for none.

    What was redacted is left out; the others keep their labels.
    """
    label = library.label_of
    return "\n".join(f"[{label[e.id]}] {one_line(e.text)}" for e in library.readable) or EMPTY


def one_line(text: str) -> str:
    """Returns a text as one line with single blanks: an experience is a line of every prompt."""
    return " ".join(text.split())


def rollout_messages(
    template: templates.Template, library: StoredLibrary, problem: str, agent_objective: str
) -> tuple[templates.Message, ...]:
    """Returns the messages of a rollout: the task and the library, then the problem."""
    return template.render(
        {
            "agent_objective": agent_objective,
            "library": prompt_text(library),
            "problem": problem,
        }
    )


def problem_messages(
    template: templates.Template, library: StoredLibrary, problem: Problem, agent_objective: str
) -> tuple[templates.Message, ...]:
    """Returns the messages of a rollout; a conversation stands in the question's place."""
    text = "" if problem.messages else problem.problem
    return (*rollout_messages(template, library, text, agent_objective), *problem.messages)
