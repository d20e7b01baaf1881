"""`tfgrpo eval`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import evaluating, options, text
from tfgrpo.cli.context import REVISION, App, pass_app

if TYPE_CHECKING:
    from tfgrpo.data.problems import Problem
    from tfgrpo.domains.base import Domain
    from tfgrpo.settings import EvalSettings
    from tfgrpo.store.records import Version
    from tfgrpo.store.runs import Evaluation


@click.command("eval")
@click.argument("data", required=False)
@click.option("--library", default="HEAD", type=REVISION, show_default=True, help="Which library.")
@click.option("--against", type=REVISION, help="Another to compare with; v0 is the empty one.")
@click.option("--samples", type=int, help="Attempts at each problem.  [8]")
@click.option("--problems", type=click.IntRange(1), help="How many problems, from the top.")
@click.option("--budget", help="Stop before this is spent: 5.00 in dollars, or 200000tok.")
@click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
@options.shared
@pass_app
def eval_(
    app: App,
    /,
    data: str | None,
    library: str,
    against: str | None,
    problems: int | None,
    budget: str | None,
    as_json: bool,
    config: Path | None,
    **values: Any,
) -> None:
    """Score a library on the problems in DATA: mean@k, pass@k and maj@k.

    Intervals are 95 %, with problems as the unit. Scores are kept with the version and shown by
    log and show; the same command again reads them, and goes on where it was cut off. Two
    libraries are compared problem by problem; the fair control is v0, the empty library in the
    same prompt. Model and prompt are those of the run that made the library, unless named.

    \b
    Examples:
      tfgrpo eval heldout.jsonl --library HEAD --samples 4
      tfgrpo eval heldout.jsonl --library HEAD --against v0 --samples 4
    """
    from tfgrpo.settings import SettingsError

    store = app.store
    versions = [store.resolve(library)]
    if against is not None:
        versions.append(store.resolve(against))
    given = {"data": data, **options.flags(values)}
    settings = evaluating.settings_of(app, versions[:1], config, given)
    if not settings.data:
        raise SettingsError("no problems are named", hint="tfgrpo eval DATA")
    domain = options.domain(app, settings.domain)
    named = settings.data
    dataset, settings = evaluating.asked(app, settings, named, domain, problems)
    options.tell_sandbox(settings)
    evaluating.warn_of_leaks(app, versions[0], dataset)
    evaluating.ensure(app, versions, dataset, named, settings, domain, config, budget)
    tell(app, versions, dataset, settings, domain, as_json)


def tell(
    app: App,
    versions: Sequence[Version],
    dataset: Sequence[Problem],
    settings: EvalSettings,
    domain: Domain,
    as_json: bool = False,
) -> None:
    """Prints evaluations that are there, and how they compare with the first of them.

    The empty library joins in where it has been evaluated under the same conditions.
    """
    from tfgrpo.evaluation.evaluate import difference

    empty = app.store.version(0)
    if all(version.number != 0 for version in versions):
        versions = [*versions, empty]
    pairs = [
        (version, evaluation)
        for version, evaluation in zip(
            versions, evaluating.recorded(app, versions, dataset, settings, domain), strict=True
        )
        if evaluation is not None
    ]
    first = pairs[0]
    others = [
        (version, difference(app.store, evaluation, first[1])) for version, evaluation in pairs[1:]
    ]
    if as_json:
        text.emit_json(
            {
                "dataset": settings.data,
                "evaluations": [
                    {"version": v.name, "conditions": e.config, **e.summary} for v, e in pairs
                ],
                "differences": [
                    {
                        "version": first[0].name,
                        "against": version.name,
                        **found.estimate._asdict(),
                        "verdict": found.verdict,
                    }
                    for version, found in others
                ],
            }
        )
        return
    for line in _table(pairs, settings):
        click.echo(line)
    for version, found in others:
        mean, low, high, problems = found.estimate
        click.echo(
            f"{first[0].name} - {version.name}: {mean:+.3f} [{low:+.3f}, {high:+.3f}], "
            f"paired over {problems} problems: {found.verdict}"
        )
    if not others:
        click.echo("`--against v0` compares it with the empty library in the same prompt")


def _table(pairs: Sequence[tuple[Version, Evaluation]], settings: EvalSettings) -> Iterator[str]:
    summary = pairs[0][1].summary
    samples = summary["samples"]
    yield click.style(
        f"{settings.data}: {summary['problems']} problems × {samples} samples, "
        f"{settings.models.model}, temperature {settings.temperature:g}",
        bold=True,
    )
    ks = [k for k in summary["pass"] if k != "1"]
    header = ["library", f"mean@{samples}", *(f"pass@{k}" for k in ks), f"maj@{samples}"]
    rows = []
    for version, evaluation in pairs:
        found = evaluation.summary
        name = version.name + (" (empty)" if version.number == 0 else "")
        passes = [f"{found['pass'][k][0]:.3f}" for k in ks]
        rows.append([name, _interval(found["mean"]), *passes, f"{found['maj'][0]:.3f}"])
    yield from text.table(rows, header=header)
    for version, evaluation in pairs:
        if evaluation.summary["unscored"]:
            count = text.plural(evaluation.summary["unscored"], "sample")
            yield f"{version.name}: {count} could not be judged and count for nothing"


def _interval(values: Sequence[float | None]) -> str:
    mean, low, high = values
    return f"{mean:.3f}" if low is None else f"{mean:.3f} [{low:.3f}, {high:.3f}]"
