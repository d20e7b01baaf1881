"""Planted lessons on a real model: does a factorial gate let in more of what helps than a bundle?

    python -m benchmarks.learners.planted ANSWERS --model local:qwen2.5-coder-1.5b
    python -m benchmarks.learners.planted ANSWERS --report

Eight lessons are on trial at once, as if one step had brought them: three that state a convention
of the bills, two that do nothing each by itself and give a fourth convention together, one of no
effect, and two wrong ones. The model attempts 32 problems with all of them, with none, and with
halves of them; every answer goes into ANSWERS at once, so the command goes on where it was cut
off. Trials of both kinds are then drawn from these attempts, with problems drawn with replacement,
and decided by the gate's own rule and estimator. What a trial lets in is worth what a regression
on all attempts says, each lesson by itself and the pair together.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import click
import numpy as np
from numpy.typing import NDArray
from openai import OpenAI

from benchmarks.learners.arms.racing import RowFile, is_right, seeded
from benchmarks.learners.cells import machine
from benchmarks.learners.race import endpoint_options, served
from tfgrpo.evaluation.credit import Observation, estimate_effects
from tfgrpo.evaluation.statistics import interval, t_quantile
from tfgrpo.rendering import templates
from tfgrpo.settings import GateRule
from tfgrpo.training.gate_rules import passes

ROOT = Path(__file__).parents[2]
PROMPTS = ROOT / "examples" / "time-on-the-bill" / "prompts"
OBJECTIVE = (
    "A small firm bills its work. Write the calculation, then the result as a whole number in "
    "\\boxed{}."
)
LESSONS = {
    "helpful: days": "When days are turned into hours, multiply the days by 8.",
    "helpful: weeks": "When weeks are turned into working days, multiply the weeks by 5.",
    "helpful: months": "When months are turned into weekly visits, multiply the months by 4.",
    "pair: what": "Work in a cellar is class K work.",
    "pair: how": "When work is class K, multiply its hours by 3.",
    "null": "Bills are sent to the customer on the last day of each month.",
    "harmful: weeks": "When weeks are turned into working days, multiply the weeks by 6.",
    "harmful: round": "Round every result up to the next ten.",
}
NAMES = tuple(LESSONS)
PAIR = (NAMES.index("pair: what"), NAMES.index("pair: how"))
TRADES = ("mason", "tutor", "weaver", "roofer", "cleaner", "barber", "glazier", "plumber")
KINDS = (
    ("A {} needs {} days for the gate. How many hours are on the bill?", 8),
    ("A {} works for {} weeks. How many working days is that?", 5),
    ("A {} comes once a week. How many visits are on the bill for {} months?", 4),
    ("A {} works in the cellar for {} hours. How many hours are on the bill?", 3),
)
REPEATS = 4
"""Attempts at a problem with all lessons, and with none."""
SIZES = (1, 2, 4)
"""Pairs of attempts at each problem that a trial has."""
RULES: tuple[GateRule, ...] = ("one-se", "above-zero")
TRIALS = 2_000
MAX_TOKENS, TEMPERATURE = 80, 0.7
Mask = tuple[int, ...]
ALL, NONE = (1,) * len(NAMES), (0,) * len(NAMES)


class Try(NamedTuple):
    """One attempt: its problem's number, the lessons in its prompt, its place among those alike."""

    problem: int
    mask: Mask
    repeat: int


def problems() -> list[tuple[str, str]]:
    """Returns the problems with their answers, eight of each kind."""
    return [
        (text.format(trade, number), str(number * factor))
        for text, factor in KINDS
        for number, trade in zip((2, 3, 4, 5, 6, 7, 8, 9), TRADES, strict=True)
    ]


def halves() -> list[Mask]:
    """Returns 16 sets of lessons: each lesson, and each two of them in every way, in as many of
    them as out (a fraction of resolution IV; Box, Hunter and Hunter, Statistics for Experimenters,
    2005). The second eight lack what the first have."""
    runs = []
    for a, b, c, d in itertools.product((0, 1), repeat=4):
        runs.append(
            (a, b, c, d, (b + c + d) % 2, (a + c + d) % 2, (a + b + c) % 2, (a + b + d) % 2)
        )
    return runs[:8] + [tuple(1 - one for one in run) for run in runs[:8]]


