"""`tfgrpo status`."""

from __future__ import annotations

import click

from tfgrpo.cli import text
from tfgrpo.cli.context import App, pass_app
from tfgrpo.store.log_filter import subject
from tfgrpo.store.name_moves import protected
from tfgrpo.store.revisions import run_of_history
from tfgrpo.store.transfer.remotes import Apart, apart_from_remote
from tfgrpo.tools.known_strength import known_strength
from tfgrpo.training.run_report import issue_counts, report


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Output JSON.")
@pass_app
def status(app: App, as_json: bool) -> None:
    """Show where HEAD is, whether its branch is protected, how far it is from its remote's branch
    as of the last fetch, the size of the library, what an agent's Python runs in here, and any
    running or unfinished runs.

    \b
    Examples:
      tfgrpo status
      tfgrpo status --json
    """
    store = app.store
    head = store.head
    library = store.library(head.version)
    runs = [(run, store.runs.state(run)) for run in store.runs.listed()]
    name = run_of_history(store, head.version)
    here = store.runs.find(name) if name is not None else None
    shown = [run for run, state in runs if state != "finished" or run == here]
    accounts = {run.name: report(store, run) for run in shown}
    unfinished = [(run, state) for run, state in runs if state != "finished"]
    guarded = protected(store, "branch")
    apart = apart_from_remote(store, head.branch) if head.branch else None
    sandbox = known_strength()
    if as_json:
        text.emit_json(
            {
                "store": app.location,
                "head": head.version.name,
                "branch": head.branch,
                "protected": head.branch in guarded,
                "remote": apart and apart._asdict(),
                "experiences": len(library),
                "versions": store.port.last_version() + 1,
                "bytes": store.port.counts.size(),
                "run": name,
                "accounts": {
                    run: {"refused": a.refused, "failed": a.failed, "repaired": a.repaired}
                    for run, a in accounts.items()
                },
                "unfinished": [{"run": run.name, "state": state} for run, state in unfinished],
                "sandbox": {"level": sandbox.level, "lacks": list(sandbox.lacks)},
            }
        )
        return
    where = f"on branch {head.branch}" if head.branch else "HEAD is detached"
    note = ", protected: it moves only with --force" if head.branch in guarded else ""
    text.echo(f"{where}, at {text.style(head.version.name, fg='yellow')}{note}")
    for line in text.wrap(text.words(subject(store, head.version)), first="  ", indent=2):
        text.echo(line)
    if apart is not None:
        text.echo(f"  {_apart(apart)}")
    size = text.plural(len(library), "experience")
    letters = sum(len(e.text) for e in library)
    text.echo(f"  {size}, {letters} characters; {text.plural(len(runs), 'run')}")
    text.echo(f"  store: {app.location}, {store.port.counts.size() / 1e6:.1f} MB")
    for line in text.wrap(
        text.words(f"sandbox for agents' Python: {sandbox}"), first="  ", indent=4
    ):
        text.echo(line)
    if head.branch is None:
        text.echo("  `tfgrpo checkout main` returns to the branch main")
    for run_name, account in accounts.items():
        if issue_counts(account):
            text.echo(
                f"run {run_name}: {issue_counts(account)}; `tfgrpo runs {run_name}` lists them"
            )
    for run, state in unfinished:
        states = store.runs.states(run)
        text.echo(f"run {run.name} is {state}")
        if state == "running":
            continue
        if states and states[-1].detail:
            text.echo(f"  {states[-1].words}")
        text.echo(f"  resume it with `tfgrpo train --resume {run.name}`")


def _apart(apart: Apart) -> str:
    """Returns how a branch and its remote's compare, and what brings them together."""
    ahead, behind = apart.ahead, apart.behind
    if not ahead and not behind:
        return f"the same as {apart.name} when last fetched"
    if not behind:
        return f"{text.plural(ahead, 'version')} ahead of {apart.name}: `tfgrpo push` sends them"
    if not ahead:
        return f"{text.plural(behind, 'version')} behind {apart.name}: `tfgrpo pull` brings them"
    return (
        f"{text.plural(ahead, 'version')} ahead of {apart.name} and {behind} behind: `tfgrpo pull` "
        "merges them"
    )
