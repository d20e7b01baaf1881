"""What a `kill -9` costs a training: one command, one table.

    python -m benchmarks.kills [--kills N] [--medians SECONDS …] [--write]

A training with 128 calls in flight is killed at random moments, each time in a new store. The
endpoint notes when it has sent the last byte of each answer, and the training when it hands one
to its journal. *Lost* are answers that had reached the training before the kill and are not in
the journal after it; *unread* are those that had not reached it, for its process had not come to
read them: both would be asked for, and paid for, again. `--write` puts the table into
`RESULTS-kills.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import instant, scheduler
from benchmarks.machine import busy_machine

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS-kills.md"
CONCURRENCY = 128
MEDIANS = (1.0, 0.0)
"""Seconds that half of the answers take at least: of a fast model, and of none at all."""
ROLLOUTS = 2_000
COUNT = "count"


class Endpoint:
    """An endpoint in a thread, that notes when it has sent each answer."""

    def __init__(self, median: float) -> None:
        self.sent: list[float] = []
        self._loop = asyncio.new_event_loop()
        self._port: int | None = None
        ready = threading.Event()
        threading.Thread(target=self._serve, args=(median, ready), daemon=True).start()
        ready.wait()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _serve(self, median: float, ready: threading.Event) -> None:
        head, tail = instant.body(50)
        waits = instant.latencies(20_000, median, 0.6) if median else []
        endpoint = self

        class Server(instant.Server):
            """Notes when an answer is on its way, among those of the present training."""

            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                super().connection_made(transport)
                self._sent = endpoint.sent

            def send(self, answer: bytes) -> None:
                super().send(answer)
                self._sent.append(time.monotonic())

        asyncio.set_event_loop(self._loop)
        made = self._loop.create_server(lambda: Server(head, tail, waits, [0]), "127.0.0.1", 0)
        server = self._loop.run_until_complete(made)
        self._port = server.sockets[0].getsockname()[1]
        ready.set()
        self._loop.run_forever()


def count_calls(file: Path) -> None:
    """Counts in a file, without waiting for the disk, what is handed to this process's journal."""
    from tfgrpo.store.activity import journal

    with file.open("wb") as opened:
        opened.truncate(mmap.PAGESIZE)
    with file.open("r+b") as opened:
        shared = mmap.mmap(opened.fileno(), mmap.PAGESIZE)
    append, count = journal.Journal.append, 0

    async def counted(self: Any, call: Any) -> None:
        nonlocal count
        count += 1
        struct.pack_into("q", shared, 0, count)
        await append(self, call)

    journal.Journal.append = counted  # type: ignore[method-assign]


def train(base_url: str, folder: str) -> None:
    """Trains in this process until it is killed."""
    rows = [{"problem": p.problem, "answer": p.answer} for p in scheduler.problems(ROLLOUTS)]
    data = Path(folder) / "problems.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    count_calls(Path(folder) / COUNT)
    from tfgrpo.cli.main import main

    sys.argv = ["tfgrpo", "--store", str(Path(folder) / "store.db"), "train", str(data)]
    sys.argv += ["--base-url", base_url, "--model", "scripted", "--batch-size", str(len(rows))]
    sys.argv += ["--group-size", str(scheduler.GROUP), "--concurrency", str(CONCURRENCY)]
    main()


def journalled(path: Path) -> int:
    """Returns how many calls a store's journal has."""
    from tfgrpo.store import Store

    with Store.open(path) as store:
        return sum(one.usage.calls for one in store.runs.spent())


@contextmanager
def child(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a part of this benchmark in a process of its own, and ends it."""
    command = [sys.executable, "-m", "benchmarks.kills", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lost(endpoint: Endpoint, moment: float) -> tuple[int, int]:
    """Kills a training so many seconds after its first answer; returns lost and unread answers."""
    endpoint.sent = sent = []
    with tempfile.TemporaryDirectory(prefix="tfgrpo-kills-") as folder:
        with child("--train", endpoint.base_url, folder) as process:
            while not sent:
                assert process.poll() is None, "the training has ended"
                time.sleep(0.005)
            time.sleep(moment)
            killed = time.monotonic()
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        answered = sum(when < killed for when in sent)
        (read,) = struct.unpack_from("q", (Path(folder) / COUNT).read_bytes())
        return read - journalled(Path(folder) / "store.db"), max(0, answered - read)


def table(medians: Sequence[float], kills: int) -> Iterator[str]:
    """Yields the results, as Markdown."""
    chance = random.Random(7)
    yield "| answers of a kill | kills | lost, mean | most | none lost | unread, mean |"
    yield "|---|---:|---:|---:|---:|---:|"
    for median in medians:
        endpoint = Endpoint(median)
        counts = [lost(endpoint, chance.uniform(0.3, 2.5)) for _ in range(kills)]
        endpoint.close()
        print(median, counts, file=sys.stderr)
        latency = f"half of them within {median:g} s" if median else "at once"
        gone = [one for one, _ in counts]
        unread = statistics.mean(one for _, one in counts)
        yield (
            f"| {latency} | {kills} | {statistics.mean(gone):.2f} | {max(gone)} | "
            f"{gone.count(0)} | {unread:.1f} |"
        )


def main() -> None:
    """Runs the benchmark, or one part of it in a child."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30, help="for each latency")
    parser.add_argument("--medians", type=float, nargs="+", default=MEDIANS, help="latencies")
    parser.add_argument("--write", action="store_true", help="write RESULTS-kills.md")
    parser.add_argument("--train", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(*given.train)
        return
    machine = busy_machine()
    lines = list(table(given.medians, given.kills))
    print("\n".join(lines))
    if given.write:
        head = f"# Kills\n\n`python -m benchmarks.kills --write` on {machine}.\n\n"
        RESULTS.write_text(head + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
