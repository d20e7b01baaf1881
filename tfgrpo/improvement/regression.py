"""Drift: whether a library still helps on another model, or on last month's under the same name.

The library and the empty one attempt the same problems on both sides, and the gain is compared by
problem. What each experience adds is estimated from attempts that each leave out a random half
(`learn/assign.py`, `evaluation/credit.py`). Without another model, the other side is the record of
the last look.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from statistics import fmean
from typing import Any, Literal, TypeAlias

from tfgrpo.evaluation import statistics
from tfgrpo.evaluation.credit import Observation, estimate_effects
from tfgrpo.evaluation.eval_setup import EvalPlan, apart, plan_evaluation
from tfgrpo.evaluation.presence_effects import Credit
from tfgrpo.evaluation.scoring import (
    EvalProgress,
    EvalTask,
    evaluate,
    examine,
    examine_each,
    record,
    rewards,
)
from tfgrpo.evaluation.statistics import Difference
from tfgrpo.improvement.proposals import Draftsman, Proposal, effect_of, free_branch, propose
from tfgrpo.learn.assign import out_of_turn
from tfgrpo.learn.run_estimate import (
    PlannedAttempts,
    RunEstimate,
    estimate_attempts,
    missing_attempts,
)
from tfgrpo.notices import OnProgress, WarningNotice, ignore
from tfgrpo.project import Project
from tfgrpo.result_tables import View, Viewed
from tfgrpo.store.activity.decisions import decide, decisions
from tfgrpo.store.activity.runs import Score
from tfgrpo.store.activity.traffic import ALL, CallFilter, Traffic
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.records import Experience, Json, Library, Operation, Version
from tfgrpo.store.signing import recordings
from tfgrpo.store.store import Store
from tfgrpo.wording import plural, with_bounds

REGRESSION = "regression"
"""The kind of decisions that hold what each experience added under a model."""
FRESH = 1000
"""Seeds of fresh attempts under the same model begin here."""

Standing: TypeAlias = Literal["helps", "stopped helping", "hurts", "undecided", "unknown"]


@dataclass(frozen=True, slots=True)
class RegressRequest:
    """A request: a library on `data`, with the new side's `settings` (without another model or
    address, the same model is asked afresh), and the branch to propose deletions for, if any."""

    revision: str = "HEAD"
    data: str | None = None
    samples: int = 4
    settings: Mapping[str, Any] = field(default_factory=dict)
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Standings:
    """How one experience stands: what it added then and adds now, None where nothing is known."""

    label: str
    experience: str
    text: str
    then: Credit | None
    now: Credit | None

    @property
    def standing(self) -> Standing:
        """Whether it helps now, hurts, or stopped helping: it helped then, and what it adds now is
        less by more than chance (the difference of two estimates, at 95 %)."""
        if self.now is None:
            return "unknown"
        if self.now.verdict == "harmful":
            return "hurts"
        if self.now.verdict == "helpful":
            return "helps"
        if self.then is not None and self.then.verdict == "helpful":
            widths = (self.then.high - self.then.low, self.now.high - self.now.low)
            if self.then.effect - self.now.effect > math.hypot(*widths) / 2:
                return "stopped helping"
        return "undecided"

    @property
    def words(self) -> str:
        """`+0.310 [+0.120, +0.500] → -0.020 [-0.150, +0.110]`."""
        return f"{_credit(self.then)} → {_credit(self.now)}"


@dataclass(frozen=True, slots=True)
class Side:
    """One side: the model, and what the library adds to the empty one."""

    model: str
    adds: Difference

    @property
    def empty(self) -> float:
        return self.adds.means[0]

    @property
    def mean(self) -> float:
        return self.adds.means[1]


@dataclass(frozen=True, slots=True)
class Regression(Viewed):
    """The result for a library. `change` is how much more it adds now than then, by problem. `then`
    is None where nothing was on record to compare with: this was the first look."""

    version: Version
    dataset: str
    samples: int
    then: Side | None
    now: Side
    change: Difference | None
    standings: tuple[Standings, ...]
    proposal: Proposal | None = None

    @property
    def lost(self) -> tuple[Standings, ...]:
        return tuple(one for one in self.standings if one.standing in ("stopped helping", "hurts"))

    def view(self) -> View:
        sides = [side for side in (self.then, self.now) if side is not None]
        title = f"{self.version.name} on {self.dataset}, {plural(self.samples, 'sample')}"
        rows = [
            (side.model, f"{side.empty:.3f}", f"{side.mean:.3f}", side.adds.words) for side in sides
        ]
        notes = []
        if self.change is not None:
            words = {"worse": "it helps less", "better": "it helps more"}
            verdict = words.get(self.change.verdict, "no difference is shown")
            notes.append(f"change of what it adds: {self.change.words}: {verdict}")
        else:
            notes.append("there is no earlier look on record to compare with: run it again later")
        lost = [f"[{one.label}] {one.standing}: {one.words}: {one.text}" for one in self.lost]
        notes += lost or ["no experience is shown to have stopped helping"]
        if self.proposal is not None:
            notes.append(f"proposal {self.proposal.id} deletes what no longer helps")
        return View(title, ("model", "without", "with", "adds"), rows, notes)


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of a regression. With `elsewhere` the new side is another model, or at another
    address; without, the old side is what is on record, if anything is (`known`)."""

    version: Version
    library: Library
    old: EvalPlan
    new: EvalPlan
    elsewhere: bool
    known: bool

    @property
    def measured(self) -> tuple[EvalPlan, ...]:
        return (self.old, self.new) if self.elsewhere else (self.new,)


