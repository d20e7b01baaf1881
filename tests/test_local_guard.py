"""Who a local model answers to, and that its weights are those that were fetched."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfgrpo.local import cache
from tfgrpo.local.model_list import LocalModelError
from tfgrpo.local.model_server import LocalServer, ServerOptions

ENGINE = '''
"""A stand-in for the engine: it says what it was asked, and answers to its keys alone."""
import os, socket, threading

class CommonParams:
    def __init__(self):
        self.__dict__["model"] = type("Model", (), {})()
        for name in ("cpuparams", "cpuparams_batch"):
            self.__dict__[name] = type("Params", (), {})()

def answer(connection, keys):
    stream = connection.makefile("rb")
    while True:
        head = []
        while (line := stream.readline()) not in (b"\\r\\n", b""):
            head.append(line.decode().strip())
        if not head:
            return
        allowed = head[0].startswith("GET /health") or any(
            line == f"Authorization: Bearer {key}" for line in head for key in keys)
        body = "\\n".join(head).encode()
        connection.sendall(b"HTTP/1.1 %d X\\r\\nContent-Length: %d\\r\\n\\r\\n%s"
            % (200 if allowed else 401, len(body), body))

class Server:
    def __init__(self, params):
        (host,) = params.hostnames
        listener = socket.create_server((host, params.port))
        self.listening_address = "http://%s:%d" % listener.getsockname()
        def accept():
            while True:
                connection, _ = listener.accept()
                threading.Thread(
                    target=answer, args=(connection, params.api_keys), daemon=True).start()
        threading.Thread(target=accept, daemon=True).start()
'''


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "noise.gguf"
    path.write_bytes(b"weights, more or less")
    return path


@pytest.fixture
def server(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalServer]:
    """A server whose engine is a stand-in."""
    (tmp_path / "xllamacpp.py").write_text(ENGINE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = [sys.executable, "-P", "-m", "tfgrpo.local.model_process"]
    with LocalServer(weights, "noise", ServerOptions(command=command)) as running:
        yield running


def get(server: LocalServer, path: str, key: str | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=240)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


# The key:


def test_a_server_answers_to_its_key_alone(server: LocalServer) -> None:
    assert len(server.key) >= 32
    assert get(server, "/v1/models")[0] == 401
    assert get(server, "/v1/models", key="none")[0] == 401
    assert get(server, "/v1/models", key=server.key)[0] == 200


def test_the_key_is_new_at_every_start_and_in_nobodys_sight(
    server: LocalServer, weights: Path
) -> None:
    with LocalServer(
        weights,
        "noise",
        ServerOptions(command=[sys.executable, "-P", "-m", "tfgrpo.local.model_process"]),
    ) as other:
        assert other.key != server.key
        assert get(other, "/v1/models", key=server.key)[0] == 401
    if sys.platform == "linux":
        process = Path("/proc") / str(server.pid)
        for name in ("cmdline", "environ"):
            assert server.key.encode() not in (process / name).read_bytes()


# The weights:


def test_weights_that_were_changed_are_not_loaded(weights: Path) -> None:
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
    cache.check_weights(weights, "noise", sha256)
    before = weights.stat()
    weights.write_bytes(weights.read_bytes()[::-1])  # of the same size,
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))  # and as old
    for _ in range(2):
        with pytest.raises(LocalModelError, match="is not noise: it was changed") as wrong:
            LocalServer(weights, "local:noise", ServerOptions(sha256=sha256, command=["false"]))
        assert wrong.value.hint == "tfgrpo model rm noise, then tfgrpo model get noise"


def test_weights_are_read_once_and_again_when_they_are_others(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
    read: list[Path] = []

    def counted(path: Path) -> str:
        read.append(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    monkeypatch.setattr(cache, "_sha256", counted)
    for _ in range(3):
        cache.check_weights(weights, "noise", sha256)
    assert len(read) == 1
    os.utime(weights)
    cache.check_weights(weights, "noise", sha256)
    assert len(read) == 2
    for nonsense in ("", "[]", "[" * 100_000, '{"sha256": NaN}'):
        (weights.parent / "noise.gguf.checked.json").write_text(nonsense)
        cache.check_weights(weights, "noise", sha256)
    assert len(read) == 6
