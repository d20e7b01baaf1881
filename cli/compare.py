"""`tfgrpo compare` and `tfgrpo power`: is one library better than another, and what would tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options, text
from tfgrpo.cli.context import REVISION, App, pass_app

if TYPE_CHECKING:
    from tfgrpo.evaluation.comparison import Comparison, Power


@click.command()
@click.argument("control", type=REVISION)
@click.argument("libraries", nargs=-1, required=True, type=REVISION)
@click.option("--dataset", "datasets", multiple=True, required=True, help="Problems; repeatable.")
@click.option("--samples", type=int, help="Attempts at each problem.  [8]")
@click.option("--problems", type=click.IntRange(1), help="How many problems, from the top.")
@click.option("--model", "models", multiple=True, help="Who attempts them; repeatable.")
@click.option("--budget", help="Stop before this is spent: 5.00 in dollars, or 200000tok.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
@options.shared_by_models
@pass_app
def compare(
    app: App,
    /,
    control: str,
    libraries: tuple[str, ...],
    datasets: tuple[str, ...],
    models: tuple[str, ...],
    as_json: bool,
    config: Path | None,
    **values: Any,
) -> None:
    """Say whether LIBRARIES are better than CONTROL on the same problems.

    Paired by problem: the difference with its 95 % interval, a permutation test's p, and where
    that is inconclusive how many problems would decide it. Against v0, the empty library in the
    same prompt, it is whether a library helps at all. Several datasets, models or libraries
    make a table: where a library transfers, and where it harms. Scores are kept with the
    versions, as those of eval.

    \b
    Examples:
      tfgrpo compare v0 HEAD --dataset heldout.jsonl --samples 4
      tfgrpo compare main web --dataset heldout.jsonl --dataset problems.jsonl --samples 2
    """
    from tfgrpo.cli.evaluate import run_evaluation
    from tfgrpo.evaluation.comparison import compared

    versions = [app.store.resolve(revision) for revision in (control, *libraries)]
    comparisons: list[Comparison] = []
    for dataset in datasets:
        for model in models or (None,):
            given = {**values, "data": dataset, "model": model}
            scores = run_evaluation(app, config, versions, given, versions[::-1], quiet=True)
            evaluations = [one.evaluation for one in scores.libraries[: len(versions)]]
            comparisons += compared(app.store, evaluations)
    if as_json:
        text.emit_json([_object(one) for one in comparisons])
    else:
        text.emit(app, _lines(comparisons))


def _lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    if len(comparisons) > 1:
        yield from _table(comparisons)
        return
    view = comparisons[0].view()
    yield click.style(view.title, bold=True)
    yield from text.table(view.rows, header=view.header)
    for note in view.notes:
        yield from text.wrap(text.words(note), indent=0)


def _table(found: Sequence[Comparison]) -> Iterator[str]:
    """Yields a row for each comparison, with a column for each thing that differs."""
    from tfgrpo.evaluation.comparison import difference_words, library_name

    named = {
        "dataset": [one.dataset for one in found],
        "model": [one.model for one in found],
        "library": [one.version.name for one in found],
    }
    shown = {name: cells for name, cells in named.items() if len(set(cells)) > 1}
    fixed = [cells[0] for name, cells in named.items() if name not in shown]
    control = library_name(found[0].control)
    yield click.style(f"{', '.join(fixed) or 'libraries'} against {control}", bold=True)
    columns = list(zip(*shown.values(), strict=True)) or [()] * len(found)
    rows = []
    for one, cells in zip(found, columns, strict=True):
        needed = one.difference.problems_needed
        open_ = one.difference.verdict == "inconclusive" and needed
        verdict = one.difference.verdict + (f", {needed:,} would decide" if open_ else "")
        means = (f"{one.control_mean:.3f}", f"{one.mean:.3f}")
        rows.append((*cells, *means, difference_words(one), _p(one), verdict))
    header = (*shown, "control", "mean", "difference", "p", "verdict")
    yield from text.table(rows, header=header)
    if any(one.difference.verdict == "inconclusive" for one in found):
        samples = found[0].conditions["samples"]
        yield f"what would decide is in problems, at {samples} samples of each (80 % power)"


def _p(one: Comparison) -> str:
    return f"{one.difference.p:.2g}"


def _object(one: Comparison) -> dict[str, Any]:
    mean, low, high, problems = one.difference.estimate
    return {
        "dataset": one.dataset,
        "model": one.model,
        "control": one.control.name,
        "version": one.version.name,
        "control_mean": one.control_mean,
        "mean": one.mean,
        "difference": mean,
        "low": None if low == float("-inf") else low,
        "high": None if high == float("inf") else high,
        "problems": problems,
        "p": one.difference.p,
        "verdict": one.difference.verdict,
        "problems_needed": one.difference.problems_needed,
        "conditions": one.conditions,
    }


@click.command()
@click.argument("control", type=REVISION, required=False)
@click.argument("library", type=REVISION, required=False)
@click.option("--dataset", help="Problems that both were evaluated on; else the last ones.")
@click.option("--difference", type=float, help="The difference to decide, in reward.")
@click.option("--within", type=float, help="The spread of one sample's reward at a problem.")
@click.option("--between", type=float, help="The spread of true differences over problems.")
@click.option("--samples", "counts", type=click.IntRange(1), multiple=True, help="Repeatable.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
@pass_app
def power(
    app: App,
    control: str | None,
    library: str | None,
    dataset: str | None,
    difference: float | None,
    within: float | None,
    between: float | None,
    counts: tuple[int, ...],
    as_json: bool,
) -> None:
    """Say how many problems decide a difference, at how many samples of each.

    Read from recorded evaluations of CONTROL and LIBRARY, or given as numbers. A difference is
    decided when its 95 % interval leaves out zero, which so many problems bring about four times
    out of five. --difference asks about another difference than the one that was seen.

    \b
    Examples:
      tfgrpo power --difference 0.03 --within 0.45 --between 0.1
      tfgrpo power --difference 0.1 --within 0.4 --between 0.2 --samples 8 --json
    """
    from tfgrpo.evaluation.comparison import SAMPLES, Power

    if control is None:
        if difference is None or within is None or between is None:
            raise click.UsageError("name two versions, or --difference, --within and --between")
        found = Power(difference, between, within)
    elif library is None:
        raise click.UsageError("name a second version to compare with")
    else:
        seen = _seen(app, control, library, dataset)
        given = (difference, between, within)
        found = Power(*(s if g is None else g for g, s in zip(given, seen, strict=True)))
    rows = found.table(counts or SAMPLES)
    if as_json:
        text.emit_json(
            {
                "difference": found.difference,
                "within": found.within,
                "between": found.between,
                "decided_by": [{"samples": n, "problems": problems} for n, problems in rows],
            }
        )
        return
    click.echo(
        f"difference {found.difference:+.3f}, spread within problems {found.within:.3f}, "
        f"between them {found.between:.3f}"
    )
    if not rows:
        click.echo("no number of problems shows a difference of 0")
        return
    cells = [(f"{n}", f"{problems:,}", f"{2 * n * problems:,}") for n, problems in rows]
    for line in text.table(cells, header=("samples", "problems", "attempts in all")):
        click.echo(line)


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
            f"{a.name} and {b.name} were not evaluated on the same problems",
            hint=f"tfgrpo compare {control} {library} --dataset {dataset or 'DATASET'}",
        )
    found: Power = power_of(app.store, *pairs[-1])
    return found.difference, found.between, found.within
