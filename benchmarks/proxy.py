"""What the proxy adds beside no proxy, a bare asyncio proxy and LiteLLM: one command, one table.

    python -m benchmarks.proxy [--quick] [--litellm FOLDER] [--before FOLDER] [--long]
        [--minutes N] [--write]

A provider that answers at once, each proxy, and the load have processes of their own, on
loopback. The request has 3.6 kB, the library that our proxy puts in 5 kB, and the call is recorded.
The *bare* proxy is asyncio (uvloop) and forty lines: it reads one request, sends it on, and reads
one answer, understanding nothing. All are asked in turn, round after round, so that other load on
the machine meets each alike; what a proxy adds is its figure less that of no proxy. CPU is the
proxy's own, of all its threads, for one request: the figure that other load changes least.
`--litellm` is a folder for an environment with `litellm[proxy]`, which is made where there is none;
LiteLLM is asked a tenth as often, for it takes as much longer. `--long` makes 200,000 requests and
says what memory does; `--write` puts the table into `RESULTS-proxy.md`. All of it takes some four
minutes on an idle machine; what is going on is said on the way, no round of one of them takes
longer than a minute, and after `--minutes` no further round begins.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).with_name("RESULTS-proxy.md")
CONCURRENT = 32
PATIENCE = 15.0
"""Seconds after which one kind of requests to one of them ends, in each round."""
START = 300.0
"""Seconds in which a program has to say its port."""
PATH = b"/v1/chat/completions"
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "Both days count. " * 20},
            }
        ],
        "usage": {"prompt_tokens": 900, "completion_tokens": 80, "total_tokens": 980},
    }
).encode()
EVENTS = [
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":['
    b'{"index":0,"delta":{"content":"word %d "},"finish_reason":null}]}\n\n' % number
    for number in range(20)
] + [b"data: [DONE]\n\n"]
TARGETS = ("no proxy", "bare asyncio proxy", "tfgrpo proxy", "with 2 workers", "LiteLLM")


def request(kilobytes: float = 3.6, *, stream: bool = False) -> bytes:
    """Returns a request whose body has about so many kilobytes."""
    body = json.dumps(
        {
            "model": "m",
            "stream": stream,
            "temperature": 0.7,
            "messages": [
                {"role": "system", "content": "You answer customers of a bike hire. " * 10},
                {"role": "user", "content": "How much is it? " * round(kilobytes * 58)},
            ],
        }
    ).encode()
    return (
        b"POST %b HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer sk-1234\r\nAccept: */*\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (PATH, len(body))
    ) + body


class _Reader(asyncio.Protocol):
    """Calls `message` with each whole HTTP message, its body in plain length or in chunks."""

    def __init__(self) -> None:
        self.pending = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pending += data
        while (end := self.pending.find(b"\r\n\r\n")) >= 0:
            head = bytes(self.pending[: end + 2]).lower()
            at = head.find(b"\r\ncontent-length:")
            if at >= 0:
                end += 4 + int(head[at + 17 : head.index(b"\r\n", at + 17)])
            elif b"chunked" in head:
                stop = self.pending.find(b"\r\n0\r\n\r\n", end)
                end = len(self.pending) + 1 if stop < 0 else stop + 7
            else:
                end += 4  # a question without a body
            if len(self.pending) < end:
                return
            whole = bytes(self.pending[:end])
            del self.pending[:end]
            self.message(whole)

    def message(self, whole: bytes) -> None:
        raise NotImplementedError


class _Provider(_Reader):
    def message(self, whole: bytes) -> None:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: "
        if b'"stream": true' in whole or b'"stream":true' in whole:
            chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in [*EVENTS, b""]]
            head += b"text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            self.transport.write(head + chunks[0])
            asyncio.get_running_loop().call_later(0.005, self.transport.write, b"".join(chunks[1:]))
            return
        head += b"application/json\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
        self.transport.write(head + ANSWER)


class _Bare(_Reader):
    upstream = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.far: asyncio.Transport | None = None

    def message(self, whole: bytes) -> None:
        if self.far is not None:
            self.far.write(whole)
        else:
            asyncio.get_running_loop().create_task(self._connect(whole))

    async def _connect(self, whole: bytes) -> None:
        near = self.transport

        class Far(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                near.write(data)

        loop = asyncio.get_running_loop()
        self.far, _ = await loop.create_connection(Far, "127.0.0.1", self.upstream)
        self.far.write(whole)


def serve(role: str, upstream: int) -> None:
    """Runs the provider or the bare proxy, and prints its port."""
    import uvloop

    async def main() -> None:
        _Bare.upstream = upstream
        server = await asyncio.get_running_loop().create_server(
            {"provider": _Provider, "bare": _Bare}[role], "127.0.0.1", 0
        )
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()

    uvloop.run(main())


class _Client(_Reader):
    """Asks, and waits for the whole answer; `first` is when its first byte came."""

    first = 0.0
    waiting: asyncio.Future[bytes]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.waiting = asyncio.get_running_loop().create_future()
        self.waiting.cancel()  # nothing is asked yet

    def data_received(self, data: bytes) -> None:
        if not self.first:
            self.first = time.perf_counter()
        super().data_received(data)

    def message(self, whole: bytes) -> None:
        if not self.waiting.done():
            self.waiting.set_result(whole)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.waiting.done():
            self.waiting.set_exception(error or ConnectionResetError("closed without an answer"))

    async def ask(self, wire: bytes) -> bytes:
        self.first = 0.0
        self.waiting = asyncio.get_running_loop().create_future()
        self.transport.write(wire)
        async with asyncio.timeout(60):
            return await self.waiting


async def client(port: int) -> _Client:
    _, made = await asyncio.get_running_loop().create_connection(_Client, "127.0.0.1", port)
    return made


class Sizes(NamedTuple):
    """How many rounds, requests in one, requests at 32 at once, streams and large bodies."""

    rounds: int
    requests: int
    burst: int
    streams: int
    large: int


class Running(NamedTuple):
    """What is measured: its name, port and process."""

    name: str
    port: int
    process: int


class Measured:
    """The figures of one of them: seconds, and requests a second."""

    def __init__(self) -> None:
        self.latency: list[float] = []
        self.slowest: list[float] = []
        """The p99 of each round."""
        self.rates: list[float] = []
        self.first: list[float] = []
        self.large: list[float] = []
        self.cpu = 0.0
        self.asked = 0
        self.identical = True
        self.memory = 0.0


def say(line: str) -> None:
    """Says what is going on."""
    print(line, file=sys.stderr, flush=True)


async def measure(targets: list[Running], sizes: Sizes, minutes: float) -> dict[str, Measured]:
    """Asks each in turn, round after round, for so many minutes at most."""
    found = {target.name: Measured() for target in targets}
    plain, streamed, large = request(), request(stream=True), request(1000)
    for target in targets:  # warm
        one = await client(target.port)
        for _ in range(20):
            await one.ask(plain)
        one.transport.close()
    began = time.monotonic()
    for number in range(sizes.rounds):
        if time.monotonic() - began > 60 * minutes:
            say(f"the minutes are over after {number} rounds of {sizes.rounds}")
            break
        for target in targets:
            since = time.monotonic()
            await _round(target, found[target.name], sizes, (plain, streamed, large))
            took = time.monotonic() - since
            say(f"round {number + 1} of {sizes.rounds}: {target.name}, {took:.1f} s")
    return found


async def _round(
    target: Running, into: Measured, sizes: Sizes, wires: tuple[bytes, bytes, bytes]
) -> None:
    plain, streamed, large = wires
    slow = 10 if target.name == "LiteLLM" else 1
    one = await client(target.port)
    cpu, asked = cpu_of(target.process), 0

    def times(most: int) -> Iterator[int]:
        """Counts up to `most`, or for as long as there is patience."""
        end = time.monotonic() + PATIENCE
        for number in range(max(1, most)):
            if number and time.monotonic() > end:
                return
            yield number

    for _ in times(sizes.requests // slow):
        began = time.perf_counter()
        await one.ask(plain)
        into.latency.append(time.perf_counter() - began)
        asked += 1
    into.slowest.append(at(into.latency[-asked:], 0.99))
    many = [await client(target.port) for _ in range(CONCURRENT)]
    each = max(1, sizes.burst // CONCURRENT // slow)

    async def work(which: _Client) -> int:
        answered = 0
        for _ in times(each):
            await which.ask(plain)
            answered += 1
        return answered

    began = time.perf_counter()
    burst = sum(await asyncio.gather(*(work(which) for which in many)))
    into.rates.append(burst / (time.perf_counter() - began))
    into.cpu += cpu_of(target.process) - cpu
    into.asked += asked + burst
    for _ in times(sizes.streams):
        fresh = await client(target.port)
        began = time.perf_counter()
        whole = await fresh.ask(streamed)
        into.first.append(fresh.first - began)
        body = whole.partition(b"\r\n\r\n")[2]
        chunks = re.findall(rb"[0-9a-fA-F]+\r\n(data: .*?\n\n)\r\n", body, re.S)
        into.identical &= b"".join(chunks) == b"".join(EVENTS)
        fresh.transport.close()
    one.transport.close()  # which has been idle for long, and may be closed already
    one = await client(target.port)
    await one.ask(plain)
    for _ in times(sizes.large):
        began = time.perf_counter()
        await one.ask(large)
        into.large.append(time.perf_counter() - began)
    into.memory = max(into.memory, memory_of(target.process))
    for which in (one, *many):
        which.transport.close()


def family_of(process: int) -> list[int]:
    """Returns a process and its children: of several workers, each is one."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(one for child in children for one in family_of(int(child)))]


