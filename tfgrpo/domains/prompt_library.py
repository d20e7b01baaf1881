"""A library that puts itself into a prompt, as its domain renders it (`tfgrpo.library`), and one
that is always the one in force (`tfgrpo.live`)."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeAlias

from tfgrpo.rendering import prompt_templates
from tfgrpo.rendering.render import AGENT_OBJECTIVE, prompt_text
from tfgrpo.rendering.retrieve import OBJECT, Rank, relevant, shown_in_training, trained_with
from tfgrpo.store.address import find_file, is_address, located, named_by, project_root
from tfgrpo.store.errors import FileChanged, StoreError, TfgrpoError
from tfgrpo.store.history.revisions import run_of_history
from tfgrpo.store.records import Experience, Library, Version
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
        """Returns the library as prompt text: a line `[G0] …` for each experience, of many examples
        the first 32. For a problem it has the `top_k` experiences that fit it best, as many as in
        training unless told, and of many examples the nearest too, in library order with the labels
        that they have in the whole."""
        top_k = top_k or (self.top_k if problem else None)
        return prompt_text(relevant(self, problem, top_k, rank=self._rank))

    def render(self, problem: ProblemLike, *, top_k: int | None = None) -> list[dict[str, str]]:
        """Returns the chat messages for a problem, as the `openai` client takes them, with the
        library, or the `top_k` experiences that fit best; as many as in training unless told.

        Raises DatasetError for what is no problem, DomainError for a domain that is not to be found
        here or was a Python object that renders in a way of its own, and NotTrusted for one in
        Python that came with somebody else's store.
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

    def answer(self, response: str, problem: ProblemLike = "") -> Any:
        """Returns the answer in a model's response to a problem, as training read it: a label, the
        value of JSON, a text; None where there is none. Without the problem, a letter with its
        option's text is not known to be the option. Raises DomainError where the domain only judges
        answers, and as `render` does."""
        from tfgrpo.domains.base import DomainError

        domain = self._known_domain()
        if domain is None or domain.read is None:
            name = "this domain" if domain is None else f"the domain {domain.name}"
            raise DomainError(
                f"{name} does not say how an answer is read",
                hint="math, choice, json and exact do; a Domain of your own says it with read=",
            )
        return domain.read(_as_problem(problem), response)

    def _known_domain(self) -> Domain | None:
        from tfgrpo.domains.base import DomainError
        from tfgrpo.domains.registry import find

        if isinstance(self.domain, str):
            if self.domain.startswith(OBJECT):
                raise DomainError(
                    f"{self.domain[len(OBJECT) :]} is a Python object of the program that trained, "
                    "and puts problems into prompts in its own way",
                    hint="give it again: tfgrpo.library(…, domain=…) or tfgrpo.live(…, domain=…)",
                )
            if self._require_trust is not None:
                self._require_trust()
            self.domain = find(self.domain, self._folders)
        return self.domain

    @property
    def _rank(self) -> Rank | None:
        domain = self._known_domain() if self.top_k is not None else None
        return domain.retrieve if domain else None


def _as_problem(problem: object) -> Problem:
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


def read_library(
    revision: str = "HEAD", *, store: Path | str | None = None, domain: Domain | None = None
) -> PromptLibrary:
    """Returns the library in force at a revision, ready to be put into prompts.

    It has the objective and the prompts that it was trained with. `store` is the path of a store
    file or of its project's folder; without it the nearest `.tfgrpo/store.db` at or above the
    working folder is read. `domain` is the one that it was trained with, where that was a Python
    object. Raises StoreError, UnknownRevision, and DomainError for what is no Domain.
    """
    _check_domain(domain)
    path = None if store is None else located(store)
    with Store.open(path) as opened:
        return prompt_library(opened, opened.resolve(revision), domain)


def _check_domain(domain: object) -> None:
    from tfgrpo.domains.base import Domain, DomainError

    if domain is not None and not isinstance(domain, Domain):
        raise DomainError(
            f"domain: {domain!r} is no Domain", hint="a domain with a name is known by itself"
        )


def prompt_library(store: Store, version: Version, given: Domain | None = None) -> PromptLibrary:
    """Returns the library at a version with the objective, prompts and domain of its training, or
    with the domain that is given. Raises StoreError."""
    config = trained_with(store, version)
    root = project_root(store.path)
    spec = config.get("domain")
    is_object = isinstance(spec, str) and spec.startswith(OBJECT)
    if is_object and not config.get("domain_renders"):
        spec = None  # it judges; attempts are rendered as usual
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
        domain=given or spec or None,
        folders=(root,),
        require_trust=require_trust,
        top_k=shown_in_training(config),
    )


LOOK = 0.02
"""Seconds between looks whether the file is there, and still the same one."""
RETRY = 0.25
"""Seconds until a store that could not be read, and has not changed since, is tried again."""
UNREADABLE = (TfgrpoError, OSError, ArithmeticError, LookupError, TypeError, ValueError)
"""What reading a damaged file raises, as in `tfgrpo.cli.main`."""


