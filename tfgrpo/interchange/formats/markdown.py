"""Markdown: a list for people, whose comments carry the ids, so that edits come back as edits.

    - Count both days. <!-- 0123456789ab -->

Skills and mirrors share it, and it is read to the letter. An item's further lines are indented by
two blanks, or, where an experience has to be one line, its line breaks are written `&#10;`.
Characters that a file or an editor would not keep (control characters, white space at either end
of a line) are written as `&#9;` and the like, and so is the `<` of a comment that could be taken
for an id; what looks like such a reference in a text gets an `amp;` more.

Any other Markdown is read too, AGENTS.md, CLAUDE.md, rules; `markdown_blocks` says how.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tfgrpo.interchange.format_types import Content, Format, Item, SourceFile
from tfgrpo.interchange.library_files import Outgoing
from tfgrpo.store.canonical import ALPHABET, ID_LENGTH
from tfgrpo.store.records import Experience

ID = f"<!--\\s*([{ALPHABET}]{{{ID_LENGTH}}})\\s*-->"
FRAIL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]|^\s|\s(?=\n)|\s\Z|<(?=!--\s*\w{12}\s*-->)"
)
REFERENCE = re.compile(r"&((?:amp;)*)#([0-9]{1,7});")
BULLET = re.compile(r"^[-*+]\s+(.*)$")
INNER = re.compile(r"^\s+[-*+]\s+(.*)$")
LINE_ENDS = re.compile(ID + r"[^\S\n]*(?=\n|\Z)")
FENCE = re.compile(r"(?:```+|~~~+)")
COMMENT = re.compile(r"<!--\s*\w+\s*-->")


def written(experience: Experience, *, one_line: bool = False) -> str:
    """An experience as a list item, without the last line's end."""
    text = escaped(experience.text)
    text = text.replace("\n", "&#10;") if one_line else re.sub(r"\n(?=[^\n])", "\n  ", text)
    return f"- {text} <!-- {experience.id} -->"


def escaped(text: str) -> str:
    """A text with what would not survive in a list item written as references."""
    text = REFERENCE.sub(r"&amp;\1#\2;", text)

    def reference(match: re.Match[str]) -> str:
        inside = 0 < match.start() < len(text) - 1
        return "\n" if match[0] == "\n" and inside else f"&#{ord(match[0])};"

    return FRAIL.sub(reference, text)


def unescaped(text: str) -> str:
    """The text that was escaped."""
    return REFERENCE.sub(_character, text)


def _character(match: re.Match[str]) -> str:
    if match[1]:
        return f"&{match[1].removeprefix('amp;')}#{match[2]};"
    number = int(match[2])
    whole = number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF
    return chr(number) if whole else match[0]


def items(lines: Iterable[str], start: int = 1) -> Iterator[Item]:
    """Yields the items of a Markdown text's lists, whose first line is number `start`."""
    for first, block in _blocks(lines):
        yield from _block(block, first + start)


def identified(lines: Iterable[str]) -> Iterator[tuple[int, int, Item]]:
    """Yields the items that `written` wrote, with first line and the one after the last, from 0."""
    fence = ""
    for first, block in _blocks(lines):
        if len(block) == 1 and (match := FENCE.match(block[0])):
            fence = "" if fence and match[0].startswith(fence) else fence or match[0]
        elif not fence and (item := _exact(block, first)):
            yield first, first + len(block), item


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    block: list[str] = []
    first = 0
    for number, line in enumerate(lines):
        if BULLET.match(line):
            yield from _ended(block, first)
            block, first = [line], number
        elif block and (not line.strip() or line[0] in " \t"):
            block.append(line)
        else:
            yield from _ended(block, first)
            block = []
            if INNER.match(line):
                block, first = [line.lstrip()], number
            elif FENCE.match(line):
                yield number, [line]
    yield from _ended(block, first)


def _ended(block: list[str], first: int) -> Iterator[tuple[int, list[str]]]:
    last = len(block)
    while last and not block[last - 1].strip():
        last -= 1
    if last:
        yield first, block[:last]


def _exact(block: list[str], first: int) -> Item | None:
    whole = "\n".join([block[0][2:], *(line.removeprefix("  ") for line in block[1:])])
    text, id = closed(whole)
    if id and len(LINE_ENDS.findall(whole)) == 1:
        return Item(unescaped(text.lstrip()), id, line=first)
    return None


def _block(block: list[str], first: int) -> Iterator[Item]:
    if not BULLET.match(block[0]):
        return
    if item := _exact(block, first):
        yield item
        return
    points: list[tuple[int, list[str]]] = []
    for number, line in enumerate(block, first):
        if match := (BULLET.match(line) or INNER.match(line)):
            points.append((number, [match[1]]))
        elif line.strip():
            points[-1][1].append(line.strip())
    for number, parts in points:
        text, id = closed(" ".join(parts))
        if text.strip():
            yield Item(unescaped(text.strip()), id, line=number)


def closed(text: str) -> tuple[str, str | None]:
    """A text without the comment that it ends with, and the id in that, if it is one."""
    end = text.rstrip()
    at = end.rfind("<!--")
    if at < 0 or not COMMENT.fullmatch(end, at):
        return text, None
    id = re.fullmatch(ID, end[at:])
    return end[:at].rstrip(), id[1] if id else None


STRUCTURE = re.compile(r"\s{0,3}(?:[-*+]\s|\d{1,9}[.)]\s|#{1,6}\s|\|.*\|)")
ENDINGS = (".md", ".markdown", ".mdc", ".mdx")


def detect(source: SourceFile) -> int:
    if any(item.id for item in items(source.lines)):
        return 3
    if source.path.suffix.lower() in ENDINGS and source.text.strip():
        return 1
    return int(any(STRUCTURE.match(line) for line in source.lines))


def read(source: SourceFile) -> Content:
    from tfgrpo.interchange import markdown_blocks  # a checkout writes, and has nothing to read

    return markdown_blocks.read(source.lines, name=str(source.path))


def write(out: Outgoing) -> Iterator[str]:
    yield f"# Library {out.version.name} ({out.version.digest.hex()[:12]})\n\n"
    for experience in out.library.readable:
        yield written(experience) + "\n"


FORMAT = Format(
    "md", "people: a list with ids, to edit and read back", "md", "ids", detect, read, write
)
