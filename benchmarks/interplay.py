"""How often planted antagonists and duplicates are found by a measured merge: simulated.

    python -m benchmarks.interplay           # minutes; writes RESULTS-interplay.md
    python -m benchmarks.interplay --quick   # printed only

Two sides with three lessons each are merged. Of their nine pairs one is planted: an antagonist
(each helps alone, together they harm), or a duplicate (together they help as much as either). The
others do nothing, help or harm, and add up. Attempts are assigned as a trial assigns them: four
lessons belong to a problem, of which each attempt is shown a half. A textual merge sees different
words and no conflict in any of these. No model is asked.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import click

from tfgrpo.learn.advantage import Observation
from tfgrpo.learn.assign import CANDIDATES, out_of_turn
from tfgrpo.learn.interplay import interplay
from tfgrpo.learn.prove import MERGE

RESULTS = Path(__file__).parent / "RESULTS-interplay.md"
SIDES = ("a0", "a1", "a2"), ("b0", "b1", "b2")
PLANTED = ("a0", "b0")
WORTHS = (0.25, 0.0, -0.15)
"""What the lessons that are not planted are worth, in turn."""
KINDS = {"conflict": -0.65, "redundant": -0.25, "neither": 0.0}
"""What the planted pair, each worth .25 alone, comes to beyond its sum."""


class Rates(NamedTuple):
    """Of trials with a pair of a kind: how often it was found as what it is, and as something else,
    and how often another pair of the trial was called something."""

    found: float
    mistaken: float
    others: float


def trial(dice: random.Random, kind: str, problems: int) -> list[Observation]:
    """Returns the attempts of one trial with a planted pair."""
    names = [name for side in SIDES for name in side]
    rest = [name for name in names if name not in PLANTED]
    worth = {name: dice.choice(WORTHS) for name in rest} | dict.fromkeys(PLANTED, 0.25)
    seed, observations = dice.randrange(2**30), []
    ease = {number: dice.uniform(0.1, 0.6) for number in range(problems)}
    fits = {
        number: (*PLANTED, *dice.sample(rest, CANDIDATES - 2))
        if number % 2
        else tuple(dice.sample(names, CANDIDATES))
        for number in range(problems)
    }
    for epoch in range(MERGE["epochs"]):
        for number in range(problems):
            for sample in range(MERGE["group_size"]):
                without = out_of_turn(fits[number], seed, (epoch, str(number)), sample, 2)
                shown = frozenset(fits[number]) - without
                chance = ease[number] + sum(worth[name] for name in shown)
                chance += KINDS[kind] * shown.issuperset(PLANTED)
                reward = float(dice.random() < min(max(chance, 0.0), 1.0))
                observations.append(Observation(f"{epoch}/{number}", fits[number], shown, reward))
    return observations


def rates(kind: str, trials: int, problems: int, seed: int = 1) -> Rates:
    """Returns how a kind of planted pair fares over trials."""
    dice = random.Random(f"{seed}/{kind}")
    found = mistaken = others = 0
    for _ in range(trials):
        together = interplay(trial(dice, kind, problems), *SIDES)
        pairs = {one.names: one.kind for one in together.pairs}
        planted = pairs.pop(PLANTED, "neither")
        found += planted == kind
        mistaken += planted not in (kind, "neither")
        others += bool(pairs)
    return Rates(found / trials, mistaken / trials, others / trials)


@click.command()
@click.option("--quick", is_flag=True, help="Fewer trials; writes no file.")
def main(quick: bool) -> None:
    """Plays trials and writes how often pairs are found."""
    trials = 20 if quick else 200
    lines = [
        "# A measured merge, simulated",
        "",
        *(__doc__ or "").strip().split("\n\n")[2:3],
        "",
        f"{trials} trials a row, {MERGE['epochs']} passes of {MERGE['group_size']} attempts. "
        "Found: the planted pair is called what it is. Mistaken: it is called something else. "
        "Another pair: one of the other eight, all of which add up, is called something.",
        "",
        "| planted | problems | attempts | found | mistaken | another pair |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for kind in KINDS:
        for problems in (12, 24, 48):
            of = rates(kind, trials, problems)
            attempts = problems * MERGE["epochs"] * MERGE["group_size"]
            cells = (f"{of.found:.2f}", f"{of.mistaken:.3f}", f"{of.others:.3f}")
            lines.append(f"| {kind} | {problems} | {attempts} | {' | '.join(cells)} |")
            click.echo(lines[-1])
    if not quick:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