def plan_sides(store: Store, project: Project, request: RegressRequest) -> Sides:
    """A checked regression. Raises SettingsError for an empty library, and TfgrpoError."""
    version = store.resolve(request.revision)
    library = store.library(version)
    if not library.readable:
        raise SettingsError(f"{version.name} has no experience", hint="nothing could regress")
    versions = (version, store.version(0))

    def planned(given: Mapping[str, Any]) -> EvalPlan:
        options = {"data": request.data, "samples": request.samples, **given}
        return plan_evaluation(store, project, versions, options)

    old = new = planned({})
    known = all(store.runs.evaluation(v.number, old.task.key) is not None for v in versions)
    named = request.settings.get("model") or request.settings.get("base_url")
    there = planned(request.settings) if named else old
    elsewhere = _model_of(there) != _model_of(old)
    if elsewhere and there.task.key != old.task.key:
        new = there
    elif elsewhere or known:  # scores are known by the model's name alone, so these need a seed
        wanted = request.target is not None and not elsewhere
        looked = _last_look(store, version, old.task) if wanted else None
        seed = _fresh_seed(store, versions, old.task) if looked is None else looked
        new = planned({**request.settings, "seed": seed})
    return Sides(version, library, old, new, elsewhere, known)


def _model_of(plan: EvalPlan) -> tuple[object, ...]:
    models = plan.task.settings.models
    return models.model, models.base_url, plan.endpoints


def estimate_regression(store: Store, project: Project, request: RegressRequest) -> RunEstimate:
    """What a regression would take: the attempts that are not on record, on both sides, and those
    that each leave out a part of the library. Raises TfgrpoError."""
    sides = plan_sides(store, project, request)
    total = RunEstimate((), ())
    for plan in sides.measured:
        parts = PlannedAttempts(sides.library, plan.task.problems, _halves(plan))
        total += estimate_attempts(store, plan, [*missing_attempts(store, plan), parts])
    reason = "what a proposal of deletions does, which is measured where something is lost"
    left_out = (*total.left_out, reason) if request.target is not None else total.left_out
    names = " and ".join(plan.task.settings.models.model for plan in sides.measured)
    return replace(total, left_out=left_out, about=f"{sides.version.name} on {names}")


async def regress(
    store: Store, project: Project, request: RegressRequest, *, on_progress: OnProgress = ignore
) -> Regression:
    """Compares what a library adds on two sides, and proposes where that is asked; one cut off goes
    on from the journal. Raises SettingsError for an empty library, and TfgrpoError."""
    sides = await apart(store, lambda there: plan_sides(there, project, request))
    version, library, versions = sides.version, sides.library, sides.old.versions
    old, new = sides.old, sides.new
    then: Side | None = None
    before: Mapping[str, Credit] = {}
    if sides.elsewhere:
        before = await _measured(store, old, library, on_progress)
        then = _side(store, versions, old.task)
    elif sides.known:
        before = _effects(_looks(store, version, old.task), new.task.key)
        then = _side(store, versions, old.task)
    now = await _measured(store, new, library, on_progress)
    side = _side(store, versions, new.task)
    change = None if then is None else _change(store, versions, old.task, new.task)
    label, settings = library.label_of, new.task.settings
    standings = tuple(
        Standings(label[e.id], e.id, e.text, before.get(e.id), now.get(e.id))
        for e in library.readable
    )
    about = (version, settings.data, settings.samples)
    regression = Regression(*about, then, side, change, standings)
    deletion = None
    if request.target is not None:
        deletion = await _deletion(store, new, regression, request.target, on_progress)
    with store.port.transaction():  # one that is cut off before comes to the same once more
        _record(store, version, new.task, now, acted=request.target is not None)
        if deletion is None:
            return regression
        return replace(regression, proposal=_propose(store, new, regression, deletion))


