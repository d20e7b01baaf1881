"""Experiments: two versions of a library in production at once, as they are on record.

An experiment is what its decisions say (`store/activity/decisions.py`, kind `experiment`, subject
the experiment's name): it is started, its share changes, it ends as promoted, rolled back or
stopped, and goes on where the rollback that stopped it is taken back. So what was decided, by whom,
when and why is never lost, and every worker of a proxy knows it at its next request.

The control is a branch, and the candidate a version: the one that its revision named when the
experiment began. What is promoted is what was tested, whatever became of the name. An experiment
is at work only while the control's branch stands where it stood at the beginning. When it is
moved, everybody gets the branch at the next request, and the experiment is paused.

Which arm a subject gets is decided by a hash, so by any process alike: it has a place between 0 and
1 that follows from the experiment and the subject alone. Those below the share get the candidate; a
larger share adds subjects to it and takes none away.

A promotion brings the candidate into the branch, which is what accepting its proposal would have
done. So the proposal counts as accepted, and as it was decided before when that is taken back.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from tfgrpo.production.promotions import (
    accept_tested,
    is_own_branch,
    losses,
    losses_in_words,
    take_back_tested,
)
from tfgrpo.store.activity.decisions import Decision, decide, decisions
from tfgrpo.store.activity.traffic import ARMS, MOST_SCORE, traffic_path
from tfgrpo.store.damaged_values import damage_error
from tfgrpo.store.errors import (
    BadName,
    InvalidName,
    InvalidOperation,
    StaleVersion,
    UnknownRevision,
)
from tfgrpo.store.history import name_moves
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.records import Json, Version
from tfgrpo.store.store import Store

T = TypeVar("T")
KIND = "experiment"
CONTROL, CANDIDATE = ARMS
"""The arms."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")
RUNNING, PROMOTED, ROLLED_BACK, STOPPED = "running", "promoted", "rolled back", "stopped"
STATES = {"promote": PROMOTED, "rollback": ROLLED_BACK, "stop": STOPPED}
UNITS = ("subject", "call")
MEASURES = ("errors", "latency", "tokens")
"""What is measured of every call beside its feedback; less is better of each."""
TOLERANCES = {"errors": 0.0, "latency": 0.2, "tokens": 0.2}
"""How much worse a guard may be: of errors in points, of the others as a part of control's."""
GUARDS = tuple(TOLERANCES.items())
Scale: TypeAlias = tuple[float, float]
"""The least and the largest value of a metric."""
SCALES: dict[str, Scale | None] = {"errors": (-1.0, 0.0), "latency": None, "tokens": None}
"""What is measured lies between these; None where it has no bounds."""
SCALE: Scale = (0.0, 1.0)
"""That of scores, unless another is named: false is 0, true is 1."""
PLAIN = "score"
"""The metric of feedback whose label is none of its own."""


class Arm(NamedTuple):
    """One of the two: what it was named by, and the digest (hex) of the version it is."""

    revision: str
    digest: str


class ExperimentPlan(NamedTuple):
    """What an experiment is about. `metric` is `score` (of feedback), `score:LABEL` (of feedback
    with that label) or one of `MEASURES`; `guards` are metrics that must not become worse by more
    than their tolerance. `unit` is what counts once: a subject, or each call. `scales` are those of
    scores that are not between 0 and 1; feedback whose label has one of its own here does not count
    as `score`."""

    metric: str = "score"
    guards: tuple[tuple[str, float], ...] = GUARDS
    unit: str = "subject"
    auto: bool = False
    scales: tuple[tuple[str, Scale], ...] = ()

    @property
    def apart(self) -> frozenset[str]:
        """The labels whose feedback does not count as plain `score`."""
        metrics = (self.metric, *dict(self.guards), *dict(self.scales))
        return frozenset(one.partition(":")[2] for one in metrics if ":" in one)

    def scale(self, metric: str) -> Scale | None:
        """Returns what values of a metric lie between; None for one without bounds."""
        return SCALES[metric] if metric in SCALES else dict(self.scales).get(metric, SCALE)


@dataclass(frozen=True, slots=True)
class Experiment:
    """An experiment as it is on record. Times are microseconds since 1970; `shares` are the shares
    of the candidate, each with the time from which on it is in force. `moves` are those that its
    promotion and its rollback made, each from and to a version, by the beginnings of digests."""

    name: str
    id: str
    author: str
    control: Arm
    candidate: Arm
    plan: ExperimentPlan
    state: str
    started: int
    ended: int | None
    shares: tuple[tuple[int, float], ...]
    moves: tuple[tuple[str, str], ...] = ()

    @property
    def share(self) -> float:
        """The share of subjects that get the candidate now."""
        return self.shares[-1][1] if self.state == RUNNING else 0.0


