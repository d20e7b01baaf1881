"""The evidence from an experiment's calls: whether the candidate is worse or better, or whether it
is too early to say.

**What counts.** A subject counts once, in the arm that it was seen in first; its calls in the other
arm, after a change of the share, are left out and counted. To leave out the subject instead would
leave out those who came back, and who comes back depends on the answers. A subject is judged by its
first value, so that the tests stay exact: no later value replaces it, and it stays when the
feedback is taken back. It is compared with subjects that were first seen under the same share:
among those who come later, the arms differ in how many are new. Where the unit is the call, each
call is a subject, with an arm of its own. Once calls of an experiment were deleted for their age it
decides nothing any more: what is left is another sample at every look.

**Who is silent.** Scores come from those who give them. Where the candidate has a smaller part of
its subjects scored than the control, the rest may be unhappy and silent; where it has a larger
one, its happy ones may only be louder. So the lead is worked out once more with the worst scores in
place of those that are fewer, or without so many of the best as are more. Where that takes half of
the lead, nothing is promoted automatically. Simulated, with a candidate that is no better and makes
half of the unhappy ones silent, 1 to 5 of 24 are promoted for 23 or 24, and of 120 honest ones 110
for 111.

**On what scale.** Scores lie on the scale of their metric, which is on record with the experiment;
one outside counts as the nearer end of the scale, and prevents automatic promotion. Latency and
tokens have no bounds, and are compared by ranks (`evaluation/anytime_tests.py` says what that
means).

**How often it errs.** All that can be said of an experiment together errs in at most a share
`ALPHA` of those without any difference, looked at as often as one likes: two fifths of it for
harm, two fifths for benefit, and a fifth for all guards together.
"""

from __future__ import annotations

import math
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from statistics import fmean
from typing import Any, NamedTuple, TypeAlias

import numpy

from tfgrpo.evaluation import anytime_tests
from tfgrpo.evaluation.anytime_tests import Outcome
from tfgrpo.production.experiment import (
    CANDIDATE,
    CONTROL,
    MEASURES,
    RUNNING,
    Experiment,
    ExperimentPlan,
    Scale,
    arm_name,
)
from tfgrpo.production.promotions import losses_in_words, losses_of
from tfgrpo.store.activity.traffic import ArmCall, ArmScore, Tags, Traffic, traffic_path
from tfgrpo.store.history import replay
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.store import Store
from tfgrpo.wording import with_bounds

ALPHA = 0.05
GUARDS_PART = 0.2
MISMATCH = 1000.0
"""Evidence that the arms' sizes are wrong, from which on that is said and nothing is promoted."""
MOST = 690.0
"""The logarithm of the largest evidence that is told."""


class Measured(NamedTuple):
    """A metric in one arm: of how many subjects, and their mean, higher being better."""

    size: int
    mean: float

    def said(self, metric: str) -> str:
        """Returns the mean as people say it."""
        if not self.size:
            return "–"
        if metric == "errors":
            return f"{abs(100 * self.mean):.1f}%"
        if metric == "latency":
            return f"{math.exp(-self.mean) / 1000:.0f} ms"
        if metric == "tokens":
            return f"{math.exp(-self.mean):.0f}"
        return f"{self.mean:.3f}"


class Compared(NamedTuple):
    """A metric in both arms, with the evidence for harm and for benefit; `needed` is how much of
    either decides. `low` and `high` bound the difference at all times together. `kind` is `right
    or wrong`, `scale` or `ranks`; `scale` is what values lie between, None for ranks, and
    `outside` how many values do not."""

    metric: str
    main: bool
    kind: str
    control: Measured
    candidate: Measured
    scale: Scale | None
    outside: int
    low: float
    high: float
    harm: float
    benefit: float
    needed: float

    @property
    def state(self) -> str:
        """What is shown: `worse`, `better`, or nothing yet."""
        if self.harm >= self.needed:
            return "worse"
        return "better" if self.main and self.benefit >= self.needed else ""

    @property
    def words(self) -> str:
        """Both arms in words: `score 0.387 of 31 against 0.517 of 290`."""
        arms = (self.candidate, self.control)
        both = (f"{arm.said(self.metric)} of {arm.size}" for arm in arms)
        return f"{self.metric} {' against '.join(both)}"

    @property
    def difference_said(self) -> str:
        """The difference as people say it, candidate less control, with its bounds."""
        if not (self.control.size and self.candidate.size):
            return ""
        figures = [self.candidate.mean - self.control.mean, self.low, self.high]
        if self.kind == "ranks":  # of logarithms, and turned round
            mean, high, low = (100 * math.expm1(min(-x, MOST)) for x in figures)
            return f"{mean:+.0f}% [{low:+.0f}%, {high:+.0f}%]"
        if self.metric == "errors":
            mean, high, low = (-100 * x + 0.0 for x in figures)
            return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
        return with_bounds(*figures)


