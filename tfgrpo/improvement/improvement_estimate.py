"""What an improvement, a regression or a judge's scores would take. Nothing is asked or written."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from tfgrpo.evaluation.eval_setup import eval_settings
from tfgrpo.improvement import improvement_record
from tfgrpo.improvement.collection import Row, write_rows
from tfgrpo.improvement.improve import MOST_HELDOUT, ImproveRequest, Improving
from tfgrpo.improvement.judge_feedback import JudgeRequest, judged_problem, unjudged_calls
from tfgrpo.improvement.regression import RegressRequest, plan_sides
from tfgrpo.learn.run_estimate import (
    PlannedAttempts,
    RunEstimate,
    estimate_attempts,
    estimate_judgements,
    estimate_run,
    missing_attempts,
)
from tfgrpo.learn.run_setup import plan_run
from tfgrpo.project import Project
from tfgrpo.store.activity.traffic import traffic_path
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.store import Store


@dataclass(frozen=True, slots=True)
class Planned:
    """What something would take, and whether every price is known. `estimate` is None where there
    is nothing to do, and `about` says what it is for, in words."""

    about: str
    estimate: RunEstimate | None = None
    prices_known: bool = True


def estimate_improvement(store: Store, project: Project, request: ImproveRequest) -> Planned:
    """What an improvement would take now, or the rest of the one that was cut off: the training
    with its gate, and the comparison on held-out problems. Raises TfgrpoError."""
    project.require_trust(request.settings)
    job = Improving(store, project, request)
    begun, given, table = job.begun(), job.given, job.table
    with tempfile.TemporaryDirectory(prefix="tfgrpo-") as folder:
        if begun and not request.new:
            one = begun[0]
            about, branch, run = f"the rest of {one.name}", one.branch, store.runs.find(one.name)
            parts = {
                name: [project.open_data(path)] if path else []
                for name, path in one.parts._asdict().items()
            }
        else:
            rows = job.new_rows(dry_run=True)
            if len(rows) < max(1, request.least):
                return Planned(f"nothing to do: {len(rows)} of {request.least} new problems")
            job.require_model()
            about, branch, run = f"{len(rows)} new problems", request.target, None
            named = [part for part in ("heldout", "gate") if not table.get(part)]
            parts = {
                name: [_written(Path(folder) / f"{name}.jsonl", portion, job)] if portion else []
                for name, portion in improvement_record.split(rows, named).items()
            }
        given |= {"data": parts["train"][0], "branch": branch, "skip_unverifiable": True}
        if parts.get("gate"):
            given["gate"] = parts["gate"][0]
        heldout = table.get("heldout") or next(iter(parts.get("heldout", [])), None)
        if heldout:
            more = {"heldout_samples": request.samples, "heldout_problems": MOST_HELDOUT}
            given |= {"heldout": heldout, **more}
        plan = plan_run(store, job.own_project, given)
        about += f" with {plan.settings.models.model}"
        return Planned(about, estimate_run(store, plan, run), plan.prices.known)


def _written(path: Path, rows: Sequence[Row], job: Improving) -> str:
    write_rows(path, improvement_record.mapped(rows, job.fields))
    return str(path)


def estimate_regression(store: Store, project: Project, request: RegressRequest) -> Planned:
    """What a regression would take: the attempts that are not on record, on both sides, and
    those that each leave out a part of the library. Raises TfgrpoError."""
    sides = plan_sides(store, project, request)
    total, known = RunEstimate((), ()), True
    for plan in sides.measured:
        samples = plan.task.settings.samples
        halves = PlannedAttempts(sides.library, plan.task.problems, samples + samples % 2)
        total += estimate_attempts(store, plan, [*missing_attempts(store, plan), halves])
        known = known and plan.prices.known
    if request.target is not None:
        reason = "what a proposal of deletions does, which is measured where something is lost"
        total = replace(total, left_out=(*total.left_out, reason))
    names = " and ".join(plan.task.settings.models.model for plan in sides.measured)
    return Planned(f"{sides.version.name} on {names}", total, known)


def estimate_judging(store: Store, project: Project, request: JudgeRequest) -> Planned:
    """What a judge's scores of the calls that it has not judged take. Raises TfgrpoError."""
    given = {**request.settings, "domain": request.domain}
    settings, _ = eval_settings(store, project, [store.head.version], given)
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        calls = unjudged_calls(traffic, request)
    if not calls:
        return Planned("nothing to do: every call is judged")
    about = f"{len(calls)} calls"
    judged = (f"{judged_problem(one).problem}\n{one.answer}" for one in calls)
    prices = project.prices(settings.models)
    estimate = estimate_judgements(store, settings, prices, judged)
    return Planned(about, estimate, prices.known)
