"""A model that is still arriving: one growing file, whatever the source, always a prefix of it.

The hub resumes at any byte. Packages resume only where one ended, so those boundaries are kept in a
small JSON file beside it, written after the bytes are on the disk. When a package's bytes are
written over a longer prefix from the hub, nothing is cut off: they are the same bytes. A fetch
never needs more room than the model and one package, and repeats no package that is complete.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tfgrpo.local.model_list import LocalModel, LocalModelError, disk_full
from tfgrpo.store import atomic_write

CHUNK = 1 << 20
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


class Readable(Protocol):
    """What bytes are read from: an answer of the hub, a member of a wheel."""

    def read(self, count: int, /) -> bytes: ...


class Partial:
    """The bytes of `model` that have arrived in `folder`; survives the process. Only the holder of
    the model's lock may use it."""

    def __init__(self, model: LocalModel, folder: Path) -> None:
        self.model = model
        self.path = folder / f"{model.name}.gguf.partial"
        self.sidecar = folder / f"{model.name}.gguf.partial.json"
        self.ends: list[int] = []
        recorded = self._recorded()
        if recorded is None:  # nothing, or bytes of a model that has since been replaced
            self.discard()
        else:
            self.ends = [end for end in recorded if end <= self.length]

    @property
    def length(self) -> int:
        """How many bytes are here, from the model's first byte on."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def write(self, offset: int, source: Readable, moved: Callable[[int], None]) -> int:
        """Copy `source` to its end into the file from `offset` on; return where it ended. `moved`
        is called with the position after each chunk. Errors of `source` pass through. Raises
        LocalModelError when the disk is full or the source holds more than the model has."""
        if offset == 0 or not self.sidecar.exists():
            self._record()
        try:
            file = os.open(self.path, _FLAGS, 0o644)
        except OSError as error:
            raise self._failed(error) from error
        try:
            while chunk := source.read(CHUNK):
                if offset + len(chunk) > self.model.bytes:
                    raise LocalModelError(
                        f"the source holds more than the {self.model.bytes} bytes "
                        f"of {self.model.name}"
                    )
                offset = self._write_all(file, offset, chunk)
                moved(offset)
            os.fsync(file)
        finally:
            os.close(file)
        return offset

    def end_package(self, end: int) -> None:
        """Record that a package's bytes are complete up to `end`."""
        self.ends.append(end)
        self._record()

    def cut(self, end: int) -> None:
        """Drop what lies beyond `end`: it turned out to be damaged."""
        if self.length > end:
            os.truncate(self.path, end)

    def finish(self, target: Path) -> None:
        """Check size and SHA-256 and move the file to `target`. What is hashed is what is on the
        disk, in one pass, however many fetches it took. Raises LocalModelError, and deletes the
        file, when it is not the model."""
        with self.path.open("r+b") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        if self.length != self.model.bytes or digest != self.model.sha256:
            length = self.length
            self.discard()
            raise LocalModelError(
                f"what arrived is not {self.model.name}: {length} bytes with SHA-256 "
                f"{digest}, expected {self.model.bytes} bytes with "
                f"{self.model.sha256}; deleted it",
                hint="fetch again, or from the other source",
            )
        os.replace(self.path, target)
        self.discard()

    def discard(self) -> None:
        """Forget what has arrived."""
        self.path.unlink(missing_ok=True)
        self.sidecar.unlink(missing_ok=True)
        self.ends = []

    def _write_all(self, file: int, offset: int, chunk: bytes) -> int:
        view = memoryview(chunk)
        try:
            os.lseek(file, offset, os.SEEK_SET)
            while view:
                written = os.write(file, view)
                view = view[written:]
                offset += written
        except OSError as error:
            raise self._failed(error) from error
        return offset

    def _failed(self, error: OSError) -> LocalModelError:
        if error.errno in _FULL:
            return disk_full(self.path.parent)
        return LocalModelError(f"cannot write {self.path}: {error.strerror}")

    def _recorded(self) -> list[int] | None:
        try:
            content = json.loads(self.sidecar.read_text(encoding="utf-8"))
            if content["sha256"] != self.model.sha256:
                return None
            return [int(end) for end in content["ends"]]
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _record(self) -> None:
        content = json.dumps({"sha256": self.model.sha256, "ends": self.ends})
        try:
            atomic_write.write(self.sidecar, content, mode=atomic_write.SHARED)
        except OSError as error:
            raise self._failed(error) from error
