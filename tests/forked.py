"""The command line in forks of one process that has imported everything: a session costs
milliseconds, and each is still a process that can be killed.

Run as a program it reads a JSON list a line, a folder and arguments, forks, and answers with the
child's pid and then its exit status. `Forked` is the other end.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import NoReturn

from workers import use as use_workers

import tfgrpo

IMPORTED = (
    *("asyncio", "openai.resources.chat.completions", "pebble", "rich.live", "rich.table"),
    *("json_repair", "sqlite_utils", "genai_prices.data", "pydantic", "jsonschema", "markdown_it"),
    *("numpy", "yaml", "filelock", "anyio._backends._asyncio", "h11", "click._textwrap"),
    *("encodings.idna", "multiprocessing.popen_spawn_posix", "httpx2._transports.default"),
    *("httpcore2", "httpcore2._backends.anyio", "rapidfuzz", "rapidfuzz.fuzz", "mpmath"),
    *("platformdirs", "click._termui_impl"),
)
"""What commands use beside the product's own modules."""
OTHER_ROOTS = ("cli", "store", "migrations")
"""Packages of ours that lie in folders of their own."""


class Forked:
    """Starts sessions of `tfgrpo` in `folder`, one after the other. Their workers are forked off
    by the server of `workers.py` at that address. A context manager."""

    def __init__(self, folder: Path, workers: str) -> None:
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith("TFGRPO_") or k == "TFGRPO_TRUST"
        }
        self.folder = folder
        self._process = subprocess.Popen(
            [sys.executable, __file__, workers],
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
        self._process.stdin.write(json.dumps((str(self.folder), *arguments)) + "\n")
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
        return (self.folder / "out.txt").read_text()[-2000:]

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


class CommandServer:
    """Runs `tfgrpo` as `subprocess.run` does, each time in a fork of one process that has imported
    everything; workers as in `Forked`. A context manager; not for two threads at once."""

    def __init__(self, workers: str) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("TFGRPO_", "OPENAI_"))}
        self._process = subprocess.Popen(
            [sys.executable, __file__, workers, "commands"],
            env=clean,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self,
        arguments: Sequence[str],
        cwd: Path,
        env: dict[str, str],
        *,
        input: str = "",
        timeout: float,
    ) -> subprocess.CompletedProcess[str]:
        """Returns what the command printed and its exit code. Raises TimeoutExpired."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            streams = [Path(folder, name) for name in ("in", "out", "err")]
            for path, content in zip(streams, (input, "", ""), strict=True):
                path.write_text(content, encoding="utf-8", newline="")
            order = (list(map(str, arguments)), str(cwd), env, list(map(str, streams)))
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            pid = int(self._process.stdout.readline())
            if not select.select([self._process.stdout], [], [], timeout)[0]:
                os.kill(pid, signal.SIGKILL)
                self._process.stdout.readline()
                raise subprocess.TimeoutExpired(list(arguments), timeout)
            code = os.waitstatus_to_exitcode(int(self._process.stdout.readline()))
            printed = [path.read_text(encoding="utf-8") for path in streams[1:]]
        return subprocess.CompletedProcess(list(arguments), code, *printed)

    def __enter__(self) -> CommandServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def preload() -> None:
    """Imports what commands use, and every module of ours that is there without an extra."""
    roots = [tfgrpo, *(importlib.import_module(f"tfgrpo.{name}") for name in OTHER_ROOTS)]
    for root in roots:
        ours = (module.name for module in pkgutil.walk_packages(root.__path__, f"{root.__name__}."))
        for name in ours:
            with suppress(ImportError):
                importlib.import_module(name)
    for name in IMPORTED:
        importlib.import_module(name)
    resource_tracker.ensure_running()  # one for all children
    gc.collect()
    gc.freeze()  # what is there stays the same pages in every child


def finish(session: Callable[[], None], *, cleans_up: bool = True) -> NoReturn:
    """Ends this process as an interpreter that has run `session`. Without `cleans_up` what the
    process that it was forked from would do at its own end is left to that one."""
    code = 1
    try:
        session()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        if cleans_up:
            with suppress(Exception):
                threading._shutdown()  # type: ignore[attr-defined]
                atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def serve_commands() -> None:
    """Forks a child for every order on standard input: arguments, folder, environment, streams."""
    preload()
    from tfgrpo.cli.main import main

    program = str(Path(sys.executable).with_name("tfgrpo"))
    for line in sys.stdin:
        arguments, folder, environment, streams = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.chdir(folder)
            os.environ.clear()
            os.environ.update(environment)
            for target, path in enumerate(streams):
                number = os.open(path, os.O_RDONLY if target == 0 else os.O_WRONLY)
                os.dup2(number, target)
                os.close(number)
            sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
            sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
            sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)
            sys.argv = [program, *arguments]
            finish(main)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


def serve() -> None:
    """Forks a child for every line of standard input."""
    preload()
    from tfgrpo.cli.main import main

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            folder, *arguments = json.loads(line)
            os.chdir(folder)
            out = os.open("out.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            null = os.open(os.devnull, os.O_RDONLY)
            for target, source in ((0, null), (1, out), (2, out)):
                os.dup2(source, target)
            sys.argv = ["tfgrpo", *arguments]
            finish(main)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    use_workers(sys.argv[1])
    serve_commands() if sys.argv[2:] else serve()
