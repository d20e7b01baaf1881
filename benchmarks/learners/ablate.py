"""Options of learning, each on and off, on the bills of `examples/time-on-the-bill`.

    python -m benchmarks.learners.ablate RESULTS --list            # the cells, and which are done
    python -m benchmarks.learners.ablate RESULTS exemplars-1 --seed 0
    python -m benchmarks.learners.ablate RESULTS base --base-url http://127.0.0.1:8000/v1 --model m
    python -m benchmarks.learners.ablate RESULTS --table

One cell is one option beside the defaults (`base` is none), one model and one seed. It is an
ordinary run, in a store of its own in the folder RESULTS: the same command goes on with one that
was cut off, and one that is done leaves its result as a JSON file and is not made again. So the
table grows over days, and cells of several machines can be put into one folder. Each cell learns
from the training problems, is gated on development problems where it has a gate, and is compared
with the empty library on the held-out problems, once.
"""

from __future__ import annotations

import json
import re
import runpy
import time
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parents[2]
BILLS = ROOT / "examples" / "time-on-the-bill"
GATED = 12
"""The development problems that the gate has."""
OPTIONS: dict[str, dict[str, Any]] = {
    "base": {},
    "ahead-1": {"lessons_ahead": 1},
    "batch": {"controller": "batch"},
    "max-edits-2": {"max_edits": 2},
    "max-edits-4": {"max_edits": 4},
    "all-wrong-2": {"all_wrong": 2},
    "all-wrong-4": {"all_wrong": 4},
    "blame": {"blame": True},
    "exemplars-1": {"exemplars": 1},
    "exemplars-2": {"exemplars": 2},
    "gate": {"gate_samples": 4},
    "gate-factorial": {"gate_samples": 4, "gate_trial": "factorial"},
    "gate-exemplars-1": {"gate_samples": 4, "exemplars": 1},
}
"""The cells: what is set beside the defaults."""
FIXED: dict[str, Any] = {"epochs": 2, "batch_size": 12, "group_size": 5, "heldout_samples": 8}
EXAMPLE_PROMPTS = ("agent_objective", "learning_objective", "max_tokens", "summarise_over")
"""What a cell takes of the example's settings; its worked prompts only with --example-prompts."""


def cell_name(option: str, seed: int, model: str | None, *, worked: bool) -> str:
    """Returns what a cell's store and result are called."""
    said = re.sub(r"[^A-Za-z0-9.]+", "-", model or "default").strip("-")
    return f"{option}-{said}{'-worked' if worked else ''}-seed{seed}"


def write_data(folder: Path, limit: int | None) -> tuple[Path, Path]:
    """Writes the problems to learn from and those of the gate; returns their files."""
    lines = (BILLS / "train.jsonl").read_text(encoding="utf-8").splitlines()
    drawn = runpy.run_path(str(BILLS / "problems.py"))["draw"]("dev", GATED)
    parts = {"train": lines, "gate": [json.dumps(row) for row in drawn]}
    for name, part in parts.items():
        text = "".join(f"{line}\n" for line in part[:limit])
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder / "train.jsonl", folder / "gate.jsonl"


def run_cell(
    results: Path, option: str, seed: int, model: dict[str, Any], *, worked: bool, limit: int | None
) -> dict[str, Any]:
    """Makes a cell, or what is left of it, and returns its result, which is also written.

    `model` are settings of the endpoint, none for the local default; `limit` is the most problems
    of each kind, for a try. Raises TfgrpoError, and what is done stays done.
    """
    import tomllib

    import tfgrpo

    name = cell_name(option, seed, model.get("model"), worked=worked)
    written = results / f"{name}.json"
    if written.exists():
        found: dict[str, Any] = json.loads(written.read_text(encoding="utf-8"))
        return found
    folder = results / name
    folder.mkdir(parents=True, exist_ok=True)
    train, gate = write_data(folder, limit)
    example = tomllib.loads((BILLS / "tfgrpo.toml").read_text(encoding="utf-8"))["train"]
    settings = {key: example[key] for key in EXAMPLE_PROMPTS if key in example}
    settings |= {**FIXED, **OPTIONS[option], **model, "seed": seed}
    if worked:
        settings["prompts"] = str(BILLS / "prompts")
    if "gate_samples" in settings:
        settings["gate"] = str(gate)
    if limit is not None:
        settings["heldout_problems"] = limit
    config = folder / "tfgrpo.toml"  # no other project's settings are those of a cell
    config.touch()
    started = time.time()
    result = tfgrpo.train_sync(
        str(train),
        store=folder / "store.db",
        config=config,
        run="cell",
        heldout=str(BILLS / "heldout.jsonl"),
        keep_going=True,
        **settings,
    )
    assert result.comparison is not None
    estimate, usage = result.comparison.difference.estimate, result.cost.usage
    found = {
        "option": option,
        "seed": seed,
        "model": result.comparison.model,
        "worked_prompts": worked,
        "settings": OPTIONS[option],
        "problems": estimate.problems,
        "empty": result.comparison.control_mean,
        "mean": result.comparison.mean,
        "difference": [estimate.mean, estimate.low, estimate.high],
        "p": result.comparison.difference.p,
        "library": [experience.text for experience in result.library],
        "calls": usage.calls,
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "seconds_of_last_session": result.seconds,
        "ended": started + result.seconds,
        "version": tfgrpo.__version__,
    }
    written.write_text(json.dumps(found, indent=1, ensure_ascii=False), encoding="utf-8")
    return found


