"""Where the weights lie: a folder in the user's cache, or the one that is asked for.

A cache, because everything in it can be fetched again; and outside any project, because
a gigabyte of weights is shared by all of them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tfgrpo.local.errors import LocalModelError
from tfgrpo.local.lock import locked
from tfgrpo.local.registry import LocalModel, find


def default_folder() -> Path:
    """The folder for weights in the user's cache. It may not exist yet."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("tfgrpo", appauthor=False)) / "models"


class ModelCache:
    """The weights in `folder`, the user's cache folder by default."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = default_folder() if folder is None else folder

    def path(self, model: LocalModel) -> Path:
        """Where `model` lies when it is here."""
        return self.folder / f"{model.name}.gguf"

    def has(self, model: LocalModel) -> bool:
        """Whether `model` is here, whole. A file gets its name only after its digest held."""
        path = self.path(model)
        return path.is_file() and path.stat().st_size == model.bytes

    def verify(self, model: LocalModel) -> bool:
        """Whether the file of `model` still has its SHA-256. Reads all of it."""
        if not self.has(model):
            return False
        with self.path(model).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == model.sha256

    def remove(self, name: str) -> int:
        """Delete the model called `name` and what an unfinished fetch left; return the bytes freed.

        Raises LocalModelError when there is nothing, or while another process fetches it.
        """
        model = find(name)
        freed = 0
        if self.folder.is_dir():
            with locked(self.folder / f"{model.name}.lock"):
                sidecar = self.folder / f"{model.name}.gguf.partial.json"
                for path in (self.path(model), self._partial(model), sidecar):
                    if path.is_file():
                        freed += path.stat().st_size
                        path.unlink()
        if not freed:
            raise LocalModelError(f"{model.name} is not in {self.folder}")
        return freed

    def _partial(self, model: LocalModel) -> Path:
        return self.folder / f"{model.name}.gguf.partial"