async def _measured(
    store: Store, plan: EvalPlan, library: Library, on_progress: OnProgress
) -> Mapping[str, Credit]:
    for text in plan.warnings:
        on_progress(WarningNotice(text))
    async with plan.session(store, on_progress) as session:
        progress = EvalProgress.announced(on_progress)
        await evaluate(session, plan.versions, plan.task, progress=progress)
        ids = [e.id for e in library.readable]
        places = [(sample, one) for sample in range(_halves(plan)) for one in plan.task.problems]
        without = [
            out_of_turn(ids, plan.task.settings.seed, (problem.id,), sample, 2)
            for sample, problem in places
        ]
        wanted = [
            (library.less(missing), problem, sample)
            for missing, (sample, problem) in zip(without, places, strict=True)
        ]
        scores = await examine_each(session, wanted, plan.task, progress=progress)
    observations = [
        Observation(score.problem, score.problem, ids, missing, score.reward)
        for score, missing in zip(scores, without, strict=True)
        if score.reward is not None
    ]
    return {one.experience: one for one in estimate_effects(observations)}


def _halves(plan: EvalPlan) -> int:
    """How many attempts at a problem leave out a half: those asked for, made even."""
    return plan.task.settings.samples + plan.task.settings.samples % 2


def _side(store: Store, versions: Sequence[Version], task: EvalTask) -> Side:
    full, empty = (_rewards(store, version, task) for version in versions)
    return Side(task.settings.models.model, statistics.paired(empty, full))


def _rewards(store: Store, version: Version, task: EvalTask) -> dict[str, list[float]]:
    evaluation = store.runs.evaluation(version.number, task.key)
    assert evaluation is not None, "scored before"
    return rewards(store.runs.scores(evaluation))


def _change(store: Store, versions: Sequence[Version], old: EvalTask, new: EvalTask) -> Difference:
    added = []
    for task in (old, new):
        full, empty = (_rewards(store, version, task) for version in versions)
        both = [problem for problem in empty if problem in full]
        added.append({one: [fmean(full[one]) - fmean(empty[one])] for one in both})
    change = statistics.paired(*added)
    return change._replace(estimate=statistics.ChangeEstimate(*change.estimate))


def _fresh_seed(store: Store, versions: Sequence[Version], task: EvalTask) -> int:
    """The first seed whose attempts are not all made: one that was cut off goes on."""
    looked_at = {one.content.get("key") for one in decisions(store, kind=REGRESSION)}

    def is_scored(key: str) -> bool:
        return all(store.runs.evaluation(v.number, key) is not None for v in versions)

    keys = ((seed, _key(task, seed)) for seed in count(FRESH))
    return next(seed for seed, key in keys if key not in looked_at or not is_scored(key))


def _key(task: EvalTask, seed: int) -> str:
    settings = task.settings.model_copy(update={"seed": seed})
    return EvalTask(task.problems, settings, task.domain).key


def _record(
    store: Store, version: Version, task: EvalTask, effects: Mapping[str, Credit], *, acted: bool
) -> None:
    """Records a look, and once more where it is acted on later."""
    known = [one for one in _looks(store, version, task) if one["key"] == task.key]
    if not known or (acted and not known[-1].get("acted")):
        content = {
            "version": version.digest.hex(),
            "model": task.settings.models.model,
            "dataset": task.settings.data,
            "key": task.key,
            "seed": task.settings.seed,
            "acted": acted,
            "effects": [_numbers(one) for one in effects.values()],
        }
        decide(store, REGRESSION, task.settings.models.model, content)


def _numbers(one: Credit) -> dict[str, Any]:
    fields = one._asdict()
    return {k: round(v, 6) if isinstance(v, float) else v for k, v in fields.items()}


def _looks(store: Store, version: Version, task: EvalTask) -> list[Json]:
    return [
        one.content
        for one in decisions(store, kind=REGRESSION, subject=task.settings.models.model)
        if one.content.get("version") == version.digest.hex()
        and one.content["dataset"] == task.settings.data
    ]


def _effects(looks: Sequence[Json], apart_from: str) -> Mapping[str, Credit]:
    """What each experience added at the last look but the one of this key."""
    others = [one for one in looks if one["key"] != apart_from]
    effects = others[-1]["effects"] if others else []
    return {one["experience"]: Credit(**one) for one in effects}


def _last_look(store: Store, version: Version, task: EvalTask) -> int | None:
    """The seed of the last look at fresh attempts, if nobody acted on it: it is not asked again."""
    looks = _looks(store, version, task)
    if not looks or looks[-1].get("acted") or looks[-1].get("seed", 0) < FRESH:
        return None
    seed = int(looks[-1]["seed"])
    return seed if looks[-1]["key"] == _key(task, seed) else None


@dataclass(frozen=True, slots=True)
class _Deletion:
    """Deletions from a target, id → why, and its library's scores before and after them."""

    target: str
    base: Version
    reasons: Mapping[str, str]
    before: Sequence[Score]
    after: Sequence[Score]


