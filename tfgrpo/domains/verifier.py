"""Verification in worker processes, away from the event loop.

Judges may hang, eat memory or fiddle with signals, so they run in a pool of processes (pebble)
that are killed when an answer takes too long. A killed or crashed judge gives an unverifiable
verdict, which is told apart from a wrong answer and never becomes a reward of 0.
"""

from __future__ import annotations

import asyncio
import io
import os
import pickle
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from functools import partial
from multiprocessing import context, spawn, util
from typing import Any, Self, TypeVar

from tfgrpo.data.problems import Problem, without
from tfgrpo.data.readers import DatasetError
from tfgrpo.domains.base import LINE, Check, Domain, Verdict, Verify, describe_error
from tfgrpo.model.caller_functions import is_of_tfgrpo
from tfgrpo.model.secrets import scrub
from tfgrpo.store import child_processes

_starting = threading.local()
_loaded: list[Any] = []
"""In a worker: the function that it was started for, or what came of loading it."""
_prepare = spawn.get_preparation_data
_flags = util._args_from_interpreter_flags  # type: ignore[attr-defined]
_spawn = util.spawnv_passfds


def _preparation_data(name: str) -> dict[str, Any]:
    """Returns what a child is told at its start, without the main module for those of ours."""
    data: dict[str, Any] = _prepare(name)
    if getattr(_starting, "worker", False):
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
    return data


def _safe_flags() -> list[str]:
    """Returns the flags of a child's interpreter: this one's, and no folder on its path."""
    flags: list[str] = _flags()
    return ["-P", *(flag for flag in flags if flag != "-P")]


def _pass_descriptors(path: bytes | str, args: Sequence[Any], fds: Iterable[int]) -> int:
    """Starts a child as `multiprocessing` does, with the environment of a worker for ours."""
    environment = getattr(_starting, "environment", None)
    if environment is None:
        return int(_spawn(path, args, fds))  # type: ignore[arg-type]
    command = [os.fsdecode(path), *map(os.fsdecode, args[1:])]
    unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        process = child_processes.start(command, environment, pass_fds=tuple(fds))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
    process.returncode = 0  # it is `multiprocessing` that waits for it
    return process.pid


spawn.get_preparation_data = _preparation_data
util._args_from_interpreter_flags = _safe_flags  # type: ignore[attr-defined]
util.spawnv_passfds = _pass_descriptors  # type: ignore[assignment]


class WorkerProcess(context.SpawnProcess):
    """A spawned process that does not run the program's main module."""

    keys = False
    """Whether it has the whole environment: what it runs is then the user's own code."""
    _ended = False

    @classmethod
    def _Popen(cls, process_obj: Any) -> Any:
        _starting.worker = True
        _starting.environment = None if cls.keys else child_processes.without_keys()
        try:
            return context.SpawnProcess._Popen(process_obj)
        finally:
            _starting.worker, _starting.environment = False, None

    def join(self, timeout: float | None = None) -> None:
        """Waits for its end, and ends with it what it has forked, which is of its group."""
        super().join(timeout)
        if self.exitcode is not None and self.pid and not self._ended:
            self._ended = True  # its number may be another's soon
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


class WorkerProcessWithKeys(WorkerProcess):
    """Such a process for a verifier of the user's, which may ask a service of theirs."""

    keys = True


T = TypeVar("T")
TRIES = 3
"""How often a function is run whose time was up while this process stood still, as by Ctrl-Z, or
whose workers ended before they took it."""
PATIENCE = 30.0
"""How many times its seconds a function of ours has by the clock. It never waits, so what counts is
its time on a processor, of which a busy machine gives it little."""
TICK, STANDSTILL = 0.5, 2.0
"""Seconds between two looks at the clock, and the gap between two that is a standstill."""
MEMORY = 4 << 30
"""Bytes that a worker may use, unless asked otherwise."""
UNCUT = 10_000
"""Characters of an error that a worker hands on. It is cut to a line where secrets are known."""
FEW = 500
"""Fewer ground truths than this are checked sooner by one worker than two are started."""


class Killed(Exception):
    """A function that ran too long in a worker process, or whose process died."""


