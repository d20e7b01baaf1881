"""Where untrusted Python runs: in bubblewrap where that works, else in a confined subprocess.

Either way the interpreter confines itself first (`confine.py`), so bubblewrap is a second wall:
process, mount and network namespaces of its own. Without it the one wall is Landlock, seccomp
and resource limits, and where a system has not even these (macOS, an old kernel), nothing runs
unless it is asked for by name.

The environment is empty but for a few words that hold libraries to one thread, the folder is
a scratch one, and the process leads a group of its own, which is killed whole.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from tfgrpo.tools.tool import ToolError

Sandbox: TypeAlias = Literal["auto", "require", "off"]
"""auto: bubblewrap, else a confined subprocess. require: bubblewrap or nothing. off: limits alone
will do."""
SANDBOXES: tuple[Sandbox, ...] = get_args(Sandbox)

INTERPRETER = Path(__file__).with_name("interpreter.py")
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}


class SandboxError(ToolError):
    """Code cannot be run as safely as was asked for."""


def command(sandbox: Sandbox, scratch: Path, *, memory: int, file_size: int) -> list[str]:
    """Returns the command that starts an interpreter in a sandbox.

    `memory` and `file_size` are in bytes. Raises SandboxError when bubblewrap is required and
    does not work here.
    """
    required = "optional" if sandbox == "off" else "required"
    inner = [sys.executable, "-I", str(INTERPRETER), str(scratch)]
    inner += [str(memory), str(file_size), required]
    wrapper = bubblewrap()
    if wrapper is None:
        if sandbox == "require":
            raise SandboxError(
                "bubblewrap does not work here, and --sandbox require asks for it",
                hint="install `bwrap`, or use --sandbox auto for a confined subprocess",
            )
        return inner
    return [*wrapper, *_mounts(scratch), "--chdir", str(scratch), "--", *inner]


def strength(sandbox: Sandbox) -> str:
    """Returns in a few words what code will run in."""
    if bubblewrap() is not None:
        return "bubblewrap"
    return "a subprocess with limits alone" if sandbox == "off" else "a confined subprocess"


@cache
def bubblewrap() -> tuple[str, ...] | None:
    """Returns the beginning of a bubblewrap command that was seen to work here, or None."""
    path = shutil.which("bwrap")
    if path is None:
        return None
    start = [path, "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    for name, value in ENVIRONMENT.items():
        start += ["--setenv", name, value]
    try:
        tried = subprocess.run(
            [*start, *_mounts(None), "--", sys.executable, "-I", "-c", "pass"],
            capture_output=True,
            timeout=20,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return tuple(start) if tried.returncode == 0 else None


def _mounts(scratch: Path | None) -> list[str]:
    """Returns bubblewrap's arguments for what is seen inside: Python and the scratch folder."""
    seen = {"/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache", sys.prefix, sys.base_prefix}
    seen |= {os.path.dirname(os.__file__), str(INTERPRETER.parent)}
    seen |= {path for path in sys.path if path.rstrip("/").endswith("-packages")}
    mounts = ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for path in sorted(seen):
        mounts += ["--ro-bind-try", path, path]
    if scratch is not None:
        mounts += ["--bind", str(scratch), str(scratch)]
    return mounts
