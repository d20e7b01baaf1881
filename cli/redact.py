"""`tfgrpo redact`: taking out what must not be kept."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import click

from tfgrpo.cli import printing as text
from tfgrpo.cli.flags import JSON, flag, option
from tfgrpo.cli.start_context import EXPERIENCE, App, Given, force_option, pass_given
from tfgrpo.redaction import (
    Surroundings,
    finish_everywhere,
    place_words,
    plan_everywhere,
    redact_everywhere,
)
from tfgrpo.store.errors import StoreError, TfgrpoError
from tfgrpo.store.redact import Redacted, RedactionPlan, Target
from tfgrpo.store.text_occurrences import Occurrence


@click.command()
@click.argument("experience", required=False, type=EXPERIENCE)
@option("--event", "Only events in this version (such as v3), or the event with this row number.")
@option(
    "--text",
    "Remove this text wherever it occurs; - reads it from standard input.",
    name="wanted",
    metavar="STRING|-",
)
@option("-r, --reason", "Why; recorded, so it must not contain the text.")
@option("--replace", "New text for the experience.", metavar="TEXT")
@flag("--dry-run", "Only show what would be removed.")
@flag("-y, --yes", "Do not ask for confirmation.")
@flag("--finish", "Finish an interrupted redaction by rewriting the file.")
@JSON
@force_option
@pass_given
def redact(app: App, given: Given) -> None:
    """Permanently remove a text, such as a leaked key. This cannot be undone.

    Give an experience, a text, or both. The text, reason and salt of the events are blanked, which
    is recorded, and every digest still verifies. The text is also removed from the journal,
    rollouts and evaluations, and from the file's free pages and log; of an example its problem too,
    wherever it is. An experience in the current library is deleted, or gets a new text with
    --replace. Places covered by a digest, and files beside the store that are not tfgrpo's, cannot
    be changed: they are listed, and the command exits with 1.

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
        complete, holding = finish_everywhere(store)
        _finished(complete)
        for path in holding:
            text.echo(text.style(f"{path} still contains the text", fg="red"))
        if holding:
            raise TfgrpoError(
                "the text is still in the files listed above",
                hint="see docs/redaction.md for what to do",
            )
        text.echo("rewrote the file: nothing that was removed is left in it")
        return
    if given.experience is None and given.wanted is None:
        raise click.UsageError("give an EXPERIENCE or a --text")
    if given.event is not None and given.experience is None:
        raise click.UsageError("--event needs an EXPERIENCE")
    if not given.dry_run and not given.reason:
        raise click.UsageError("--reason is required (except with --dry-run): it is recorded")
    if given.wanted == "-":
        if not (given.yes or given.dry_run or sys.stdin.isatty()):
            raise click.UsageError("--text - reads standard input: add --yes or --dry-run")
        given.wanted = _read()
    target = Target(
        store.experience_id(given.experience) if given.experience else None,
        texts=(given.wanted,) if given.wanted else (),
    )
    if given.event is not None:
        row = int(given.event) if given.event.isdigit() else None
        version = store.resolve(given.event) if row is None else None
        target = target._replace(row=row, version=version)

    plan, around = plan_everywhere(store, target)
    if given.as_json and given.dry_run:
        text.emit_json(_as_object(plan, around))
    elif not given.as_json:
        text.emit(app, _lines(plan, around, would=given.dry_run or not given.yes))
    if given.dry_run:
        return
    if not given.yes and not _agreed():
        raise TfgrpoError("nothing was redacted", hint="use --yes to redact without confirmation")
    done, around = redact_everywhere(
        store, target, reason=given.reason or "", replacement=given.replace
    )
    if given.as_json:
        text.emit_json(
            _as_object(done.plan, around)
            | {
                "versions": [version.name for version in done.versions],
                "finished": done.finished,
            }
        )
    else:
        text.emit(app, _report(done, around))
    _finished(done.finished)
    if done.plan.kept or around.left:
        raise TfgrpoError(
            "the text is still in the places listed above",
            hint="see docs/redaction.md for what to do",
        )


def _agreed() -> bool:
    """Asks; nobody there to answer is no."""
    try:
        return text.confirm("This cannot be undone. Redact?", err=True)
    except click.Abort:
        text.echo(err=True)
        return False


def _read() -> str:
    if sys.stdin.isatty():
        return text.prompt_hidden("Text to remove")
    return sys.stdin.read().rstrip("\r\n")


def _finished(finished: bool) -> None:
    if not finished:
        raise StoreError(
            "another process is reading the store: removed bytes may still be in the file",
            hint="stop it, then run `tfgrpo redact --finish`",
        )


def _lines(plan: RedactionPlan, around: Surroundings, *, would: bool) -> Iterable[str]:
    """Yields what goes and what stays, without saying the text itself."""
    if plan.events:
        verb = "would blank" if would else "blanking"
        yield f"{verb} {text.plural(len(plan.events), 'event')}"
    for event in plan.events:
        parts = [name for name in ("text", "reason") if getattr(event, name) is not None]
        line = [
            text.Word(text.SIGNS[event.op], fg=text.COLOURS[event.op], bold=True),
            text.Word(event.experience, dim=True),
            *text.words(f"v{event.version}, its {' and '.join(parts)}"),
        ]
        yield from text.wrap(line, first="  ", indent=4)
    if plan.records:
        yield f"{'would replace' if would else 'replacing'} the text in training records"
        yield from _grouped(plan.records)
    for branch, ids in plan.live.items():
        yield f"current on {branch}, and removed from it: {', '.join(ids)}"
    if plan.kept:
        yield text.style("the text remains where it cannot be changed", fg="red", bold=True)
        yield from _grouped(plan.kept)
    taken = [str(path) for path in around.rewritten]
    if around.traffic:
        taken.insert(0, f"{text.plural(around.traffic, 'row')} of the record of traffic")
    for place in taken:
        yield f"{'would take' if would else 'taking'} the text out of {place}"
    for path in around.left:
        yield text.style(f"{path} contains the text and is not ours to change", fg="red")


def _grouped(places: Sequence[Occurrence]) -> Iterable[str]:
    for line in place_words(places):
        yield from text.wrapped(line, first="  ", indent=4)


def _report(done: Redacted, around: Surroundings) -> Iterable[str]:
    for version in done.versions:
        yield f"{text.style(version.name, fg='yellow')}: {version.message}"
    for path in around.rewritten:
        yield f"wrote {path}"
    for path in around.left:
        yield text.style(f"{path} still contains the text", fg="red")
    for path in around.own:
        yield f"{path}, which is yours, contains it as well"
    places = [text.plural(len(done.plan.events), "event")] if done.plan.events else []
    if around.traffic:
        places.append(f"{text.plural(around.traffic, 'row')} of the record of traffic")
    if places:
        yield f"redacted {' and '.join(places)}; `tfgrpo fsck` checks the store"
    yield "copies may remain in exported files, clones, mirrors, bundles, backups,"
    yield "and in the logs of the model's provider: redact or delete them there"


def _as_object(plan: RedactionPlan, around: Surroundings) -> dict[str, object]:
    return {
        "events": [
            {"version": f"v{e.version}", "row": e.row, "op": e.op, "experience": e.experience}
            for e in plan.events
        ],
        "records": [place._asdict() for place in plan.records],
        "kept": [place._asdict() for place in plan.kept],
        "live": {branch: list(ids) for branch, ids in plan.live.items()},
        "traffic": around.traffic,
        "rewritten": [str(path) for path in around.rewritten],
        "files_left": [str(path) for path in around.left],
        "own_files": [str(path) for path in around.own],
    }
