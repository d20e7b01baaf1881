"""Experiences in Markdown that people wrote: AGENTS.md, CLAUDE.md, skills, rules, playbooks.

It is read by CommonMark with tables (markdown-it-py). docs/formats.md says what becomes of what.
Nothing is left out in silence: a line with a word in it is in an experience, in a section, or in
the list of what was skipped. Lines that `formats/markdown.py` wrote, with an id, are read to the
letter.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

from tfgrpo.interchange.format_types import Content, Item, Skipped, UnreadableLibrary
from tfgrpo.interchange.formats import markdown

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

LARGEST = 2_000_000
"""Characters of Markdown without ids that are read at most."""
MOST = 100_000
"""Lines of it, blank ones aside: each takes about a tenth of a millisecond."""
NESTING = 122
"""Levels of lists, points and quotations in one another that are read; every one costs time."""
REPEATED = 300
"""Characters of an introduction, a heading or the head of a table that many texts may repeat."""
CODE = 12
"""Lines of code that a text takes along at most."""
SENTENCE = 12
"""Words that a line under which `---` stands may have to be a heading."""
RULE = 4
"""Words that make a heading with nothing under it a rule."""
SHORT = 2_000
"""Characters of a paragraph that is looked at for being images or a heading in bold."""
PSEUDO = 7
"""The level of a heading that is a paragraph in bold."""

INTRODUCES = re.compile(r"[:：][\s*_]*\Z")
TASK = re.compile(r"\[[ xX]\]\s+")
BOLD = re.compile(r"(\*\*|__)(?P<text>(?:(?!\1).)+)\1:?\Z", re.DOTALL)
IMAGES = re.compile(
    r"(?:\[?!\[[^\]]*\](?:\([^)]*\)|\[[^\]]*\])?\]?(?:\([^)]*\)|\[[^\]]*\])?\s*)+\Z"
)
DEFINITION = re.compile(r"\[(?!\^)[^\]]+\]:\s*\S+")
TAG = re.compile(r"</?[A-Za-z][\w.:-]*(?:\s+[\w.:-]+(?:=(?:\"[^\"]*\"|'[^']*'|[^\s>]+))?)*\s*/?>\Z")
OWN = re.compile(r"Library \S+ \([0-9a-f]{12}\)\s*\Z")
NO = r"don['’]?ts?\b|do not\b|never\b|avoid\b|what not to\b|forbidden\b|prohibited\b|not allowed\b"
FORBIDS = re.compile(
    rf"\W*(?:{NO}|anti-?patterns?\b|(?:common )?(?:mistakes|pitfalls|errors)\b|red flags\b)",
    re.IGNORECASE,
)
FORBIDDEN = re.compile(rf"\W*(?:{NO}|no\b|must not\b)", re.IGNORECASE)
INTRODUCED = ("bullet_list_open", "ordered_list_open", "table_open", "blockquote_open")
OPAQUE = ("<!--", "<script", "<style", "<pre", "<textarea", "<?", "<![")
WORD = re.compile(r"\w")


@dataclass
class Heading:
    """A heading above what is read, and whether anything stands under it."""

    level: int
    text: str
    line: int
    used: bool = False


@dataclass
class Reading:
    """What has been read so far. `start` is the number of the text's first line."""

    lines: Sequence[str]
    start: int
    items: list[Item] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    covered: set[int] = field(default_factory=set)

    def cover(self, token: Token) -> tuple[int, int]:
        """Marks a token's lines as read; returns the numbers of the first and the last."""
        first, end = token.map or (0, 0)
        self.covered.update(range(first, end))
        return first + self.start, max(end, 1) + self.start - 1

    def emit(self, text: str, line: int, prefix: str = "") -> None:
        """Adds an experience, in its section and behind what introduces it."""
        text, id = markdown.closed(TASK.sub("", text.strip(), count=1))
        if not WORD.search(text):
            return
        for heading in self.headings:
            heading.used = True
        section = " > ".join(heading.text for heading in self.headings)
        before = self._forbidding(text) if not prefix else ""
        whole = " ".join(part for part in (before, prefix, text.strip()) if part)
        evidence = {"section": section} if section else None
        self.items.append(Item(markdown.unescaped(whole), id, evidence=evidence, line=line))

    def _forbidding(self, text: str) -> str:
        heading = next((h.text for h in reversed(self.headings) if FORBIDS.match(h.text)), "")
        if not heading or FORBIDDEN.match(text):
            return ""
        return heading if INTRODUCES.search(heading) else f"{heading}:"

    def skip(self, first: int, last: int, what: str) -> None:
        """Lists lines that become nothing, by their numbers."""
        rows = self.lines[first - self.start : last - self.start + 1]
        text = next((t for t in rows if WORD.search(t) and not markdown.FENCE.match(t.strip())), "")
        self.skipped.append(Skipped.at(first, what, text)._replace(last=last))

    def head(self, heading: Heading) -> None:
        """Goes on under a heading: those of its level and below end here."""
        self._close(heading.level)
        self.headings.append(heading)

    def _close(self, level: int) -> None:
        while self.headings and self.headings[-1].level >= level:
            ended = self.headings.pop()
            if ended.used or OWN.match(ended.text):
                continue
            if len(ended.text.split()) >= RULE:
                self.emit(ended.text, ended.line)
            else:
                self.skip(ended.line, ended.line, "a heading with nothing under it")
            if self.headings:
                self.headings[-1].used = True

    def finish(self) -> Content:
        """Everything, with the lines that nothing has read among the skipped."""
        self._close(0)
        lines = enumerate(self.lines)
        unread = [n for n, line in lines if n not in self.covered and WORD.search(line)]
        for _, run in groupby(enumerate(unread), key=lambda pair: pair[1] - pair[0]):
            numbers = [number + self.start for _, number in run]
            self.skip(numbers[0], numbers[-1], "nested too deep, or no Markdown")
        items = tuple(sorted(self.items, key=lambda item: item.line or 0))
        return Content(items, skipped=tuple(sorted(self.skipped)))


