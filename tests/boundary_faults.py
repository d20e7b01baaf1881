"""Commands whose n-th call that changes a file fails, or is their last: `boundary_faults.c`.

Run as a program, with that library loaded, it forks a command for each line that it reads.
`Faults` is the other end.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_suffix(".c")
KINDS = {
    "kill": (0, False),
    "EIO": (errno.EIO, False),
    "ENOSPC": (errno.ENOSPC, True),
    "power": (-1, False),
    "torn": (-2, False),
}
"""An error's number, 0 for a kill, below it a loss of power with all or some of what was not
synchronised; and whether later calls fail as well: a full disk stays full."""


class Outcome(NamedTuple):
    """How a command ended, minus the signal, what it said, and how many calls it had made."""

    code: int
    said: str
    calls: int


class Faults:
    """Runs commands of `tfgrpo` with a fault each. A context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tfgrpo-faults-")
        library = built(Path(self._folder.name))
        self._process = subprocess.Popen(
            [sys.executable, __file__, library],
            env={
                **os.environ,
                "LD_PRELOAD": library,
                "TFGRPO_AUTHOR": "tester",
                "VISUAL": "sed -i s/half/partly/",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> Faults:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._folder.cleanup()

    def run(self, folder: Path, *arguments: str, kind: str = "kill", at: int = 0) -> Outcome:
        """Runs a command in `folder` whose call number `at` in it has a fault; 0 is none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(folder), arguments, *KINDS[kind], at]) + "\n")
        return Outcome(*json.loads(self._process.stdout.readline()))


def built(folder: Path) -> str:
    """Compiles the library into a folder; returns its path."""
    library = str(folder / "faults.so")
    compiler = shutil.which("cc") or "cc"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def main(library: str) -> None:
    """Forks a command for every line of standard input."""
    import sqlite_utils  # noqa: F401  (it loads pandas where there is one: seconds)

    import tfgrpo.cli.main
    import tfgrpo.redaction
    import tfgrpo.store.sqlite.port
    import tfgrpo.store.transfer.locations

    loaded = ctypes.CDLL(library)
    shared = mmap.mmap(-1, mmap.PAGESIZE)
    address = ctypes.addressof(ctypes.c_long.from_buffer(shared))
    for line in sys.stdin:
        folder, arguments, number, lasting, at = json.loads(line)
        shared[:8] = bytes(8)
        with tempfile.TemporaryFile() as output:
            child = os.fork()
            if child == 0:
                os.chdir(folder)
                sys.argv = ["tfgrpo", *arguments]
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                loaded.fault_arm(
                    ctypes.c_void_p(address), ctypes.c_long(at), number, lasting, folder.encode()
                )
                code = 1
                try:
                    tfgrpo.cli.main.main()
                    code = 0
                except SystemExit as stop:
                    code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
                except BaseException:
                    sys.excepthook(*sys.exc_info())
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    loaded.fault_end()
                    os._exit(code)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            output.seek(0)
            said = output.read().decode(errors="replace")
        calls = int.from_bytes(shared[:8], sys.byteorder)
        print(json.dumps([status, said, calls]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
