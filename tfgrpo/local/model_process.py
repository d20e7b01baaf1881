"""The process that holds the weights: `python -m tfgrpo.local.model_process --model … --port 0`.

It says where it listens in a line of JSON, before it loads weights. It answers to the key alone,
the first line of its standard input, and under this machine's own name (`guard`). It outlives no
parent: standard input ends with it, and its process id is watched, as a forked sibling may hold the
pipe (PR_SET_PDEATHSIG fires when the starting thread ends). It ignores SIGINT: on Ctrl-C the parent
finishes what is in flight, then stops it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

NAMES = (b"127.0.0.1", b"localhost", b"[::1]")
LONGEST_HEAD = 1 << 16
HEAD_SECONDS = 30.0
REFUSAL = (
    b"HTTP/1.1 421 Misdirected Request\r\nContent-Type: text/plain\r\nContent-Length: 39\r\n"
    b"Connection: close\r\n\r\nthis server answers to its address only"
)


def names_this_machine(head: bytes) -> bool:
    """Whether the head of a request has one `Host`, and that is this machine's."""
    lines = head.split(b"\r\n")[1:]
    hosts = [
        value.strip().lower()
        for name, _, value in (line.partition(b":") for line in lines)
        if name.strip().lower() == b"host"
    ]
    if len(hosts) != 1:
        return False
    name, _, port = hosts[0].rpartition(b":")
    return hosts[0] in NAMES or (name in NAMES and port.isdigit())


async def guard(listener: socket.socket, engine: str) -> None:
    """Hands connections on to the engine's socket at a path, until it is cancelled."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            try:
                await _forward(reader, writer, engine)
            finally:
                writer.close()

    server = await asyncio.start_server(handle, sock=listener, limit=LONGEST_HEAD)
    async with server:
        await server.serve_forever()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, engine: str) -> None:
    async with asyncio.timeout(HEAD_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
    if not names_this_machine(head):
        writer.write(REFUSAL)
        await writer.drain()
        return
    answers, requests = await asyncio.open_unix_connection(engine)
    try:
        requests.write(head)
        ways = [
            asyncio.create_task(_copy(reader, requests)),
            asyncio.create_task(_copy(answers, writer)),
        ]
        # Whoever ends first ends both: a client that is gone needs no answer any more.
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    finally:
        requests.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(1 << 16):
        target.write(data)
        await target.drain()


_HOST = "127.0.0.1"
# Elsewhere the engine has no sockets in folders, and the key alone keeps others away.
_GUARDED = os.name == "posix"
_ENGINE = "engine.sock"

_WATCH_SECONDS = 0.5
# Prompts whose slot was taken by others are kept in main memory up to this much. The
# engine's own limit is 8192 MiB, which a long run would really use.
_PROMPT_CACHE_MIB = 512


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; `LocalServer` writes it, any stand-in has to accept it."""
    parser = argparse.ArgumentParser(prog="python -m tfgrpo.local.model_process")
    parser.add_argument("--model", required=True, help="path of a GGUF file")
    parser.add_argument("--alias", required=True, help="the model's name in answers")
    parser.add_argument("--port", type=int, required=True, help="0: any free one")
    parser.add_argument("--slots", type=int, required=True, help="answers at once")
    parser.add_argument("--context", type=int, required=True, help="tokens per slot")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True, help="end with this process")
    parser.add_argument("--room", required=True, help="a folder that goes with the parent")
    return parser.parse_args(argv)


def read_key() -> str:
    """The first line of standard input: the key that requests have to bring."""
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode("ascii")


def end_with_parent(parent: int, room: str) -> None:
    """End this process, and remove `room`, when standard input ends or `parent` is not ours."""

    def end() -> None:
        shutil.rmtree(room, ignore_errors=True)
        os._exit(0)

    def read_to_end() -> None:
        while os.read(0, 1 << 16):  # sys.stdin's lock would break an exit by the main thread
            pass
        end()

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        end()

    threading.Thread(target=read_to_end, daemon=True).start()
    if os.name == "posix":  # elsewhere a launcher may stand between the two
        threading.Thread(target=watch_parent, daemon=True).start()


def main() -> None:
    """Serve until the parent ends or closes our standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = arguments()
    key = read_key()
    end_with_parent(options.parent, options.room)
    announce = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        listener = _listen(options.port) if _GUARDED else None
        if listener is not None:
            options.model = os.path.abspath(options.model)
            os.chdir(options.room)  # the path of a socket cannot be as long as that of a folder
        server = _start(options, key)
    except (RuntimeError, OSError) as error:  # the engine's; it has logged why
        sys.exit(str(error))
    if listener is not None:
        port = listener.getsockname()[1]
    else:
        port = int(server.listening_address.rsplit(":", 1)[1])
    with announce:
        announce.write(json.dumps({"port": port}) + "\n")
    if listener is not None:
        asyncio.run(guard(listener, _ENGINE))
    threading.Event().wait()


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server((_HOST, port), backlog=128)
    except OSError as error:
        raise OSError(f"couldn't bind port {port}: {error.strerror}") from None


def _start(options: argparse.Namespace, key: str) -> Any:
    import xllamacpp  # it has no types

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.alias}
    params.hostnames = [_ENGINE if _GUARDED else _HOST]
    params.port = 0 if _GUARDED else options.port
    params.api_keys = [key]
    # No page that the user's browser shows may talk to the model or look at prompts.
    params.cors_origins = ""
    params.ui = False
    params.endpoint_slots = False
    params.n_parallel = options.slots
    params.n_ctx = options.context * options.slots
    params.fit_params = False  # never less context than was asked for
    params.cont_batching = True
    params.cache_prompt = True
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.use_jinja = True
    return xllamacpp.Server(params)


if __name__ == "__main__":
    main()
