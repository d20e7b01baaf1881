"""`tfgrpo status`."""

from __future__ import annotations

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON, flag
from tfgrpo.cli.start_context import App, pass_app
from tfgrpo.runs.run_issues import issue_counts, report, resumption
from tfgrpo.store.history.log_filter import subject
from tfgrpo.store.history.name_moves import branch_to_return_to, protected
from tfgrpo.store.history.revisions import run_of_history
from tfgrpo.store.transfer.remotes import Apart, apart_from_remote
from tfgrpo.tools.sandbox import known_strength


@click.command()
@flag("-s, --short", "The first line alone.")
@JSON
@pass_app
def status(app: App, short: bool, as_json: bool) -> None:
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
        issues = ("refused", "failed", "repaired")
        fields = {
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
                run: {issue: getattr(account, issue) for issue in issues}
                for run, account in accounts.items()
            },
            "unfinished": [{"run": run.name, "state": state} for run, state in unfinished],
            "sandbox": {"level": sandbox.level, "lacks": list(sandbox.lacks)},
        }
        printing.emit_json(fields)
        return
    where = f"on branch {head.branch}" if head.branch else "HEAD is detached"
    note = ", protected: it moves only with --force" if head.branch in guarded else ""
    printing.echo(f"{where}, at {printing.style(head.version.name, fg='yellow')}{note}")
    if short:
        return
    printing.echo_each(printing.wrapped(subject(store, head.version), first="  ", indent=2))
    if apart is not None:
        printing.echo(f"  {_apart(apart)}")
    size = printing.plural(len(library), "experience")
    letters = sum(len(e.text) for e in library)
    printing.echo(f"  {size}, {letters} characters; {printing.plural(len(runs), 'run')}")
    printing.echo(f"  store: {app.location}, {store.port.counts.size() / 1e6:.1f} MB")
    printing.echo_each(
        printing.wrapped(f"sandbox for agents' Python: {sandbox}", first="  ", indent=4)
    )
    if head.branch is None and (back := branch_to_return_to(store)) is not None:
        printing.echo(f"  `tfgrpo checkout {back}` returns to the branch {back}")
    for run_name, account in accounts.items():
        if issue_counts(account):
            lists = f"`tfgrpo runs {run_name}` lists them"
            printing.echo(f"run {run_name}: {issue_counts(account)}; {lists}")
    for run, state in unfinished:
        states = store.runs.states(run)
        printing.echo(f"run {run.name} is {state}")
        if state == "running":
            continue
        if states and states[-1].detail:
            printing.echo(f"  {states[-1].words}")
        printing.echo(f"  resume it with {resumption(run)}")


def _apart(apart: Apart) -> str:
    ahead, behind = (printing.plural(n, "version") for n in (apart.ahead, apart.behind))
    if apart.ahead and apart.behind:
        merges = f"{apart.behind} behind: `tfgrpo pull` merges them"
        return f"{ahead} ahead of {apart.name} and {merges}"
    if apart.ahead:
        return f"{ahead} ahead of {apart.name}: `tfgrpo push` sends them"
    if apart.behind:
        return f"{behind} behind {apart.name}: `tfgrpo pull` brings them"
    return f"the same as {apart.name} when last fetched"
