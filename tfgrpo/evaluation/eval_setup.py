"""From a person's request to an evaluation that is ready: everything is checked, and nothing is
paid."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tfgrpo.connect import named_models
from tfgrpo.costs.prices import ModelPrices
from tfgrpo.data import leakage, problems
from tfgrpo.data.problems import Problem, describe_indices, describe_unread
from tfgrpo.data.readers import DatasetError
from tfgrpo.domains.registry import with_data
from tfgrpo.domains.verifier import verifiable
from tfgrpo.evaluation.scores import Scores, read_scores
from tfgrpo.evaluation.scoring import EvalProgress, EvalTask, evaluate
from tfgrpo.model.budget import Budget, open_budget
from tfgrpo.model.fleet import ListedEndpoint
from tfgrpo.notices import OnProgress, ScoresReady, WarningNotice, ignore
from tfgrpo.project import Project
from tfgrpo.rendering.retrieve import trained_with
from tfgrpo.rollout.agent_loop import require_search, sandbox_warnings
from tfgrpo.session import Session, ToolFunction, open_session, options_of
from tfgrpo.settings import EvalSettings, TrainSettings, build, fitting_tokens, is_count, named
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.history.revisions import run_of_history
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store

FROM_RUN = (
    "domain",
    "agent_objective",
    "prompts",
    "concurrency",
    "max_tokens",
    "task_timeout",
    "patience",
    "verify_timeout",
    "mode",
    "answers",
    "tools",
    "agent",
    "turns",
    "top_k",
)
"""Settings that an evaluation takes from the run that made the library."""


@dataclass(frozen=True, slots=True)
class EvalPlan:
    """The versions to score, the data, and what the evaluation may cost."""

    versions: tuple[Version, ...]
    task: EvalTask
    prices: ModelPrices
    budget: Budget | None
    warnings: tuple[str, ...]
    endpoints: tuple[ListedEndpoint, ...] = ()

    def missing(self, store: Store) -> list[Version]:
        """The versions without a score on record."""
        runs, key = store.runs, self.task.key
        return [one for one in self.versions if runs.evaluation(one.number, key) is None]

    def session(
        self, store: Store, on_progress: OnProgress, functions: Sequence[ToolFunction] = ()
    ) -> AbstractAsyncContextManager[Session]:
        """A session to score in."""
        settings, more = self.task.settings, {"functions": functions, "endpoints": self.endpoints}
        options = options_of(settings, self.prices, self.budget, on_progress, **more)
        return open_session(store, settings.models, options)


def plan_evaluation(
    store: Store,
    project: Project,
    versions: Sequence[Version],
    given: Mapping[str, Any],
    *,
    trained: Sequence[Version] | None = None,
) -> EvalPlan:
    """A checked evaluation of settings by name, `problems` and `budget` among them; `eval_settings`
    says what else counts, with `trained` before the other versions. Raises TfgrpoError."""
    given = dict(given)
    count, amount = given.pop("problems", None), given.pop("budget", None)
    if count is not None and not is_count(count):
        raise SettingsError(f"problems: {count!r} is no number of problems", hint="1 or more")
    settings, notes = eval_settings(store, project, trained or versions, given)
    if not settings.data:
        raise SettingsError("no data was given", hint="use `tfgrpo eval DATA`")
    domain, name = project.by_agent(project.domain(settings.domain), settings), settings.data
    require_search(domain, settings)
    dataset = domain.problems(name, settings.fields)[:count]
    warnings = [*notes, *sandbox_warnings(settings)]
    warnings += [*describe_indices(dataset, name), *describe_unread(dataset, name)]
    recorded: dict[str, Any] = {"data": project.record_path(name)}
    domain, spec = with_data(domain, settings.domain, dataset)
    warnings += domain.remarks(dataset) if domain.remarks else ()
    recorded["domain"] = spec
    if settings.skip_unverifiable:
        dataset, skipped = verifiable(dataset, name, domain, warnings, skip=True)
        recorded["skipped"] = {"data": skipped} if skipped else {}
    task = EvalTask(dataset, settings.model_copy(update=recorded), domain)
    warnings += leakage.describe_duplicates(dataset, name)
    for version in {v.number: v for v in trained or versions}.values():
        warnings += leak_warnings(store, project, version, dataset)
    prices, listed = project.prices(settings.models), project.endpoints(settings.models)
    notices = tuple(dict.fromkeys(warnings))
    plan = EvalPlan(tuple(versions), task, prices, None, notices, listed)
    if not plan.missing(store):
        return plan
    if not settings.skip_unverifiable:  # looked at above, as what is recorded hangs on it
        verifiable(dataset, name, domain, warnings, skip=False)
    return replace(plan, budget=open_budget(amount, prices))


def eval_settings(
    store: Store, project: Project, versions: Sequence[Version], given: Mapping[str, Any]
) -> tuple[EvalSettings, tuple[str, ...]]:
    """The settings: as given, then from [eval], from the run that made the first of these versions
    (or HEAD's), and from [train]; and notes about models. Raises SettingsError and NotTrusted."""
    project.require_trust(given)
    frozen: Mapping[str, Any] = {}
    for version in (*versions, store.head.version):
        frozen = trained_with(store, version)
        if frozen:
            name = run_of_history(store, version) or version.name
            project.require_run(name, frozen, _used(frozen, project, given))
            break
    trained = {key: frozen[key] for key in FROM_RUN if key in frozen} | frozen.get("models", {})
    if trained.get("prompts"):
        trained["prompts"] = str(project.open_path(trained["prompts"]))
    if not frozen:
        table = project.table("train")
        trained = {key: table[key] for key in FROM_RUN if key in table}
    evaluation = project.table("eval")
    spec = given.get("domain") or evaluation.get("domain") or trained.get("domain")
    project.domain(spec)  # so that its module can be imported from here on
    given = dict(given)
    tools = project.tool_layer(given)
    layers = [given, tools, evaluation, trained, project.table("model"), {"data": ""}]
    models, notes = named_models(layers, os.environ, project.listed(layers))
    settings = build(EvalSettings, models, *layers, find_domain=project.domain)
    tokens = None if "max_tokens" in named(*layers) else fitting_tokens(settings)
    fitted = settings if tokens is None else settings.model_copy(update={"max_tokens": tokens})
    return fitted, notes


def _used(config: Mapping[str, Any], project: Project, given: Mapping[str, Any]) -> set[str]:
    """The settings of a run that an evaluation takes over: those that nothing else names."""
    others = {name for name, value in given.items() if value is not None}
    others |= {name.replace("-", "_") for name in project.table("eval")}
    others |= {"tools"} if project.table("tools") else set()
    return {*FROM_RUN, *(config.get("models") or {}), "corpus", "sandbox"} - others


def leak_warnings(
    store: Store, project: Project, version: Version, dataset: Sequence[Problem]
) -> list[str]:
    """Warnings about problems that a library was trained on, or that its gate chose it on, or that
    this cannot be known."""
    name = run_of_history(store, version)
    if name is None:
        return []
    run = store.runs.find(name)
    unknown = "cannot tell whether these problems were trained on"
    if run is None:  # runs do not travel between stores
        return [f"{unknown}: run {name} is not in this store"]
    settings = TrainSettings(**run.config)
    if not project.trusts_run(name, run.config, ("domain", "data", "gate")):
        return [f"{unknown}: run {name} is not trusted"]
    domain = project.problem_domain(settings)
    given = [
        ("data", settings.data, "memorisation"),
        ("gate", settings.gate, "the gate's own choice"),
    ]
    warnings: list[str] = []
    for kind, name, what in given:
        if name is None:
            continue
        data = project.open_data(name)
        try:
            known = domain.problems(data, settings.fields)
        except DatasetError as error:
            warnings.append(f"{unknown}: {error}")
            continue
        known = problems.without(known, settings.skipped.get(kind, ()))
        warnings += leakage.describe_leaks(known, dataset, data, what)
    return warnings


async def score(
    store: Store,
    plan: EvalPlan,
    *,
    functions: Sequence[ToolFunction] = (),
    on_progress: OnProgress = ignore,
) -> Scores:
    """The scores of a plan's versions; those not on record are made. Raises TfgrpoError."""
    for text in plan.warnings:
        on_progress(WarningNotice(text))
    if plan.missing(store):
        async with plan.session(store, on_progress, functions) as session:
            progress = EvalProgress.announced(on_progress)
            await evaluate(session, plan.versions, plan.task, progress=progress)
    scores = read_scores(store, plan.versions, plan.task)
    on_progress(ScoresReady(scores))
    return scores


T = TypeVar("T")


async def apart(store: Store, work: Callable[[Store], T]) -> T:
    """Runs `work` in a thread, with the store opened there, and returns its result: checking the
    problems of a run or an evaluation needs an event loop of its own, and a store belongs to one
    thread."""

    def opened() -> T:
        with Store.open(store.path, author=store.author) as there:
            return work(there)

    return await asyncio.to_thread(opened)
