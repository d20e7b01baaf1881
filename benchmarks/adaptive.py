"""What a mixed group costs: fixed groups against adaptive ones, simulated.

    python -m benchmarks.adaptive

100 problems whose chances of success are drawn from a Beta distribution, groups of up to 5, 200
repetitions. Fixed groups run for 3 epochs. Adaptive ones run for 3 epochs as well, and then
on until they have given as many mixed groups as the fixed ones did. No model is asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tfgrpo.training import adaptive
from tfgrpo.training.adaptive import Belief

PROBLEMS, EPOCHS, GROUP, REPETITIONS = 100, 3, 5, 200
MIXES = {
    "Beta(0.4, 0.4): mostly easy or hard": (0.4, 0.4),
    "Beta(4, 1): mostly easy": (4.0, 1.0),
    "Beta(1, 4): mostly hard": (1.0, 4.0),
    "Beta(1, 1): uniform": (1.0, 1.0),
    "Beta(5, 5): mostly even": (5.0, 5.0),
}
Draw = Callable[[str], float]


def fixed_epoch(problems: list[str], draw: Draw) -> tuple[int, int]:
    """Returns (attempts, mixed groups)."""
    groups = [[draw(problem) for _ in range(GROUP)] for problem in problems]
    return len(groups) * GROUP, sum(len(set(rewards)) > 1 for rewards in groups)


def adaptive_epoch(
    problems: list[str], draw: Draw, beliefs: dict[str, Belief], seed: str
) -> tuple[int, int]:
    """Returns (attempts, mixed groups), and updates what is believed."""
    groups: dict[str, list[float]] = {}
    for problem in adaptive.chosen(problems, beliefs, GROUP, seed=seed):
        rewards = groups[problem] = [draw(problem) for _ in range(adaptive.FIRST)]
        while not adaptive.enough(rewards, GROUP):
            rewards.append(draw(problem))
    saved = sum(GROUP - len(rewards) for rewards in groups.values())
    alike = {p: rewards for p, rewards in groups.items() if len(set(rewards)) < 2}
    for problem, more in adaptive.extra(alike, beliefs, saved, GROUP).items():
        rewards = groups[problem]
        while not adaptive.enough(rewards, GROUP + more):
            rewards.append(draw(problem))
    for problem, rewards in groups.items():
        beliefs[problem] = beliefs.get(problem, Belief()).after(rewards)
    for problem, belief in beliefs.items():
        beliefs[problem] = belief.faded()
    counts = sum(map(len, groups.values()))
    return counts, sum(len(set(rewards)) > 1 for rewards in groups.values())


def simulate(shape: tuple[float, float], seed: int) -> list[int]:
    """Returns (attempts, mixed) of fixed groups, of adaptive ones in as many epochs, and of
    adaptive ones until there are as many mixed groups."""
    dice = random.Random(seed)
    chances = {f"p{i}": dice.betavariate(*shape) for i in range(PROBLEMS)}

    def draw(problem: str) -> float:
        return float(dice.random() < chances[problem])

    problems, beliefs = list(chances), dict[str, Belief]()
    fixed = [0, 0]
    for _ in range(EPOCHS):
        fixed = [a + b for a, b in zip(fixed, fixed_epoch(problems, draw), strict=True)]
    adapted, same = [0, 0], [0, 0]
    epoch = 0
    while epoch < EPOCHS or adapted[1] < fixed[1]:
        found = adaptive_epoch(problems, draw, beliefs, f"{seed}/{epoch}")
        adapted = [a + b for a, b in zip(adapted, found, strict=True)]
        epoch += 1
        if epoch == EPOCHS:
            same = list(adapted)
    return [*fixed, *same, *adapted]


def main() -> None:
    """Prints the table."""
    print("Attempts per mixed group (mixed groups in all), means of 200 repetitions:\n")
    print("| success rates | fixed | adaptive | ratio | adaptive, as many mixed groups | ratio |")
    print("|---|---|---|---|---|---|")
    for name, shape in MIXES.items():
        totals = [
            sum(column) / REPETITIONS
            for column in zip(*(simulate(shape, seed) for seed in range(REPETITIONS)), strict=True)
        ]
        cells = [(totals[i] / totals[i + 1], totals[i + 1]) for i in (0, 2, 4)]
        shown = [f"{cost:.2f} ({groups:.0f})" for cost, groups in cells]
        ratios = [f"{cost / cells[0][0]:.2f}" for cost, _ in cells]
        print(f"| {name} | {shown[0]} | {shown[1]} | {ratios[1]} | {shown[2]} | {ratios[2]} |")


if __name__ == "__main__":
    main()
