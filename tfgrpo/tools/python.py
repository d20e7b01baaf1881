"""The Python tool: a session whose state lasts as long as its trajectory.

One interpreter a trajectory, started at the first call. Each call has a limit of time, of output
and of files; one that crosses it ends the interpreter with everything it started, and the next
call finds a fresh one, which the model is told. Code that was answered from the record is run
only when a later call has to be made for real and needs the state it left.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tfgrpo.store.canonical import digest
from tfgrpo.tools.sandbox import ENVIRONMENT, Sandbox, SandboxError, command
from tfgrpo.tools.tool import Arguments, Result, ToolSpec, text_argument

SPEC = ToolSpec(
    name="python",
    description="Runs Python code and returns what it prints and the value of its last "
    "expression. Variables stay from call to call. There is no network.",
    parameters={
        "type": "object",
        "properties": {"code": {"type": "string", "description": "The code to run."}},
        "required": ["code"],
        "additionalProperties": False,
    },
)
WATCH_SECONDS = 0.2
START_SECONDS = 30.0
END_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class PythonLimits:
    """What one session may take: seconds a call, and bytes of memory, output and files."""

    seconds: float = 10.0
    memory: int = 1 << 30
    output: int = 16_000
    file_size: int = 16 << 20
    files: int = 64 << 20


class Python:
    """A Python session in a sandbox. Close it when the trajectory is done."""

    def __init__(self, *, sandbox: Sandbox = "auto", limits: PythonLimits | None = None) -> None:
        self.limits = limits or PythonLimits()
        self._sandbox: Sandbox = sandbox
        self._process: asyncio.subprocess.Process | None = None
        self._scratch: Path | None = None
        self._history: list[str] = []
        self._pending = 0
        self._lock = asyncio.Lock()

    @property
    def spec(self) -> ToolSpec:
        """What a model is told of it."""
        return SPEC

    @property
    def state(self) -> str:
        """The digest of all code that made the present state."""
        return digest(["tfgrpo.python", *self._history]).hex() if self._history else ""

    async def call(self, arguments: Arguments) -> Result:
        """Runs `code`. An exception is a failed result, so is a limit that was crossed."""
        code = text_argument(arguments, "code")
        if code is None:
            return Result("python takes one argument, code, as a text", failed=True)
        async with self._lock:
            for earlier in self._history[len(self._history) - self._pending :]:
                await self._run(earlier)
            self._pending = 0
            result = await self._run(code)
            if self._process is not None:
                self._history.append(code)
            return result

    def recall(self, arguments: Arguments, result: Result) -> None:
        """Takes note of code that was answered from the record; it is run when it is needed."""
        code = text_argument(arguments, "code")
        if code is None:
            return
        if result.failed and result.text.endswith(LOST):
            self._history, self._pending = [], 0
        else:
            self._history.append(code)
            self._pending += 1

    async def close(self) -> None:
        """Ends the interpreter and removes its folder."""
        await self._end()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    async def _run(self, code: str) -> Result:
        process = await self._ensure_started()
        self._signal(signal.SIGCONT)
        assert process.stdin is not None
        assert process.stdout is not None
        mark = secrets.token_hex(16)
        watch = asyncio.create_task(self._watch())
        try:
            process.stdin.write(json.dumps({"code": code, "mark": mark}).encode() + b"\n")
            async with asyncio.timeout(self.limits.seconds):
                printed, outcome = await _read_outcome(process.stdout, mark, self.limits.output)
        except TimeoutError:
            return await self._end_lost(f"no end after {self.limits.seconds:g} s")
        except _OutputTooLong:
            return await self._end_lost(f"more than {self.limits.output} characters of output")
        except (EOFError, OSError, ValueError):
            full = watch.done() and not watch.cancelled()
            too_many = f"more than {self.limits.files >> 20} MiB of files"
            return await self._end_lost(too_many if full else "the interpreter was killed")
        finally:
            watch.cancel()
        self._signal(signal.SIGSTOP)  # threads left behind get no time between calls
        parts = [part for part in (printed, outcome["value"], outcome["error"]) if part]
        text = "\n".join(part.strip("\n") for part in parts)[: self.limits.output]
        return Result(text or "(no output)", failed=outcome["error"] is not None)

    async def _ensure_started(self) -> asyncio.subprocess.Process:
        if self._process is not None:
            return self._process
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="tfgrpo-python-"))
        limits = self.limits
        process = self._process = await asyncio.create_subprocess_exec(
            *command(
                self._sandbox, self._scratch, memory=limits.memory, file_size=limits.file_size
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self._scratch,
            env=ENVIRONMENT,
            start_new_session=True,
            limit=1 << 20,
        )
        assert process.stdout is not None
        first = b""
        try:
            async with asyncio.timeout(START_SECONDS):
                first = await process.stdout.readline()
            missing: Sequence[str] = json.loads(first)["missing"]
        except (TimeoutError, ValueError, KeyError, TypeError):
            await self._end()
            output = first.decode("utf-8", "replace").strip()[:200] or "it said nothing"
            raise SandboxError(f"the sandbox did not start: {output}") from None
        if missing and self._sandbox != "off":
            await self._end()
            raise SandboxError(
                f"code cannot be confined on this system: no hold on {', '.join(missing)}",
                hint="run where Linux has Landlock and seccomp, or with --sandbox off at your own "
                "risk",
            )
        return process

    async def _watch(self) -> None:
        """Ends the session when its files outgrow their limit; returns only then."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if self._scratch is not None and _too_large(self._scratch, self.limits.files):
                self._signal(signal.SIGKILL)
                return

    async def _end_lost(self, why: str) -> Result:
        await self._end()
        self._history, self._pending = [], 0
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
        return Result(f"{why}{LOST}", failed=True)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def _end(self) -> None:
        """Kills the interpreter, and waits for whatever holds its output to be gone with it."""
        self._signal(signal.SIGKILL)
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            await process.wait()
            with suppress(TimeoutError):  # with --sandbox off, what it started may outlive it
                async with asyncio.timeout(END_SECONDS):
                    while await process.stdout.read(65536):
                        pass


LOST = "; the session was ended and its variables are lost"


class _OutputTooLong(Exception):
    """More output than is allowed."""


async def _read_outcome(
    stream: asyncio.StreamReader, mark: str, limit: int
) -> tuple[str, dict[str, str | None]]:
    """Returns what was printed before the mark, and the outcome after it."""
    end, read = f"\n{mark}".encode(), b""
    while end not in read:
        chunk = await stream.read(65536)
        if not chunk:
            raise EOFError
        read += chunk
        if len(read) > 4 * limit + len(end) and end not in read:
            raise _OutputTooLong
    printed, _, rest = read.partition(end)
    while not rest.endswith(b"\n"):
        chunk = await stream.read(65536)
        if not chunk or len(rest) > 200_000:
            raise EOFError
        rest += chunk
    outcome = json.loads(rest)
    return printed.decode("utf-8", "replace"), {key: outcome[key] for key in ("value", "error")}


def _too_large(folder: Path, limit: int) -> bool:
    """Returns whether a folder holds more than `limit` bytes, or files without end."""
    total, count = 0, 0
    for root, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
            count += 1
            if total > limit or count > 10_000:
                return True
    return False
