"""What the gateway of an attempt adds to a call: the same requests with it and without.

`python -m benchmarks.agents` asks an endpoint on loopback that answers at once, directly and by
way of a gateway, one call after the other and sixteen at a time. Both are asked by turns, so that
other load on the machine meets both. Each call by way of the gateway is
a new one: it is looked up, has the library put in and is on the disk before it is handed on.
Client, gateway and endpoint are one process: the difference of its CPU time is the gateway's.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import httpx2 as httpx

from tfgrpo.agents.gateway import Gateway
from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Context, Sampling
from tfgrpo.domains.verifier import Verifier
from tfgrpo.model.client import CallConditions, Calls
from tfgrpo.model.endpoint import Endpoint
from tfgrpo.store import ROOT, Store
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.records import Experience, Library

CALLS = 800
TURNS = 20
LESSONS = Library(
    ROOT, tuple(Experience(f"e{n}", f"Lesson {n}: " + "word " * 20, 0) for n in range(30))
)
BODY = {
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "8 days."},
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 900, "completion_tokens": 5, "total_tokens": 905},
}


class Spans(NamedTuple):
    """The milliseconds of each call, and those of the CPU for one."""

    calls: list[float]
    cpu: float


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request at once."""
    answer = json.dumps(BODY).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    try:
        while True:
            request = await reader.readuntil(b"\r\n\r\n")
            lines = [line.partition(b":") for line in request.lower().split(b"\r\n")]
            length = next(int(value) for name, _, value in lines if name == b"content-length")
            await reader.readexactly(length)
            writer.write(head % len(answer) + answer)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def _timed(url: str, key: str, label: str, together: int) -> Spans:
    """Returns how long calls took."""
    spans: list[float] = []
    before = time.process_time()
    async with httpx.AsyncClient(timeout=60, headers={"authorization": f"Bearer {key}"}) as client:
        numbers = iter(range(CALLS // TURNS))

        async def one_after_the_other() -> None:
            for number in numbers:
                body: dict[str, Any] = {
                    "model": "m",
                    "messages": [
                        {"role": "system", "content": "You are an agent. " * 50},
                        {"role": "user", "content": f"{label}, call {number}"},
                    ],
                }
                began = time.perf_counter()
                (await client.post(f"{url}/chat/completions", json=body)).raise_for_status()
                spans.append((time.perf_counter() - began) * 1000)

        await asyncio.gather(*(one_after_the_other() for _ in range(together)))
    return Spans(spans, (time.process_time() - before) * 1000 * TURNS / CALLS)


def _joined(turns: list[Spans]) -> Spans:
    """Returns the calls of all turns."""
    calls = [one for turn in turns for one in turn.calls]
    return Spans(calls, statistics.fmean(turn.cpu for turn in turns))


async def _measure(folder: Path) -> list[tuple[str, Spans]]:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    rows = []
    with Store.init(folder / "store.db") as store, Verifier(workers=1, seconds=5) as verifier:
        journal = Journal(store.port.records.writer())
        endpoint = Endpoint("m", url, "key", 30.0)
        calls = Calls(endpoint, journal, store.runs, CallConditions("bench"))
        gateway = Gateway()
        await gateway.start()
        context = Context(
            Problem("p", "q"), (("user", "q"),), calls, calls, verifier, Sampling(), 0, (0, "p"),
            library=LESSONS,
        )  # fmt: skip
        desk = gateway.admit(context)
        for together in (1, 16):
            bare, through = [], []
            for turn in range(TURNS + 1):  # the first warms up
                bare.append(await _timed(url, "key", f"bare {together} {turn}", together))
                label = f"gateway {together} {turn}"
                through.append(await _timed(desk.openai_url, desk.token, label, together))
            rows += [
                (f"bare, {together} at a time", _joined(bare[1:])),
                (f"gateway, {together} at a time", _joined(through[1:])),
            ]
        await gateway.close()
        await endpoint.close()
        journal.close()
    server.close()
    return rows


def main() -> None:
    """Prints the table of `RESULTS-agents.md`."""
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(_measure(Path(folder)))
    print(
        "| calls | fastest tenth, ms | median, ms | p99, ms | CPU a call, ms |\n"
        "|---|---|---|---|---|"
    )
    for place, (label, (spans, cpu)) in enumerate(rows):
        cuts = statistics.quantiles(spans, n=100)
        print(f"| {label} | {cuts[9]:.2f} | {cuts[49]:.2f} | {cuts[98]:.2f} | {cpu:.2f} |")
        if place % 2:
            bare = statistics.quantiles(rows[place - 1][1].calls, n=100)
            ratios = " | ".join(f"{cuts[n] / bare[n]:.1f} ×" for n in (9, 49, 98))
            print(f"| the ratio | {ratios} | {cpu / rows[place - 1][1].cpu:.1f} × |")


if __name__ == "__main__":
    main()
