"""The client's connections at 128 in flight: today's pool, other settings of it, and aiohttp.

Each way sends the same requests to an instant endpoint through the same `Endpoint`, in a process
of its own, in turns; the median of the turns counts. Every request has a connection of its own,
as it has today: one that is kept may hold what answers no request of ours.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.scheduler import CONCURRENCY, instant, warm

CALLS = 600
TURNS = 3
WAYS = {
    "today": "one pool of httpx",
    "unlimited": "no limit of connections, none kept idle",
    "parts": "eight pools, taken in turn",
    "aiohttp": "`DefaultAioHttpClient` (`openai[aiohttp]`)",
}


READING = (
    "aiohttp takes six tenths of the time and is not taken: of 172 tests of endpoints, responses "
    "and addresses 13 fail over it (`openai` 3.54, aiohttp 3.14). It goes on using a connection "
    "that was asked to be closed, which is part of what it saves: a second response on it becomes "
    "the next request's answer, and a request on one that the server has closed fails. That, a "
    "refused connection and a certificate that is not trusted are all told as a connection that "
    "took too long. Other settings of the pool, and several pools, are within what turns differ by."
)
"""What follows from the figures."""


def measure(most: int) -> list[str]:
    """Measures every way; aiohttp where `openai[aiohttp]` is installed."""
    has_aiohttp = importlib.util.find_spec("httpx_aiohttp") is not None
    ways = {way: words for way, words in WAYS.items() if way != "aiohttp" or has_aiohttp}
    figures: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with instant() as address:
        for _ in range(TURNS):
            for way in ways:
                command = [sys.executable, "-m", "benchmarks.scale_http", way, address]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                figures[way].append(json.loads(done.stdout))
    lines = [
        f"{CALLS:,} calls, {CONCURRENCY} in flight, median of {TURNS} turns; CPU time of the "
        "client's process.",
        "",
        "| way | CPU a call | beside today's | calls/s |",
        "|---|---:|---:|---:|",
    ]
    today = statistics.median(one["cpu"] for one in figures["today"])
    for way, words in ways.items():
        cpu = statistics.median(one["cpu"] for one in figures[way])
        seconds = statistics.median(one["seconds"] for one in figures[way])
        each, rate = cpu / CALLS * 1e3, CALLS / seconds
        lines.append(f"| {words} | {each:.2f} ms | {cpu / today:.2f} × | {rate:,.0f} |")
    return [*lines, "", READING]


def client_of(way: str, address: str) -> Any:
    """Returns a client of that kind, set up as the product's own."""
    import openai

    from tfgrpo.model import http_connection
    from tfgrpo.model import response as responses

    where = http_connection.Connection(address)
    transport = http_connection._transport(where, 60.0)
    hooks: dict[str, list[Any]] = {"response": [responses.read_body]}
    kind: Any = openai.DefaultAsyncHttpxClient
    if way == "unlimited":
        library: Any = importlib.import_module(kind.__mro__[1].__module__.split(".")[0])
        transport["limits"] = library.Limits(max_connections=None, max_keepalive_connections=0)
    if way == "aiohttp":
        kind = openai.DefaultAioHttpClient
    client = kind(**transport, event_hooks=hooks)
    return openai.AsyncOpenAI(http_client=client, **http_connection._client(where, 60.0))


async def run(way: str, address: str) -> float:
    """Sends the calls; returns the seconds that they take."""
    from tfgrpo.model.endpoint import Endpoint, Request

    endpoints = [Endpoint("instant", address) for _ in range(8 if way == "parts" else 1)]
    for endpoint in endpoints:
        endpoint._client = client_of(way, address)
        await warm(endpoint)
    slots = asyncio.Semaphore(CONCURRENCY)

    async def one(number: int) -> None:
        request = Request("rollout", (("user", f"What is {number} op 3?"),), 0.7, 64)
        async with slots:
            await endpoints[number % len(endpoints)].ask(request)

    started, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for number in range(CALLS):
            group.create_task(one(number))
    figures = {"seconds": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    for endpoint in endpoints:
        await endpoint.close()
    print(json.dumps(figures))
    return figures["seconds"]


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], sys.argv[2]))
