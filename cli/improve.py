"""`tfgrpo collect`, `improve` and `regress`: learning from what went wrong, and what helps no
longer."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from tfgrpo.cli import options, printing
from tfgrpo.cli.cost import print_figures
from tfgrpo.cli.flags import COUNT, FORCE, JSON, flag, many, option, path
from tfgrpo.cli.help import SectionedCommand
from tfgrpo.cli.proposal import as_object
from tfgrpo.cli.start_context import (
    BRANCH,
    FINITE,
    REVISION,
    App,
    Given,
    pass_given,
    refuse_others,
)
from tfgrpo.cli.traffic import opened
from tfgrpo.notices import OnProgress, ignore
from tfgrpo.store.history.log_filter import parse_time

if TYPE_CHECKING:
    from tfgrpo.improvement.collection import Collected
    from tfgrpo.improvement.improve import Improvement

MOST = 10
"""Places that are named for one reason."""
SINCE = option("--since", "Calls from when on: 2h, 3d.", default="7d")
LIBRARY = option("--library", "Only calls under this library of the proxy.")
BELOW = option("--below", "Scores below this are failures.", type=FINITE, default=0.5)
BY = option("--by AUTHOR", "Only scores by this author, such as a judge.")
NO_SYSTEM = flag("--no-system", "Leave the application's own system text and examples out.")
REDACT = many("--redact REGEX", "What else to take out of texts; repeatable.")


@click.command()
@click.argument("files", nargs=-1, type=path(exists=True, dir_okay=False))
@SINCE
@LIBRARY
@option("--version", "Only calls under this version, by name or digest.")
@option("--of-model", "Only calls of this model.")
@BELOW
@BY
@option(
    "--judge DOMAIN",
    "First score the calls by this, such as rubric:style.toml, and go by its scores.",
)
@option("--model", "Model of the judge.")
@option("--base-url", "OpenAI-compatible endpoint of the judge's model.")
@option("--api-key-env", "Environment variable with its API key.")
@option("--budget", "Most that judging may cost: 5.00 (US dollars) or 200000tok.")
@many(
    "--heldout DATA",
    "Another set whose problems are left out, beside those of tfgrpo.toml and of runs.",
)
@flag("--unanswered", "Take failures without a corrected answer too, for a domain that needs none.")
@NO_SYSTEM
@REDACT
@option(
    "-o, --output",
    "File that is appended to.  [collected.jsonl in the project]",
    type=path(dir_okay=False),
)
@options.estimate
@flag("--dry-run", "Write nothing.")
@flag("--json", "Output JSON: the problems and the rest.", name="as_json")
@options.CONFIG
@pass_given
def collect(app: App, given: Given) -> None:
    """Turn calls that went wrong into problems to train on.

    A call went wrong if it was corrected, if its scores are low, or if two arms of an experiment
    answered the same question differently. The corrected answer is the ground truth. Questions
    are taken once, without mail addresses, keys and card numbers, and never if they are in a
    held-out, gate or sealed set.

    FILES from elsewhere take the place of the proxy's record: OTLP JSON with GenAI messages
    (Langfuse's too), OpenAI chat, batch and preference JSONL, stored completions, and the
    output_items of Evals. Lines that are none of these are named.

    \b
    Examples:
      tfgrpo collect --since 1d
      tfgrpo collect --judge rubric:style.toml --below 0.7
      tfgrpo collect traces.jsonl -o problems.jsonl
    """
    from tfgrpo.cli import live_display
    from tfgrpo.improvement import collection, judge_feedback
    from tfgrpo.store.activity.traffic import CallFilter

    named = given.of("model", "base_url", "api_key_env")
    _check_judge(given)
    start = parse_time(given.since, now=time.time_ns() // 1000)
    which = CallFilter(start, given.version, given.library, given.of_model)
    project = app.project(given.config)
    if given.judge is not None:
        settings = {name: value for name, value in named.items() if value is not None}
        how = (which, settings, given.budget, given.redact)
        judging = judge_feedback.JudgeRequest(given.judge, *how)
        if given.estimate:
            print_figures(judge_feedback.estimate_judging(app.store, project, judging), given)
            return
        scored = live_display.watched(
            app.store,
            lambda report: judge_feedback.judge_calls(
                app.store, project, judging, on_progress=report
            ),
        )
        printing.echo(f"{given.judge} scored {printing.plural(scored, 'call')}", err=given.as_json)
        given.by, given.unanswered = given.by or judging.author, True
    whole = not given.no_system
    rules = collection.CollectionRules(given.below, given.unanswered, given.redact, whole)
    request = collection.CollectRequest(
        given.files, which, given.by, given.heldout, given.output, rules
    )
    collected = collection.collect(app.store, project, request, dry_run=given.dry_run)
    fields = {
        "problems": collected.rows,
        "left_out": [one._asdict() for one in collected.left_out],
        "unread": [one._asdict() for one in collected.unread],
        "warnings": collected.warnings,
    }
    printing.warn(() if given.as_json else collected.warnings)
    file = collection.output_path(project, request)
    printing.answer(app, fields, _collected_lines(collected, file, given.dry_run), given.as_json)


def _check_judge(given: Given) -> None:
    """Raises UsageError for what would be ignored, with a judge or without."""
    if given.judge is None:
        if given.estimate:
            raise click.UsageError("--estimate needs --judge; collecting costs nothing")
        for name, value in given.of("model", "base_url", "api_key_env", "budget").items():
            if value is not None:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --judge")
    elif given.files:
        raise click.UsageError("--judge scores the calls on record: leave out FILES")
    elif given.dry_run:
        raise click.UsageError("--judge pays and records: use --estimate instead of --dry-run")


def _collected_lines(collected: Collected, file: Path, dry_run: bool) -> Iterator[str]:
    from tfgrpo.improvement.collection import NO_TRUTH

    done = "would append" if dry_run else "appended"
    if collected.rows:
        yield f"{done} {printing.plural(len(collected.rows), 'problem')} to {file}"
    else:
        yield "nothing new to learn from"
    for why, count in collected.counts().items():
        hint = "; `tfgrpo feedback CALL --correct …` gives one" if why == NO_TRUTH else ""
        yield f"left out {count}: {why}{hint}"
    places: dict[str, list[str]] = {}
    for one in collected.unread:
        places.setdefault(one.why, []).append(one.where)
    for why, where in places.items():
        more = f" and {len(where) - MOST} more (--json lists them)" if len(where) > MOST else ""
        yield f"cannot use {', '.join(where[:MOST])}{more}: {why}"


@click.command(cls=SectionedCommand)
@options.from_settings("shared", "train", own=("temperature",))
@option("--target", "Branch to make better.", type=BRANCH, default="prod")
@SINCE
@LIBRARY
@BELOW
@BY
@option(
    "--from",
    "File that problems are collected in.  [collected.jsonl in the project]",
    name="file",
    type=path(dir_okay=False),
)
@REDACT
@NO_SYSTEM
@option("--least", "Train only with this many new problems or more.", type=COUNT, default=8)
@option("--heldout-samples", "Attempts per held-out problem.", type=COUNT, default=4)
@option("--budget", "Most to spend: 5.00 (US dollars) or 200000tok.")
@flag("--accept-better", "Accept the proposal at once if it is better on held-out problems.")
@flag("--new", "Give up an interrupted improvement and start a new one.")
@options.estimate
@flag("-q, --quiet", "Print nothing unless there is a proposal.")
@JSON
@FORCE
@options.CONFIG
@pass_given
def improve(app: App, given: Given) -> None:
    """Learn from what went wrong: collect, train on a branch, compare, propose.

    Calls that went wrong since the last time become problems (see `tfgrpo collect`). If there are
    enough new ones, a training with a gate learns from them on a branch of its own, and its library
    is compared with the target on held-out problems. If it is not worse it becomes a proposal:
    `tfgrpo proposal` lists, shows, accepts and rejects it. The target does not move before, except
    with --accept-better.

    For cron: it succeeds if there is nothing to do, exits with 75 if another one is at work, and
    goes on the next time after a kill. Problems of earlier times are not paid for again. Gate and
    held-out sets are those in [train] of tfgrpo.toml, or parts of the new problems.

    \b
    Examples:
      tfgrpo improve --quiet
      tfgrpo improve --target support --since 1d --least 20
    """
    from tfgrpo.cli import live_display
    from tfgrpo.improvement.collection import CollectionRules, CollectRequest
    from tfgrpo.improvement.improve import ImproveRequest, estimate_improvement
    from tfgrpo.improvement.improve import improve as improve_library
    from tfgrpo.learn.run_setup import WITHOUT_NEW
    from tfgrpo.store.activity.traffic import CallFilter

    start = parse_time(given.since, now=time.time_ns() // 1000)
    which = CallFilter(start, library=given.library)
    rules = CollectionRules(given.below, redact=given.redact, system=not given.no_system)
    collected = CollectRequest(which=which, by=given.by, output=given.file, rules=rules)
    request = ImproveRequest(
        collect=collected,
        samples=given.heldout_samples,
        accept=given.accept_better,
        settings=options.read_flags(given.settings),
        **given.of("target", "least", "new", "budget"),
    )
    project = app.project(given.config)
    if given.estimate:
        print_figures(estimate_improvement(app.store, project, request), given)
        return
    quiet, again = given.quiet or given.as_json, WITHOUT_NEW if given.new else "the same command"

    def work(report: OnProgress) -> Coroutine[Any, Any, Improvement]:
        shows = ignore if quiet else live_display.no_scores(report)  # the proposal has a line of it
        return improve_library(app.store, project, request, on_progress=shows)

    done = live_display.watched(app.store, work, lambda: f"{again} goes on where it was")
    _tell(app, done, given)


def _tell(app: App, done: Improvement, given: Given) -> None:
    proposal = done.proposal
    if given.as_json:
        names = ("outcome", "target", "new", "run", "left_out")
        fields = {name: getattr(done, name) for name in names}
        fields["effect"] = done.effect and done.effect._asdict()
        printing.emit_json({**fields, "proposal": proposal and as_object(proposal)})
    elif proposal is not None or not given.quiet:
        printing.emit(app, str(done).split("\n"))
    if done.outcome == "accepted":
        app.has_moved(done.target)
    if done.outcome == "proposed" and proposal is not None and not given.as_json:
        printing.echo(
            f"next: `tfgrpo proposal accept {proposal.id}` or "
            f"`tfgrpo proposal reject {proposal.id} --why …`"
        )


@click.command(cls=SectionedCommand)
@options.from_settings("shared", "eval", own=("temperature",), also=("problems", "budget"))
@click.argument("data", required=False)
@option("--library", "What is asked.", default="HEAD", type=REVISION)
@option("--samples", "Attempts per problem, library and side.", type=click.IntRange(2), default=4)
@option("--problems", "Use only the first N problems.", type=COUNT)
@option(
    "--unused TIME",
    "Instead, list the experiences that were in no prompt for this long, such as 28d.",
)
@option(
    "--propose BRANCH",
    "Propose to delete what no longer helps from this branch.",
    name="target",
    type=BRANCH,
)
@option("--budget", "Most to spend on each side: 5.00 (US dollars) or 200000tok.")
@options.estimate
@JSON
@options.CONFIG
@pass_given
def regress(app: App, given: Given) -> None:
    """See whether a library still helps: on another model, or on the same one today.

    The library and the empty one attempt the problems in DATA under the model of its run and under
    --model, and what the library adds is compared by problem. What each experience adds is
    measured on both sides, and those that stopped helping, or hurt, are named. Without --model,
    or with the same one at the same address, it is asked afresh and compared with the scores on
    record. Nothing is deleted: --propose makes a proposal.

    \b
    Examples:
      tfgrpo regress heldout.jsonl --model m --samples 2
      tfgrpo regress --unused 28d
    """
    from tfgrpo.cli import live_display
    from tfgrpo.improvement.regression import RegressRequest, estimate_regression, regression_object
    from tfgrpo.improvement.regression import regress as compare_sides

    if given.unused is not None:
        _unused(app, given)
        return
    settings, project = options.read_flags(given.settings), app.project(given.config)
    request = RegressRequest(given.library, given.data, given.samples, settings, given.target)
    if given.estimate:
        print_figures(estimate_regression(app.store, project, request), given)
        return
    regression = live_display.watched(
        app.store,
        lambda report: compare_sides(
            app.store, project, request, on_progress=ignore if given.as_json else report
        ),
        lambda: "the same command goes on where it was",
    )
    lines = printing.view_lines(regression.view())
    printing.answer(app, lambda: regression_object(regression), lines, given.as_json)


OF_UNUSED = ("unused", "library", "target", "config")
"""The parameters of `regress` that go with --unused, which asks no model."""


def _unused(app: App, given: Given) -> None:
    from tfgrpo.improvement.regression import propose_expiry, unused_experiences

    refuse_others(OF_UNUSED, "cannot be used with --unused, which asks no model")
    store, target, since = app.store, given.target, given.unused
    source = click.get_current_context().get_parameter_source("library")
    is_typed = source is ParameterSource.COMMANDLINE
    revision = given.library if is_typed else target or store.head.branch or given.library
    version, start = store.resolve(revision), parse_time(since, now=time.time_ns() // 1000)
    with opened(app) as traffic:
        expired = unused_experiences(store, traffic, version, start)
    label = store.library(version).label_of
    there = store.library(store.tip(target)).by_id if target else {}
    gone = [one for one in expired if one.id in there]
    proposal = propose_expiry(store, target, gone, since) if gone else None
    rows = [{"label": label[e.id], "experience": e.id, "text": e.text} for e in expired]
    lines = [f"[{label[e.id]}] in no prompt since {since}: {e.text}" for e in expired]
    if not expired:
        lines = [f"no experience of {revision} is known to be unused since {since}"]
    if proposal is not None:
        lines.append(f"proposal {proposal.id} deletes them")
    fields = {"unused": rows, "proposal": proposal and proposal.id}
    printing.answer(app, fields, lines, given.as_json)