class Verifier:
    """Runs judges in `workers` processes, each within `seconds`: of a processor for our own code,
    by the clock for the user's, which may wait. Close it when done. The time in which a worker
    starts does not count, nor, where it is `warm`, that in which it loads what mathematics takes.
    One that asks for more than `memory` bytes gets a MemoryError."""

    def __init__(
        self, *, workers: int = 2, seconds: float = 10.0, memory: int = MEMORY, warm: bool = True
    ) -> None:
        self.seconds = seconds
        self._workers, self._memory, self._warm = workers, memory, warm
        self._pools: dict[bytes, Any] = {}
        self._is_closed = False

    def _pool(self, theirs: bytes, packed: bytes) -> Any:
        """Returns the processes for what is ours, or for one function of `theirs`, the user's, so
        that what comes of it holds up no other. They start with the packed function loaded."""
        if theirs not in self._pools:
            from tfgrpo.domains.worker_pool import WorkerPool

            spawning = context.SpawnContext()
            spawning.Process = WorkerProcessWithKeys if theirs else WorkerProcess  # type: ignore[misc]
            self._pools[theirs] = WorkerPool(
                max_workers=self._workers,
                context=spawning,
                initializer=_prepare_worker,
                initargs=(self._memory, self._warm, packed),
            )
        return self._pools[theirs]

    async def verdict(self, problem: Problem, response: str, verify: Verify) -> Verdict:
        """Returns the verdict on a response to a problem, by a plain verifier."""
        try:
            return await self.run(verify, problem, response)
        except Killed as error:
            return Verdict(None, None, f"unverifiable: {error}")

    async def run(self, function: Callable[..., T], *arguments: Any, may_wait: bool = False) -> T:
        """Returns what an importable function gives, in a worker process. One of ours that runs
        code of the user's `may_wait`, and is timed by the clock.

        Time in which this process stood still does not count: what was killed for it is run
        again. Raises Killed when it took too long, when its process died, and for whatever it
        raised. A function of ours runs without the keys of the environment.
        """
        return await self._run(function, may_wait, function, *arguments)

    async def run_each(self, function: Callable[[Any], T], batch: Sequence[Any]) -> list[T]:
        """Returns what an importable function gives for each of a batch, run as one by `run`."""
        return await self._run(function, False, partial(_each, function), batch)

    async def _run(
        self, of: object, may_wait: bool, function: Callable[..., T], *arguments: Any
    ) -> T:
        """Runs a function. Its workers are those for our own code, or those for this function
        alone, by whose `of` is, which it is or holds."""
        ours = is_of_tfgrpo(of)
        try:
            packed = pickle.dumps(function)
            sent = function if ours else None, pickle.dumps(arguments)
        except Exception as error:
            raise Killed(describe_error(error)) from None
        theirs = b"" if ours else packed
        counts = ours and not may_wait
        of_processor = self.seconds if counts else 0.0
        by_clock = self.seconds * (PATIENCE if counts else 1.0)
        what = f"no verdict in {self.seconds:g} s"
        for _ in range(TRIES):
            if self._is_closed:  # processes that are started now would never end
                raise Killed("the verifier was closed")
            pool = self._pool(theirs, packed)
            try:
                outcome = asyncio.wrap_future(
                    pool.schedule(_guarded, args=(of_processor, *sent), timeout=by_clock)
                )
                stood_still = await _wait(outcome, pool)
                result: T = _unpacked(outcome.result())
                return result
            except (TimeoutError, FutureTimeout):
                if not stood_still:
                    break
            except asyncio.CancelledError:
                raise
            except Killed as error:  # a worker knows no secrets: they are taken out here
                raise Killed(scrub(str(error))[:LINE]) from None
            except RuntimeError:  # all workers ended before they took it
                what = "its worker ended as it started"
                await self._replace(theirs, pool)
            except Exception as error:  # the worker died
                if counts and getattr(error, "exitcode", None) == -signal.SIGPROF:
                    break
                raise Killed(describe_error(error)) from None
        raise Killed(what)

    async def _replace(self, theirs: bytes, pool: Any) -> None:
        """Ends processes that are of no more use, so that the next run starts others."""
        if self._pools.get(theirs) is pool:
            del self._pools[theirs]
            await asyncio.to_thread(_end, pool)

    def close(self) -> None:
        """Ends the worker processes; what is still to be judged has no verdict."""
        self._is_closed = True
        for pool in self._pools.values():
            _end(pool)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _unpacked(result: bytes) -> Any:
    """What a function gave. Raises Killed where this process cannot have it."""
    try:
        return pickle.loads(result)
    except Exception as error:
        raise Killed(describe_error(error)) from None


def _end(pool: Any) -> None:
    pool.stop()
    pool.join()


async def _wait(outcome: asyncio.Future[bytes], pool: Any) -> bool:
    """Waits until a future is done; returns whether this process stood still meanwhile. Raises
    RuntimeError where nobody is there any more to take it."""
    stood_still, last = False, time.monotonic()
    try:
        while not outcome.done():
            await asyncio.wait({outcome}, timeout=TICK)
            now = time.monotonic()
            stood_still, last = stood_still or now - last > STANDSTILL, now
            if not pool.active and not outcome.done():
                raise RuntimeError("all workers ended")
    except (asyncio.CancelledError, RuntimeError):
        outcome.cancel()
        raise
    return stood_still


