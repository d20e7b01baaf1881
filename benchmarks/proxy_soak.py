"""A day of a proxy in little: many requests under reloads, kills, drains and library moves.

    python -m benchmarks.proxy_soak [--requests 200000] [--seed N] [--every 2000]

A proxy with two workers stands before a provider that says what it was asked. Clients ask without
a pause, each on a connection that is kept open. After every so many answers one of these happens:
the branch that is served moves, the settings are reloaded, a worker or the process that records its
calls is killed, or the proxy is told to end and another one takes its port. What has to hold:

- an answer is the one to its own question, and no stale one: under the version that the branch was
  at when the question was sent, or a later one;
- a drain breaks no request that the proxy has taken;
- every answered call is on record, but for those that are counted as lost with a worker that was
  killed before it could hand them over;
- memory at the end is about what it was after the first tenth.

A question whose connection breaks, or that nobody is there for, is asked again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from glob import glob
from pathlib import Path

from benchmarks.proxy import family_of, free_port, memory_of
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.traffic import ALL, CallFilter, traffic_path
from tfgrpo.store.opening import open_traffic

CLIENTS = 16
ACTS = ("move", "reload", "kill a worker", "kill a recorder", "drain")


async def provide(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers each request with its user and the rules that stood in it."""
    with suppress(OSError, asyncio.IncompleteReadError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"(?i)content-length: (\d+)", head)
            asked = json.loads(await reader.readexactly(int(found[1]) if found else 0))
            rules = [m["content"] for m in asked["messages"] if m["role"] == "system"]
            text = json.dumps({"user": asked["user"], "rules": "".join(rules)})
            choice = {"index": 0, "finish_reason": "stop", "message": {"content": text}}
            usage = {"prompt_tokens": 9, "completion_tokens": 3}
            body = json.dumps({"choices": [choice], "usage": usage}).encode()
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            )
            writer.write(head % len(body) + body)
    writer.close()


