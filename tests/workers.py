"""Worker processes in forks of one process that has loaded what judging takes: SymPy is seconds
to load, and every training command starts three workers.

`use(address)` has what would be spawned in this process forked off there instead, with the same
descriptors, environment and folder. What is killed, dies or hangs is still a process of its own.
Tests of spawning itself take the fixture `spawned`. Run as a program it is the process that forks.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from multiprocessing import context, popen_spawn_posix, reduction, resource_tracker, spawn, util
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NoReturn

MOST = 64
"""Descriptors that a worker may be given."""
IMPORTED = ("pebble.pool.process", "resource", "sympy.tensor.tensor")
"""What workers use beside the modules of domains, and would each import anew."""
NUMBER = struct.Struct("q")
_spawned = context.SpawnProcess._Popen


class WorkerServer:
    """Starts the process that forks workers; it loads what they take when the first is asked for.
    A context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tfgrpo-workers-")
        self.address = str(Path(self._folder.name, "socket"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.address)
            listener.listen(256)
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
            )

    def __enter__(self) -> WorkerServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._folder.cleanup()


def use(address: str) -> None:
    """Has this process's workers forked off by the server at that address."""
    context.SpawnProcess._Popen = staticmethod(lambda process: Popen(process, address))


def spawn_again() -> None:
    """Has them spawned, as they are where no tests run."""
    context.SpawnProcess._Popen = staticmethod(_spawned)


class Popen(popen_spawn_posix.Popen):
    """What `multiprocessing` knows of a worker that was forked elsewhere."""

    def __init__(self, process: Any, address: str) -> None:
        self._address, self._reading = address, threading.Lock()
        super().__init__(process)

    def _launch(self, process: Any) -> None:
        tracker = resource_tracker.getfd()
        self._fds.append(tracker)
        told = io.BytesIO()
        preparation = spawn.get_preparation_data(process._name)
        context.set_spawning_popen(self)
        try:
            reduction.dump(preparation, told)
            reduction.dump(process, told)
        finally:
            context.set_spawning_popen(None)
        order, self._order = os.pipe()
        self.sentinel, status = os.pipe()
        self.finalizer = util.Finalize(self, util.close_fds, (self._order, self.sentinel))
        places = [0, 1, 2, *self._fds]
        header = {
            "places": places,
            "tracker": tracker,
            "folder": os.getcwd(),
            "environment": dict(os.environ),
            "group": os.getpgrp(),
        }
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(self._address)
                socket.send_fds(client, [b"w"], [order, status, *places])
                client.sendall(json.dumps(header).encode())
        finally:
            os.close(order)
            os.close(status)
        self.pid = read_number(self.sentinel)
        with open(self._order, "wb", closefd=False) as stream:
            stream.write(told.getbuffer())

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        if self.returncode is None:
            if not wait([self.sentinel], 0 if flag == os.WNOHANG else None):
                return None
            with self._reading:
                if self.returncode is None:
                    self.returncode = read_number(self.sentinel)
        return self.returncode


def read_number(stream: int) -> int:
    """Returns the next number of a pipe. Raises EOFError."""
    packed = b""
    while len(packed) < NUMBER.size:
        if not (part := os.read(stream, NUMBER.size - len(packed))):
            raise EOFError("the process that forks workers is gone")
        packed += part
    return int(NUMBER.unpack(packed)[0])


def serve(listener: socket.socket) -> None:
    """Forks a worker for every connection, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    loaded = False
    while listener in select.select([listener, sys.stdin], [], [])[0]:
        connection, _ = listener.accept()
        if not loaded:
            load()
            loaded = True
        with connection, connection.makefile("rb") as rest:
            _, descriptors, _, _ = socket.recv_fds(connection, 1, MOST)
            header = json.load(rest)
        if os.fork() == 0:
            watch(header, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def load() -> None:
    """Imports what workers use."""
    import tfgrpo.domains
    from tfgrpo.domains.mathematics import parsing

    for module in pkgutil.walk_packages(tfgrpo.domains.__path__, "tfgrpo.domains."):
        with suppress(ImportError):  # one that takes an extra
            importlib.import_module(module.name)
    for name in IMPORTED:
        importlib.import_module(name)

    parsing.warm_up()
    gc.collect()
    gc.freeze()  # what is there stays the same pages in every child


def watch(header: dict[str, Any], order: int, status: int, *given: int) -> NoReturn:
    """Forks the worker and writes its process id and, when it has ended, its exit code."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with suppress(OSError):  # another session's
            os.setpgid(0, header["group"])
        worker = os.fork()
        if worker == 0:
            work(header, order, given)
        os.dup2(status, 0)  # and nothing else stays open, or nobody would see the end of it
        os.closerange(1, 4 * MOST)
        os.write(0, NUMBER.pack(worker))
        code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        with suppress(BrokenPipeError):
            os.write(0, NUMBER.pack(code))
    finally:
        os._exit(0)


def work(header: dict[str, Any], order: int, given: tuple[int, ...]) -> NoReturn:
    """Is the worker, as an interpreter would be that was started for it."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        beyond = max(MOST, *header["places"]) + 1  # they wait there until their places are free
        order, *waiting = (fcntl.fcntl(one, fcntl.F_DUPFD, beyond) for one in (order, *given))
        os.closerange(0, beyond)
        for place, descriptor in zip(header["places"], waiting, strict=True):
            os.dup2(descriptor, place)
            os.close(descriptor)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
        os.chdir(header["folder"])
        os.environ.clear()
        os.environ.update(header["environment"])
        resource_tracker._resource_tracker._fd = header["tracker"]
        code = spawn._main(order, os.dup(order))
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