def experiments(store: Store) -> list[Experiment]:
    """Returns all experiments, oldest first. Raises StoreError."""
    return _folded(decisions(store, kind=KIND))


def experiment(store: Store, name: str | None = None) -> Experiment:
    """Returns the experiment of a name; without one, the only one that is running. Raises
    UnknownRevision."""
    if name is None:
        fitting, lists = all_running(store), "`tfgrpo experiment list`; then name one"
        few = f"{len(fitting)} experiments are" if fitting else "no experiment is"
        none = f"{few} running"
    else:
        fitting = [one for one in experiments(store) if one.name == name]
        none, lists = f"there is no experiment {name!r}", "`tfgrpo experiment list` lists them"
    if len(fitting) != 1:
        raise UnknownRevision(none, hint=lists)
    return fitting[0]


def all_running(store: Store) -> list[Experiment]:
    """Returns the experiments that are running, oldest first."""
    return [one for one in experiments(store) if one.state == RUNNING]


def running_on(store: Store, branch: str) -> Experiment | None:
    """Returns the experiment that is running with a branch as its control, paused or not."""
    return next((one for one in all_running(store) if one.control.revision == branch), None)


def at_work(store: Store, branch: str) -> Experiment | None:
    """Returns the experiment on a branch if the branch stands where it stood when it began."""
    running = running_on(store, branch)
    if running is None or branch not in store.branches():
        return None
    return running if store.tip(branch).digest.hex() == running.control.digest else None


def why_paused(store: Store, one: Experiment) -> str | None:
    """Why a running experiment is paused: its branch was `moved`, or is `gone`."""
    branch = one.control.revision
    if one.state != RUNNING or at_work(store, branch) is not None:
        return None
    return "moved" if branch in store.branches() else "gone"


def paused_in_words(store: Store, one: Experiment, tried: str = "the candidate") -> str:
    """Why an experiment is paused, and what requests get; nothing where it is not."""
    branch, why = one.control.revision, why_paused(store, one)
    if why == "gone":
        return f"{branch} is gone, so nobody gets {tried}"
    everybody = "was moved since the experiment began, so everybody gets the new version"
    return f"{branch} {everybody}" if why else ""


def start(
    store: Store,
    name: str,
    arms: tuple[str, str],
    share: float,
    plan: ExperimentPlan | None = None,
    *,
    why: str | None = None,
) -> Experiment:
    """Starts an experiment: of the branch `arms[0]`, the control, and the revision `arms[1]`.
    Scales that the plan does not name are those that are on record with the traffic. Raises
    InvalidName for a name that was used or cannot be one, UnknownRevision, and InvalidOperation
    where an experiment is running on that branch, where both are the same version, where scores on
    record are outside of their scale, or where `auto` could not move a protected branch."""
    plan = plan or ExperimentPlan()
    _check_plan(plan)
    _check_share(share)
    if not NAME.match(name):
        raise BadName(f"{name!r} cannot name an experiment", hint="use letters, digits, _ . -")
    control, candidate = arms
    plan = _scaled(store, plan)
    with store.port.transaction():
        if any(one.name == name for one in experiments(store)):
            raise InvalidName(
                f"there was an experiment {name!r}", hint="a name is used once: calls are on record"
            )
        tip, tested = store.tip(control), store.resolve(candidate)
        other = running_on(store, control)
        if other is not None:
            raise InvalidOperation(
                f"experiment {other.name} is running on {control}",
                hint=f"one at a time: `tfgrpo experiment stop {other.name}` ends it",
            )
        if tip.number == tested.number:
            raise InvalidOperation(
                f"{control} and {candidate} are both {tip.name}: there is nothing to compare",
                hint="train or commit on another branch first",
            )
        if plan.auto and name_moves.is_protected(store.port, f"heads/{control}"):
            raise InvalidOperation(
                f"{control} is protected, so the experiment could not move it by itself",
                hint="promote by hand with --force, or lift the protection",
            )
        content = {
            "action": "start",
            "control": control,
            "candidate": candidate,
            "control_digest": tip.digest.hex(),
            "candidate_digest": tested.digest.hex(),
            "share": share,
            "metric": plan.metric,
            "guards": [list(guard) for guard in plan.guards],
            "unit": plan.unit,
            "auto": plan.auto,
            "scales": {metric: list(scale) for metric, scale in plan.scales},
        }
        decide(store, KIND, name, content, why=why)
        return experiment(store, name)


