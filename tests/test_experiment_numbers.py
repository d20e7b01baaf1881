"""Experiments on numbers: looked at again and again they find nothing where there is nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import closing

import numpy
import pytest
from test_experiment import call, found_in, plan_of, run, store  # noqa: F401

from tfgrpo.production.experiment import ExperimentPlan, experiment, start
from tfgrpo.production.experiment_end import settle
from tfgrpo.production.experiment_evidence import weighed
from tfgrpo.store import InvalidOperation, Store
from tfgrpo.store.activity.traffic import (
    ArmCall,
    ArmScore,
    CallRecord,
    Feedback,
    Scale,
    traffic_path,
)
from tfgrpo.store.opening import open_traffic

LUMPY = ([1.0, 0.5, 0.0], [0.97, 0.02, 0.01])
Draw = Callable[[numpy.random.Generator, int], "list[float]"]


def lumpy(dice: numpy.random.Generator, size: int) -> list[float]:
    values, chances = LUMPY
    return [float(value) for value in dice.choice(values, size, p=chances)]


def nearly_all_right_or_wrong(dice: numpy.random.Generator, size: int) -> list[float]:
    """True and false, and a half among them: 25 equal values first are likely."""
    values = [float(value) for value in dice.random(size) < 0.98]
    values[int(dice.integers(size))] = 0.5
    return values


def hits_of_a_cache(dice: numpy.random.Generator, size: int) -> list[float]:
    slow = numpy.exp(dice.normal(0, 0.02, size)) * 900_000
    return [float(value) for value in numpy.where(dice.random(size) < 0.03, 4_000, slow)]


def drawn(
    draw: Draw, share: float, metric: str, seed: int, size: int
) -> tuple[list[ArmCall], list[ArmScore]]:
    """Calls of an experiment in which both arms are the same."""
    dice = numpy.random.default_rng(seed)
    arms = dice.random(size) < share
    values = draw(dice, size)
    calls = [call(n, bool(arm)) for n, arm in enumerate(arms)]
    if metric == "latency":
        calls = [c._replace(latency=round(v)) for c, v in zip(calls, values, strict=True)]
    return calls, [ArmScore(c.id, v, None) for c, v in zip(calls, values, strict=True)]


@pytest.mark.parametrize("share", [0.05, 0.1, 0.9])
@pytest.mark.parametrize(
    ("draw", "metric"),
    [
        (lumpy, "score"),
        (nearly_all_right_or_wrong, "score"),
        (hits_of_a_cache, "latency"),
    ],
)
def test_where_the_arms_are_alike_hardly_any_experiment_decides(
    draw: Draw, metric: str, share: float
) -> None:
    decided = 0
    for seed in range(60):
        plan = plan_of(shares=((0, share),), plan=ExperimentPlan(metric, guards=()))
        calls, scores = drawn(draw, share, metric, seed, 800)
        looks = (weighed(plan, calls[:n], scores[:n]) for n in (200, 400, 600, 800))
        decided += any(found.verdict.kind != "none" for found in looks)
    assert decided <= 6, "3 of 60, and what chance adds"


STARS = ExperimentPlan(guards=(), scales=(("score", (1.0, 5.0)),))


def test_scores_are_compared_on_their_scale_and_bounded_in_their_own_units() -> None:
    dice = numpy.random.default_rng(1)
    low, high = (
        [float(n) for n in dice.choice([1, 3, 4, 5], 300, p=p)]
        for p in ([0.3, 0.3, 0.3, 0.1], [0.05, 0.15, 0.3, 0.5])
    )
    found = found_in(plan_of(plan=STARS), low, high)
    (one,) = found.compared
    assert (found.verdict.kind, one.kind, one.scale, one.outside) == ("benefit", "scale", (1, 5), 0)
    assert 0 < one.low < sum(high) / 300 - sum(low) / 300 < one.high < 4
    assert "score: scores between 1 and 5" in found.notes
    assert found_in(plan_of(plan=STARS), high, low).verdict.kind == "harm"


def test_a_score_outside_of_its_scale_is_said_and_keeps_from_promoting() -> None:
    found = found_in(plan_of(), [0.0] * 60, [1.0] * 59 + [7.0])
    assert found.compared[0].outside == 1
    assert found.compared[0].candidate.mean == 1
    assert found.verdict.kind == "benefit"
    assert found.verdict.doubts == ("scores of score are outside of its scale",)
    assert any("score=LOW..HIGH" in note for note in found.notes)


def test_one_half_among_true_and_false_changes_no_evidence_that_was_there() -> None:
    dice = numpy.random.default_rng(2)
    right = [[float(x) for x in dice.random(200) < p] for p in (0.6, 0.85)]
    before = found_in(plan_of(), right[0][:199], right[1][:199])
    after = found_in(plan_of(), [*right[0][:199], 0.5], right[1])
    assert before.compared[0].kind == "right or wrong"
    assert after.compared[0].kind == "scale"
    assert after.compared[0].benefit >= before.compared[0].benefit >= 50


def test_times_are_compared_by_ranks_and_it_is_said() -> None:
    dice = numpy.random.default_rng(3)
    times = [numpy.exp(dice.normal(mean, 0.5, 250)) * 1e6 for mean in (0, math.log(1.5))]
    calls = [
        call(2 * n + arm, bool(arm), latency=round(times[arm][n]))
        for n in range(250)
        for arm in (0, 1)
    ]
    plan = plan_of(plan=ExperimentPlan("latency", guards=()))
    (one,) = (found := weighed(plan, calls, [])).compared
    assert (found.verdict.kind, one.kind, one.scale) == ("harm", "ranks", None)
    assert 1 < math.exp(-one.high) < 1.5 < math.exp(-one.low) < 2
    assert any("latency: compared by ranks" in note for note in found.notes)
    guarded = plan_of(plan=ExperimentPlan(guards=(("latency", 0.2),)))
    assert (
        weighed(guarded, calls, []).compared[1].harm
        > 50
        > weighed(plan_of(plan=ExperimentPlan(guards=(("latency", 0.8),))), calls, [])
        .compared[1]
        .harm
    )
    shown = [c._replace(latency=900 * c.latency // 1000) for c in calls]
    assert weighed(plan, shown, []).compared[0].harm == pytest.approx(one.harm, rel=0.2)


def test_a_scale_is_on_record_and_checked_against_scores_on_record(store: Store) -> None:  # noqa: F811
    with closing(open_traffic(traffic_path(store.path), create=True)) as traffic:
        blank = dict.fromkeys(CallRecord._fields, 0)
        traffic.add([CallRecord(**blank | {"id": "call-1", "worker": "w", "route": "/"})], [])  # type: ignore[arg-type]
        traffic.add_feedback(Feedback("call-1", 1, "ann", 4.0, "stars", None, None))
    arms = ("prod", "main")
    with pytest.raises(InvalidOperation, match="between 4 and 4 on record") as refused:
        start(store, "e", arms, 0.1, ExperimentPlan("score:stars"))
    assert "--scale score:stars=4..4" in str(refused.value.hint)
    with pytest.raises(InvalidOperation, match="between 4 and 4"):
        start(store, "e", arms, 0.1)
    for bad in ((5.0, 1.0), (1.0, 1.0), (float("nan"), 1.0), (0.0, math.inf)):
        with pytest.raises(InvalidOperation, match="no scale"):
            start(store, "e", arms, 0.1, ExperimentPlan(scales=(("score", bad),)))
    for metric in ("latency", "score:x"):
        with pytest.raises(InvalidOperation, match="no score"):
            start(store, "e", arms, 0.1, ExperimentPlan(scales=((metric, (0.0, 5.0)),)))
    begin = ("experiment", "start", "e", "--control", "prod", "--candidate", "main")
    run(store, *begin, "--metric", "score:stars", "--scale", "score:stars=1..5")
    assert experiment(store, "e").plan.scale("score:stars") == (1, 5)
    assert experiment(store, "e").plan.scale("latency") is None


@pytest.fixture
def scaled(store: Store) -> Store:  # noqa: F811
    """With a call on record that got four of five stars, and was right."""
    with closing(open_traffic(traffic_path(store.path), create=True)) as traffic:
        blank = dict.fromkeys(CallRecord._fields, 0)
        traffic.add([CallRecord(**blank | {"id": "call-1", "worker": "w", "route": "/"})], [])  # type: ignore[arg-type]
        traffic.set_scale("stars", Scale(1, 5))
        traffic.add_feedback(Feedback("call-1", 1, "ann", 4.0, "stars"))
        traffic.add_feedback(Feedback("call-1", 2, "ann", 1.0))
        traffic.add_feedback(Feedback("call-1", 3, "ann", 0.0, "tone"))
    return store


def test_an_experiment_takes_the_scales_that_are_on_record(scaled: Store) -> None:
    begin = ("experiment", "start", "stars", "--control", "prod", "--candidate", "main")
    run(scaled, *begin, "--metric", "score:stars")
    assert experiment(scaled, "stars").plan.scale("score:stars") == (1, 5)
    run(scaled, "experiment", "stop", "stars")
    plain = start(scaled, "plain", ("prod", "main"), 0.1).plan
    assert dict(plain.scales) == {"score": (0, 1), "score:stars": (1, 5)}
    named = ExperimentPlan("score:stars", scales=(("score:stars", (0.0, 10.0)),))
    run(scaled, "experiment", "stop", "plain")
    assert start(scaled, "named", ("prod", "main"), 0.1, named).plan.scale("score:stars") == (0, 10)


def test_plain_scores_are_those_on_the_scale_of_feedback_without_a_label(scaled: Store) -> None:
    with closing(open_traffic(traffic_path(scaled.path))) as traffic:
        traffic.set_scale("", Scale(1, 5))
    plan = start(scaled, "e", ("prod", "main"), 0.1).plan
    assert dict(plan.scales) == {"score": (1, 5), "score:tone": (0, 1)}
    calls = [call(n, bool(n % 2)) for n in range(40)]
    scores = [ArmScore(c.id, 5.0 if n % 2 else 1.0, "stars") for n, c in enumerate(calls)]
    others = [ArmScore(c.id, 0.0, "tone") for c in calls]
    found = weighed(plan_of(plan=plan), calls, [*others, *scores])
    assert (found.compared[0].control.mean, found.compared[0].candidate.mean) == (1, 5)
    assert not found.verdict.doubts
    assert "score: feedback with the label tone has another scale, and does not count" in (
        found.notes
    )


def test_auto_promotes_nothing_that_is_lumpy_and_the_same(
    store: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start(store, "e", ("prod", "main"), 0.1, ExperimentPlan(guards=(), auto=True))
    running, moved = experiment(store, "e"), 0
    for seed in range(40):
        calls, scores = drawn(lumpy, 0.1, "score", seed, 600)
        for looked in (200, 400, 600):
            found = weighed(plan_of(shares=((0, 0.1),)), calls[:looked], scores[:looked])
            monkeypatch.setattr("tfgrpo.production.experiment_end.evidence", lambda *_, f=found: f)
            settled = found.verdict.kind == "benefit" and settle(store, running)
            if settled:
                moved += 1
                break
        if moved:
            break
    assert moved == 0
    assert store.tip("prod").name == "v1"
