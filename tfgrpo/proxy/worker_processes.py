"""A proxy until it is told to stop: one worker, or several processes on one socket."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from socket import socket
from typing import Any, TypeAlias

from tfgrpo.proxy.library_choice import Chooser
from tfgrpo.proxy.proxy_settings import ProxySettings, listening
from tfgrpo.proxy.server import Proxy
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.terminal_safe import complain

STOPS = (signal.SIGINT, signal.SIGTERM)
RELOAD = signal.SIGHUP
AWAITED = frozenset({*STOPS, RELOAD, signal.SIGCHLD})
"""What the process that watches workers waits for."""
Ready: TypeAlias = Callable[[int], None]
Read: TypeAlias = Callable[[], ProxySettings]
"""Is told the port as soon as requests are taken; reads the settings anew. Raises TfgrpoError."""
SWITCH = 0.0001
"""Seconds after which a thread beside the loop lets it go on: Python's own 5 ms would be seen in
every hundredth answer."""
COLLECT = 20_000
"""Objects after which reference cycles are looked for: a request makes none."""


def run(settings: ProxySettings, workers: int, ready: Ready, read: Read | None = None) -> None:
    """Answers until SIGTERM or SIGINT, then gives the requests under way the time that the settings
    say. At SIGHUP the settings are taken from `read`, and the access log is opened anew. `ready` is
    called with the port as soon as requests are taken. A worker that dies is started again. Raises
    SettingsError where the address cannot be had, and StoreError or UnknownRevision where a library
    cannot be read to begin with."""
    allow_files(3 * settings.limits.connections)
    with listening(settings.host, settings.port) as listener:
        if workers == 1:
            _work(settings, listener, ready, read, supervisor=0)
        else:
            Proxy(settings).chooser.close()  # what cannot be read is an error before any fork
            _supervise(settings, workers, listener, ready, read)


def allow_files(wanted: int) -> None:
    """Lets this process have so many files open, as far as it may: each stream is two of them, and
    most systems begin with 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _work(
    settings: ProxySettings, listener: socket, ready: Ready, read: Read | None, supervisor: int
) -> None:
    async def serve() -> None:
        proxy = Proxy(settings)
        sys.setswitchinterval(SWITCH)
        gc.freeze()
        gc.set_threshold(COLLECT, 20, 20)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in STOPS:
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(RELOAD, _reload, proxy, read)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [RELOAD])  # one may wait since the start
        ready(await proxy.start(listener.dup()))
        watching = asyncio.create_task(_end_with(supervisor, stop))
        await stop.wait()
        watching.cancel()
        listener.close()  # or connections that nobody takes wait in it until the end
        await proxy.close()

    run_loop(serve())


def _reload(proxy: Proxy, read: Read | None) -> None:
    """Takes the settings anew; where they are wrong, those that are in force stay."""
    try:
        if proxy.access is not None:
            proxy.access.reopen()
        waiting = [] if read is None else proxy.reload(read())
    except TfgrpoError as error:
        complain(f"not reloaded: {error}")
    else:
        later = f"; after a restart: {', '.join(waiting)}" if waiting else ""
        complain(f"reloaded{later}")


async def _end_with(supervisor: int, stop: asyncio.Event) -> None:
    """Ends a worker whose supervisor was killed: nobody could end it otherwise."""
    while supervisor and not stop.is_set():
        if os.getppid() != supervisor:
            stop.set()
        await asyncio.sleep(1)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine on the fastest loop that is installed."""
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    with suppress(ImportError):
        import uvloop

        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main)


def _supervise(
    settings: ProxySettings, workers: int, listener: socket, ready: Ready, read: Read | None
) -> None:
    children: set[int] = set()
    stopping = False

    def tell(number: int) -> None:
        for child in children:
            with suppress(ProcessLookupError):  # it has ended, and was not taken out yet
                os.kill(child, number)

    def reload() -> None:
        """Has every worker take the settings anew, and those that are started later too."""
        nonlocal settings
        if read is not None:
            try:
                read_anew, _ = settings.reloaded(read())
                Chooser(read_anew).close()  # workers that are started later have to read it too
                settings = read_anew
            except TfgrpoError as error:
                complain(f"not reloaded: {error}")
                return
        tell(RELOAD)

    # Signals wait until they are asked for: a handler may miss one that comes just before a wait.
    signal.signal(signal.SIGCHLD, lambda number, frame: None)  # what is ignored need not wait
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)  # to the end: a late one ends nothing
    for _ in range(workers):
        children.add(_fork(settings, listener, read))
    ready(int(listener.getsockname()[1]))
    while children:
        number = signal.sigwait(AWAITED)
        if number == RELOAD and not stopping:
            reload()
        elif number in STOPS:
            stopping = True
            listener.close()
            tell(signal.SIGTERM)
        for child, status in _ended():
            children.discard(child)
            if not stopping:
                complain(f"worker {child} ended with {status}; starting another")
                children.add(_fork(settings, listener, read))


def _ended() -> Iterator[tuple[int, int]]:
    with suppress(ChildProcessError):  # there is none left
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            yield ended


def _fork(settings: ProxySettings, listener: socket, read: Read | None) -> int:
    supervisor = os.getpid()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, AWAITED - {RELOAD})  # which has to wait
        _work(settings, listener, lambda port: None, read, supervisor)
        code = 0
    except Exception as error:
        if isinstance(error, TfgrpoError):
            complain(f"error: {error}")
        else:
            traceback.print_exc()
        time.sleep(1)  # and not as fast as workers can be started
    finally:
        os._exit(code)