def change_share(store: Store, name: str, share: float, *, why: str | None = None) -> Experiment:
    """Changes the share of subjects that get the candidate. Raises UnknownRevision, and
    InvalidOperation for an experiment that is over or a share that is none."""
    _check_share(share)
    with store.port.transaction():
        running = _running(store, name)
        content = {"action": "share", "share": share, "was": running.share}
        decide(store, KIND, name, content, why=why)
        return experiment(store, name)


def stop(
    store: Store, name: str, *, evidence: Json | None = None, why: str | None = None
) -> Experiment:
    """Ends an experiment with nothing decided: everybody gets the control."""
    return _end(store, name, "stop", evidence, why)


def resume(store: Store, name: str, *, why: str | None = None) -> Experiment:
    """Goes on with an experiment that was stopped, with its share and what it has found so far.
    Raises UnknownRevision, and InvalidOperation where it was not stopped, or where another is
    running on its branch."""
    with store.port.transaction():
        stopped = experiment(store, name)
        if stopped.state != STOPPED or running_on(store, stopped.control.revision):
            raise InvalidOperation(
                f"experiment {name} cannot go on", hint="start another, under another name"
            )
        decide(store, KIND, name, {"action": "resume"}, why=why)
        return experiment(store, name)


def promote(
    store: Store, name: str, *, evidence: Json | None = None, why: str | None = None
) -> Experiment:
    """Moves the control's branch to the candidate's version, and ends the experiment, on record. A
    proposal of that version for that branch is accepted with it, whatever was decided before.
    Unless the store is forced, raises StaleVersion where the branch has moved since the experiment
    began, and InvalidOperation where it has what the candidate lacks. Raises ProtectedName, and
    InvalidOperation for an experiment that is over."""
    with store.operation(f"promote {name}" + (f": {why}" if why else "")):
        running = _running(store, name)
        branch, tip = running.control.revision, store.tip(running.control.revision)
        version = store.resolve(running.candidate.digest)
        if not store.is_forced:
            _check_losses(store, running, tip, version)
        store.move_branch(branch, version)
        _end(store, name, "promote", evidence, why, moved=(branch, tip, version))
        accept_tested(store, name, branch, version)
        return experiment(store, name)


def _check_losses(store: Store, running: Experiment, tip: Version, version: Version) -> None:
    branch, lost = running.control.revision, losses(store, tip, version)
    gone = f", which takes {losses_in_words(lost)} from {branch}" if lost else ""
    forced = f"--force promotes all the same{gone}"
    if tip.digest.hex() != running.control.digest:
        raise StaleVersion(
            f"{branch} has moved to {tip.name} since the experiment began",
            hint=f"what it moved to was not compared; {forced}",
        )
    if lost:
        raise InvalidOperation(
            f"{branch} has what {running.candidate.revision} ({version.name}) lacks",
            hint=f"merge {branch} into it and start another experiment; {forced}",
        )


def roll_back(
    store: Store,
    name: str,
    *,
    evidence: Json | None = None,
    why: str | None = None,
    only_running: bool = False,
) -> Experiment:
    """Ends an experiment in favour of the control: everybody gets it at the next request. One that
    was promoted is taken back: its branch moves to where the promotion found it, unless it stands
    there again. With `only_running` it is left alone. Raises StaleVersion where the branch has
    moved on from what was promoted, unless the store is forced; ProtectedName; InvalidOperation for
    an experiment that is over otherwise."""
    with store.operation(f"rollback {name}" + (f": {why}" if why else "")):
        ended = experiment(store, name)
        if ended.state != PROMOTED or only_running:
            return _end(store, name, "rollback", evidence, why)
        branch, tip = ended.control.revision, store.tip(ended.control.revision)
        before = ended.moves[0][0] if ended.moves else ended.control.digest
        tested, version = store.resolve(ended.candidate.digest), store.resolve(before)
        if tip.number not in (tested.number, version.number) and not store.is_forced:
            raise StaleVersion(
                f"{branch} has moved on to {tip.name}",
                hint=f"`tfgrpo branch --back {branch} REVISION` moves it anywhere",
            )
        if version.number != tip.number:
            store.move_branch(branch, version)
        take_back_tested(store, name)
        return _end(store, name, "rollback", evidence, why, moved=(branch, tip, version))


