"""The Python tool: a session whose state lasts as long as its trajectory.

A call that crosses a limit of time, output or files ends the interpreter with all it started, and
the next call finds a fresh one. Code that was answered from the record is run only when a later
call needs the state it left.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
from contextlib import suppress
from pathlib import Path

from tfgrpo.store.canonical import digest
from tfgrpo.tools.confine import NO_BOUND
from tfgrpo.tools.sandbox import (
    ENVIRONMENT,
    PythonLimits,
    Sandbox,
    SandboxError,
    command,
    open_proc,
    read_confinement,
    refuse_holes,
)
from tfgrpo.tools.session_bounds import (
    ThreadGroup,
    excess,
    make_scratch,
    open_group,
    remove_scratch,
    too_many_threads,
)
from tfgrpo.tools.tool import Arguments, Result, Tool, text_argument, text_spec

SPEC = text_spec(
    "python",
    "Runs Python code and returns what it prints and the value of its last "
    "expression. Variables stay from call to call. There is no network.",
    "code",
    "The code to run.",
)
WATCH_SECONDS = 0.2
START_SECONDS = 30.0
END_SECONDS = 2.0
LONGEST_LINE = 200_000


class Python(Tool):
    """A Python session in a sandbox. Close it when the trajectory is done."""

    spec = SPEC

    def __init__(self, *, sandbox: Sandbox = "auto", limits: PythonLimits | None = None) -> None:
        self.limits = limits or PythonLimits()
        self._sandbox: Sandbox = sandbox
        self._process: asyncio.subprocess.Process | None = None
        self._scratch: Path | None = None
        self._counted = self._counts_threads = False
        self._group: ThreadGroup | None = None
        self._history: list[str] = []
        self._pending = 0
        self._lock = asyncio.Lock()

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
            folder, self._scratch = self._scratch, None
            await asyncio.to_thread(remove_scratch, folder)

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
                printed, line = await _read_answer(process.stdout, mark, self.limits.output)
        except TimeoutError:
            return await self._end_lost(f"no end after {self.limits.seconds:g} s")
        except _OutputTooLong:
            return await self._end_lost(f"more than {self.limits.output} characters of output")
        except (EOFError, OSError, ValueError):
            over = watch.result() if watch.done() and not watch.cancelled() else None
            return await self._end_lost(over or "the interpreter was killed")
        finally:
            watch.cancel()
        self._signal(signal.SIGSTOP)  # threads left behind get no time between calls
        try:
            value, error = parse_outcome(line)
        except ValueError as wrong:
            return await self._end_lost(str(wrong))
        over = await self._excess()
        if over is not None:
            return await self._end_lost(over)
        text = "\n".join(part.strip("\n") for part in (printed, value, error) if part)
        # Half a character is none, and can be kept nowhere:
        text = text[: self.limits.output].encode("utf-8", "replace").decode()
        return Result(text or "(no output)", failed=error is not None)

    async def _ensure_started(self) -> asyncio.subprocess.Process:
        if self._process is not None:
            return self._process
        if self._scratch is None:
            self._scratch = await asyncio.to_thread(make_scratch)
        first = b""
        try:
            with open_proc() as inherited:
                proc = inherited[0] if inherited else -1
                process = self._process = await asyncio.create_subprocess_exec(
                    *command(self._sandbox, self._scratch, self.limits, proc),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.STDOUT,
                    cwd=self._scratch,
                    env=ENVIRONMENT,
                    pass_fds=inherited,
                    start_new_session=True,
                    limit=max(LONGEST_LINE, 5 * self.limits.output),
                )
            assert process.stdout is not None
            async with asyncio.timeout(START_SECONDS):
                first = await process.stdout.readline()
            confinement = read_confinement(first)
        except (TimeoutError, ValueError, OSError) as error:
            await self._end()
            printed = first.decode("utf-8", "replace").strip()[:200]
            why = printed or (str(error) if isinstance(error, OSError) else "")
            raise SandboxError(
                f"the sandbox did not start: {why or 'it printed nothing'}"
            ) from None
        try:
            refuse_holes(confinement, self._sandbox)
        except SandboxError:
            await self._end()
            raise
        self._counted = NO_BOUND in confinement.lacks
        self._group = open_group()
        group = self._group
        held = group is not None and await asyncio.to_thread(group.take, process.pid)
        self._counts_threads = not (held or confinement.threads)
        return process

    async def _watch(self) -> str:
        """Ends the session when its files outgrow their limits; returns by what, and only then."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            over = await self._excess()
            if over is not None:
                self._signal(signal.SIGKILL)
                return over

    async def _excess(self) -> str | None:
        """By what files or threads are over limits, where the kernel does not bound them."""
        process, folder, limits = self._process, self._scratch, self.limits
        counted = process if self._counts_threads else None
        if counted is not None:
            over = await asyncio.to_thread(too_many_threads, counted.pid)
            if over is not None:
                return over
        if not self._counted or process is None or folder is None:
            return None
        return await asyncio.to_thread(
            excess, folder, process.pid, size=limits.files, entries=limits.entries
        )

    async def _end_lost(self, why: str) -> Result:
        await self.close()
        self._history, self._pending = [], 0
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
        if self._group is not None:
            self._group.close()
            self._group = None


LOST = "; the session was ended and its variables are lost"


class _OutputTooLong(Exception):
    """More output than is allowed."""


async def _read_answer(stream: asyncio.StreamReader, mark: str, limit: int) -> tuple[str, bytes]:
    """What was printed before the mark, and the line after it."""
    end = f"\n{mark}".encode()
    try:
        printed = (await stream.readuntil(end)).removesuffix(end)
    except asyncio.LimitOverrunError:
        raise _OutputTooLong from None
    if len(printed) > 4 * limit:  # bytes, of characters that have four at most
        raise _OutputTooLong
    line = await stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return printed.decode("utf-8", "replace"), line


def parse_outcome(line: bytes) -> tuple[str | None, str | None]:
    """Reads the value and the error in an interpreter's line. Raises ValueError. The line is
    whatever the code that ran wanted it to be."""
    try:
        outcome = json.loads(line)
        value, error = outcome["value"], outcome["error"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("the interpreter gave no answer that can be read") from None
    if not all(part is None or isinstance(part, str) for part in (value, error)):
        raise ValueError("the interpreter gave no answer that can be read")
    return value, error
