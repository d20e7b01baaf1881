"""`tfgrpo eval`, `compare`, `power`, `verify`: how good a library is, and how that is judged."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.cost import print_figures
from tfgrpo.cli.flags import COUNT, JSON, flag, many, option, path
from tfgrpo.cli.help import SectionedCommand
from tfgrpo.cli.start_context import FINITE, REVISION, App, Given, pass_given
from tfgrpo.evaluation.statistics import conditions_words
from tfgrpo.store.errors import InvalidOperation

if TYPE_CHECKING:
    from tfgrpo.domains.base import Domain
    from tfgrpo.evaluation.comparison import Comparison
    from tfgrpo.evaluation.eval_setup import EvalPlan
    from tfgrpo.evaluation.scores import Scores
    from tfgrpo.evaluation.verifier_cases import Case, JudgedCase
    from tfgrpo.session import SessionOptions
    from tfgrpo.store.activity.runs import Evaluation
    from tfgrpo.store.records import Version

LEAST = 1e-9
"""A smaller difference in mean reward counts as none."""
PROBLEMS = option("--problems", "Use only the first N problems.", type=COUNT)


@click.command("eval", cls=SectionedCommand)
@options.from_settings("shared", "eval", also=("problems", "budget"))
@click.argument("data", nargs=-1, metavar="[DATA]")
@option("--library", "Library to score.", default="HEAD", type=REVISION)
@option("--against", "Library to compare it with; v0 is the empty one.", type=REVISION)
@PROBLEMS
@options.BUDGET
@options.estimate
@JSON
@options.CONFIG
@pass_given
def eval_(app: App, given: Given) -> None:
    """Score a library on the problems in DATA: mean@k, pass@k and maj@k.

    Intervals are 95 %, with problems as the unit. Scores are stored with the version and shown by
    log and show; running the same command again reads them, or resumes an interrupted evaluation.
    Two libraries are compared problem by problem; the fair control is v0, the empty library in the
    same prompt. Model and prompt default to those of the run that made the library.

    \b
    Examples:
      tfgrpo eval heldout.jsonl --library HEAD --samples 4
      tfgrpo eval heldout.jsonl --library HEAD --against v0 --samples 4
    """
    from tfgrpo.evaluation.scores import scores_object
    from tfgrpo.learn.run_estimate import estimate_attempts, missing_attempts

    options.refuse_revisions(app, "eval", given.data)
    if len(given.data) > 1:
        listed = ", ".join(given.data)
        raise click.UsageError(f"eval takes one DATA: {listed}; compare takes several")
    revisions = [given.library] + ([] if given.against is None else [given.against])
    versions = [app.store.resolve(revision) for revision in revisions]
    plan = _planned(app, given, versions, versions[:1], data=next(iter(given.data), None))
    if given.estimate:
        figures = estimate_attempts(app.store, plan, missing_attempts(app.store, plan))
        print_figures(figures, given)
        return
    scores = _scored(app, plan, quiet=given.as_json)
    if given.as_json:
        printing.emit_json(scores_object(scores))


def _planned(
    app: App,
    given: Given,
    versions: Sequence[Version],
    trained: Sequence[Version],
    **named: str | None,
) -> EvalPlan:
    from tfgrpo.evaluation.eval_setup import plan_evaluation

    settings = options.read_flags({**given.settings, **named})
    project = app.project(given.config)
    return plan_evaluation(app.store, project, versions, settings, trained=trained)


def _scored(app: App, plan: EvalPlan, *, quiet: bool) -> Scores:
    from tfgrpo.cli import live_display as live
    from tfgrpo.evaluation.eval_setup import score

    return live.watched(
        app.store,
        lambda show: score(app.store, plan, on_progress=live.no_scores(show) if quiet else show),
    )


@click.command(cls=SectionedCommand)
@options.from_settings("shared", "eval", also=("problems", "budget"))
@click.argument("data", nargs=-1, required=True, metavar="DATA...")
@many("--library", "Library to test; repeatable.", "libraries", type=REVISION, default=("HEAD",))
@option("--against", "Control; v0 is the empty library.", type=REVISION, default="v0")
@PROBLEMS
@many("--model", "Model to test with; repeatable.", "models")
@options.BUDGET
@JSON
@options.CONFIG
@pass_given
def compare(app: App, given: Given) -> None:
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

    options.refuse_revisions(app, "compare", given.data)
    versions = [app.store.resolve(revision) for revision in (given.against, *given.libraries)]
    comparisons: list[Comparison] = []
    plans = [  # all of them first: nothing is paid for where one is refused
        (dataset, _planned(app, given, versions, versions[::-1], data=dataset, model=model))
        for dataset, model in product(given.data, given.models or (None,))
    ]
    shown = set[str]()
    for dataset, plan in plans:
        start = f"{dataset}: " if len(given.data) > 1 else ""
        warnings = tuple(one for text in plan.warnings if (one := start + text) not in shown)
        shown.update(warnings)
        scores = _scored(app, replace(plan, warnings=warnings), quiet=True)
        evaluations = [one.evaluation for one in scores.libraries[: len(versions)]]
        comparisons += compared(app.store, evaluations)
    alone = len(comparisons) == 1
    lines = printing.view_lines(comparisons[0].view()) if alone else _comparison_table(comparisons)
    printing.answer(app, [one.object() for one in comparisons], lines, given.as_json)


def _comparison_table(comparisons: Sequence[Comparison]) -> Iterator[str]:
    from tfgrpo.evaluation.comparison import library_name

    named = {
        "dataset": [one.dataset for one in comparisons],
        "model": [one.model for one in comparisons],
        "library": [one.version.name for one in comparisons],
    }
    shown = {name: cells for name, cells in named.items() if len(set(cells)) > 1}
    fixed = [cells[0] for name, cells in named.items() if name not in shown]
    control = library_name(comparisons[0].control)
    yield printing.style(f"{', '.join(fixed) or 'libraries'} against {control}", bold=True)
    # One row, unless the judge or the domain differs with the data:
    yield from dict.fromkeys(conditions_words(one.conditions) for one in comparisons)
    columns = list(zip(*shown.values(), strict=True)) or [()] * len(comparisons)
    rows = []
    for one, cells in zip(comparisons, columns, strict=True):
        difference, means = one.difference, (f"{one.control_mean:.3f}", f"{one.mean:.3f}")
        verdict = difference.verdict
        if verdict == "inconclusive" and difference.problems_needed:
            verdict += f", {difference.problems_needed:,} would decide"
        rows.append((*cells, *means, difference.words, f"{difference.p:.2g}", verdict))
    header = (*shown, "control", "mean", "difference", "p", "verdict")
    yield from printing.table(rows, header=header)
    yield from dict.fromkeys(note for one in comparisons for note in one.unscored_notes())
    if any(row[-1].endswith("would decide") for row in rows):
        samples = printing.plural(comparisons[0].conditions["samples"], "sample")
        yield f"`would decide`: number of problems, at {samples} each (80 % power)"


@click.command()
@click.argument("data", required=False)
@option("--library", "Evaluated library.  [HEAD]", type=REVISION)
@option("--against", "Its control.  [v0]", type=REVISION)
@option("--difference", "Difference in mean reward to detect.", type=FINITE)
@option("--within", "Standard deviation of samples within a problem.", type=FINITE)
@option("--between", "Standard deviation of differences across problems.", type=FINITE)
@many("--samples", "Samples per problem; repeatable.", "counts", type=COUNT)
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
    """
    from tfgrpo.evaluation.comparison import SAMPLES, Power, power_of

    if given.difference is not None and abs(given.difference) < LEAST:
        given.difference = 0.0
    if min(given.between or 0.0, given.within or 0.0) < 0:
        raise click.UsageError("a standard deviation is not below 0")
    figures = {name: getattr(given, name) for name in ("difference", "between", "within")}
    if None not in figures.values():
        planned = Power(**figures)
    else:
        recorded = (given.data, given.library, given.against)
        if any(g is not None for g in figures.values()) and all(r is None for r in recorded):
            raise click.UsageError(
                "give --difference, --within and --between, or DATA, --library or --against"
            )
        control = "v0" if given.against is None else given.against
        library = "HEAD" if given.library is None else given.library
        seen = power_of(app.store, *latest_pair(app, control, library, given.data))
        planned = Power(**{k: getattr(seen, k) if v is None else v for k, v in figures.items()})
    rows = planned.table(given.counts or SAMPLES)
    decided = [{"samples": n, "problems": problems} for n, problems in rows]
    fields = {name: getattr(planned, name) for name in ("difference", "within", "between")}
    cells = [(f"{n}", f"{problems:,}", f"{2 * n * problems:,}") for n, problems in rows]
    header = ("samples", "problems", "attempts in total")
    lines = [
        f"difference {planned.difference:+.3f}, standard deviation {planned.within:.3f} within "
        f"problems and {planned.between:.3f} between them",
        *printing.table(cells, header=header, none="no number of problems detects one of 0"),
    ]
    printing.answer(app, {**fields, "decided_by": decided}, lines, given.as_json)


