"""What of a budget is set aside or on no record, in a file: what a process that was killed had in
flight may be on the bill, and counts as spent for whoever goes on."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tfgrpo.store.errors import StoreError, advice

WIDTH = 40
"""Bytes of the file: one write takes the place of the other, whole."""


class AmountOnDisk:
    """The amount in the file at `path`, in whole units called `unit`; no file is none."""

    def __init__(self, path: Path, unit: str) -> None:
        self._path = path.with_name(f"{path.name}-{unit}")
        self._file: int | None = None

    def read(self) -> int:
        """The amount that was written last. Raises StoreError."""
        try:
            return int(self._path.read_text())
        except FileNotFoundError:
            return 0
        except (OSError, ValueError) as error:
            raise StoreError(
                f"cannot read {self._path}: {error}",
                hint="it has what calls that were cut off may have cost; remove it to forget that",
            ) from error

    def write(self, amount: int) -> None:
        """Keeps an amount, which outlives this process from now on. Raises StoreError."""
        try:
            if self._file is None:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
                self._file = os.open(self._path, flags, 0o600)
            os.pwrite(self._file, str(amount).ljust(WIDTH).encode(), 0)
        except OSError as error:
            raise StoreError(
                f"cannot write {self._path}: {error.strerror}", hint=advice(error)
            ) from error
        if amount == 0:
            os.close(self._file)
            self._file = None
            with suppress(OSError):  # says nothing that its absence does not
                self._path.unlink()