class Verdict(NamedTuple):
    """What follows: `harm`, `benefit` or `none`; in words; and what stands against promoting."""

    kind: str
    said: str
    doubts: tuple[str, ...] = ()


class Evidence(NamedTuple):
    """What an experiment has found: its metrics, what is to be known beside them, the verdict."""

    compared: tuple[Compared, ...]
    subjects: Mapping[str, int]
    calls: Mapping[str, int]
    moved: int
    mismatch: float
    notes: tuple[str, ...]
    verdict: Verdict

    @property
    def against(self) -> str | None:
        """What stands against promoting, in words: harm that is shown, or a candidate that was
        worse so far; None for nothing."""
        main = self.compared[0]
        if self.verdict.kind == "harm":
            return self.verdict.said
        both = min(main.candidate.size, main.control.size)
        if self.verdict.kind == "none" and both and main.candidate.mean < main.control.mean:
            return f"the candidate was worse so far: {main.words}"
        return None

    def as_object(self) -> dict[str, Any]:
        """Returns it as JSON, for programs and for the record."""
        return {
            "verdict": self.verdict.kind,
            "subjects": dict(self.subjects),
            "calls": dict(self.calls),
            "moved_subjects": self.moved,
            "mismatch": _short(self.mismatch),
            "doubts": list(self.verdict.doubts),
            "metrics": {
                one.metric: {
                    "kind": one.kind,
                    "control": [one.control.size, _short(one.control.mean)],
                    "candidate": [one.candidate.size, _short(one.candidate.mean)],
                    "scale": one.scale,
                    "outside": one.outside,
                    "low": _short(one.low),
                    "high": _short(one.high),
                    "harm": _short(one.harm),
                    "benefit": _short(one.benefit),
                    "needed": _short(one.needed),
                }
                for one in self.compared
            },
        }


def evidence(store: Store, experiment: Experiment, tags: Tags = ()) -> Evidence:
    """Returns what the calls on record, or those with all of some tags, say of an experiment.
    Raises StoreError."""
    path = traffic_path(store.path)
    if not os.path.isfile(path):
        shown = weighed(experiment, [], [])
    else:
        with closing(open_traffic(path)) as traffic:
            shown = of_traffic(traffic, experiment, tags)
    lost = losses_of(store, experiment) if experiment.state == RUNNING else ()
    if not lost:
        return shown
    doubt = f"a promotion would take {losses_in_words(lost)} from {experiment.control.revision}"
    doubts = (*shown.verdict.doubts, doubt)
    verdict = shown.verdict._replace(doubts=doubts)
    if verdict.kind == "benefit":
        verdict = _verdict(shown.compared, doubts, is_open=True)
    return shown._replace(notes=(*shown.notes, doubt), verdict=verdict)


def of_traffic(traffic: Traffic, experiment: Experiment, tags: Tags = ()) -> Evidence:
    """Returns what calls in a record of traffic say of an experiment. Raises StoreError."""
    since = experiment.started
    arms = [arm_name(experiment.name, arm) for arm in (CONTROL, CANDIDATE)]
    scores = traffic.arm_scores(arms, since, tags)  # first: a score's call is there already
    shown = weighed(experiment, traffic.arm_calls(arms, since, tags), scores)
    deleted = traffic.deleted(arms)
    if deleted is None or deleted < since:
        return shown
    words = "the oldest calls of the experiment were deleted (--keep): it decides nothing any more"
    return shown._replace(
        notes=(*shown.notes, words),
        verdict=Verdict("none", "no decision: calls are gone", (words,)),
    )


