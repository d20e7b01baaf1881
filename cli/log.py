"""`tfgrpo log`: the history, and decisions about it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tfgrpo.cli import printing, version_text
from tfgrpo.cli.flags import COUNT, JSON, flag, many, option
from tfgrpo.cli.help import CountedCommand
from tfgrpo.cli.start_context import EXPERIENCE, RANGE, RUN, App, Given, pass_given
from tfgrpo.cli.version_text import event_lines, version_move_lines
from tfgrpo.display import version_rows
from tfgrpo.display.event_lines import event_object
from tfgrpo.display.version_rows import move_objects, moves_of
from tfgrpo.store.history import log_filter
from tfgrpo.store.records import OPS, Event, Version
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.store.activity.decisions import Decision


@click.command(cls=CountedCommand)
@click.argument("revision", required=False, type=RANGE)
@option("-n, --number", "Show at most this many; or just -3.", type=COUNT)
@flag("--all", "Show the versions in the history of any branch or tag.", name="all_")
@flag("--reverse", "Oldest first.")
@flag("--no-merges", "Leave merges out.")
@flag("--decorate", "Accepted as in git; names are always shown.", expose_value=False)
@option("--format, --pretty FORMAT", "Such as '%h %an %s'.", name="format")
@flag("--oneline", "One line per version.")
@flag("--graph", "Draw the branch and merge graph.")
@flag("-p, --patch", "Show each version's events with word diffs.")
@option("--run", "Only versions made by this run.", type=RUN)
@option("--experience", "Only versions with an event of this experience.", type=EXPERIENCE)
@many(
    "--op",
    "Only versions with such an event; repeatable.",
    "ops",
    type=click.Choice(OPS, case_sensitive=False),
)
@option("--grep TEXT", "Only versions that contain this text.", name="words")
@option("-S TEXT", "Only versions that add or remove this text.", name="counted")
@option("--author NAME", "Only versions whose author's name contains this.")
@option("--since TIME", "Only versions since this time.")
@option("--until TIME", "Only versions until this time.")
@flag(
    "--decisions",
    "Show decisions instead (about a name): who approved what, when and why.",
    name="decided",
)
@flag("--show-signature", "Check the signatures of each version and its tags.", name="signatures")
@JSON
@pass_given
def log(app: App, given: Given) -> None:
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
    if given.graph and (given.as_json or given.reverse):
        raise click.UsageError("--graph goes neither with --json, which has parents, nor --reverse")
    of_versions = (
        *("graph", "oneline", "patch", "all_", "reverse", "format", "signatures"),
        *("run", "experience", "ops", "counted"),
    )
    if given.decided and any(getattr(given, name) for name in of_versions):
        raise click.UsageError("--decisions goes with -n, --grep, --author and times alone")
    if given.all_ and given.revision is not None:
        raise click.UsageError(f"--all shows every history: leave out {given.revision}")
    if given.format == "oneline":
        given.oneline, given.format = True, None
    store, filter = app.store, _filter(app.store, given)
    if given.decided:
        _show_decisions(app, given, filter)
        return
    with store.port.reading():  # and no longer: whoever reads a page may take all day
        at = "HEAD" if given.revision is None else given.revision
        versions = store.log(None if given.all_ else at)
        names = version_rows.StandingNames(store)
    marked = log_filter.marked(store, versions, filter)
    patch = filter if given.patch else None
    view = LogView(store, names, given.oneline, patch, given.format, given.signatures)
    if given.graph:
        printing.emit(app, view.drawn(marked, given.number))
        return
    shown: Iterable[Version] = printing.first((v for v, fits in marked if fits), given.number)
    if given.reverse:
        shown = list(shown)[::-1]
    objects = (view.as_object(version) for version in shown)
    printing.answer(app, objects, view.listed(shown), given.as_json)


def _filter(store: Store, given: Given) -> log_filter.Filter:
    now, parse, run = time.time_ns() // 1000, log_filter.parse_time, given.run
    if run is not None and store.runs.find(run) is None:
        pulled = any(version.meta.get("run") == run for version in store.log(None))
        run = run if pulled else store.runs.get(run).name
    return log_filter.Filter(
        run=run,
        experience=None if given.experience is None else store.experience_id(given.experience),
        ops=frozenset(given.ops),
        since=None if given.since is None else parse(given.since, now=now),
        until=None if given.until is None else parse(given.until, now=now, end=True),
        merges=not given.no_merges,
        words=given.words,
        counted=given.counted,
        author=given.author,
    )


class LogView(NamedTuple):
    """How versions are shown. `patch` says which events are shown with them; None: none."""

    store: Store
    names: version_rows.StandingNames
    oneline: bool
    patch: log_filter.Filter | None
    format: str | None = None
    signatures: bool = False

    def listed(self, versions: Iterable[Version]) -> Iterator[str]:
        """Yields each version's lines, with a blank one between where there are several."""
        blocks = map(self.lines, versions)
        dense = self.oneline or self.format
        yield from chain.from_iterable(blocks) if dense else printing.spaced(blocks)

    def drawn(self, marked: Iterable[tuple[Version, bool]], most: int | None) -> Iterator[str]:
        """Yields the versions that fit, beside a drawing of the history that they stand in."""
        drawing = Graph()
        room = max(10, printing.width() - 40)
        shown = 0
        for version, fits in marked:
            rows = drawing.draw(version.number, version.parents)
            if not fits:
                rows, lines = rows[1:], []
            else:
                shown += 1
                with printing.inset(min(room, max(map(len, rows)))):
                    lines = self.lines(version)
                last = shown == most or not drawing.padding()
                if not self.oneline and not last:
                    lines.append("")
            padding = [drawing.padding()] * (len(lines) - len(rows))
            across = max(map(len, rows[: len(lines)]), default=0)
            for row, line in zip_longest([*rows, *padding], lines, fillvalue=""):
                beside = coloured(cut(row.ljust(across) if line else row, room))
                yield (beside + line).rstrip()
            if shown == most:
                return

    def lines(self, version: Version) -> list[str]:
        """A version's lines, with its events where they are asked for."""
        if self.format is not None:
            lines = version_text.line(self.format, self.store, version, self.names).split("\n")
        elif self.oneline:
            lines = [version_text.one_line(self.store, version, self.names)]
        else:
            lines = version_text.heading(self.store, version, self.names)
        if self.signatures and version.number:
            lines += version_text.signed_lines(self.store, version) or [
                printing.style("  no signature", fg="cyan")
            ]
        for event, before in self._events(version):
            if not self.oneline:
                lines.append("")
            lines += event_lines(event, before)
        if self.patch is not None and self.patch.experience is None and not self.patch.ops:
            moves = version_move_lines(self.store, version)
            lines += [*([""] if moves and not self.oneline else []), *moves]
        return lines

    def as_object(self, version: Version) -> dict[str, Any]:
        """A version as JSON for programs."""
        fields = version_rows.version_object(self.store, version, self.names)
        if self.signatures:
            fields |= version_rows.signature_objects(self.store, version)
        if self.patch is not None:
            events = self._events(version)
            fields["events"] = [event_object(event) | {"before": text} for event, text in events]
            fields["moves"] = move_objects(moves_of(self.store, version))
        return fields

    def _events(self, version: Version) -> list[tuple[Event, str | None]]:
        """The events that are asked for, each with the text before it."""
        if self.patch is None:
            return []
        events = [e for e in self.store.events(version) if self.patch.fits_event(e)]
        texts = self.store.texts_before(events)
        return [(event, texts.get(event.row)) for event in events]


