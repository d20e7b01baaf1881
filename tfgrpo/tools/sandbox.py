"""Where untrusted Python runs: in bubblewrap where that works, else in a confined subprocess.

Either way the interpreter confines itself first (`confine.py`), so bubblewrap is a second wall:
process, mount and network namespaces of its own, in which no more is seen than the inner wall
leaves to read. Without it the one wall is Landlock, seccomp
and resource limits, and where a system has not even these (macOS, an old kernel), nothing runs
unless it is asked for by name.

The environment is empty but for a few words that hold libraries to one thread, the folder is
a scratch one, and the process leads a group of its own, which is killed whole.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from threading import Timer
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
PROBE = "import os, sys; print('sandbox', os.getpid() < 10, os.path.exists(sys.argv[1]))"
SEEN = b"sandbox True False\n"
PROBE_SECONDS = 10.0


class SandboxError(ToolError):
    """Code cannot be run as safely as was asked for."""


def command(sandbox: Sandbox, scratch: Path, *, memory: int, file_size: int) -> list[str]:
    """Returns the command that starts an interpreter in a sandbox.

    `memory` and `file_size` are in bytes. Raises SandboxError when bubblewrap is required and
    does not work here.
    """
    scratch = scratch.resolve()
    required = "optional" if sandbox == "off" else "required"
    inner = [sys.executable, "-I", str(INTERPRETER), str(scratch)]
    inner += [str(memory), str(file_size), required]
    wrapper = _wrapper(sandbox)
    return inner if wrapper is None else [*wrapper, *_mounts(scratch), "--", *inner]


def strength(sandbox: Sandbox) -> str:
    """Returns in a few words what code will run in. Raises SandboxError as `command` does."""
    if _wrapper(sandbox) is not None:
        return "bubblewrap"
    return "a subprocess with limits alone" if sandbox == "off" else "a confined subprocess"


def _wrapper(sandbox: Sandbox) -> tuple[str, ...] | None:
    wrapper = bubblewrap()
    if wrapper is None and sandbox == "require":
        found = shutil.which("bwrap")
        raise SandboxError(
            "--sandbox require needs bubblewrap, which does not work here",
            hint=(f"fix {found}, which does not start," if found else "install `bwrap`,")
            + " or use --sandbox auto for a confined subprocess",
        )
    return wrapper


@cache
def bubblewrap() -> tuple[str, ...] | None:
    """Returns the beginning of a bubblewrap command that was seen to work here, or None.

    Seen to work means that Python started in it, alone in a process namespace and without sight
    of a file outside, and that nothing else was printed.
    """
    path = shutil.which("bwrap")
    if path is None:
        return None
    # No --new-session: that would leave the process group that is stopped and killed whole.
    start = [path, "--unshare-all", "--die-with-parent", "--hostname", "sandbox"]
    start += ["--cap-drop", "ALL", "--clearenv"]
    for name, value in ENVIRONMENT.items():
        start += ["--setenv", name, value]
    with tempfile.NamedTemporaryFile() as outside:
        inner = [sys.executable, "-I", "-c", PROBE, outside.name]
        try:
            said = _said([*start, *_mounts(None), "--", *inner])
        except OSError:
            return None
    return tuple(start) if said == SEEN else None


def _said(command: list[str]) -> bytes:
    """Returns the beginning of what a command prints, in its time. Raises OSError."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=ENVIRONMENT,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        late = Timer(PROBE_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        said = process.stdout.read(len(SEEN) + 1)
        late.cancel()
        late.join()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return said


def _mounts(scratch: Path | None) -> list[str]:
    """Returns bubblewrap's arguments for what is seen inside, beside a root that is read-only.

    That is what the inner wall leaves to read, what it takes to start Python, and the scratch
    folder: everything under its real path, with the symbolic links that lead there.
    """
    from tfgrpo.tools.confine import DEVICES, python_files

    config = os.path.join(sys.prefix, "pyvenv.cfg")
    wanted = [sys.executable, config, str(INTERPRETER.parent), "/etc/alternatives"]
    followed = [_followed(path) for path in (*wanted, *python_files()) if os.path.exists(path)]
    links = {link: target for _, passed in followed for link, target in passed.items()}
    mounted: list[str] = []
    arguments: list[str] = []
    for path in sorted(real for real, _ in followed):
        if not _inside(path, mounted):
            mounted.append(path)
            arguments += ["--dev-bind" if path in DEVICES else "--ro-bind", path, path]
    for link, target in sorted(links.items()):
        if not _inside(link, mounted):
            arguments += ["--symlink", target, link]
    if scratch is not None:
        arguments += ["--bind", str(scratch), str(scratch)]
    return [*arguments, "--remount-ro", "/"]


def _followed(path: str) -> tuple[str, dict[str, str]]:
    """Returns the real path of what exists, and every link passed on the way with its target."""
    links: dict[str, str] = {}
    real, rest = "/", path.split("/")[::-1]
    while rest:
        here = os.path.normpath(os.path.join(real, rest.pop()))
        if os.path.islink(here):
            links[here] = os.readlink(here)
            rest += links[here].split("/")[::-1]
            real = "/" if links[here].startswith("/") else real
        else:
            real = here
    return real, links


def _inside(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)