def pairs_of(problem: int) -> list[tuple[Mask, Mask]]:
    """Returns the pairs of opposite halves that a problem is attempted with."""
    sets = halves()
    return [(sets[(problem + step) % 8], sets[(problem + step) % 8 + 8]) for step in (0, 1, 3, 6)]


def wanted() -> Iterator[Try]:
    """Yields all attempts, those with the same lessons in a row: they are read once then."""
    count = len(problems())
    by_mask: dict[Mask, list[int]] = {}
    for problem in range(count):
        for half in itertools.chain(*pairs_of(problem)):
            by_mask.setdefault(half, []).append(problem)
    for mask in (NONE, ALL):
        yield from (Try(p, mask, r) for r in range(REPEATS) for p in range(count))
    yield from (Try(p, mask, REPEATS) for mask, listed in by_mask.items() for p in listed)


def messages(mask: Mask, problem: str) -> list[dict[str, str]]:
    """Returns the prompt with some of the lessons, in an order of their own."""
    order = random.Random("planted").sample(range(len(NAMES)), len(NAMES))
    there = [LESSONS[NAMES[place]] for place in order if mask[place]]
    library = "\n".join(f"[G{n}] {text}" for n, text in enumerate(there)) or "(none yet)"
    values = {"agent_objective": OBJECTIVE, "library": library, "problem": problem}
    rendered = templates.load("rollout", PROMPTS).render(values)
    return [{"role": role, "content": content} for role, content in rendered]


def collect(client: OpenAI, model: str, answers: RowFile, concurrency: int) -> None:
    """Makes the attempts that are not there yet."""
    listed = problems()

    def attempt(one: Try) -> list[Any]:
        text, answer = listed[one.problem]
        reply = client.chat.completions.create(
            model=model,
            messages=messages(one.mask, text),  # type: ignore[arg-type]
            temperature=TEMPERATURE,
            max_tokens=MAX_TOKENS,
            seed=seeded("planted", *one),
        )
        response = reply.choices[0].message.content or ""
        return [*one, float("\\boxed" in response and is_right("number", answer, response))]

    done = {(row[0], tuple(row[1]), row[2]) for row in answers.rows}
    left = [one for one in wanted() if tuple(one) not in done]
    with ThreadPoolExecutor(concurrency) as pool:
        for number, row in enumerate(pool.map(attempt, left), 1):
            answers.add(row)
            if number % 64 == 0:
                click.echo(f"{number} of {len(left)}", err=True)


class Worth(NamedTuple):
    """What each lesson adds to the mean reward, and the pair beside its two, with an interval."""

    names: tuple[str, ...]
    means: NDArray[np.float64]
    errors: NDArray[np.float64]

    def of(self, mask: Sequence[int]) -> float:
        """Returns what a set of lessons adds."""
        return float(np.dot(_columns(mask), self.means))


def _columns(mask: Sequence[int]) -> NDArray[np.float64]:
    return np.array([*mask, mask[PAIR[0]] * mask[PAIR[1]]], dtype=float)


def worth_of(rows: Sequence[list[Any]]) -> Worth:
    """Returns the effects of the lessons by a regression on all attempts, within each problem, with
    standard errors that are clustered by problem."""
    problem = np.array([row[0] for row in rows])
    known = np.array([_columns(row[1]) for row in rows])
    reward = np.array([row[3] for row in rows])
    for one in np.unique(problem):
        there = problem == one
        known[there] -= known[there].mean(axis=0)
        reward[there] -= reward[there].mean()
    inverse = np.linalg.inv(known.T @ known)
    means = inverse @ known.T @ reward
    left = reward - known @ means
    scores = np.array([known[problem == p].T @ left[problem == p] for p in np.unique(problem)])
    errors = np.sqrt(np.diag(inverse @ scores.T @ scores @ inverse))
    return Worth((*NAMES, "pair: both"), means, errors)


