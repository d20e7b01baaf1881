"""Serving a local model: it is ready or there is a reason, and no child stays behind.

Most tests put a tiny stand-in in the engine's place: it takes the same options, ends
with its parent by the same code, and says the same line when it listens. The tests
marked `model` run the real engine with real weights.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from tfgrpo.local.model_list import LocalModelError
from tfgrpo.local.model_server import LocalServer, ServerOptions, available_cpus, serve_forever

STAND_IN = """
import json, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from tfgrpo.local import model_process as child

kind = sys.argv[1]
options = child.arguments(sys.argv[2:])
child.end_with_parent(options.parent)
print("first words of the log", file=sys.stderr, flush=True)
if kind == "dies":
    sys.exit("the weights are unreadable")
born = time.monotonic()

class Handler(BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass

    def do_GET(self):
        loading = kind == "never ready" or kind == "loads" and time.monotonic() - born < 0.5
        body = json.dumps(vars(options)).encode()
        self.send_response(503 if loading else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
print(json.dumps({"port": server.server_address[1]}), flush=True)
server.serve_forever()
"""

posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


@pytest.fixture(autouse=True)
def logs_stay_in_the_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed start keeps its log, in a temporary folder; here that is the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "noise.gguf"
    path.write_bytes(b"not weights at all")
    return path


@pytest.fixture
def stand_in(tmp_path: Path) -> Callable[[str], list[str]]:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    return lambda kind: [sys.executable, "-P", str(script), kind]


def alive(pid: int) -> bool:
    """Whether a process still runs; one that has ended but was not reaped does not."""
    try:
        state = subprocess.run(
            ["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False
        ).stdout.strip()
    except FileNotFoundError:
        pytest.skip("no ps here")
    return bool(state) and not state.startswith("Z")


def get(port: int, path: str = "/health") -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=240)
    connection.request("GET", path)
    return json.loads(connection.getresponse().read())


def run_parent(program: str, *arguments: object) -> subprocess.Popen[str]:
    """A parent of its own, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_it_is_ready_when_it_returns_and_gone_when_stopped(
    weights: Path, stand_in: Callable[[str], list[str]]
) -> None:
    options = ServerOptions(n_parallel=3, context=77, command=stand_in("ok"))
    with LocalServer(weights, "noise", options) as server:
        assert server.base_url == f"http://127.0.0.1:{server.port}/v1"
        assert server.running
        options = get(server.port)
        assert (options["model"], options["alias"]) == (str(weights), server.model)
        assert (options["slots"], options["context"]) == (3, 77)
        assert options["threads"] == available_cpus() >= 1
    assert server.wait() >= 0, "it heard the pipe close, nobody had to be killed"
    assert not server.running
    assert not alive(server.pid)
    server.stop()


def test_a_model_that_is_still_loading_is_waited_for(
    weights: Path, stand_in: Callable[[str], list[str]]
) -> None:
    began = time.monotonic()
    with LocalServer(weights, "noise", ServerOptions(command=stand_in("loads"))):
        assert time.monotonic() - began >= 0.5


def test_nothing_of_the_child_reaches_the_terminal(
    weights: Path, stand_in: Callable[[str], list[str]], capfd: pytest.CaptureFixture[str]
) -> None:
    with LocalServer(weights, "noise", ServerOptions(command=stand_in("ok"))):
        pass
    assert capfd.readouterr() == ("", "")


def test_a_child_that_dies_is_an_error_with_the_end_of_its_log(
    weights: Path, stand_in: Callable[[str], list[str]], tmp_path: Path
) -> None:
    with pytest.raises(LocalModelError, match="the weights are unreadable") as caught:
        LocalServer(weights, "noise", ServerOptions(command=stand_in("dies")))
    (log,) = tmp_path.glob("tfgrpo-noise-*.log")
    assert str(log) in str(caught.value.hint)
    assert log.read_text().startswith("first words")
    assert "ended with code 1" in str(caught.value)


def test_a_child_that_never_gets_ready_is_an_error_and_is_ended(
    weights: Path, stand_in: Callable[[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    spawn = subprocess.Popen

    class Spy(spawn):  # type: ignore[misc, type-arg, valid-type]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self.pid)

    monkeypatch.setattr(subprocess, "Popen", Spy)
    options = ServerOptions(ready_timeout=4.0, command=stand_in("never ready"))
    with pytest.raises(LocalModelError, match=r"not ready after 4 s:\nfirst words"):
        LocalServer(weights, "noise", options)
    assert started
    assert not alive(started[0])


def test_missing_weights_and_a_missing_engine_say_what_to_do(
    tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LocalModelError, match="no weights") as caught:
        LocalServer(tmp_path / "absent.gguf", "noise")
    assert caught.value.hint == "tfgrpo model get noise"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(LocalModelError, match="not installed") as caught:
        LocalServer(weights, "noise")
    assert caught.value.hint == "pip install 'xllamacpp>=0.2'"


PARENT = """
import json, os, sys, time
from pathlib import Path
from tfgrpo.local.model_server import LocalServer, ServerOptions
weights, kind, *command = sys.argv[1:]
server = LocalServer(Path(weights), "noise", ServerOptions(command=command or None))
sibling = os.fork() if kind == "forks" else 0
if kind == "forks" and sibling == 0:
    time.sleep(30)
    os._exit(0)
try:
    print(json.dumps([server.pid, server.port, sibling]), flush=True)
    time.sleep(30)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    time.sleep(30)
"""


@posix
@pytest.mark.parametrize("kind", ["alone", "forks"])
def test_a_parent_killed_by_minus_nine_leaves_no_child(
    kind: str, weights: Path, stand_in: Callable[[str], list[str]]
) -> None:
    # A forked sibling keeps the pipe to the child open, as a pool of workers would.
    parent = run_parent(PARENT, weights, kind, *stand_in("ok"))
    assert parent.stdout is not None
    pid, _, sibling = json.loads(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.wait()
    try:
        until(lambda: not alive(pid))
    finally:
        if sibling:
            os.kill(sibling, signal.SIGKILL)
    parent.stdout.close()


@posix
def test_ctrl_c_reaches_the_parent_and_not_the_child(
    weights: Path, stand_in: Callable[[str], list[str]]
) -> None:
    parent = run_parent(PARENT, weights, "alone", *stand_in("ok"))
    assert parent.stdout is not None
    pid, port, _ = json.loads(parent.stdout.readline())
    os.killpg(parent.pid, signal.SIGINT)
    assert parent.stdout.readline() == "interrupted\n"
    assert os.getpgid(pid) != parent.pid, "which is whom it was sent to"
    assert get(port)["alias"] == "noise"
    assert alive(pid)
    parent.kill()
    parent.communicate()
    until(lambda: not alive(pid))


@posix
def test_serving_in_the_foreground_ends_with_ctrl_c_and_with_the_child(
    weights: Path, stand_in: Callable[[str], list[str]]
) -> None:
    program = """
import os, signal, sys
from pathlib import Path
from tfgrpo.local.model_server import ServerOptions, serve_forever
def ready(server):
    print(server.pid, flush=True)
    os.kill(os.getpid() if sys.argv[2] == "ctrl-c" else server.pid, signal.SIGINT)
sys.exit(serve_forever(Path(sys.argv[1]), "noise", ready, ServerOptions(command=sys.argv[3:])))
"""
    parent = run_parent(program, weights, "ctrl-c", *stand_in("ok"))
    out, _ = parent.communicate(timeout=120)
    assert parent.returncode == 0
    assert not alive(int(out))
    parent = run_parent(program, weights, "child", *stand_in("ok"))
    parent.communicate(timeout=120)
    assert parent.returncode != 0


def test_the_real_engine_refuses_what_is_not_a_model_with_its_own_words(weights: Path) -> None:
    pytest.importorskip("xllamacpp")
    with pytest.raises(LocalModelError, match="before it was ready") as caught:
        LocalServer(weights, "noise")
    assert "failed to load model" in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_taken_port_is_named(weights: Path, stand_in: Callable[[str], list[str]]) -> None:
    pytest.importorskip("xllamacpp")
    with (
        LocalServer(weights, "noise", ServerOptions(command=stand_in("ok"))) as first,
        pytest.raises(LocalModelError, match=f"port {first.port} is taken"),
    ):
        serve_forever(weights, "noise", options=ServerOptions(port=first.port))


@pytest.fixture(scope="module")
def smallest() -> Path:
    from tfgrpo.local.cache import ModelCache
    from tfgrpo.local.fetch import fetch
    from tfgrpo.local.model_list import find

    named = os.environ.get("TFGRPO_MODELS")
    return fetch(find("smollm2-135m"), ModelCache(Path(named) if named else None).folder)


@pytest.mark.model
def test_a_real_model_answers_an_openai_client_also_under_a_schema(smallest: Path) -> None:
    pytest.importorskip("xllamacpp")
    from openai import OpenAI

    schema = {
        "type": "object",
        "properties": {"verdict": {"enum": ["new", "same"]}, "sum": {"type": "integer"}},
        "required": ["verdict", "sum"],
        "additionalProperties": False,
    }
    with LocalServer(smallest, "smollm2-135m", ServerOptions(n_parallel=2, context=1024)) as server:
        os.kill(server.pid, signal.SIGINT)
        client = OpenAI(base_url=server.base_url, api_key=server.key, max_retries=0)
        plain = client.chat.completions.create(
            model=server.model,
            messages=[{"role": "user", "content": "Say hello."}],
            max_tokens=16,
        )
        assert plain.model == "smollm2-135m"
        assert plain.choices[0].message.content
        assert plain.usage is not None
        assert plain.usage.completion_tokens > 0
        strict = client.chat.completions.create(
            model=server.model,
            messages=[{"role": "user", "content": "Judge: 2 + 2"}],
            max_tokens=60,
            temperature=0,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "verdict", "schema": schema, "strict": True},
            },
        )
        answer = json.loads(strict.choices[0].message.content or "")
        assert answer["verdict"] in {"new", "same"}
        assert isinstance(answer["sum"], int)
    assert not alive(server.pid)


@pytest.mark.model
@posix
def test_a_real_engine_ends_with_a_parent_killed_by_minus_nine(smallest: Path) -> None:
    pytest.importorskip("xllamacpp")
    parent = run_parent(PARENT, smallest, "alone")
    assert parent.stdout is not None
    pid, _, _ = json.loads(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    until(lambda: not alive(pid))
