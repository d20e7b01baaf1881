"""What figures were measured on, in words: nothing that says whose machine it is."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> str:
    """Returns the processor, its cores, the system and the Python."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(": ")[2] for line in lines if line.startswith("model name"))
    processor = next(named, platform.processor() or platform.machine())
    system = f"{platform.system()} {platform.machine()}"
    return f"{processor}, {os.cpu_count()} cores, {system}, Python {platform.python_version()}"


def busy_machine() -> str:
    """Returns the machine and how busy it is now."""
    return f"{machine()}, load {os.getloadavg()[0]:.1f}"
