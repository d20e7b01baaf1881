"""The process that holds the weights: `python -m tfgrpo.local.model_process --model … --port 0`.

It says where it listens in a line of JSON. It answers to the key alone, the first line of its
standard input. It outlives no parent: standard input ends with it, and its process id is watched,
as a forked sibling may hold the pipe (PR_SET_PDEATHSIG fires when the starting thread ends). It
ignores SIGINT: on Ctrl-C the parent finishes what is in flight, then stops it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

_HOST = "127.0.0.1"
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
    return parser.parse_args(argv)


def read_key() -> str:
    """The first line of standard input: the key that requests have to bring."""
    line = b""
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode("ascii")


def end_with_parent(parent: int) -> None:
    """End this process when standard input ends or `parent` is not ours."""

    def read_to_end() -> None:
        while os.read(0, 1 << 16):  # sys.stdin's lock would break an exit by the main thread
            pass
        os._exit(0)

    def watch_parent() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_SECONDS)
        os._exit(0)

    threading.Thread(target=read_to_end, daemon=True).start()
    threading.Thread(target=watch_parent, daemon=True).start()


def main() -> None:
    """Serve until the parent ends or closes our standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = arguments()
    key = read_key()
    end_with_parent(options.parent)
    announce = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        server = _start(options, key)
    except (RuntimeError, OSError) as error:  # the engine's; it has logged why
        sys.exit(str(error))
    port = int(server.listening_address.rsplit(":", 1)[1])
    with announce:
        announce.write(json.dumps({"port": port}) + "\n")
    threading.Event().wait()


def _start(options: argparse.Namespace, key: str) -> Any:
    import xllamacpp  # it has no types

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.alias}
    params.hostnames = [_HOST]
    params.port = options.port
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
