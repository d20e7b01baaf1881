"""What commands print with: words that wrap, word diffs, pages, JSON. rich starts too slowly."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from tfgrpo.store.records import Op
from tfgrpo.terminal_safe import aligned, break_before, cells, fitting, safe_row, shown_in_json
from tfgrpo.terminal_safe import shown as shown
from tfgrpo.wording import age as age
from tfgrpo.wording import inert_cell
from tfgrpo.wording import iso as iso
from tfgrpo.wording import plural as plural
from tfgrpo.wording import when as when

T = TypeVar("T")

if TYPE_CHECKING:
    from tfgrpo.cli.start_context import App
    from tfgrpo.result_tables import View

SIGNS: dict[Op, str] = {"ADD": "+", "MODIFY": "~", "DELETE": "-", "KEEP": "="}
MOVED = "↕"
COLOURS: dict[Op, str] = {"ADD": "green", "MODIFY": "yellow", "DELETE": "red", "KEEP": "cyan"}
UNWRAPPED = 10_000
OURS = str(int.from_bytes(os.urandom(4), "big"))
"""What marks a colour as one of ours until it is printed: nobody else knows it."""
LOOKS = rf"(\x1b\[[0-9;]*;{OURS}m)"
_inset = [0]
"""The columns that lines leave free at their left, innermost last."""
_paged_plain = [False]
"""Whether lines that are being made may go to a pager without colours, innermost last."""


class Word(NamedTuple):
    """Words that look alike. `glue` puts them right after the word before."""

    text: str
    fg: str | None = None
    dim: bool = False
    bold: bool = False
    strike: bool = False
    glue: bool = False

    def styled(self, part: str | None = None) -> str:
        """The text, or a part of it, with the word's colours."""
        text = self.text if part is None else part
        look = {"fg": self.fg, "dim": self.dim, "bold": self.bold, "strikethrough": self.strike}
        worn = {name: value for name, value in look.items() if value}
        return style(text, **worn) if worn else text


def width() -> int:
    """How wide lines may be: the terminal's width, and no limit when piped."""
    if not sys.stdout.isatty():
        return UNWRAPPED
    import shutil

    return max(40, shutil.get_terminal_size().columns) - _inset[-1]


@contextmanager
def inset(columns: int) -> Iterator[None]:
    """Inside it lines are narrower, to stand right of something that takes `columns`."""
    _inset.append(_inset[-1] + columns)
    try:
        yield
    finally:
        _inset.pop()


def words(text: str, **look: Any) -> list[Word]:
    """A text's words, all looking alike, as one Word: a text of megabytes is cut off by lines."""
    return alike(text.split(), **look)


def alike(part: Sequence[str], **look: Any) -> list[Word]:
    """Words that are split already as `words` does."""
    return [Word(shown(" ".join(part)), **look)] if part else []


def style(text: str, **look: Any) -> str:
    """A text with colours of ours, which `echo` lets through to a terminal."""
    before, after = click.style("\0", **look).split("\0")
    ours = [part.replace("m", f";{OURS}m") for part in (before, after)]
    return safe(str(text)).join(ours)


def safe(line: str) -> str:
    """A line with colours of ours, and nothing else that commands a terminal."""
    if line.isprintable():
        return line
    return "".join(part if n % 2 else shown(part) for n, part in enumerate(re.split(LOOKS, line)))


def colour() -> bool | None:
    """Whether the user wants colours; None where the terminal decides."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR", "") not in ("", "0") else None


def echo(line: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Prints a line. All that commands print goes through here, and only our colours get
    through."""
    click.echo(_coloured(line), err=err, nl=nl, color=colour())


def echo_each(lines: Iterable[str], *, err: bool = False) -> None:
    """Prints lines one by one, as `echo` does."""
    for line in lines:
        echo(line, err=err)


def write_out(piece: str) -> None:
    """Prints a piece of a file: to the byte where it is piped, as `echo` does on a terminal."""
    if sys.stdout.isatty():
        echo(piece, nl=False)
    else:
        click.echo(piece, nl=False, color=True)


def confirm(question: str, *, err: bool = False) -> bool:
    """Asks a question; returns whether the answer is yes. No answer is no."""
    return click.confirm(shown(question), err=err)


