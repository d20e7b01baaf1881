"""Exact rewards beside sampled ones: their variance within a group, and what the codes' order does.

    tfgrpo model serve qwen2.5-coder-0.5b --port 8090
    python -m benchmarks.exact --base-url http://127.0.0.1:8090/v1 --model qwen2.5-coder-0.5b

Messages with four to eight labels each, attempted in groups of eight at temperature 0.7: as ever (a
sentence, then the label), and by the letters' probabilities. A letter that is drawn by those is a
sampled answer to the same prompt, so it tells the noise of sampling from what the other prompt
does. Every group is made by the product's own code, its calls in a journal of its own. The exact
way is also gone through in every turn of an order of the letters, and of a second one for every
fourth problem, so that it shows what an order does and what is left of that in a mean. `--write`
adds the table to RESULTS-exact.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, pstdev, variance
from typing import Any

import click

from tfgrpo.data.problems import Problem
from tfgrpo.domains import choice
from tfgrpo.domains.base import Context, Domain, Sampling
from tfgrpo.domains.few_answers import CODES, code_answers
from tfgrpo.domains.verifier import Verifier
from tfgrpo.model.client import CallConditions, Calls
from tfgrpo.model.endpoint import Endpoint
from tfgrpo.rollout.attempt import EXACT, Rollout, attempt, rendered
from tfgrpo.rollout.exact_rewards import exactly
from tfgrpo.settings import EvalSettings
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.records import Library
from tfgrpo.store.store import Store

RESULTS = Path(__file__).with_name("RESULTS-exact.md")
HEAD = """# Exact rewards

`python -m benchmarks.exact` makes a part of this page for a model; its docstring says how.
"""
GROUP = 8
AT_ONCE = 8
TEMPERATURE = 0.7
TOKENS = 96
SHOPS: dict[str, dict[str, tuple[str, str]]] = {
    "bikes": {
        "booking": ("Can I keep it until Sunday?", "We will be six instead of four."),
        "damage": ("The chain came off on the way.", "The display stays dark."),
        "billing": ("The deposit has not come back.", "Why is there a cleaning fee?"),
        "lost property": ("I left my gloves in the basket.", "Did anybody hand in a helmet?"),
    },
    "bank": {
        "card arrival": ("It was posted two weeks ago and is not here.", "When will it reach me?"),
        "card not working": ("The machine refuses it.", "It is declined in every shop."),
        "lost card": ("I think I dropped it on the train.", "My wallet was stolen."),
        "forgotten pin": ("I cannot remember the four digits.", "I typed it wrong three times."),
        "exchange rate": ("I got fewer euros than expected.", "How is the pound converted?"),
    },
    "town": {
        "waste": ("The bins were not emptied.", "Where do I take an old fridge?"),
        "roads": ("There is a hole in our street.", "The traffic light is stuck on red."),
        "schools": ("How do I enrol my daughter?", "Is there a place in the third class?"),
        "taxes": ("I do not agree with the dog levy.", "When is the property payment due?"),
        "passports": ("Mine expires in May.", "Do I need a new photo?"),
        "parks": ("A swing is broken.", "May we hold a picnic for fifty people?"),
    },
    "software": {
        "crash": ("It closes by itself.", "The window disappears when I save."),
        "slowness": ("Opening a file takes a minute.", "Typing lags behind."),
        "login": ("It says my password is wrong.", "The code by text never comes."),
        "feature request": ("It would be good to have a dark theme.", "Please add Spanish."),
        "billing": ("I was charged twice this month.", "I need an invoice."),
        "installation": ("The setup stops half way.", "Which version do I download?"),
        "documentation": ("The manual still shows the old menu.", "A page of the guide is empty."),
        "security": ("I found a way to read other people's notes.", "Somebody used my account."),
    },
}
EDGES: dict[str, dict[str, str]] = {
    "bikes": {
        "You took money for a lamp that I did not break.": "billing",
        "Is the bike with the bent wheel free tomorrow?": "booking",
    },
    "bank": {
        "The new one is here, but shops will not take it.": "card not working",
        "It was in the jacket that I gave away.": "lost card",
    },
    "town": {
        "Somebody left a sofa on the playground.": "waste",
        "The path to the school is icy.": "roads",
    },
    "software": {
        "After paying it still shows the trial.": "billing",
        "It hangs for an hour and then is gone.": "crash",
    },
}
"""Messages at the border of two labels: there a model wavers."""
SHOWN = {
    "sampled": "as ever: a sentence, then the label",
    "letter": "a letter, drawn by the probabilities",
    "exact": "the letters' probabilities",
}
ORDERS = (0, 1)
"""The seeds of two orders, each gone through turn by turn."""


@dataclass(frozen=True, slots=True)
class Case:
    """A problem with its domain: the labels of its shop."""

    problem: Problem
    domain: Domain


def cases() -> Iterator[Case]:
    """Yields the problems, shop by shop."""
    for shop, labels in SHOPS.items():
        domain = choice.with_options(json.dumps(list(labels)))
        asked = {text: label for label, texts in labels.items() for text in texts} | EDGES[shop]
        for number, (text, label) in enumerate(asked.items()):
            yield Case(Problem(f"{shop}-{number}", text, label), domain)


@dataclass(frozen=True, slots=True)
class Asking:
    """What attempts are made with."""

    calls: Calls
    verifier: Verifier
    exact: EvalSettings
    empty: Library

    async def attempts(self, case: Case, way: str, samples: int, seed: int = 0) -> list[Rollout]:
        """Returns attempts at a problem, in a way of `SHOWN`."""
        domain = exactly(case.domain, self.exact) if way == "exact" else case.domain
        return list(
            await asyncio.gather(
                *(attempt(domain, self._context(case, way, n, seed)) for n in range(samples))
            )
        )

    def _context(self, case: Case, way: str, sample: int, seed: int) -> Context:
        domain, problem = case.domain, case.problem
        template, library = domain.template("rollout"), self.empty
        messages = rendered(domain, template, library, problem, domain.agent_objective)
        return Context(
            problem,
            messages,
            self.calls,
            self.calls,
            self.verifier,
            Sampling(TEMPERATURE, TOKENS, seed),
            sample,
            (way, problem.id),
        )

    @staticmethod
    def codes(case: Case, sample: int, seed: int) -> dict[str, str]:
        """Returns the codes that an exact attempt has."""
        assert case.domain.answers is not None
        answers = case.domain.answers(case.problem)
        return code_answers(answers, (seed, case.problem.id), sample)


@dataclass(frozen=True, slots=True)
class Measured:
    """What one problem's groups came to: rewards by way, and by the turn of each of two orders."""

    rewards: dict[str, list[float]]
    turns: tuple[list[float], ...]
    by_code: tuple[float, ...]
    """The probability of each code, in the mean over the turns of both orders."""
    outside: list[float]