def latest_pair(
    app: App, against: str, library: str, data: str | None
) -> tuple[Evaluation, Evaluation]:
    """The last evaluations of two revisions on the same problems. Raises InvalidOperation."""
    from tfgrpo.evaluation.comparison import recorded_pairs

    control, version = app.store.resolve(against), app.store.resolve(library)
    dataset = data and app.project().record_path(data)
    pairs = recorded_pairs(app.store, control, version, dataset)
    if not pairs:
        raise InvalidOperation(
            f"{version.name} and {control.name} were not evaluated on the same problems",
            hint=f"`tfgrpo compare {data or 'DATA'} --library {library} --against {against}`",
        )
    return pairs[-1]


SHOWN = 28


@click.command()
@click.argument("file", type=path())
@option(
    "--domain",
    "Domain whose verifier to use: a name or package.module:object; by default that in "
    "[train] of tfgrpo.toml, else math.",
)
@many(
    "--field OURS=THEIRS",
    "Field names in FILE for gold, pred, expected, problem or id, such as gold=answer.",
    "fields",
)
@flag("--answers", "Treat every pred as a bare answer, not a full response.")
@option(
    "--pattern REGEX",
    "Extract the answer with this regex: the last match's first group, such as '^A: (.*)'.",
)
@flag("--all", "Show every verdict, not only unexpected ones.", name="everything")
@option(
    "--timeout",
    "Seconds per case; processor time where the verifier is built in.",
    type=click.FloatRange(0, min_open=True),
    default=10.0,
)
@option("--workers", "Worker processes.", type=COUNT, default=2)
@options.CONFIG
@option("--model", "Model for domains that use a judge.")
@option("--base-url", "Base URL of that model.")
@option("--api-key-env", "Environment variable with its API key.")
@JSON
@pass_given
def verify(app: App, given: Given) -> None:
    """Run the cases in FILE through a domain's verifier, before you pay for a run.

    Each row has a ground truth (gold), a response (pred) and, optionally, the expected verdict
    (expected: true, false, a reward, or null for a case that cannot be judged). Verdicts are right,
    wrong or unverifiable; unexpected ones are listed with reasons.

    \b
    Examples:
      tfgrpo verify cases.jsonl
      tfgrpo verify cases.jsonl --answers --all --json
    """
    from tfgrpo.domains.registry import with_data
    from tfgrpo.evaluation.verifier_cases import agreement, read_cases
    from tfgrpo.session import SessionOptions

    project = app.project(given.config)
    spec = given.domain or project.table("train").get("domain")
    project.require_trust_of("domain", given.domain)
    judging_domain = project.domain(spec)
    named = options.read_flags({"fields": given.fields}).get("fields")
    how = given.of("answers", "pattern")
    cases = read_cases(given.file, judging_domain, named, **how)
    problems = [case.problem for case in cases]
    judging_domain, _ = with_data(judging_domain, str(spec), problems)
    printing.warn(judging_domain.remarks(problems) if judging_domain.remarks else ())
    limits = SessionOptions(verifier_seconds=given.timeout, verifier_workers=given.workers)
    judged = _judged(app, cases, judging_domain, limits, given)
    (right, known), name = agreement(judged), judging_domain.name
    counts = _counts(judged)
    fields = {
        "file": str(given.file),
        "domain": name,
        "cases": len(judged),
        "verdicts": counts,
        "agreement": [right, known] if known else None,
        "judged": [_json(case) for case in judged],
    }
    lines = [
        f"{given.file}: {printing.plural(len(judged), 'case')}, domain {name}",
        "  " + ", ".join(f"{count} {word}" for word, count in counts.items()),
    ]
    if known:
        lines.append(f"  agreement {right} of {known} ({100 * right / known:.1f} %)")
    everything = given.everything or not known
    if odd := [case for case in judged if everything or case.agrees is False]:
        lines += ["", *_table(odd, bool(known))]
    printing.answer(app, fields, lines, given.as_json)