def _show_decisions(app: App, given: Given, filter: log_filter.Filter) -> None:
    from tfgrpo.store.activity.decisions import decisions

    matches = (one for one in reversed(decisions(app.store)) if _fits(one, given.revision, filter))
    shown = printing.first(matches, given.number)
    objects = (
        {name: value for name, value in one._asdict().items() if name != "row"}
        | {"time": printing.iso(one.time)}
        for one in shown
    )
    lines = printing.spaced(_lines(decision) for decision in shown)
    printing.answer(app, objects, lines, given.as_json)


def _fits(decision: Decision, name: str | None, filter: log_filter.Filter) -> bool:
    from tfgrpo.store.activity.decisions import about

    if not (name is None or about(decision, name)):
        return False
    if not (filter.since or 0) <= decision.time <= (filter.until or decision.time):
        return False
    searched = (decision.kind, decision.subject, decision.why or "", _value_words(decision.content))
    return (filter.author or "").casefold() in decision.author.casefold() and any(
        (filter.words or "").casefold() in words.casefold() for words in searched
    )


def _lines(decision: Decision) -> Iterator[str]:
    first = printing.words(decision.kind, fg="yellow", bold=True)
    first += printing.words(decision.subject, fg="green")
    action = decision.content.get("action")
    first += printing.words(str(action), bold=True) if action else []
    yield from printing.wrap([*first, *printing.words(decision.id, dim=True)], indent=2)
    who = f"{printing.dated(decision.time)} by {decision.author}"
    yield from printing.wrapped(who, dim=True, first="  ", indent=2)
    if decision.why:
        yield from printing.wrapped(decision.why, first="  ", indent=2)
    for key, value in decision.content.items():
        if key != "action":
            yield from _field(key, value, "  ")


