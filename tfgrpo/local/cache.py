"""Where the weights lie: a folder in the user's cache, or the one that is asked for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tfgrpo.local.model_list import LocalModel, LocalModelError, find
from tfgrpo.store import atomic_write
from tfgrpo.store.process_lock import held

_POLL_SECONDS = 0.1


@contextmanager
def locked(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path` for the block. Meanwhile call `waiting` ten times a second, or
    raise LocalModelError without it. Raises StoreError where there can be no file."""
    while True:
        with held(path, patience=0 if waiting is None else _POLL_SECONDS) as free:
            if free:
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        if waiting is None:
            raise LocalModelError(
                f"another process is working on {path.with_suffix('').name}",
                hint="wait for it to finish, or stop it, then try again",
            )
        waiting()


class ModelCache:
    """The weights in `folder`, the user's cache folder by default."""

    def __init__(self, folder: Path | None = None) -> None:
        if folder is None:
            import platformdirs

            folder = Path(platformdirs.user_cache_dir("tfgrpo", appauthor=False)) / "models"
        self.folder = folder

    def path(self, model: LocalModel) -> Path:
        """Where `model` lies when it is here."""
        return self.folder / f"{model.name}.gguf"

    def has(self, model: LocalModel) -> bool:
        """Whether `model` is here, whole. A file gets its name only after its digest held."""
        path = self.path(model)
        return path.is_file() and path.stat().st_size == model.bytes

    def remove(self, name: str) -> int:
        """Delete the model called `name` and what an unfinished fetch left; return the bytes freed.
        Raises LocalModelError when there is nothing, or while another process fetches it."""
        model = find(name)
        freed = 0
        if self.folder.is_dir():
            with locked(self.folder / f"{model.name}.lock"):
                whole = self.path(model)
                partial = [whole.with_name(f"{whole.name}.partial{end}") for end in ("", ".json")]
                for path in (whole, *partial, _record(whole)):
                    if path.is_file():
                        freed += path.stat().st_size
                        path.unlink()
        if not freed:
            raise LocalModelError(f"{model.name} is not in {self.folder}")
        return freed


def check_weights(path: Path, model: str, sha256: str) -> None:
    """Raise LocalModelError when a file of weights does not have that SHA-256."""
    if not is_whole(path, sha256):
        name = model.removeprefix("local:")
        raise LocalModelError(
            f"{path} is not {name}: it was changed since it was fetched",
            hint=f"tfgrpo model rm {name}, then tfgrpo model get {name}",
        )


def is_whole(path: Path, sha256: str) -> bool:
    """Whether a file has that SHA-256. It is read again only when its size or times have changed.
    Raises FileNotFoundError."""
    record = _record(path)
    status = path.stat()
    fingerprint = {
        "sha256": sha256,
        "bytes": status.st_size,
        "modified": status.st_mtime_ns,
        "changed": status.st_ctime_ns,
    }
    try:
        if json.loads(record.read_bytes()) == fingerprint:
            return True
    except (OSError, ValueError, RecursionError):
        pass  # nobody has checked it, or what was kept cannot be read
    if _sha256(path) != sha256:
        return False
    with suppress(OSError):  # a folder that cannot be written to is checked again next time
        atomic_write.write(record, json.dumps(fingerprint))
    return True


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.checked.json")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
