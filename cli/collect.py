"""`tfgrpo collect`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.flags import flag, option
from tfgrpo.cli.start_context import FINITE, App, Given, pass_given
from tfgrpo.terminal_safe import shown

if TYPE_CHECKING:
    from tfgrpo.improvement.collection import Collected

MOST = 10
"""Places that are named for one reason."""


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@option("--since", "Calls from when on: 2h, 3d.", default="7d")
@option("--library", "Only calls under this library of the proxy.")
@option("--version", "Only calls under this version, by name or digest.")
@option("--of-model", "Only calls of this model.")
@option("--below", "Scores below this are failures.", type=FINITE, default=0.5)
@option("--by", "Only scores by this author, such as a judge.", metavar="AUTHOR")
@option(
    "--judge",
    "First score the calls by this, such as rubric:style.toml, and go by its scores.",
    metavar="DOMAIN",
)
@option("--model", "Model of the judge.")
@option("--base-url", "OpenAI-compatible endpoint of the judge's model.")
@option("--api-key-env", "Environment variable with its API key.")
@option("--budget", "Most that judging may cost: 5.00 (US dollars) or 200000tok.")
@option(
    "--heldout",
    "Another set to keep out; those in tfgrpo.toml and of runs are known.",
    multiple=True,
    metavar="DATA",
)
@flag("--unanswered", "Take failures without a corrected answer too, for a domain that needs none.")
@flag("--no-system", "Leave the application's own system text and examples out.")
@option("--redact", "What else to take out of texts.", default="", metavar="REGEX")
@option(
    "-o, --output",
    "File that is appended to.  [collected.jsonl in the project]",
    type=click.Path(dir_okay=False, path_type=Path),
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
    from tfgrpo.cli import cost, interrupts
    from tfgrpo.improvement import collection, judge_feedback
    from tfgrpo.store.activity.traffic import CallFilter
    from tfgrpo.store.history.log_filter import parse_time

    which = CallFilter(
        parse_time(given.since, now=time.time_ns() // 1000),
        given.version,
        given.library,
        given.of_model,
    )
    project = options.open_project(app, given.config)
    if given.estimate and given.judge is None:
        raise click.UsageError("--estimate needs --judge; collecting costs nothing")
    if given.judge is not None:
        named = {"model": given.model, "base_url": given.base_url, "api_key_env": given.api_key_env}
        settings = {name: value for name, value in named.items() if value is not None}
        judging = judge_feedback.JudgeRequest(given.judge, which, settings, given.budget)
        if given.estimate:
            figures = judge_feedback.estimate_judging(app.store, project, judging)
            cost.print_figures(figures, details=given.details, as_json=given.as_json)
            return
        scored = interrupts.run(judge_feedback.judge_calls(app.store, project, judging))
        printing.echo(f"{given.judge} scored {printing.plural(scored, 'call')}", err=given.as_json)
        given.by, given.unanswered = given.by or judging.author, True
    request = collection.CollectRequest(
        given.files,
        which,
        given.by,
        given.heldout,
        given.output,
        collection.CollectionRules(
            given.below, given.unanswered, given.redact, not given.no_system
        ),
    )
    collected = collection.collect(app.store, project, request, dry_run=given.dry_run)
    if given.as_json:
        printing.emit_json(
            {
                "problems": collected.rows,
                "left_out": [one._asdict() for one in collected.left_out],
                "unread": [one._asdict() for one in collected.unread],
                "warnings": collected.warnings,
            }
        )
        return
    printing.warn(collected.warnings)
    printing.echo_each(
        report_lines(collected, collection.output_path(project, request), given.dry_run)
    )


def report_lines(collected: Collected, path: Path, dry_run: bool) -> Iterator[str]:
    """Yields what was collected, and what was not and why."""
    from tfgrpo.improvement.collection import NO_TRUTH

    done = "would append" if dry_run else "appended"
    if collected.rows:
        yield f"{done} {printing.plural(len(collected.rows), 'problem')} to {path}"
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
        yield f"cannot use {shown(', '.join(where[:MOST]))}{more}: {shown(why)}"