async def measure(asking: Asking, case: Case, *, twice: bool) -> Measured:
    """Makes the groups of a problem; with `twice` every turn of a second order too."""
    sampled = await asking.attempts(case, "sampled", GROUP)
    exact = [one for one in await asking.attempts(case, "exact", GROUP) if _exact(one)]
    assert case.domain.answers is not None
    count = len(case.domain.answers(case.problem))
    orders = ORDERS if twice else ORDERS[:1]
    turns = [await asking.attempts(case, "exact", count, seed) for seed in orders]
    shares = [0.0] * count
    for seed, rollouts in zip(orders, turns, strict=True):
        for turn, one in enumerate(rollouts):
            chances = _exact(one).get("chances", {})
            for place, answer in enumerate(asking.codes(case, turn, seed).values()):
                shares[place] += chances.get(answer, 0.0) / len(orders) / count
    return Measured(
        {
            "sampled": _rewards(sampled),
            "letter": [one.own_reward for one in exact if one.own_reward is not None],
            "exact": _rewards(exact),
        },
        tuple(map(_rewards, turns)),
        tuple(shares),
        [float(one["outside"]) for one in map(_exact, exact)],
    )


def _rewards(rollouts: list[Rollout]) -> list[float]:
    return [one.reward for one in rollouts if one.reward is not None]


def _exact(rollout: Rollout) -> dict[str, Any]:
    """Returns what a verdict says of chances; nothing where the attempt was sampled."""
    detail = rollout.details.get(EXACT)
    return dict(detail) if isinstance(detail, dict) else {}


