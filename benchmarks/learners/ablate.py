"""Options of learning, each on and off, on the kinds of problems of `kinds.py`.

    python -m benchmarks.learners.ablate RESULTS --list            # the options
    python -m benchmarks.learners.ablate RESULTS numbers confirm-2 --seed 0
    python -m benchmarks.learners.ablate RESULTS numbers base --base-url URL --model M
    python -m benchmarks.learners.ablate RESULTS --table

One cell is one option beside the settings of a kind (`base` is none), one model and one seed; see
`kinds.py` for what a cell does and leaves behind. So the table grows over days, and cells of
several machines can be put into one folder. A server that answers the same request with the same
words (`server.py --answers`) gives an option and `base` the same attempts wherever their prompts
are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from benchmarks.learners.kinds import KINDS, Cell, read_cells, run_cell

OPTIONS: dict[str, dict[str, Any]] = {
    "base": {},
    "ahead-1": {"lessons_ahead": 1},
    "batch": {"controller": "batch"},
    "max-edits-2": {"max_edits": 2},
    "max-edits-4": {"max_edits": 4},
    "confirm-2": {"confirm": 2},
    "all-wrong-2": {"all_wrong": 2},
    "all-wrong-4": {"all_wrong": 4},
    "blame": {"blame": True},
    "exemplars-1": {"exemplars": 1},
    "exemplars-2": {"exemplars": 2},
    "gate": {"gate_samples": 4},
    "gate-factorial": {"gate_samples": 4, "gate_trial": "factorial"},
    "gate-exemplars-1": {"gate_samples": 4, "exemplars": 1},
}
"""What is set beside the settings of a kind."""


def table(results: Path) -> str:
    """Returns the cells that are done as Markdown: each seed, and each option beside `base`."""
    cells = read_cells(results)
    lines = [
        "| kind | option | seed | empty | learned | difference | experiences | tokens |",
        "|---|---|---:|---:|---:|---|---:|---:|",
    ]
    scores: dict[tuple[str, str, str], dict[int, tuple[float, float, float]]] = {}
    for cell in cells:
        mean, low, high = cell["difference"]
        lines.append(
            f"| {cell['kind']} | {cell['option']} | {cell['seed']} | {cell['empty']:.3f} | "
            f"{cell['mean']:.3f} | {mean:+.3f} [{low:+.3f}, {high:+.3f}] | "
            f"{len(cell['library'])} | {cell['tokens']:,} |"
        )
        key = (cell["kind"], cell["option"], cell["model"])
        scores.setdefault(key, {})[cell["seed"]] = (mean, cell["mean"], cell["tokens"])
    lines += [
        "",
        "| kind | option | model | seeds | mean gain | learned beside base | tokens |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for (kind, option, model), seeds in scores.items():
        gain = sum(score[0] for score in seeds.values()) / len(seeds)
        base = scores.get((kind, "base", model), {}) if option != "base" else {}
        shared = sorted(seeds.keys() & base.keys())
        better = [seeds[seed][1] - base[seed][1] for seed in shared]
        dearer = [seeds[seed][2] / base[seed][2] for seed in shared]
        beside = f"{sum(better) / len(better):+.3f}" if better else "–"
        cost = f"× {sum(dearer) / len(dearer):.2f}" if dearer else "–"
        lines.append(
            f"| {kind} | {option} | {model} | {len(seeds)} | {gain:+.3f} | {beside} | {cost} |"
        )
    return "\n".join(lines)


@click.command()
@click.argument("results", type=click.Path(path_type=Path, file_okay=False))
@click.argument("kind", required=False, type=click.Choice(list(KINDS)))
@click.argument("option", required=False, type=click.Choice(list(OPTIONS)))
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--model", help="As in `tfgrpo train`; the local default without it.")
@click.option("--base-url", help="An endpoint that speaks the protocol of OpenAI.")
@click.option("--api-key-env", help="The variable with its key.")
@click.option("--reflection-model", help="Another model for reflection.")
@click.option("--concurrency", type=int, default=16, show_default=True)
@click.option("--local", is_flag=True, help="Settings as for local:NAME, with --base-url.")
@click.option("--list", "listed", is_flag=True, help="List the options.")
@click.option("--table", "tabled", is_flag=True, help="Print the table of what is done.")
def main(
    results: Path,
    kind: str | None,
    option: str | None,
    seed: int,
    local: bool,
    listed: bool,
    tabled: bool,
    **model: str | int | None,
) -> None:
    """Makes one cell, or prints the table."""
    if listed:
        for name, settings in OPTIONS.items():
            click.echo(f"{name}: {settings or 'the settings of the kind'}")
    elif tabled:
        click.echo(table(results))
    elif kind is None or option is None:
        raise click.UsageError("name a kind and an option, or give --list or --table")
    else:
        given = {key: value for key, value in model.items() if value is not None}
        cell = run_cell(results, Cell(kind, seed, option, OPTIONS[option]), given, local=local)
        mean, low, high = cell["difference"]
        click.echo(f"{kind}, {option}, seed {seed}: {mean:+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
