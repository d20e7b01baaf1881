"""Programs of the user's: one process group for each, with limits, killed whole.

All that it has started is found by `process_table.Family`, wherever it went. A program that says
more than is kept, or takes more memory than it may, is ended.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO

from tfgrpo.agents.orphan_guard import RUN_MARK, guarded
from tfgrpo.model import secrets
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.store import child_processes
from tfgrpo.store.errors import SettingsError
from tfgrpo.tools import process_table

LOOK = 0.2
"""Seconds between two looks at how much memory a program has."""
LAST_WORDS = 400
MARK = "TFGRPO_ATTEMPT"
"""The variable that every process of an attempt has."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a program may take: seconds, MiB of memory of all its processes, bytes of output."""

    seconds: float
    memory: int
    output: int


@dataclass(frozen=True, slots=True)
class Task:
    """A program to be run: its command, where, with which environment beside this process's, which
    it gets without keys, and what it reads."""

    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    given: bytes


def check_command(command: Sequence[str], folder: Path, what: str) -> None:
    """Raises SettingsError for a command that is not there."""
    name = command[0]
    path = folder / name if os.sep in name else None
    if shutil.which(name) if path is None else os.path.isfile(path) and os.access(path, os.X_OK):
        return
    if path is not None and os.path.isfile(path):
        raise SettingsError(f"the {what} {name} cannot be run", hint=f"chmod +x {name}")
    where = "" if path is None else f" in {folder}, where it runs"
    raise SettingsError(
        f"there is no command {name} for the {what}{where}",
        hint=f"write it as in a shell, such as --{what} 'python my_{what}.py'",
    )


async def run(task: Task, limits: Limits, token: str) -> tuple[bytes, bytes]:
    """Returns what a program says on standard output and on standard error, once it has ended well.
    Raises CallFailed with its last words where it ends otherwise, or takes too much. Cancelled, it
    is killed whole."""
    name = Path(task.command[0]).name
    try:
        marks = {MARK: token, RUN_MARK: guarded()}
        own = secrets.without_secrets(child_processes.whole())
        process = child_processes.start_as_written(
            task.command,
            {**own, **task.environment, **marks},
            cwd=task.folder,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise CallFailed(f"cannot start {name}: {error}") from None
    watched = _Watched(process, limits, token)
    try:
        async with asyncio.timeout(limits.seconds) as clock:
            output, errors = await watched.talk(task.given)
    except TimeoutError:
        if not clock.expired():
            raise
        words = last_words(*watched.heard)
        raise CallFailed(f"{name} was not done in {limits.seconds:g} s{words}") from None
    finally:
        await asyncio.shield(asyncio.to_thread(watched.end))
    if watched.too_much:
        raise CallFailed(f"{name} {watched.too_much}{last_words(output, errors)}")
    if process.returncode:
        how = f"ended with {process.returncode}"
        if process.returncode < 0:
            names = {int(one): one.name for one in signal.Signals}  # some of real time have none
            how = f"was ended by {names.get(-process.returncode, f'signal {-process.returncode}')}"
        raise CallFailed(f"{name} {how}{last_words(output, errors)}")
    return output, errors


class _Watched:
    """A process that runs, and what it has said so far."""

    def __init__(self, process: Popen[bytes], limits: Limits, token: str) -> None:
        self._process, self._limits = process, limits
        self._family = process_table.Family(f"{MARK}={token}", process.pid)
        self._heard = (bytearray(), bytearray())
        self.too_much = ""

    @property
    def heard(self) -> tuple[bytes, bytes]:
        """Standard output and standard error, so far."""
        return bytes(self._heard[0]), bytes(self._heard[1])

    async def talk(self, given: bytes) -> tuple[bytes, bytes]:
        """Gives a process what it reads, and returns what it says when it has ended."""
        pipes = (self._process.stdout, self._process.stderr)
        reading = [
            asyncio.create_task(self._listen(pipe, heard))
            for pipe, heard in zip(pipes, self._heard, strict=True)
            if pipe is not None
        ]
        writing = asyncio.create_task(self._say(given))
        try:
            while self._process.poll() is None:
                await asyncio.wait(reading, timeout=LOOK)
                if not self.too_much and await asyncio.to_thread(self._takes_too_much):
                    self.too_much = f"took more than {self._limits.memory:,} MiB of memory"
                if self.too_much:
                    await asyncio.to_thread(self.kill)
                if all(task.done() for task in reading):
                    await asyncio.sleep(0.01)
            # what it has left running may hold its output open: nobody waits for that
            await asyncio.wait(reading, timeout=LOOK)
        finally:
            for task in (*reading, writing):
                task.cancel()
            await asyncio.gather(*reading, writing, return_exceptions=True)
        return self.heard

    async def _listen(self, pipe: IO[bytes], heard: bytearray) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            while data := await reader.read(1 << 16):
                heard += data
                if len(heard) > self._limits.output:
                    self.too_much = f"wrote more than {self._limits.output:,} bytes"
                    return
        finally:
            transport.close()

    async def _say(self, given: bytes) -> None:
        """Writes what the process reads; one that reads nothing is no error."""
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), self._process.stdin
        )
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        try:
            writer.write(given)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        except asyncio.CancelledError:
            transport.abort()
            raise

    def _takes_too_much(self) -> bool:
        members = self._family.members(process_table.AGE)
        return process_table.take_more(members, self._limits.memory << 20)

    def end(self) -> None:
        """Ends what is left of the process, takes note of how it ended, and closes its streams."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def kill(self) -> None:
        """Ends the process with all that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._family.kill()


def last_words(output: bytes, errors: bytes) -> str:
    """Returns what a program said last, on standard error, or else on standard output, without
    known secrets."""
    for words in (errors, output):
        text = secrets.scrub(words.decode("utf-8", "replace")).strip()
        if text:
            return f": {' '.join(text.split())[-LAST_WORDS:]}"
    return ""
