"""`tfgrpo log`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

import click

from tfgrpo.cli import graph as graphs
from tfgrpo.cli import printing as text
from tfgrpo.cli.event_text import event_lines, version_move_lines
from tfgrpo.cli.flags import COUNT, JSON, flag, option
from tfgrpo.cli.help import CountedCommand
from tfgrpo.cli.start_context import EXPERIENCE, RANGE, RUN, App, pass_app
from tfgrpo.display.event_lines import event_object
from tfgrpo.display.order_changes import move_objects, moves_of
from tfgrpo.display.version_rows import (
    StandingNames,
    scores,
    signature_lines,
    signature_objects,
    signed,
    version_object,
)
from tfgrpo.store.history import log_filter
from tfgrpo.store.history.log_filter import subject
from tfgrpo.store.records import OPS, Event, Op, Version
from tfgrpo.store.store import Store


@click.command(cls=CountedCommand)
@click.argument("revision", required=False, type=RANGE)
@option("-n, --number", "Show at most this many; or just -3.", type=COUNT)
@flag("--all", "Every version that a branch or tag stands on.", name="all_")
@flag("--reverse", "Oldest first.")
@flag("--no-merges", "Leave merges out.")
@flag("--decorate", "Changes nothing: names are always shown.", expose_value=False)
@option("--format, --pretty", "Such as '%h %an %s'.", name="format", metavar="FORMAT")
@flag("--oneline", "One line per version.")
@flag("--graph", "Draw the branch and merge graph.")
@flag("-p, --patch", "Show each version's events with word diffs.")
@option("--run", "Only versions made by this run.", type=RUN)
@option("--experience", "Only versions with an event of this experience.", type=EXPERIENCE)
@option(
    "--op",
    "Only versions with such an event; repeatable.",
    name="ops",
    multiple=True,
    type=click.Choice(OPS, case_sensitive=False),
)
@option("--grep", "Only versions that contain this text.", name="words", metavar="TEXT")
@option("-S", "Only versions that add or remove this text.", name="counted", metavar="TEXT")
@option("--author", "Only versions whose author's name has this in it.", metavar="NAME")
@option("--since", "Only versions since this time.", metavar="TIME")
@option("--until", "Only versions until this time.", metavar="TIME")
@flag(
    "--decisions",
    "Show decisions instead (about a name): who approved what, when and why.",
    name="decided",
)
@flag("--show-signature", "Check the signatures of each version and its tags.", name="signatures")
@JSON
@pass_app
def log(
    app: App,
    /,
    revision: str | None,
    number: int | None,
    all_: bool,
    reverse: bool,
    format: str | None,
    oneline: bool,
    graph: bool,
    patch: bool,
    decided: bool,
    signatures: bool,
    as_json: bool,
    **which: Any,
) -> None:
    """Show versions, newest first: the history of REVISION, or the versions in A..B.

    +2 ~1 -1 =3 counts the events of a version: experiences added, modified, deleted, and kept
    (confirmed by another group that came to the same lesson); ↕1 counts those that it moved.

    Work by hand without a message of its own is shown by the first words of its text.

    --grep searches messages and the texts and reasons of events, ignoring case. With --experience
    or --op it searches only matching events, and -p shows only those. TIME is 2026-11-20,
    2026-11-20T18:30, yesterday, or an age: 30m, 2h, 3d, 1w, '2 days ago'. An --until day is
    included.

    FORMAT takes git's placeholders: %H and %h for the digest, %s, %an, %ad, %ar, %d, %n, and %v for
    the version's name.

    --decisions shows what was decided about production: experiments, promotions, rollbacks,
    redactions, each with its author, evidence and reason; --grep, --author and times apply.

    \b
    Examples:
      tfgrpo log --graph --oneline
      tfgrpo log v1..main -p --since 3d
      tfgrpo log --all -3
      tfgrpo log --decisions --since 30d
    """
    if graph and as_json:
        raise click.UsageError(
            "--graph cannot be combined with --json, which has each version's parents"
        )
    if graph and reverse:
        raise click.UsageError("a graph is drawn from the newest on: --graph or --reverse")
    only = which["run"] or which["experience"] or which["ops"] or which["counted"]
    if decided and (graph or oneline or patch or all_ or reverse or format or signatures or only):
        raise click.UsageError(
            "--decisions takes -n, --grep, --author, --since, --until and --json"
        )
    if all_ and revision is not None:
        raise click.UsageError(f"--all shows every history, so what is {revision} for?")
    if format is not None:
        from tfgrpo.cli import log_format

        format = log_format.checked(format)
        oneline = oneline or format == log_format.NAMED[0]
        format = None if format in log_format.NAMED else format
    store = app.store
    filter = _filter(store, **which)
    if decided:
        from tfgrpo.cli import log_decisions as decisions

        decisions.show(app, revision, filter, number, as_json)
        return
    with store.port.reading():  # and no longer: whoever reads a page may take all day
        versions = store.log(None if all_ else "HEAD" if revision is None else revision)
        names = StandingNames(store)
    marked = log_filter.marked(store, versions, filter)
    view = LogView(store, names, oneline, filter if patch else None, format, signatures)
    if graph:
        text.emit(app, view.drawn(marked, number))
        return
    shown: Iterable[Version] = text.first((one for one, fits in marked if fits), number)
    if reverse:
        shown = list(shown)[::-1]
    text.answer(app, (view.as_object(version) for version in shown), view.listed(shown), as_json)


def _filter(
    store: Store,
    run: str | None,
    experience: str | None,
    ops: tuple[Op, ...],
    since: str | None,
    until: str | None,
    no_merges: bool,
    **words: str | None,
) -> log_filter.Filter:
    now = time.time_ns() // 1000
    parse = log_filter.parse_time
    return log_filter.Filter(
        run=None if run is None else _known(store, run),
        experience=None if experience is None else store.experience_id(experience),
        ops=frozenset(ops),
        since=None if since is None else parse(since, now=now),
        until=None if until is None else parse(until, now=now, end=True),
        merges=not no_merges,
        **words,
    )


def _known(store: Store, run: str) -> str:
    """The name of a run, even if pulled with its versions alone. Raises UnknownRevision."""
    if store.runs.find(run) is None:
        pulled = any(version.meta.get("run") == run for version in store.log(None))
        return run if pulled else store.runs.get(run).name
    return run


class LogView(NamedTuple):
    """How versions are shown. `patch` says which events are shown with them; None: none."""

    store: Store
    names: StandingNames
    oneline: bool
    patch: log_filter.Filter | None
    format: str | None = None
    signatures: bool = False

    def listed(self, versions: Iterable[Version]) -> Iterator[str]:
        """Yields each version's lines, with a blank one between where there are several."""
        for number, version in enumerate(versions):
            if number and not (self.oneline or self.format):
                yield ""
            yield from self.lines(version)

    def drawn(self, marked: Iterable[tuple[Version, bool]], most: int | None) -> Iterator[str]:
        """Yields the versions that fit, beside a drawing of the history that they stand in."""
        drawing = graphs.Graph()
        room = max(10, text.width() - 40)
        shown = 0
        for version, fits in marked:
            rows = drawing.draw(version.number, version.parents)
            if not fits:
                rows, lines = rows[1:], []
            else:
                shown += 1
                with text.inset(min(room, max(map(len, rows)))):
                    lines = self.lines(version)
                last = shown == most or not drawing.padding()
                if not self.oneline and not last:
                    lines.append("")
            padding = [drawing.padding()] * (len(lines) - len(rows))
            across = max(map(len, rows[: len(lines)]), default=0)
            for row, line in zip_longest([*rows, *padding], lines, fillvalue=""):
                beside = graphs.coloured(graphs.cut(row.ljust(across) if line else row, room))
                yield (beside + line).rstrip()
            if shown == most:
                return

    def lines(self, version: Version) -> list[str]:
        """A version's lines, with its events where they are asked for."""
        if self.format is not None:
            from tfgrpo.cli import log_format

            lines = log_format.line(self.format, self.store, version, self.names).split("\n")
        elif self.oneline:
            lines = [one_line(self.store, version, self.names)]
        else:
            lines = heading(self.store, version, self.names)
        if self.signatures and version.number:
            lines += signed_lines(self.store, version) or [text.style("  no signature", fg="cyan")]
        events = self._events(version)
        texts = self.store.texts_before(events)
        for event in events:
            if not self.oneline:
                lines.append("")
            lines += event_lines(event, texts.get(event.row))
        if self.patch is not None and self.patch.experience is None and not self.patch.ops:
            moves = version_move_lines(self.store, version)
            lines += [*([""] if moves and not self.oneline else []), *moves]
        return lines

    def as_object(self, version: Version) -> dict[str, Any]:
        """A version as JSON for programs."""
        fields = version_object(self.store, version, self.names)
        if self.signatures:
            fields |= signature_objects(self.store, version)
        if self.patch is not None:
            events = self._events(version)
            texts = self.store.texts_before(events)
            fields["events"] = [
                event_object(event) | {"before": texts.get(event.row)} for event in events
            ]
            fields["moves"] = move_objects(moves_of(self.store, version))
        return fields

    def _events(self, version: Version) -> list[Event]:
        if self.patch is None:
            return []
        return [e for e in self.store.events(version) if self.patch.fits_event(e)]


