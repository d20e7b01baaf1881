"""The guard of this process's commands: when this process is gone, it ends what they have started,
and removes the copies of workspaces that they worked in.

A process that is killed with SIGKILL ends nothing by itself. The guard waits for the end of its
standard input, which this process holds open. Then it ends every process that has the mark in its
environment, and what these have started.
"""

from __future__ import annotations

import atexit
import secrets
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from tfgrpo.store import child_processes
from tfgrpo.tools.process_table import Family
from tfgrpo.tools.session_bounds import remove_scratch

RUN_MARK = "TFGRPO_AGENTS_OF"
"""The variable that every process of a command has."""


@cache
def guarded() -> str:
    """Returns the mark of this process's commands; from the first call on a guard watches. Raises
    OSError."""
    mark, folder = secrets.token_hex(16), tempfile.gettempdir()
    process = child_processes.start(
        child_processes.python("-m", "tfgrpo.agents.orphan_guard", mark, folder),
        child_processes.without_keys(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    process.returncode = 0  # nobody waits for it: it ends after this process
    assert process.stdin is not None
    atexit.register(process.stdin.close)
    return mark


def new_copy() -> Path:
    """Returns an empty folder for the copy of a workspace. Raises OSError."""
    return Path(tempfile.mkdtemp(prefix=_begins(guarded()))).resolve()


def _begins(mark: str) -> str:
    return f"tfgrpo-workspace-{mark}-"


def main(mark: str, folder: str) -> None:
    """Watches until standard input ends."""
    sys.stdin.buffer.read()
    Family(f"{RUN_MARK}={mark}").kill()
    for left in Path(folder).glob(f"{_begins(mark)}*"):
        remove_scratch(left)


if __name__ == "__main__":
    main(*sys.argv[1:])
