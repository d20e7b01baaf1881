"""What every store that is measured can be asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from benchmarks.workload import Change


class Peer(Protocol):
    """A store in a folder of its own, in a process of its own (`worker.py`).

    Version n is the library after n batches. What a store cannot do raises NotImplementedError.
    """

    def __init__(self, folder: Path) -> None: ...

    def build(self, count: int, live: int | None) -> None:
        """Appends the workload in its batches, as fast as the store can; then settles."""

    def prepared(self, changes: Sequence[Change]) -> Any:
        """Returns changes in the store's own form, so that only the append is timed."""

    def append(self, prepared: Any) -> None:
        """Appends one durable version."""

    def checkout(self, version: int) -> int:
        """Reads the library at a version; returns how many experiences it has."""

    def diff(self, a: int, b: int) -> int:
        """Compares two versions; returns how many experiences differ."""

    def log(self) -> None:
        """Reads the newest entry of the log."""

    def history(self, key: str) -> int:
        """Reads one experience's whole life; returns how many events or versions it had."""

    def blame(self) -> int:
        """Finds who last shaped each experience of the newest library; returns how many."""

    def check(self) -> None:
        """Verifies all that the store can verify. Raises when something is wrong."""

    def size(self) -> int:
        """Returns how many bytes lie on the disk."""
