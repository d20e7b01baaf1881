"""A relay between a worker and its database, which can be cut: the network of tests and benchmarks.

It runs in threads of this process, listens on loopback and connects to a cluster's socket. While it
is cut nothing passes, in no direction, and nobody is told: as where packets are dropped.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from listening import Listener


class Relay:
    """A context manager; `port` is where it listens."""

    def __init__(self, cluster: Path) -> None:
        self._target = str(cluster / ".s.PGSQL.5432")
        self._passes = threading.Event()
        self._passes.set()
        self._open: list[socket.socket] = []

    def __enter__(self) -> Relay:
        self._listener = Listener(self._serve)
        self.port = self._listener.port
        return self

    def __exit__(self, *_: object) -> None:
        self._passes.set()
        self._listener.close()
        self._drop()

    @property
    def is_cut(self) -> bool:
        """Whether nothing passes now."""
        return not self._passes.is_set()

    def cut(self, seconds: float, drop: bool = False) -> None:
        """Lets nothing pass for so long; then what was open goes on, or is dropped."""
        self._passes.clear()
        time.sleep(seconds)
        if drop:
            self._drop()
        self._passes.set()

    def address(self, library: str) -> str:
        """Returns the address of a library by way of this relay."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?library={library}"

    def _drop(self) -> None:
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _serve(self, here: socket.socket) -> None:
        self._passes.wait()
        there = socket.socket(socket.AF_UNIX)
        try:
            there.connect(self._target)
        except OSError:  # the database is away
            here.close()
            return
        self._open += [here, there]
        for pair in ((here, there), (there, here)):
            threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._passes.wait()
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
