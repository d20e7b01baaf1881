"""`tfgrpo runs`, `rollouts` and `plot`: training runs, their attempts and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfgrpo.cli import printing
from tfgrpo.cli.evaluate import latest_pair
from tfgrpo.cli.flags import COUNT, JSON, flag, option, path
from tfgrpo.cli.show_diff import issue_lines
from tfgrpo.cli.start_context import (
    REVISION,
    RUN,
    App,
    Given,
    needed,
    pass_app,
    pass_given,
    refuse_others,
)
from tfgrpo.cli.ui import PAGES
from tfgrpo.runs.run_issues import issue_counts, resumption
from tfgrpo.runs.run_record import RunRecord, Seal, listed_runs, run_record
from tfgrpo.store import atomic_write
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.result_tables import View
    from tfgrpo.runs.attempts import AttemptList, AttemptText, RecordedAttempt
    from tfgrpo.store.activity.runs import Run


@click.command()
@click.argument("names", metavar="[RUN]", nargs=-1, type=RUN)
@option("-r, --reason", "With rm: why, for the record.")
@flag("-a, --all", "List removed runs too.", name="everything")
@JSON
@pass_given
def runs(app: App, given: Given) -> None:
    """List training runs, or show one: its settings, steps and cost.

    `tfgrpo runs rm RUN …` hides unfinished runs from every list. That is on record and takes
    nothing away: what they cost stays counted, and `tfgrpo train --resume RUN` brings one back. A
    run is on record from its first answer on, so a start that fails needs no rm.

    \b
    Examples:
      tfgrpo runs
    """
    store = app.store
    if len(given.names) > 1:
        _remove(app, given)
    elif given.names:
        record = run_record(store, store.runs.get(given.names[0]))
        printing.answer(app, record.object, _lines(store, record), given.as_json)
    else:
        listed = listed_runs(store, removed=given.everything)
        rows = [
            (one.run.name, one.state, str(one.versions), printing.when(one.run.time), one.model)
            for one in listed
        ]
        header = ("run", "state", "steps", "started", "model")
        none = "no runs yet; start one with `tfgrpo train DATA`"
        lines = printing.table(rows, header=header, none=none)
        objects = (run_record(store, one.run).object() for one in listed)
        printing.answer(app, lambda: list(objects), lines, given.as_json)


def _remove(app: App, given: Given) -> None:
    """Hides runs: all that are named, or none. Raises InvalidOperation."""
    from tfgrpo.learn.run_setup import remove_run

    store, (verb, *others) = app.store, given.names
    if verb != "rm":
        raise click.UsageError("one run is shown at a time; `tfgrpo runs rm RUN …` hides some")
    listed = [store.runs.get(name) for name in others]
    with store.port.transaction():
        for run in listed:
            remove_run(store, run, given.reason)
    lines = [f"removed run {run.name}; {resumption(run)} brings it back" for run in listed]
    printing.answer(app, {"removed": [run.name for run in listed]}, lines, given.as_json)


def _lines(store: Store, record: RunRecord) -> Iterator[str]:
    run = record.run
    yield (
        f"{printing.style('run ' + run.name, bold=True)}: {record.state}, on branch {run.branch}, "
        f"from v{run.base}, started {printing.when(run.time)} by {run.author}"
    )
    for key, value in record.settings.items():
        yield from printing.wrapped(str(value), first=f"  {key}: ", indent=4)
    for note in record.asked:
        yield from printing.wrapped(printing.shown(note), first="  asked ", indent=4)
    if record.sealed is not None:
        yield from _seal_lines(record.sealed)
    yield ""
    for version in record.versions:
        words = [printing.Word(version.name, fg="yellow"), *printing.counts(store.counts(version))]
        yield from printing.wrap([*words, *printing.words(version.message)], indent=4)
    if record.gain is not None:
        yield from printing.apart(printing.wrapped(str(record.gain), indent=4))
    if issue_counts(record.report):
        yield from ("", issue_counts(record.report))
    for issue in record.report.issues:
        first = printing.style(issue.version.name, fg="yellow") + " "
        yield from issue_lines(issue, first=first)
    if record.usage:
        rows = [
            (stage, *(f"{n:,}" for n in (u.calls, u.prompt_tokens, u.completion_tokens)))
            for stage, u in record.usage.items()
        ]
        header = ("stage", "calls", "tokens in", "tokens out")
        yield from printing.apart(printing.table(rows, header=header))
    for state in record.states:
        detail = f": {state.words}" if state.detail else ""
        yield printing.style(f"{printing.when(state.time)} {state.state}{detail}", dim=True)


def _seal_lines(seal: Seal) -> Iterator[str]:
    when = "not opened yet" if seal.opened is None else f"opened {printing.when(seal.opened)}"
    state = f"broken: {printing.plural(seal.during, 'score')} made while the run went on"
    if seal.intact:
        state = "nothing was scored on it before that since the run began"
    if seal.before:
        state += f"; {printing.plural(seal.before, 'score')} made before the run"
    words = f"{seal.dataset}, digest {seal.digest[:16]}: {when}; {state}"
    yield from printing.wrapped(words, first="  sealed ", indent=4)


OF_PAIRS = ("evaluated", "against", "data", "problem", "as_csv")
"""What is of pairs of problems, beside --json."""
LONG = 28
DEEPEST = 24


@click.command()
@click.argument("name", metavar="RUN", required=False, type=RUN)
@option("--eval", "An evaluation of this version instead.", name="evaluated", type=REVISION)
@option("--against", "With --eval: won and lost problems beside this.", type=REVISION)
@option("--data", "With --eval: the dataset.  [the one evaluated last]")
@option("--step", "Only attempts of this step.", type=COUNT)
@option("--problem ID", "Only attempts at this problem, with their full texts.")
@option("--sample", "Only the attempt with this number.", type=click.IntRange(0))
@flag("--failed", "Only attempts with less than the full reward.")
@option(
    "--outcome",
    "Only attempts that ended so.",
    type=click.Choice(["answered", "truncated", "unverifiable", "failed"]),
)
@flag("--by-problem", "One row for each problem.")
@flag("--csv", "Output CSV, with question, prompt and answer.", name="as_csv")
@JSON
@pass_given
def rollouts(app: App, given: Given) -> None:
    """List the attempts of RUN (by default the newest run), or of an evaluation.

    With --problem, each group is shown with its question, ground truth, prompt as it was sent, and
    what every attempt said and why it got its reward: winners first, then losers. An attempt that
    branched off another one shares its earlier messages, which are shown once. Questions and ground
    truths are read from the data, as long as it has not changed. --eval REV --against REV pairs two
    evaluations under the same conditions, problem by problem.

    \b
    Examples:
      tfgrpo rollouts --step 1
      tfgrpo rollouts --failed --csv
    """
    from tfgrpo.evaluation.comparison import paired_problems

    if given.as_csv and given.as_json:
        raise click.UsageError("give only one of --csv and --json")
    if given.evaluated is None and (given.against or given.data):
        raise click.UsageError("--against and --data need --eval")
    if given.evaluated is not None and given.name is not None:
        raise click.UsageError(f"--eval belongs to no run: leave out {given.name}")
    if given.against is not None:
        refuse_others(OF_PAIRS, "lists attempts, and --against compares problems")
        pair = latest_pair(app, given.against, given.evaluated, given.data)
        pairs = paired_problems(app.store, *pair)
        if given.problem is not None:
            pairs = pairs.at(given.problem)
        objects, rows, lines = pairs.rows(), pairs.rows(), _table(pairs.view)
    else:
        attempts = _read(app, given)
        objects, rows, lines = attempts.objects(), attempts.rows(), _groups(attempts)
        if given.by_problem or given.problem is None:
            lines = _table(attempts.by_problem if given.by_problem else attempts.view)
    if given.as_csv:
        printing.emit_csv(rows)
    else:
        printing.answer(app, objects, lines, given.as_json)


def _read(app: App, given: Given) -> AttemptList:
    from tfgrpo.runs.attempts import evaluation_attempts, recorded_evaluation, run_attempts

    store = app.store
    project = app.project()
    if given.evaluated is not None:
        version = store.resolve(given.evaluated)
        dataset = given.data and project.record_path(given.data)
        evaluation = recorded_evaluation(store, version.number, dataset)
        attempts = evaluation_attempts(store, evaluation, project)
    else:
        run = _run(app, given.name, "there is no run yet")
        attempts = run_attempts(store, run, project, step=given.step)
    chosen = attempts.of(**given.of("step", "problem", "sample", "failed", "outcome"))
    if not chosen.attempts:
        hint = "without the options that choose some, all of them are listed"
        raise UnknownRevision(f"{attempts.title} has no such rollouts", hint=hint)
    return chosen


def _run(app: App, name: str | None, none: str) -> Run:
    if name is not None:
        return app.store.runs.get(name)
    runs = app.store.runs.listed()
    if not runs:
        raise UnknownRevision(none, hint="start one with `tfgrpo train`")
    return runs[-1]


def _table(view_of: Callable[[], View]) -> Iterator[str]:
    view = view_of()
    at = view.header.index("problem")
    rows = [[_short(c) if n == at else c for n, c in enumerate(row)] for row in view.rows]
    yield from printing.table(rows, header=view.header)
    for note in view.notes:
        yield from printing.wrapped(note, indent=2)


def _short(id: str) -> str:
    """An id that leaves a terminal's line room for the rest."""
    if len(id) <= LONG or printing.width() == printing.UNWRAPPED:
        return id
    return "…" + id[1 - LONG :]


