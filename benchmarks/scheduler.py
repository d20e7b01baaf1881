"""What the scheduler costs beside a bare loop over the same client: one command, one table.

    python -m benchmarks.scheduler [--quick] [--repeats N] [--write]

An endpoint that answers at once runs in a process of its own (`instant.py`). *Ours* is a whole
training step: rendering, pacing, journal, verification, rollout records, the version. *Bare* is
an asyncio loop that sends the same prompts through the same `openai` client, at the same
concurrency, and keeps the answers. Every measurement has a process of its own; bare and ours take
turns and the best of each counts, for a shared machine only ever adds time. `--write` puts the
table into `RESULTS-scheduler.md`.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.machine import busy_machine

HERE = Path(__file__).parent
RESULTS = HERE / "RESULTS-scheduler.md"
CONCURRENCY = 128
GROUP = 5
SIZES = (500, 2_000, 5_000)
TOKENS = 4_000
MEDIAN, SIGMA = 3.0, 0.6
SLOW = 1_500


@contextmanager
def instant(*options: str) -> Iterator[str]:
    """Runs the endpoint; gives its address."""
    command = [sys.executable, str(HERE / "instant.py"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


def problems(rollouts: int) -> list[Any]:
    """Returns enough problems for so many rollouts."""
    from tfgrpo.data.problems import Problem

    return [
        Problem(f"p{n}", f"What is {n} op {n + 3}?", str(2 * n + 4))
        for n in range(rollouts // GROUP)
    ]


async def warm(endpoint: Any) -> None:
    """Makes one call, so that imports and the client's first steps are not measured."""
    from tfgrpo.model.endpoint import Request

    await endpoint.ask(Request("rollout", (("user", "What is 1 op 2?"),), 0.7, 64))


def bare(base_url: str, rollouts: int) -> dict[str, float]:
    """Sends the same prompts in a bare loop over the same client."""
    from tfgrpo.domains.base import sample_seed
    from tfgrpo.model.endpoint import Endpoint
    from tfgrpo.rendering import prompt_templates
    from tfgrpo.rendering.render import AGENT_OBJECTIVE, rollout_messages
    from tfgrpo.store import Store

    template = prompt_templates.load("rollout", None)
    with tempfile.TemporaryDirectory() as folder, Store.init(Path(folder) / "s.db") as store:
        library = store.library("v0")
    prompts = [
        [
            {"role": role, "content": text}
            for role, text in rollout_messages(template, library, p.problem, AGENT_OBJECTIVE)
        ]
        for p in problems(rollouts)
    ]

    async def run() -> float:
        endpoint = Endpoint("instant", base_url)
        await warm(endpoint)
        client = endpoint._open()
        slots = asyncio.Semaphore(CONCURRENCY)
        answers = []

        async def one(messages: Any, sample: int) -> None:
            async with slots:
                response = await client.chat.completions.create(
                    model="instant",
                    messages=messages,
                    temperature=0.7,
                    max_tokens=16384,
                    seed=sample_seed(0, sample),
                )
            answers.append(response.choices[0].message.content)

        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for messages in prompts:
                for sample in range(GROUP):
                    group.create_task(one(messages, sample))
        seconds = time.perf_counter() - started
        await endpoint.close()
        assert len(answers) == rollouts
        return seconds

    started = time.process_time()
    return {"seconds": asyncio.run(run()), "cpu": time.process_time() - started}


