"""`tfgrpo plot`."""

from __future__ import annotations

from pathlib import Path

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON, option
from tfgrpo.cli.start_context import RUN, App, pass_app
from tfgrpo.cli.ui import needed_for_pages
from tfgrpo.store import atomic_write
from tfgrpo.store.errors import UnknownRevision


@click.command()
@click.argument("name", metavar="RUN", required=False, type=RUN)
@option("-o, --output", "Write a web page to this file instead.", type=click.Path(path_type=Path))
@option(
    "--html",
    "Write the run's whole page to this file, as `tfgrpo ui` shows it.",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
)
@JSON
@pass_app
def plot(app: App, name: str | None, output: Path | None, html: Path | None, as_json: bool) -> None:
    """Plot the metrics of RUN (by default the newest run): rewards, mixed groups, tokens, library
    size and events.

    Each bar is a step, scaled to the largest value of its metric. --html has more: curves with
    intervals, steps, costs and what was refused, in one file that needs nothing beside it.

    \b
    Examples:
      tfgrpo plot
      tfgrpo plot -o run.html
      tfgrpo plot --html report.html
    """
    from tfgrpo.runs.dynamics import draw, dynamics, page

    if (output is not None) + (html is not None) + as_json > 1:
        raise click.UsageError("give only one of --output, --html and --json")
    runs = app.store.runs.listed()
    if name is None and not runs:
        raise UnknownRevision("there is no run to plot", hint="start one with `tfgrpo train`")
    run = runs[-1] if name is None else app.store.runs.get(name)
    if html is not None:
        with needed_for_pages():
            from tfgrpo.ui.export_pages import page_alone

        page_of_run = page_alone(app.path.absolute(), f"/run/{run.name}", author=app.author())
        atomic_write.write(html, page_of_run, mode=atomic_write.SHARED)
        printing.echo(f"wrote {html}")
        return
    series = dynamics(app.store, run)
    if as_json:
        printing.emit_json({"run": run.name, "series": {one.name: one.values for one in series}})
    elif output is not None:
        atomic_write.write(output, page(run, series), mode=atomic_write.SHARED)
        printing.echo(f"wrote {output}")
    elif not series or not series[0].values:
        printing.echo(f"run {run.name} has not finished a step yet")
    else:
        printing.echo(
            printing.style(
                f"run {run.name}: {printing.plural(len(series[0].values), 'step')}", bold=True
            )
        )
        printing.echo_each(draw(series, min(printing.width(), 100)))
