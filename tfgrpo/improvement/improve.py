"""The loop in one call: collect, train on a branch with a gate, compare on held-out, propose.

It is made to be run by a timer: too few new problems wait for a later call, one process works on a
store at a time, on any machine, and an interrupted improvement goes on from the journal. The target
moves only if the request accepts what is better.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tfgrpo.costs.prices import LOCAL
from tfgrpo.data import readers
from tfgrpo.data.compressed_files import DatasetError
from tfgrpo.data.problems import digest as dataset_digest
from tfgrpo.domains.registry import with_data
from tfgrpo.domains.verifier import describe_objection, objections
from tfgrpo.evaluation.eval_setup import EvalPlan, apart, plan_evaluation
from tfgrpo.evaluation.scoring import EvalProgress, evaluate, rewards
from tfgrpo.improvement import improvement_record
from tfgrpo.improvement.collection import (
    CollectRequest,
    Row,
    collect,
    output_path,
    read_collected,
    write_rows,
)
from tfgrpo.improvement.improvement_record import Round
from tfgrpo.improvement.proposals import (
    PARTS,
    Draftsman,
    Effect,
    OnTrial,
    Proposal,
    accept,
    effect_of,
    propose,
)
from tfgrpo.learn.best_version import final_version
from tfgrpo.learn.run import run_to_end
from tfgrpo.learn.run_estimate import RunEstimate, estimate_run
from tfgrpo.learn.run_setup import (
    PACE,
    WITHOUT_NEW,
    RunChoice,
    check_settings,
    count_spent,
    plan_run,
    ready_run,
)
from tfgrpo.model.budget import BudgetReached, open_budget
from tfgrpo.model.settings import DEFAULT_MODEL
from tfgrpo.notices import OnProgress, WarningNotice, ignore
from tfgrpo.project import Project
from tfgrpo.result_tables import View, Viewed
from tfgrpo.session import ToolFunction
from tfgrpo.store.activity.runs import Run
from tfgrpo.store.activity.traffic import traffic_path
from tfgrpo.store.errors import (
    InvalidOperation,
    ProtectedName,
    SettingsError,
    TfgrpoError,
    UnknownRevision,
)
from tfgrpo.store.exit_codes import BUSY
from tfgrpo.store.history.merge import MergeConflict
from tfgrpo.store.history.name_moves import check_branch
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.records import Version
from tfgrpo.store.signing import recordings
from tfgrpo.store.store import Store
from tfgrpo.wording import plural

Outcome: TypeAlias = Literal["nothing new", "nothing learned", "worse", "proposed", "accepted"]
LEAST = 8
"""New problems that are worth a training, unless asked otherwise."""
HELDOUT_SAMPLES = 4
"""Attempts per held-out problem, unless asked otherwise."""
NEWEST = 1000
"""Calls on record that are looked at for the model that they are of."""
MOST_HELDOUT = 200
"""Held-out problems that a proposal is judged by at most, the newest."""
NAMED = 8
"""How many of the problems that are left out are named."""
OWN = ("data", "heldout", "sealed", "run", "branch", "keep_going", "gate")
"""Settings of [train] that an improvement has its own of."""

AT_WORK = "another improvement of this store is at work"
GIVEN_UP = (
    "`tfgrpo improve --new` gives it up, and the problems that it did not learn from are new again"
)


class Busy(TfgrpoError):
    """Another improvement is at work on the store: for a timer, a reason to try again later."""

    exit_code = BUSY


@dataclass(frozen=True, slots=True)
class ImproveRequest:
    """What to improve: `settings` win over the file's, with `least` new problems it begins,
    `accept` takes what is better at once, `new` gives up one that was cut off."""

    target: str = "prod"
    collect: CollectRequest = field(default_factory=CollectRequest)
    least: int = LEAST
    samples: int = HELDOUT_SAMPLES
    accept: bool = False
    new: bool = False
    budget: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Improvement(Viewed):
    """The outcome of an improvement. `new` counts the problems that it was about, or that wait;
    `left_out` says which others cannot be judged, where there was nothing to do without them."""

    outcome: Outcome
    target: str
    new: int
    least: int
    run: str | None = None
    effect: Effect | None = None
    proposal: Proposal | None = None
    left_out: str = ""

    def view(self) -> View:
        title = {
            "nothing new": f"nothing to do: {self.new} of {self.least} new problems",
            "nothing learned": f"nothing learned from {self.new} new problems",
            "worse": f"what {self.run} learned is worse on held-out problems: not proposed",
            "proposed": f"proposal for {self.target} from {self.new} new problems",
            "accepted": f"proposal for {self.target} accepted: it is better on held-out problems",
        }[self.outcome]
        if self.proposal is not None:
            own = self.proposal.view()
            return View(title, own.header, own.rows, (own.title, *own.notes))
        notes = [f"effect: {self.effect}"] if self.effect else []
        return View(title, notes=[*notes, self.left_out] if self.left_out else notes)


async def improve(
    store: Store,
    project: Project,
    request: ImproveRequest,
    *,
    functions: Sequence[ToolFunction] = (),
    on_progress: OnProgress = ignore,
) -> Improvement:
    """Collects, trains and proposes for a branch where there is something to do, and returns the
    outcome. An improvement that failed goes on at the next call. Raises Busy, BudgetReached, and
    TfgrpoError."""
    with store.runs.hold(lock_path(store)) as free:
        if not free:
            raise Busy(AT_WORK, hint="`tfgrpo status` shows its run")
        if request.target not in store.branches():
            raise UnknownRevision(
                f"there is no branch {request.target!r} to improve",
                hint="make it with `tfgrpo branch prod`, or name another with --target",
            )
        return await Improving(store, project, request, functions, on_progress).begin_or_go_on()


def lock_path(store: Store) -> Path:
    """The file whose lock is held while an improvement of a store is at work, on any machine."""
    return Path(store.path).parent / "locks" / "improve.lock"


def estimate_improvement(
    store: Store, project: Project, request: ImproveRequest
) -> RunEstimate | str:
    """Estimates what an improvement would take now, or the rest of an interrupted one: the training
    with its gate, and the comparison on held-out problems. Or it says that there is nothing to do.
    Raises TfgrpoError."""
    project.require_trust(request.settings)
    job = Improving(store, project, request)
    begun = [] if request.new else job.begun()
    with tempfile.TemporaryDirectory(prefix="tfgrpo-") as folder:
        if begun:
            one = begun[0]
            about, branch, run = f"the rest of {one.name}", one.branch, store.runs.find(one.name)
            named = one.parts._asdict().items()
            parts = {name: project.open_data(path) for name, path in named if path}
        else:
            job.require_model()
            rows, left_out = job.judgeable(store, job.new_rows(dry_run=True))
            if len(rows) < job.least:
                few = f"nothing to do: {len(rows)} of {request.least} new problems"
                return few + (f"; {left_out}" if left_out else "")
            about, branch, run = f"{len(rows)} new problems", request.target, None
            dealt = improvement_record.split(rows, job.own_parts).items()
            parts = {name: f"{folder}/{name}.jsonl" for name, portion in dealt if portion}
            for name, portion in dealt:
                path = Path(folder) / f"{name}.jsonl"
                write_rows(path, improvement_record.mapped(portion, job.fields))
        given = job.training(parts["train"], branch, parts.get("gate"))
        more = {"heldout_samples": request.samples, "heldout_problems": MOST_HELDOUT}
        plan = plan_run(store, job.own_project, {**given, **more})
        fresh = [parts["heldout"]] if "heldout" in parts and not begun else []
        sets = job.compared_on(fresh)
        fields = plan.settings.fields
        problems = (plan.domain.problems(name, fields)[:most] for name, most in sets)
        compared = replace(plan.problems, heldout=tuple(chain.from_iterable(problems)))
        plan = replace(plan, problems=compared)
        about += f" with {plan.settings.models.model}"
        return replace(estimate_run(store, plan, run), about=about)


@dataclass(frozen=True, slots=True)
class Improving:
    store: Store
    project: Project
    request: ImproveRequest
    functions: Sequence[ToolFunction] = ()
    on_progress: OnProgress = ignore

    @property
    def given(self) -> dict[str, Any]:
        return {name: value for name, value in self.request.settings.items() if value is not None}

    @property
    def table(self) -> dict[str, Any]:
        return {**self.project.table("model"), **self.project.table("train"), **self.given}

    @property
    def least(self) -> int:
        return max(1, self.request.least)

    @property
    def own_parts(self) -> list[str]:
        """The parts of new problems for which the settings name no set."""
        return [part for part in ("heldout", "gate") if not self.table.get(part)]

    def training(self, data: str, branch: str, gate: str | None = None) -> dict[str, Any]:
        """The settings of the training itself, of a file's problems on a branch."""
        # one correction that is none must not stop the others
        given = {**self.given, "data": data, "branch": branch, "skip_unverifiable": True}
        return given if gate is None else {**given, "gate": gate}

    def judgeable(self, store: Store, rows: list[Row]) -> tuple[list[Row], str]:
        """Returns the rows that attempts can be judged at, and what is said of the others, if there
        are any: a person's correction may be no answer that the domain can read. Fewer than are
        wanted are not looked at. Runs an event loop of its own. Raises TfgrpoError."""
        if len(rows) < self.least:
            return rows, ""
        project, given = self.own_project, self.training("", self.request.target)
        with tempfile.TemporaryDirectory(prefix="tfgrpo-") as folder:
            path = Path(folder) / "collected.jsonl"
            write_rows(path, improvement_record.mapped(rows, self.fields))
            settings, _, domain, *_ = check_settings(store, project, given)
            problems = domain.problems(str(path), settings.fields)
        domain, _ = with_data(project.by_agent(domain, settings), settings.domain, problems)
        wrong = {one.id: describe_objection(one, why) for one, why in objections(problems, domain)}
        if not wrong:
            return rows, ""
        good = [row for row in rows if str(row["id"]) not in wrong]
        some = ", ".join(list(wrong)[:NAMED]) + (", …" if len(wrong) > NAMED else "")
        left_out = plural(len(rows) - len(good), "collected problem")
        why = next(iter(wrong.values()))
        return good, f"{left_out} left out, as attempts cannot be judged: {some} ({why})"

    @property
    def fields(self) -> dict[str, str]:
        """Our names of fields → those that the project's data has."""
        fields = self.given.get("fields") or self.project.table("train").get("fields") or {}
        return {str(ours): str(theirs) for ours, theirs in fields.items()}

    @property
    def own_project(self) -> Project:
        """The project without the sets that an improvement has its own of."""
        own, table = set(OWN) - {"gate"}, self.project.table("train")
        train = {name: value for name, value in table.items() if name not in own}
        return replace(self.project, tables={**self.project.tables, "train": train})

    def begun(self) -> list[Round]:
        """The improvements of the target that did not end."""
        rounds = improvement_record.rounds(self.store, self.request.target)
        return [one for one in rounds if one.ended is None]

    def new_rows(self, *, dry_run: bool = False) -> list[Row]:
        """The problems that no improvement was about; collects new ones, unless `dry_run`."""
        store, project, request = self.store, self.project, self.request
        unanswered = not project.domain(self.table.get("domain")).ground_truth
        fresh: Sequence[Row] = ()
        if request.collect.files or Path(traffic_path(store.path)).exists():
            rules = replace(request.collect.rules, unanswered=unanswered)
            wanted = replace(request.collect, rules=rules)
            collected = collect(store, project, wanted, dry_run=dry_run)
            for text in () if dry_run else collected.warnings:
                self.on_progress(WarningNotice(text))
            fresh = collected.rows if dry_run else ()
        rows = [*read_collected(output_path(project, request.collect)), *fresh]
        if not unanswered:
            rows = [row for row in rows if row.get("answer")]
        known = (store, request.target, rows, self.fields)
        return improvement_record.unused(*known, giving_up=request.new)

    def require_model(self) -> None:
        """Raises SettingsError where no model is named, calls of one are on record and there is
        something to learn: what another model got wrong is not for the local one, unless that is
        named. Nothing is written."""
        path = traffic_path(self.store.path)
        if self.table.get("model") is not None or not Path(path).exists():
            return
        with closing(open_traffic(path)) as traffic:
            calls = traffic.calls(self.request.collect.which, NEWEST)
        models = Counter(one.call.model for one in calls)
        for same in (None, DEFAULT_MODEL, DEFAULT_MODEL.removeprefix(LOCAL)):
            del models[same]
        if models and len(self.new_rows(dry_run=True)) >= self.least:
            (most, _), *others = models.most_common()
            more = f" and of {plural(len(others), 'other model')}" if others else ""
            raise SettingsError(
                f"no model is named, and the calls on record are of {most}{more}",
                hint=f"`--model {most}` with its --base-url, or the same in [model] of tfgrpo.toml",
            )

    async def begin_or_go_on(self) -> Improvement:
        """Does what there is to do. Raises BudgetReached, and TfgrpoError."""
        store, request = self.store, self.request
        refusal = store.port.storage.refusal("train")
        if refusal is not None:  # before anything is collected, begun or paid for
            raise refusal
        self.project.require_trust(request.settings)
        begun = self.begun()
        if request.new or not begun:
            self.require_model()
        while begun and request.new:
            self._end(begun.pop(0), "given up")
        if begun:
            one = begun[0]
            if one.branch not in store.branches() and store.runs.find(one.name) is not None:
                raise SettingsError(
                    f"{one.name} was cut off, and its branch {one.branch} is gone",
                    hint=f"{GIVEN_UP}; `tfgrpo undo` restores a branch just deleted",
                )
            return await self._work(one)
        new = self.new_rows()
        rows, left_out = await apart(store, lambda there: self.judgeable(there, new))
        if len(rows) < self.least:
            known = (request.target, len(rows), request.least)
            return Improvement("nothing new", *known, left_out=left_out)
        if left_out:
            self.on_progress(WarningNotice(left_out))
        about = (request.target, rows, self.fields, self.own_parts)
        return await self._work(improvement_record.begin(store, *about))

    async def _work(self, one: Round) -> Improvement:
        store, least = self.store, self.request.least
        base, count = store.resolve(one.base), len(one.problems)
        try:
            version = await self._train(one)
            if store.library(version) == store.library(base):
                self._end(one, "nothing learned")
                return Improvement("nothing learned", one.target, count, least, one.name)
            effect = await self._effect(one.name, (base, version))
        except BudgetReached as error:
            self._end(one, "over budget")
            raise BudgetReached(
                str(error),
                hint=f"{one.name} is over; of its {plural(count, 'problem')}, those in no finished "
                "step are new again; `tfgrpo improve --estimate` says what the next one takes",
            ) from None
        except DatasetError as error:  # what could be judged when it began, may not be now
            error.hint = f"{GIVEN_UP}; {error.hint}"
            raise
        if effect is not None and effect.verdict == "worse":
            self._end(one, "worse", effect)
            return Improvement("worse", one.target, count, least, one.name, effect)
        sizes = improvement_record.sizes(store, one).items()
        details = {"run": one.name, "problems": count} | {PARTS[name]: n for name, n in sizes}
        draft = Draftsman(one.branch, one.target, "improve", base, effect, details, version)
        proposal = self._propose(one, draft)
        outcome: Outcome = "accepted" if proposal.state == "accepted" else "proposed"
        return Improvement(outcome, one.target, count, least, one.name, effect, proposal)

    def _propose(self, one: Round, draft: Draftsman) -> Proposal:
        """Records a proposal, the end of its improvement and, where that is asked for and nothing
        is in the way, that it is accepted: whole or not at all."""
        store, effect = self.store, draft.effect
        may_not = store.port.storage.refusal("decide")
        better = effect is not None and effect.verdict == "better"
        for recording in recordings(store):
            refused: TfgrpoError | None = None
            with recording:
                self._require_ours(one)
                proposal = propose(store, draft)
                improvement_record.end(store, one, "proposed", proposal=proposal.id)
                if self.request.accept and better and may_not is not None:
                    refused = may_not
                elif self.request.accept and better:
                    try:
                        check_branch(store, one.target)
                        why = f"better on held-out problems: {effect}"
                        proposal = accept(store, proposal.id, why=why)
                    except (ProtectedName, InvalidOperation, MergeConflict) as error:
                        refused = error
        if refused is not None:
            force = " --force" if isinstance(refused, ProtectedName | OnTrial) else ""
            is_protected = isinstance(refused, ProtectedName)
            why = f"{one.target} is protected" if is_protected else str(refused)
            by_hand = f"`tfgrpo proposal accept {proposal.id}{force}` is how it is accepted"
            self.on_progress(WarningNotice(f"{why}, so it waits for a decision: {by_hand}"))
        return proposal

    async def _train(self, one: Round) -> Version:
        store, own = self.store, self.own_project
        gate = None if one.parts.gate is None else self.project.open_data(one.parts.gate)
        given = self.training(self.project.open_data(one.parts.train), one.branch, gate)
        new, resumed = (one.name, None) if store.runs.find(one.name) is None else (None, one.name)
        if resumed is not None:  # the rest is on record
            given = {name: given[name] for name in PACE if name in given}
        choice = RunChoice(new, resumed, budget=self.request.budget, keep_going=True)
        ready = await apart(store, lambda there: ready_run(there, own, given, choice))
        ready = replace(ready, again=WITHOUT_NEW)
        functions, tell = self.functions, self.on_progress
        await run_to_end(store, self.project, ready, functions=functions, on_progress=tell)
        return final_version(store, ready.run)

    async def _effect(self, run: str, versions: tuple[Version, Version]) -> Effect | None:
        """What a candidate does on the held-out problems; None where there are none."""
        store, sets = self.store, self.compared_on()
        options = {"samples": self.request.samples, "fields": self.fields or None}
        options["skip_unverifiable"] = True

        def planned(there: Store) -> list[EvalPlan]:
            wanted = [{**options, "data": name, "problems": most} for name, most in sets]
            about, trained = (there, self.project, versions), [versions[1]]
            return [plan_evaluation(*about, given, trained=trained) for given in wanted]

        plans = await apart(store, planned)
        if not plans:
            return None
        await self._score(plans, store.runs.get(run))
        before, after = (self._rewards(plans, version) for version in versions)
        return effect_of(before, after, plans[0].task) if before.keys() & after.keys() else None

    def _rewards(self, plans: Sequence[EvalPlan], version: Version) -> dict[str, list[float]]:
        """A version's rewards on all sets: set and problem → those of its attempts."""
        together: dict[str, list[float]] = {}
        for plan in plans:
            evaluation = self.store.runs.evaluation(version.number, plan.task.key)
            assert evaluation is not None, "it is scored before"
            name = dataset_digest(plan.task.problems)[:8]
            scored = rewards(self.store.runs.scores(evaluation)).items()
            together |= {f"{name}/{problem}": list(every) for problem, every in scored}
        return together

    def compared_on(self, newest: Sequence[str] = ()) -> list[tuple[str, int]]:
        """What a candidate is compared on, each set with how many of its problems: those that the
        settings name, or else the held-out parts of improvements, the `newest` first, as files. Of
        all there are `MOST_HELDOUT` at most. Raises DatasetError."""
        if named := self.table.get("heldout"):
            return [(named, MOST_HELDOUT)]
        parts = (
            self.project.open_data(other.parts.heldout)
            for other in reversed(improvement_record.rounds(self.store, self.request.target))
            if other.parts.heldout and other.ended not in improvement_record.RETURNED
        )
        sets, left = [], MOST_HELDOUT
        for path in (*newest, *(path for path in parts if Path(path).exists())):
            count = min(left, sum(1 for _ in readers.read(Path(path))))
            if count:
                sets.append((path, count))
                left -= count
        return sets

    async def _score(self, plans: Sequence[EvalPlan], run: Run) -> None:
        store, prices = self.store, plans[0].prices
        budget = open_budget(self.request.budget, prices)
        if budget is not None:
            count_spent(store, self.project, budget, run)
        missing = [plan for plan in plans if plan.missing(store)]
        if not missing:
            return
        for text in dict.fromkeys(text for plan in missing for text in plan.warnings):
            self.on_progress(WarningNotice(text))
        first = replace(missing[0], budget=budget)
        async with first.session(store, self.on_progress) as session:
            progress = EvalProgress.announced(self.on_progress)
            for plan in missing:
                await evaluate(session, plan.versions, plan.task, run=run, progress=progress)

    def _require_ours(self, one: Round) -> None:
        """Raises Busy where another process has begun while this one did not reach the database,
        or has ended this improvement by now."""
        ours = self.store.runs.is_ours(lock_path(self.store))
        if not ours or all(other.name != one.name for other in self.begun()):
            raise Busy(AT_WORK, hint=f"it went on with {one.name}; `tfgrpo status` shows its run")

    def _end(self, one: Round, state: str, worse: Effect | None = None) -> None:
        """Records an end without a proposal, and takes the branch out of the way: one with what is
        `worse` is called `rejected/…`."""
        store = self.store
        with store.operation(f"{one.name}: {state}"):
            self._require_ours(one)
            if worse is None:
                improvement_record.end(store, one, state)
            else:
                improvement_record.end(store, one, state, effect=worse._asdict())
                store.create_branch(f"rejected/{one.branch}", store.tip(one.branch))
            if one.branch in store.branches() and store.head.branch != one.branch:
                store.delete_branch(one.branch)
