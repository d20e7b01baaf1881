"""What looking at runs costs: `python -m benchmarks.ui_runs`, on a machine that does nothing else.

Three figures. How long the server takes for the page of 500 attempts, and for one group of them,
each answer 4 kB. What share of a core a viewer of a live run takes, of the server's processor time
while the run makes a call every few hundredths of a second. And what a viewer costs the training:
its processor time with one beside it and without, in pairs of short runs, whose order alternates,
with the 95 % interval of the mean of the pairs' ratios (Student's t on their logarithms).
`--pairs N` makes so many. A first run, which warms the caches, counts for nothing.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, build_opener

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from conftest import problems
from scripted import Reply, ScriptedEndpoint, completion, restless
from starlette.testclient import TestClient

from tfgrpo.evaluation.statistics import t_quantile
from tfgrpo.store import Operation, Store
from tfgrpo.store.canonical import canonical
from tfgrpo.ui.site import create_site
from tfgrpo.ui.ui_settings import UiSettings

ATTEMPTS_MS, VIEWER_SHARE, SLOWER = 300.0, 0.01, 0.02
GROUPS, SIZE, ROUNDS = 100, 5, 7
PAIRS, PROBLEMS, STALL = 12, 10, 0.25
TICK = os.sysconf("SC_CLK_TCK")
TRAIN = """
import sys, time, math_verify, openai, tfgrpo, tfgrpo.learn.loop
began = time.process_time()
tfgrpo.train_sync("p.jsonl", run=sys.argv[1], new=True, model="m", base_url=sys.argv[2],
                  epochs=1, batch_size=10, group_size=5, concurrency=8)
print(time.process_time() - began)
"""


def main() -> int:
    """Prints the figures; returns 1 where one is over its bound."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ui_runs")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="runs with a viewer and without")
    pairs = max(2, parser.parse_args().pairs)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        missed = pages(folder / "a")
        missed |= live(folder / "b", pairs)
    return int(missed)


def pages(folder: Path) -> bool:
    """Prints what the pages of a step with 500 attempts take."""
    path = folder / ".tfgrpo/store.db"
    build(path)
    client = TestClient(
        create_site(UiSettings(path, {"t": "benchmark"})), base_url="http://127.0.0.1"
    )
    client.get("/?token=t")
    listed, group = "/attempts/big?step=1", "/group/big?step=1&problem=p1"
    found = {}
    for page in (listed, group, "/run/big"):
        took = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            answer = client.get(page)
            took.append(1000 * (time.perf_counter() - began))
            assert answer.status_code == 200, answer.text
        found[page] = statistics.median(took)
        print(f"{page:32} {found[page]:7.1f} ms, best {min(took):.1f}, {len(answer.content)} bytes")
    assert client.get(listed).text.count('class="chip ') == GROUPS * SIZE
    return found[listed] > ATTEMPTS_MS


def build(path: Path) -> None:
    """Makes a store with a run that has one step of 500 attempts."""
    text = "Let us count the days of the rental, the first and the last one included. " * 52
    with Store.init(path, author="benchmark") as store:
        store.commit("main", [Operation("ADD", text=f"Lesson {n}.") for n in range(50)], message="")
        config = {"models": {"model": "m"}, "data": "p.jsonl", "domain": "math"}
        run = store.runs.create("big", "b" * 32, "main", 1, config, "benchmark")
        prompt = "\n".join(f"[G{n}] Lesson {n}." for n in range(50))
        writer = store.port.records.writer()
        for p in range(GROUPS):
            asked = canonical(
                [["system", prompt], ["user", f"Problem {p}: " + text[:300]]]
            ).decode()
            calls: list[Any] = []
            rows: list[Any] = []
            for s in range(SIZE):
                key = bytes([p, s]) * 16
                said = canonical({"content": f"{s} {text}", "finish_reason": "stop"}).decode()
                counts = (900, 0, 1000, 0, 1, 2.0, 5)
                calls.append((key, run.id, "rollout", 0, "m", asked, said, *counts))
                verdict = canonical({"answer": str(s), "reason": "text: equal"}).decode()
                reward = float(s % 2)
                key_list = canonical([key.hex()]).decode()
                rows.append((run.id, 0, f"p{p}", s, 1, key_list, "answered", reward, verdict, 5))
            writer.append(calls, rows)
        writer.close()