def table(results: Path) -> str:
    """Returns the cells that are done as Markdown: each seed, and each option beside `base`."""
    cells = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))
    ]
    lines = ["| option | model | seed | empty | learned | difference | experiences | tokens |"]
    lines.append("|---|---|---:|---:|---:|---|---:|---:|")
    for cell in sorted(cells, key=lambda c: (list(OPTIONS).index(c["option"]), c["seed"])):
        mean, low, high = cell["difference"]
        tokens = cell["prompt_tokens"] + cell["completion_tokens"]
        worked = ", worked prompts" if cell["worked_prompts"] else ""
        lines.append(
            f"| {cell['option']} | {cell['model']}{worked} | {cell['seed']} |"
            f" {cell['empty']:.3f} | {cell['mean']:.3f} | {mean:+.3f} [{low:+.3f}, {high:+.3f}] |"
            f" {len(cell['library'])} | {tokens:,} |"
        )
    lines += [
        "",
        "| option | seeds | mean gain | beside base, same seeds |",
        "|---|---:|---:|---:|",
    ]
    gains: dict[tuple[str, str, bool], dict[int, float]] = {}
    for cell in cells:
        key = (cell["option"], cell["model"], cell["worked_prompts"])
        gains.setdefault(key, {})[cell["seed"]] = cell["difference"][0]
    for (option, model, worked), by_seed in sorted(gains.items()):
        base = gains.get(("base", model, worked), {})
        shared = [by_seed[seed] - base[seed] for seed in by_seed if seed in base]
        beside = f"{sum(shared) / len(shared):+.3f}" if shared and option != "base" else "–"
        mean = sum(by_seed.values()) / len(by_seed)
        lines.append(f"| {option}, {model} | {len(by_seed)} | {mean:+.3f} | {beside} |")
    return "\n".join(lines)


@click.command()
@click.argument("results", type=click.Path(path_type=Path, file_okay=False))
@click.argument("option", required=False, type=click.Choice(list(OPTIONS)))
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--model", help="As in `tfgrpo train`; the local default without it.")
@click.option("--base-url", help="An endpoint that speaks the protocol of OpenAI.")
@click.option("--api-key-env", help="The variable with its key.")
@click.option("--reflection-model", help="Another model for reflection.")
@click.option("--example-prompts", is_flag=True, help="With the example's worked prompts.")
@click.option("--limit", type=int, help="The first problems alone, for a try.")
@click.option("--list", "listed", is_flag=True, help="List the cells.")
@click.option("--table", "tabled", is_flag=True, help="Print the table of what is done.")
def main(
    results: Path,
    option: str | None,
    seed: int,
    example_prompts: bool,
    limit: int | None,
    listed: bool,
    tabled: bool,
    **model: str | None,
) -> None:
    """Makes one cell, or prints the table."""
    if listed:
        for name, settings in OPTIONS.items():
            done = sorted(results.glob(f"{name}-*seed*.json"))
            known = [path.stem for path in done if json.loads(path.read_text())["option"] == name]
            click.echo(f"{name}: {settings or 'the defaults'}; done: {', '.join(known) or 'none'}")
    elif tabled:
        click.echo(table(results))
    elif option is None:
        raise click.UsageError("name an option, or give --list or --table")
    else:
        given = {key: value for key, value in model.items() if value is not None}
        cell = run_cell(results, option, seed, given, worked=example_prompts, limit=limit)
        mean, low, high = cell["difference"]
        click.echo(f"{option}, seed {seed}: {mean:+.3f} [{low:+.3f}, {high:+.3f}]")


if __name__ == "__main__":
    main()
