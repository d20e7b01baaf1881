"""The guard of a run's agents: ends what they have started when the run's process is gone.

A process that is killed with SIGKILL ends nothing by itself. This one waits for the end of its
standard input, which the run's process holds open, and then ends every process that has the run's
mark in its environment.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tfgrpo.store import child_processes
from tfgrpo.tools.process_table import Family

RUN_MARK = "TFGRPO_AGENTS_OF"
"""The variable that every process of a run's agents has."""


@contextmanager
def guarded(token: str) -> Iterator[None]:
    """Has a guard watch for as long as the block lasts."""
    process = child_processes.start(
        child_processes.python("-m", "tfgrpo.agents.orphan_guard", token),
        child_processes.without_keys(),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


if __name__ == "__main__":
    sys.stdin.buffer.read()
    Family(f"{RUN_MARK}={sys.argv[1]}").kill()
