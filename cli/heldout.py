"""The problems that a run does not learn from: for the gate, for its end, and sealed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tfgrpo.cli import evaluate, evaluating, options, text
from tfgrpo.cli.context import App

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tfgrpo.connect import Endpoints
    from tfgrpo.data.problems import Problem
    from tfgrpo.domains.base import Domain
    from tfgrpo.domains.verifier import Verifier
    from tfgrpo.model.budget import Budget
    from tfgrpo.model.prices import Price
    from tfgrpo.settings import TrainSettings
    from tfgrpo.store.journal import Journal
    from tfgrpo.store.records import Version
    from tfgrpo.store.runs import Run

KINDS = ("heldout", "gate", "sealed")


def checked(
    app: App, asked: TrainSettings, domain: Domain, dataset: Sequence[Problem]
) -> tuple[dict[str, tuple[Problem, ...]], dict[str, tuple[str, ...]]]:
    """Returns the problems of each kind that settings name, and the ids of those left out.

    What is wrong with them is said. Raises DatasetError, and SettingsError where sealed problems
    serve for something else too.
    """
    from tfgrpo.data import leakage, problems
    from tfgrpo.evaluation import sealed
    from tfgrpo.settings import SettingsError

    found: dict[str, tuple[Problem, ...]] = {}
    skipped: dict[str, tuple[str, ...]] = {}
    for kind in KINDS:
        named = getattr(asked, kind)
        found[kind] = domain.problems(named, asked.fields) if named else ()
        if named:
            skip = asked.skip_unverifiable
            found[kind], ids = options.verifiable(found[kind], named, domain, skip=skip)
            skipped |= {kind: ids} if ids else {}
            options.warn(leakage.describe_leaks(dataset, found[kind], asked.data))
    if asked.sealed:
        digest = problems.digest(found["sealed"])
        others = {problems.digest(found[kind]) for kind in ("heldout", "gate") if found[kind]}
        if digest in others | {problems.digest(dataset)}:
            raise SettingsError(
                f"{asked.sealed} is sealed, and used for something else too",
                hint="sealed problems are for the end alone",
            )
        times = len(sealed.looks(app.store, digest))
        if times:
            count = "one library was" if times == 1 else f"{times} libraries were"
            options.warn([f"{asked.sealed} is not fresh: {count} scored on it before"])
    return found, skipped


def digests(found: dict[str, tuple[Problem, ...]]) -> dict[str, str]:
    """Returns the settings that hold the run to these very problems."""
    from tfgrpo.data import problems

    held = {kind: found[kind] for kind in ("gate", "sealed") if found[kind]}
    return {f"{kind}_digest": problems.digest(there) for kind, there in held.items()}


def opened(
    app: App, run: Run, settings: TrainSettings, domain: Domain, kind: str
) -> tuple[Problem, ...]:
    """Returns a run's problems of a kind. Raises DatasetError where they are not the same."""
    from tfgrpo.data import problems
    from tfgrpo.data.readers import DatasetError

    named = getattr(settings, kind)
    if not named:
        return ()
    path = options.opened_data(app, named)
    found = domain.problems(path, settings.fields)
    found = problems.without(found, settings.skipped.get(kind, ()))
    digest = getattr(settings, f"{kind}_digest", "")
    if digest and problems.digest(found) != digest:
        raise DatasetError(
            f"{path} has changed since run {run.name} began",
            hint="put the file back to go on with it, or begin another run with --new",
        )
    return found


def compare_at_end(
    app: App,
    run: Run,
    final: Version,
    settings: TrainSettings,
    domain: Domain,
    endpoints: Endpoints,
    verifier: Verifier,
    journal: Journal,
    prices: tuple[Price | None, Price | None],
    budget: Budget | None,
) -> None:
    """Compares what a run learned with the empty library: on held-out problems, then on sealed."""
    from tfgrpo.evaluation.sealed import unseal
    from tfgrpo.settings import EvalSettings

    for kind in ("heldout", "sealed"):
        named = getattr(settings, kind)
        if not named:
            continue
        problems = opened(app, run, settings, domain, kind)
        if kind == "heldout":
            problems = problems[: settings.heldout_problems]
        else:
            unseal(app.store, run)
        asked = EvalSettings.of_run(settings, kind, settings.heldout_samples)
        versions = [final, app.store.version(0)]
        what = (app, versions, problems, asked, domain, endpoints, verifier, journal)
        evaluating.make(*what, prices, budget=budget, of=run)
        evaluate.tell(app, versions, problems, asked, domain)


def seal_lines(app: App, run: Run) -> Iterator[str]:
    """Yields what is known of a run's sealed problems."""
    from tfgrpo.evaluation.sealed import seal

    found = seal(app.store, run)
    if found is None:
        return
    when = "not opened yet" if found.opened is None else f"opened {text.when(found.opened)}"
    state = (
        "nothing was scored on it before that since the run began"
        if found.intact
        else f"broken: {text.plural(found.during, 'score')} made while the run went on"
    )
    earlier = f"; {text.plural(found.before, 'score')} made before the run" if found.before else ""
    told = f"{found.dataset}, digest {found.digest[:16]}: {when}; {state}{earlier}"
    yield from text.wrap(text.words(told), first="  sealed ", indent=4)
