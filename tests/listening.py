"""A port on loopback that is there until it is closed, and not a moment longer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Listener:
    """Takes connections at `port`, and hands each to `serve` in a thread of its own.

    To close the socket alone does not end a thread that waits for a connection: it would take one
    more, and answer it beside whoever has the port or the descriptor by then.
    """

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Takes no more connections; those that are open go on."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
