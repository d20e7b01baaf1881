"""The race of learners: one command for one cell, one for the table.

    python -m benchmarks.learners.race measure --base-url URL --model M -o speeds.json
    python -m benchmarks.learners.race headroom RESULTS bills --base-url URL --model M \
        --speeds speeds.json
    python -m benchmarks.learners.race cell RESULTS bills gepa --base-url URL --model M \
        --speeds speeds.json --seed 0 --budget 3600 --venvs FOLDER
    python -m benchmarks.learners.race list RESULTS
    python -m benchmarks.learners.race table RESULTS

`--model local:NAME` in place of `--base-url` serves one of `tfgrpo model list` for the time of the
command. A cell that is done is read, one that was cut off is gone on with, and one that was made
with other choices or other code is refused. benchmarks/README.md says how a race on a model of
your own is made.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from benchmarks.learners import cells
from benchmarks.learners.cells import NEEDED, Setting
from benchmarks.learners.meter import Meter, Speeds, Upstream, measure
from benchmarks.learners.tasks import TASKS, find_task
from benchmarks.machine import machine

LOCAL = "local:"
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False)


@contextmanager
def served(model: str, base_url: str | None, key_env: str | None) -> Iterator[tuple[str, Upstream]]:
    """Opens the endpoint of a model; yields the name that it is asked by, and where."""
    if not model.startswith(LOCAL):
        if base_url is None:
            raise click.UsageError("--base-url says where the model is, or --model local:NAME")
        if key_env and key_env not in os.environ:
            raise click.UsageError(f"{key_env} is not set")
        yield model, Upstream(base_url, os.environ[key_env] if key_env else None)
        return
    from tfgrpo.connect import CONTEXT, local_slots, model_cache
    from tfgrpo.local.fetch import fetch
    from tfgrpo.local.model_list import find
    from tfgrpo.local.model_server import LocalServer, ServerOptions

    entry = find(model.removeprefix(LOCAL))
    path = fetch(entry, model_cache(os.environ).folder, None)
    options = ServerOptions(n_parallel=local_slots(), context=CONTEXT, sha256=entry.sha256)
    with LocalServer(path, entry.name, options) as server:
        yield entry.name, Upstream(server.base_url, server.key)


def endpoint_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that say which model is asked, and where."""
    for option in (
        click.option("--api-key-env", help="The variable with the key."),
        click.option("--base-url", help="An endpoint that speaks the protocol of OpenAI."),
        click.option("--model", required=True, help="Its model, or local:NAME."),
    ):
        command = option(command)
    return command


def setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a cell, and hands them over as a Setting and a Task."""

    @functools.wraps(command)
    def opened(
        results: Path,
        task: str,
        model: str,
        base_url: str | None,
        api_key_env: str | None,
        speeds: Path,
        data: Path | None,
        limit: int | None,
        local: bool,
        **rest: Any,
    ) -> Any:
        names = ("budget", "samples", "temperature", "max_tokens", "concurrency")
        numbers = {name: rest.pop(name) for name in names if name in rest}
        results.mkdir(parents=True, exist_ok=True)
        problems = find_task(task, data, limit)
        with served(model, base_url, api_key_env) as (name, upstream):
            setting = Setting(
                results,
                name,
                upstream,
                Speeds.read(speeds),
                **{"budget": 0.0, **numbers},
                local=local or model.startswith(LOCAL),
            )
            return command(setting, problems, **rest)

    for option in (
        click.option("--concurrency", type=int, default=8, show_default=True),
        click.option(
            "--max-tokens", type=int, default=400, show_default=True, help="Of an attempt."
        ),
        click.option("--temperature", type=float, default=0.7, show_default=True),
        click.option("--limit", type=int, help="The first problems of each part, for a try."),
        click.option("--data", type=FOLDER, help="The folder with the files of formula or labels."),
        click.option("--speeds", type=FILE, required=True, help="The file that `measure` wrote."),
        click.option("--local", is_flag=True, help="Settings as for local:NAME."),
        endpoint_options,
        click.argument("task", type=click.Choice(list(TASKS))),
        click.argument("results", type=FOLDER),
    ):
        opened = option(opened)
    return opened


@click.group()
def main() -> None:
    """Learners side by side on one model, at one budget."""


@main.command("measure")
@endpoint_options
@click.option("-o", "--output", type=FILE, required=True)
def measure_command(
    model: str, base_url: str | None, api_key_env: str | None, output: Path
) -> None:
    """Measure how fast the server reads and writes, once, with nothing else going on."""
    with served(model, base_url, api_key_env) as (name, upstream):
        speeds = {**measure(upstream, name), "machine": machine()}
    output.write_text(json.dumps(speeds, indent=1) + "\n", encoding="utf-8")
    click.echo(f"reads {speeds['prefill']:g} and writes {speeds['decode']:g} tokens a second")


@main.command("meter")
@endpoint_options
@click.option("--speeds", type=FILE, required=True)
@click.option("--ledgers", type=FOLDER, required=True, help="Where a name's calls are recorded.")
@click.option("--budget", type=float, help="Compute-seconds of each name.")
@click.option("--port", type=int, default=8900, show_default=True)
def meter_command(
    model: str,
    base_url: str | None,
    api_key_env: str | None,
    speeds: Path,
    ledgers: Path,
    budget: float | None,
    port: int,
) -> None:
    """Serve the meter alone, for a learner that is no arm here."""
    with served(model, base_url, api_key_env) as (name, upstream):
        meter = Meter(upstream, Speeds.read(speeds), ledgers, budget=budget, port=port)
        click.echo(f"{meter.address}/NAME/v1 asks {name}; {meter.address}/NAME/spent tells")
        meter.serve()


@main.command("headroom")
@setting_options
def headroom_command(setting: Setting, task: Any) -> None:
    """Measure whether there is anything to learn: rules by hand, and right examples."""
    result = cells.headroom(setting, task)
    means = ", ".join(f"{name} {mean:.3f}" for name, mean in result["means"].items())
    verdict = "raced" if result["has_headroom"] else "without headroom, not raced"
    click.echo(f"{task.name}: {means}: {result['gain']:+.3f}, {verdict}")


@main.command("cell")
@setting_options
@click.argument("arm", type=click.Choice(list(NEEDED)))
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--budget", type=float, required=True, help="Compute-seconds, reflection included.")
@click.option("--samples", type=int, default=4, show_default=True, help="Of a sealed problem.")
@click.option("--venvs", type=FOLDER, help="Where the peers' environments are made.")
@click.option("--anyway", is_flag=True, help="Without a headroom, or before it was measured.")
def cell_command(
    setting: Setting, task: Any, arm: str, seed: int, venvs: Path | None, anyway: bool
) -> None:
    """Make one cell, or what is left of it."""
    if not anyway:
        measured = cells.measured_headroom(setting, task)
        if measured is None:
            raise click.UsageError(f"measure the headroom of {task.name} first, or give --anyway")
        if not measured["has_headroom"]:
            click.echo(f"{task.name} is without headroom on {setting.model}, and not raced")
            return
    result = cells.run_cell(setting, task, arm, seed, venvs)
    spent = result["spent"]
    click.echo(
        f"{task.name}, {arm}, seed {seed}: best {result['best']['mean']:.3f}, final "
        f"{result['final']['mean']:.3f}; {spent['spent']:.1f} of {result['budget']:g} "
        f"compute-seconds in {spent['calls']:,} calls; ended: {result['ended']}"
    )


@main.command("list")
@click.argument("results", type=FOLDER)
def list_command(results: Path) -> None:
    """List the cells that are done."""
    done, measured = cells.read_results(results)
    for one in measured:
        click.echo(f"{one['task']} {one['model']}: headroom {one['gain']:+.3f}")
    for one in done:
        click.echo(f"{one['task']} {one['model']} {one['arm']} seed {one['seed']}: done")


@main.command("table")
@click.argument("results", type=FOLDER)
@click.option("-o", "--output", type=FILE, help="Write the page here, and a figure beside it.")
def table_command(results: Path, output: Path | None) -> None:
    """Print the table of what is done, or write it with its figure."""
    from benchmarks.learners import report

    done, measured = cells.read_results(results)
    page = report.page(done, measured, figure=output and output.with_suffix(".svg").name)
    if output is None:
        click.echo(page)
        return
    output.write_text(page, encoding="utf-8")
    output.with_suffix(".svg").write_text(report.figure(done), encoding="utf-8")
    click.echo(f"wrote {output} and {output.with_suffix('.svg')}")


if __name__ == "__main__":
    main()
