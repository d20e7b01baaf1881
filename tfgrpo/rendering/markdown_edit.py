"""A library as a Markdown file that a person edits, and what the edited file asks for.

    - Count both days of a hire. <!-- 3byhsb0kktx1 -->

The comment keeps a line the same experience. A changed line is a MODIFY, a line without an id an
ADD (a KEEP if it repeats a text that stays), a line that is gone a DELETE. A line whose id was cut
off is the gone experience that says nearly the same. The order of lines is that of the library.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tfgrpo.rendering.experience_texts import one_line
from tfgrpo.store.canonical import is_id
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.history.word_diff import hunks
from tfgrpo.store.records import Library, Operation, Version

GUIDE = """\
<!--
Change a line to modify an experience, take it out to delete it, write a new
line "- text" to add one, move a line to move its experience. The comment with
the id stays with its line.
Saving nothing changes nothing.
-->"""
ITEM = re.compile(r"[-*]\s+(.*)")
HEADING = re.compile(r"#+\s+Library \S+ \(([0-9a-f]{12})\)\s*\Z")
LONG = 1_000_000_000
"""From this product of lengths on, in characters, two texts are compared by their words."""
LIKE = 70.0
"""How many percent a line without an id must have in common with an experience to be it."""


class UnreadableEdit(TfgrpoError):
    """An edited file that does not say what is meant."""


class Line(NamedTuple):
    """An experience's line in the file: its number there, its text, and its id if it has one."""

    number: int
    text: str
    id: str | None


class Edited(NamedTuple):
    """What an edited file asks for. `order` has the id of each line (None: an ADD) where
    operations alone leave another order, else it is None."""

    operations: tuple[Operation, ...]
    order: tuple[str | None, ...] | None


def document(library: Library) -> str:
    """The file that is edited."""
    return _document(library.version, [(one_line(e.text), e.id) for e in library])


def _document(version: Version, rows: Iterable[tuple[str, str | None]]) -> str:
    lines = [f"# Library {version.name} ({version.digest.hex()[:12]})", "", GUIDE, ""]
    lines += [f"- {text} <!-- {id} -->" if id else f"- {text}" for text, id in rows]
    return "\n".join(lines) + "\n"


def rebased(library: Library, text: str, later: Library) -> str:
    """An edited `document` as one of a later library with the same done: of two changes the
    file's words stand, without a moved line the later order. Raises UnreadableEdit."""
    lines = _identified(library, parse(text, library))
    before, now = ({e.id: one_line(e.text) for e in one} for one in (library, later))
    rows: list[tuple[str, str | None]] = []
    for line in lines:
        id = line.id
        if id is None or line.text != before[id]:
            rows.append((line.text, id if id in now else None))
        elif id in now:
            rows.append((now[id], id))
    rows += [(words, id) for id, words in now.items() if id not in before]
    if edited(library, text).order is None:
        places: dict[str | None, int] = {id: place for place, id in enumerate(now)}
        rows.sort(key=lambda row: places.get(row[1], len(places)))
    return _document(later.version, rows)


def edited(library: Library, text: str) -> Edited:
    """What an edited `document` of this very library asks for. Raises UnreadableEdit, naming the
    line, for another version's or an emptied file, and for lines that are no item, id or text."""
    lines = _identified(library, parse(text, library))
    texts = {e.id: one_line(e.text) for e in library}
    texts_by_id = {line.id: line.text for line in lines if line.id is not None}
    operations: list[Operation] = []
    for id, before in texts.items():
        if id not in texts_by_id:
            operations.append(Operation("DELETE", id))
        elif texts_by_id[id] != before:
            operations.append(Operation("MODIFY", id, texts_by_id[id]))
    holder = {text: id for id, text in texts_by_id.items()}
    added = dict.fromkeys(line.text for line in lines if line.id is None)
    for text in added:
        there = holder.get(text)
        operations.append(
            Operation("ADD", None, text) if there is None else Operation("KEEP", there)
        )
    order = _order(lines, [text for text in added if text not in holder])
    unmoved: list[str | None] = [id for id in texts if id in texts_by_id]
    unmoved += [None] * (len(order) - len(unmoved))
    return Edited(tuple(operations), None if order == unmoved else tuple(order))


