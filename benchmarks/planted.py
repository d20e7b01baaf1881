"""Planted lessons of known worth: what a policy lets in, and whether it knows how sure it is.

    python -m benchmarks.planted --runs 60      # some minutes; -o FILE writes the page

A run has ten steps, or as many as its row says. Each brings candidates whose worth is planted:
helpful, of no effect, harmful, or one of two that help only together. A candidate belongs to one
kind of problem; its effect is there, is larger at the problem that taught it (it leaks), and is
less beside others (it is sub-additive), so that nothing fits a model of additive effects. Attempts
come in groups at one problem of random difficulty, rewards are 0 or 1, and an attempt shows a
random part of what it may.
With retrieval that is what belongs to the problem's kind, without it the whole pool; where four are
tried, four of that, as the product chooses them (`tfgrpo/learn/assign.py`).

A policy promotes and retires by what an estimator believes. Reported are the true gain on new
problems, the share of runs that end below their start, and, of what was promoted, the share that
the beliefs say does not help (claimed), the share that does not (found: of no effect or harmful)
and the share that harms. No model is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import erf, sqrt
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from tfgrpo.learn.advantage import NOISE, WEIGHT, Effect, posterior
from tfgrpo.learn.assign import tried

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
TEXT = "{0}{0}{0}{0}"
"""What a candidate says: no two are alike."""
FRESH = 300
"""Problems that the true gain is a mean over."""
LEAST_SPREAD = 0.05
"""The least standard deviation of effects that shrinkage assumes: nothing is certainly null."""


@dataclass(frozen=True, slots=True)
class World:
    """What is planted, and how it is tried.

    `helpful`, `null`, `harmful` and `paired` are shares; `effect` is the mean size of an effect at
    its kind of problem. `groups` and `size` are the groups of a step and the attempts of each.
    """

    helpful: float = 0.40
    null: float = 0.35
    harmful: float = 0.25
    paired: float = 0.0
    candidates: int = 12
    steps: int = 10
    groups: int = 48
    size: int = 8
    kinds: int = 4
    effect: float = 0.25
    leak: float = 0.15
    retrieval: bool = True


class Belief(NamedTuple):
    """What is believed of an effect: its mean, its standard deviation, the chance that it helps,
    and the chance that it is above zero if it is not none, by which a candidate is retired."""

    mean: float
    sd: float
    above: float
    direction: float


class Evidence(NamedTuple):
    """All attempts so far: the group of each, what it showed, and its reward."""

    group: NDArray[np.int64]
    shown: Bools
    reward: Floats


Estimator = Callable[[Evidence, Sequence[int]], Sequence[Belief]]
"""Evidence and candidates → a belief about each."""


class Policy(NamedTuple):
    """When a candidate is promoted or retired; without an estimator all enter at once.

    `hidden` is how often an attempt goes without a promoted one, so that its effect stays known.
    With `few` of what belongs to a problem four are tried, as the product chooses. The last step
    may promote at another chance.
    """

    estimator: Estimator | None
    promote: float = 0.95
    retire: float = 0.25
    hidden: float = 0.15
    pool: int = 24
    few: bool = False
    last: float | None = None


class Outcome(NamedTuple):
    """What came of a run: the true gain, whether it is below zero, how many were promoted, and of
    those the shares that do not help, as claimed and as found, and that harm (None where none
    was)."""

    gain: float
    below_start: bool
    promoted: int
    claimed_fdr: float | None
    found_fdr: float | None
    harmful: float | None = None


@dataclass(slots=True)
class Planted:
    """Candidates with their worth: the kind each belongs to, its effect there, and its partner."""

    kind: list[int] = field(default_factory=list)
    effect: list[float] = field(default_factory=list)
    partner: list[int | None] = field(default_factory=list)

    def add(self, dice: np.random.Generator, world: World) -> list[int]:
        """Plants the candidates of a step; returns their numbers."""
        first = len(self.kind)
        while len(self.kind) - first < world.candidates:
            size = dice.gamma(4.0, world.effect / 4.0)
            kind, roll = int(dice.integers(world.kinds)), dice.random()
            room = world.candidates - (len(self.kind) - first)
            if roll < world.paired and room > 1:
                number = len(self.kind)
                for partner in (number + 1, number):
                    self._plant(kind, min(0.9, 2 * size), partner)
                continue
            roll = dice.random() * (world.helpful + world.null + world.harmful)
            sign = 1 if roll < world.helpful else 0 if roll < world.helpful + world.null else -1
            self._plant(kind, sign * min(0.9, size), None)
        return list(range(first, len(self.kind)))

    def _plant(self, kind: int, effect: float, partner: int | None) -> None:
        self.kind.append(kind)
        self.effect.append(effect)
        self.partner.append(partner)

    def chance(self, base: float, kind: int, shown: Sequence[int]) -> float:
        """Returns the chance of a reward: what helps fills a part of what is missing to 1, and
        what harms takes a part of what is there."""
        missing, left = 1 - base, 1.0
        for one in shown:
            if self.kind[one] != kind:
                continue
            partner, effect = self.partner[one], self.effect[one]
            if partner is not None:
                effect = effect if partner in shown and partner < one else 0.0
            missing *= 1 - max(effect, 0.0)
            left *= 1 - max(-effect, 0.0)
        return (1 - missing) * left

    def helps(self, one: int, among: Sequence[int]) -> bool:
        """Returns whether a candidate helps in a library: one of a pair only beside the other."""
        partner = self.partner[one]
        return self.effect[one] > 0 and (partner is None or partner in among)


def simulate(policy: Policy, world: World, seed: int) -> Outcome:
    """Plays one run, and returns what came of it. The same seed plants the same candidates."""
    plants, dice = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    planted, kept, pool, claims = Planted(), list[int](), list[int](), dict[int, float]()
    beliefs = dict[int, Belief]()
    evidence = Evidence(np.zeros(0, int), np.zeros((0, 0), bool), np.zeros(0))
    for step in range(world.steps):
        new = planted.add(plants, world)
        if policy.estimator is None:
            kept += new
            continue
        pool += new
        evidence = _attempted(dice, policy, world, planted, evidence, (kept, pool, beliefs))
        active = [*kept, *pool]
        beliefs = dict(zip(active, policy.estimator(evidence, active), strict=True))
        is_last = step + 1 == world.steps
        enough = policy.last if is_last and policy.last else policy.promote
        for one in [one for one in pool if beliefs[one].above >= enough]:
            pool.remove(one)
            kept.append(one)
        kept = [one for one in kept if beliefs[one].direction >= policy.retire]
        pool = [one for one in pool if beliefs[one].direction >= policy.retire]
        if len(pool) > policy.pool:
            pool = sorted(pool, key=lambda one: -beliefs[one].above)[: policy.pool // 2]
        claims = {one: 1 - beliefs[one].above for one in kept}
    gain = _true_gain(planted, world, kept)
    if not kept:
        return Outcome(gain, gain < 0, 0, None, None)
    claimed = None if policy.estimator is None else float(np.mean([claims[one] for one in kept]))
    found = float(np.mean([not planted.helps(one, kept) for one in kept]))
    harmful = float(np.mean([planted.effect[one] < 0 for one in kept]))
    return Outcome(gain, gain < -1e-12, len(kept), claimed, found, harmful)


def _attempted(
    dice: np.random.Generator,
    policy: Policy,
    world: World,
    planted: Planted,
    before: Evidence,
    library: tuple[Sequence[int], Sequence[int], Mapping[int, Belief]],
) -> Evidence:
    """Returns the evidence with that of one more step: masks are folded over within a group, so
    that each candidate is in half of its attempts. `library` is what was promoted, what is on
    probation, and what is believed of them."""
    count = len(planted.kind)
    shown = np.zeros((world.groups * world.size, count), bool)
    reward = np.zeros(len(shown))
    kept, pool, beliefs = library
    effects = {str(n): Effect(*one, 0, 0) for n, one in beliefs.items()}
    for group in range(world.groups):
        kind, base = int(dice.integers(world.kinds)), float(dice.beta(2, 3))
        teaches = group < world.candidates and group < len(pool)
        taught = pool[len(pool) - 1 - group] if teaches else None
        if taught is not None:
            kind = planted.kind[taught]
        belongs = [n for n in pool if not world.retrieval or planted.kind[n] == kind]
        if policy.few:
            texts = {str(n): TEXT.format(chr(0x4E00 + n)) for n in belongs}
            draw = (len(before.reward), int(dice.integers(2**32)))
            belongs = [int(name) for name in tried(texts, effects, group, draw)]
        always = [n for n in kept if not world.retrieval or planted.kind[n] == kind]
        half = np.zeros(len(belongs), bool)
        for sample in range(world.size):
            row = group * world.size + sample
            half = ~half if sample % 2 else dice.random(len(belongs)) < 0.5
            hidden = dice.random(len(always)) < policy.hidden
            there = [n for n, is_in in zip(belongs, half, strict=True) if is_in]
            there += [n for n, is_out in zip(always, hidden, strict=True) if not is_out]
            shown[row, there] = True
            chance = planted.chance(base, kind, there)
            if taught in there:  # it gives away something of the problem that taught it
                chance += world.leak * (1 - chance)
            reward[row] = dice.random() < chance
    grown = np.zeros((len(before.reward), count), bool)
    grown[:, : before.shown.shape[1]] = before.shown
    first = int(before.group.max()) + 1 if len(before.group) else 0
    return Evidence(
        np.concatenate([before.group, first + np.repeat(np.arange(world.groups), world.size)]),
        np.concatenate([grown, shown]),
        np.concatenate([before.reward, reward]),
    )


def _true_gain(planted: Planted, world: World, kept: Sequence[int]) -> float:
    """Returns what a library adds to the chance of a reward, on problems of its own."""
    dice = np.random.default_rng(FRESH)
    gains = []
    for base in dice.beta(2, 3, FRESH):
        for kind in range(world.kinds):
            own = [one for one in kept if planted.kind[one] == kind]
            gains.append(planted.chance(float(base), kind, own) - float(base))
    return float(np.mean(gains))


def within_groups(evidence: Evidence, candidates: Sequence[int]) -> list[Belief]:
    """Believes what least squares within groups says, shrunk towards zero by how far effects lie
    apart (empirical Bayes by moments: Morris, 1983). The reference that others are set beside."""
    design, reward, gram, moments = _sums(evidence, candidates)
    size = np.bincount(evidence.group)
    plain = np.linalg.solve(gram + 1e-6 * np.eye(len(gram)), moments)
    freedom = max(1, len(reward) - len(size) - len(plain))
    noise = float(((reward - design @ plain) ** 2).sum()) / freedom
    errors = noise * np.diag(np.linalg.inv(gram + 1e-6 * np.eye(len(gram))))
    weights = 1 / errors
    spread = float((weights * (plain**2 - errors)).sum() / weights.sum())
    prior = max(spread, LEAST_SPREAD**2)
    covariance = np.linalg.inv(gram / noise + np.eye(len(gram)) / prior)
    means, sds = covariance @ moments / noise, np.sqrt(np.diag(covariance))
    return [
        Belief(float(mean), float(sd), *2 * [(1 + erf(mean / sd / sqrt(2))) / 2])
        for mean, sd in zip(means, sds, strict=True)
    ]


def as_trained(evidence: Evidence, candidates: Sequence[int]) -> list[Belief]:
    """Believes what the product does: no effect, or one from a normal (`learn/advantage.py`)."""
    _, reward, gram, moments = _sums(evidence, candidates)
    freedom = len(reward) - len(np.unique(evidence.group))
    noise = (float((reward**2).sum()) + WEIGHT * NOISE) / (freedom + WEIGHT)
    return [Belief(*one) for one in posterior(gram / noise, moments / noise)]


def _sums(evidence: Evidence, candidates: Sequence[int]) -> tuple[Floats, Floats, Floats, Floats]:
    """Returns what was shown and the rewards, centred within groups, and their products."""
    size = np.bincount(evidence.group)
    design = evidence.shown[:, candidates].astype(float)
    reward = evidence.reward - (np.bincount(evidence.group, evidence.reward) / size)[evidence.group]
    for column in range(design.shape[1]):
        means = np.bincount(evidence.group, design[:, column]) / size
        design[:, column] -= means[evidence.group]
    return design, reward, design.T @ design, design.T @ reward


WORLDS = {
    "40/35/25": World(),
    "15/50/35": World(0.15, 0.50, 0.35),
    "5/60/35": World(0.05, 0.60, 0.35),
    "15/50/35 and pairs": World(0.15, 0.50, 0.35, paired=0.1),
    "15/50/35, no retrieval": World(0.15, 0.50, 0.35, retrieval=False),
    "20/50/30, 9 steps of 8 × 6": World(0.2, 0.5, 0.3, 0.0, 6, 9, 8, 6, 3, effect=0.4),
    "0/70/30, 9 steps of 8 × 6": World(0.0, 0.7, 0.3, 0.0, 6, 9, 8, 6, 3, effect=0.4),
}
POLICIES = {
    "accept all": Policy(None),
    "normal, P ≥ .95": Policy(within_groups),
    "two groups, P ≥ .95": Policy(as_trained),
    "two groups, P ≥ .90": Policy(as_trained, promote=0.90),
    "two groups, P ≥ .80": Policy(as_trained, promote=0.80),
    "two groups, P ≥ .90, four tried": Policy(as_trained, promote=0.90, few=True),
    "two groups, P ≥ .90, at last .80, four tried": Policy(
        as_trained, promote=0.90, few=True, last=0.80
    ),
}


def compared(
    policies: dict[str, Policy], worlds: dict[str, World], runs: int
) -> dict[tuple[str, str], list[Outcome]]:
    """Returns the outcomes of each policy in each world, the same runs for all policies."""
    return {
        (world, policy): [simulate(how, planted, seed) for seed in range(runs)]
        for world, planted in worlds.items()
        for policy, how in policies.items()
    }


def page(outcomes: dict[tuple[str, str], list[Outcome]]) -> str:
    """Returns the table of outcomes as Markdown: claimed against found."""
    lines = [
        "| helpful/null/harmful | policy | gain ± se | below start | promoted | claimed | found "
        "| harmful |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for (world, policy), runs in outcomes.items():
        gains = np.array([one.gain for one in runs])
        error = gains.std(ddof=1) / sqrt(len(gains)) if len(gains) > 1 else float("nan")
        below = np.mean([one.below_start for one in runs])
        lines.append(
            f"| {world} | {policy} | {gains.mean():+.3f} ± {error:.3f} | {below:.0%} | "
            f"{np.mean([one.promoted for one in runs]):.1f} | {_share(runs, 'claimed_fdr')} | "
            f"{_share(runs, 'found_fdr')} | {_share(runs, 'harmful')} |"
        )
    return "\n".join(lines)


def _share(runs: Sequence[Outcome], which: str) -> str:
    """Returns a share of all that was promoted in some runs, each promoted one counting once."""
    known: list[tuple[float, int]] = [
        (getattr(one, which), one.promoted) for one in runs if getattr(one, which) is not None
    ]
    total = sum(promoted for _, promoted in known)
    return f"{sum(s * n for s, n in known) / total:.3f}" if total else "–"


@click.command()
@click.option("--runs", type=click.IntRange(2), default=60, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False))
def main(runs: int, output: Path | None) -> None:
    """Play planted lessons, and print what was let in."""
    told = "\n\n".join(part.replace("\n", " ") for part in (__doc__ or "").split("\n\n")[2:])
    head = f"# Planted lessons, simulated\n\n{told}\n\n"
    text = f"{head}{runs} runs a row.\n\n{page(compared(POLICIES, WORLDS, runs))}\n"
    click.echo(text)
    if output is not None:
        output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
