"""A walk: what one kind of user does, in their order, as commands of real processes.

Every step is timed and told; nothing is asserted about time. A walk is a function of a `Walk`;
`python tests/walks/walk_newcomer.py` walks it in a new folder and prints its steps.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "providers")]

from conftest import environment, run_command  # noqa: E402


class Walk:
    """A folder to walk in, and the steps that were made: what was done, its seconds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.steps: list[tuple[str, float]] = []
        self.environment = environment(OPENAI_API_KEY="none-that-is-real")

    def run(self, *arguments: str, code: int = 0) -> str:
        """Runs `tfgrpo`; returns what it printed, errors included. Fails for another exit code."""
        with self.step("tfgrpo " + " ".join(arguments)):
            done = run_command(arguments, self.folder, self.environment)
        said = done.stdout + done.stderr
        assert done.returncode == code, (arguments, done.returncode, said)
        return said

    def read(self, *arguments: str) -> Any:
        """Runs `tfgrpo … --json`; returns the value."""
        return json.loads(self.run(*arguments, "--json"))

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Times what is done inside."""
        start = time.perf_counter()
        yield
        self.steps.append((what, time.perf_counter() - start))

    def write(self, name: str, text: str) -> Path:
        """Writes a file of the user's own."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def report(self) -> str:
        """Returns the steps with their seconds."""
        lines = [f"{seconds:7.2f} s  {what[:100]}" for what, seconds in self.steps]
        total = sum(seconds for _, seconds in self.steps)
        return "\n".join([*lines, f"{total:7.2f} s  in {len(self.steps)} steps"])


def main(walk: Callable[[Walk], None]) -> None:
    """Walks in a folder of its own and prints the steps."""
    with tempfile.TemporaryDirectory(prefix="walk-") as folder:
        made = Walk(Path(folder))
        walk(made)
        print(made.report())