def _groups(attempts: AttemptList) -> Iterator[str]:
    groups = [(one, "") for one in attempts.groups()]
    races = [(one, ", to confirm a lesson") for one in attempts.races()]
    measuring = [(one, ", to measure the run's gain") for one in attempts.measuring()]
    for number, (group, purpose) in enumerate([*groups, *races, *measuring]):
        if number:
            yield ""
        first = attempts.text(group[0])
        step = "" if group[0].step is None else f"step {group[0].step}, "
        right = sum(one.is_right for one in group)
        attempted = printing.plural(len(group), "attempt")
        title = f"{step}{group[0].problem}: {right} of {attempted} right{purpose}"
        yield printing.style(printing.shown(" ".join(title.split())), bold=True)
        yield from _message("question", first.question)
        if first.ground_truths is not None:
            yield from _message("ground truth", " or ".join(first.ground_truths))
        elif attempts.missing:
            yield from printing.wrapped(f"no ground truth: {attempts.missing}", dim=True, indent=2)
        prompt = first.prompt
        for n, (role, content) in enumerate(prompt, 1):
            yield from _message(f"prompt {n}/{len(prompt)}, {role}", content)
        for one in group:
            yield ""
            words = first if one is group[0] else attempts.text(one)
            yield from _attempt(one, words, prompt)


