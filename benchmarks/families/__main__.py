"""Measures learning on families of problems.

    python -m benchmarks.families show en-hotel --part train
    python -m benchmarks.families headroom RESULTS --family en-hotel --model local:NAME
    python -m benchmarks.families lookup RESULTS
    python -m benchmarks.families train RESULTS --family en-hotel --seed 0 --model local:NAME
    python -m benchmarks.families train RESULTS --file decisions.jsonl --domain json --model ...
    python -m benchmarks.families table RESULTS

RESULTS is a folder. A cell that is done is read from it, one that was cut off is gone on with.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from benchmarks.families import headroom, lookup, pooling, training
from benchmarks.families.family import PARTS, SIZES, Family, Given, Part
from benchmarks.families.registry import FAMILIES
from benchmarks.families.results import ResultFile

FOLDER = click.Path(path_type=Path, file_okay=False)
NAMED = click.Choice(list(FAMILIES))


def model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say which model is asked, handed over as `model`."""

    @wraps(command)
    def opened(
        base_url: str | None,
        api_key_env: str | None,
        model: str | None,
        concurrency: int | None,
        **rest: Any,
    ) -> Any:
        given = {
            "model": model,
            "base_url": base_url,
            "api_key_env": api_key_env,
            "concurrency": concurrency,
        }
        named = {name: value for name, value in given.items() if value is not None}
        return command(model=named, **rest)

    for option in (
        click.option("--concurrency", type=int, help="Requests in flight."),
        click.option("--api-key-env", help="The variable with its key."),
        click.option("--base-url", help="An endpoint that speaks the protocol of OpenAI."),
        click.option("--model", help="As in `tfgrpo train`; the local default without it."),
    ):
        opened = option(opened)
    return opened


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command("list")
def list_command() -> None:
    """List the families."""
    for family in FAMILIES.values():
        click.echo(f"{family.name}: {family.shape} ({family.domain.partition(':')[0]})")


@main.command("show")
@click.argument("family", type=NAMED)
@click.option("--part", type=click.Choice(PARTS), default="train", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--problems", type=int, help="How many; all of the part without it.")
def show_command(family: str, part: Any, seed: int, problems: int | None) -> None:
    """Print problems of a part as JSON lines."""
    for row in FAMILIES[family].draw(part, seed, problems):
        click.echo(json.dumps(row, ensure_ascii=False))


@main.command("lookup")
@click.argument("results", type=FOLDER)
def lookup_command(results: Path) -> None:
    """Score a lookup on test problems, beside the empty library.

    Each trained cell is beside the lookup on its own draw. A family without a cell is beside the
    empty library on development problems, by model. What a lookup beats by five points is refused.
    """
    cells = ResultFile(results / training.FILE).read()
    rooms = headroom.latest(results)
    click.echo("| family | seed | model | letters | numbers | empty | |")
    click.echo("|---|---:|---|---:|---:|---:|---|")
    for name, family in FAMILIES.items():
        known = [(c["seed"], c["model"], c["empty"]) for c in cells if c["family"] == name] or [
            (0, model, arms["empty"]["score"])
            for (of, model), arms in rooms.items()
            if of == name and "empty" in arms
        ]
        for seed, model, empty in known or [(0, "–", None)]:
            scores = lookup.lookup_scores(family, seed)
            verdict = lookup_verdict(max(scores.values()), empty)
            shown = "–" if empty is None else f"{empty:.3f}"
            ways = " | ".join(f"{score:.3f}" for score in scores.values())
            click.echo(f"| {name} | {seed} | {model} | {ways} | {shown} | {verdict} |")


def lookup_verdict(best: float, empty: float | None) -> str:
    """Returns whether a family may be used."""
    if empty is None:
        return "the empty library was not scored"
    return "used" if lookup.is_usable(best, empty) else "not used: a lookup answers it"


@main.command("headroom")
@click.argument("results", type=FOLDER)
@click.option("--family", "names", type=NAMED, multiple=True, help="All without it.")
@click.option("--problems", type=int, default=16, show_default=True)
@click.option("--samples", type=int, default=2, show_default=True)
@click.option(
    "--arm", "arms", type=click.Choice(headroom.ARMS), multiple=True, help="All without it."
)
@click.option("--table", "tabled", is_flag=True, help="Print what is done, and ask nothing.")
@model_options
def headroom_command(
    results: Path,
    names: tuple[str, ...],
    problems: int,
    samples: int,
    arms: tuple[str, ...],
    tabled: bool,
    model: dict[str, Any],
) -> None:
    """Score the empty library, rules by a person, and right examples on development problems."""
    if not tabled:
        for arm in arms or headroom.ARMS:
            for name in names or FAMILIES:
                one = headroom.measure(
                    results,
                    FAMILIES[name],
                    arm,
                    problems=problems,
                    samples=samples,
                    model=model,
                )
                click.echo(f"{name}, {arm}: {one['score']:.3f} {one['by_kind']}")
    click.echo(headroom.table(results))


@main.command("train")
@click.argument("results", type=FOLDER)
@click.option("--family", type=NAMED)
@click.option("--file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--domain", help="What judges the answers of --file.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--paper", is_flag=True, help="The published method in place of the defaults.")
@click.option("--gated", is_flag=True, help="Give the development problems as a gate.")
@click.option("--train", "trained", type=int, help="Training problems; 48 without it.")
@click.option("--test", "tested", type=int, help="Test problems; 60 without it.")
@click.option("--samples", type=int, default=2, show_default=True, help="Of a test problem.")
@click.option("--local", is_flag=True, help="Give an endpoint's model what a local one gets.")
@model_options
def train_command(
    results: Path,
    family: str | None,
    file: Path | None,
    domain: str | None,
    seed: int,
    paper: bool,
    gated: bool,
    trained: int | None,
    tested: int | None,
    samples: int,
    local: bool,
    model: dict[str, Any],
) -> None:
    """Train on a family and score the library on its test problems, beside the empty one.

    With --file, problems of your own are parted by the seed: as many to learn from and to measure
    on as --train and --test say, and 24 to choose with.
    """
    given = _given(family, file, domain)
    if isinstance(given, Given):
        cut: dict[Part, int | None] = {"train": trained, "test": tested}
        sizes = {part: cut.get(part) or SIZES[part] for part in PARTS}
        given = replace(given, sizes=sizes)
    cell = training.Cell(
        given,
        seed,
        "paper" if paper else "default",
        gated,
        trained,
        tested,
        samples,
        model,
        local,
    )
    done = training.run_cell(results, cell)
    mean, low, high = done["gain"]
    click.echo(
        f"{given.name}, seed {seed}: {done['empty']:.3f} → {done['learned']:.3f} ({mean:+.3f} "
        f"[{low:+.3f}, {high:+.3f}]), {done['calls']} calls, {done['seconds'][0]:.0f} s"
    )


def _given(family: str | None, file: Path | None, domain: str | None) -> Family | Given:
    """Returns what is learned from. Raises UsageError."""
    if family and not (file or domain):
        return FAMILIES[family]
    if family or not (file and domain):
        raise click.UsageError("give --family, or --file and --domain")
    lines = file.read_text(encoding="utf-8").splitlines()
    return Given(file.stem, domain, [json.loads(line) for line in lines if line.strip()])


@main.command("table")
@click.argument("results", type=FOLDER)
def table_command(results: Path) -> None:
    """Print the gains of all cells, pooled, and every run that lost."""
    click.echo(pooling.page(ResultFile(results / training.FILE).read()))


if __name__ == "__main__":
    main()
