"""What `eval`, `compare` and `power` share: settings, and evaluations that are made or read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options
from tfgrpo.cli.context import App

if TYPE_CHECKING:
    from tfgrpo.connect import Endpoints
    from tfgrpo.data.problems import Problem
    from tfgrpo.domains.base import Domain
    from tfgrpo.domains.verifier import Verifier
    from tfgrpo.model.budget import Budget
    from tfgrpo.model.prices import Price
    from tfgrpo.settings import EvalSettings
    from tfgrpo.store.journal import Journal
    from tfgrpo.store.records import Version
    from tfgrpo.store.runs import Evaluation, Run

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


def warn_of_leaks(app: App, version: Version, dataset: Sequence[Problem]) -> None:
    """Says which of these problems the library was trained on, or that this cannot be told."""
    from tfgrpo.data.leakage import describe_leaks
    from tfgrpo.data.problems import without
    from tfgrpo.data.readers import DatasetError
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
        training = without(training, trained.skipped.get("data", ()))
    except DatasetError as error:
        options.warn([f"cannot tell whether these problems were trained on: {error}"])
        return
    options.warn(describe_leaks(training, dataset, data))


def settings_of(
    app: App, versions: Sequence[Version], config: Path | None, given: Mapping[str, Any]
) -> EvalSettings:
    """Returns the settings of an evaluation: what is given, then [eval] in tfgrpo.toml, then what
    the first of these versions that a run made, or else HEAD's, was trained with; [train] in
    tfgrpo.toml where no run has been."""
    from tfgrpo.api import trained_with
    from tfgrpo.settings import EvalSettings, build

    tables = options.from_file(app, config)
    store = app.store
    trained_by = (trained_with(store, version) for version in (*versions, store.head.version))
    frozen = next(filter(None, trained_by), {})
    trained = {key: frozen[key] for key in FROM_RUN if key in frozen} | frozen.get("models", {})
    if trained.get("prompts"):
        trained["prompts"] = str(options.opened_path(app, trained["prompts"]))
    if not frozen:
        to_be = tables.get("train", {})
        trained = {key: to_be[key] for key in FROM_RUN if key in to_be}
    spec = given.get("domain") or tables.get("eval", {}).get("domain") or trained.get("domain")
    options.domain(app, spec)  # so that its module can be imported from here on
    given = dict(given)
    tools = options.tools(app, tables, given)
    layers = [given, tools, tables.get("eval", {}), trained, tables.get("model", {}), {"data": ""}]
    return build(EvalSettings, *layers)


def asked(
    app: App, settings: EvalSettings, named: str, domain: Domain, problems: int | None
) -> tuple[tuple[Problem, ...], EvalSettings]:
    """Returns the problems to evaluate on, the first of them if so many are asked for, and the
    settings as they go into the record.

    Raises DatasetError.
    """
    dataset = domain.problems(named, settings.fields)[:problems]
    kept: dict[str, Any] = {"data": options.kept_path(app, named)}
    if settings.skip_unverifiable:
        dataset, skipped = options.verifiable(dataset, named, domain, skip=True)
        kept["skipped"] = {"data": skipped} if skipped else {}
    return dataset, settings.model_copy(update=kept)


def recorded(
    app: App,
    versions: Sequence[Version],
    dataset: Sequence[Problem],
    settings: EvalSettings,
    domain: Domain,
) -> list[Evaluation | None]:
    """Returns the evaluations under these conditions that are there already."""
    from tfgrpo.evaluation.evaluate import conditions
    from tfgrpo.store.canonical import digest

    key = digest(conditions(dataset, settings, domain)).hex()
    return [app.store.runs.evaluation(version.number, key) for version in versions]


def make(
    app: App,
    versions: Sequence[Version],
    dataset: Sequence[Problem],
    settings: EvalSettings,
    domain: Domain,
    endpoints: Endpoints,
    verifier: Verifier,
    journal: Journal,
    prices: tuple[Price | None, Price | None],
    *,
    budget: Budget | None = None,
    of: Run | None = None,
) -> list[Evaluation]:
    """Evaluates versions on a dataset, showing how it goes on.

    `of` is the training run that it belongs to.
    """
    import asyncio

    from tfgrpo.cli import live
    from tfgrpo.evaluation.evaluate import EvalProgress, evaluate

    progress = EvalProgress(0)
    with live.evaluation(progress):
        return asyncio.run(
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


def ensure(
    app: App,
    versions: Sequence[Version],
    dataset: Sequence[Problem],
    named: str,
    settings: EvalSettings,
    domain: Domain,
    config: Path | None,
    budget: str | None,
) -> list[Evaluation]:
    """Returns the evaluation of each version, making those that are not there yet.

    `named` is the dataset as the person wrote it.
    """
    from tfgrpo.cli import cost, live
    from tfgrpo.connect import opened
    from tfgrpo.domains.verifier import Verifier, check_golds
    from tfgrpo.store.journal import Journal

    known = [found for found in recorded(app, versions, dataset, settings, domain) if found]
    if len(known) == len(versions):
        return known
    if not settings.skip_unverifiable:  # `asked` looked at them, as what is recorded hangs on it
        check_golds(dataset, named, domain)
    prices = cost.prices(app, config, settings.models)
    limit = cost.budget(app, config, budget, None, None not in prices)
    with live.Fetch() as bar, opened(settings, os.environ, bar.update) as endpoints:
        bar.close()
        journal = Journal(app.store.port.writer())
        try:
            with Verifier() as verifier:
                asked = (app, versions, dataset, settings, domain, endpoints, verifier, journal)
                return make(*asked, prices, budget=limit)
        except KeyboardInterrupt:
            click.echo("interrupted; every answer is kept, the same command goes on", err=True)
            click.get_current_context().exit(130)
        finally:
            journal.close()
