"""Events and versions as lines: what an event did, why and who taught it; `log --format`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from tfgrpo.cli import printing
from tfgrpo.display.event_lines import credit_words, evidence_words
from tfgrpo.display.version_rows import (
    StandingNames,
    left_in_place,
    moves_of,
    scores,
    signature_lines,
    signed,
)
from tfgrpo.store.history.log_filter import subject
from tfgrpo.store.records import Change, Event, Library, Op, Version
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tfgrpo.store.history.blame import Origin
    from tfgrpo.store.history.library_order import Move


def change_object(before: Version, after: Version, changes: Iterable[Change]) -> dict[str, object]:
    """What changed between two versions, as JSON for programs."""
    listed = [{"op": change.op, **change._asdict()} for change in changes]
    return {"from": before.name, "to": after.name, "changes": listed}


def event_lines(event: Event, before: str | None, origin: Origin | None = None) -> list[str]:
    """An event's lines: what, why, and who taught it; `origin` is where a merge got it from."""
    text = "[redacted]" if event.redacted else event.text
    lines = change_lines(event.op, event.experience, None if event.redacted else before, text)
    if event.reason:
        lines += printing.wrapped(f"because {event.reason}", first=" " * 15, indent=15)
    evidence = evidence_words(event)
    if origin is not None and origin.event.row != event.row:
        evidence = f"{origin.version.name}: {credit_words(origin.event, origin.version)}"
    if evidence:
        lines += printing.wrapped(evidence, dim=True, first=" " * 15, indent=15)
    return lines


def change_lines(op: Op, id: str, before: str | None, text: str | None) -> list[str]:
    """The lines that say what became of an experience's text."""
    if op == "MODIFY" and before is not None and text is not None:
        body = printing.word_diff(before, text)
    elif op in ("KEEP", "DELETE"):
        body = printing.words(before or text or "", fg="cyan" if op == "KEEP" else "red")
    else:
        body = printing.words(text or "", fg="green")
    line = [printing.sign(op, bold=True), printing.Word(id, dim=True), *body]
    return printing.wrap(line, indent=15)


def events_lines(store: Store, version: Version, *, reasons: bool = True) -> Iterator[str]:
    """Yields the lines of a version's events."""
    events = store.events(version)
    texts = store.texts_before(events)
    for event in events:
        shown = event if reasons else event._replace(reason=None)
        yield from event_lines(shown, texts.get(event.row))


def version_move_lines(store: Store, version: Version) -> list[str]:
    """The lines that say what a version moved, and what a merge left in place."""
    moves = moves_of(store, version)
    lines = move_lines(store.library(version), moves) if moves else []
    if left := left_in_place(version):
        where = f"moved on both sides, and kept where our side has it: {', '.join(left)}"
        lines += printing.wrapped(where, indent=2)
    return lines


def move_lines(library: Library, moves: Iterable[Move]) -> list[str]:
    """The lines that say which experiences of a library stand elsewhere than before."""
    lines = []
    for one in moves:
        words = [
            printing.Word(printing.MOVED, fg="blue", bold=True),
            printing.Word(one.experience, dim=True),
            *printing.words(f"[G{one.before} → G{one.after}]", fg="cyan"),
            *printing.words(library.by_id[one.experience].text),
        ]
        lines += printing.wrap(words, indent=15)
    return lines


PLACEHOLDER = re.compile("%(a.|.)")
PLACEHOLDERS = "%v (v12), %H, %h (digest), %p (parents), %s (subject), %an, %ad, %ar, %d, %n"


def line(format: str, store: Store, version: Version, names: StandingNames) -> str:
    """A version by a format of git's, of which these are the placeholders. Raises UsageError."""
    standing = ", ".join(names[version.number])
    values = {
        "v": version.name,
        "H": version.digest.hex(),
        "h": version.digest.hex()[:8],
        "p": " ".join(store.version(number).digest.hex()[:8] for number in version.parents),
        "s": subject(store, version),
        "d": f" ({standing})" if standing else "",
        "n": "\n",
        "%": "%",
        "an": signed(store, version),
        "ad": printing.when(version.time),
        "ar": printing.age(version.time),
    }
    plain = re.sub(r"\At?format:", "", format)
    unknown = [match[0] for match in PLACEHOLDER.finditer(plain) if match[1] not in values]
    if unknown or "%" not in plain:
        wrong = unknown[0] if unknown else repr(format)
        raise click.UsageError(f"--format does not know {wrong}; it knows {PLACEHOLDERS}")
    return PLACEHOLDER.sub(lambda match: values[match[1]], plain)


def heading(store: Store, version: Version, names: StandingNames) -> list[str]:
    """A version's lines: name and counts, who and when, message, evaluations."""
    first = [printing.Word(version.name, fg="yellow", bold=True)]
    first += _named(names[version.number])
    first += printing.counts(store.counts(version), len(moves_of(store, version)))
    lines = printing.wrap(first, indent=2)
    if version.parent is not None:
        who = f"{printing.dated(version.time)} by {signed(store, version)}"
        lines += printing.wrapped(who, dim=True, first="  ", indent=2)
    lines += printing.wrapped(subject(store, version), first="  ", indent=2)
    for line in scores(store, version):
        lines += printing.wrapped(line, fg="magenta", first="  ", indent=4)
    return lines


def signed_lines(store: Store, version: Version) -> list[str]:
    """A version's signatures and those of its tags, as lines; none where there is none."""
    lines = []
    for one in signature_lines(store, version):
        lines += printing.wrapped(printing.shown(one), fg="cyan", first="  ", indent=4)
    return lines


def one_line(store: Store, version: Version, names: StandingNames) -> str:
    """A version as one line, cut to the terminal."""
    digest = version.digest.hex()[:8]
    line = [printing.Word(version.name, fg="yellow"), printing.Word(digest, dim=True)]
    line += printing.counts(store.counts(version), len(moves_of(store, version)))
    line += _named(names[version.number])
    line += printing.words(subject(store, version))
    with printing.inset(2):  # for the mark of a cut
        lines = printing.wrap(line)
    return lines[0] + (" …" if len(lines) > 1 else "")


def _named(names: list[str]) -> list[printing.Word]:
    if not names:
        return []
    line = [printing.Word("(", fg="yellow")]
    for number, name in enumerate(names):
        head = name.startswith("HEAD")
        comma = "," if number < len(names) - 1 else ")"
        words = printing.words(name, fg="cyan" if head else "green", bold=head)
        line += [words[0]._replace(glue=number == 0), *words[1:]]
        line.append(printing.Word(comma, fg="yellow", glue=True))
    return line
