"""`tfgrpo fsck` and `redact`: whether the store is whole, and taking out what must not be kept."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Iterable, Sequence

import click

from tfgrpo import redaction
from tfgrpo.cli import printing
from tfgrpo.cli.flags import FORCE, JSON, flag, option
from tfgrpo.cli.start_context import EXPERIENCE, App, Given, pass_app, pass_given
from tfgrpo.store import fsck as checks
from tfgrpo.store.errors import StoreError, TfgrpoError
from tfgrpo.store.redact import Redacted, RedactionPlan, Target
from tfgrpo.store.text_occurrences import Occurrence

TO_DO = "see docs/redaction.md for what to do"


def explained(app: App | None, error: Exception) -> TfgrpoError:
    """An unexpected error as damage of the open store, else as a bug. A file keeps the
    traceback."""
    store = None if app is None else app.opened
    problems = () if store is None else checks.fsck(store).problems
    where = f"the traceback is in {_keep_traceback(error)}"
    for problem in problems:
        if not problem.derived:
            lists = "`tfgrpo fsck` lists everything; restore a backup, and keep this file"
            damage = f"the store is damaged: {problem.where} {problem.what}"
            return StoreError(damage, hint=f"{lists}; {where}")
    return TfgrpoError(
        f"this is a bug of tfgrpo: {type(error).__name__}: {error}",
        hint=f"{where}: please report it",
    )


def _keep_traceback(error: Exception) -> str:
    handle, path = tempfile.mkstemp(prefix="tfgrpo-traceback-", suffix=".txt")
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.writelines(traceback.format_exception(error))
    return path


@click.command()
@flag("--repair", "Rebuild snapshots, indexes and triggers.")
@JSON
@pass_app
def fsck(app: App, repair: bool, as_json: bool) -> None:
    """Check the whole store: every seal, digest, replay, snapshot, name and record.

    Lists everything that is wrong, most important first, and exits with 1. --repair rebuilds
    derived data and touches nothing else.

    \b
    Examples:
      tfgrpo fsck
      tfgrpo fsck --repair
    """
    app.unchecked = True  # it is told, and changes nothing unasked
    checked = checks.fsck(app.store)
    dropped = None
    if repair and any(problem.derived for problem in checked.problems):
        dropped = checks.repair(app.store)
        checked = checks.fsck(app.store)
    problems, plural = checked.problems, printing.plural
    lines = [] if dropped is None else [f"rebuilt, and dropped {plural(dropped, 'snapshot')}"]
    lines += [f"{printing.style(p.where, fg='red', bold=True)} {p.what}" for p in problems]
    verdict = plural(len(problems), "problem") if problems else "no problems"
    size = f"{plural(checked.versions, 'version')}, {plural(checked.events, 'event')}"
    fields = {**checked._asdict(), "problems": [one._asdict() for one in problems]}
    fields["dropped_snapshots"] = dropped
    printing.answer(app, fields, [*lines, f"{size}: {verdict}"], as_json)
    if problems:
        click.get_current_context().exit(1)


@click.command()
@click.argument("experience", required=False, type=EXPERIENCE)
@option("--event", "Only events in this version (such as v3), or the event with this row number.")
@option(
    "--text STRING|-",
    "Remove this text wherever it occurs; - reads it from standard input.",
    name="wanted",
)
@option("-r, --reason", "Why; recorded, so it must not contain the text.")
@option("--replace TEXT", "New text for the experience.")
@flag("--dry-run", "Only show what would be removed.")
@flag("-y, --yes", "Do not ask for confirmation.")
@flag("--finish", "Finish an interrupted redaction by rewriting the file.")
@JSON
@FORCE
@pass_given
def redact(app: App, given: Given) -> None:
    """Permanently remove a text, such as a leaked key. This cannot be undone.

    Give an experience, a text, or both. The text, reason and salt of the events are blanked, which
    is recorded, and every digest still verifies. The text is also removed from the journal,
    rollouts and evaluations, and from the file's free pages and log; for an example, its problem is
    removed too, wherever it is. An experience in the current library is deleted, or gets a new text
    with --replace. Places covered by a digest, and files beside the store that are not tfgrpo's,
    cannot be changed: they are listed, and the command exits with 1.

    `--text -` prompts for the text, or reads it from a pipe, so that it stays out of your shell
    history.

    \b
    Examples:
      tfgrpo redact G0 --dry-run
      tfgrpo redact G1 --reason "names a customer" --yes
    """
    app.unchecked = given.finish
    store = app.store
    if given.finish:
        _finish(app, as_json=given.as_json)
        return
    if given.experience is None and given.wanted is None:
        raise click.UsageError("give an EXPERIENCE or a --text")
    if given.event is not None and given.experience is None:
        raise click.UsageError("--event needs an EXPERIENCE")
    if not given.dry_run and not given.reason:
        raise click.UsageError("--reason is required (except with --dry-run): it is recorded")
    if given.wanted == "-":
        tty = sys.stdin.isatty()
        if not (given.yes or given.dry_run or tty):
            raise click.UsageError("--text - reads standard input: add --yes or --dry-run")
        typed = printing.prompt_hidden("Text to remove") if tty else sys.stdin.read()
        given.wanted = typed if tty else typed.rstrip("\r\n")
    experience = store.experience_id(given.experience) if given.experience else None
    target = Target(experience, texts=(given.wanted,) if given.wanted else ())
    if given.event is not None:
        row = int(given.event) if given.event.isdigit() else None
        version = store.resolve(given.event) if row is None else None
        target = target._replace(row=row, version=version)

    plan, around = redaction.plan_everywhere(store, target)
    if given.as_json and given.dry_run:
        printing.emit_json(_as_object(plan, around))
    elif not given.as_json:
        printing.emit(app, _lines(plan, around, given))
    if given.dry_run:
        return
    if not given.yes and not _agreed():
        raise TfgrpoError("nothing was redacted", hint="use --yes to redact without confirmation")
    how = {"reason": given.reason or "", "replacement": given.replace}
    done, around = redaction.redact_everywhere(store, target, **how)
    if given.as_json:
        versions = [version.name for version in done.versions]
        fields = {**_as_object(done.plan, around), "versions": versions}
        printing.emit_json({**fields, "finished": done.finished})
    else:
        printing.emit(app, _report(done, around))
    _finished(done.finished)
    if done.plan.kept or around.left:
        raise TfgrpoError("the text is still in the places listed above", hint=TO_DO)


def _agreed() -> bool:
    try:
        return printing.confirm("This cannot be undone. Redact?", err=True)
    except click.Abort:  # nobody is there to answer: that is no
        printing.echo(err=True)
        return False


def _finish(app: App, *, as_json: bool) -> None:
    complete, holding = redaction.finish_everywhere(app.store)
    lines = [*map(redaction.still, holding)] or [
        "rewrote the file: nothing that was removed is left in it"
    ]
    fields = {"finished": complete, "files_left": [str(path) for path in holding]}
    printing.answer(app, fields, lines if complete else (), as_json)
    _finished(complete)
    if holding:
        raise TfgrpoError("the text is still in the files listed above", hint=TO_DO)


def _finished(finished: bool) -> None:
    if not finished:
        raise StoreError(
            "another process is reading the store: removed bytes may still be in the file",
            hint="stop it, then run `tfgrpo redact --finish`",
        )


def _lines(plan: RedactionPlan, around: redaction.Surroundings, given: Given) -> Iterable[str]:
    """Yields what goes and what stays, without saying the text itself."""
    would = given.dry_run or not given.yes
    if plan.events:
        verb = "would blank" if would else "blanking"
        yield f"{verb} {printing.plural(len(plan.events), 'event')}"
    for event in plan.events:
        parts = [name for name in ("text", "reason") if getattr(event, name) is not None]
        line = [
            printing.sign(event.op, bold=True),
            printing.Word(event.experience, dim=True),
            *printing.words(f"v{event.version}, its {' and '.join(parts)}"),
        ]
        yield from printing.wrap(line, first="  ", indent=4)
    if plan.records:
        yield f"{'would replace' if would else 'replacing'} the text in training records"
        yield from _grouped(plan.records)
    for branch, ids in plan.live.items():
        what = "removed from it" if given.replace is None else "reworded there"
        yield f"current on {branch}, and {what}: {', '.join(ids)}"
    if plan.kept:
        yield printing.style("the text remains where it cannot be changed", fg="red", bold=True)
        yield from _grouped(plan.kept)
    for place in (*_rows(around), *around.rewritten):
        yield f"{'would take' if would else 'taking'} the text out of {place}"
    for path in around.left:
        yield printing.style(f"{path} contains the text and is not ours to change", fg="red")
    yield from map(redaction.yours, around.own)


def _rows(around: redaction.Surroundings) -> Iterable[str]:
    """Yields how many rows of files of ours hold the text, where some do."""
    if around.traffic:
        yield f"{printing.plural(around.traffic, 'row')} of the record of traffic"
    if around.ledger:
        yield f"{printing.plural(around.ledger, 'row')} of the ledger of keys"


def _grouped(places: Sequence[Occurrence]) -> Iterable[str]:
    for line in redaction.place_words(places):
        yield from printing.wrapped(line, first="  ", indent=4)


def _report(done: Redacted, around: redaction.Surroundings) -> Iterable[str]:
    for version in done.versions:
        yield f"{printing.style(version.name, fg='yellow')}: {version.message}"
    yield from redaction.work_words(around)
    yield from map(redaction.still, around.left)
    yield from map(redaction.yours, around.own)
    places = []
    if done.plan.events:
        places.append(printing.plural(len(done.plan.events), "event"))
    if done.plan.records:
        places.append(f"{printing.plural(len(done.plan.records), 'place')} in training records")
    if places := [*places, *_rows(around)]:
        yield f"redacted {', '.join(places)}; `tfgrpo fsck` checks the store"
    yield "copies may remain in exported files, clones, mirrors, bundles, backups,"
    yield "and in the logs of the model's provider: redact or delete them there"


def _as_object(plan: RedactionPlan, around: redaction.Surroundings) -> dict[str, object]:
    files = {"rewritten": around.rewritten, "files_left": around.left, "own_files": around.own}
    return {
        "events": [
            {"version": f"v{e.version}", "row": e.row, "op": e.op, "experience": e.experience}
            for e in plan.events
        ],
        "records": [place._asdict() for place in plan.records],
        "kept": [place._asdict() for place in plan.kept],
        "live": dict(plan.live),
        "traffic": around.traffic,
        "ledger": around.ledger,
        **{name: [str(path) for path in paths] for name, paths in files.items()},
    }