def live(folder: Path, pairs: int) -> bool:
    """Prints what a viewer takes of a core, and what it costs the training. Returns whether one of
    them is certainly over its bound: with all of its interval, for what is measured in pairs."""
    folder.mkdir()
    (folder / "p.jsonl").write_text(problems(range(2, 2 + PROBLEMS)))
    Store.init(folder / ".tfgrpo/store.db", author="benchmark").close()

    def script(request: dict[str, Any]) -> Reply:
        return Reply(completion(restless(request), model=request["model"]), stall=STALL)

    spent: dict[bool, list[float]] = {True: [], False: []}
    shares = []
    with ScriptedEndpoint(script) as server, pages_of(folder) as (pid, url):
        training(folder, server.base_url, "warm", (pid, url), True)
        for number in range(pairs):
            for viewed in (True, False) if number % 2 else (False, True):
                name = f"run{number}{'v' if viewed else 'x'}"
                seconds, share = training(folder, server.base_url, name, (pid, url), viewed)
                spent[viewed].append(seconds)
                shares += [share] if viewed else []
    share = statistics.median(shares)
    low, middle, high = ratio_interval(spent[True], spent[False])
    print(
        f"a viewer of a live run: {share:.2%} of a core ({', '.join(f'{s:.2%}' for s in shares)})"
    )
    print(
        f"processor time of the training with a viewer: {middle:+.1%} [{low:+.1%}, {high:+.1%}], "
        f"{pairs} pairs of about {statistics.median(spent[False]):.1f} s"
    )
    print(f"  with {spent[True]}, without {spent[False]}")
    verdict = "within" if high <= SLOWER else "over" if low > SLOWER else "not known to be within"
    print(f"  {verdict} {SLOWER:.0%}")
    return share > VIEWER_SHARE or low > SLOWER


def ratio_interval(with_: list[float], without: list[float]) -> tuple[float, float, float]:
    """Returns how much more the first take than the second of each pair, with its 95 % interval:
    low, mean, high."""
    logs = [math.log(a / b) for a, b in zip(with_, without, strict=True)]
    mean = statistics.fmean(logs)
    reach = t_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.expm1(mean - reach), math.expm1(mean), math.expm1(mean + reach)


def training(
    folder: Path, base_url: str, name: str, server: tuple[int, str], viewed: bool
) -> tuple[float, float]:
    """Returns the processor seconds that a training took of its process, without what importing
    takes, and the share of a core that the server took meanwhile."""
    pid, url = server
    environment = {**os.environ, "TFGRPO_TRUST": str(folder)}
    child = subprocess.Popen(
        [sys.executable, "-c", TRAIN, name, base_url],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    path = folder / ".tfgrpo/store.db"
    with Store.open(path) as store:
        while store.runs.find(name) is None:
            assert child.poll() is None
            time.sleep(0.02)
    if viewed:
        threading.Thread(target=view, args=(url, name), daemon=True).start()
        time.sleep(0.5)  # the first look reads all, once
    before, began = processor(pid), time.monotonic()
    printed, _ = child.communicate()
    share = (processor(pid) - before) / (time.monotonic() - began)
    return round(float(printed.split()[-1]), 3), share


def processor(pid: int) -> float:
    """Returns the processor seconds that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


@contextmanager
def pages_of(folder: Path) -> Iterator[tuple[int, str]]:
    """Serves the pages of a store from a process of its own; gives its number and address."""
    main = "from tfgrpo.cli.main import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-c", main, "ui", "--port", "0", "--read-only"],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    found = re.search(r"http://\S+", child.stderr.readline())
    assert found is not None
    try:
        yield child.pid, found[0]
    finally:
        child.terminate()
        child.wait()


def view(url: str, run: str) -> None:
    """Follows a run until it is over, as a browser does."""
    from http.cookiejar import CookieJar
    from urllib.request import HTTPCookieProcessor

    opener = build_opener(HTTPCookieProcessor(CookieJar()))
    opener.open(url).read()
    with opener.open(Request(url.partition("/?")[0] + f"/run-live/{run}")) as stream:
        for _ in stream:
            pass


if __name__ == "__main__":
    sys.exit(main())