class Soak:
    """The proxy, those who ask it, and what happens to it."""

    def __init__(self, folder: Path, seed: int, upstream: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.port = free_port()
        self.upstream = upstream
        self.store = Store.init(folder / ".tfgrpo/store.db", author="soak")
        self.store.create_branch("prod")
        self.moves = 0
        """How often the branch has moved: its library says so."""
        self.answered: list[str] = []
        self.wrong: list[str] = []
        self.acts: Counter[str] = Counter()
        self.again = 0
        self.settings()
        self.proxy = self.start()

    def settings(self) -> None:
        """Writes the settings, a little other than before."""
        (self.folder / "proxy.toml").write_text(
            f'upstream = "http://127.0.0.1:{self.upstream}/v1"\nport = {self.port}\ndrain = 30\n'
            f'tags = ["t{self.random.random()}"]\n'
            '[libraries.d]\nstore = ".tfgrpo/store.db"\nrevision = "prod"\n'
        )

    def start(self) -> subprocess.Popen[str]:
        """Starts the proxy, and waits until it listens."""
        command = [str(Path(sys.executable).with_name("tfgrpo")), "proxy", "--workers", "2"]
        given = ["--upstream", f"http://127.0.0.1:{self.upstream}/v1"]
        process = subprocess.Popen(
            [*command, *given],
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        line = process.stderr.readline()
        if "listening" not in line:
            raise SystemExit(line + process.stderr.read())
        log = open(self.folder / "log", "a")  # noqa: SIM115
        asyncio.get_running_loop().run_in_executor(
            None, lambda: log.writelines(process.stderr or [])
        )
        return process

    async def ask(self, number: int, most: int) -> None:
        """Asks until there are enough answers."""
        reader: asyncio.StreamReader | None = None
        asked = 0
        while len(self.answered) < most:
            asked += 1
            user, at = f"{number}-{asked}", self.moves
            turns = [{"role": "user", "content": "?"}]
            body = json.dumps({"model": "m", "user": user, "messages": turns}).encode()
            head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            wire = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
            while True:
                try:
                    if reader is None:
                        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.write(wire)
                    head_bytes = await reader.readuntil(b"\r\n\r\n")
                    length = re.search(rb"(?i)content-length: (\d+)", head_bytes)
                    content = await reader.readexactly(int(length[1]) if length else 0)
                    break
                except (OSError, asyncio.IncompleteReadError):
                    self.again += 1
                    reader = None
                    await asyncio.sleep(0.01)
            if b"connection: close" in head_bytes.lower():
                reader = None
            self.judge(head_bytes, content, user, at)

    def judge(self, head: bytes, content: bytes, user: str, at: int) -> None:
        """Notes an answer, and whether it is wrong."""
        call = re.search(rb"X-Tfgrpo-Call: (\S+)", head)
        if not head.startswith(b"HTTP/1.1 200") or call is None:
            self.wrong.append(f"{user}: {head[:60]!r} {content[:200]!r}")
            return
        self.answered.append(call[1].decode())
        said = json.loads(json.loads(content)["choices"][0]["message"]["content"])
        if said["user"] != user:
            self.wrong.append(f"{user}: the answer to {said['user']}")
        seen = max((int(n) for n in re.findall(r"Move (\d+)\.", said["rules"])), default=0)
        if seen < at:
            self.wrong.append(f"{user}: asked at move {at}, answered under {seen}")

    async def disturb(self, every: int, most: int) -> None:
        """Does something after every so many answers."""
        due = every
        while len(self.answered) < most:
            if len(self.answered) < due:
                await asyncio.sleep(0.01)
                continue
            due += every
            act = self.random.choice(ACTS)
            self.acts[act] += 1
            print(f"{len(self.answered):,} answers: {act}", file=sys.stderr, flush=True)
            if act == "move":
                await asyncio.to_thread(self.move)
            elif act == "reload":
                self.settings()
                self.proxy.send_signal(signal.SIGHUP)
            elif act == "drain":
                self.proxy.terminate()
                await asyncio.to_thread(self.proxy.wait, 120)
                self.proxy = self.start()
            else:
                workers = [one for one in family_of(self.proxy.pid)[1:] if _is_worker(one, self)]
                if act == "kill a recorder":
                    workers = [one for worker in workers for one in family_of(worker)[1:]]
                if workers:
                    with suppress(ProcessLookupError):
                        os.kill(self.random.choice(workers), signal.SIGKILL)

    def move(self) -> None:
        """Commits to the branch that is served."""
        with Store.open(self.store.path, author="soak") as store:
            text = f"Move {self.moves + 1}."
            store.commit("prod", [Operation("ADD", text=text)], message=text)
        self.moves += 1


def until_written(traffic: str) -> None:
    """Waits until the processes that outlive killed workers have written what these had handed
    over: each has a file until then."""
    deadline = time.monotonic() + 300
    while glob(f"{traffic}-worker-*") and time.monotonic() < deadline:
        time.sleep(0.1)


def _is_worker(process: int, soak: Soak) -> bool:
    with suppress(OSError):
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return int(stat[1]) == soak.proxy.pid
    return False


async def main() -> None:
    """Soaks, and says what it came to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--every", type=int, default=2000, help="answers between two acts")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    server = await asyncio.start_server(provide, "127.0.0.1", 0)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), options.seed, server.sockets[0].getsockname()[1])
        began, memory = time.monotonic(), 0.0
        work = [soak.ask(number, options.requests) for number in range(CLIENTS)]
        asking = asyncio.gather(*work, soak.disturb(options.every, options.requests))
        while not asking.done():
            if not memory and len(soak.answered) > options.requests / 10:
                memory = memory_of(soak.proxy.pid)
            await asyncio.sleep(0.2)
        await asking
        end = memory_of(soak.proxy.pid)
        soak.proxy.terminate()
        await asyncio.to_thread(soak.proxy.wait, 120)
        await asyncio.to_thread(until_written, traffic_path(soak.store.path))
        with closing(open_traffic(traffic_path(soak.store.path))) as traffic:
            recorded = {one.call.id for one in traffic.calls(CallFilter(), ALL)}
            lost = traffic.lost()
        missing = [call for call in soak.answered if call not in recorded]
        soak.store.close()
        took = time.monotonic() - began
        print(f"{len(soak.answered):,} answers in {took:.0f} s, {dict(soak.acts)}")
        print(f"asked again: {soak.again}; wrong: {len(soak.wrong)}; answered and not on record:")
        print(f"{len(missing)}; counted as lost: {lost}; memory {memory:.0f} MB, then {end:.0f} MB")
        for line in soak.wrong[:10]:
            print(line)
        raise SystemExit(bool(soak.wrong or len(missing) > lost))


if __name__ == "__main__":
    asyncio.run(main())
