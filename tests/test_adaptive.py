"""Adaptive groups: what is believed of a problem, and who gets which attempts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.rollout.attempt import CONFIRMING
from tfgrpo.store import Operation, Store
from tfgrpo.store.runs import RolloutRow, Run
from tfgrpo.training import adaptive
from tfgrpo.training.adaptive import Belief, chosen, enough, extra
from tfgrpo.training.beliefs import Beliefs

counts = st.floats(min_value=0, max_value=50)
rewards = st.lists(st.sampled_from([0.0, 1.0]), max_size=6)


@given(counts, counts, st.integers(2, 8))
def test_chances_are_those_of_the_posterior(wins: float, losses: float, n: int) -> None:
    dice = random.Random(0)
    draws = [dice.betavariate(wins + 0.5, losses + 0.5) for _ in range(4000)]
    belief = Belief(wins, losses)
    mixed = fmean(1 - p**n - (1 - p) ** n for p in draws)
    assert belief.mixed_within(n) == pytest.approx(mixed, abs=0.03)
    assert belief.turns_within(n, wins=True) == pytest.approx(
        fmean(1 - p**n for p in draws), abs=0.03
    )


@given(counts, counts)
def test_more_attempts_make_a_mixed_group_likelier(wins: float, losses: float) -> None:
    chances = [Belief(wins, losses).mixed_within(n) for n in range(1, 9)]
    assert chances[0] == pytest.approx(0)
    assert chances == sorted(chances)


def test_a_belief_counts_and_forgets() -> None:
    belief = Belief().after([1.0, 0.0, 1.0])
    assert belief == Belief(2, 1)
    assert belief.faded() == Belief(2 * adaptive.FORGET, adaptive.FORGET)


@given(rewards)
def test_a_group_is_enough_when_it_is_mixed_or_full(given_rewards: list[float]) -> None:
    mixed = 0.0 in given_rewards and 1.0 in given_rewards
    assert enough(given_rewards, 5) == (mixed or len(given_rewards) >= 5)


def test_hopeless_and_mastered_problems_are_passed_over_but_for_a_tenth() -> None:
    names = [f"p{i}" for i in range(1000)]
    mastered = dict.fromkeys(names, Belief(wins=20))
    kept = chosen(names, mastered, 5, seed="a")
    assert len(kept) == pytest.approx(100, abs=35)
    assert kept == chosen(names, mastered, 5, seed="a"), "a resumed run chooses alike"
    assert kept != chosen(names, mastered, 5, seed="b")


def test_problems_never_tried_or_even_are_always_worth_it() -> None:
    beliefs = {"even": Belief(3, 3), "lost": Belief(losses=30)}
    assert {"new", "even"} <= set(chosen(["new", "even", "lost"], beliefs, 5, seed=""))


def test_what_is_saved_goes_to_the_likeliest_first_and_never_beyond_what_is_there() -> None:
    alike = {"even": [1.0] * 5, "lost": [0.0] * 5, "new": [0.0] * 5}
    beliefs = {"even": Belief(4, 4), "lost": Belief(losses=30)}
    assert extra(alike, beliefs, 7, 5) == {"even": 5}, "the others are not likely enough"
    assert extra(alike, beliefs, 3, 5) == {"even": 3}
    assert extra(alike, beliefs, 0, 5) == {}
    assert extra({"nothing scored": []}, {}, 9, 5) == {}


# beliefs from what is on record:


def put(store: Store, rows: list[RolloutRow]) -> None:
    """Records attempts."""
    writer = store.port.records.writer()
    values = [(*r[:5], "[]", *r[6:8], json.dumps(r.verdict), r.time) for r in rows]
    writer.append([], values)
    writer.close()


def all_read(store: Store, run: Run, step: int) -> dict[str, Belief]:
    """Returns what beliefs are by their definition, from all rows."""
    beliefs: dict[str, Belief] = {}
    library = None
    rows = [r for r in store.runs.rollouts(run) if r.step < step and r.reward is not None]
    rows = [r for r in rows if r.sample < CONFIRMING and "hint" not in r.verdict]
    for earlier in sorted({row.step for row in rows}):
        here = [row for row in rows if row.step == earlier]
        current = store.library(store.version(here[0].version))
        if library is not None and library != current:
            beliefs = {problem: belief.faded() for problem, belief in beliefs.items()}
        library = current
        for row in here:
            beliefs[row.problem] = beliefs.get(row.problem, Belief()).after([row.reward or 0.0])
    return beliefs


def test_beliefs_are_the_same_however_attempts_came_and_read_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(5)
    names = ["a", "b", "c", "never"]
    with Store.init(tmp_path / "s.db", author="tests") as store:
        run = store.runs.create("run", "5" * 32, "main", 0, {}, "tests")
        beliefs, places = Beliefs(store, run), []
        plain = store.runs.reward_sums
        monkeypatch.setattr(
            store.runs, "reward_sums", lambda *args: places.append(args[1]) or plain(*args)
        )
        late: list[RolloutRow] = []
        for step in range(12):
            if step % 3 == 1:  # in other steps the library stays as it was
                store.commit("main", [Operation("ADD", None, f"lesson {step}")], message="m")
            version = store.tip("main").number
            rows = []
            for problem in names[:3]:
                for sample in (0, 1, 2, CONFIRMING):
                    verdict = {"hint": "x"} if dice.random() < 0.2 else {}
                    reward = dice.choice([0.0, 1.0, 0.5, None])
                    place = (run.id, step, problem, sample, version, ())
                    rows.append(RolloutRow(*place, "answered", reward, verdict, 1))
            dice.shuffle(rows)
            late += rows[9:] if step != 4 else rows
            put(store, rows[:9] if step != 4 else [])
            if step not in (4, 5):  # all of step 4 come after the next step was counted
                put(store, late[:-3])
                late = late[-3:]
            expected = all_read(store, run, step + 1)
            assert beliefs.before(step + 1, names) == expected
            assert Beliefs(store, run).before(step + 1, names) == expected, "as a resumed run"
    assert places[:4:2] == [0, 9], "from where it was"
    assert places.count(0) == 12 + 2, "and from the beginning once more, for step 4"