@replay.without_gc()
def weighed(
    experiment: Experiment, calls: Sequence[ArmCall], scores: Sequence[ArmScore]
) -> Evidence:
    """Returns what calls, oldest first, and scores, in the order of their arrival, say."""
    units = _Units(experiment, calls)
    plan = experiment.plan
    guarded = [guard for guard in plan.guards if guard[0] != plan.metric]
    apart = GUARDS_PART if guarded else 0.0
    sides = ALPHA * (1 - apart) / 2
    compared, doubts = [], []
    for metric, tolerance in [(plan.metric, 0.0), *guarded]:
        outcomes, scale = units.outcomes(metric, scores, plan.apart), plan.scale(metric)
        if metric == plan.metric and scale and _silence_makes_half(outcomes, units, scale):
            doubts.append("the arms differ in how many give scores: that may make half of the lead")
        alpha = sides if metric == plan.metric else ALPHA * apart / len(guarded)
        bare = _compared(metric, outcomes, scale, tolerance, alpha)
        compared.append(bare._replace(main=metric == plan.metric))
    mismatch = _mismatch(experiment, units)
    notes = [*units.notes(), *_notes(compared), *_not_counted(plan, scores)]
    if mismatch >= MISMATCH:
        notes.append(
            f"{units.subjects[CONTROL]} and {units.subjects[CANDIDATE]} subjects are not what the "
            "shares would give: calls of one arm are lost, or are not sent by chance"
        )
    if mismatch >= MISMATCH:
        doubts.insert(0, "the arms' sizes are not what the shares would give")
    doubts += [
        f"scores of {one.metric} are outside of its scale" for one in compared if one.outside
    ]
    return Evidence(
        tuple(compared),
        dict(units.subjects),
        dict(units.calls),
        len(units.moved),
        mismatch,
        tuple(notes),
        _verdict(compared, tuple(doubts), experiment.state == RUNNING),
    )


class _Place(NamedTuple):
    """Where a call counts: of the candidate or not, for which subject, in blocks of which sizes."""

    call: ArmCall
    candidate: bool
    subject: str
    sizes: tuple[int, int]


class _Units:
    """Calls by whom they count for, in which arm, and beside which others."""

    def __init__(self, experiment: Experiment, calls: Iterable[ArmCall]) -> None:
        digests = {
            arm_name(experiment.name, CONTROL): experiment.control.digest[:16],
            arm_name(experiment.name, CANDIDATE): experiment.candidate.digest[:16],
        }
        by_call = experiment.plan.unit == "call"
        since = [since for since, _ in experiment.shares]
        sizes = [anytime_tests.block_sizes(share) for _, share in experiment.shares]
        self._first: dict[str, tuple[str, int]] = {}
        """Each subject's first arm, and the number of the share under which it was seen first."""
        self._places: dict[str, _Place] = {}
        self.first: list[Counter[str]] = [Counter() for _ in experiment.shares]
        """Under each share, the subjects of each arm that were seen first under it."""
        self.sizes = sizes
        """Under each share, the sizes of blocks."""
        self.subjects: Counter[str] = Counter({CONTROL: 0, CANDIDATE: 0})
        self.calls: Counter[str] = Counter({CONTROL: 0, CANDIDATE: 0})
        self.moved: set[str] = set()
        """Subjects that were seen in both arms."""
        self._left_out = self._foreign = 0
        for call in calls:
            if call.digest != digests[call.arm]:
                self._foreign += 1
                continue
            arm = call.arm.rpartition("/")[2]
            subject = call.id if by_call or call.subject is None else call.subject
            if subject not in self._first:
                at = max(0, bisect_right(since, call.time) - 1)
                self._first[subject] = arm, at
                self.first[at][arm] += 1
                self.subjects[arm] += 1
            known, at = self._first[subject]
            if known != arm:
                self.moved.add(subject)
                self._left_out += 1
                continue
            self._places[call.id] = _Place(call, arm == CANDIDATE, subject, sizes[at])
            self.calls[arm] += 1

    def notes(self) -> Iterable[str]:
        if self.moved:
            yield (
                f"{len(self.moved)} subjects were seen in both arms after a change of the share: "
                f"they count in their first, and {self._left_out} calls are left out"
            )
        if self._foreign:
            yield f"{self._foreign} calls under another version of the library are left out"

    def outcomes(
        self, metric: str, scores: Iterable[ArmScore], apart: Collection[str]
    ) -> list[Outcome]:
        """Returns the first value of each subject, higher being better, in the order in which they
        became known; feedback with a label that is `apart` is none of plain `score`."""
        values: Iterable[tuple[_Place | None, float | None]]
        label = metric.partition(":")[2]
        if metric in MEASURES:
            values = ((at, _measure(at.call, metric)) for at in self._places.values())
        else:
            values = (
                (self._places.get(one.call), one.score)
                for one in scores
                if (one.label == label if label else one.label not in apart)
            )
        first: dict[str, Outcome] = {}
        for at, value in values:
            if at is not None and value is not None and at.subject not in first:
                first[at.subject] = Outcome(at.candidate, value, at.sizes)
        return list(first.values())


