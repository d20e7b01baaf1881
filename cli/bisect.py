"""`tfgrpo bisect`: the first version where something goes wrong."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tfgrpo.cli import printing, version_text
from tfgrpo.cli.flags import JSON, option
from tfgrpo.cli.help import SuggestingGroup
from tfgrpo.cli.start_context import FINITE, REVISION, App, Given, pass_app, pass_given
from tfgrpo.cli.version_text import events_lines
from tfgrpo.display.version_rows import StandingNames
from tfgrpo.evaluation import bisect_judges
from tfgrpo.evaluation.bisect_judges import forget, materialise
from tfgrpo.redaction import trial_folder
from tfgrpo.store.history import bisect as searches

COLOURS = {"good": "green", "bad": "red", "skip": "cyan"}


@click.group(cls=SuggestingGroup)
def bisect() -> None:
    """Find the first version where something goes wrong, by binary search over the history.

    Give a bad version and an earlier good one; each step halves the candidates, merges included.
    HEAD does not move: the library under test is written to .tfgrpo/bisect/ for your program to
    read. `run` does the search automatically, with a command or by recorded scores.

    \b
    Examples:
      tfgrpo bisect start HEAD v0
      tfgrpo bisect run sh -c 'grep -q days "$TFGRPO_PROMPT"'
    """


@bisect.command()
@click.argument("bad", required=False, type=REVISION)
@click.argument("good", nargs=-1, type=REVISION)
@pass_app
def start(app: App, bad: str | None, good: tuple[str, ...]) -> None:
    """Start a search between a BAD version and GOOD ones in its history.

    \b
    Examples:
      tfgrpo bisect start HEAD v0
    """
    store = app.store
    versions = [store.resolve(revision) for revision in good]
    search = searches.start(store, None if bad is None else store.resolve(bad), versions)
    _print_state(app, search)


def _marking(verdict: searches.BisectVerdict, what: str) -> None:
    """Adds the command that marks versions so; `what` is said in its help."""

    @bisect.command(
        verdict,
        help=f"{what}\n\n\b\nExamples:\n  tfgrpo bisect {verdict}\n  tfgrpo bisect {verdict} v1",
    )
    @click.argument("revisions", nargs=-1, type=REVISION, metavar="[REVISION]...")
    @pass_app
    def mark(app: App, revisions: tuple[str, ...]) -> None:
        store = app.store
        search, versions = searches.load(store), [store.resolve(one) for one in revisions]
        if not revisions:
            number = searches.progress(store, search).next
            if number is None:
                hint = f"name one: `tfgrpo bisect {verdict} REVISION`"
                raise searches.BisectError("no version is under test", hint=hint)
            versions = [store.version(number)]
        for version in versions:
            search = searches.mark(store, version, verdict, "by hand")
        _print_state(app, search)


_marking("good", "Mark versions as good: the one under test, or each REVISION.")
_marking("bad", "Mark a version as bad: the one under test, or REVISION.")
_marking("skip", "Mark versions as untestable: the one under test, or each REVISION.")


@bisect.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND]...")
@option("--data DATA", "Judge by the recorded scores on DATA.", name="score")
@option("--below", "With --data: scores below this are bad.", type=FINITE)
@pass_given
def run(app: App, given: Given) -> None:
    """Search automatically: with a command that tests a library, or by recorded scores.

    COMMAND finds the library in $TFGRPO_LIBRARY (JSON: label to text), as prompt text in
    $TFGRPO_PROMPT, and the version in $TFGRPO_REVISION. Exit code 0 means good, 125 skips, and any
    other code up to 127 means bad. With --data no command is run: the scores recorded by `tfgrpo
    eval` decide, and a missing score is reported. An interrupted search resumes where it stopped.

    \b
    Examples:
      tfgrpo bisect run sh -c 'grep -q days "$TFGRPO_PROMPT"'
      tfgrpo bisect run --data heldout.jsonl --below 0.7
    """
    store = app.store
    by_score = given.score is not None
    if bool(given.command) == by_score or by_score == (given.below is None):
        raise click.UsageError("give either a COMMAND, or --data DATA with --below MEAN")
    if not by_score:
        judge = bisect_judges.by_command(store, given.command, trial_folder(app.store))
    else:
        dataset = app.project().record_path(given.score)
        judge = bisect_judges.by_score(store, dataset, given.below)
    progress = bisect_judges.run(store, judge, watch=lambda mark: printing.echo(_mark_line(mark)))
    if progress.first_bad is None:
        unjudged = bisect_judges.unjudged(store, given.score) if by_score else None
        if unjudged is None:
            hint = "mark one by hand with `tfgrpo bisect good REVISION` or `bad`"
            raise searches.BisectError(_suspected(progress), hint=hint)
        raise searches.BisectError(
            f"the first bad version is one of {len(progress.suspects)}, and {unjudged.name} has no "
            f"score on {given.score}",
            hint=f"{bisect_judges.to_evaluate(given.score, unjudged)}; then run this again",
        )
    _print_state(app, searches.load(store))


@bisect.command("log")
@JSON
@pass_app
def log_(app: App, as_json: bool) -> None:
    """Show the marks made so far, in order.

    \b
    Examples:
      tfgrpo bisect log
    """
    marks = searches.load(app.store).marks
    rows = [{**mark._asdict(), "version": f"v{mark.version}"} for mark in marks]
    printing.answer(app, rows, map(_mark_line, marks), as_json)


@bisect.command()
@JSON
@pass_app
def status(app: App, as_json: bool) -> None:
    """Show the candidate versions, what is known of each, and which to test next.

    \b
    Examples:
      tfgrpo bisect status
    """
    store = app.store
    search = searches.load(store)
    progress = searches.progress(store, search)
    if not as_json:
        printing.emit(app, _view(app, search, progress))
        _print_state(app, search)
        return
    ends = {"bad": search.bad, "next": progress.next, "found": progress.first_bad}
    lists = {"good": search.good, "skipped": sorted(search.skipped), "suspects": progress.suspects}
    printing.emit_json(
        {name: None if number is None else f"v{number}" for name, number in ends.items()}
        | {name: [f"v{number}" for number in numbers] for name, numbers in lists.items()}
        | {"steps": progress.steps}
    )


@bisect.command()
@pass_app
def reset(app: App) -> None:
    """End the search and delete its marks.

    \b
    Examples:
      tfgrpo bisect reset
    """
    was_on = searches.reset(app.store)
    forget(trial_folder(app.store))
    printing.echo("search ended; HEAD has not moved" if was_on else "no search in progress")


def _suspected(progress: searches.BisectProgress) -> str:
    listed = ", ".join(f"v{n}" for n in progress.suspects)
    return f"the first bad version is one of {listed}: the others are untestable"


def _mark_line(mark: searches.Mark) -> str:
    verdict = printing.style(mark.verdict, fg=COLOURS[mark.verdict], bold=True)
    return f"v{mark.version} {verdict}" + (f" ({mark.why})" if mark.why else "")


def _view(
    app: App, search: searches.BisectSearch, progress: searches.BisectProgress
) -> Iterator[str]:
    """Yields the good versions and the suspects, newest first, each with what is known of it."""
    names = StandingNames(app.store)
    for number in sorted({*progress.suspects, *search.good}, reverse=True):
        known = "next" if number == progress.next else "?"
        known = "skip" if number in search.skipped else known
        known = "bad" if number == search.bad else known
        known = "good" if number in search.good else known
        mark = printing.style(known.ljust(4), fg=COLOURS.get(known), bold=known == "next")
        with printing.inset(5):
            yield f"{mark} {version_text.one_line(app.store, app.store.version(number), names)}"


def _print_state(app: App, search: searches.BisectSearch) -> None:
    store = app.store
    progress = searches.progress(store, search)
    if progress.first_bad is not None:
        version = store.version(progress.first_bad)
        printing.echo(printing.style(f"{version.name} is the first bad version", bold=True))
        printing.echo_each(version_text.heading(store, version, StandingNames(store)))
        printing.echo_each(events_lines(store, version))
        printing.echo("end the search with `tfgrpo bisect reset`")
    elif progress.next is not None:
        files = materialise(store, store.version(progress.next), trial_folder(app.store))
        left = printing.plural(len(progress.suspects), "version")
        tries = printing.plural(progress.steps, "step")
        printing.echo(f"{left} left, about {tries} to go: test v{progress.next}")
        printing.echo(f"its library is in {files.library}, and its prompt text in {files.prompt}")
        printing.echo("then run `tfgrpo bisect good`, `bad` or `skip`")
    elif progress.suspects:
        printing.echo(_suspected(progress))
    else:
        ends = {"bad": search.bad is None, "good": not search.good}
        needed = [f"`tfgrpo bisect {end} REVISION`" for end, missing in ends.items() if missing]
        printing.echo(f"the search still needs: {' and '.join(needed)}")