def cpu_of(process: int) -> float:
    """Returns the CPU seconds that a process and its children have used, threads included."""
    total = 0
    for one in family_of(process):
        fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def memory_of(process: int) -> float:
    """Returns the resident memory of a process and its children in megabytes: what they share is
    counted in each."""
    total = 0
    for one in family_of(process):
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{one}/status").read_text())
        total += int(found[1]) if found else 0
    return total / 1024


@contextmanager
def started(command: list[str], pattern: str, *, folder: Path, **env: str) -> Iterator[Running]:
    """Starts a process that says its port in a line, and ends it. What it says later is read too:
    a program that logs each request would stand still with a full pipe."""
    said: list[str] = []
    port: Future[int] = Future()

    def read(lines: Iterable[str]) -> None:
        for line in lines:
            said.append(line)
            del said[:-20]
            if not port.done() and (found := re.search(pattern, line)):
                port.set_result(int(found[1]))
        if not port.done():
            port.set_exception(EOFError("it ended"))

    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=folder,
        env={**os.environ, **env},
    ) as process:
        assert process.stdout is not None
        threading.Thread(target=read, args=(process.stdout,), daemon=True).start()
        try:
            yield Running("", port.result(START), process.pid)
        except (EOFError, TimeoutError) as error:
            if port.done() and port.exception() is None:
                raise
            last = "".join(said)
            raise SystemExit(f"{command[0]} did not start: {error!r}\n{last}") from None
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def library(folder: Path) -> None:
    """Makes a store whose library has about 5 kB."""
    from tfgrpo.store import Operation, Store

    with Store.init(folder / ".tfgrpo/store.db") as store:
        store.commit(
            "main",
            [
                Operation("ADD", text=f"Rule {n}: " + "count both the first and last day. " * 4)
                for n in range(34)
            ],
            message="rules",
        )