def _measure(call: ArmCall, metric: str) -> float | None:
    failed = call.status >= 400 or not call.status
    if metric == "errors":
        return -float(failed)
    if failed:  # what failed was quick and short
        return None
    if metric == "latency":
        return -math.log(max(1, call.latency))
    if call.prompt_tokens is None and call.completion_tokens is None:
        return None
    return -math.log(max(1, (call.prompt_tokens or 0) + (call.completion_tokens or 0)))


def _compared(
    metric: str, outcomes: Sequence[Outcome], scale: Scale | None, tolerance: float, alpha: float
) -> Compared:
    """Returns a metric in both arms, on a scale (None for ranks). It may be worse by `tolerance`;
    harm and benefit may each be shown falsely as often as `alpha` says at most."""
    low, high = scale or (-math.inf, math.inf)
    clipped = [one._replace(value=min(max(one.value, low), high)) for one in outcomes]
    if scale is None:
        blocks, unit, tolerance = anytime_tests.blocks_of(clipped), 1.0, math.log1p(tolerance)
        reach = float(numpy.ptp(blocks.values)) if blocks.values.size else 0.0
        test, kind = anytime_tests.ranks(blocks), "ranks"
    else:  # which is brought to 0 to 1
        unit, reach = high - low, 1.0
        blocks = anytime_tests.blocks_of(x._replace(value=(x.value - low) / unit) for x in clipped)
        test, tolerance = anytime_tests.means(blocks), tolerance / unit
        kind = "right or wrong" if all(one.value in scale for one in clipped) else "scale"
    between = anytime_tests.bounds(test, reach, -math.log(alpha))
    control, candidate = _both_measured(clipped)
    return Compared(
        metric,
        False,
        kind,
        control,
        candidate,
        scale,
        outside=sum(not low <= one.value <= high for one in outcomes),
        low=unit * between[0],
        high=unit * between[1],
        harm=_evidence(test(False, -tolerance)),
        benefit=_evidence(test(True, 0.0)),
        needed=1 / alpha,
    )


def _notes(compared: Sequence[Compared]) -> Iterable[str]:
    ranked = [one.metric for one in compared if one.kind == "ranks"]
    if ranked:
        yield (
            f"{' and '.join(ranked)}: compared by ranks; the difference shown is that of typical "
            "(geometric) means"
        )
    for one in compared:
        if one.kind == "scale" and one.scale is not None:
            yield f"{one.metric}: scores between {one.scale[0]:g} and {one.scale[1]:g}"
        if one.outside and one.scale is not None:
            yield (
                f"{one.metric}: {one.outside} scores are not between {one.scale[0]:g} and "
                f"{one.scale[1]:g}, and count as the nearer of these: start another experiment "
                f"with --scale {one.metric}=LOW..HIGH to count them as they are"
            )


