"""Prints a page with what its console blocks print now.

python docs/console.py docs/for-git-users.md > new.md

The commands of all ```console blocks (`$ …`) are run in order in one empty folder. What a command
printed stays as it is on the page if only ids, digests, times, sizes and this machine's sandbox
differ; so an up-to-date page comes out unchanged, and a test compares the two.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d)"
    r"|(?P<age>\bjust now\b|\b\d+ (?:second|minute|hour|day)s? ago\b)"
    r"|(?P<size>\b\d+\.\d+ MB\b)"
    r"|(?P<sandbox>(?<=sandbox for agents' Python: ).+)"
    r"|(?P<digest>\b(?:[0-9a-f]{64}|[0-9a-f]{8})\b)"
    r"|(?P<id>\b[0-9a-hjkmnp-tv-z]{12}\b)"
)


def steps(block: str) -> Iterator[tuple[str, str]]:
    """Yields each command of a block, with what the page says that it prints."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


class Same:
    """Makes two runs comparable: an id becomes the place at which it was first seen."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        def steady(match: re.Match[str]) -> str:
            kind = str(match.lastgroup)
            if kind != "id":
                return f"<{kind}>"
            return f"<id {self._seen.setdefault(match[0], len(self._seen))}>"

        return VARIES.sub(steady, text)


def run(command: str, folder: Path, programs: Path) -> str:
    """Returns what a command printed. It may fail only with an error that it prints."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TFGRPO_", "NO_COLOR"))}
    path = os.pathsep.join(map(str, (programs, Path(sys.executable).parent, os.environ["PATH"])))
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=kept | {"TFGRPO_AUTHOR": "ann", "PATH": path, "VISUAL": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0 and "\nerror: " not in "\n" + done.stdout:
        raise SystemExit(f"`{command}` failed with {done.returncode}:\n{done.stdout}")
    return done.stdout.replace(str(folder), f"~/{folder.name}")


def refreshed(page: str, folder: Path, programs: Path = Path(sys.executable).parent) -> str:
    """Returns the page with what its commands print now, run in an empty folder; `programs` is
    where their `tfgrpo` lies."""
    here, there = Same(), Same()

    def block(match: re.Match[str]) -> str:
        parts = []
        for command, said in steps(match[1]):
            now = run(command, folder, programs)
            parts.append(f"$ {command}\n{said if here(said) == there(now) else now}")
        return f"```console\n{''.join(parts)}```"

    return BLOCK.sub(block, page)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "shop"
        folder.mkdir()
        print(refreshed(Path(sys.argv[1]).read_text(), folder), end="")