LITELLM = """model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "http://127.0.0.1:{port}/v1", api_key: sk-1}}
"""


def environment(folder: Path) -> Path:
    """Returns LiteLLM's command in an environment of its own, which is made where there is none."""
    command = folder / "bin/litellm"
    if not command.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(folder / "bin/python"), "-m", "pip", "install", "-q", "litellm[proxy]"]
        subprocess.run(install, check=True)
    return command


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def all_targets(
    folder: Path, litellm: str | None, before: str | None = None
) -> Iterator[list[Running]]:
    """Starts the provider and all proxies before it; `before` is a folder with another tfgrpo."""
    library(folder)
    here = [sys.executable, os.path.abspath(__file__)]
    with ExitStack() as stack:
        provider = stack.enter_context(
            started([*here, "--serve", "provider"], r"^(\d+)$", folder=folder)
        )
        port = str(provider.port)
        bare = stack.enter_context(
            started([*here, "--serve", "bare", "--upstream", port], r"^(\d+)$", folder=folder)
        )
        tfgrpo = str(Path(sys.executable).with_name("tfgrpo"))
        url = f"http://127.0.0.1:{port}/v1"
        pattern = r":(\d+)/v1, asking"
        command = [tfgrpo, "proxy", "--port", "0", "--upstream", url]
        ours = stack.enter_context(started(command, pattern, folder=folder))
        two = stack.enter_context(started([*command, "--workers", "2"], pattern, folder=folder))
        found = dict(zip(TARGETS, (provider, bare, ours, two), strict=False))
        if before:
            own = folder / "before"  # another version may read no record of this one
            own.mkdir()
            library(own)
            other = started(command, pattern, folder=own, PYTHONPATH=os.path.abspath(before))
            found["the one before"] = stack.enter_context(other)
        if litellm:
            (folder / "litellm.yaml").write_text(LITELLM.format(port=port))
            say("starting LiteLLM, which takes a while")
            command = [str(environment(Path(litellm).absolute())), "--config", "litellm.yaml"]
            one = started(
                [*command, "--port", str(free_port())],
                r"running on http://\S+:(\d+)",
                folder=folder,
                PYTHONUNBUFFERED="1",
                LITELLM_LOCAL_MODEL_COST_MAP="True",
                LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY="true",
            )
            found[TARGETS[-1]] = stack.enter_context(one)
        yield [one._replace(name=name) for name, one in found.items()]


