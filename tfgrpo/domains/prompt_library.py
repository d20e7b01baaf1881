"""A library that puts itself into a prompt, as its domain renders it (`tfgrpo.library`)."""

from __future__ import annotations

from pathlib import Path

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain, problem_messages
from tfgrpo.domains.lookup import find
from tfgrpo.rendering import templates
from tfgrpo.rendering.origin import trained_with
from tfgrpo.rendering.render import AGENT_OBJECTIVE, prompt_text
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.store.find import located, project_root
from tfgrpo.store.records import Library
from tfgrpo.store.store import Store


class PromptLibrary(Library):
    """A library that can put itself into a prompt."""

    __slots__ = ("_domain", "_prompts", "agent_objective")

    def __init__(
        self,
        stored: Library,
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
        return prompt_text(relevant(self, problem, top_k))

    def render(self, problem: str | Problem, *, top_k: int | None = None) -> list[dict[str, str]]:
        """Returns the chat messages for a problem, as the `openai` client takes them.

        The whole library is in them, or the `top_k` experiences that fit the problem best.
        """
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


def read_library(revision: str = "HEAD", *, store: Path | str | None = None) -> PromptLibrary:
    """Returns the library in force at a revision, ready to be put into prompts.

    It has the objective and the prompts that it was trained with. `store` is the path of a store
    file or of its project's folder; without it the nearest `.tfgrpo/store.db` at or above the
    working folder is read. Raises StoreError or UnknownRevision.
    """
    path = None if store is None else located(Path(store))
    with Store.open(path) as opened:
        version = opened.resolve(revision)
        config = trained_with(opened, version)
        root = project_root(opened.path)
        spec = config.get("domain")
        if isinstance(spec, str) and spec.startswith("object:"):
            spec = None  # a Python object judges; attempts are rendered as usual
        return PromptLibrary(
            opened.library(version),
            agent_objective=str(config.get("agent_objective", AGENT_OBJECTIVE)),
            prompts=root / config["prompts"] if config.get("prompts") else None,
            domain=find(spec, (root,)) if spec else None,
        )