def _field(key: str, value: object, before: str) -> Iterator[str]:
    """Yields a field of a content; one with fields of its own as lines below it."""
    words = [printing.Word(f"{printing.shown(key)}:", dim=True)]
    if isinstance(value, dict) and any(isinstance(v, dict) for v in value.values()):
        yield from printing.wrap(words, first=before)
        for name, inner in value.items():
            yield from _field(name, inner, before + "  ")
        return
    if isinstance(value, dict):
        content = ", ".join(f"{k} {_value_words(v)}" for k, v in value.items() if v is not None)
    else:
        content = _value_words(value)
    yield from printing.wrap(
        [*words, *printing.words(content)], first=before, indent=len(before) + 4
    )


def _value_words(value: object) -> str:
    """A value of a content as people read it: a text as it is, all else as JSON."""
    import json

    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


COLOURS = ("red", "green", "yellow", "blue", "magenta", "cyan")


class Graph:
    """A history drawn as git draws it, newest version first: a column is a line that waits for a
    version, and two lines that wait for the same one are joined at once. `draw` adds a version.

        *   v5          a merge of two parents
        |\\
        | * v4
        * | v3
        |/
        * v2
    """

    def __init__(self) -> None:
        self._columns: list[int] = []

    def draw(self, number: int, parents: Sequence[int]) -> list[str]:
        """The row with the version's star, and the rows in which lines fork and join."""
        columns = self._columns
        if number not in columns:
            columns.append(number)
        at = columns.index(number)
        rows = ["".join("* " if i == at else "| " for i in range(len(columns)))]
        parents = list(dict.fromkeys(parents))
        right = len(columns) - at - 1
        columns[at : at + 1] = parents
        if len(parents) == 2:
            rows.append("| " * at + "|\\" + " \\" * right)
        elif not parents and right:
            rows.append("| " * at + " /" * right)
        while (joined := self._join()) is not None:
            rows += joined
        return rows

    def padding(self) -> str:
        """The row between two versions: the open lines."""
        return "| " * len(self._columns)

    def _join(self) -> list[str] | None:
        """Joins the first line that waits for what one to its left waits for; returns the rows."""
        columns = self._columns
        for here, number in enumerate(columns):
            to = columns.index(number)
            if to == here:
                continue
            right = " /" * (len(columns) - here - 1)
            del columns[here]
            if here == to + 1:
                return ["| " * to + "|/" + right]
            crossed = "| " * (to + 1) + "|_" * (here - to - 2) + "|/" + right
            return [crossed, "| " * to + "|/" + "| " * (len(columns) - to - 1)]
        return None


def coloured(row: str) -> str:
    """A row with each line in its column's colour."""

    def look(place: int) -> dict[str, Any]:
        if row[place] == "*":
            return {"fg": "yellow", "bold": True}
        return {"fg": COLOURS[(place + 1) // 2 % len(COLOURS)]}

    return "".join(s if s == " " else printing.style(s, **look(n)) for n, s in enumerate(row))


def cut(row: str, room: int) -> str:
    """A row that takes no more than `room` characters, marked where it was cut."""
    return row if len(row) <= room else row[: room - 2] + "… "