def _judged(
    app: App, cases: Sequence[Case], domain: Domain, limits: SessionOptions, given: Given
) -> list[JudgedCase]:
    import asyncio

    from tfgrpo.domains.verifier import Verifier
    from tfgrpo.evaluation.verifier_cases import judge_by_model, judge_cases

    if domain.judge is None:
        workers, seconds = limits.verifier_workers, limits.verifier_seconds
        with Verifier(workers=workers, seconds=seconds) as verifier:
            return asyncio.run(judge_cases(cases, domain, verifier))
    from tfgrpo.connect import named_models
    from tfgrpo.session import open_session
    from tfgrpo.settings import Settings, build

    project, model = app.project(given.config), given.of("model", "base_url", "api_key_env")
    project.require_trust(model)
    layers = [model, project.table("model")]
    named, notes = named_models(layers, os.environ, project.listed(layers))
    for note in notes:
        printing.echo(f"note: {note}", err=True)
    settings = build(Settings, named, *layers)
    prices, endpoints = project.prices(settings.models), project.endpoints(settings.models)
    session_options = replace(limits, prices=prices, endpoints=endpoints)

    async def judge() -> list[JudgedCase]:
        async with open_session(app.store, settings.models, session_options) as session:
            return await judge_by_model(cases, domain, session, _tell_of_waiting)

    return asyncio.run(judge())