def objections(
    problems: Sequence[Problem], domain: Domain, *, seconds: float = 10.0
) -> list[tuple[Problem, str]]:
    """Returns the problems that a domain cannot judge attempts at, each with the reason. Each is
    looked at in a worker process, as a hostile ground truth may hang or kill what parses it."""
    if domain.rehearse is not None and problems:
        domain.rehearse(problems[0])
    if domain.check is None or not problems:
        return []
    workers = 1 if len(problems) < FEW else 2
    return asyncio.run(_objections(problems, domain.check, workers, seconds))


def verifiable(
    dataset: tuple[Problem, ...],
    name: str,
    domain: Domain,
    warnings: list[str],
    *,
    skip: bool,
    seconds: float = 10.0,
) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """Returns the problems that can be judged, and the ids of those left out, which go into
    `warnings`. Raises DatasetError where there are such and `skip` does not allow to leave them
    out, or there are no others."""
    unusable = objections(dataset, domain, seconds=seconds)
    if not unusable:
        return dataset, ()
    ids, first = tuple(problem.id for problem, _ in unusable), describe_objection(*unusable[0])
    if not skip or len(ids) == len(dataset):
        more = f" ({len(ids)} of {len(dataset)} are like that: {_some(ids[1:])})" if ids[1:] else ""
        raise DatasetError(
            f"{name}: {first}{more}",
            hint="a number, LaTeX, a letter or words can be judged: correct them, "
            "or leave them out with --skip-unverifiable",
        )
    warnings.append(
        f"{name}: {len(ids)} of {len(dataset):,} problems left out, as they cannot be judged: "
        f"{_some(ids)} ({first})"
    )
    return without(dataset, ids), ids


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:8]) + (", …" if len(ids) > 8 else "")


def describe_objection(problem: Problem, wrong: str) -> str:
    """Returns what is wrong with a problem, in words."""
    answer = f"cannot parse the answer {problem.answer!r}: " if problem.answer else ""
    return f"{problem.id}: {answer}{wrong}"


async def _objections(
    problems: Sequence[Problem], check: Check, workers: int, seconds: float
) -> list[tuple[Problem, str]]:
    """Returns the problems that a check objects to, in order, each with the objection."""
    size = max(1, min(200, len(problems) // (4 * workers)))
    batches = [problems[i : i + size] for i in range(0, len(problems), size)]
    with Verifier(workers=workers, seconds=seconds, warm=False) as verifier:

        async def of_batch(batch: Sequence[Problem]) -> list[str | None]:
            try:
                return await verifier.run_each(check, batch)
            except Killed as error:
                if len(batch) == 1:
                    return [str(error)]
            return [o for problem in batch for o in await of_batch([problem])]

        batched = await asyncio.gather(*map(of_batch, batches))
    flat = [objection for batch in batched for objection in batch]
    return [(p, o) for p, o in zip(problems, flat, strict=True) if o is not None]


def _each(function: Callable[[Any], T], batch: Sequence[Any]) -> list[T]:
    return [function(one) for one in batch]


def _prepare_worker(memory: int, warm: bool, packed: bytes) -> None:
    """Loads the function that the worker was started for, and from then on lets the event loop go
    first where cores are few: it is what keeps requests in flight. What a verifier prints goes to
    standard error, as our own output may be read by a program, and line by line, as a worker ends
    without a word."""
    sys.stdout.flush()
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    _limit_memory(memory)
    os.setpgid(0, 0)  # what it forks ends with it: see WorkerProcess.join
    if warm:
        from tfgrpo.domains.mathematics import parsing

        parsing.warm_up()
    try:
        _loaded.append(pickle.loads(packed))
    except BaseException as error:
        _loaded.append(Killed(describe_error(error, UNCUT)))
    os.nice(10)


def _limit_memory(most: int) -> None:
    """Caps what this process may allocate, where the system has such a cap."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def _guarded(seconds: float, function: Callable[..., object] | None, arguments: bytes) -> bytes:
    """Runs a function in a worker process, by default the one that it was started for; returns its
    result, packed. Whatever it raises, ends of programs too, is Killed here: it may be no
    Exception, or none that another process can have. One that takes more of a processor than
    `seconds`, where they are not 0, ends the process by SIGPROF."""
    run = function or _loaded[0]
    if isinstance(run, Killed):
        raise run
    if seconds:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return pickle.dumps(run(*pickle.loads(arguments)))
    except BaseException as error:
        raise Killed(describe_error(error, UNCUT)) from None
    finally:
        if seconds:
            signal.setitimer(signal.ITIMER_PROF, 0)
