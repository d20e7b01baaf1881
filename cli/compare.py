"""`tfgrpo compare`: is one library better than another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.evaluate import run_evaluation
from tfgrpo.cli.flags import COUNT, JSON, option
from tfgrpo.cli.help import SectionedCommand
from tfgrpo.cli.start_context import REVISION, App, pass_app
from tfgrpo.evaluation.figures_json import conditions_words
from tfgrpo.wording import plural

if TYPE_CHECKING:
    from tfgrpo.evaluation.comparison import Comparison


@click.command(cls=SectionedCommand)
@options.from_settings("shared", "eval")
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@option(
    "--library",
    "Library to test; repeatable.  [HEAD]",
    name="libraries",
    type=REVISION,
    multiple=True,
    default=("HEAD",),
    show_default=False,
)
@option(
    "--against",
    "Control; v0 is the empty library.  [v0]",
    type=REVISION,
    default="v0",
    show_default=False,
)
@option("--problems", "Use only the first N problems.", type=COUNT)
@option("--model", "Model to test with; repeatable.", name="models", multiple=True)
@options.BUDGET
@JSON
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
    printing.answer(app, [one.object() for one in comparisons], _lines(comparisons), as_json)


def _lines(comparisons: Sequence[Comparison]) -> Iterator[str]:
    if len(comparisons) > 1:
        yield from _table(comparisons)
        return
    view = comparisons[0].view()
    yield printing.style(view.title, bold=True)
    yield from printing.table(view.rows, header=view.header)
    for note in view.notes:
        yield from printing.wrapped(note, indent=0)


def _table(comparisons: Sequence[Comparison]) -> Iterator[str]:
    from tfgrpo.evaluation.comparison import difference_words, library_name

    named = {
        "dataset": [one.dataset for one in comparisons],
        "model": [one.model for one in comparisons],
        "library": [one.version.name for one in comparisons],
    }
    shown = {name: cells for name, cells in named.items() if len(set(cells)) > 1}
    fixed = [cells[0] for name, cells in named.items() if name not in shown]
    control = library_name(comparisons[0].control)
    yield printing.style(f"{', '.join(fixed) or 'libraries'} against {control}", bold=True)
    alike = list(dict.fromkeys(conditions_words(one.conditions) for one in comparisons))
    yield from alike  # one row, unless the judge or the domain differs with the data
    columns = list(zip(*shown.values(), strict=True)) or [()] * len(comparisons)
    rows = []
    for one, cells in zip(comparisons, columns, strict=True):
        needed = one.difference.problems_needed
        open_ = one.difference.verdict == "inconclusive" and needed
        verdict = one.difference.verdict + (f", {needed:,} would decide" if open_ else "")
        means = (f"{one.control_mean:.3f}", f"{one.mean:.3f}")
        p = f"{one.difference.p:.2g}"
        rows.append((*cells, *means, difference_words(one), p, verdict))
    header = (*shown, "control", "mean", "difference", "p", "verdict")
    yield from printing.table(rows, header=header)
    yield from dict.fromkeys(note for one in comparisons for note in one.unscored_notes())
    if any(one.difference.verdict == "inconclusive" for one in comparisons):
        samples = plural(comparisons[0].conditions["samples"], "sample")
        yield f"`would decide`: number of problems, at {samples} each (80 % power)"
