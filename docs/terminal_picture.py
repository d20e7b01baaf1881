"""Records commands in a terminal, and draws the recording as a picture.

python docs/terminal_picture.py record docs/terminal.ansi "tfgrpo blame" "tfgrpo log --oneline"
python docs/terminal_picture.py draw docs/terminal.ansi > docs/terminal.svg

`record` runs each command on a terminal of its own and appends what it printed, colours included,
to the file, unchanged; standard error is left out. The README's picture was recorded in a fresh
clone, after its first command had been run there.
"""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

COLUMNS = 100
PROMPT = "\x1b[1;32m$\x1b[0m "
TEMPLATE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>A session with tfgrpo</title>
<style>
.{unique_id}-matrix, .{unique_id}-title {{
  font: {char_height}px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
}}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def record(file: Path, commands: list[str]) -> None:
    """Appends each command and what it printed on a terminal to a file."""
    for command in commands:
        with file.open("a", newline="") as recording:
            recording.write(f"{PROMPT}{command}\n{printed(command)}")


def printed(command: str) -> str:
    """Returns what a command writes to a terminal of `COLUMNS` columns."""
    ours, theirs = pty.openpty()
    size = {"COLUMNS": str(COLUMNS), "LINES": "1000", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        ["sh", "-c", command], stdin=theirs, stdout=theirs, env={**os.environ, **size}
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux's way to say that the other end is closed
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    if process.wait() != 0:
        raise SystemExit(f"`{command}` failed with {process.returncode}")
    return b"".join(parts).decode().replace("\r\n", "\n")


def draw(recording: str) -> str:
    """Returns a recording as SVG, with no font or image fetched from elsewhere."""
    from rich.console import Console
    from rich.terminal_theme import MONOKAI
    from rich.text import Text

    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(Text.from_ansi(recording.rstrip("\n")), soft_wrap=False)
    return console.export_svg(
        title="tfgrpo", theme=MONOKAI, code_format=TEMPLATE, unique_id="terminal"
    )


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", file, *commands] if commands:
            record(Path(file), commands)
        case ["draw", file]:
            print(draw(Path(file).read_text()), end="")
        case _:
            raise SystemExit(__doc__)
