"""A sample of 20,000 near misses, of which none earns a reward."""

from __future__ import annotations

from collections import Counter

from near_misses import CHANGES, near_misses

from tfgrpo.domains.mathematics.answers import check_gold, judge


def test_no_near_miss_earns_a_reward() -> None:
    sample = list(near_misses())[::101]
    assert set(Counter(pair.kind for pair in sample)) == set(CHANGES)
    verdicts = [(pair, judge(pair.gold, rf"\boxed{{{pair.answer}}}")) for pair in sample]
    assert [(pair, verdict) for pair, verdict in verdicts if verdict.reward != 0.0] == []


def test_every_ground_truth_of_a_near_miss_can_be_judged() -> None:
    sample = list(near_misses())[::401]
    assert {pair.gold: why for pair in sample if (why := check_gold(pair.gold))} == {}
    assert all(judge(pair.gold, rf"\boxed{{{pair.gold}}}").reward == 1.0 for pair in sample)
