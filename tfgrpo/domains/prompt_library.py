"""A library that puts itself into a prompt, as its domain renders it (`tfgrpo.library`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgrpo.rendering import prompt_templates
from tfgrpo.rendering.render import AGENT_OBJECTIVE, prompt_text
from tfgrpo.rendering.retrieve import Rank, relevant, shown_in_training, trained_with
from tfgrpo.store.address import located, project_root
from tfgrpo.store.history.revisions import run_of_history
from tfgrpo.store.records import Library, Version
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.data.problems import Problem
    from tfgrpo.domains.base import Domain

ProblemLike: TypeAlias = "str | Problem | Mapping[str, object] | Sequence[Mapping[str, object]]"
"""A text, a problem, a row with a `problem`, or chat messages."""


class PromptLibrary(Library):
    """A library that can put itself into a prompt."""

    __slots__ = ("_folders", "_prompts", "_require_trust", "agent_objective", "domain", "top_k")

    def __init__(
        self,
        stored: Library,
        *,
        agent_objective: str = AGENT_OBJECTIVE,
        prompts: Path | None = None,
        domain: Domain | str | None = None,
        folders: Sequence[Path] = (),
        require_trust: Callable[[], None] | None = None,
        top_k: int | None = None,
    ) -> None:
        super().__init__(stored.version, tuple(stored))
        self.agent_objective = agent_objective
        self.top_k = top_k
        """How many experiences a problem's prompt had in training, None for all of them."""
        self.domain = domain
        """Who renders problems, or its name: it is looked for, in `folders` too, when one is."""
        self._folders = folders
        self._require_trust = require_trust
        self._prompts = prompts

    def prompt(self, problem: str = "", *, top_k: int | None = None) -> str:
        """Returns the library as prompt text: a line `[G0] …` for each experience.

        For a problem it has the `top_k` experiences that fit it best, in library order and with
        the labels that they have in the whole; as many as in training unless told.
        """
        top_k = top_k or (self.top_k if problem else None)
        return prompt_text(relevant(self, problem, top_k, rank=self._rank))

    def render(self, problem: ProblemLike, *, top_k: int | None = None) -> list[dict[str, str]]:
        """Returns the chat messages for a problem, as the `openai` client takes them.

        The problem may be a text, a row with a `problem` or chat messages. The whole library is in
        what is returned, or the `top_k` experiences that fit the problem best; as many as in
        training unless told. Raises DatasetError for what is no problem, DomainError for a
        domain that is not to be found here, and NotTrusted for one in Python that came with
        somebody else's store.
        """
        from tfgrpo.domains.base import problem_messages

        problem, domain = _as_problem(problem), self._known_domain()
        template = prompt_templates.load(
            "rollout", self._prompts, domain.prompts if domain else None
        )
        render = domain.render if domain else problem_messages
        return [
            {"role": role, "content": content}
            for role, content in render(
                template,
                relevant(self, problem.problem, top_k or self.top_k, rank=self._rank),
                problem,
                self.agent_objective,
            )
        ]

    def answer(self, response: str) -> Any:
        """Returns the answer in a model's response, as training read it: a label, the value of
        JSON, a text; None where there is none.

        Raises DomainError where the domain only judges answers, and as `render` does.
        """
        from tfgrpo.domains.base import DomainError

        domain = self._known_domain()
        if domain is None or domain.read is None:
            name = "this domain" if domain is None else f"the domain {domain.name}"
            raise DomainError(
                f"{name} does not say how an answer is read",
                hint="math, choice, json and exact do; a Domain of your own says it with read=",
            )
        return domain.read(response)

    def _known_domain(self) -> Domain | None:
        from tfgrpo.domains.registry import find

        if isinstance(self.domain, str):
            if self._require_trust is not None:
                self._require_trust()
            self.domain = find(self.domain, self._folders)
        return self.domain

    @property
    def _rank(self) -> Rank | None:
        domain = self._known_domain() if self.top_k is not None else None
        return domain.retrieve if domain else None


def _as_problem(problem: object) -> Problem:
    """Returns what is to be rendered as a problem. Raises DatasetError."""
    from tfgrpo.data.problems import Problem, of_rows
    from tfgrpo.data.readers import DatasetError, Row

    if isinstance(problem, Problem):
        return problem
    if isinstance(problem, str):
        return Problem("", problem)
    fields = problem if isinstance(problem, Mapping) else {"problem": problem}
    if not isinstance(problem, Mapping | Sequence):
        raise DatasetError(
            f"a problem cannot be {problem!r}"[:200], hint="give a text, a row or chat messages"
        )
    return of_rows([Row(1, "the problem", dict(fields))], "the problem", ground_truth=False)[0]


def read_library(revision: str = "HEAD", *, store: Path | str | None = None) -> PromptLibrary:
    """Returns the library in force at a revision, ready to be put into prompts.

    It has the objective and the prompts that it was trained with. `store` is the path of a store
    file or of its project's folder; without it the nearest `.tfgrpo/store.db` at or above the
    working folder is read. Raises StoreError or UnknownRevision.
    """
    path = None if store is None else located(store)
    with Store.open(path) as opened:
        return prompt_library(opened, opened.resolve(revision))


def prompt_library(store: Store, version: Version) -> PromptLibrary:
    """Returns the library at a version with the objective, prompts and domain of its training.

    Raises StoreError.
    """
    config = trained_with(store, version)
    root = project_root(store.path)
    spec = config.get("domain")
    if isinstance(spec, str) and spec.startswith("object:"):
        spec = None  # a Python object judges; attempts are rendered as usual
    name = run_of_history(store, version) or version.name

    def require_trust() -> None:
        from tfgrpo.domains.registry import names
        from tfgrpo.trust import trusted_folders
        from tfgrpo.trust.permissions import of_run

        if of_run(name, {"domain": spec}, root, names()).needed:
            trusted_folders.require(of_run(name, config, root, names()))

    return PromptLibrary(
        store.library(version),
        agent_objective=str(config.get("agent_objective", AGENT_OBJECTIVE)),
        prompts=root / config["prompts"] if config.get("prompts") else None,
        domain=spec or None,
        folders=(root,),
        require_trust=require_trust,
        top_k=shown_in_training(config),
    )