class Attempts:
    """The rewards on record, to draw trials from."""

    def __init__(self, rows: Sequence[list[Any]]) -> None:
        self.by_key: dict[tuple[int, Mask], list[float]] = {}
        for problem, mask, _, reward in rows:
            self.by_key.setdefault((problem, tuple(mask)), []).append(reward)

    def bundle(self, dice: random.Random, size: int, rule: GateRule) -> Mask:
        """Returns what a trial of the bundle lets in, of so many pairs at each problem."""
        count = len(problems())
        differences = []
        for problem in dice.choices(range(count), k=count):
            both = [dice.sample(self.by_key[problem, mask], size) for mask in (ALL, NONE)]
            differences.append(fmean(both[0]) - fmean(both[1]))
        found = interval(differences)
        quantile = t_quantile(0.975, count - 1)
        error = (found.high - found.mean) / quantile
        return ALL if passes(rule, found.mean, error, quantile) else NONE

    def factorial(self, dice: random.Random, size: int, rule: GateRule) -> Mask:
        """Returns what a factorial trial lets in."""
        count = len(problems())
        seen = []
        for place, problem in enumerate(dice.choices(range(count), k=count)):
            for mask in itertools.chain(*dice.sample(pairs_of(problem), size)):
                missing = frozenset(n for n, there in zip(NAMES, mask, strict=True) if not there)
                reward = self.by_key[problem, mask][0]
                seen.append(Observation(str(place), str(place), NAMES, missing, reward))
        quantile = t_quantile(0.975, count - 1)
        kept = {
            one.experience
            for one in estimate_effects(seen)
            if passes(rule, one.effect, (one.high - one.effect) / quantile, quantile)
        }
        return tuple(int(name in kept) for name in NAMES)


def page(rows: Sequence[list[Any]], model: str) -> str:
    """Returns the report as Markdown."""
    worth, attempts, dice = worth_of(rows), Attempts(rows), random.Random("planted")
    mean = {mask: fmean(row[3] for row in rows if tuple(row[1]) == mask) for mask in (ALL, NONE)}
    best = tuple(int(not name.startswith(("null", "harmful"))) for name in NAMES)
    lines = [
        "# Planted lessons on a real model",
        "",
        f"Written by `python -m benchmarks.learners.planted`: {len(rows):,} attempts of {model} at "
        f"{len(problems())} problems, {machine()}. With none of the eight lessons "
        f"{mean[NONE]:.3f} are right, with all {mean[ALL]:.3f}.",
        "",
        "| lesson | adds, ± its standard error |",
        "|---|---:|",
        *(
            f"| {name} | {effect:+.3f} ± {error:.3f} |"
            for name, effect, error in zip(*worth, strict=True)
        ),
        "",
        f"The three that help and the pair add {worth.of(best):+.3f} in all. {TRIALS:,} trials a "
        "row; attempts are those of a whole trial, the same for both kinds.",
        "",
        "| attempts | trial | rule | worth of what enters | of what helps | below none "
        "| helpful, of 3 | whole pair | harmful, of 2 |",
        "|---:|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for size in SIZES:
        for name, rule in itertools.product(("bundle", "factorial"), RULES):
            trial = getattr(attempts, name)
            kept = [trial(dice, size, rule) for _ in range(TRIALS)]
            gains = [worth.of(mask) for mask in kept]
            shares = {
                kind: fmean(
                    sum(mask[n] for n, other in enumerate(NAMES) if other.startswith(kind))
                    for mask in kept
                )
                for kind in ("helpful", "harmful")
            }
            lines.append(
                f"| {2 * size * len(problems())} | {name} | {rule} | {fmean(gains):+.3f} | "
                f"{fmean(gains) / worth.of(best):.0%} | {fmean(g < -1e-9 for g in gains):.0%} | "
                f"{shares['helpful']:.2f} | "
                f"{fmean(mask[PAIR[0]] * mask[PAIR[1]] for mask in kept):.0%} | "
                f"{shares['harmful']:.2f} |"
            )
    return "\n".join(lines) + "\n"


@click.command()
@click.argument("answers", type=click.Path(path_type=Path, dir_okay=False))
@endpoint_options
@click.option("--concurrency", type=int, default=2, show_default=True)
@click.option("--report", is_flag=True, help="Report what is there, and ask nothing.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False))
def main(
    answers: Path,
    model: str,
    base_url: str | None,
    api_key_env: str | None,
    concurrency: int,
    report: bool,
    output: Path | None,
) -> None:
    """Try planted lessons by both kinds of gate, and report what each lets in."""
    file = RowFile(answers)
    if not report:
        with served(model, base_url, api_key_env) as (name, upstream):
            client = OpenAI(base_url=upstream.base_url, api_key=upstream.key or "none", timeout=600)
            collect(client, name, file, concurrency)
    text = page(file.rows, model)
    click.echo(text)
    if output is not None:
        output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