def _end(
    store: Store,
    name: str,
    action: str,
    evidence: Json | None,
    why: str | None,
    moved: tuple[str, Version, Version] | None = None,
) -> Experiment:
    with store.port.transaction():
        content: dict[str, object] = {"action": action}
        if moved is None:
            _running(store, name)
        else:
            branch, *ends = moved
            start, end = (version.digest.hex()[:16] for version in ends)
            content |= {"branch": branch, "from": start, "to": end}
        if evidence is not None:
            content["evidence"] = evidence
        tried = trial_branch(name)
        known = experiment(store, name).candidate
        if is_own_branch(store, tried, known.digest) and store.head.branch != tried:
            with store.forced():  # whatever protects it, it is the experiment's own
                store.delete_branch(tried)
        decide(store, KIND, name, content, why=why)
        return experiment(store, name)


def _running(store: Store, name: str) -> Experiment:
    named = experiment(store, name)
    if named.state != RUNNING:
        over = f"experiment {name} is over: it was {named.state}"
        raise InvalidOperation(over, hint="start another, under another name")
    return named


def _folded(listed: Iterable[Decision]) -> list[Experiment]:
    by_name: dict[str, Experiment] = {}
    for decision in listed:
        try:
            _fold(by_name, decision)
        except (KeyError, TypeError, ValueError, IndexError):
            raise damage_error(f"decision {decision.id} is none about an experiment") from None
    return list(by_name.values())


def _fold(by_name: dict[str, Experiment], decision: Decision) -> None:
    content: Mapping[str, Any] = decision.content
    action, name, time = content["action"], decision.subject, decision.time
    if action == "start":
        scales = content.get("scales", {}).items()
        plan = ExperimentPlan(
            str(content["metric"]),
            tuple((str(metric), float(most)) for metric, most in content["guards"]),
            str(content["unit"]),
            bool(content["auto"]),
            tuple((str(metric), (float(low), float(high))) for metric, (low, high) in scales),
        )
        arms = (Arm(str(content[arm]), str(content[f"{arm}_digest"])) for arm in ARMS)
        control, candidate = arms
        about = (name, decision.id, decision.author, control, candidate, plan)
        by_name[name] = Experiment(*about, RUNNING, time, None, ((time, float(content["share"])),))
        return
    known = by_name[name]
    if action == "share":
        known = replace(known, shares=(*known.shares, (time, float(content["share"]))))
    elif action == "resume":
        known = replace(known, state=RUNNING, ended=None)
    else:
        moved = [(str(content["from"]), str(content["to"]))] if "from" in content else []
        moves = (*known.moves, *moved)
        known = replace(known, state=STATES[action], ended=time, moves=moves)
    by_name[name] = known


def _check_share(share: float) -> None:
    if not 0 <= share <= 1:
        raise InvalidOperation(f"a share is no {share:g}", hint="0% to 100%")


def _check_plan(plan: ExperimentPlan) -> None:
    check_metrics([plan.metric, *(metric for metric, _ in plan.guards)])
    if plan.unit not in UNITS:
        raise InvalidOperation(f"no {plan.unit!r} can be counted", hint=", ".join(UNITS))
    if any(not 0 <= tolerance < 10 for _, tolerance in plan.guards):
        raise InvalidOperation("a guard's tolerance is at least 0", hint="such as latency=20%")
    scores = _score_scales(plan)
    for metric, (low, high) in plan.scales:
        if metric not in scores:
            raise InvalidOperation(
                f"the experiment has no score {metric!r} to scale",
                hint=f"it has {', '.join(scores)}" if scores else "it compares no scores",
            )
        if not (-MOST_SCORE <= low < high <= MOST_SCORE):
            raise InvalidOperation(
                f"{low:g} to {high:g} is no scale", hint="the lower end first, such as 1..5"
            )


def _score_scales(plan: ExperimentPlan) -> dict[str, Scale]:
    metrics = [plan.metric, *(metric for metric, _ in plan.guards)]
    return {m: scale for m in metrics if m not in SCALES and (scale := plan.scale(m)) is not None}


