"""A model on this machine behind an OpenAI-compatible address on loopback, served by a child
process (`model_process`). Each slot has its own context, so that a long answer never costs another
one its room; a request that does not fit is refused with an error and not cut.

A prompt's prefix is reused by the slot that has seen it, and by no other. Eight requests with one
prompt, sent at once, therefore compute it eight times; one request with `n=8` computes it once
(10 s instead of 33 s for 300 tokens of prompt and 40 of answer, 0.5B on two busy cores). `n` may
not exceed `n_parallel`, and the engine's `usage` then counts the tokens of the first answer alone.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from tfgrpo.local.cache import check_weights
from tfgrpo.local.model_list import LocalModelError
from tfgrpo.store import child_processes
from tfgrpo.store.errors import install_hint

_HOST = "127.0.0.1"
_POLL_SECONDS = 0.05
_STOP_SECONDS = 5.0
_LOG_LINES = 8


def available_cpus() -> int:
    """How many CPUs this process may use: its affinity, and its control group's quota."""
    if sys.platform == "linux":
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        count = min(count, max(1, int(quota) // int(period)))
    except (OSError, ValueError):  # no control groups, or no quota ("max")
        pass
    return count


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a local model is served: `n_parallel` requests at once, each in a context of `context`
    tokens (prompt and answer together), at `port` (any free one). It has to be ready within
    `ready_timeout` seconds. `command` replaces the program that is started. `sha256` is what the
    weights have to be."""

    n_parallel: int = 8
    context: int = 4096
    port: int = 0
    ready_timeout: float = 180.0
    command: Sequence[str] | None = None
    sha256: str | None = None


class LocalServer:
    """A running llama.cpp server for the GGUF file at `path`; a context manager that stops it.

    The constructor returns when the server answers. Requests and answers call it `model`; nobody
    is answered without `key`, which is new at every start. Raises LocalModelError when the weights
    are others, the engine is not installed, the port is taken, the child dies (with the last lines
    of its log), or it is not ready in time.
    """

    def __init__(self, path: Path, model: str, options: ServerOptions = ServerOptions()) -> None:
        if not path.is_file():
            raise LocalModelError(
                f"there are no weights at {path}", hint=f"tfgrpo model get {model}"
            )
        if options.sha256 is not None:
            check_weights(path, model, options.sha256)
        command = options.command
        if command is None:
            if importlib.util.find_spec("xllamacpp") is None:
                raise LocalModelError(
                    "the engine for local models is not installed", hint=install_hint("local")
                )
            command = child_processes.python("-m", "tfgrpo.local.model_process")
        self.model = model
        self.key = secrets.token_urlsafe(24)
        with ExitStack() as stack:
            self._log = stack.enter_context(tempfile.TemporaryFile())
            arguments: dict[str, object] = {
                "--model": path,
                "--alias": model,
                "--port": options.port,
                "--slots": options.n_parallel,
                "--context": options.context,
                "--threads": available_cpus(),
                "--parent": os.getpid(),
            }
            line = [*command, *(str(part) for argument in arguments.items() for part in argument)]
            self._process = _spawn(line, self._log)
            stack.callback(self._end)
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # it died at once; whoever waits for it is told why
                self._process.stdin.write(f"{self.key}\n".encode("ascii"))
                self._process.stdin.flush()
            self.port = self._wait_until_ready(options.port, options.ready_timeout)
            self._stack = stack.pop_all()

    @property
    def base_url(self) -> str:
        """The address for OpenAI clients, ending in /v1. Their API key is `key`."""
        return f"http://{_HOST}:{self.port}/v1"

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the child is alive."""
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait until the child ends by itself; return its exit code."""
        return self._process.wait()

    def stop(self) -> None:
        """End the child. Answers in flight are lost; stopping twice does no harm."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self) -> None:
        process = self._process
        if process.stdin is not None:
            with suppress(BrokenPipeError):
                process.stdin.close()
        for end in (process.terminate, process.kill):
            try:
                process.wait(_STOP_SECONDS)
                return
            except subprocess.TimeoutExpired:
                end()
        process.wait()

    def _wait_until_ready(self, wanted_port: int, timeout: float) -> int:
        announced: list[int] = []
        stdout = self._process.stdout
        assert stdout is not None
        threading.Thread(target=_read_port, args=(stdout, announced), daemon=True).start()
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if (code := self._process.poll()) is not None:
                ended = f"the server for {self.model} ended with code {code} before it was ready"
                raise self._failed(ended, wanted_port)
            if announced and _healthy(announced[0]):
                return announced[0]
            time.sleep(_POLL_SECONDS)
        raise self._failed(f"{self.model} was not ready after {timeout:.0f} s")

    def _failed(self, reason: str, wanted_port: int = 0) -> LocalModelError:
        """The error of a start, whose log gets a name that stays."""
        self._log.seek(0)
        log = self._log.read()
        lines = log.decode("utf-8", "replace").rstrip().splitlines()
        if wanted_port and any("couldn't bind" in line for line in lines[-50:]):
            return LocalModelError(
                f"port {wanted_port} is taken or not allowed",
                hint="choose another port, or 0 for a free one",
            )
        with tempfile.NamedTemporaryFile(
            prefix=f"tfgrpo-{self.model}-", suffix=".log", delete=False
        ) as file:
            file.write(log)
        tail = "\n".join(lines[-_LOG_LINES:])
        return LocalModelError(f"{reason}:\n{tail}", hint=f"the full log is {file.name}")


def serve_forever(
    path: Path,
    model: str,
    on_ready: Callable[[LocalServer], None] | None = None,
    options: ServerOptions = ServerOptions(),
) -> int:
    """Serve in the foreground until Ctrl-C (then return 0) or until the child ends by itself.
    `on_ready` is called once it answers, to tell the user where. Returns the child's exit code;
    errors are those of LocalServer."""
    with LocalServer(path, model, options) as server:
        try:
            if on_ready is not None:
                on_ready(server)
            return server.wait()
        except KeyboardInterrupt:
            return 0


def _spawn(line: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    # Threads that spin while they wait ruin the throughput of a machine with other work.
    environment = {"OMP_WAIT_POLICY": "passive"} | child_processes.without_keys()
    try:
        return child_processes.start(
            line,
            environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,  # out of reach of the terminal's Ctrl-C
        )
    except OSError as error:
        raise LocalModelError(f"cannot start the engine: {error}") from error


def _read_port(stdout: IO[bytes], announced: list[int]) -> None:
    with stdout:
        for line in stdout:
            with suppress(ValueError, KeyError, TypeError):
                announced.append(int(json.loads(line)["port"]))


def _healthy(port: int) -> bool:
    # Not urllib: a proxy in the environment must not come between us and loopback.
    connection = http.client.HTTPConnection(_HOST, port, timeout=5.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