def _tell_of_waiting(waits: bool) -> None:
    if waits:
        printing.echo("waiting for another verification, which asks the same judge", err=True)


def _counts(judged: Sequence[JudgedCase]) -> dict[str, int]:
    words = [case.word for case in judged]
    first = [word for word in ("right", "wrong", "unverifiable") if word in words]
    return {word: words.count(word) for word in dict.fromkeys([*first, *sorted(words)])}


def _json(case: JudgedCase) -> dict[str, Any]:
    verdict = case.verdict
    record: dict[str, Any] = {"id": case.case.problem.id, "reward": verdict.reward}
    record |= {"verdict": case.word, "answer": verdict.answer, "reason": verdict.reason}
    if verdict.details:
        record["details"] = dict(verdict.details)
    if case.case.known:
        record |= {"expected": case.case.expected, "agrees": case.agrees}
    return record


def _table(judged: Sequence[JudgedCase], known: bool) -> Iterator[str]:
    from tfgrpo.evaluation.verifier_cases import word

    header = ["case", "verdict", *(["expected"] if known else []), "reason"]
    rows = []
    for case in judged:
        expected = [word(case.case.expected) if case.case.known else ""] if known else []
        id = case.case.problem.id
        id = id if len(id) <= SHOWN else "…" + id[1 - SHOWN :]
        rows.append([id, case.word, *expected, " ".join(case.verdict.reason.split())])
    yield from printing.table(rows, header=header)
