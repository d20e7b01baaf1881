"""A pgbouncer before a cluster, for tests and benchmarks."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from waiting import until

ACCOUNTS = ("postgres", "nobody")


def program() -> str | None:
    """Returns where pgbouncer is, if it is there."""
    return shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")


class Pooler:
    """A context manager. `mode` is how long a client keeps a connection: `session` or
    `transaction`."""

    def __init__(self, cluster: Path, mode: str = "session") -> None:
        found = program()
        assert found is not None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._folder = tempfile.TemporaryDirectory(prefix="tfgrpo-pool-")
        settings = Path(self._folder.name) / "pgbouncer.ini"
        settings.write_text(
            "[databases]\n"
            f"postgres = host={cluster} port=5432 user=postgres\n"
            "[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = any\npool_mode = {mode}\nmax_client_conn = 100\ndefault_pool_size = 40\n"
        )
        account = self._account()
        more = {} if account is None else {"user": account, "group": account, "extra_groups": []}
        if account is not None:
            shutil.chown(self._folder.name, account)
            settings.chmod(0o644)
        self._log = (Path(self._folder.name) / "log").open("wb")
        self._process = subprocess.Popen(
            [found, str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            **more,  # type: ignore[call-overload]
        )

    def _account(self) -> str | None:
        if os.geteuid() != 0:
            return None
        known = {one.pw_name for one in pwd.getpwall()}
        return next(name for name in ACCOUNTS if name in known)

    def __enter__(self) -> Pooler:
        until(lambda: self._process.poll() is not None or self._listens())
        assert self._process.poll() is None, Path(self._log.name).read_text()
        return self

    def _listens(self) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()
        self._folder.cleanup()

    def address(self, library: str) -> str:
        """Returns the address of a library by way of this pooler."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres?library={library}"
