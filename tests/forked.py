"""The command line in forks of one process that has imported everything: a session costs
milliseconds, and each is still a process that can be killed.

Run as a program it reads a JSON list of arguments a line, forks, and answers with the child's
pid and then its exit status. `Forked` is the other end.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

IMPORTED = (
    *("asyncio", "openai.resources.chat.completions", "pebble", "rich.live", "pydantic"),
    *("json_repair", "sqlite_utils", "genai_prices", "tfgrpo.cli.main", "tfgrpo.cli.train"),
    *("tfgrpo.cli.live", "tfgrpo.cli.evaluate", "tfgrpo.cli.cost", "tfgrpo.training.loop"),
    *("tfgrpo.evaluation.evaluate", "tfgrpo.migrations.migrations", "tfgrpo.domains.math"),
)


class Forked:
    """Starts sessions of `tfgrpo` in a folder, one after the other. A context manager."""

    def __init__(self, folder: Path) -> None:
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith("TFGRPO_") or k == "TFGRPO_TRUST"
        }
        self.output = folder / "out.txt"
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=folder,
            env=kept,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._pid = 0

    def start(self, *arguments: str) -> None:
        """Starts a session."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        self._pid = int(self._line())

    def ended(self) -> bool:
        """Whether the session is over."""
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def kill(self) -> None:
        """Kills the session where it is."""
        os.kill(self._pid, signal.SIGKILL)

    def status(self) -> int:
        """Waits for the session's end and returns its exit code, or minus the signal."""
        return os.waitstatus_to_exitcode(int(self._line()))

    def said(self) -> str:
        """Returns the last of what sessions have printed."""
        return self.output.read_text()[-2000:]

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def serve() -> None:
    """Forks a child for every line of standard input."""
    for name in IMPORTED:
        importlib.import_module(name)
    from tfgrpo.cli.main import main

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                out = os.open("out.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
                null = os.open(os.devnull, os.O_RDONLY)
                for target, source in ((0, null), (1, out), (2, out)):
                    os.dup2(source, target)
                sys.argv = ["tfgrpo", *json.loads(line)]
                main()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    serve()