def read(lines: Sequence[str], start: int = 1, name: str = "the text") -> Content:
    """The experiences in the lines of a Markdown text, and what of it is none, in linear time.
    Raises UnreadableLibrary for more than `LARGEST` characters without ids."""
    exact = list(markdown.identified(lines))
    masked = [line.replace("\r", " ") for line in lines]
    for first, last, _ in exact:
        masked[first:last] = [""] * (last - first)
    text = "\n".join(masked)
    count = sum(1 for line in masked if line and not line.isspace())
    if len(text) > LARGEST or count > MOST:
        raise UnreadableLibrary(
            f"{name}: {len(text):,} characters of Markdown in {count:,} lines, of which at most "
            f"{LARGEST:,} in {MOST:,} are read",
            hint="split it",
        )
    reading = Reading(masked, start)
    reading.items += [item._replace(line=first + start) for first, _, item in exact]
    tokens = _parser().parse(text)
    _walk(reading, tokens, 0, len(tokens), "")
    return reading.finish()


def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import html_block

    def opaque(state: StateBlock, start: int, end: int, silent: bool) -> bool:
        """Takes comments and the like for HTML, and leaves tags around Markdown to be text."""
        at = state.bMarks[start] + state.tShift[start]
        if not state.src[at : at + 9].lower().startswith(OPAQUE):
            return False
        return html_block(state, start, end, silent)

    parser = MarkdownIt("commonmark").enable("table").disable("reference")
    parser.block.ruler.at("html_block", opaque, {"alt": ["paragraph", "blockquote"]})
    parser.options["maxNesting"] = NESTING
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def _walk(reading: Reading, tokens: Sequence[Token], at: int, end: int, prefix: str) -> None:
    waiting: tuple[str, int] | None = None
    while at < end:
        token, close = tokens[at], _closing(tokens, at)
        introduction = _introduction(reading, prefix, waiting) if token.type in INTRODUCED else ""
        if token.type == "paragraph_open":
            waiting = _paragraph(reading, token, tokens[at + 1].content, prefix, waiting)
        elif token.type != "hr":
            if token.type in ("bullet_list_open", "ordered_list_open"):
                _points(reading, tokens, at + 1, close, introduction)
            elif token.type == "table_open":
                _table(reading, tokens, at, close, introduction)
            elif token.type == "blockquote_open":
                _walk(reading, tokens, at + 1, close, introduction)
            elif token.type in ("fence", "code_block"):
                _code(reading, token, waiting, prefix)
            else:
                if waiting:
                    reading.emit(*waiting, prefix)
                if token.type == "heading_open":
                    _heading(reading, token, tokens[at + 1].content, prefix)
                elif WORD.search(token.content):
                    what = "a comment" if token.content.lstrip().startswith("<!") else "HTML"
                    reading.skip(*reading.cover(token), what)
                else:
                    reading.cover(token)
            waiting = None
        at = close + 1
    if waiting:
        reading.emit(*waiting, prefix)


def _introduction(reading: Reading, prefix: str, waiting: tuple[str, int] | None) -> str:
    """What goes before each text of a block; what is too long for that stands alone."""
    if waiting is None:
        return prefix
    whole = f"{prefix} {waiting[0]}".strip()
    if len(whole) <= REPEATED:
        return whole
    reading.emit(*waiting, prefix)
    return prefix


def _closing(tokens: Sequence[Token], at: int) -> int:
    """Where the block that begins at a token ends: a token's own place if it is whole."""
    if tokens[at].nesting != 1:
        return at
    level = tokens[at].level
    at += 1
    while tokens[at].level != level or tokens[at].nesting != -1:
        at += 1
    return at


