"""`tfgrpo compare` and `tfgrpo power`: is one library better than another, and what would tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options, text
from tfgrpo.cli.context import FINITE, REVISION, App, pass_app
from tfgrpo.cli.sections import SectionedCommand
from tfgrpo.settings import EvalSettings
from tfgrpo.wording import plural

if TYPE_CHECKING:
    from tfgrpo.evaluation.comparison import Comparison, Power


LEAST = 1e-9
"""A smaller difference in mean reward is taken for none."""


@click.command(cls=SectionedCommand)
@options.from_settings(EvalSettings)
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@click.option(
    "--library",
    "libraries",
    type=REVISION,
    multiple=True,
    default=("HEAD",),
    help="Library to test; repeatable.  [HEAD]",
)
@click.option(
    "--against",
    type=REVISION,
    default="v0",
    help="Control; v0 is the empty library.  [v0]",
)
@click.option("--problems", type=click.IntRange(1), help="Use only the first N problems.")
@click.option("--model", "models", multiple=True, help="Model to test with; repeatable.")
@options.BUDGET
@click.option("--json", "as_json", is_flag=True, help="Output JSON.")
@options.CONFIG
@pass_app
def compare(
    app: App,
    /,
    data: tuple[str, ...],
    libraries: tuple[str, ...],
    against: str,
    models: tuple[str, ...],
    as_json: bool,
    config: Path | None,
    **values: Any,
) -> None:
    """Test whether libraries are better than a control, on the same problems.

    Shows the difference, paired by problem, with its 95 % interval and the p of a permutation test;
    if it is inconclusive, also how many problems would decide it. With the default control v0, the
    empty library in the same prompt, the question is whether the library helps at all. Several
    datasets, models or libraries make a table of where a library transfers and where it hurts.
    Scores are stored with the versions, as by eval.

    \b
    Examples:
      tfgrpo compare heldout.jsonl --samples 4
      tfgrpo compare heldout.jsonl --library web --against main --samples 2
    """
    from tfgrpo.cli.evaluate import run_evaluation
    from tfgrpo.evaluation.comparison import compared

    options.refuse_revisions(app, "compare", data)
    versions = [app.store.resolve(revision) for revision in (against, *libraries)]
    comparisons: list[Comparison] = []
    for dataset in data:
        for model in models or (None,):
            given = {**values, "data": dataset, "model": model}
            scores = run_evaluation(app, config, versions, given, versions[::-1], quiet=True)
            evaluations = [one.evaluation for one in scores.libraries[: len(versions)]]
            comparisons += compared(app.store, evaluations)
    if as_json:
        text.emit_json([one.object() for one in comparisons])
    else:
        text.emit(app, _lines(comparisons))


def _lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    if len(comparisons) > 1:
        yield from _table(comparisons)
        return
    view = comparisons[0].view()
    yield text.style(view.title, bold=True)
    yield from text.table(view.rows, header=view.header)
    for note in view.notes:
        yield from text.wrap(text.words(note), indent=0)


def _table(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Yields a row for each comparison, with a column for each thing that differs."""
    from tfgrpo.evaluation.comparison import difference_words, library_name
    from tfgrpo.evaluation.figures import conditions_words

    named = {
        "dataset": [one.dataset for one in comparisons],
        "model": [one.model for one in comparisons],
        "library": [one.version.name for one in comparisons],
    }
    shown = {name: cells for name, cells in named.items() if len(set(cells)) > 1}
    fixed = [cells[0] for name, cells in named.items() if name not in shown]
    control = library_name(comparisons[0].control)
    yield text.style(f"{', '.join(fixed) or 'libraries'} against {control}", bold=True)
    alike = list(dict.fromkeys(conditions_words(one.conditions) for one in comparisons))
    yield from alike  # one row, unless the judge or the domain differs with the data
    columns = list(zip(*shown.values(), strict=True)) or [()] * len(comparisons)
    rows = []
    for one, cells in zip(comparisons, columns, strict=True):
        needed = one.difference.problems_needed
        open_ = one.difference.verdict == "inconclusive" and needed
        verdict = one.difference.verdict + (f", {needed:,} would decide" if open_ else "")
        means = (f"{one.control_mean:.3f}", f"{one.mean:.3f}")
        rows.append((*cells, *means, difference_words(one), _p(one), verdict))
    header = (*shown, "control", "mean", "difference", "p", "verdict")
    yield from text.table(rows, header=header)
    yield from dict.fromkeys(note for one in comparisons for note in one.unscored_notes())
    if any(one.difference.verdict == "inconclusive" for one in comparisons):
        samples = plural(comparisons[0].conditions["samples"], "sample")
        yield f"`would decide`: number of problems, at {samples} each (80 % power)"


def _p(one: Comparison) -> str:
    return f"{one.difference.p:.2g}"


@click.command()
@click.argument("data", required=False)
@click.option("--library", type=REVISION, help="Evaluated library.  [HEAD]")
@click.option("--against", type=REVISION, help="Its control.  [v0]")
@click.option("--difference", type=FINITE, help="Difference in mean reward to detect.")
@click.option("--within", type=FINITE, help="Standard deviation of samples within a problem.")
@click.option("--between", type=FINITE, help="Standard deviation of differences across problems.")
@click.option(
    "--samples",
    "counts",
    type=click.IntRange(1),
    multiple=True,
    help="Samples per problem; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Output JSON.")
@pass_app
def power(
    app: App,
    data: str | None,
    library: str | None,
    against: str | None,
    difference: float | None,
    within: float | None,
    between: float | None,
    counts: tuple[int, ...],
    as_json: bool,
) -> None:
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

    if difference is not None and abs(difference) < LEAST:
        difference = 0.0
    given = (difference, between, within)
    if min(between or 0.0, within or 0.0) < 0:
        raise click.UsageError("a standard deviation is not below 0")
    recorded = (data, library, against)
    if difference is not None and between is not None and within is not None:
        planned = Power(difference, between, within)
    elif any(g is not None for g in given) and all(r is None for r in recorded):
        raise click.UsageError(
            "give --difference, --within and --between, or DATA, --library or --against"
        )
    else:
        control = "v0" if against is None else against
        seen = _seen(app, control, "HEAD" if library is None else library, data)
        planned = Power(*(s if g is None else g for g, s in zip(given, seen, strict=True)))
    rows = planned.table(counts or SAMPLES)
    if as_json:
        text.emit_json(
            {
                "difference": planned.difference,
                "within": planned.within,
                "between": planned.between,
                "decided_by": [{"samples": n, "problems": problems} for n, problems in rows],
            }
        )
        return
    text.echo(
        f"difference {planned.difference:+.3f}, standard deviation {planned.within:.3f} within "
        f"problems and {planned.between:.3f} between them"
    )
    if not rows:
        text.echo("no number of problems can detect a difference of 0")
        return
    cells = [(f"{n}", f"{problems:,}", f"{2 * n * problems:,}") for n, problems in rows]
    for line in text.table(cells, header=("samples", "problems", "attempts in total")):
        text.echo(line)


def _seen(app: App, control: str, library: str, dataset: str | None) -> tuple[float, float, float]:
    """Returns difference, between and within as recorded evaluations have them."""
    from tfgrpo.evaluation.comparison import power_of, recorded_pairs
    from tfgrpo.store.errors import InvalidOperation

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
