"""From a person's request to a run that is ready: everything is checked, and nothing is paid for
yet."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from tfgrpo.connect import check_endpoints, named_models
from tfgrpo.costs import accounts
from tfgrpo.costs.prices import ModelPrices
from tfgrpo.data import datasets
from tfgrpo.domains.base import Domain
from tfgrpo.domains.registry import with_data
from tfgrpo.learn.fitted_defaults import fit
from tfgrpo.learn.policies.protocol import Policy, find_policy
from tfgrpo.model import budget as budgets
from tfgrpo.model.budget import Budget
from tfgrpo.model.fleet import ListedEndpoint
from tfgrpo.model.settings import ModelSettings
from tfgrpo.project import PATHS, Project
from tfgrpo.rendering.retrieve import OBJECT
from tfgrpo.rollout.agent_loop import require_search, sandbox_warnings
from tfgrpo.runs.run_problems import RunProblems, load_problems, reload_problems
from tfgrpo.settings import PAPER, TRIAL, TrainSettings, build, named
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.errors import InvalidOperation, SettingsError
from tfgrpo.store.history.allowed_names import check_name, name_after
from tfgrpo.store.history.name_moves import branch_to_return_to, check_branch
from tfgrpo.store.store import Store
from tfgrpo.trust.trusted_folders import remember_own

PACE = ("concurrency", "patience", "verify_timeout")
"""Settings of how long is waited and how much is done at once: whoever finds that an endpoint takes
less than was thought resumes the run with other ones."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run is to do. `settings` are as they go on record, but for `prompts`, which is a
    folder as seen from here. `stem` is what a run without a name is called after, `chosen` says
    which settings were chosen to fit the data and the model, and `endpoints` are those listed where
    it is asked at such."""

    settings: TrainSettings
    prompts: Path | None
    domain: Domain
    problems: RunProblems
    prices: ModelPrices
    stem: str | None = None
    warnings: tuple[str, ...] = ()
    chosen: str = ""
    endpoints: tuple[ListedEndpoint, ...] = ()


WITHOUT_NEW = "the same command without --new"
"""What goes on with a run of a command that makes it for a purpose of its own."""


@dataclass(frozen=True, slots=True)
class ReadyRun:
    """A run on record and what is left to do of it. What the `budget` has lost to earlier sessions
    is for `run_to_end` to read: until it holds the run's lock, another process may spend. `again`
    is what goes on with it, where that is not `tfgrpo train --resume`."""

    run: Run
    resumed: bool
    plan: RunPlan
    budget: Budget | None
    keep_going: bool = False
    again: str | None = None


@dataclass(frozen=True, slots=True)
class RunChoice:
    """Which run: a new one of that `name`, an unfinished one to `resume`, or with `new` a new one
    in any case. `budget` is the most that may be spent, as `--budget` writes it; with `keep_going`
    it goes on where its first attempts leave nothing to learn."""

    name: str | None = None
    resume: str | None = None
    new: bool = False
    budget: str | None = None
    keep_going: bool = False

    def check(self) -> None:
        """Raises SettingsError for a run that goes on and is a new one too."""
        if self.resume is not None and (self.new or self.name is not None):
            raise SettingsError(
                "--resume goes on with a run, --new and --run begin one: give one of them"
            )


class CheckedSettings(NamedTuple):
    """What a new run is asked to be: its settings, the layers that they come from, its domain, the
    name that the settings file has for it, and what is to be told."""

    settings: TrainSettings
    layers: Sequence[Mapping[str, Any]]
    domain: Domain
    stem: str | None
    notes: Sequence[str]


def check_settings(store: Store, project: Project, given: Mapping[str, Any]) -> CheckedSettings:
    """Checks the settings of a new run, without its data. `given` are settings by name, which win
    over the settings file. Raises TfgrpoError."""
    given = dict(given)
    project.require_trust(given)
    train = project.table("train")
    stem = train.pop("run", None)
    train.pop("keep_going", None)  # of the command, and no part of what a run is
    tools = project.tool_layer(given)
    layers = [given, train, project.table("model"), tools]
    domain = project.domain(next((x["domain"] for x in layers if x.get("domain")), None))
    models, notes = named_models(layers, os.environ, project.listed(layers))
    settings = build(
        TrainSettings,
        models,
        *layers,
        {"data": "", "branch": store.head.branch},
        find_domain=project.domain,
    )
    return CheckedSettings(settings, layers, domain, stem, notes)


def plan_run(store: Store, project: Project, given: Mapping[str, Any]) -> RunPlan:
    """Checks all that can be checked of a new run, and returns it. `given` are settings by name,
    which win over the settings file. Raises TfgrpoError."""
    settings, layers, domain, stem, notes = check_settings(store, project, given)
    if not settings.data:
        raise SettingsError(
            "no data was given",
            hint="use `tfgrpo train DATA`, or set data in [train] of tfgrpo.toml",
        )
    if settings.branch == "main" and store.head.branch is None and "branch" not in given:
        back = branch_to_return_to(store)
        switch = f"switch to one with `tfgrpo checkout {back}`, or " if back else ""
        raise InvalidOperation(
            "HEAD is detached: training needs a branch", hint=f"{switch}use --branch NAME"
        )
    require_search(domain, settings)
    if domain.group is not None and settings.policy != PAPER:
        raise SettingsError(
            "a group strategy of your own cannot be used where effects are measured: groups that "
            "stop by their rewards would bias them",
            hint="--policy paper",
        )
    domain = project.by_agent(domain, settings)
    problems, warnings = load_problems(store, settings, domain)
    domain, spec = with_data(domain, settings.domain, problems.all)
    warnings += domain.remarks(problems.all) if domain.remarks else ()
    settings = settings.model_copy(update={"domain": spec})
    chosen = ""
    if next((layer["preset"] for layer in layers if layer.get("preset")), "fit") == "fit":
        settings, chosen = fit(settings, problems, named(*layers))
    policy = find_policy(settings.policy, project.root)
    warnings += prompts_without_effect(settings, policy, domain)
    warnings += settings_without_effect(settings, policy)
    recorded: dict[str, object] = {
        key: project.record_path(getattr(settings, key)) for key in PATHS if getattr(settings, key)
    }
    recorded |= {"domain": project.record_domain(settings.domain), **problems.digests()}
    own = settings.domain.startswith(OBJECT) and domain.renders(settings.top_k)
    recorded |= {"domain_identity": domain.identity, "domain_renders": own}
    return RunPlan(
        settings.model_copy(update=recorded),
        Path(settings.prompts) if settings.prompts else None,
        domain,
        problems,
        project.prices(settings.models),
        stem,
        (*notes, *sandbox_warnings(settings), *warnings),
        chosen,
        project.endpoints(settings.models),
    )


def _plan_learning(store: Store, project: Project, given: Mapping[str, Any]) -> RunPlan:
    plan = plan_run(store, project, given)
    if plan.settings.policy == TRIAL:
        raise SettingsError(
            "a run with the policy trial needs something on trial",
            hint="`tfgrpo prove` and `tfgrpo merge --measure` make such runs",
        )
    return plan


def prompts_without_effect(
    settings: TrainSettings, policy: type[Policy], domain: Domain
) -> tuple[str, ...]:
    """A line for each file in the folder of prompts that a run does not ask: those of another
    policy, and those of no name. Nothing of a policy that does not say what it asks."""
    own: Collection[str] | None = getattr(policy, "prompts", None)
    if not settings.prompts or own is None:
        return ()
    names = ["rollout", *(name for name in own if name != "reconcile" or domain.reconcile)]
    return tuple(
        f"{file} has no effect: the policy {settings.policy} asks {', '.join(names)}"
        for file in sorted(Path(settings.prompts).glob("*.md"))
        if file.stem not in names
    )


def settings_without_effect(settings: TrainSettings, policy: type[Policy]) -> tuple[str, ...]:
    """A line for each setting that was given a value and that nothing reads. Nothing of a policy
    that does not say what it reads."""
    own: Collection[str] | None = getattr(policy, "settings", None)
    idle = []
    if own is not None and "examples" not in own and not settings.examples:
        idle.append(f"--no-examples has no effect: the policy {settings.policy} makes no examples")
    if settings.gate is None and "gate_rule" in settings.model_fields_set:
        idle.append("--gate-rule has no effect: there is no --gate")
    return tuple(idle)


def _require_recorded(
    project: Project, run: Run, settings: TrainSettings, given: Mapping[str, Any]
) -> None:
    """Raises SettingsError where a run is to go on with other settings than it has on record."""
    values = {key: value for key, value in given.items() if value is not None}
    domain = values.pop("domain", None)  # whose name is compared, and which is not imported
    if domain is not None:
        spec = project.record_domain(domain)
        if not settings.domain.startswith(f"{spec}:"):  # data may have added to it
            _require_same(run, "domain", spec, settings.domain)
    requested = build(TrainSettings, values, {"data": settings.data})
    names = named(values).difference(PACE, {"preset"})
    if values.get("preset") == PAPER:
        names.add("policy")
    for name in sorted(names):
        there, new = (
            getattr(one.models if name in ModelSettings.model_fields else one, name)
            for one in (settings, requested)
        )
        if isinstance(values.get(name), Mapping) and isinstance(new, BaseModel):
            there, new = ({key: getattr(one, key) for key in values[name]} for one in (there, new))
        elif name in PATHS:
            new = project.record_path(new)
        _require_same(run, name, new, there)


def _require_same(run: Run, name: str, new: object, there: object) -> None:
    if new != there:
        raise SettingsError(
            f"run {run.name} has another value of {name} on record",
            hint="it goes on with that one: leave yours out, or leave --resume out",
        )


def plan_resumed(project: Project, run: Run, given: Mapping[str, Any]) -> RunPlan:
    """What is to be done of a run on record, at the pace that is `given`, else at its own. Raises
    SettingsError where another setting is given another value than it has on record, DatasetError
    where its data has changed, NotTrusted where the record came with the store, and TfgrpoError."""
    settings = TrainSettings(**run.config)
    project.require_run(run.name, run.config)
    _require_recorded(project, run, settings, given)
    pace = {name: given[name] for name in PACE if given.get(name) is not None}
    checked = build(TrainSettings, pace, {"data": settings.data})
    settings = settings.model_copy(update={name: getattr(checked, name) for name in pace})
    if settings.models.endpoints:  # which are the settings file's, and not the record's
        project.require_trust({})
    domain = project.by_agent(project.domain(settings.domain), settings)
    warnings = list(sandbox_warnings(settings))
    if domain.identity != settings.domain_identity:
        is_agent = "agent:" in domain.identity
        changed = "the agent, its workspace or its reward" if is_agent else "the verifier"
        warnings.append(
            f"{changed} has changed since run {run.name} began: old and new attempts are mixed"
        )
    return RunPlan(
        settings,
        project.open_path(settings.prompts) if settings.prompts else None,
        domain,
        reload_problems(project, run, settings, domain),
        project.prices(settings.models),
        warnings=tuple(warnings),
        endpoints=project.endpoints(settings.models),
    )


def plan_choice(
    store: Store, project: Project, given: Mapping[str, Any], choice: RunChoice
) -> tuple[RunPlan, Run | None]:
    """What is to be done, and the unfinished run that it would go on with; None for a new one.
    Nothing is written. Raises TfgrpoError."""
    plan, known = _plan_or_resume(store, project, given, choice)
    is_over = known is not None and choice.resume is None and store.runs.state(known) == "finished"
    return plan, None if is_over else known


def _plan_or_resume(
    store: Store, project: Project, given: Mapping[str, Any], choice: RunChoice
) -> tuple[RunPlan, Run | None]:
    choice.check()
    if choice.resume is not None:
        resumed = store.runs.get(choice.resume)
        return plan_resumed(project, resumed, given), resumed
    plan = _plan_learning(store, project, given)
    return plan, None if choice.new else alike(store, plan.settings, choice.name)


def ready_run(
    store: Store,
    project: Project,
    given: Mapping[str, Any],
    choice: RunChoice,
    *,
    new_store: Callable[[], Store] | None = None,
) -> ReadyRun:
    """The run to work on: the one to resume, or a new one, which is on record from its first answer
    on: a start that fails leaves nothing behind. Where there is no store yet, `store` is an empty
    one in memory, and `new_store` makes the one for the record when all is checked. Raises
    TfgrpoError; no run and no store is made then."""
    plan, known = _plan_or_resume(store, project, given, choice)
    budget = budgets.open_budget(choice.budget, plan.prices)
    run = known
    if choice.resume is None:
        check_endpoints(plan.settings.models, os.environ, plan.endpoints)
        if new_store is not None:
            check_name("branch", plan.settings.branch)
            check_name("run", choice.name or "run")
            store = new_store()
        run = known or prepare_run(store, plan.settings, choice.name, plan.stem)
        remember_own(project.run_permissions(run.name, run.config))
    assert run is not None, "a run to resume is known"
    keep_going = choice.keep_going or bool(project.table("train").get("keep_going"))
    return ReadyRun(run, known is not None, plan, budget, keep_going)


def alike(store: Store, settings: TrainSettings, name: str | None = None) -> Run | None:
    """The run (of that name) with the very same settings, but for those of `PACE`. That is the last
    unfinished one, else the last that is finished, of which nothing is left."""
    same = {name: getattr(settings, name) for name in PACE}
    matches = [
        run
        for run in store.runs.listed()
        if name in (None, run.name) and TrainSettings(**{**run.config, **same}) == settings
    ]
    unfinished = [run for run in matches if store.runs.state(run) != "finished"]
    return next(iter((unfinished or matches)[::-1]), None)


def prepare_run(
    store: Store, settings: TrainSettings, name: str | None = None, stem: str | None = None
) -> Run:
    """A new run that is not on record yet, called `name`, or else after `stem` or the data, with a
    number where that is taken. Raises TfgrpoError where it could not be."""
    check_branch(store, settings.branch)
    name = name or _free_name(store, stem or datasets.stem(settings.data))
    there = settings.branch in store.branches()
    if not there:
        check_name("branch", settings.branch)
    base = store.tip(settings.branch) if there else store.head.version
    config = settings.model_dump(mode="json")
    return store.runs.prepare(
        name, uuid.uuid4().hex, settings.branch, base.number, config, store.author
    )


def put_on_record(store: Store, run: Run) -> None:
    """Records a prepared run, its first step's tag, and its branch where there is none."""
    base = store.version(run.base)
    with store.port.transaction():
        if run.branch not in store.branches():
            store.create_branch(run.branch, base)
        store.runs.append(run)
        store.create_tag(f"{run.name}/step_0", base)


def remove_run(store: Store, run: Run, reason: str | None = None) -> None:
    """Hides an unfinished run, on record, with the name of its first step where it has made no
    other. Raises InvalidOperation where it is at work or finished."""
    with store.port.transaction():
        store.runs.remove(run, reason)
        names = [tag for tag in store.tags() if tag.startswith(f"{run.name}/step_")]
        if names == [f"{run.name}/step_0"]:  # others name versions that it has made
            store.delete_tag(names[0])


def count_spent(store: Store, project: Project, budget: Budget, run: Run) -> None:
    """Takes out of a budget what a run has spent before, or may have where it was cut off. Raises
    StoreError."""
    table = project.table("prices")
    budget.spent = accounts.spent(store, run, table, in_tokens=budget.in_tokens)
    budget.keep_in(store.runs.set_aside_path(run))


def _free_name(store: Store, stem: str) -> str:
    stem = name_after(stem)
    taken = {run.name for run in store.runs.all()}
    taken |= {tag.rpartition("/step_")[0] for tag in store.tags()}  # of runs made elsewhere
    numbers = (f"{stem}-{n}" for n in range(2, len(taken) + 3))
    return next(name for name in (stem, *numbers) if name not in taken)