class LiveLibrary:
    """The library in force at a revision, each time it is asked for. Threads may share it.

    A server must not answer with a library that was rolled back a minute ago, and cannot open the
    store for each request. SQLite says in microseconds whether anybody has committed since
    it was last asked (`Port.changes`), and a look at the file, fifty times a second, whether it is
    still the same one. Only after a change is the revision looked up again, and only when it names
    another version is the library read. What cannot be read does not stop the server: the last
    library that could be read goes on, and `trouble` says why.

    `library` is immutable: take it once for a request that uses it twice.
    """

    def __init__(
        self,
        revision: str = "HEAD",
        *,
        store: Path | str | None = None,
        domain: Domain | None = None,
        beside: Callable[[Store], object] | None = None,
    ) -> None:
        """`beside` reads what else is to be in force at the same moment; it raises nothing."""
        _check_domain(domain)
        self._domain = domain
        self.revision = revision
        self._beside = beside
        path = find_file(os.getcwd()) if store is None else located(store)
        self.path = os.path.abspath(path)
        self.trouble: str | None = None
        """Why the library may not be the one in force; None while it is."""
        self._lock = threading.Lock()
        self._store: Store | None = None
        self._file: tuple[int, int] | None = None
        self._look_at = 0.0
        self._seen: int | None = None
        self._redactions = 0
        self._retry_at = 0.0
        self._known: PromptLibrary | None = None
        try:
            if os.path.exists(f"{self.path}-redacting"):  # and who watches finishes nothing
                with suppress(ModuleNotFoundError):  # with the standard library alone it cannot
                    Store.open(self.path).close()
            self._in_force = self._read(self._look())
        except StoreError as error:  # an older schema among them, which opening brings up to date
            try:
                Store.open(self.path).close()
            except ModuleNotFoundError:  # with the standard library alone it cannot
                raise error from None
            self._in_force = self._read(self._look())
        _LIVE.add(self)

    @property
    def library(self) -> PromptLibrary:
        """The library in force, or the last one that could be read. Raises nothing."""
        return self.in_force[0]

    @property
    def in_force(self) -> tuple[PromptLibrary, object]:
        """The library, and what was read beside it from the same state of the store."""
        with self._lock:
            try:
                seen = self._look()
                if seen != self._seen:
                    self._refresh(seen)
            except UNREADABLE as error:
                self.trouble = _reason(error)
            return self._in_force

    def check(self) -> str | None:
        """Reads the library anew, whether anything changed or not; returns what is wrong, or None.
        For a health check: damage to a file is no commit, and is met when it is read."""
        with self._lock:
            try:
                self._forget()
                self._read(self._look())
            except UNREADABLE as error:
                self.trouble = _reason(error)
            return self.trouble

    @property
    def version(self) -> Version:
        """The version whose library this is."""
        return self.library.version

    def prompt(self, problem: str = "", *, top_k: int | None = None) -> str:
        """Returns the library as prompt text, as `PromptLibrary.prompt` does."""
        return self.library.prompt(problem, top_k=top_k)

    def render(self, problem: ProblemLike, *, top_k: int | None = None) -> list[dict[str, str]]:
        """Returns the chat messages for a problem, as `PromptLibrary.render` does."""
        return self.library.render(problem, top_k=top_k)

    def __iter__(self) -> Iterator[Experience]:
        return iter(self.library)

    def __len__(self) -> int:
        return len(self.library)

    def __repr__(self) -> str:
        return f"LiveLibrary({self.revision!r}, {self.library.version.name})"

    def close(self) -> None:
        """Closes the store. The last library stays."""
        with self._lock:
            self._forget()

    # with the lock:

    def _look(self) -> int:
        """Returns what is another value when the store may have changed. Raises StoreError."""
        try:
            return self._look_at_file()
        except FileChanged:
            self._forget()
            return self._look_at_file()

    def _look_at_file(self) -> int:
        now = monotonic()
        if now >= self._look_at or self._store is None:
            try:
                file = _file(self.path)
            except OSError as error:
                self._look_at, self._file = 0.0, None
                raise StoreError(f"{self.path}: {error.strerror}", hint="`tfgrpo init`") from error
            self._look_at = now + LOOK
            if self._store is None or self._file != file:
                self._forget()
                self._store = Store.open(self.path, watching=True)
                self._file = file
        return self._store.port.changes()

    def _refresh(self, seen: int) -> None:
        if self.trouble and monotonic() < self._retry_at:
            return
        self._retry_at = monotonic() + RETRY
        self._read(seen)

    def _read(self, seen: int) -> tuple[PromptLibrary, object]:
        """Returns the library in force, the same object where it is the same library, and what is
        beside it."""
        store = self._store
        assert store is not None
        with store.port.reading():
            version = store.resolve(self.revision)
            redactions = store.port.redactions.last()
            library = self._known
            same = library is not None and library.version == version
            if library is None or not same or self._redactions != redactions:
                library = prompt_library(store, version, self._domain)
            beside = None if self._beside is None else self._beside(store)
        self._known = library
        self._in_force = library, beside
        self._redactions, self.trouble = redactions, None
        self._seen = seen
        return self._in_force

    def _forget(self) -> None:
        store, self._store, self._seen = self._store, None, None
        self._redactions = -1
        if store is not None:
            store.close()

    def _in_child(self) -> None:
        """A connection is no use on the other side of a fork, nor may it be closed there."""
        _LEFT.append(self._store)
        self._lock = threading.Lock()
        self._store = self._seen = None


_LIVE: weakref.WeakSet[LiveLibrary] = weakref.WeakSet()
_LEFT: list[Store | None] = []


def _after_fork() -> None:
    for one in list(_LIVE):
        one._in_child()


os.register_at_fork(after_in_child=_after_fork)


def _file(path: str) -> tuple[int, int]:
    """Returns which file is at a path; a database is the same one for as long as it answers."""
    if is_address(named_by(path)):
        return 0, 0
    status = os.stat(path)
    return status.st_ino, status.st_dev


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__


def live(
    revision: str = "HEAD", *, store: Path | str | None = None, domain: Domain | None = None
) -> LiveLibrary:
    """Returns the library at a revision, always as it is in force: at once after a commit, a
    checkout or a rollback by whatever process. `store` and `domain` are as in `tfgrpo.library`.
    Raises StoreError or UnknownRevision where there is none to begin with; later the last library
    goes on, and `trouble` says why."""
    return LiveLibrary(revision, store=store, domain=domain)