def _order(lines: Sequence[Line], added: Iterable[str]) -> list[str | None]:
    new = set(added)
    order: list[str | None] = []
    for line in lines:
        if line.id is not None or line.text in new:
            order.append(line.id)
        if line.id is None:
            new.discard(line.text)
    return order


def parse(text: str, library: Library) -> list[Line]:
    """The lines that stand for experiences. Raises UnreadableEdit."""
    if not text.strip():
        raise UnreadableEdit(
            "the file is empty: nothing changed",
            hint="to delete every experience, remove the lines but keep the heading",
        )
    raw: list[tuple[int, list[str]]] = []
    comment = False
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if comment or line.startswith("<!--"):
            comment = "-->" not in stripped
        elif not stripped:
            continue
        elif item := ITEM.match(stripped + " "):  # the blank is for an item without a text
            raw.append((number, [item[1]]))
        elif heading := HEADING.match(stripped):
            version = library.version
            if not version.digest.hex().startswith(heading[1]):
                raise UnreadableEdit(
                    f"the file was made from version {heading[1]}; {version.name} is edited now",
                    hint=f"`tfgrpo checkout -b NAME {heading[1]}` goes back there; edit with the "
                    "file, switch to this branch again and `tfgrpo merge NAME`",
                )
        elif line[:1].isspace() and raw:
            raw[-1][1].append(stripped)
        elif not stripped.startswith("#"):
            raise UnreadableEdit(
                f"line {number} is no experience: {stripped[:40]!r}",
                hint='an experience begins with "- "; its further lines are indented',
            )
    return _lines(raw, library)


def _lines(raw: Sequence[tuple[int, Sequence[str]]], library: Library) -> list[Line]:
    lines: list[Line] = []
    seen: dict[str, int] = {}
    for number, parts in raw:
        text = " ".join(parts)
        text, id = _split_identity(text)
        text = one_line(text)
        if id is not None and id not in library.by_id:
            raise UnreadableEdit(
                f"line {number}: {id} is not in the library",
                hint="remove the comment to add a new experience",
            )
        if id in seen:
            raise UnreadableEdit(
                f"line {number}: {id} stands in line {seen[id]} already",
                hint="remove the comment from a copied line to add a new experience",
            )
        if not text:
            raise UnreadableEdit(
                f"line {number} has no text", hint="remove the whole line to delete it"
            )
        if id is not None:
            seen[id] = number
        lines.append(Line(number, text, id))
    return lines


def _identified(library: Library, lines: Sequence[Line]) -> list[Line]:
    """Gives lines whose id was cut off the experiences that they are: the same, then the like."""
    ids = {line.id for line in lines if line.id is not None}
    gone = {e.id: one_line(e.text) for e in library if e.id not in ids}
    bare = {place: line.text for place, line in enumerate(lines) if line.id is None}
    matched: dict[int, str] = {}

    def match(place: int, id: str) -> None:
        matched[place] = id
        del gone[id], bare[place]

    same: dict[str, list[str]] = {}
    for id, other in reversed(gone.items()):
        same.setdefault(other, []).append(id)
    for place, text in list(bare.items()):
        if same.get(text):
            match(place, same[text].pop())
    if gone and bare:
        likeness = sorted(
            (-_likeness(text.casefold(), other.casefold()), place, order, id)
            for place, text in bare.items()
            for order, (id, other) in enumerate(gone.items())
        )
        for percent, place, _, id in likeness:
            if -percent >= LIKE and place in bare and id in gone:
                match(place, id)
    return [line._replace(id=matched.get(place, line.id)) for place, line in enumerate(lines)]


def _likeness(text: str, other: str) -> float:
    """How alike two texts are, in percent (0: below LIKE); long ones by words, to save hours."""
    if len(text) * len(other) <= LONG:
        from rapidfuzz import fuzz

        return float(fuzz.ratio(text, other, score_cutoff=LIKE))
    a, b = text.split(), other.split()
    changed = sum(h.end - h.start + h.new_end - h.new_start for h in hunks(a, b))
    return 100 * (1 - changed / (len(a) + len(b)))


def _split_identity(text: str) -> tuple[str, str | None]:
    before, opened, comment = text.rstrip().rpartition("<!--")
    inside = comment.removesuffix("-->")
    if opened and inside != comment and is_id(inside.strip()):
        return before.rstrip(), inside.strip()
    return text, None
