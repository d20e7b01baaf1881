"""A library as inference sees it: labels, prompt text, messages, files.

Labels (`[G0]`, `[G1]` …) are given anew for every rendering; identity stays with the
experience's id. An empty library renders into the same prompt, with a word in its place, so the
control for "does the library help" is the same prompt with an empty library.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

from tfgrpo import templates
from tfgrpo.problems import Problem
from tfgrpo.store.records import Library as StoredLibrary
from tfgrpo.store.records import Version

if TYPE_CHECKING:
    from tfgrpo.domain import Domain

Format: TypeAlias = Literal["json", "md", "prompt"]
FORMATS: tuple[Format, ...] = get_args(Format)

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

    def prompt(self) -> str:
        """Returns the library as prompt text: a line `[G0] …` for each experience."""
        return prompt_text(self)

    def render(self, problem: str | Problem) -> list[dict[str, str]]:
        """Returns the chat messages for a problem, as the `openai` client takes them."""
        if isinstance(problem, str):
            problem = Problem("", problem)
        template = templates.load(
            "rollout", self._prompts, self._domain.prompts if self._domain else None
        )
        render = self._domain.render if self._domain else problem_messages
        return [
            {"role": role, "content": content}
            for role, content in render(template, self, problem, self.agent_objective)
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


def formatted(library: StoredLibrary, format: Format) -> str:
    """Returns a library as a file's text, ending in a newline.

    `json` is the flat object label → text that the reference implementation reads, `md` a list
    for people, `prompt` the text that goes into prompts.
    """
    if format == "json":
        texts = {library.label_of[e.id]: e.text for e in library.readable}
        return json.dumps(texts, ensure_ascii=False, indent=2) + "\n"
    if format == "prompt":
        return prompt_text(library) + "\n"
    return markdown(library)


def markdown(library: StoredLibrary) -> str:
    """Returns a library as Markdown: a heading with the version, a line for each experience."""
    version: Version = library.version
    lines = [f"# Library {version.name} ({version.digest.hex()[:12]})", ""]
    lines += [f"- {one_line(e.text)} <!-- {e.id} -->" for e in library.readable]
    return "\n".join(lines) + "\n"
