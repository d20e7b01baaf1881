"""From a library, or two, to a trial of what is in it: the run, and what comes of it.

A trial is a run with the policy `trial` on a branch of its own. The same request again resumes it,
or reads its result. The budget is part of the request: when it is reached the trial is over, and
effects that are not decided by then are too small to matter for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, NamedTuple

from tfgrpo import interchange
from tfgrpo.connect import check_endpoints
from tfgrpo.costs.accounts import Total, costs, total
from tfgrpo.evaluation.eval_setup import EvalPlan
from tfgrpo.evaluation.scoring import EvalTask
from tfgrpo.interchange import incoming_versions
from tfgrpo.interchange.format_types import Document
from tfgrpo.learn.interplay import Interplay, interplay
from tfgrpo.learn.measure import in_trial
from tfgrpo.learn.policies.trial import TRIAL, Tried, conclude, results
from tfgrpo.learn.run import run_to_end
from tfgrpo.learn.run_estimate import PlannedAttempts, RunEstimate, estimate_attempts
from tfgrpo.learn.run_setup import (
    PACE,
    WITHOUT_NEW,
    ReadyRun,
    RunPlan,
    alike,
    plan_run,
    prepare_run,
)
from tfgrpo.model.budget import BudgetReached, open_budget
from tfgrpo.notices import OnProgress, ignore
from tfgrpo.project import Project
from tfgrpo.result_tables import View, Viewed
from tfgrpo.runs.run_problems import KINDS
from tfgrpo.session import ToolFunction
from tfgrpo.settings import TRIAL as POLICY
from tfgrpo.settings import EvalSettings
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.canonical import digest
from tfgrpo.store.damaged_values import mapping
from tfgrpo.store.errors import InvalidOperation, SettingsError
from tfgrpo.store.records import ROOT, Experience, Library, Version
from tfgrpo.store.store import Store
from tfgrpo.trust.trusted_folders import remember_own
from tfgrpo.wording import plural, with_bounds

PROVE: Mapping[str, Any] = {"batch_size": 8, "group_size": 2, "epochs": 12}
"""One pair of attempts at each problem of a small step, so that a trial is looked at often."""
MERGE: Mapping[str, Any] = {"batch_size": 24, "group_size": 8, "epochs": 4}
"""What two things do together needs several pairs of attempts at a problem at once."""
ALONE: Mapping[str, Any] = {**dict.fromkeys(KINDS), "gate_digest": "", "sealed_digest": ""}
"""What a run has on record beside its attempts, and a trial has not."""


class Wanted(NamedTuple):
    """A request for a trial: the versions on trial, their names, and the version that it begins
    with; `budget` as in `--budget`; `new` starts another trial in any case. A `document` is brought
    in, and is the version on trial, where there is none here."""

    versions: tuple[Version, ...]
    stem: str
    base: Version
    budget: str | None = None
    new: bool = False
    document: Document | None = None

    @property
    def folder(self) -> str:
        """How the names of its branches begin."""
        return "measured" if len(self.versions) == 2 else "proved"


@dataclass(frozen=True, slots=True)
class Proof(Viewed):
    """The result of a trial: its run, the result for each item, and the cost. `version` has the
    items that help, where one library was proved."""

    run: Run
    tried: tuple[Tried, ...]
    cost: Total
    version: Version | None = None

    def view(self) -> View:
        rows = [
            (one.judged.verdict, with_bounds(*one.judged[1:4]), str(one.judged.pairs), one.text)
            for one in sorted_results(self.tried)
        ]
        helps = sum(one.judged.verdict == "helps" for one in self.tried)
        branch, notes = self.run.branch, ["nothing was shown to help"]
        if helps:
            then = f"`tfgrpo merge {branch}` where your library lacks some of it"
            notes = [f"{plural(helps, 'experience')} on branch {branch}"]
            notes.append(f"next: `tfgrpo diff HEAD {branch}`, then {then}")
        title = f"run {self.run.name}: {plural(self.cost.usage.calls, 'call')}, {self.cost.words}"
        return View(title, ("verdict", "effect", "pairs", "experience"), rows, notes)


def plan_trial(store: Store, project: Project, given: Mapping[str, Any], wanted: Wanted) -> RunPlan:
    """Checks all that can be checked of a trial, and returns it. `given` are settings by name.
    Raises TfgrpoError; nothing is written."""
    defaults = PROVE if wanted.folder == "proved" else MERGE
    named = {key: value for key, value in given.items() if value is not None}
    branch = f"{wanted.folder}/{wanted.stem}"
    layer = {**defaults, **named, **dict.fromkeys(KINDS, ""), "policy": POLICY, "branch": branch}
    plan = plan_run(store, project, layer)
    if plan.settings.group_size % 2:
        raise SettingsError(
            "a trial compares attempts in pairs", hint="--group-size takes an even number"
        )
    settings = plan.settings.model_copy(update=dict(ALONE))
    return replace(plan, settings=settings)


def estimate_trial(store: Store, plan: RunPlan, library: Library) -> RunEstimate:
    """What a trial of a library takes if it is decided by its last attempt alone."""
    settings, problems = plan.settings, plan.problems.train
    task = EvalTask(problems, EvalSettings.of_run(settings, "data", 1), plan.domain)
    attempts = EvalPlan((), task, plan.prices, None, ())
    planned = PlannedAttempts(library, problems, settings.epochs * settings.group_size)
    return estimate_attempts(store, attempts, [planned])


def ready_trial(store: Store, project: Project, plan: RunPlan, wanted: Wanted) -> ReadyRun:
    """The run of a trial: the one like it that there is, or a new one on a branch of its own.
    Raises TfgrpoError, also where another process is beginning one of that name."""
    check_endpoints(plan.settings.models, os.environ, plan.endpoints)
    open_budget(wanted.budget, plan.prices)
    runs, stem = store.runs, plan.settings.branch
    with runs.hold(runs.starting_path(stem)) as free:
        if not free:
            raise InvalidOperation(
                f"a trial on {stem} is being begun in another process",
                hint="the same command again says where it is",
            )
        if wanted.document is not None:
            brought = bring_in(store, wanted.document, wanted.stem)
            wanted = wanted._replace(versions=(brought,))
        plan, known = _on_its_branch(store, plan, wanted)
        settings = plan.settings
        run = known or prepare_run(store, settings, None, settings.branch.replace("/", "-"))
    remember_own(project.run_permissions(run.name, run.config))
    budget = open_budget(wanted.budget, plan.prices)
    return ReadyRun(run, known is not None, plan, budget, keep_going=True, again=WITHOUT_NEW)


def _on_its_branch(store: Store, plan: RunPlan, wanted: Wanted) -> tuple[RunPlan, Run | None]:
    """The plan on the branch of its trial, which is made where there is none, and its run."""
    digests = [version.digest.hex() for version in wanted.versions]
    config = plan.settings.model_dump(mode="json", exclude={"branch", *PACE})
    key = digest([digests, wanted.base.digest.hex(), str(sorted(config.items()))]).hex()[:16]
    stem = plan.settings.branch
    names = chain([stem], (f"{stem}-{number}" for number in count(2)))
    while True:
        name = next(names)
        settings = plan.settings.model_copy(update={"branch": name})
        if not store.has_branch(name):
            store.create_branch(name, wanted.base)
            meta = {TRIAL: {"versions": digests, "key": key}}
            store.commit(name, [], message=f"on trial: {wanted.stem}", meta=meta)
            return replace(plan, settings=settings), None
        known = next((run for run in store.runs.all() if run.branch == name), None)
        first = store.tip(name) if known is None else store.version(known.base)
        if not wanted.new and mapping(first.meta.get(TRIAL)).get("key") == key:
            return replace(plan, settings=settings), alike(store, settings)


async def do_trial(
    store: Store,
    project: Project,
    ready: ReadyRun,
    on_progress: OnProgress = ignore,
    functions: Sequence[ToolFunction] = (),
) -> Proof:
    """Does what is left of a trial, and puts what it came to on record. `functions` are tools of an
    agent. Raises TfgrpoError."""
    run = ready.run
    try:
        await run_to_end(store, project, ready, functions=functions, on_progress=on_progress)
    except BudgetReached:
        store.runs.note(run, "finished", "its budget is spent")
    cost = total(costs(store, project.table("prices"), run))
    if run.branch.startswith("proved/"):
        version, tried = conclude(store, run, ready.plan.settings.models.model)
        return Proof(run, tuple(tried), cost, version)
    return Proof(run, tuple(results(store, run)), cost)


def offered(document: Document) -> Library:
    """What a file holds as a library, for an estimate."""
    texts = [item.text for item in document.items]
    texts += [o.text for batch in document.batches for o in batch.operations if o.text]
    return Library(ROOT, tuple(Experience(str(n), words, 0) for n, words in enumerate(texts)))


def bring_in(store: Store, document: Document, stem: str) -> Version:
    """The version that holds what a file has, on a branch of its own. Raises UnreadableLibrary and
    StoreError."""
    branch = f"offered/{stem}"
    if not store.has_branch(branch):
        store.create_branch(branch, store.version(0))
    incoming_versions.bring_in(store, document, branch)
    return store.tip(branch)


def own_changes(store: Store, wanted: Wanted) -> tuple[set[str], set[str]]:
    """The experiences that each of two sides has added or changed, and the other has not."""
    before = {(e.id, e.text) for e in store.library(wanted.base)}
    ours, theirs = (
        {e.id for e in store.library(version) if (e.id, e.text) not in before}
        for version in wanted.versions
    )
    return ours - theirs, theirs - ours


def measured_merge(store: Store, proof: Proof, wanted: Wanted) -> Interplay:
    """What pairs of one experience of either side do together, by their ids."""
    ids = {one.name: one.ids[0] for one in proof.tried if len(one.ids) == 1}
    sides = ([n for n, id in ids.items() if id in side] for side in own_changes(store, wanted))
    together = interplay(in_trial(store, proof.run), *sides)
    pairs = [one._replace(names=(ids[one.names[0]], ids[one.names[1]])) for one in together.pairs]
    return together._replace(pairs=pairs)


def merge_figures(
    store: Store, proof: Proof, together: Interplay, left_out: Mapping[str, str]
) -> dict[str, Any]:
    """What the version of a measured merge says of the trial; `left_out` has the experiences that
    stay out of it, and why."""
    config = proof.run.config
    return {
        "run": proof.run.name,
        "model": config["models"]["model"],
        "data": config["data"],
        "data_digest": config["data_digest"],
        "attempts": len(in_trial(store, proof.run)),
        "experiences": {id: one.figures for one in proof.tried for id in one.ids},
        "pairs": [pair.figures for pair in together.pairs],
        "pairs_possible": together.possible,
        "pairs_examined": together.examined,
        "left_out": dict(left_out),
    }


def stem_of(name: str) -> str:
    """What a branch may be called after a revision or a file."""
    characters = (c if c.isascii() and (c.isalnum() or c in "_+-.") else "-" for c in name)
    return "".join(characters).strip("-.") or "library"


def wanted_of(store: Store, what: str, budget: str | None, *, new: bool) -> Wanted:
    """The trial of the library in a file, or else at a revision. Raises TfgrpoError."""
    document = interchange.read(Path(what)) if os.path.isfile(what) else None
    stem = stem_of(Path(what).stem if document else what)
    versions = () if document else (store.resolve(what),)
    return Wanted(versions, stem, store.version(0), budget, new, document)


def tried_object(one: Tried) -> dict[str, Any]:
    """What a trial says of a thing, for programs."""
    return {"experiences": list(one.ids), "text": one.text, **one.figures}


def sorted_results(tried: Sequence[Tried]) -> list[Tried]:
    """What helps first, then what was not decided, then what harms."""
    order = ("helps", "undecided", "too small", "harms", "not tried")
    return sorted(tried, key=lambda one: (order.index(one.judged.verdict), -one.judged.effect))
