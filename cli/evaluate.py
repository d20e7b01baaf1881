"""`tfgrpo eval`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options, text
from tfgrpo.cli.context import REVISION, App, pass_app

if TYPE_CHECKING:
    from tfgrpo.budget import Budget
    from tfgrpo.domain import Domain
    from tfgrpo.prices import Price
    from tfgrpo.problems import Problem
    from tfgrpo.serving import Endpoints
    from tfgrpo.settings import EvalSettings
    from tfgrpo.store.journal import Journal
    from tfgrpo.store.records import Version
    from tfgrpo.store.runs import Evaluation, Run
    from tfgrpo.verify import Verifier

FROM_RUN = (
    "domain",
    "agent_objective",
    "prompts",
    "concurrency",
    "max_tokens",
    "task_timeout",
    "mode",
    "tools",
    "turns",
    "inject",
    "top_k",
)


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
    from tfgrpo.serving import opened
    from tfgrpo.settings import SettingsError
    from tfgrpo.store.journal import Journal
    from tfgrpo.verify import Verifier, check_golds

    store = app.store
    versions = [store.resolve(library)]
    if against is not None:
        versions.append(store.resolve(against))
    settings = _settings(app, versions[0], config, {"data": data, **options.flags(values)})
    if not settings.data:
        raise SettingsError("no problems are named", hint="tfgrpo eval DATA")
    domain = options.domain(app, settings.domain)
    dataset = domain.problems(settings.data, settings.fields)[:problems]
    _warn(app, versions[0], dataset)
    named = settings.data
    kept = {"data": options.kept_path(app, named)}
    settings = settings.model_copy(update=kept)
    known = recorded(app, versions, dataset, settings, domain)
    if all(known):
        _print(app, versions, dataset, settings, domain, as_json)
        return
    check_golds(dataset, named, domain)
    from tfgrpo.cli import cost, live

    prices = cost.prices(app, config, settings.models)
    limit = cost.budget(app, config, budget, None, None not in prices)
    with live.Fetch() as bar, opened(settings, os.environ, bar.update) as endpoints:
        bar.close()
        journal = Journal(store.path)
        try:
            with Verifier() as verifier:
                asked = (app, versions, dataset, settings, domain, endpoints, verifier, journal)
                run(*asked, prices, as_json, budget=limit)
        except KeyboardInterrupt:
            click.echo("interrupted; every answer is kept, the same command goes on", err=True)
            click.get_current_context().exit(130)
        finally:
            journal.close()


def _warn(app: App, version: Version, dataset: Sequence[Problem]) -> None:
    """Says which of these problems the library was trained on, or that this cannot be told."""
    from tfgrpo.leakage import told_leaks
    from tfgrpo.rows import DatasetError
    from tfgrpo.settings import TrainSettings
    from tfgrpo.store.revisions import run_of_history

    name = run_of_history(app.store, version)
    if name is None:
        return
    run = app.store.runs.find(name)
    if run is None:  # runs do not travel between stores
        options.warn(
            [f"cannot tell whether these problems were trained on: run {name} is not in this store"]
        )
        return
    trained = TrainSettings(**run.config)
    domain = options.domain(app, trained.domain)
    data = options.opened_data(app, trained.data)
    try:
        training = domain.problems(data, trained.fields)
    except DatasetError as error:
        options.warn([f"cannot tell whether these problems were trained on: {error}"])
        return
    options.warn(told_leaks(training, dataset, data))


def _settings(app: App, version: Version, config: Path | None, given: Any) -> EvalSettings:
    from tfgrpo.api import trained_with
    from tfgrpo.settings import EvalSettings, build

    tables = options.from_file(app, config)
    store = app.store
    frozen = trained_with(store, version) or trained_with(store, store.head.version)
    trained = {key: frozen[key] for key in FROM_RUN if key in frozen} | frozen.get("models", {})
    if trained.get("prompts"):
        trained["prompts"] = str(options.opened_path(app, trained["prompts"]))
    spec = given.get("domain") or tables.get("eval", {}).get("domain") or trained.get("domain")
    options.domain(app, spec)  # so that its module can be imported from here on
    tools = options.tools(app, tables, given)
    layers = [given, tools, tables.get("eval", {}), trained, tables.get("model", {}), {"data": ""}]
    return build(EvalSettings, *layers)


def recorded(
    app: App,
    versions: Sequence[Version],
    dataset: Sequence[Problem],
    settings: EvalSettings,
    domain: Domain,
) -> list[Evaluation | None]:
    """Returns the evaluations under these conditions that are there already."""
    from tfgrpo.evaluation import conditions
    from tfgrpo.store.canonical import digest

    key = digest(conditions(dataset, settings, domain)).hex()
    return [app.store.runs.evaluation(version.number, key) for version in versions]


def run(
    app: App,
    versions: Sequence[Version],
    dataset: Sequence[Problem],
    settings: EvalSettings,
    domain: Domain,
    endpoints: Endpoints,
    verifier: Verifier,
    journal: Journal,
    prices: tuple[Price | None, Price | None],
    as_json: bool = False,
    *,
    budget: Budget | None = None,
    of: Run | None = None,
) -> None:
    """Evaluates versions on a dataset, showing how it goes on, and prints what came of it.

    `of` is the training run that it belongs to.
    """
    import asyncio

    from tfgrpo.cli import live
    from tfgrpo.evaluation import EvalProgress, evaluate

    progress = EvalProgress(0)
    with live.evaluation(progress):
        asyncio.run(
            evaluate(
                app.store,
                versions,
                dataset,
                settings,
                endpoints,
                verifier,
                journal,
                domain=domain,
                price=prices[0],
                reflection_price=prices[1],
                budget=budget,
                run=of,
                progress=progress,
            )
        )
    _print(app, versions, dataset, settings, domain, as_json)


def _print(
    app: App,
    versions: Sequence[Version],
    dataset: Sequence[Problem],
    settings: EvalSettings,
    domain: Domain,
    as_json: bool,
) -> None:
    """Prints evaluations that are there, and how they compare with the first of them.

    The empty library joins in where it has been evaluated under the same conditions.
    """
    from tfgrpo.evaluation import difference

    empty = app.store.version(0)
    if all(version.number != 0 for version in versions):
        versions = [*versions, empty]
    pairs = [
        (version, evaluation)
        for version, evaluation in zip(
            versions, recorded(app, versions, dataset, settings, domain), strict=True
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
