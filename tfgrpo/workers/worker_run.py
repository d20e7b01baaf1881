"""One run as a worker sees it: its models, verifier and tools opened here, as its record says, with
this machine's keys, tools and sandboxes.

What a worker and a driver have to have in common is told by digests: code, prompts and domain. A
worker that has another one for a run leaves its groups alone and says which part differs.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import inspect
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Domain
from tfgrpo.learn.groups import Gathering, GroupMaker, GroupTask, RunParts
from tfgrpo.learn.loop import reflection_of
from tfgrpo.learn.progress import Progress
from tfgrpo.model.budget import Budget
from tfgrpo.model.client import Calls, Meter
from tfgrpo.project import Project
from tfgrpo.rollout.agent_loop import equipped
from tfgrpo.runs.run_problems import PROMPTS
from tfgrpo.session import open_session, options_of
from tfgrpo.settings import TrainSettings
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.canonical import digest
from tfgrpo.store.store import Store
from tfgrpo.tools.tool_call_record import ToolRecord

ROOMS = (
    *("agents", "data", "domains", "model", "rendering", "rollout", "tools", "learn", "runs"),
    *("costs", "prompts"),
)
"""The rooms of the package that a group passes through."""


@dataclass(frozen=True, slots=True)
class WorkPlan:
    """What of a run's record a worker goes by, as seen from here."""

    run: Run
    settings: TrainSettings
    domain: Domain
    prompts: Path | None


def plan_work(store: Store, project: Project, name: str, models: Mapping[str, Any]) -> WorkPlan:
    """What to go by for the run of that name. `models` are settings of models that are this
    machine's own. Raises NotTrusted where the record came with the store, and TfgrpoError."""
    run = store.runs.get(name)
    project.require_run(run.name, run.config)
    settings = TrainSettings(**run.config)
    if settings.models.endpoints:  # which are this machine's own, and not the record's
        project.require_trust({})
    own = settings.models.model_copy(update=dict(models))
    settings = settings.model_copy(update={"models": own})
    return WorkPlan(
        run,
        settings,
        project.by_agent(project.domain(settings.domain), settings),
        project.open_path(settings.prompts) if settings.prompts else None,
    )


@dataclass(eq=False, slots=True)
class RunWork:
    """A run that this worker makes groups of. `meter` counts what its calls come to."""

    store: Store
    plan: WorkPlan
    maker: GroupMaker
    calls: tuple[Calls, ...]
    meter: Meter
    attempts: int = 0

    async def make(self, task: GroupTask, problem: Problem) -> dict[str, Any]:
        """Makes and records what is missing of a task's group; returns the samples that failed, and
        why. Raises EndpointError, BudgetReached, DomainError and StoreError."""
        run = self.plan.run
        rows = self.store.runs.rollouts(run, task.step, task.problem)
        recorded = {(row.problem, row.sample): row for row in rows}
        library = self.store.library(self.store.version(task.version))
        gathering = Gathering(problem, library)
        await self.maker.make(task, gathering, recorded)
        rollouts = gathering.group.rollouts
        self.attempts += sum((problem.id, r.sample) not in recorded for r in rollouts)
        return {"failed": {r.sample: r.reason for r in rollouts if r.outcome == "failed"}}

    def share(self, concurrency: int) -> None:
        """Has at most so many requests in flight from now on."""
        for calls in self.calls:
            calls.fleet.resize(concurrency)

    @property
    def given_up(self) -> bool:
        """Whether an endpoint was given up: it has to be opened anew."""
        return any(calls.fleet.given_up for calls in self.calls)


@asynccontextmanager
async def work_on(
    store: Store, project: Project, plan: WorkPlan, budget: Budget | None = None
) -> AsyncIterator[RunWork]:
    """Opens what a run's groups need, for the block's length. `budget` bounds its calls. Raises
    EndpointError, ToolError and StoreError."""
    settings, run = plan.settings, plan.run
    prices, endpoints = project.prices(settings.models), project.endpoints(settings.models)
    options = options_of(settings, prices, budget, shared=True, endpoints=endpoints)
    async with open_session(store, settings.models, options) as session:
        policy, reflector = session.model_calls(run.uid, run)
        parts = RunParts(
            session,
            run,
            settings,
            plan.domain,
            plan.domain.template("rollout", plan.prompts),
            reflection_of(settings, plan.domain, plan.prompts),
            policy,
            reflector,
            Progress(run.name, 1, settings.epochs, meter=session.meter),
            prompts=plan.prompts,
        )
        calls = (policy,) if policy is reflector else (policy, reflector)
        async with equipped(
            plan.domain,
            settings,
            ToolRecord(session.journal, store.runs, scope=run.uid, run=run, shared=True),
            folder=session.folder,
        ) as (domain, agent):
            maker = GroupMaker(parts)
            maker.equip(domain, agent)
            try:
                yield RunWork(store, plan, maker, calls, session.meter)
            finally:
                await asyncio.gather(*(one.finish_in_flight() for one in calls))


def digests(run: Run, domain: Domain, prompts: Path | None) -> dict[str, str]:
    """The digests that a run's groups need, by words for them. Raises TemplateError."""
    parts = {
        "settings": run.digest,
        "code of tfgrpo": code_digest(),
        f"domain {domain.name}": domain_digest(domain),
    }
    for name in PROMPTS:
        parts[f"prompt {name}"] = domain.template(name, prompts).digest
    return {part: value[:16] for part, value in parts.items()}


def difference(wanted: dict[str, str], here: dict[str, str]) -> str | None:
    """What differs here from what is wanted, in words; None where nothing does."""
    names = [name for name in wanted if here.get(name) != wanted[name]]
    names += [name for name in here if name not in wanted]
    if not names:
        return None
    is_loaded = any(name.startswith(LOADED) for name in names)
    return f"differs here: {', '.join(names)}{RESTART if is_loaded else ''}"


LOADED = ("code of ", "domain ")
"""What a process has loaded once and for all."""
RESTART = "; restart the worker with the same"


@cache
def code_digest() -> str:
    """The digest of the code and the prompts that make groups."""
    files: list[tuple[str, str]] = []
    for room in ROOMS:
        module = importlib.import_module(f"tfgrpo.{room}")
        for folder in map(Path, module.__path__):
            kinds = ("*.py", "*.md", "*.toml")
            for path in sorted(path for kind in kinds for path in folder.rglob(kind)):
                name = f"{room}/{path.relative_to(folder).as_posix()}"
                files.append((name, hashlib.sha256(path.read_bytes()).hexdigest()))
    return digest(["tfgrpo.code", sorted(set(files))]).hex()


def domain_digest(domain: Domain) -> str:
    """The digest of a domain: what it says it depends on, and the files of its code."""
    files = {path.name: path.read_bytes() for path in _sources(domain)}
    sources = sorted((name, hashlib.sha256(text).hexdigest()) for name, text in files.items())
    return digest(["tfgrpo.domain", domain.name, domain.identity, sources]).hex()


def _sources(domain: Domain) -> Iterator[Path]:
    """Yields the files of a domain's functions, those of tfgrpo apart."""
    for one in fields(domain):
        value = getattr(domain, one.name)
        while isinstance(value, partial):
            value = value.func
        if not callable(value):
            continue
        module: ModuleType | None = inspect.getmodule(value) or inspect.getmodule(type(value))
        if module is None or module.__name__.partition(".")[0] in ("tfgrpo", "builtins"):
            continue
        if path := getattr(module, "__file__", None):
            yield Path(path)
