"""`tfgrpo power`: how many problems would tell two libraries apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.flags import COUNT, JSON, option
from tfgrpo.cli.start_context import FINITE, REVISION, App, Given, pass_given
from tfgrpo.store.errors import InvalidOperation

if TYPE_CHECKING:
    from tfgrpo.evaluation.comparison import Power

LEAST = 1e-9
"""A smaller difference in mean reward is taken for none."""


@click.command()
@click.argument("data", required=False)
@option("--library", "Evaluated library.  [HEAD]", type=REVISION)
@option("--against", "Its control.  [v0]", type=REVISION)
@option("--difference", "Difference in mean reward to detect.", type=FINITE)
@option("--within", "Standard deviation of samples within a problem.", type=FINITE)
@option("--between", "Standard deviation of differences across problems.", type=FINITE)
@option("--samples", "Samples per problem; repeatable.", name="counts", type=COUNT, multiple=True)
@JSON
@pass_given
def power(app: App, given: Given) -> None:
    """Show how many problems it takes to detect a difference, at how many samples each.

    The numbers are read from recorded evaluations of --library and --against on DATA (by default
    the latest), or given with --difference, --within and --between. A difference is detected if its
    95 % interval excludes zero; with this many problems that happens four times out of five. With
    --difference you can ask about a different effect than the observed one.

    \b
    Examples:
      tfgrpo power --difference 0.03 --within 0.45 --between 0.1
      tfgrpo power --difference 0.1 --within 0.4 --between 0.2 --samples 8 --json
    """
    from tfgrpo.evaluation.comparison import SAMPLES, Power

    if given.difference is not None and abs(given.difference) < LEAST:
        given.difference = 0.0
    figures = (given.difference, given.between, given.within)
    if min(given.between or 0.0, given.within or 0.0) < 0:
        raise click.UsageError("a standard deviation is not below 0")
    recorded = (given.data, given.library, given.against)
    if None not in figures:
        planned = Power(*figures)
    elif any(g is not None for g in figures) and all(r is None for r in recorded):
        raise click.UsageError(
            "give --difference, --within and --between, or DATA, --library or --against"
        )
    else:
        control = "v0" if given.against is None else given.against
        seen = _seen(app, control, "HEAD" if given.library is None else given.library, given.data)
        planned = Power(*(s if g is None else g for g, s in zip(figures, seen, strict=True)))
    rows = planned.table(given.counts or SAMPLES)
    if given.as_json:
        printing.emit_json(
            {
                "difference": planned.difference,
                "within": planned.within,
                "between": planned.between,
                "decided_by": [{"samples": n, "problems": problems} for n, problems in rows],
            }
        )
        return
    printing.echo(
        f"difference {planned.difference:+.3f}, standard deviation {planned.within:.3f} within "
        f"problems and {planned.between:.3f} between them"
    )
    if not rows:
        printing.echo("no number of problems can detect a difference of 0")
        return
    cells = [(f"{n}", f"{problems:,}", f"{2 * n * problems:,}") for n, problems in rows]
    printing.echo_each(printing.table(cells, header=("samples", "problems", "attempts in total")))


def _seen(app: App, control: str, library: str, dataset: str | None) -> tuple[float, float, float]:
    """Difference, between and within as recorded evaluations have them."""
    from tfgrpo.evaluation.comparison import power_of, recorded_pairs

    a, b = app.store.resolve(control), app.store.resolve(library)
    pairs = recorded_pairs(
        app.store, a, b, dataset and options.open_project(app, None).record_path(dataset)
    )
    if not pairs:
        raise InvalidOperation(
            f"{b.name} and {a.name} were not evaluated on the same problems",
            hint=f"`tfgrpo compare {dataset or 'DATA'} --library {library} --against {control}`",
        )
    measured: Power = power_of(app.store, *pairs[-1])
    return measured.difference, measured.between, measured.within