def prompt(question: str, default: str, *, choices: Sequence[str] = ()) -> str:
    """What is typed as the answer to a question: `default` for nothing."""
    kind = click.Choice(choices) if choices else None
    shows = bool(default)
    return str(click.prompt(shown(question), shown(default), type=kind, show_default=shows))


def prompt_hidden(question: str) -> str:
    """A text that is typed without being seen."""
    return str(click.prompt(shown(question), hide_input=True, err=True))


def wrap(line: Iterable[Word], *, first: str = "", indent: int = 0) -> list[str]:
    """Words as lines of the terminal's width, hung at `indent`, after `first`."""
    limit, lines = width(), []
    current, room = first, limit - cells(click.unstyle(first))
    hung = " " * indent
    fresh = True
    for word in line:
        text, glue, at, size = word.text, word.glue, 0, len(word.text)
        while at < size or not size:
            space = 0 if fresh or glue else 1
            end = fitting(text, at, room - space)
            if end < size:  # as many of the words as have room, and one where none has
                end = break_before(text, at, end)
                if end < 0 and not fresh and not glue:
                    lines.append(current)
                    current, room, space = hung, limit - indent, 0
                    fresh = True
                    continue
                if end < 0:
                    end = text.find(" ", at)
                    end = size if end < 0 else end
            piece = text[at:end]
            current += (" " if space else "") + word.styled(piece)
            room -= space + cells(piece)
            at, size = end + text.startswith(" ", end), size or -1
            fresh = glue = False
    return [*lines, current]


def wrapped(text: str, *, first: str = "", indent: int = 0, **look: Any) -> list[str]:
    """A text's words, all looking alike, as `wrap` does."""
    return wrap(words(text, **look), first=first, indent=indent)


def word_diff(before: str, after: str) -> list[Word]:
    """Two texts as one line, by colour or marked: words [-taken out-], {+put in+}, and kept."""
    from tfgrpo.store.history.word_diff import pieces

    coloured = colourful() and not _paged_plain[-1]
    line: list[Word] = []
    for kind, text in pieces(before, after):
        removed = kind == "removed"
        if kind == "kept":
            line += words(text)
        elif coloured:
            line += words(text, fg="red" if removed else "green", strike=removed)
        else:
            line += words(f"[-{text}-]" if removed else f"{{+{text}+}}")
    return line


def colourful() -> bool:
    """Whether colours will be seen."""
    wanted = colour()
    return sys.stdout.isatty() if wanted is None else wanted


def dated(microseconds: int) -> str:
    """A time as date and minute, and how long ago that was."""
    return f"{when(microseconds)} ({age(microseconds)})"


def sign(op: Op, *, bold: bool = False) -> Word:
    """What stands for an operation, in its colour."""
    return Word(SIGNS[op], fg=COLOURS[op], bold=bold)


def counts(numbers: Mapping[Op, int], moved: int = 0) -> list[Word]:
    """`+2 ~1 =3 ↕1`; kinds that do not occur are left out."""
    return [
        Word(f"{sign}{numbers[op]}", fg=COLOURS[op])
        for op, sign in SIGNS.items()
        if numbers.get(op)
    ] + ([Word(f"{MOVED}{moved}", fg="blue")] if moved else [])


def view_lines(view: View) -> Iterator[str]:
    """A result as lines: its title, its table and what is noted."""
    yield style(view.title, bold=True)
    yield from table(view.rows, header=view.header)
    for note in view.notes:
        yield from wrapped(note, indent=2)


def apart(lines: Iterable[str]) -> Iterator[str]:
    """Lines after a blank one; nothing where there are none."""
    for number, line in enumerate(lines):
        yield from ("", line) if not number else (line,)


