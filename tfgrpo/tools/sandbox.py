"""Where untrusted Python runs: in bubblewrap where that works, else behind the kernel's walls.

Either way the interpreter confines itself first (`confine.py`); bubblewrap is a second wall. Where
a system has neither, nothing runs unless it is asked for by name. The environment is nearly empty,
the folder a scratch one, and the process leads a group that is killed whole.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from threading import Timer
from typing import IO, Literal, TypeAlias

from tfgrpo.store import atomic_write, child_processes
from tfgrpo.tools.confine import DEVICES, ConfinementGaps, Plan, python_files
from tfgrpo.tools.session_bounds import make_scratch, open_group, remove_scratch
from tfgrpo.tools.tool import ToolError

Sandbox: TypeAlias = Literal["auto", "require", "off"]
"""auto: bubblewrap, else the kernel's walls. require: bubblewrap or nothing. off: whatever there
is."""
Level: TypeAlias = Literal["bubblewrap", "kernel walls", "none"]

INTERPRETER = Path(__file__).with_name("interpreter.py")
ENVIRONMENT = {
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MPLBACKEND": "Agg",
}
PROBE = "import os, sys; print('sandbox', os.getpid() < 10, os.path.exists(sys.argv[1]))"
PROBE_OUTPUT = b"sandbox True False\n"
PROBE_SECONDS = 10.0
UID_FOR_ROOT = 1000
"""Who root is inside bubblewrap: no kernel lets root make a user namespace within one."""


@dataclass(frozen=True, slots=True)
class PythonLimits:
    """What one session may take. Seconds a call; bytes of memory, of output, of one file and of all
    files; and how many files and folders."""

    seconds: float = 10.0
    memory: int = 1 << 30
    output: int = 16_000
    file_size: int = 16 << 20
    files: int = 64 << 20
    entries: int = 10_000


class SandboxError(ToolError):
    """Code cannot be run as safely as was asked for."""


@dataclass(frozen=True, slots=True)
class Strength:
    """What code runs in, and what this system lacks of it, in words."""

    level: Level
    lacks: tuple[str, ...] = ()
    threads: str = ""

    def __str__(self) -> str:
        if self.level == "none":
            return f"no sandbox (no hold on {', '.join(self.lacks)})"
        bound = f"; threads are {self.threads}" if self.threads else ""
        return self.level + "".join(f"; without {what}" for what in self.lacks) + bound


def command(sandbox: Sandbox, scratch: Path, limits: PythonLimits, proc: int) -> list[str]:
    """The command that starts an interpreter in a sandbox; it inherits `proc` (`open_proc`). Raises
    SandboxError when bubblewrap is required and does not work here."""
    scratch = scratch.resolve()
    wrapper = _wrapper(sandbox)
    paths, links = _visible_paths()
    sizes = (limits.memory, limits.file_size, limits.files, limits.entries)
    plan = Plan(str(scratch), *sizes, proc, paths, links)
    if wrapper is not None:
        plan = plan._replace(visible=[], links={})
    inner = child_processes.isolated_python(str(INTERPRETER), json.dumps(plan._asdict()))
    inner.append("optional" if sandbox == "off" else "required")
    return inner if wrapper is None else [*wrapper, *_mount_arguments(scratch), "--", *inner]


@contextmanager
def open_proc() -> Iterator[tuple[int, ...]]:
    """Yields a descriptor of /proc for a sandbox to write its own entries by; none without one."""
    try:
        handle = os.open("/proc", os.O_RDONLY)
    except OSError:
        yield ()
        return
    try:
        yield (handle,)
    finally:
        os.close(handle)


def read_confinement(line: bytes) -> ConfinementGaps:
    """Reads the first line of an interpreter. Raises ValueError when it is none."""
    try:
        first = json.loads(line)
        missing, lacks = list(first["missing"]), list(first["lacks"])
        threads = bool(first.get("threads"))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("not the first line of an interpreter") from None
    if not all(isinstance(word, str) for word in (*missing, *lacks)):
        raise ValueError("not the first line of an interpreter")
    return ConfinementGaps(missing, lacks, threads)


def refuse_holes(confinement: ConfinementGaps, sandbox: Sandbox) -> None:
    """Raises SandboxError for a wall with a hole in it, unless that was asked for."""
    if confinement.missing and sandbox != "off":
        raise SandboxError(
            "code cannot be confined on this system: no hold on " + ", ".join(confinement.missing),
            hint="run where Linux has Landlock and seccomp, or with --sandbox off at your own risk",
        )


def strength(sandbox: Sandbox) -> Strength:
    """Starts an interpreter that runs nothing, and returns what held it. Raises SandboxError as
    `command` does, and where code would be refused."""
    scratch = make_scratch()
    try:
        with open_proc() as inherited:
            proc = inherited[0] if inherited else -1
            start = command(sandbox, scratch, PythonLimits(), proc)
            with _running(start, inherited) as output:
                confinement = read_confinement(output.readline(1 << 16))
    except (OSError, ValueError):
        confinement = ConfinementGaps(["a start"], [], False)
    finally:
        remove_scratch(scratch)
    refuse_holes(confinement, sandbox)
    wrapped = _wrapper(sandbox) is not None
    if confinement.missing and not wrapped:
        return Strength("none", tuple(confinement.missing))
    lacks = (*(f"a hold on {what}" for what in confinement.missing), *confinement.lacks)
    return Strength("bubblewrap" if wrapped else "kernel walls", lacks, _thread_words(confinement))


def _thread_words(confinement: ConfinementGaps) -> str:
    group = open_group()
    if group is not None:
        group.close()
        return "bounded by a cgroup"
    return "bounded by RLIMIT_NPROC" if confinement.threads else "counted while code runs"


def _wrapper(sandbox: Sandbox) -> tuple[str, ...] | None:
    wrapper = bubblewrap()
    if wrapper is None and sandbox == "require":
        program = shutil.which("bwrap")
        raise SandboxError(
            "--sandbox require needs bubblewrap, which does not work here",
            hint=(f"fix {program}, which does not start," if program else "install `bwrap`,")
            + " or use --sandbox auto for the kernel's walls alone",
        )
    return wrapper


@cache
def bubblewrap() -> tuple[str, ...] | None:
    """The beginning of a bubblewrap command in which Python was seen to start here, alone and
    without sight of a file outside; None where that fails."""
    path = shutil.which("bwrap")
    if path is None:
        return None
    # No --new-session: that would leave the process group that is stopped and killed whole.
    start = [path, "--unshare-all", "--die-with-parent", "--hostname", "sandbox"]
    start += ["--cap-drop", "ALL", "--clearenv"]
    if not os.getuid():
        start += ["--unshare-user", "--uid", str(UID_FOR_ROOT), "--gid", str(UID_FOR_ROOT)]
    for name, value in ENVIRONMENT.items():
        start += ["--setenv", name, value]
    with tempfile.NamedTemporaryFile() as outside:
        inner = child_processes.isolated_python("-c", PROBE, outside.name)
        try:
            with _running([*start, *_mount_arguments(None), "--", *inner], ()) as output:
                printed = output.read(len(PROBE_OUTPUT) + 1)
        except OSError:
            return None
    return tuple(start) if printed == PROBE_OUTPUT else None


@contextmanager
def _running(command: list[str], inherited: tuple[int, ...]) -> Iterator[IO[bytes]]:
    """Runs a command with nothing to read, and yields its output; kills it, and all it started, at
    the end."""
    with child_processes.start(
        command,
        ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        pass_fds=inherited,
        start_new_session=True,
    ) as process:
        late = Timer(PROBE_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        late.start()
        try:
            assert process.stdout is not None
            yield process.stdout
        finally:
            late.cancel()
            late.join()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _mount_arguments(scratch: Path | None) -> list[str]:
    paths, links = _visible_paths()
    arguments: list[str] = []
    for path in paths:
        arguments += ["--dev-bind" if path in DEVICES else "--ro-bind", path, path]
    for link, target in links.items():
        arguments += ["--symlink", target, link]
    if scratch is not None:
        arguments += ["--bind", str(scratch), str(scratch)]
    return [*arguments, "--remount-ro", "/"]


def _visible_paths() -> tuple[list[str], dict[str, str]]:
    """What a root is made of: the real paths that Python needs, and links that lead there."""
    config = os.path.join(sys.prefix, "pyvenv.cfg")
    sources = [sys.executable, config, str(INTERPRETER.parent), "/etc/alternatives"]
    followed = [_follow_links(path) for path in (*sources, *python_files()) if os.path.exists(path)]
    links = {link: target for _, passed in followed for link, target in passed.items()}
    paths: list[str] = []
    for path in sorted(real for real, _ in followed):
        if not _is_inside(path, paths):
            paths.append(path)
    return paths, {link: links[link] for link in sorted(links) if not _is_inside(link, paths)}


def _follow_links(path: str) -> tuple[str, dict[str, str]]:
    """The real path of what exists, and every link passed on the way with its target."""
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


def _is_inside(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def known_strength() -> Strength:
    """What `strength("off")` does, from the user's cache where it is known: until a restart, or
    until bubblewrap, Python, the interpreter or the user is another."""
    import platformdirs

    path = Path(platformdirs.user_cache_dir("tfgrpo", appauthor=False)) / "sandbox.json"
    conditions = _conditions()
    with suppress(OSError, ValueError, KeyError, TypeError):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        level, lacks = recorded["level"], tuple(map(str, recorded["lacks"]))
        if recorded["conditions"] == conditions and level in ("bubblewrap", "kernel walls"):
            return Strength(level, lacks, str(recorded["threads"]))
    fresh = strength("off")
    if fresh.level != "none":  # what is missing may have been put right by the next time
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            record = {"conditions": conditions, **asdict(fresh)}
            atomic_write.write(path, json.dumps(record))
    return fresh


def _conditions() -> list[str]:
    bwrap = shutil.which("bwrap") or ""
    files = (bwrap, str(INTERPRETER), str(INTERPRETER.with_name("confine.py")), sys.executable)
    changes = [f"{file} {os.stat(file).st_mtime_ns}" for file in files if os.path.exists(file)]
    boot = Path("/proc/sys/kernel/random/boot_id")
    machine = [platform.release(), boot.read_text() if boot.exists() else ""]
    return [*machine, str(os.geteuid()), *changes]