def heading(store: Store, version: Version, names: StandingNames) -> list[str]:
    """A version's lines: name and counts, who and when, message, evaluations."""
    first = [text.Word(version.name, fg="yellow", bold=True)]
    first += _named(names[version.number])
    first += text.counts(store.counts(version), len(moves_of(store, version)))
    lines = text.wrap(first, indent=2)
    if version.parent is not None:
        who = f"{text.when(version.time)} ({text.age(version.time)}) by {signed(store, version)}"
        lines += text.wrapped(who, dim=True, first="  ", indent=2)
    lines += text.wrapped(subject(store, version), first="  ", indent=2)
    for line in scores(store, version):
        lines += text.wrapped(line, fg="magenta", first="  ", indent=4)
    return lines


def signed_lines(store: Store, version: Version) -> list[str]:
    """A version's signatures and those of its tags, as lines; none where there is none."""
    return [
        line
        for one in signature_lines(store, version)
        for line in text.wrap(text.words(text.shown(one), fg="cyan"), first="  ", indent=4)
    ]


def one_line(store: Store, version: Version, names: StandingNames) -> str:
    """A version as one line, cut to the terminal."""
    digest = version.digest.hex()[:8]
    line = [text.Word(version.name, fg="yellow"), text.Word(digest, dim=True)]
    line += text.counts(store.counts(version), len(moves_of(store, version)))
    line += _named(names[version.number])
    line += text.words(subject(store, version))
    with text.inset(2):  # for the mark of a cut
        lines = text.wrap(line)
    return lines[0] + (" …" if len(lines) > 1 else "")


def _named(names: list[str]) -> list[text.Word]:
    if not names:
        return []
    line = [text.Word("(", fg="yellow")]
    for number, name in enumerate(names):
        head = name.startswith("HEAD")
        comma = "," if number < len(names) - 1 else ")"
        words = text.words(name, fg="cyan" if head else "green", bold=head)
        line += [words[0]._replace(glue=number == 0), *words[1:]]
        line.append(text.Word(comma, fg="yellow", glue=True))
    return line
