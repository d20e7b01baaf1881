"""`kill -9` of the proxy, its workers and a writer of the store, at random: what it may cost.

    python -m benchmarks.proxy_kills [--kills N] [--seed N]

A proxy with two workers stands before a provider that says what it was asked. A writer adds rules
to the library without a pause, and clients ask without one. Meanwhile, again and again, one of
these is killed: a worker, the process that records a worker's calls, the writer in the middle of a
commit, or the whole proxy's first process. What has to hold:

- an answer is the one to its own question;
- it was asked under a whole library: all rules up to one of them, in order, none twice;
- and no stale one: with every rule whose commit had returned before the question was sent;
- every answered call is on record, or among those that are counted as lost, and nobody is left
  who holds calls back;
- the store, at the end, is whole (`fsck`), and has every rule whose commit returned.

A question whose connection breaks is asked again: that is what a kill may cost.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.traffic import ALL, CallFilter, traffic_path
from tfgrpo.store.fsck import fsck
from tfgrpo.store.opening import open_traffic

CLIENTS = 4
PATIENCE = 120
"""Seconds in which a process has to end: a busy machine takes its time."""
WRITER = """
import random, sys, time
from tfgrpo.store import Operation, Store
with Store.open(sys.argv[1], author="writer") as store:
    while True:
        number = len(store.library("prod"))
        store.commit("prod", [Operation("ADD", text=f"Rule {number}.")], message="rule")
        print(number, flush=True)
        time.sleep(random.uniform(0.01, 0.08))