def ours(base_url: str, rollouts: int) -> dict[str, float]:
    """Trains one step of so many rollouts, none of them wrong, so that nothing is reflected on."""
    from tfgrpo.connect import CallLimits, Endpoints
    from tfgrpo.domains.verifier import Verifier
    from tfgrpo.learn.loop import Training
    from tfgrpo.learn.run_setup import prepare_run, put_on_record
    from tfgrpo.model.endpoint import Endpoint
    from tfgrpo.runs.run_problems import RunProblems
    from tfgrpo.session import Session
    from tfgrpo.settings import TrainSettings
    from tfgrpo.store import Store
    from tfgrpo.store.activity.journal import Journal

    dataset = problems(rollouts)
    with tempfile.TemporaryDirectory(dir=HERE, prefix=".scheduler-") as folder:
        path = Path(folder) / "store.db"
        with Store.init(path) as store, Verifier() as verifier:
            settings = TrainSettings(
                data="p.jsonl", epochs=1, batch_size=len(dataset), group_size=GROUP
            )
            put_on_record(store, prepare_run(store, settings))
            run = store.runs.all()[-1]
            journal = Journal(store.port.records.writer())
            endpoint = Endpoint("instant", base_url)
            endpoints = Endpoints(endpoint, endpoint, CallLimits(CONCURRENCY))
            session_parts = Session(store, journal, endpoints, verifier)
            training = Training(session_parts, run, RunProblems(dataset))

            async def session() -> float:
                await warm(endpoint)
                started = time.perf_counter()
                await training.run()
                await endpoints.close()
                return time.perf_counter() - started

            written, cpu = _written(), time.process_time()
            seconds = asyncio.run(session())
            cpu = time.process_time() - cpu
            journal.close()
            assert all(row.reward == 1.0 for row in store.runs.rollouts(run))
            trajectories = _trajectories(store)
        written = _written() - written
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    return {
        "seconds": seconds,
        "cpu": cpu,
        "written": written / trajectories,
        "size": size / trajectories,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _written() -> int:
    """Returns the bytes that this process has sent to the disk."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["write_bytes"])


def _trajectories(store: Any) -> int:
    """Returns the size of all trajectories: the messages and the answer of every rollout."""
    from tfgrpo.store.sqlite.packed_texts import define_plain

    define_plain(store.port.connection)
    (size,) = store.port.row(
        "select sum(length(cast(plain(text) as blob)) + length(cast(plain(answer) as blob)))"
        " from journal join texts on texts.id = request"
    )
    return int(size)


def judged(base_url: str, rollouts: int) -> dict[str, float]:
    """Judges answers that need sympy, and measures how late the event loop is meanwhile.

    A while with nothing to judge comes first, for comparison.
    """
    from tfgrpo.data.problems import Problem
    from tfgrpo.domains import math
    from tfgrpo.domains.verifier import Verifier

    async def tick(late: list[float]) -> None:
        while True:
            due = time.perf_counter() + 0.005
            await asyncio.sleep(0.005)
            late.append((time.perf_counter() - due) * 1000)

    async def p99(work: Any) -> tuple[float, float]:
        late: list[float] = []
        ticker = asyncio.create_task(tick(late))
        started = time.perf_counter()
        await work
        seconds = time.perf_counter() - started
        ticker.cancel()
        return seconds, sorted(late)[int(len(late) * 0.99)]

    async def run(verifier: Verifier) -> dict[str, float]:
        slots = asyncio.Semaphore(CONCURRENCY)

        async def one(n: int) -> None:
            problem = Problem(f"p{n}", "What is it?", f"\\frac{{{n}}}{{{n + 1}}}")
            async with slots:
                answer = f"\\boxed{{1-\\frac{{1}}{{{n + 1}}}}}"
                verdict = await verifier.verdict(problem, answer, math.verify)
            assert verdict.reward == 1.0, verdict

        await one(1)  # the workers' imports
        _, idle = await p99(asyncio.sleep(rollouts / 500))
        seconds, busy = await p99(asyncio.gather(*(one(n) for n in range(1, rollouts + 1))))
        return {"seconds": seconds, "idle": idle, "p99": busy}

    with Verifier() as verifier:
        return asyncio.run(run(verifier))


def ideal(rollouts: int) -> float:
    """Returns how long the slow endpoint's latencies take on so many slots, with no gap."""
    from benchmarks.instant import latencies

    ends = [0.0] * CONCURRENCY
    for wait in latencies(rollouts + 1, MEDIAN, SIGMA)[1:]:
        heapq.heapreplace(ends, ends[0] + wait)
    return max(ends)


def measured(what: str, rollouts: int, *endpoint: str) -> dict[str, float]:
    """Returns a measurement, made in a process of its own against an endpoint of its own."""
    with instant(*endpoint) as base_url:
        measure = [sys.executable, "-m", "benchmarks.scheduler", "--measure"]
        command = [*measure, what, base_url, str(rollouts)]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    print(what, rollouts, found, file=sys.stderr)
    return found


def table(quick: bool, repeats: int) -> Iterator[str]:
    """Yields the results, as Markdown."""
    sizes = (500, 1_000) if quick else SIZES
    repeats = 1 if quick else repeats
    per: dict[int, float] = {}
    busy: dict[int, float] = {}
    yield "| rollouts | bare loop | tfgrpo | ratio | per rollout | CPU, bare | CPU, tfgrpo |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    ratio = 0.0
    for size in sizes:
        found = [(measured("bare", size), measured("ours", size)) for _ in range(repeats)]
        a = min(pair[0]["seconds"] for pair in found)
        b = min(pair[1]["seconds"] for pair in found)
        cpu = [min(pair[i]["cpu"] for pair in found) for i in (0, 1)]
        per[size], ratio = b / size * 1000, max(ratio, b / a)
        busy[size] = cpu[1] / size
        yield (
            f"| {size:,} | {a:.2f} s | {b:.2f} s | {b / a:.2f} | {per[size]:.2f} ms |"
            f" {cpu[0]:.2f} s | {cpu[1]:.2f} s |"
        )
    last = sizes[-1]
    long = measured("ours", last, "--tokens", str(TOKENS))
    verdicts = measured("judged", 1_000 if quick else 5_000)
    slow = ("--median", str(MEDIAN), "--sigma", str(SIGMA))
    waits = 500 if quick else SLOW
    used = ideal(waits) / measured("ours", waits, *slow)["seconds"]
    yield ""
    yield "| promise | goal | measured |"
    yield "|---|---:|---:|"
    yield f"| time beside the bare loop, worst | ≤ 1.25 × | {_told(ratio, 1.25)} |"
    for kind, times in (("time", per), ("CPU time", busy)):
        grown = times[last] / times[sizes[0]]
        yield f"| {kind} per rollout, {last:,} beside {sizes[0]:,} | the same | {grown:.2f} × |"
    answers = f"{last:,} rollouts of {TOKENS:,} tokens"
    yield f"| bytes written, {answers} | ≤ 1.5 × | {_told(long['written'], 1.5)} |"
    yield f"| size of the store beside the trajectories' | | {long['size']:.2f} × |"
    memory = long["megabytes"]
    yield f"| memory, {answers} | ≤ 300 MB | {_told(memory, 300, ' MB', 0)} |"
    delay = _told(verdicts["p99"], 20, " ms", 1)
    yield f"| the event loop's delay at p99 while 5,000 answers go to sympy | ≤ 20 ms | {delay} |"
    yield f"| the same with nothing to judge: the machine's own | | {verdicts['idle']:.1f} ms |"
    share = f"{used:.1%}" + ("" if used >= 0.95 else " **missed**")
    yield f"| of ideal utilisation, {waits:,} answers of lognormal latency | ≥ 95 % | {share} |"


def _told(value: float, goal: float, unit: str = " ×", places: int = 2) -> str:
    return f"{value:.{places}f}{unit}" + ("" if value <= goal else " **missed**")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, each once")
    parser.add_argument("--repeats", type=int, default=3, help="of bare and ours, in turns")
    parser.add_argument("--write", action="store_true", help="write RESULTS-scheduler.md")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        what, address, count = given.measure
        print(json.dumps({"bare": bare, "ours": ours, "judged": judged}[what](address, int(count))))
    else:
        before = busy_machine()
        lines = list(table(given.quick, given.repeats))
        print("\n".join(lines))
        if given.write:
            notes = RESULTS.read_text().partition("\n## Reading")[2] if RESULTS.exists() else ""
            head = f"# The scheduler\n\n`python -m benchmarks.scheduler --write` on {before}.\n\n"
            tail = f"\n\n## Reading{notes}" if notes else "\n"
            RESULTS.write_text(head + "\n".join(lines) + tail)