def spaced(blocks: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of blocks, with a blank one between two."""
    for number, lines in enumerate(blocks):
        yield from apart(lines) if number else lines


def first(items: Iterable[T], number: int | None) -> Iterator[T]:
    """The first so many items, however large the number; all for None."""
    return islice(items, None if number is None else min(number, sys.maxsize))


def emit(app: App, lines: Iterable[str]) -> None:
    """Prints lines as they come, through a pager when they are more than the terminal holds."""
    lines = iter(lines)
    if app.pager and sys.stdout.isatty():
        import shutil

        room = shutil.get_terminal_size().lines - 2
        _paged_plain.append(not _pager()[2])
        try:
            begin = list(islice(lines, room + 1))
            if len(begin) > room:
                page(_coloured(line) + "\n" for line in chain(begin, lines))
            else:
                echo_each(begin)
        finally:
            _paged_plain.pop()
    else:
        echo_each(lines)


def _pager() -> tuple[list[str], dict[str, str], bool]:
    """The user's pager: its words, its environment, and whether it shows colours."""
    import shlex
    import shutil

    from tfgrpo.store import child_processes

    words = shlex.split(os.environ.get("PAGER", "")) or ["less"]
    if shutil.which(words[0]) is None:
        words = ["more"]
    environment = {"LESS": "-R"} | child_processes.without_keys("LESS", "MORE")
    wanted = colour()
    if wanted is None:
        wanted = os.path.basename(words[0]) == "less" and "r" in environment["LESS"].lower()
    return words, environment, wanted


def page(texts: Iterable[str]) -> None:
    """Shows texts in the user's pager, which gets no key that is in this process's environment."""
    from subprocess import PIPE

    from tfgrpo.store import child_processes

    words, environment, colours = _pager()
    try:
        process = child_processes.start_as_written(words, environment, stdin=PIPE)
    except OSError:  # there is none at all
        sys.stdout.writelines(texts)
        return
    assert process.stdin is not None
    with suppress(BrokenPipeError, KeyboardInterrupt), process.stdin as pipe:
        for text in texts:  # until the pager is left
            pipe.write((text if colours else click.unstyle(text)).encode(errors="replace"))
    while process.returncode is None:
        with suppress(KeyboardInterrupt):  # which is the pager's own affair
            process.wait()


def _coloured(line: str) -> str:
    return safe(line).replace(f";{OURS}m", "m")


def warn(lines: Iterable[str]) -> None:
    """Prints what a person should know, to standard error."""
    for line in lines:
        echo(style("warning: ", fg="yellow") + shown(line), err=True)


def emit_json(value: object) -> None:
    """Prints a value as JSON for programs."""
    import json

    echo(shown_in_json(json.dumps(value, ensure_ascii=False, indent=2)))


def emit_json_list(values: Iterable[object]) -> None:
    """Prints values as one JSON list, a line each, as they come."""
    import json

    held = "["
    for number, value in enumerate(values):
        if number:
            echo(held + ",")
        held = ("" if number else "[") + shown_in_json(json.dumps(value, ensure_ascii=False))
    echo(held + "]")


def answer(app: App, value: object, lines: Iterable[str], as_json: bool) -> None:
    """Prints what a command answers: as JSON for programs (what a function makes; an iterator as a
    list whose items come as they are made), or as lines for people."""
    if not as_json:
        emit(app, lines)
    elif isinstance(value, Iterator):
        emit_json_list(value)
    else:
        emit_json(value() if callable(value) else value)


def emit_csv(rows: Iterable[Mapping[str, object]]) -> None:
    """Prints rows as CSV, as they come, with a header; what commands a terminal is shown."""
    import csv
    import io

    page = io.StringIO(newline="")
    sheet = csv.writer(page, lineterminator="\n")
    for number, row in enumerate(rows):
        if not number:
            sheet.writerow(row)
        values = (inert_cell(one) if isinstance(one, str) else one for one in row.values())
        sheet.writerow("" if value is None else value for value in values)
        echo(shown(page.getvalue()), nl=False)
        page.seek(0)
        page.truncate()


def table(rows: Sequence[Sequence[str]], *, header: Sequence[str], none: str = "") -> list[str]:
    """Rows as aligned columns, the last one cut to the terminal's width; `none` without rows."""
    if none and not rows:
        return [none]
    lines, limit = aligned([header, *map(safe_row, rows)]), width()
    lines = [
        one if cells(one) <= limit else one[: fitting(one, 0, limit - 1)] + "…" for one in lines
    ]
    return [style(lines[0], bold=True), *lines[1:]]