def _attempt(
    one: RecordedAttempt, words: AttemptText, prompt: tuple[tuple[str, str], ...]
) -> Iterator[str]:
    reward = "no reward" if one.reward is None else f"reward {one.reward:.2f}"
    side = f"{one.side}, " if one.side else ""
    colour = {"winner": "green", "loser": "red"}.get(one.side)
    title = f"attempt {one.sample}: {side}{reward}, {one.outcome} under v{one.version}"
    yield printing.style(title, bold=True, fg=colour)
    notes = {"hint": one.verdict.get("hint"), "answer": one.answer, "reason": one.reason}
    for key, note in notes.items():
        if note:
            yield from printing.wrapped(f"{key}: {note}", dim=True, indent=2)
    if words.prompt and words.prompt != prompt:
        yield printing.style("its prompt differs: --json shows it", dim=True)
    if "branch" in one.verdict:
        parent, at = one.verdict["branch"]
        shared = f"… the first {at + 1} messages are those of attempt {parent}"
        yield printing.style(shared, dim=True)
    for role, content in words.messages:
        yield from _message(role, content)


def _message(role: str, content: str) -> Iterator[str]:
    line, *more = content.splitlines() or [""]
    yield from printing.wrap([printing.Word(role, fg="cyan"), *printing.words(line)], indent=2)
    for line in more:  # as they stand: it may be code
        blank = "  " + line[: len(line) - len(line.lstrip())].expandtabs(4)[:DEEPEST]
        yield from printing.wrapped(line, first=blank, indent=len(blank))


@click.command()
@click.argument("name", metavar="RUN", required=False, type=RUN)
@option(
    "-o, --html FILE",
    "Write the run's whole page to this file, as `tfgrpo ui` shows it.",
    name="html",
    type=path(dir_okay=False),
)
@JSON
@pass_app
def plot(app: App, name: str | None, html: Path | None, as_json: bool) -> None:
    """Plot the metrics of RUN (by default the newest run): rewards, mixed groups, tokens, library
    size and events.

    Each bar is a step, scaled to the largest value of its metric. --html has more: curves with
    intervals, steps, costs and what was refused, in one file that needs nothing beside it.

    \b
    Examples:
      tfgrpo plot
      tfgrpo plot --html report.html
    """
    from tfgrpo.runs.dynamics import draw, dynamics

    if html is not None and as_json:
        raise click.UsageError("give only one of --html and --json")
    run = _run(app, name, "there is no run to plot")
    if html is not None:
        with needed(*PAGES):
            from tfgrpo.ui.export_pages import page_alone

        page_of_run = page_alone(app.path.absolute(), f"/run/{run.name}", author=app.author())
        atomic_write.write(html, page_of_run, mode=atomic_write.SHARED)
        printing.echo(f"wrote {html}")
        return
    series = dynamics(app.store, run)
    lines = [f"run {run.name} has not finished a step yet"]
    if series and series[0].values:
        title = f"run {run.name}: {printing.plural(len(series[0].values), 'step')}"
        lines = [printing.style(title, bold=True), *draw(series, min(printing.width(), 100))]
    fields = {"run": run.name, "series": {one.name: one.values for one in series}}
    printing.answer(app, fields, lines, as_json)