def table(model: str, measured: list[Measured]) -> str:
    """Returns the figures as a part of the page."""
    spread = {
        way: fmean(variance(one.rewards[way]) for one in measured if len(one.rewards[way]) > 1)
        for way in SHOWN
    }
    mean = {
        way: fmean(map(fmean, (m.rewards[way] for m in measured if m.rewards[way])))
        for way in spread
    }
    exact = sum(len(one.rewards["exact"]) for one in measured)
    lines = [
        f"## {model}",
        "",
        f"{len(measured)} problems, groups of {GROUP}, temperature {TEMPERATURE}. Exact were "
        f"{exact} of {GROUP * len(measured)} attempts; the letters held "
        f"{1 - fmean(x for one in measured for x in one.outside):.3f} of the probability on "
        "average.",
        "",
        "| attempts | mean reward | variance within a group | attempts that one exact one is worth "
        "|",
        "|---|---|---|---|",
    ]
    for way, words in SHOWN.items():
        ratio = spread[way] / spread["exact"] if spread["exact"] else float("inf")
        lines.append(f"| {words} | {mean[way]:.3f} | {spread[way]:.4f} | {ratio:.1f} |")
    twice = [one for one in measured if len(one.turns) == len(ORDERS)]
    single = [a - b for one in twice for a, b in zip(*one.turns, strict=True)]
    whole = [fmean(one.turns[0]) - fmean(one.turns[1]) for one in twice]
    most = max(len(one.by_code) for one in measured)
    places = []
    for place in range(most):
        there = [
            one.by_code[place] * len(one.by_code) for one in measured if place < len(one.by_code)
        ]
        places.append(f"{CODES[place]} {fmean(there):.2f}")
    lines += [
        "",
        "How likely each letter is when every label has stood under it, 1 being its due: "
        + ", ".join(places)
        + ".",
        "",
        f"| the same problem under two orders ({len(twice)} problems) | mean difference | "
        "standard deviation of it |",
        "|---|---|---|",
        f"| one attempt each | {fmean(single):+.3f} | {pstdev(single):.3f} |",
        f"| the mean over every turn of each | {fmean(whole):+.3f} | {pstdev(whole):.3f} |",
        "",
    ]
    return "\n".join(lines)


async def run(endpoint: Endpoint, folder: Path, problems: int | None) -> str:
    """Measures a model; returns the table. Its calls are kept in the folder."""
    there = list(cases())
    if problems is not None:  # of every shop alike
        there = [there[n * len(there) // problems] for n in range(problems)]
    settings = EvalSettings(data="", domain="choice", answers="exact")
    path = folder / "store.db"
    with (
        Verifier(workers=1, warm=False) as verifier,
        Store.open(path) if path.exists() else Store.init(path) as store,
    ):
        journal = Journal(store.port.records.writer())
        conditions = CallConditions("benchmark", concurrency=AT_ONCE)
        calls = Calls(endpoint, journal, store.runs, conditions)
        try:
            asking = Asking(calls, verifier, settings, store.library(store.head.version))
            measured = [
                await measure(asking, case, twice=number % 4 == 0)
                for number, case in enumerate(there)
            ]
        finally:
            journal.close()
            await calls.endpoint.close()
    return table(endpoint.model, measured)


@click.command()
@click.option("--base-url", required=True, help="An endpoint that tells log-probabilities.")
@click.option("--model", required=True, help="What the model is called there.")
@click.option("--api-key-env", help="Environment variable with the key.")
@click.option("--write", is_flag=True, help=f"Add the table to {RESULTS.name}.")
@click.option("--problems", type=click.IntRange(4), help="How many of the problems.  [all]")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Where the calls are kept, so that none is made again.  [a temporary one]",
)
def main(
    base_url: str,
    model: str,
    api_key_env: str | None,
    write: bool,
    problems: int | None,
    folder: Path | None,
) -> None:
    """Measure exact rewards beside sampled ones."""
    key = os.environ[api_key_env] if api_key_env else None
    with tempfile.TemporaryDirectory() as temporary:
        endpoint = Endpoint(model, base_url, key)
        text = asyncio.run(run(endpoint, folder or Path(temporary), problems))
    click.echo(text)
    if write:
        there = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else HEAD
        RESULTS.write_text(f"{there.rstrip()}\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
