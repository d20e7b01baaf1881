"""`tfgrpo rollout`: a change goes out to a share, watched, and stays or goes back."""

from __future__ import annotations

import re
import time
from itertools import count
from typing import Any

import click

from tfgrpo.cli import printing
from tfgrpo.cli.experiment import candidate_of, guards_of, parse_share, scale_of, why_option
from tfgrpo.cli.flags import option
from tfgrpo.cli.start_context import BRANCH, App, pass_app
from tfgrpo.production import experiment as records
from tfgrpo.production.webhook import checked_webhook
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.history.log_filter import parse_time
from tfgrpo.store.store import Store


@click.command()
@click.argument("candidate")
@option("--on", "The branch in production.  [the proposal's]", type=BRANCH)
@option("--share", "Subjects that get it meanwhile.", default="10%")
@option("--metric", "What decides.", default="score")
@option(
    "--guard",
    "What must not become worse, as of an experiment.  [errors, latency=20%, tokens=20%]",
    name="guards",
    multiple=True,
    metavar="METRIC[=BY],…",
)
@option(
    "--scale", "Between what scores lie.", name="scales", multiple=True, metavar="SCORE=LOW..HIGH"
)
@option("--until", "Until it is decided, or for so long at most: 2d.", default="decided")
@option("--webhook", "Where the end is told.", metavar="URL")
@why_option
@pass_app
def rollout(app: App, /, candidate: str, **flags: Any) -> None:
    """Give CANDIDATE, a proposal or a revision, to a share of subjects, and watch it.

    It is promoted when benefit is shown and nothing stands against it, and rolled back when harm
    is, guards included. Stopped with Ctrl-C, it goes on in the proxy's care. The command fails
    (exit code 1) unless it was promoted. See `tfgrpo experiment` for each step of its own.

    \b
    Examples:
      tfgrpo rollout p1 --share 10% --guard errors,latency
      tfgrpo rollout main --on prod --until 2d
    """
    from tfgrpo.production.experiment_end import outcome, tell, watch

    store = app.store
    control = flags["on"] or _target(store, candidate)
    listed = tuple(one for many in flags["guards"] for one in many.split(",") if one)
    metric = flags["metric"]
    guards = tuple(guard for guard in guards_of(listed, metric) if guard[0] != metric)
    scales = tuple(map(scale_of, flags["scales"]))
    plan = records.ExperimentPlan(metric, guards, auto=True, scales=scales)
    webhook = flags["webhook"] and checked_webhook(flags["webhook"])
    until = _seconds(flags["until"])
    name = _free_name(store, candidate)
    arms = control, candidate_of(store, candidate)
    share = parse_share(flags["share"])
    begun = records.start(store, name, arms, share, plan, why=flags["why"])
    printing.echo(f"rollout {name}: {100 * begun.share:g}% of subjects get {candidate}")
    last = ""
    try:
        for shown in watch(store, name, until):
            if shown.verdict.said != last:
                last = shown.verdict.said
                printing.echo(last)
    except KeyboardInterrupt:
        printing.echo(f"{name} goes on: `tfgrpo experiment status {name}`", err=True)
        raise
    ended = outcome(store, name)
    printing.echo(f"{name} was {ended.state}" + (f": {ended.why}" if ended.why else ""))
    if webhook and (why := tell(webhook, ended)) is not None:
        printing.echo(f"the webhook was not told: {why}", err=True)
    if ended.state != records.PROMOTED:
        raise click.exceptions.Exit(1)


def _target(store: Store, candidate: str) -> str:
    from tfgrpo.improvement.proposals import get_proposal

    try:
        return get_proposal(store, candidate).target
    except UnknownRevision:
        raise click.UsageError(
            f"{candidate} is no proposal: name the branch in production with --on"
        ) from None


def _free_name(store: Store, candidate: str) -> str:
    """A name that no experiment had: names are used once."""
    taken = {one.name for one in records.experiments(store)}
    plain = re.sub(r"[^A-Za-z0-9_.-]+", "-", candidate)[:40]
    names = (f"rollout-{plain}" + (f"-{n}" if n > 1 else "") for n in count(1))
    return next(name for name in names if name not in taken)


def _seconds(until: str) -> float | None:
    if until == "decided":
        return None
    seconds = -parse_time(until, now=0) / 1e6
    if seconds <= 0:
        now = time.time_ns() // 1000
        seconds = (parse_time(until, now=now) - now) / 1e6
    if seconds <= 0:
        raise click.UsageError(f"--until {until!r} is over already")
    return seconds