def _scaled(store: Store, plan: ExperimentPlan) -> ExperimentPlan:
    """Returns a plan with the scales of its scores, those on record where it names none. Where it
    compares plain `score`, labels on another scale are among them. Raises InvalidOperation where
    scores on record are outside of the scale of their metric."""
    scales, path = _score_scales(plan), traffic_path(store.path)
    ranges: Mapping[str | None, Scale] = {}
    if scales and os.path.isfile(path):
        with closing(open_traffic(path)) as traffic:
            ranges, known = traffic.score_ranges(), traffic.scales()
        recorded = {f"score:{label}" if label else PLAIN: ends for label, ends in known.items()}
        named = dict(plan.scales)
        scales |= {metric: recorded[metric] for metric in scales.keys() - named & recorded.keys()}
        if PLAIN in scales:
            labels = [] if PLAIN in named else [label for label in ranges if label]
            others = {f"score:{label}": SCALE for label in labels} | recorded
            scales = {m: ends for m, ends in others.items() if ends != scales[PLAIN]} | scales
    plan = plan._replace(scales=tuple(scales.items()))
    _check_scores(plan, ranges)
    return plan


def _check_scores(plan: ExperimentPlan, ranges: Mapping[str | None, Scale]) -> None:
    apart = plan.apart
    for metric, (least, most) in _score_scales(plan).items():
        label = metric.partition(":")[2]
        ends = [r for name, r in ranges.items() if (name == label if label else name not in apart)]
        low, high = (
            min((r[0] for r in ends), default=least),
            max((r[1] for r in ends), default=most),
        )
        if not least <= low <= high <= most:
            raise InvalidOperation(
                f"{metric} is between {low:g} and {high:g} on record, and not between "
                f"{least:g} and {most:g}",
                hint=f"name the scale that it has: --scale {metric}={low:g}..{high:g}",
            )


def check_metrics(metrics: Sequence[str]) -> None:
    """Raises InvalidOperation for a metric that is none, or that is there twice."""
    for metric in metrics:
        name, _, label = metric.partition(":")
        if metric not in MEASURES and (name != "score" or (":" in metric and not label)):
            raise InvalidOperation(
                f"there is no metric {metric!r}", hint=f"score, score:LABEL, {', '.join(MEASURES)}"
            )
    if len(set(metrics)) < len(metrics):
        raise InvalidOperation("a metric is named twice", hint="name it once, or as a guard")


def arm_of(experiment: str, subject: str, share: float) -> str:
    """Returns the arm that a subject gets while the candidate has that share of subjects."""
    key = f"tfgrpo.experiment\0{experiment}\0{subject}".encode("utf-8", "surrogatepass")
    place = int.from_bytes(hashlib.sha256(key).digest()[:6], "big") / (1 << 48)
    return CANDIDATE if place < share else CONTROL


def trial_branch(name: str) -> str:
    """Returns the branch that has a version which was made to be tried, while it is tried."""
    return f"trial/{name}"


def arm_name(name: str, arm: str) -> str:
    """Returns how an arm is named on record: `shorter/candidate`."""
    return f"{name}/{arm}"


# Branches that running experiments name are not deleted or renamed unawares. An experiment on a
# branch that is gone is paused, as on one that was moved: it can decide nothing. A candidate is a
# version, and goes on without its name; but then nobody sees what is tried.


def delete_branch(store: Store, name: str) -> tuple[Version, list[str]]:
    """Deletes a branch; returns where it stood, and what becomes of each experiment that names it.
    Raises InvalidName where one does, unless the store is forced, and as `Store.delete_branch`."""
    return _without_name(store, name, lambda: store.delete_branch(name))


def rename_branch(store: Store, old: str, new: str) -> list[str]:
    """Renames a branch; returns what becomes of each experiment that names it. Raises InvalidName
    where one does, unless the store is forced, and as `name_moves.rename`."""
    _, become = _without_name(store, old, lambda: name_moves.rename(store, "branch", old, new))
    return become


def _without_name(store: Store, name: str, act: Callable[[], T]) -> tuple[T, list[str]]:
    with store.port.transaction():
        named = [
            one
            for one in all_running(store)
            if name in (one.control.revision, one.candidate.revision)
        ]
        if named and name in store.branches() and not store.is_forced:
            one = named[0]
            does = "is running on" if one.control.revision == name else "is trying"
            raise InvalidName(
                f"experiment {one.name} {does} {name}",
                hint=f"`tfgrpo experiment stop {one.name}` first; --force does it now",
            )
        return act(), [_becomes(store, one, name) for one in named]


def _becomes(store: Store, one: Experiment, name: str) -> str:
    if one.control.revision == name:
        ends = f"`tfgrpo experiment stop {one.name}` ends it"
        return f"experiment {one.name} is paused, as it has no branch {name} any more; {ends}"
    version = store.resolve(one.candidate.digest).name
    return f"experiment {one.name} goes on with {version}, which was {name}"
