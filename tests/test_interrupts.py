"""That the tests of Ctrl-C mean what they say however the suite itself is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHILD = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
SUITE = f"""
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as nohup, a shell's background and some CI do
import conftest
signal.raise_signal(signal.SIGINT)
print(subprocess.check_output([sys.executable, "-c", {CHILD!r}], text=True))
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_suite_that_ignores_ctrl_c_starts_children_that_do_not() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SUITE],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.strip() == "True", ran.stdout + ran.stderr
