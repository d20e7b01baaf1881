"""What can go wrong with a local model, told with a way out where there is one."""

from __future__ import annotations

from pathlib import Path

from tfgrpo.store.errors import TfgrpoError


class LocalModelError(TfgrpoError):
    """A local model cannot be found, fetched, stored or served."""


class SourceUnavailable(LocalModelError):
    """One source of weights does not answer or does not have them; another one may."""


def disk_full(folder: Path, missing: int | None = None) -> LocalModelError:
    """The error for a disk without room; `missing` is how many bytes short it is, if known."""
    short = "" if missing is None else f" ({megabytes(missing)} short)"
    return LocalModelError(
        f"not enough disk space for the model in {folder}{short}",
        hint="free some space, or set TFGRPO_MODELS to a folder on another disk; "
        "the partial download is kept and will be resumed",
    )


def megabytes(count: int) -> str:
    """Bytes as people read them, in decimal units: 491400064 is '491 MB'."""
    return f"{count / 1e6:.0f} MB" if count >= 1_000_000 else f"{count / 1e3:.0f} kB"
