"""Four endpoints, one slow and one dead: what a fleet makes of them beside round-robin.

A process of its own serves three addresses, each with room for so many requests at once and a
cache of the last prompts that it has read, and leaves a fourth address closed. 100 problems are
attempted 5 times each, twice over. *Round-robin* gives each call to the next endpoint that
answers, whatever it has cached or to do; the rest (pacing, pauses, trying again) is the same.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

FAST, SLOW = 0.08, 0.8
ROOM = 16
CACHE = 60
PROBLEMS, SAMPLES, EPOCHS = 100, 5, 2
WAYS = {"fleet": "by prompt and load", "round": "round-robin"}


def measure(most: int) -> list[str]:
    """Measures both ways."""
    figures = {}
    for way in WAYS:
        command = [sys.executable, "-m", "benchmarks.scale_endpoints", way]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        figures[way] = json.loads(done.stdout)
    lines = [
        f"{EPOCHS * PROBLEMS * SAMPLES:,} calls: two endpoints that answer in {FAST * 1e3:.0f} ms, "
        f"one in {SLOW * 1e3:.0f} ms, one where nobody is; each takes {ROOM} at once, and has the "
        f"last {CACHE} prompts cached.",
        "",
        "| choice | calls/s | prompts found cached | tries of the dead | answered by each |",
        "|---|---:|---:|---:|---:|",
    ]
    for way, words in WAYS.items():
        one = figures[way]
        lines.append(
            f"| {words} | {one['rate']:.0f} | {one['cached']:.0%} | {one['retries']} | "
            f"{', '.join(map(str, one['calls']))} |"
        )
    ours, other = figures["fleet"], figures["round"]
    lines += [
        "",
        f"Throughput {ours['rate'] / other['rate']:.2f} × round-robin's, prompts found cached "
        f"{ours['cached']:.0%} beside {other['cached']:.0%}.",
    ]
    return lines


async def serve(ports: list[socket.socket]) -> None:
    """Serves an endpoint on each port; the last is slow."""
    for number, port in enumerate(ports):
        seconds = SLOW if number == len(ports) - 1 else FAST
        cache: OrderedDict[str, None] = OrderedDict()

        async def answer(
            reader: asyncio.StreamReader,
            writer: asyncio.StreamWriter,
            seconds: float = seconds,
            cache: OrderedDict[str, None] = cache,
        ) -> None:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            prompt = json.dumps(json.loads(await reader.readexactly(length))["messages"])
            cached = 180 if prompt in cache else 0
            cache[prompt] = None
            cache.move_to_end(prompt)
            if len(cache) > CACHE:
                cache.popitem(last=False)
            await asyncio.sleep(seconds)
            usage = {"prompt_tokens": 200, "completion_tokens": 9}
            usage["prompt_tokens_details"] = {"cached_tokens": cached}  # type: ignore[assignment]
            message = {"role": "assistant", "content": "fine"}
            choices = [{"index": 0, "finish_reason": "stop", "message": message}]
            body = json.dumps({"choices": choices, "usage": usage}).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%s" % (len(body), body)
            )
            await writer.drain()
            writer.close()

        await asyncio.start_server(answer, sock=port)
    await asyncio.Event().wait()


def work(way: str, addresses: list[str]) -> dict[str, Any]:
    """Makes the calls in one way."""
    from tfgrpo.model import client, fleet
    from tfgrpo.model.endpoint import Endpoint, Request
    from tfgrpo.store import Store
    from tfgrpo.store.activity.journal import Journal

    class RoundRobin(fleet.Fleet):
        turn = 0

        def choose(self, prompt: bytes, avoid: fleet.Member | None = None) -> fleet.Member:
            fit = [m for m in self.members if m.throttle.takes and m is not avoid]
            fit = fit or [m for m in self.members if m.throttle.healthy] or list(self.members)
            self.turn += 1
            return fit[self.turn % len(fit)]

        def leave(self, member: fleet.Member) -> None:
            member.throttle.leave()

    if way == "round":
        client.Fleet = RoundRobin  # type: ignore[misc]
    listed = [fleet.FleetEndpoint(Endpoint("m", address), ROOM) for address in addresses]
    with tempfile.TemporaryDirectory() as folder, Store.init(Path(folder) / "s.db") as store:
        journal = Journal(store.port.records.writer())
        calls = client.Calls(
            listed[0].endpoint, journal, store.runs, client.CallConditions("b", fleet=listed)
        )

        async def run() -> float:
            started = time.perf_counter()
            for epoch in range(EPOCHS):
                async with asyncio.TaskGroup() as group:
                    for problem in range(PROBLEMS):
                        text = f"the library, and problem {problem}"
                        request = Request("rollout", (("user", text),), 0.7, 64)
                        for sample in range(SAMPLES):
                            group.create_task(calls.ask(request, call_path=(epoch,), sample=sample))
            for one in listed:
                await one.endpoint.close()
            return time.perf_counter() - started

        seconds = asyncio.run(run())
        journal.close()
    members = calls.fleet.members
    return {
        "rate": EPOCHS * PROBLEMS * SAMPLES / seconds,
        "cached": calls.meter.cached_tokens / calls.meter.prompt_tokens / 0.9,
        "retries": calls.meter.retries,
        "calls": [member.calls for member in members],
    }


def main(way: str) -> None:
    """Starts the server, and measures one way against it."""
    if way == "serve":
        ports = [socket.socket(fileno=int(number)) for number in sys.argv[2:]]
        asyncio.run(serve(ports))
        return
    ports = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(3)]
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = closed.getsockname()[1]
    numbers = [port.fileno() for port in ports]
    command = [sys.executable, "-m", "benchmarks.scale_endpoints", "serve", *map(str, numbers)]
    with subprocess.Popen(command, pass_fds=numbers) as server:
        try:
            listening = [port.getsockname()[1] for port in ports] + [dead]
            print(json.dumps(work(way, [f"http://127.0.0.1:{port}/v1" for port in listening])))
        finally:
            server.terminate()


if __name__ == "__main__":
    main(sys.argv[1])
