"""Planted lessons of known worth: what a policy lets in, and whether it knows how sure it is.

    python -m benchmarks.planted --runs 60      # some minutes; -o FILE writes the page

A run has ten steps, or as many as its row says. Each brings candidates whose worth is planted:
helpful, of no effect, harmful, or one of two that help only together. A candidate belongs to one
kind of problem; its effect is there, is larger at the problem that taught it (it leaks), and is
less beside others (it is sub-additive), so that nothing fits a model of additive effects. Attempts
come in groups at one problem of random difficulty, rewards are 0 or 1, and an attempt shows a
random part of what it may.
With retrieval that is what belongs to the problem's kind, without it the whole pool; where four are
tried, four of that, as the product chooses them (`tfgrpo/learn/assign.py`). Where lessons are said
twice, each has a twin in nearly the same words, of the same rule, of which the better does what
both do; look-alikes are two rules of one kind in nearly the same words. Where a rule is in many
words, four of five that help say the one rule of their kind, each in words of its own. A candidate
is shown to one of two attempts, or, as the product does, to one of three. With rivals one of texts
that are nearly alike enters, and the other has to beat it in its place (`tfgrpo/learn/rivals.py`).
Where problems are settled, attempts at them are all right or all wrong, and nothing belongs to
them.

A policy promotes and retires by what an estimator believes. Reported are the true gain on new
problems, the share of runs that end below their start, and, of what was promoted, the share that
the beliefs say does not help (claimed), the share that does not (found: of no effect or harmful)
and the share that harms. No model is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from math import erf, sqrt
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
from numpy.typing import NDArray

from tfgrpo.learn.advantage import Effect, between_problems, posterior
from tfgrpo.learn.assign import PAIR, TURNS, tried
from tfgrpo.learn.rivals import Rivals, replaced

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
WORDS = 12
"""Words of a candidate that its family has in common, before one of its own: those of two families
are not alike."""
FRESH = 300
"""Problems that the true gain is a mean over."""
NO_KIND = -1
"""The kind of problems that nothing belongs to."""
LEAST_SPREAD = 0.05
"""The least standard deviation of effects that shrinkage assumes: nothing is certainly null."""


@dataclass(frozen=True, slots=True)
class World:
    """What is planted, and how it is tried.

    `helpful`, `null`, `harmful`, `paired`, `twins`, `lookalikes` and `paraphrased` are shares;
    `effect` is the mean size of an effect at its kind of problem. `groups` and `size` are the
    groups of a step and the attempts of each. At a share of problems, those that are `settled`,
    every attempt is right or every one wrong, and nothing belongs to them.
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
    twins: float = 0.0
    lookalikes: float = 0.0
    paraphrased: float = 0.0
    settled: float = 0.0


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
    With `few` of what belongs to a problem four are tried, as the product chooses. One of `turns`
    attempts shows a candidate. The last step may promote at another chance. With `rivals` one of
    texts that are nearly alike enters.
    """

    estimator: Estimator | None
    promote: float = 0.95
    retire: float = 0.25
    drop: float = 0.10
    hidden: float = 0.15
    pool: int = 24
    few: bool = False
    turns: int = PAIR
    last: float | None = None
    rivals: bool = False


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
    """Candidates with their worth: the kind each belongs to, its effect there, and its partner; of
    a second one, the first one of nearly the same words, and that of the same rule; of a kind, what
    says its rule first."""

    kind: list[int] = field(default_factory=list)
    effect: list[float] = field(default_factory=list)
    partner: list[int | None] = field(default_factory=list)
    family: dict[int, int] = field(default_factory=dict)
    rule: dict[int, int] = field(default_factory=dict)
    said: dict[int, int] = field(default_factory=dict)

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
            if world.paraphrased and sign > 0 and dice.random() < world.paraphrased:
                number = len(self.kind) - 1
                self.rule[number] = self.said.setdefault(kind, number)
            alike = dice.random() if world.twins + world.lookalikes and room > 1 else 1.0
            if alike < world.twins + world.lookalikes:
                number, other = len(self.kind), dice.gamma(4.0, world.effect / 4.0)
                self._plant(kind, sign * min(0.9, other), None)
                self.second(number, says_the_same=alike < world.twins)
        return list(range(first, len(self.kind)))

    def _plant(self, kind: int, effect: float, partner: int | None) -> None:
        self.kind.append(kind)
        self.effect.append(effect)
        self.partner.append(partner)

    def second(self, number: int, *, says_the_same: bool) -> None:
        """Words a candidate nearly as the one before it, with the same rule or another."""
        self.family[number] = number - 1
        if says_the_same:
            self.rule[number] = number - 1

    def texts(self, candidates: Sequence[int]) -> dict[str, str]:
        """Returns what candidates say, by their names."""
        signs = {n: (chr(0x4E00 + self.family.get(n, n)), chr(0xAC00 + n)) for n in candidates}
        return {str(n): common * WORDS + own for n, (common, own) in signs.items()}

    def is_near(self, experience: str, problem: str) -> bool:
        """Returns whether a candidate belongs to a problem, which is called as its kind."""
        return str(self.kind[int(experience)]) == problem

    def common(self, one: str, other: str) -> float:
        """Returns the share of their problems that two candidates have in common."""
        return float(self.kind[int(one)] == self.kind[int(other)])

    def chance(self, base: float, kind: int, shown: Sequence[int]) -> float:
        """Returns the chance of a reward: what helps fills a part of what is missing to 1, and
        what harms takes a part of what is there."""
        missing, left = 1 - base, 1.0
        best: dict[int, int] = {}  # of what says the same the better counts
        for one in shown:
            rule = self.rule.get(one, one)
            best[rule] = max(best.get(rule, one), one, key=lambda n: self.effect[n])
        for one in best.values():
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


@dataclass(slots=True)
class Library:
    """What was promoted and what is on probation, what is believed of them, and the columns of the
    evidence by the names of effects."""

    planted: Planted
    with_rivals: bool
    kept: list[int] = field(default_factory=list)
    pool: list[int] = field(default_factory=list)
    beliefs: dict[int, Belief] = field(default_factory=dict)
    columns: dict[str, int] = field(default_factory=dict)

    @property
    def rivals(self) -> Rivals:
        """Which candidates are rivals, and of what."""
        in_force = self.planted.texts(self.kept) if self.with_rivals else {}
        candidates = self.planted.texts(self.pool) if self.with_rivals else {}
        return Rivals(candidates, in_force, self.planted)

    def column(self, name: str) -> int:
        """Returns the column of an effect."""
        return self.columns.setdefault(name, 1 + max(self.columns.values(), default=-1))

    def promote(self, ones: Sequence[int], rivals: Rivals) -> None:
        """Takes candidates into the library, of rivals the surest."""
        names = sorted(map(str, ones), key=lambda name: -self.beliefs[int(name)].above)
        chosen = set(rivals.one_of_each(names) if self.with_rivals else names)
        for one in [one for one in ones if str(one) in chosen]:
            place = rivals.stands_for(str(one)) if self.with_rivals else None
            self.pool.remove(one)
            if place is None:
                self.kept.append(one)
            elif int(place) in self.kept:
                self.kept[self.kept.index(int(place))] = one
                self.columns[str(one)] = self.columns[place]


def simulate(policy: Policy, world: World, seed: int) -> Outcome:
    """Plays one run, and returns what came of it. The same seed plants the same candidates."""
    plants, dice = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    planted, claims = Planted(), dict[int, float]()
    library = Library(planted, policy.rivals)
    evidence = Evidence(np.zeros(0, int), np.zeros((0, 0), bool), np.zeros(0))
    for step in range(world.steps):
        new = planted.add(plants, world)
        if policy.estimator is None:
            library.kept += new
            continue
        library.pool += new
        rivals = library.rivals
        evidence = _attempted(dice, policy, world, library, evidence)
        active = [*library.kept, *library.pool]
        columns = {one: library.column(rivals.name(str(one))) for one in active}
        # What was given up is still evidence of how many lessons help.
        every = [*columns.values(), *_gone(evidence, columns.values())]
        believed = dict(zip(every, policy.estimator(evidence, every), strict=True))
        beliefs = {one: believed[column] for one, column in columns.items()}
        library.beliefs = beliefs
        is_last = step + 1 == world.steps
        enough = policy.last if is_last and policy.last else policy.promote
        library.kept = [one for one in library.kept if beliefs[one].direction >= policy.drop]
        library.promote([one for one in library.pool if beliefs[one].above >= enough], rivals)
        pool = [one for one in library.pool if beliefs[one].direction >= policy.retire]
        if len(pool) > policy.pool:
            pool = sorted(pool, key=lambda one: -beliefs[one].above)[: policy.pool // 2]
        library.pool = pool
        claims = {one: 1 - beliefs[one].above for one in library.kept}
    kept = library.kept
    gain = _true_gain(planted, world, kept)
    if not kept:
        return Outcome(gain, gain < 0, 0, None, None)
    claimed = None if policy.estimator is None else float(np.mean([claims[one] for one in kept]))
    found = float(np.mean([not planted.helps(one, kept) for one in kept]))
    harmful = float(np.mean([planted.effect[one] < 0 for one in kept]))
    return Outcome(gain, gain < -1e-12, len(kept), claimed, found, harmful)


def _gone(evidence: Evidence, active: Collection[int]) -> list[int]:
    """Returns the columns that attempts showed, but those of what is active."""
    return [int(one) for one in np.flatnonzero(evidence.shown.any(axis=0)) if one not in active]


def _attempted(
    dice: np.random.Generator, policy: Policy, world: World, library: Library, before: Evidence
) -> Evidence:
    """Returns the evidence with that of one more step: masks are folded over within a group, so
    that each candidate is in its share of the attempts."""
    planted, rivals, pool = library.planted, library.rivals, library.pool
    names = {one: rivals.name(str(one)) for one in (*library.kept, *pool)}
    for one in range(len(planted.kind)):
        library.column(str(one))
    columns = {one: library.column(name) for one, name in names.items()}
    count = 1 + max(library.columns.values())
    shown = np.zeros((world.groups * world.size, count), bool)
    reward = np.zeros(len(shown))
    effects = {str(n): Effect(*one, 0, 0) for n, one in library.beliefs.items()}
    for group in range(world.groups):
        kind, base = int(dice.integers(world.kinds)), float(dice.beta(2, 3))
        teaches = group < world.candidates and group < len(pool)
        taught = pool[len(pool) - 1 - group] if teaches else None
        if taught is not None:
            kind = planted.kind[taught]
        elif world.settled and dice.random() < world.settled:
            kind, base = NO_KIND, float(base > 0.4)
        belongs = [n for n in pool if not world.retrieval or planted.kind[n] == kind]
        if policy.few:
            draw = (len(before.reward), int(dice.integers(2**32)))
            belongs = [int(name) for name in tried(planted.texts(belongs), effects, group, draw)]
        always = [n for n in library.kept if not world.retrieval or planted.kind[n] == kind]
        places = {n: int(place) for n in belongs if (place := replaced(names[n])) is not None}
        for sample in range(world.size):
            row = group * world.size + sample
            if sample % policy.turns == 0:
                turn = dice.integers(policy.turns, size=len(belongs))
            hidden = dice.random(len(always)) < policy.hidden
            shows = zip(belongs, turn == sample % policy.turns, strict=True)
            there = [n for n, is_in in shows if is_in]
            out = {places[n] for n in there if n in places}
            there += [
                n for n, is_out in zip(always, hidden, strict=True) if not is_out and n not in out
            ]
            shown[row, [columns[n] for n in (*there, *out)]] = True
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
    design, reward, gram, moments = _sums(evidence, candidates)
    freedom = np.maximum(np.bincount(evidence.group) - 1, 1)
    variance = np.bincount(evidence.group, reward**2) / freedom
    noise = (design**2 * variance[evidence.group, None]).sum(0)
    parts = [np.zeros((len(freedom), len(noise))) for _ in range(2)]
    for part, values in zip(parts, (design * reward[:, None], design**2), strict=True):
        np.add.at(part, evidence.group, values)
    at = [
        (n, *sums)
        for n in range(len(noise))
        for sums in zip(*(p[:, n] for p in parts), strict=True)
    ]
    noise = between_problems(noise, at)
    return [Belief(*one) for one in posterior(gram, moments, noise)]


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
    "15/50/35, nine of ten problems settled": World(0.15, 0.50, 0.35, settled=0.9),
    "20/50/30, 9 steps of 8 × 6": World(0.2, 0.5, 0.3, 0.0, 6, 9, 8, 6, 3, effect=0.4),
    "0/70/30, 9 steps of 8 × 6": World(0.0, 0.7, 0.3, 0.0, 6, 9, 8, 6, 3, effect=0.4),
    "20/50/30, said twice": World(0.2, 0.5, 0.3, twins=1.0),
    "20/50/30, said twice, 9 steps of 8 × 6": World(
        0.2, 0.5, 0.3, 0.0, 6, 9, 8, 6, 3, effect=0.4, twins=1.0
    ),
    "20/50/30, look-alikes": World(0.2, 0.5, 0.3, lookalikes=1.0),
    "50/35/15, in many words, 9 steps of 8 × 6": World(
        0.5, 0.35, 0.15, 0.0, 6, 9, 8, 6, 3, effect=0.5, paraphrased=0.8
    ),
    "30/50/20, in many words, 9 steps of 8 × 6": World(
        0.3, 0.5, 0.2, 0.0, 6, 9, 8, 6, 3, effect=0.5, paraphrased=0.8
    ),
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
    "the same with rivals": Policy(as_trained, promote=0.90, few=True, last=0.80, rivals=True),
    "the same, shown to one of three": Policy(
        as_trained, promote=0.90, few=True, turns=TURNS, last=0.80, rivals=True
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
