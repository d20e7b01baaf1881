"""`tfgrpo status`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON, flag, option
from tfgrpo.cli.start_context import REVISION, App, Given, pass_given
from tfgrpo.runs.run_issues import issue_counts, report, resumption
from tfgrpo.store.history.log_filter import subject
from tfgrpo.store.history.name_moves import branch_to_return_to, protected
from tfgrpo.store.history.revisions import run_of_history
from tfgrpo.store.transfer.remotes import Apart, apart_from_remote
from tfgrpo.tools.sandbox import known_strength

if TYPE_CHECKING:
    from tfgrpo.store.history.blame import Confirmed, Stats
    from tfgrpo.store.store import Store


@click.command()
@click.argument("revision", required=False, type=REVISION)
@flag("-s, --short", "The first line alone.")
@flag(
    "-v, --verbose",
    "Also show figures: the history, and the experiences confirmed and changed most often.",
)
@option(
    "-n, --number",
    "With -v: how many experiences to list in each group.",
    type=click.IntRange(0),
    default=5,
)
@JSON
@pass_given
def status(app: App, given: Given) -> None:
    """Show where HEAD is, whether its branch is protected, how far it is from its remote's branch
    as of the last fetch, the size of the library, what an agent's Python runs in here, and any
    running or unfinished runs. With -v, figures of REVISION are shown as well.

    \b
    Examples:
      tfgrpo status
      tfgrpo status -v --json
      tfgrpo status -v v1
    """
    if given.revision is not None and not given.verbose:
        raise click.UsageError(
            f"what is {given.revision}? `tfgrpo status -v {given.revision}` has a library in "
            f"figures, `tfgrpo show {given.revision}` its texts"
        )
    store = app.store
    figures = None
    if given.verbose:
        from tfgrpo.store.history.blame import stats

        figures = stats(store, store.resolve(given.revision or "HEAD"))
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
    if given.as_json:
        issues = ("refused", "failed", "repaired")
        printing.emit_json(
            {
                "store": app.location,
                "head": head.version.name,
                "branch": head.branch,
                "protected": head.branch in guarded,
                "remote": apart and apart._asdict(),
                "experiences": len(library),
                "versions": store.port.last_version() + 1,
                "bytes": store.port.storage.size(),
                "run": name,
                "accounts": {
                    run: {issue: getattr(account, issue) for issue in issues}
                    for run, account in accounts.items()
                },
                "unfinished": [{"run": run.name, "state": state} for run, state in unfinished],
                "sandbox": {"level": sandbox.level, "lacks": list(sandbox.lacks)},
                **({} if figures is None else {"library": _object(figures)}),
            }
        )
        return
    where = f"on branch {head.branch}" if head.branch else "HEAD is detached"
    note = ", protected: it moves only with --force" if head.branch in guarded else ""
    printing.echo(f"{where}, at {printing.style(head.version.name, fg='yellow')}{note}")
    if given.short:
        return
    printing.echo_each(printing.wrapped(subject(store, head.version), first="  ", indent=2))
    if apart is not None:
        printing.echo(f"  {_apart(apart)}")
    size = printing.plural(len(library), "experience")
    letters = sum(len(e.text) for e in library)
    printing.echo(f"  {size}, {letters} characters; {printing.plural(len(runs), 'run')}")
    printing.echo(f"  store: {app.location}, {store.port.storage.size() / 1e6:.1f} MB")
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
    if figures is not None:
        printing.echo()
        printing.emit(app, _figures(store, figures, given.number))


def _apart(apart: Apart) -> str:
    ahead, behind = apart.ahead, apart.behind
    if not ahead and not behind:
        return f"the same as {apart.name} when last fetched"
    if not ahead:
        late = printing.plural(behind, "version")
        return f"{late} behind {apart.name}: `tfgrpo pull` brings them"
    merges = f" and {behind} behind: `tfgrpo pull` merges them"
    then = merges if behind else ": `tfgrpo push` sends them"
    return f"{printing.plural(ahead, 'version')} ahead of {apart.name}{then}"


def _figures(store: Store, stats: Stats, number: int) -> Iterator[str]:
    size = printing.plural(len(stats.experiences), "experience")
    letters = sum(len(c.experience.text) for c in stats.experiences)
    name = printing.style(stats.version.name, fg="yellow", bold=True)
    yield f"{name}: {size}, {letters} characters"
    share = f"{stats.snapshot_share:.1%} of it in {printing.plural(stats.snapshots, 'snapshot')}"
    share = share if stats.snapshots else "no snapshots"
    versions = printing.plural(stats.file_versions, "version")
    events = printing.plural(stats.file_events, "event")
    yield f"file     {stats.bytes / 1e6:.2f} MB, {share}; {versions}, {events}"
    counted = " ".join(word.styled() for word in printing.counts(stats.events)) or "no events"
    since = "" if stats.first is None else f", since {printing.when(stats.first.time)}"
    age = "" if stats.first is None else f" ({printing.age(stats.first.time)})"
    yield f"history  {printing.plural(stats.versions, 'version')} with {counted}{since}{age}"
    most = [c for c in stats.most_confirmed if c.keeps][:number]
    least = [c for c in stats.least_confirmed if c not in most][:number]
    label = {c.experience.id: f"G{i}" for i, c in enumerate(stats.experiences)}
    for title, sign, listed in (
        ("most confirmed", "=", most),
        ("least confirmed", "=", least),
        ("most often changed", "~", stats.churn[:number]),
    ):
        if listed:
            yield printing.style(title, bold=True)
            yield from _listed(listed, sign, label)
    if stats.steps:
        rows = []
        for s in stats.steps:
            counted = " ".join(word.text for word in printing.counts(s.events))
            age = printing.age(s.version.time)
            rows.append((s.run, str(s.step + 1), s.version.name, age, counted))
        yield from printing.table(rows, header=("run", "step", "version", "age", "events"))


def _listed(listed: Sequence[Confirmed], sign: str, label: dict[str, str]) -> Iterator[str]:
    for confirmed in listed:
        count = confirmed.keeps if sign == "=" else confirmed.modified
        version = confirmed.version
        line = [
            printing.Word(f"{sign}{count}", fg="cyan" if sign == "=" else "yellow"),
            printing.Word(f"[{label[confirmed.experience.id]}]", fg="cyan"),
            *printing.words(confirmed.experience.text),
            *printing.words(f"({version.name}, {printing.age(version.time)})", dim=True),
        ]
        yield from printing.wrap(line, first="  ", indent=6)


def _object(stats: Stats) -> dict[str, Any]:
    experiences, steps = [], []
    for c in stats.experiences:
        texts = {"id": c.experience.id, "text": c.experience.text}
        experiences.append({**texts, "keeps": c.keeps, "modified": c.modified})
    for s in stats.steps:
        place = {"run": s.run, "step": s.step + 1, "version": s.version.name}
        steps.append({**place, "events": s.events})
    return {
        "version": stats.version.name,
        "experiences": experiences,
        "versions": stats.versions,
        "events": stats.events,
        "since": None if stats.first is None else stats.first.when.isoformat(),
        "steps": steps,
        "file": {
            "bytes": stats.bytes,
            "versions": stats.file_versions,
            "events": stats.file_events,
            "snapshots": stats.snapshots,
            "snapshot_bytes": stats.snapshot_bytes,
        },
    }