async def _deletion(
    store: Store, plan: EvalPlan, regression: Regression, target: str, on_progress: OnProgress
) -> _Deletion | None:
    """What deletes what no longer helps from a target, as far as that says there what was measured,
    with what it does under the new conditions. Nothing is recorded but answers."""
    base = store.tip(target)
    library = store.library(base)
    texts = {e.id: e.text for e in library.readable}
    reasons = {
        one.experience: f"{one.standing} under {regression.now.model}: {one.words}"
        for one in regression.lost
        if texts.get(one.experience) == one.text
    }
    if not reasons:
        return None
    async with plan.session(store, on_progress) as session:
        libraries = [library, library.less(reasons.keys())]
        before, after = await examine(session, libraries, plan.task)
    return _Deletion(target, base, reasons, before, after)


def _propose(store: Store, plan: EvalPlan, regression: Regression, deletion: _Deletion) -> Proposal:
    def scored(candidate: Version) -> None:
        record(store, deletion.base, plan.task, deletion.before)
        record(store, candidate, plan.task, deletion.after)

    branch, words = free_branch(store, "regress"), f"no longer help: {regression.now.model}"
    candidate = _without(store, branch, deletion.base, deletion.reasons, words, scored)
    effect = effect_of(rewards(deletion.before), rewards(deletion.after), plan.task)
    details = {"model": regression.now.model, "dataset": regression.dataset}
    about = (branch, deletion.target, "regress", deletion.base, effect, details, candidate)
    return propose(store, Draftsman(*about))


def _without(
    store: Store,
    branch: str,
    base: Version,
    reasons: Mapping[str, str],
    message: str,
    also: Callable[[Version], None] = lambda _: None,
) -> Version:
    """Makes a branch from `base` without some experiences, id → why; `also` is recorded with it."""
    gone = [Operation("DELETE", id, reason=why) for id, why in reasons.items()]
    for recording in recordings(store, f"{branch}: {message}"):
        with recording:
            store.create_branch(branch, base)
            version = store.commit(branch, gone, message=message)
            also(version)
    return version


def _credit(one: Credit | None) -> str:
    return with_bounds(one.effect, one.low, one.high) if one else "unknown"


def regression_object(regression: Regression) -> dict[str, Any]:
    """What became of a library as JSON for programs."""

    def numbers(one: Difference) -> dict[str, Any]:
        known = zip(("mean", "low", "high"), one.estimate.recorded, strict=True)
        more = {"p": one.p, "problems": one.estimate.problems, "verdict": one.verdict}
        return dict(known) | more

    def side(one: Side) -> dict[str, Any]:
        means = {"mean": one.mean, "empty": one.empty}
        return {"model": one.model, **means, "adds": numbers(one.adds)}

    return {
        "version": regression.version.name,
        "dataset": regression.dataset,
        "then": regression.then and side(regression.then),
        "now": side(regression.now),
        "change": None if regression.change is None else numbers(regression.change),
        "experiences": [
            {
                "label": one.label,
                "experience": one.experience,
                "text": one.text,
                "standing": one.standing,
                "then": one.then and _numbers(one.then),
                "now": one.now and _numbers(one.now),
            }
            for one in regression.standings
        ],
        "proposal": regression.proposal and regression.proposal.id,
    }


CALLS = 50
"""Calls that it takes to say that an experience is not used."""


def unused_experiences(
    store: Store, traffic: Traffic, version: Version, since: int
) -> list[Experience]:
    """The experiences of a version in no prompt since then (microseconds), none newer; nothing
    where fewer than `CALLS` calls were answered under the libraries of its history."""
    own = {one.digest.hex()[:16] for one in store.log(version)}
    library = store.library(version)
    ids = {e.id for e in library.readable}
    calls, used = 0, set[str]()
    for listed in traffic.calls(CallFilter(since=since), ALL):
        call = listed.call
        if call.digest not in own:
            continue
        calls += 1
        if call.experiences is None:  # the whole library, of whatever version
            return []
        used |= ids.intersection(json.loads(call.experiences))
    if calls < CALLS:
        return []
    events = store.events_at(e.row for e in library.readable)
    times = {row: store.version(event.version).time for row, event in events.items()}
    return [e for e in library.readable if e.id not in used and times[e.row] < since]


def propose_expiry(store: Store, branch: str, unused: Sequence[Experience], since: str) -> Proposal:
    """Proposes to delete experiences of a branch that were not used since then."""
    base, name, why = store.tip(branch), free_branch(store, "unused"), f"in no prompt since {since}"
    candidate = _without(store, name, base, {e.id: why for e in unused}, why)
    return propose(store, Draftsman(name, branch, "use", base, None, {"since": since}, candidate))