def at(values: list[float], share: float) -> float:
    """Returns a quantile of measurements."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def table(found: dict[str, Measured]) -> list[str]:
    """Returns the figures as a Markdown table, with the goals of our proxy."""
    direct = found["no proxy"]
    head = ("", *found, "goal")

    def row(name: str, goal: str, cell: Callable[[Measured], str]) -> tuple[str, ...]:
        return (name, *(cell(one) for one in found.values()), goal)

    def added(kind: str, share: float) -> Callable[[Measured], str]:
        base = at(getattr(direct, kind), share)
        return lambda one: (
            f"{base * 1e3:.3f} ms"
            if one is direct
            else f"{(at(getattr(one, kind), share) - base) * 1e3:+.3f} ms"
        )

    rows = [
        row("latency, median", "+0.20 ms", added("latency", 0.5)),
        row("latency, fastest tenth", "", added("latency", 0.1)),
        row("latency, p99", "+0.40 ms", added("latency", 0.99)),
        row("latency, p99 of a round, median of the rounds", "", added("slowest", 0.5)),
        row(
            f"requests/s at {CONCURRENT} at once, best round",
            "5,000",
            lambda one: f"{max(one.rates):,.0f}",
        ),
        row(
            "CPU a request",
            "",
            lambda one: "" if one is direct else f"{one.cpu / one.asked * 1e3:.3f} ms",
        ),
        row("first event of a stream, new connection", "+1 ms", added("first", 0.5)),
        row("events identical to the byte", "yes", lambda one: "yes" if one.identical else "no"),
        row("1 MB body, median", "+3 ms", added("large", 0.5)),
        row("memory", "80 MB", lambda one: "" if one is direct else f"{one.memory:.0f} MB"),
    ]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return lines + ["| " + " | ".join(cells) + " |" for cells in rows]


async def long(target: Running, requests: int) -> list[tuple[int, float]]:
    """Makes many requests, and returns how much memory the proxy has on the way, in megabytes."""
    clients = [await client(target.port) for _ in range(CONCURRENT)]
    wire, seen, done = request(), [(0, memory_of(target.process))], 0
    while done < requests:

        async def work(one: _Client) -> None:
            for _ in range(requests // 10 // CONCURRENT):
                await one.ask(wire)

        await asyncio.gather(*map(work, clients))
        done += requests // 10 // CONCURRENT * CONCURRENT
        seen.append((done, memory_of(target.process)))
        say(f"{done:,} requests, {seen[-1][1]:.0f} MB")
    return seen


def main() -> None:
    """Measures, and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few seconds")
    parser.add_argument("--litellm", help="a folder for an environment with litellm[proxy]")
    parser.add_argument("--before", help="a folder with another tfgrpo package, measured beside")
    parser.add_argument("--long", action="store_true", help="200,000 requests, for memory")
    parser.add_argument("--minutes", type=float, default=15, help="no round begins after them (15)")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--serve", choices=["provider", "bare"], help=argparse.SUPPRESS)
    parser.add_argument("--upstream", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.upstream)
        return
    import uvloop

    from benchmarks.machine import busy_machine  # what it serves with has no such package

    sizes = Sizes(3, 200, 640, 5, 3) if options.quick else Sizes(10, 1000, 6400, 20, 10)
    with (
        tempfile.TemporaryDirectory() as folder,
        all_targets(Path(folder), options.litellm, options.before) as targets,
    ):
        load, where = os.getloadavg()[0], busy_machine()
        lines = table(uvloop.run(measure(targets, sizes, options.minutes)))
        lines += ["", f"{where} of other programs when it began."]
        if load > (os.cpu_count() or 1):
            lines[-1] += " The machine was overloaded: compare columns, not with the goals."
        if options.long:
            seen = uvloop.run(long(targets[2], 200_000))
            lines += ["", "Memory over requests: "]
            lines[-1] += ", ".join(f"{done:,}: {mb:.0f} MB" for done, mb in seen) + "."
    page = "\n".join(["# The proxy", "", *lines]) + "\n"
    print(page)
    if options.write:
        _, mark, others = RESULTS.read_text().partition("\n## ")
        RESULTS.write_text(page + mark + others)


if __name__ == "__main__":
    main()
