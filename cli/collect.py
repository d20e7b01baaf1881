"""`tfgrpo collect`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.start_context import FINITE, App, pass_app
from tfgrpo.terminal_safe import shown

if TYPE_CHECKING:
    from tfgrpo.improvement.collection import Collected

MOST = 10
"""Places that are named for one reason."""


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--since", default="7d", show_default=True, help="Calls from when on: 2h, 3d.")
@click.option("--library", help="Only calls under this library of the proxy.")
@click.option("--version", help="Only calls under this version, by name or digest.")
@click.option("--of-model", help="Only calls of this model.")
@click.option(
    "--below", type=FINITE, default=0.5, show_default=True, help="Scores below this are failures."
)
@click.option("--by", metavar="AUTHOR", help="Only scores by this author, such as a judge.")
@click.option(
    "--judge",
    metavar="DOMAIN",
    help="First score the calls by this, such as rubric:style.toml, and go by its scores.",
)
@click.option("--model", help="Model of the judge.")
@click.option("--base-url", help="OpenAI-compatible endpoint of the judge's model.")
@click.option("--api-key-env", help="Environment variable with its API key.")
@click.option("--budget", help="Most that judging may cost: 5.00 (US dollars) or 200000tok.")
@click.option(
    "--heldout",
    multiple=True,
    metavar="DATA",
    help="Another set to keep out; those in tfgrpo.toml and of runs are known.",
)
@click.option(
    "--unanswered",
    is_flag=True,
    help="Take failures without a corrected answer too, for a domain that needs none.",
)
@click.option(
    "--no-system", is_flag=True, help="Leave the application's own system text and examples out."
)
@click.option("--redact", default="", metavar="REGEX", help="What else to take out of texts.")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that is appended to.  [collected.jsonl in the project]",
)
@options.estimate
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Output JSON: the problems and the rest.")
@options.CONFIG
@pass_app
def collect(
    app: App,
    /,
    files: tuple[Path, ...],
    since: str,
    library: str | None,
    version: str | None,
    of_model: str | None,
    below: float,
    by: str | None,
    judge: str | None,
    model: str | None,
    base_url: str | None,
    api_key_env: str | None,
    budget: str | None,
    heldout: tuple[str, ...],
    unanswered: bool,
    no_system: bool,
    redact: str,
    output: Path | None,
    estimate: bool,
    details: bool,
    dry_run: bool,
    as_json: bool,
    config: Path | None,
) -> None:
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
    from tfgrpo.improvement import collection, improvement_estimate, judge_feedback
    from tfgrpo.store.activity.traffic import CallFilter
    from tfgrpo.store.history.log_filter import parse_time

    which = CallFilter(parse_time(since, now=time.time_ns() // 1000), version, library, of_model)
    project = options.open_project(app, config)
    if estimate and judge is None:
        raise click.UsageError("--estimate needs --judge; collecting costs nothing")
    if judge is not None:
        named = {"model": model, "base_url": base_url, "api_key_env": api_key_env}
        given = {name: value for name, value in named.items() if value is not None}
        judging = judge_feedback.JudgeRequest(judge, which, given, budget)
        if estimate:
            planned = improvement_estimate.estimate_judging(app.store, project, judging)
            cost.print_planned(planned, details=details, as_json=as_json)
            return
        scored = interrupts.run(judge_feedback.judge_calls(app.store, project, judging))
        printing.echo(f"{judge} scored {printing.plural(scored, 'call')}", err=as_json)
        by, unanswered = by or judging.author, True
    request = collection.CollectRequest(
        files,
        which,
        by,
        heldout,
        output,
        collection.CollectionRules(below, unanswered, redact, not no_system),
    )
    collected = collection.collect(app.store, project, request, dry_run=dry_run)
    if as_json:
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
    printing.echo_each(report_lines(collected, collection.output_path(project, request), dry_run))


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
