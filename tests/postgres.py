"""A throw-away PostgreSQL cluster of the tests' own, on a socket in a temporary folder."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

INSTALLED = Path("/usr/lib/postgresql")
ACCOUNTS = ("postgres", "nobody")
"""Who runs the server when the tests run as root, which it refuses."""


def binaries() -> Path | None:
    """Returns the folder of the newest PostgreSQL's programs, if there is one."""
    named = shutil.which("initdb")
    found = [path.parent for path in INSTALLED.glob("*/bin/initdb")]
    found.sort(key=lambda path: int(path.parent.name.partition(".")[0]))
    return found[-1] if found else Path(named).parent if named else None


def missing() -> str:
    """Returns why no cluster can be started here; empty where one can."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed"
    return "" if binaries() else "PostgreSQL's programs are not installed"


class Cluster:
    """A running server; `user` is its superuser, whom no password is asked of on the socket.

    One that is `durable` writes as a server that is in use does: what a benchmark wants.
    """

    def __init__(self, *, durable: bool = False) -> None:
        self._durable = durable
        programs = binaries()
        assert programs is not None
        self._programs = programs
        self.folder = Path(tempfile.mkdtemp(prefix="tfgrpo-pg-"))
        self._data = self.folder / "data"
        self._account = self._who()
        if self._account is not None:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)
        self.folder.chmod(0o755)
        self._run(
            "initdb", "--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C",
            "-D", str(self._data),
        )  # fmt: skip
        self.start()

    def _who(self) -> pwd.struct_passwd | None:
        if os.geteuid() != 0:
            return None
        for name in ACCOUNTS:
            try:
                return pwd.getpwnam(name)
            except KeyError:
                continue
        raise RuntimeError("nobody to run PostgreSQL as")

    def _run(self, program: str, *arguments: str) -> None:
        account = self._account
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.folder,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / "out").open("ab"),
            stderr=subprocess.STDOUT,
            timeout=120,
        )
        assert done.returncode == 0, (self.folder / "out").read_text()

    def start(self, *, port: int = 5432, listen: str = "") -> None:
        """Starts the server and waits until it answers; `listen` is an address beside the
        socket."""
        options = f"-k {self.folder} -p {port} -c listen_addresses='{listen}'"
        options += " -c track_commit_timestamp=on"
        if self._durable:
            options += " -c shared_buffers=128MB -c max_connections=200"
        else:
            options += (
                " -c fsync=off -c full_page_writes=off -c shared_buffers=32MB"
                " -c max_connections=60 -c autovacuum=off"
            )
        self._run("pg_ctl", "-D", str(self._data), "-w", "-o", options, "start")

    def stop(self, mode: str = "immediate") -> None:
        """Stops the server: `immediate` is as a crash."""
        self._run("pg_ctl", "-D", str(self._data), "-w", "-m", mode, "stop")

    @property
    def pid(self) -> int:
        """The process that all others of the server descend from."""
        return int((self._data / "postmaster.pid").read_text().split()[0])

    def close(self) -> None:
        """Stops the server and removes all of it."""
        pid = self._data / "postmaster.pid"
        if pid.exists():
            self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def address(self, library: str, *, user: str = "postgres", **more: str) -> str:
        """Returns the address of a library in this cluster."""
        rest = "".join(f"&{key}={value}" for key, value in more.items())
        return f"postgresql://{user}@/postgres?host={self.folder}&library={library}{rest}"


@cache
def cluster() -> Cluster:
    """The cluster of this process and all of its tests."""
    running = Cluster()
    atexit.register(running.close)
    return running
