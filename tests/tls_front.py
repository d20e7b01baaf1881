"""TLS before a server on loopback: what stands before a proxy or a provider in production.

The certificate is that of `providers/server.pem`, signed by the authority `AUTHORITY`; it names
`*.example.com` and hosted providers.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from typing import Self

from listening import Listener

HERE = Path(__file__).parent / "providers"
AUTHORITY = HERE / "ca.pem"


def pipe(source: socket.socket, target: socket.socket) -> None:
    """Hands on what comes until there is no more."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def both_ways(one: socket.socket, other: socket.socket) -> None:
    """Hands on between two until either ends."""
    with one, other:
        thread = threading.Thread(target=pipe, args=(one, other), daemon=True)
        thread.start()
        pipe(other, one)
        thread.join(60)


class Front:
    """Stands before a port of this machine, at `port`; a context manager. `serve` gets what
    comes."""

    def __init__(self, target: int) -> None:
        self.target = target

    def __enter__(self) -> Self:
        self._listener = Listener(self._serve)
        self.port = self._listener.port
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self.serve(connection)

    def serve(self, connection: socket.socket) -> None:
        raise NotImplementedError


class TlsFront(Front):
    """Takes TLS, and hands on without."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(HERE / "server.pem")

    def serve(self, connection: socket.socket) -> None:
        wrapped = self._context.wrap_socket(connection, server_side=True)
        both_ways(wrapped, socket.create_connection(("127.0.0.1", self.target)))
