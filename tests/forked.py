"""The command line in forks of one process that has imported everything: a session costs
milliseconds, and each is still a process that can be killed.

Run as a program it reads a JSON list a line, a folder and arguments, forks, and answers with the
child's pid and then its exit status. `Forked` is the other end. Beside a `CommandServer` a copy of
it listens on a socket, for `ForkedPython` and for a program `tfgrpo` that shells find.
"""

from __future__ import annotations

import ast
import atexit
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, NoReturn

from workers import MOST, NUMBER, read_number
from workers import use as use_workers

import tfgrpo
from tfgrpo.store.sqlite.file import memory_connection

IMPORTED = (
    *("asyncio", "openai.resources.chat.completions", "pebble", "rich.live", "rich.table"),
    *("json_repair", "sqlite_utils", "genai_prices.data", "pydantic", "jsonschema", "markdown_it"),
    *("numpy", "yaml", "filelock", "anyio._backends._asyncio", "h11", "click._textwrap"),
    *("encodings.idna", "multiprocessing.popen_spawn_posix", "httpx2._transports.default"),
    *("httpcore2", "httpcore2._backends.anyio", "rapidfuzz", "rapidfuzz.fuzz"),
    *("platformdirs", "click._termui_impl"),
)
"""What commands use beside the product's own modules."""
STAND = signal.SIGUSR2
"""Has a command write down where each of its threads stands."""
OTHER_ROOTS = ("cli", "store", "migrations")
"""Packages of ours that lie in folders of their own."""
PROGRAM = """#!{python} -IS
import _signal, _socket, os, struct, sys
status, end = os.pipe()
with_it = struct.pack("4i", end, 0, 1, 2)
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({address!r})
server.sendmsg([b"w"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, with_it)])
order = dict(code=None, arguments=sys.argv[1:], folder=os.getcwd(), environment=dict(os.environ))
server.sendall(ascii(order).encode())
server.close()
os.close(end)
(pid,) = struct.unpack("q", os.read(status, 8))
for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP):
    _signal.signal(number, lambda number, frame: os.kill(pid, number))
(code,) = struct.unpack("q", os.read(status, 8))
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""
"""`tfgrpo` for shells: it has the server fork what the installed program would do."""


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
            bufsize=0,  # a line that is read must not take the next one along: it is waited for
        )
        self._pid = 0

    def start(self, *arguments: str) -> None:
        """Starts a session."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps((str(self.folder), *arguments)).encode() + b"\n")
        self._pid = int(self._line())

    def ended(self) -> bool:
        """Whether the session is over."""
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def kill(self) -> None:
        """Kills the session where it is, unless it has just ended."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def status(self) -> int:
        """Waits for the session's end and returns its exit code, or minus the signal."""
        return os.waitstatus_to_exitcode(int(self._line()))

    def said(self) -> str:
        """Returns the last of what sessions have printed."""
        return (self.folder / "out.txt").read_text()[-2000:]

    def _line(self) -> bytes:
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
        self._folder = tempfile.TemporaryDirectory(prefix="tfgrpo-commands-")
        self.address = str(Path(self._folder.name, "socket"))
        self.programs = Path(self._folder.name, "bin")
        """A folder with a `tfgrpo` for the paths of shells."""
        self.programs.mkdir()
        program = self.programs / "tfgrpo"
        program.write_text(PROGRAM.format(python=sys.executable, address=self.address))
        program.chmod(0o755)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(256)
            self._process = subprocess.Popen(
                [sys.executable, __file__, workers, str(listener.fileno())],
                env=clean,
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,  # as above
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
        """Returns what the command printed and its exit code. Raises TimeoutExpired, with a note of
        what it said and where each of its threads stood."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            streams = [Path(folder, name) for name in ("in", "out", "err")]
            for path, content in zip(streams, (input, "", ""), strict=True):
                path.write_text(content, encoding="utf-8", newline="")
            order = (list(map(str, arguments)), str(cwd), env, list(map(str, streams)))
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            pid = int(self._process.stdout.readline())
            if not select.select([self._process.stdout], [], [], timeout)[0]:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(pid, STAND)
                    select.select([self._process.stdout], [], [], 5)  # in which it is written down
                    os.kill(pid, signal.SIGKILL)
                self._process.stdout.readline()
                late = subprocess.TimeoutExpired(list(arguments), timeout)
                late.add_note(streams[2].read_text(encoding="utf-8", errors="replace")[-8000:])
                raise late
            code = os.waitstatus_to_exitcode(int(self._process.stdout.readline()))
            printed = [path.read_text(encoding="utf-8") for path in streams[1:]]
        return subprocess.CompletedProcess(list(arguments), code, *printed)

    def __enter__(self) -> CommandServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._folder.cleanup()


class ForkedPython(subprocess.Popen[str]):
    """What `python -c code arguments` is, with open pipes, in a fork of the server there."""

    def __init__(self, address: str, code: str, *arguments: object) -> None:
        self._address = address
        self._order = {
            "code": code,
            "arguments": list(map(str, arguments)),
            "folder": os.getcwd(),
            "environment": dict(os.environ),
        }
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        super().__init__(["python", "-c", code], **pipes, text=True)  # type: ignore[call-overload]

    def _execute_child(self, *given: Any) -> None:
        ends = given[10:16]
        self._status, status = os.pipe()
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(self._address)
                socket.send_fds(client, [b"w"], [status, ends[0], ends[3], ends[5]])
                client.sendall(ascii(self._order).encode())
        finally:
            os.close(status)
            self._close_pipe_fds(*ends)  # type: ignore[attr-defined]
        self.pid = read_number(self._status)
        self._child_created = True

    def _internal_poll(self, _deadstate: object = None) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self._wait(0)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = read_number(self._status)
            os.close(self._status)
        return self.returncode


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
    memory_connection().close()  # the schema that new stores are copies of
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


def become(folder: str, environment: dict[str, str], streams: Sequence[int]) -> None:
    """Gives this process a folder, an environment, and standard streams."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for target, number in enumerate(streams):
        os.dup2(number, target)
        os.close(number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, "utf-8", "backslashreplace", closefd=False)


def serve_commands(listener: socket.socket) -> None:
    """Forks a child for every order on standard input: arguments, folder, environment, streams."""
    preload()
    from tfgrpo.cli.main import main

    program = str(Path(sys.executable).with_name("tfgrpo"))
    ends, held = os.pipe()  # it ends when this process has, and all that it forked
    if os.fork() == 0:
        os.close(held)
        listen(listener, ends)
    for line in sys.stdin:
        arguments, folder, environment, streams = json.loads(line)
        pid = os.fork()
        if pid == 0:
            kinds = (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)
            become(folder, environment, list(map(os.open, streams, kinds)))
            sys.argv = [program, *arguments]
            faulthandler.register(STAND, all_threads=True)
            finish(main)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


def listen(listener: socket.socket, ends: int) -> NoReturn:
    """Forks a child for every connection, until there is an end at the other side of `ends`."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    while listener in select.select([listener, ends], [], [])[0]:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as rest:
            _, given, _, _ = socket.recv_fds(connection, 1, MOST)
            order = ast.literal_eval(rest.read().decode())
        if os.fork() == 0:
            listener.close()
            os.close(ends)
            watch(order, *given)
        for number in given:
            os.close(number)
    os._exit(0)


def watch(order: dict[str, Any], status: int, *streams: int) -> NoReturn:
    """Forks what is asked for and writes its process id and, when it has ended, its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(status)
        become(order["folder"], order["environment"], streams)
        finish(lambda: session(order["code"], order["arguments"]))
    os.dup2(status, 0)  # and nothing else stays open, or nobody would see the end of it
    os.closerange(1, 4 * MOST)
    with suppress(BrokenPipeError):
        os.write(0, NUMBER.pack(pid))
        os.write(0, NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])))
    os._exit(0)


def session(code: str | None, arguments: list[str]) -> None:
    """Runs `python -c code arguments`, or without any code `tfgrpo arguments`."""
    if code is None:
        from tfgrpo.cli.main import main

        sys.argv = [str(Path(sys.executable).with_name("tfgrpo")), *arguments]
        main()
    else:
        sys.path[0], sys.argv = "", ["-c", *arguments]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})


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
    if sys.argv[2:]:
        serve_commands(socket.socket(fileno=int(sys.argv[2])))
    else:
        serve()