def _paragraph(
    reading: Reading, token: Token, content: str, prefix: str, waiting: tuple[str, int] | None
) -> tuple[str, int] | None:
    """Reads a paragraph; returns it with its line if it introduces what comes next."""
    line, last = reading.cover(token)
    rows = [row.strip() for row in content.split("\n")]
    while rows and TAG.match(rows[0]):
        rows, line = rows[1:], line + 1
    while rows and TAG.match(rows[-1]):
        rows.pop()
    if not rows:
        return waiting  # tags around a text say nothing
    text = " ".join(rows)
    if all(DEFINITION.match(row) for row in rows):
        reading.skip(line, last, "the address of a link")
    elif _is_images(text):
        reading.skip(line, last, "an image")
    elif _bold_heading(text) and not prefix and token.level == 0:
        if waiting:
            reading.emit(*waiting)
        reading.head(Heading(PSEUDO, text.strip("*_"), line))
        return None
    else:
        if waiting and len(waiting[0]) > SHORT:
            reading.emit(*waiting, prefix)
        elif waiting:
            text, line = f"{waiting[0]} {text}", waiting[1]
        if INTRODUCES.search(text):
            return text, line
        reading.emit(text, line, prefix)
        return None
    return waiting


def _is_images(text: str) -> bool:
    return len(text) <= SHORT and IMAGES.match(text) is not None


def _bold_heading(text: str) -> bool:
    bold = BOLD.match(text) if len(text) <= SHORT and not INTRODUCES.search(text) else None
    return bool(
        bold and len(text.split()) <= SENTENCE and not re.search(r"[.!?]\s*\Z", bold["text"])
    )


def _heading(reading: Reading, token: Token, content: str, prefix: str) -> None:
    line, _ = reading.cover(token)
    text = " ".join(content.split())
    sentence = text.endswith((".", ";", ",", "!")) or len(text.split()) > SENTENCE
    if not text:
        return
    setext = token.markup in ("-", "=")
    if prefix or token.level or (setext and sentence) or len(text) > REPEATED:
        reading.emit(text, line, prefix)  # a line above `---`, or in a point of a list
    else:
        reading.head(Heading(int(token.tag[1:]), text, line))


def _points(reading: Reading, tokens: Sequence[Token], at: int, end: int, prefix: str) -> None:
    while at < end:
        close = _closing(tokens, at)
        texts: list[str] = []
        line = reading.start + (tokens[at].map or (0, 0))[0]
        inner = at + 1
        while inner < close and tokens[inner].type == "paragraph_open":
            reading.cover(tokens[inner])
            rows = [row.strip() for row in tokens[inner + 1].content.split("\n")]
            texts.append(" ".join(row for row in rows if not TAG.match(row)))
            inner = _closing(tokens, inner) + 1
        text = " ".join(filter(None, texts))
        if inner < close and INTRODUCES.search(text):
            if tokens[inner].type in ("fence", "code_block"):
                _code(reading, tokens[inner], (text, line), prefix)
                _walk(reading, tokens, inner + 1, close, prefix)
            else:
                before = _introduction(reading, prefix, (text, line))
                _walk(reading, tokens, inner, close, before)
        else:
            if _is_images(text):
                reading.skip(line, line, "an image")
            else:
                reading.emit(text, line, prefix)
            _walk(reading, tokens, inner, close, prefix)
        at = close + 1


def _table(reading: Reading, tokens: Sequence[Token], at: int, end: int, prefix: str) -> None:
    line, _ = reading.cover(tokens[at])
    rows: list[tuple[int, list[str]]] = []
    for token in tokens[at:end]:
        if token.type == "tr_open":
            rows.append((reading.start + (token.map or tokens[at].map or (0, 0))[0], []))
        elif token.type == "inline":
            rows[-1][1].append(" ".join(token.content.split()))
    (top, head), *body = rows
    if sum(map(len, head)) > REPEATED:
        reading.emit("; ".join(filter(None, head)), top, prefix)
        head = []
    for here, row in body:
        names = [*head, *[""] * len(row)]
        cells = [f"{n}: {c}" if n else c for n, c in zip(names, row, strict=False) if c]
        reading.emit("; ".join(cells), here, prefix)
    if not any(any(row) for _, row in body):
        reading.skip(line, line + 1, "a table without rows")


def _code(reading: Reading, token: Token, waiting: tuple[str, int] | None, prefix: str) -> None:
    first, last = reading.cover(token)
    code = token.content.rstrip("\n")
    rows = code.split("\n")
    size = f"code of {len(rows)} line{'s' * (len(rows) != 1)}"
    if waiting and code.strip() and len(rows) <= CODE:
        text, line = waiting
        fence = token.markup or "```"
        short = len(rows) == 1 and "`" not in code and not token.info.strip()
        block = f"`{code.strip()}`" if short else f"\n{fence}{token.info.strip()}\n{code}\n{fence}"
        reading.emit(f"{text} {block}" if short else text + block, line, prefix)
    elif waiting:
        reading.skip(waiting[1], last, f"{size}, and what introduces it")
    elif WORD.search(code):
        reading.skip(first, last, size)
