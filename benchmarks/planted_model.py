"""What the learner believes of planted lessons after few attempts of a model, beside what the
others say.

    python -m benchmarks.proof_models merge FOLDER --ours FILE --theirs FILE --family F --model M
    python -m benchmarks.planted_model FOLDER/.tfgrpo/store.db

A measured merge makes all its attempts, whatever they say, each with a random half of what belongs
to its problem. Here they are cut into parts of a few problems. From each part comes a claim about
each lesson, by the learner's own estimator: its mean effect, and the chance that it helps. The
attempts of all other parts say by plain least squares, without a prior, what was so. Claims are
gathered by their chance, and a row shows what was claimed and what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, groupby, pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import click
import numpy as np

from tfgrpo.learn.advantage import Advantages, Effect, Observation
from tfgrpo.learn.measure import in_trial
from tfgrpo.learn.policies.trial import TRIAL, results
from tfgrpo.store import Store

EDGES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


class Claim(NamedTuple):
    """What a part says of a lesson, and the effect by all other parts."""

    lesson: str
    claimed: Effect
    found: float


def claims(parts: Sequence[Sequence[Observation]]) -> list[Claim]:
    """Returns the claims of each part about each lesson that the other parts showed as well."""
    made = []
    for number, part in enumerate(parts):
        advantages = Advantages()
        advantages.add(part)
        others = [one for n, other in enumerate(parts) if n != number for one in other]
        there = least_squares(others)
        made += [
            Claim(name, effect, there[name])
            for name, effect in advantages.effects().items()
            if name in there
        ]
    return made


def least_squares(observations: Sequence[Observation]) -> dict[str, float]:
    """Returns the effect of each thing on the reward, centred within groups."""
    names = sorted({name for one in observations for name in one.belongs})
    columns, rewards = [], []
    for _, several in groupby(observations, key=lambda one: one.group):
        group = list(several)
        shown = np.array([[float(name in one.shown) for name in names] for one in group])
        reward = np.array([one.reward for one in group])
        columns.append(shown - shown.mean(axis=0))
        rewards.append(reward - reward.mean())
    solution, *_ = np.linalg.lstsq(np.vstack(columns), np.concatenate(rewards), rcond=None)
    return dict(zip(names, solution.tolist(), strict=True))


def table(made: Sequence[Claim]) -> list[str]:
    """Returns the claims as a table, by the chance to help that they name."""
    lines = [
        "| chance to help, claimed | claims | effect, claimed | effect, found | found above zero |",
        "|---|---:|---:|---:|---:|",
    ]
    for low, high in pairwise(EDGES):
        row = [one for one in made if low <= one.claimed.chance < (high if high < 1 else 2)]
        if row:
            found = [one.found for one in row]
            around = f" ± {1.96 * stdev(found) / len(found) ** 0.5:.3f}" if len(found) > 1 else ""
            lines.append(
                f"| {low:.2f} to {high:.2f} | {len(row)} "
                f"| {fmean(one.claimed.mean for one in row):+.3f} | {fmean(found):+.3f}{around} "
                f"| {sum(value > 0 for value in found)} of {len(row)} |"
            )
    return lines


@click.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--problems", default=12, show_default=True, help="Problems of a part.")
def main(path: Path, problems: int) -> None:
    """Prints claims beside what was found, for each measured merge in a store."""
    with Store.open(path) as store:
        for run in store.runs.all():
            if TRIAL not in store.version(run.base).meta:
                continue
            groups: dict[str, list[Observation]] = {}
            for one in in_trial(store, run):
                groups.setdefault(one.group, []).append(one)
            rows = list(groups.values())
            cuts = range(0, len(rows), problems)
            parts = [list(chain.from_iterable(rows[n : n + problems])) for n in cuts]
            made = claims(parts)
            click.echo(f"{run.name}: {sum(map(len, rows))} attempts in {len(parts)} parts\n")
            click.echo("\n".join(table(made)))
            for one in results(store, run):
                click.echo(f"{one.judged}  {one.text}")


if __name__ == "__main__":
    main()