"""


class Provider(threading.Thread):
    """Says which question and which rules it was sent."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ready = threading.Event()
        self.port = 0

    def run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await server.serve_forever()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                asked = json.loads(await reader.readexactly(length))
                system, *_, user = asked["messages"]
                rules = [int(n) for n in re.findall(r"\] Rule (\d+)\.", system["content"])]
                said = {"question": user["content"], "rules": rules}
                message = {"role": "assistant", "content": json.dumps(said)}
                body = json.dumps({"choices": [{"message": message}]}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.close()


class Trial:
    """One trial: everything that runs, and what was found."""

    def __init__(self, folder: Path, provider: Provider, seed: int) -> None:
        self.folder = folder
        self.path = folder / ".tfgrpo/store.db"
        self.chance = random.Random(seed)
        self.provider = provider
        self.committed = 0
        """The last rule whose commit has returned."""
        self.answered: list[str] = []
        self.broken = 0
        self.wrong: list[str] = []
        self.kills = {"worker": 0, "recorder": 0, "writer": 0, "proxy": 0}
        self.orphans: list[int] = []
        """Workers whose first process was killed: they end by themselves, and soon."""
        self.stopping = False
        self.port = 0

    def start_proxy(self) -> None:
        url = f"http://127.0.0.1:{self.provider.port}/v1"
        command = [str(Path(sys.executable).with_name("tfgrpo")), "proxy", "--library", "prod"]
        self.proxy = subprocess.Popen(
            [*command, "--port", "0", "--workers", "2", "--upstream", url],
            cwd=self.folder,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.proxy.stderr is not None
        line = self.proxy.stderr.readline()
        found = re.search(r":(\d+)/v1, asking", line)
        assert found, line + self.proxy.stderr.read()
        self.port = int(found[1])
        threading.Thread(target=self.proxy.stderr.read, daemon=True).start()

    def _await_worker(self) -> None:
        """Waits until a worker is up: the port is said before that."""
        ended = time.monotonic() + PATIENCE
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
            try:
                connection.request("GET", "/healthz")
                connection.getresponse().read()
                return
            except (OSError, http.client.HTTPException):
                assert time.monotonic() < ended, "no worker answers"
                time.sleep(0.05)
            finally:
                connection.close()

    def start_writer(self) -> None:
        command = [sys.executable, "-c", WRITER, str(self.path)]
        self.writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self._follow, args=(self.writer,), daemon=True).start()

    def _follow(self, writer: subprocess.Popen[str]) -> None:
        assert writer.stdout is not None
        for line in writer.stdout:
            if line.endswith("\n"):
                self.committed = max(self.committed, int(line))

    def kill(self) -> None:
        """Kills one of them, and has it started again."""
        kind = self.chance.choices(tuple(self.kills), (4, 3, 4, 1))[0]
        if kind in ("worker", "recorder"):
            children = self._workers()
            if kind == "recorder":
                children = [one for worker in children for one in children_of(worker)]
            if not children:
                return
            with suppress(ProcessLookupError):
                os.kill(self.chance.choice(children), signal.SIGKILL)
        elif kind == "writer":
            self.writer.kill()
            self.writer.wait()
            self.start_writer()
        else:
            self.orphans += self._workers()
            self.proxy.kill()
            self.proxy.wait()
            self.start_proxy()
        self.kills[kind] += 1

    def _workers(self) -> list[int]:
        """Returns the proxy's workers, by process id."""
        return children_of(self.proxy.pid)

    def ask_on(self, name: int) -> None:
        """Asks until the trial ends."""
        number = 0
        while not self.stopping:
            number += 1
            question, floor = f"question {name}.{number}", self.committed
            body = {"model": "m", "messages": [{"role": "user", "content": question}]}
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
                connection.request("POST", "/v1/chat/completions", json.dumps(body))
                answer = connection.getresponse()
                text = answer.read()
                connection.close()
            except (OSError, http.client.HTTPException):
                self.broken += 1
                time.sleep(0.01)
                continue
            if answer.status != 200:
                self.wrong.append(f"{question}: status {answer.status}: {text[:200]!r}")
                continue
            self.answered.append(str(answer.headers["x-tfgrpo-call"]))
            said = json.loads(json.loads(text)["choices"][0]["message"]["content"])
            rules = said["rules"]
            if said["question"] != question:
                self.wrong.append(f"{question}: answered {said['question']}")
            elif rules != list(range(len(rules))) or len(rules) <= floor:
                self.wrong.append(f"{question}: rules {rules[-3:]}, {floor} was committed")

    def checked(self) -> dict[str, Any]:
        """Returns the figures of a trial that has ended. Raises AssertionError."""
        ended = time.monotonic() + PATIENCE
        while any(Path(f"/proc/{pid}").exists() for pid in self.orphans):
            assert time.monotonic() < ended, f"workers {self.orphans} outlive their first process"
            time.sleep(0.05)
        self.start_proxy()
        self._await_worker()  # which counts what those before it lost, and then answers
        self.proxy.terminate()
        self.proxy.wait(PATIENCE)
        while left := list(self.path.parent.glob("*-worker-*")):
            assert time.monotonic() < ended, f"{left} are not settled"
            time.sleep(0.05)
        traffic = open_traffic(traffic_path(self.path))
        recorded = {one.call.id for one in traffic.calls(CallFilter(), ALL)}
        lost = traffic.lost()
        traffic.close()
        missing = len(set(self.answered) - recorded)
        assert not self.wrong, self.wrong[:5]
        assert missing <= lost, f"{missing} answered calls are not on record, {lost} are counted"
        assert len(set(self.answered)) == len(self.answered)
        with Store.open(self.path) as store:
            assert not fsck(store).problems
            rules = [experience.text for experience in store.library("prod")]
        assert rules == [f"Rule {n}." for n in range(len(rules))]
        assert len(rules) > self.committed
        return {
            "kills": self.kills,
            "answered": len(self.answered),
            "asked again": self.broken,
            "recorded": len(recorded),
            "lost and counted": lost,
            "of these answered": missing,
            "rules": len(rules),
        }


def children_of(process: int) -> list[int]:
    """Returns the processes that a process has started; none where it is gone."""
    with suppress(OSError):
        path = Path(f"/proc/{process}/task/{process}/children")
        return [int(pid) for pid in path.read_text().split()]
    return []


def trial(kills: int, seed: int, say: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """Runs a trial with so many kills; returns its figures. Raises AssertionError."""
    provider = Provider()
    provider.start()
    provider.ready.wait()
    with tempfile.TemporaryDirectory(prefix="tfgrpo-kills-") as name:
        here = Trial(Path(name), provider, seed)
        with Store.init(here.path, author="trial") as store:
            store.commit("main", [Operation("ADD", text="Rule 0.")], message="rule")
            store.create_branch("prod")
        here.start_proxy()
        here.start_writer()
        clients = [threading.Thread(target=here.ask_on, args=(n,)) for n in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            while not here.committed or len(here.answered) < CLIENTS:  # it is under way
                time.sleep(0.02)
            while sum(here.kills.values()) < kills and not here.wrong:
                time.sleep(here.chance.uniform(0.05, 0.4))
                here.kill()
                if sum(here.kills.values()) % 20 == 0:
                    say(f"{here.kills}, {len(here.answered)} answered, {here.broken} broken off")
            time.sleep(0.5)
        finally:
            here.stopping = True
            for client in clients:
                client.join()
            for process in (here.writer, here.proxy):
                process.terminate()
                process.wait(PATIENCE)
        return here.checked()


def main() -> None:
    """Runs a trial, and prints its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    began = time.monotonic()
    found = trial(options.kills, options.seed, lambda line: print(line, flush=True))
    print(json.dumps(found), f"in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
