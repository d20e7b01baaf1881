"""What sandboxed code may take: memory, seconds, output and files."""

from __future__ import annotations

from dataclasses import dataclass


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
