"""The public calls: train, evaluate and compare, with the flags' names as keywords. They run on
the caller's event loop, or with `_sync` on one of their own. Nothing here prints, exits or asks."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeAlias, TypeVar

from tfgrpo.author import default_author, default_signer
from tfgrpo.data.readers import row_lines
from tfgrpo.domains.base import Domain
from tfgrpo.domains.function import function_domain
from tfgrpo.evaluation.comparison import Comparison, compared
from tfgrpo.evaluation.eval_setup import EvalPlan, plan_evaluation, score
from tfgrpo.evaluation.scores import Scores
from tfgrpo.improvement.collection import BAR, CollectionRules, CollectRequest
from tfgrpo.improvement.improve import HELDOUT_SAMPLES, LEAST, Improvement, ImproveRequest
from tfgrpo.improvement.improve import improve as improve_library
from tfgrpo.learn.prove import Proof, do_trial, plan_trial, ready_trial, wanted_of
from tfgrpo.learn.run import TrainResult, run_to_end
from tfgrpo.learn.run_estimate import RunEstimate, estimate_run
from tfgrpo.learn.run_setup import ReadyRun, RunChoice, check_settings, plan_choice, ready_run
from tfgrpo.notices import OnProgress, ignore
from tfgrpo.project import Project, open_project, read_options
from tfgrpo.rendering.retrieve import OBJECT
from tfgrpo.session import ToolFunction
from tfgrpo.settings import is_count
from tfgrpo.store import atomic_write
from tfgrpo.store.activity.traffic import CallFilter
from tfgrpo.store.address import (
    anchor,
    find,
    is_address,
    project_root,
    store_path,
)
from tfgrpo.store.errors import SettingsError, StoreError
from tfgrpo.store.history.log_filter import parse_time
from tfgrpo.store.opening import is_there
from tfgrpo.store.store import Author, Store

P = ParamSpec("P")
T = TypeVar("T")
Rows: TypeAlias = Sequence[Mapping[str, object]]
Data: TypeAlias = "str | Path | Rows | None"
"""A file, the name of a dataset, or rows with a `problem` and an `answer`."""
StoreLike: TypeAlias = "Store | Path | str | None"
"""A store, its file, the folder of a project, or None for the nearest at or above this folder."""
DATASETS = ("data", "heldout", "gate", "sealed")
CHOICES = ("run", "resume", "new", "budget", "keep_going")
IMPROVING = ("least", "heldout_samples", "accept_better", "new", "budget", "file")
LOOK = 0.2
"""Seconds between two looks at whether a caller that waits was cancelled."""
ROWS = "data"
"""The folder beside a store for rows that were given as Python objects."""


async def train(
    data: Data = None,
    *,
    store: StoreLike = None,
    config: Path | str | None = None,
    on_progress: OnProgress = ignore,
    **options: object,
) -> TrainResult:
    """Learns a library from problems, and returns what came of it. Raises TfgrpoError.

    `data` is a JSONL file, a dataset's name, or rows. `options` are those of `tfgrpo train`, and
    `domain` (a Domain), `verify` (Problem and response to a Verdict, number or bool), `tools`
    (functions for an agent) and `agent` (`async def run(problem, context) -> str`, or a command).
    The same call resumes a run that was cut off. Without anything to learn it raises StoppedEarly
    unless `keep_going`. `on_progress` gets notices on the event loop.
    """
    request = _Request(store, config, options, make=True)
    ready = await asyncio.to_thread(request.ready_run, data)
    with request.open() as (opened, project):
        return await run_to_end(
            opened, project, ready, functions=request.functions, on_progress=on_progress
        )


async def estimate(
    data: Data = None,
    *,
    store: StoreLike = None,
    config: Path | str | None = None,
    **options: object,
) -> RunEstimate:
    """What `train` with these options would take: calls, tokens and dollars by stage, likely and
    at most. Nothing is asked or written. Raises TfgrpoError."""
    request = _Request(store, config, options, make=True)
    return await asyncio.to_thread(request.estimate, data)


async def evaluate(
    data: Data = None,
    *,
    library: str = "HEAD",
    against: str | None = None,
    store: StoreLike = None,
    on_progress: OnProgress = ignore,
    **options: object,
) -> Scores:
    """Scores a library on problems: mean@k, pass@k and maj@k. `library` and `against` are
    revisions, `options` those of `tfgrpo eval`, with `domain`, `verify`, `tools` and `agent` as
    for `train`. Scores are kept with the version, and not paid for twice. Raises TfgrpoError."""
    request = _Request(store, options.pop("config", None), options)
    revisions = [library] if against is None else [library, against]
    plan = await asyncio.to_thread(request.plan_evaluation, data, revisions, revisions[:1])
    with request.open() as (opened, _):
        return await score(opened, plan, functions=request.functions, on_progress=on_progress)


async def compare(
    control: str,
    library: str,
    data: Data = None,
    *,
    store: StoreLike = None,
    on_progress: OnProgress = ignore,
    **options: object,
) -> Comparison:
    """Whether a library is better than another (`v0`: the empty one), paired by problem;
    `options` are those of `evaluate`. Raises TfgrpoError."""
    request = _Request(store, options.pop("config", None), options)
    revisions = [control, library]
    plan = await asyncio.to_thread(request.plan_evaluation, data, revisions, revisions[::-1])
    with request.open() as (opened, _):
        scores = await score(opened, plan, functions=request.functions, on_progress=on_progress)
        evaluations = [one.evaluation for one in scores.libraries[:2]]
        return compared(opened, evaluations)[0]


async def prove(
    library: str | Path = "HEAD",
    data: Data = None,
    *,
    store: StoreLike = None,
    on_progress: OnProgress = ignore,
    **options: object,
) -> Proof:
    """Tests each experience of a library, a revision or a file that `tfgrpo import` reads, and
    keeps what helps on the branch of its run. `options` are those of `tfgrpo prove`, with
    `domain`, `verify`, `tools` and `agent` as for `train`. Raises TfgrpoError."""
    request = _Request(store, options.pop("config", None), options)
    ready = await asyncio.to_thread(request.ready_trial, library, data)
    with request.open() as (opened, project):
        return await do_trial(opened, project, ready, on_progress, request.functions)


async def improve(
    target: str = "prod",
    *,
    store: StoreLike = None,
    since: str = "7d",
    below: float = BAR,
    on_progress: OnProgress = ignore,
    **options: object,
) -> Improvement:
    """Learns from calls that were corrected or scored `below` a bar, with `least` new problems,
    and proposes what is not worse on held-out ones; only `accept_better` moves the branch.
    `options` are those of `tfgrpo improve` and `train`. Raises Busy, and TfgrpoError."""
    own = {name: options.pop(name, None) for name in IMPROVING}
    request = _Request(store, options.pop("config", None), options)
    file = own["file"]
    if not isinstance(since, str):
        raise SettingsError(f"since: {since!r} is no time", hint="such as 7d or 2026-11-20")
    collected = CollectRequest(
        which=CallFilter(parse_time(since, now=time.time_ns() // 1000)),
        output=None if file is None else Path(str(file)),
        rules=CollectionRules(below),
    )
    with request.open() as (opened, project):
        improvement = ImproveRequest(
            target,
            collected,
            _count("least", own["least"], LEAST),
            _count("heldout_samples", own["heldout_samples"], HELDOUT_SAMPLES),
            bool(own["accept_better"]),
            bool(own["new"]),
            _text(own["budget"]),
            request.settings(project),
        )
        return await improve_library(
            opened, project, improvement, functions=request.functions, on_progress=on_progress
        )


def run_sync(call: Callable[..., Awaitable[T]], *arguments: Any, **options: Any) -> T:
    """Runs a call on an event loop of its own, in a thread where one runs already."""

    async def awaited() -> T:
        return await call(*arguments, **options)

    if not _loop_is_running():
        return asyncio.run(awaited())
    return _run_beside(awaited())


def _run_beside(work: Coroutine[Any, Any, T]) -> T:
    running: Future[asyncio.Task[T]] = Future()
    outcome: Future[T] = Future()

    async def main() -> T:
        task = asyncio.ensure_future(work)
        running.set_result(task)
        return await task

    def run() -> None:
        try:
            outcome.set_result(asyncio.run(main()))
        except BaseException as error:
            outcome.set_exception(error)

    caller = asyncio.current_task()
    cancels = caller.cancelling() if caller is not None else 0
    threading.Thread(target=run, name="tfgrpo", daemon=True).start()
    try:
        while not wait([outcome], LOOK).done:
            if caller is not None and caller.cancelling() > cancels:  # Ctrl-C under asyncio.run
                raise asyncio.CancelledError
        return outcome.result()
    except BaseException:
        if not outcome.done():  # the caller was interrupted, and not the work
            task = running.result()
            with suppress(RuntimeError):  # the loop is closed: the work has just ended
                task.get_loop().call_soon_threadsafe(task.cancel)
            wait([outcome])
        raise


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _waiting(call: Callable[P, Awaitable[T]]) -> Callable[P, T]:
    @wraps(call)
    def waits(*arguments: P.args, **options: P.kwargs) -> T:
        return run_sync(call, *arguments, **options)

    return waits


train_sync, estimate_sync = _waiting(train), _waiting(estimate)
evaluate_sync, compare_sync = _waiting(evaluate), _waiting(compare)
prove_sync, improve_sync = _waiting(prove), _waiting(improve)


class _Request:
    def __init__(
        self, store: StoreLike, config: object, options: Mapping[str, object], *, make: bool = False
    ) -> None:
        self._path, self._author = _locate(store, make)
        self._make = make
        self._config = None if config is None else Path(str(config))
        self._options = dict(options)
        tools = self._options.pop("tools", None) or ()
        if not isinstance(tools, Iterable) or not all(map(callable, tools)):
            raise SettingsError(
                "tools takes Python functions",
                hint="configure other tools in [tools] of tfgrpo.toml",
            )
        self.functions: tuple[ToolFunction, ...] = tuple(tools)
        self._written: list[Path] = []
        self._objects = self._given_domain()
        self._agents = self._given_agent()

    @contextmanager
    def open(self) -> Iterator[tuple[Store, Project]]:
        """Opens the store for this thread, and the project that it belongs to; where there is
        none and one may be made, an empty one in memory."""
        opened = Store.open if is_there(self._path) or not self._make else Store.empty
        with opened(self._path, author=self._author) as store:
            root = project_root(store.path)
            names = tuple(getattr(function, "__name__", "tool") for function in self.functions)
            project = open_project(root, self._config, self._objects, names)
            store.signer = default_signer(str(root))
            yield store, replace(project, agents=self._agents)

    def ready_run(self, data: Data) -> ReadyRun:
        """The run to work on, on record; makes the store where there is none."""
        choice = self._choice()
        with ExitStack() as stack:
            there = is_there(self._path)
            store, project = stack.enter_context(self.open())

            def new_store() -> Store:
                return stack.enter_context(Store.init(self._path, author=self._author))

            if there:
                return ready_run(store, project, self._given(data), choice)
            with self._nothing_left():
                check_settings(store, project, self._given(data, lambda rows: Path(ROWS)))
                given = self._given(data)
                ready = ready_run(store, project, given, choice, new_store=new_store)
                self._given(data)  # another first call that failed may have had these rows
                return ready

    def _choice(self) -> RunChoice:
        run, resume, new, budget, going = (self._options.pop(key, None) for key in CHOICES)
        return RunChoice(_text(run), _text(resume), bool(new), _text(budget), bool(going))

    def ready_trial(self, library: str | Path, data: Data) -> ReadyRun:
        """The trial of a file's or a revision's library, on record."""
        budget, new = (self._options.pop(name, None) for name in ("budget", "new"))
        if not isinstance(library, str | Path):
            raise SettingsError(f"library: {library!r} is none", hint="a revision, or a file")
        with self.open() as (store, project):
            wanted = wanted_of(store, str(library), _text(budget), new=bool(new))
            plan = plan_trial(store, project, self._given(data), wanted)
            return ready_trial(store, project, plan, wanted)

    def estimate(self, data: Data) -> RunEstimate:
        """What a run would take, or what is left of an unfinished one with the same settings;
        where there is no store, as if an empty one were here."""
        choice = self._choice()
        with ExitStack() as stack:
            store, project = stack.enter_context(self.open())
            aside = Path(stack.enter_context(TemporaryDirectory(prefix="tfgrpo-rows-")))
            given = self._given(data, partial(self._write_rows, aside=aside))
            plan, run = plan_choice(store, project, given, choice)
            return estimate_run(store, plan, run)

    def settings(self, project: Project) -> dict[str, Any]:
        """The options as settings, without any data."""
        values = self._given(None)
        values.pop("data", None)
        return values

    def plan_evaluation(
        self, data: Data, revisions: Sequence[str], trained: Sequence[str]
    ) -> EvalPlan:
        """The evaluation that is asked for, checked."""
        with self.open() as (store, project):
            versions = [store.resolve(revision) for revision in revisions]
            return plan_evaluation(
                store,
                project,
                versions,
                self._given(data),
                trained=[store.resolve(revision) for revision in trained],
            )

    def _given(self, data: Data, write: Callable[[object], Path] | None = None) -> dict[str, Any]:
        """The options as settings; rows become a file beside the store, or where `write` says."""
        write = write or self._write_rows
        options = {**self._options, "data": data if data is not None else self._options.get("data")}
        for name in DATASETS:
            value = options.get(name)
            if isinstance(value, Path):
                options[name] = str(value)
            elif value is not None and not isinstance(value, str):
                options[name] = str(write(value))
        if isinstance(options.get("prompts"), Path):
            options["prompts"] = str(options["prompts"])
        return read_options(options)

    @contextmanager
    def _nothing_left(self) -> Iterator[None]:
        """Removes the rows that this call wrote, and their folder, when an error ends the block
        without a store."""
        folder = self._path.parent
        there = [path for path in (folder / ROWS, folder) if not path.exists()]
        try:
            yield
        except BaseException:
            if not is_there(self._path):
                for path in self._written:
                    path.unlink(missing_ok=True)
                for path in there:
                    with suppress(OSError):  # never made, or somebody else uses it by now
                        path.rmdir()
            raise

    def _write_rows(self, rows: object, aside: Path | None = None) -> Path:
        """A file with these rows, named by their digest: the one beside the store where that has
        them, else a new one, there or `aside`. Raises SettingsError, DatasetError and
        StoreError."""
        if not isinstance(rows, Sequence):
            raise SettingsError("data takes a file name or a list of rows", hint='[{"problem": …}]')
        text = "".join(row_lines(rows)).encode()
        folder = self._path.parent / ROWS
        path = folder / f"rows-{hashlib.sha256(text).hexdigest()[:16]}.jsonl"
        try:
            if path.is_file() and path.read_bytes() == text:
                return path
            if aside is not None:
                path = aside / path.name
            else:
                folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                folder.mkdir(mode=0o700, exist_ok=True)
            if atomic_write.create(path, text):
                self._written.append(path)
            else:  # a redaction or somebody else changed it
                atomic_write.write(path, text)
        except OSError as error:
            raise StoreError(
                f"cannot write the rows to {path.parent}: {error.strerror}",
                hint="choose another `store`, or give the rows as a file",
            ) from error
        return path

    def _given_domain(self) -> dict[str, Domain]:
        verify, domain = self._options.pop("verify", None), self._options.get("domain")
        if verify is not None:
            if domain is not None:
                raise SettingsError("give domain or verify, not both", hint="a Domain has a verify")
            if not callable(verify):
                raise SettingsError("verify takes a function", hint="verify(problem, response)")
            domain = function_domain(verify)
        if domain is None or isinstance(domain, str):
            return {}
        if not isinstance(domain, Domain):
            raise SettingsError(f"domain: {domain!r} is none", hint="a name, or a tfgrpo.Domain")
        name = OBJECT + domain.name
        self._options["domain"] = name
        return {name: domain.identified()}

    def _given_agent(self) -> dict[str, Callable[..., Any]]:
        agent = self._options.get("agent")
        if agent is None or isinstance(agent, str):
            return {}
        if not callable(agent):
            raise SettingsError("agent takes a function or a command", hint="run(problem, context)")
        name = OBJECT + getattr(agent, "__name__", type(agent).__name__)
        self._options["agent"] = name
        return {name: agent}


def _locate(store: StoreLike, make: bool) -> tuple[Path, Author]:
    """A store's file and who signs. Raises StoreError if there is none and none is to be made."""
    if isinstance(store, Store):
        return store.path, store.author
    if store is not None:
        path = anchor(store)
        if is_address(store):
            pass
        elif os.path.isdir(path) or not (path.suffix or os.path.exists(path)):
            path = store_path(path)
    else:
        try:
            path = find(Path.cwd())
        except StoreError:
            path = store_path(Path.cwd())
    if not make and not is_there(path):
        raise StoreError(
            f"no store at {path}", hint="create one with `tfgrpo init` or tfgrpo.train"
        )
    return path, partial(default_author, str(project_root(path)))


def _count(name: str, value: object, usual: int) -> int:
    if value is None:
        return usual
    if not is_count(value):
        raise SettingsError(f"{name}: {value!r} is no such number", hint="1 or more")
    return value


def _text(value: object) -> str | None:
    return None if value is None else str(value)
