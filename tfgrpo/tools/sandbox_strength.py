"""What holds sandboxed code on this machine, kept in the user's cache until a restart, or until
bubblewrap, Python, the interpreter or the user is another."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tfgrpo.store import atomic_write
from tfgrpo.tools.sandbox import INTERPRETER, Strength, strength

FILE = "sandbox.json"


def known_strength() -> Strength:
    """What `strength("off")` does, from the cache where it is known."""
    path, conditions = _path(), _conditions()
    with suppress(OSError, ValueError, KeyError, TypeError):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        if recorded["conditions"] == conditions and recorded["level"] in (
            "bubblewrap",
            "kernel walls",
        ):
            lacks, threads = tuple(map(str, recorded["lacks"])), str(recorded["threads"])
            return Strength(recorded["level"], lacks, threads)
    fresh = strength("off")
    if fresh.level != "none":  # what is missing may have been put right by the next time
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            record = {"conditions": conditions, **asdict(fresh)}
            atomic_write.write(path, json.dumps(record))
    return fresh


def _path() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("tfgrpo", appauthor=False)) / FILE


def _conditions() -> list[str]:
    bwrap = shutil.which("bwrap") or ""
    files = (bwrap, str(INTERPRETER), str(INTERPRETER.with_name("confine.py")), sys.executable)
    boot = Path("/proc/sys/kernel/random/boot_id")
    user = os.geteuid() if hasattr(os, "geteuid") else -1
    return [
        platform.release(),
        boot.read_text().strip() if boot.exists() else "",
        str(user),
        *(f"{file} {_changed(file)}" for file in files),
    ]


def _changed(file: str) -> int:
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return 0