def _not_counted(plan: ExperimentPlan, scores: Sequence[ArmScore]) -> Iterable[str]:
    compared = (plan.metric, *dict(plan.guards))
    for metric, _ in plan.scales:
        label = metric.partition(":")[2]
        if metric not in compared and any(one.label == label for one in scores):
            yield f"score: feedback with the label {label} has another scale, and does not count"


def _both_measured(outcomes: Iterable[Outcome]) -> tuple[Measured, Measured]:
    """The means of control and candidate, each of those that were first seen under one share, and
    then the mean of these by how much they tell: what changed between the shares, for both arms
    alike, is no difference then."""
    under = _by_share(outcomes)
    pairs = [pair for pair in under.values() if all(pair)]
    arms = []
    for arm in (0, 1):
        values = [value for pair in under.values() for value in pair[arm]]
        mean = fmean(values) if values else 0.0
        if pairs:
            mean = fmean([fmean(pair[arm]) for pair in pairs], _weights(pairs))
        arms.append(Measured(len(values), mean))
    return arms[0], arms[1]


_Pair: TypeAlias = tuple[list[float], list[float]]
"""The values of control and candidate."""


def _by_share(outcomes: Iterable[Outcome]) -> dict[tuple[int, int], _Pair]:
    under: dict[tuple[int, int], _Pair] = {}
    for one in outcomes:
        under.setdefault(one.sizes, ([], []))[one.candidate].append(one.value)
    return under


def _weights(pairs: Iterable[_Pair]) -> list[float]:
    return [len(a) * len(b) / (len(a) + len(b)) for a, b in pairs]


def _silence_makes_half(outcomes: Iterable[Outcome], units: _Units, scale: Scale) -> bool:
    """Whether less than half of the candidate's lead is left if those who differ in giving a score
    differ against it."""
    low, high = scale
    pairs: list[_Pair] = []
    leads, filled = [], []
    for sizes, pair in _by_share(outcomes).items():
        if not all(pair):
            continue
        counts = [n for n, at in zip(units.first, units.sizes, strict=True) if at == sizes]
        seen = [sum(n[arm] for n in counts) for arm in (CONTROL, CANDIDATE)]
        control, candidate = ([min(max(x, low), high) for x in values] for values in pair)
        wanted = seen[1] * len(control) / seen[0]  # were as many of them scored as of the control
        more = wanted - len(candidate)
        total = math.fsum(candidate) + more * (low if more > 0 else high)
        pairs.append(pair)
        leads.append(fmean(candidate) - fmean(control))
        filled.append(max(low, total / wanted) - fmean(control))
    if not pairs:
        return False
    lead = fmean(leads, _weights(pairs))
    return lead > 0 and fmean(filled, _weights(pairs)) < lead / 2


def _evidence(log: float) -> float:
    return math.exp(min(log, MOST))


def _mismatch(experiment: Experiment, units: _Units) -> float:
    """Returns the evidence that subjects do not come to the arms by their shares: the product of
    that under each share, of the subjects that were first seen under it."""
    log = 0.0
    for (_, share), count in zip(experiment.shares, units.first, strict=True):
        if 0 < share < 1:
            log += anytime_tests.log_mismatch(count[CONTROL], count[CANDIDATE], share)
    return _evidence(log)


def _verdict(compared: Sequence[Compared], doubts: tuple[str, ...], is_open: bool) -> Verdict:
    """What follows. Of an experiment that is over nothing is advised."""
    for one in compared:
        if one.state == "worse":
            what = "the candidate is worse" if one.main else f"the guard {one.metric} is worse"
            return Verdict("harm", what + ": roll back" * is_open, doubts)
    if compared[0].state == "better":
        but = f", but {doubts[0]}" if doubts else ": promote" * is_open
        return Verdict("benefit", f"the candidate is better{but}", doubts)
    undecided = "no decision yet" if is_open else "neither is shown to be better"
    return Verdict("none", undecided, doubts)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
