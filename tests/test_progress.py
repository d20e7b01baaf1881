"""The time that is left: reflection counts, and other groups than mixed ones may teach."""

from __future__ import annotations

import time

import pytest

from tfgrpo.evaluation.scoring import EvalProgress
from tfgrpo.learn.progress import Progress


@pytest.mark.parametrize("mixed", [0, 60])
def test_reflection_counts_in_the_time_that_is_left(mixed: int) -> None:
    progress = Progress("r", steps=1, epochs=1)
    assert progress.fraction == 0.0
    progress.enter("rollouts")
    progress.groups = progress.groups_done = 100
    progress.mixed, progress.attempts, progress.attempts_done = mixed, 500, 500
    progress.enter("reflection")
    progress.reflected = 60
    progress.lessons = 86
    progress.enter("decide")
    assert progress.fraction < 1.0
    progress._since -= 10.0  # ten seconds for a quarter of the lessons
    progress.started -= 12.0
    progress.decided = 21
    left = progress.seconds_left
    assert left is not None
    assert 20 < left < 60, "about thirty seconds for the others"
    progress.decided = 86
    progress.step = 1
    progress.enter("finished")
    assert progress.fraction == 1.0


def test_what_is_reflected_on_while_others_are_attempted_is_done() -> None:
    began = time.monotonic()
    progress = Progress("r", steps=1, epochs=1, groups=10, attempts=50)
    progress.enter("rollouts")
    progress.attempts_done, progress.groups_done, progress.mixed = 25, 5, 4
    before = progress.fraction
    progress.reflected, progress.lessons, progress.decided = 4, 6, 6
    assert before < progress.fraction < 0.75
    assert began <= progress.started <= time.monotonic()


def test_the_trial_of_a_candidate_counts_in_the_time_that_is_left() -> None:
    progress = Progress("r", steps=1, epochs=1, groups=1, attempts=5, trial=EvalProgress(0))
    for phase in ("rollouts", "reflection", "decide"):
        progress.enter(phase)
        progress._since -= 10.0
    progress.groups_done = progress.mixed = progress.reflected = 1
    progress.started -= 40.0
    progress.enter("gate")
    assert 0.6 < progress.fraction < 0.9
    trial = progress.trial
    assert trial is not None
    trial.total, trial.done = 20, 10
    progress._since -= 10.0  # for half of it
    left = progress.seconds_left
    assert left is not None
    assert 5 < left < 15
    trial.done = 20
    assert progress.fraction == pytest.approx(1.0)


def test_nothing_is_said_of_the_time_left_while_the_gain_is_measured() -> None:
    progress = Progress("r", steps=2, epochs=1, step=1, groups=1, attempts=5)
    for phase in ("rollouts", "reflection", "decide", "gain"):
        progress.enter(phase)
        progress._since -= 10.0
    progress.meter.cost = 1.0
    progress.started -= 40.0
    assert progress.fraction == 1.0
    assert progress.seconds_left is None
    assert progress.dollars_left is None
