"""`tfgrpo rollouts`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.flags import COUNT, JSON, flag, option
from tfgrpo.cli.start_context import REVISION, RUN, App, pass_app
from tfgrpo.store.errors import InvalidOperation, UnknownRevision

if TYPE_CHECKING:
    from tfgrpo.evaluation.by_problem import ProblemPairs
    from tfgrpo.result_tables import View
    from tfgrpo.runs.attempts import AttemptList, AttemptText, RecordedAttempt

LONG = 28
DEEPEST = 24


@click.command()
@click.argument("name", metavar="RUN", required=False, type=RUN)
@option("--eval", "An evaluation of this version instead.", name="evaluated", type=REVISION)
@option("--against", "With --eval: won and lost problems beside this.", type=REVISION)
@option("--data", "With --eval: the dataset.  [the one evaluated last]")
@option("--step", "Only attempts of this step.", type=COUNT)
@option("--problem", "Only attempts at this problem, with all that they said.", metavar="ID")
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
@pass_app
def rollouts(
    app: App,
    /,
    name: str | None,
    evaluated: str | None,
    against: str | None,
    data: str | None,
    by_problem: bool,
    as_csv: bool,
    as_json: bool,
    **which: Any,
) -> None:
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
      tfgrpo rollouts --json
    """
    if as_csv and as_json:
        raise click.UsageError("give only one of --csv and --json")
    if evaluated is None and (against or data):
        raise click.UsageError("--against and --data need --eval")
    if evaluated is not None and name is not None:
        raise click.UsageError(f"--eval {evaluated} is of no run: what is {name}?")
    if against is not None and evaluated is not None:
        _pairs(app, _paired(app, evaluated, against, data), as_csv, as_json)
        return
    attempts = _read(app, name, evaluated, data, which)
    if as_json:
        printing.emit_json_list(attempts.objects())
    elif as_csv:
        printing.emit_csv(attempts.rows())
    elif by_problem:
        printing.emit(app, _table(attempts.by_problem()))
    elif which["problem"] is not None:
        printing.emit(app, _groups(attempts))
    else:
        printing.emit(app, _table(attempts.view()))


def _read(
    app: App, name: str | None, evaluated: str | None, data: str | None, which: dict[str, Any]
) -> AttemptList:
    from tfgrpo.runs.attempts import evaluation_attempts, recorded_evaluation, run_attempts

    store = app.store
    project = options.open_project(app, None)
    if evaluated is not None:
        version = store.resolve(evaluated)
        dataset = data and project.record_path(data)
        attempts = evaluation_attempts(
            store, recorded_evaluation(store, version.number, dataset), project
        )
    else:
        runs = store.runs.listed()
        if name is None and not runs:
            raise UnknownRevision("there is no run yet", hint="start one with `tfgrpo train`")
        run = runs[-1] if name is None else store.runs.get(name)
        attempts = run_attempts(store, run, project, step=which["step"])
    chosen = attempts.of(**which)
    if not chosen.attempts:
        hint = "`tfgrpo rollouts` lists them all"
        if which["failed"] and attempts.attempts:
            hint = "without --failed, all of them are listed"
        raise UnknownRevision(f"{attempts.title} has no such rollouts", hint=hint)
    return chosen


def _paired(app: App, evaluated: str, against: str, data: str | None) -> ProblemPairs:
    from tfgrpo.evaluation.by_problem import paired_problems
    from tfgrpo.evaluation.comparison import recorded_pairs

    control, version = app.store.resolve(against), app.store.resolve(evaluated)
    dataset = data and options.open_project(app, None).record_path(data)
    pairs = recorded_pairs(app.store, control, version, dataset)
    if not pairs:
        raise InvalidOperation(
            f"{version.name} and {control.name} were not evaluated on the same problems",
            hint=f"`tfgrpo compare {data or 'DATA'} --library {evaluated} --against {against}`",
        )
    return paired_problems(app.store, *pairs[-1])


def _pairs(app: App, pairs: ProblemPairs, as_csv: bool, as_json: bool) -> None:
    if as_json:
        printing.emit_json_list(pairs.rows())
    elif as_csv:
        printing.emit_csv(pairs.rows())
    else:
        printing.emit(app, _table(pairs.view()))


def _table(view: View) -> Iterator[str]:
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
    """Yields each group: what was asked, what would be right, and its attempts, winners first."""
    for number, group in enumerate(attempts.groups()):
        if number:
            yield ""
        first = attempts.text(group[0])
        step = "" if group[0].step is None else f"step {group[0].step}, "
        right = sum(one.is_right for one in group)
        title = (
            f"{step}{group[0].problem}: {right} of {printing.plural(len(group), 'attempt')} right"
        )
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
            same = one.calls == group[0].calls
            yield from _attempt(one, first if same else attempts.text(one), prompt)


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
        yield printing.style(
            f"… the first {at + 1} messages are those of attempt {parent}", dim=True
        )
    for role, content in words.messages:
        yield from _message(role, content)


def _message(role: str, content: str) -> Iterator[str]:
    line, *more = content.splitlines() or [""]
    yield from printing.wrap([printing.Word(role, fg="cyan"), *printing.words(line)], indent=2)
    for line in more:  # as they stand: it may be code
        blank = "  " + line[: len(line) - len(line.lstrip())].expandtabs(4)[:DEEPEST]
        yield from printing.wrapped(line, first=blank, indent=len(blank))
