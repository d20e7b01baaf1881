"""A step of a run that has many rollouts on record already: time and memory of the step alone.

The store is filled directly, with rollouts and their calls, in steps of 500. Then a process of its
own opens the run as one that is resumed, and makes a step against an instant endpoint. Beside it:
reading all rollouts of the run.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.processes import measured_apart
from benchmarks.scheduler import CONCURRENCY, instant, problems, warm

SIZES = (10_000, 100_000, 1_000_000)
STEP = 500
PROBLEMS = 100
SAMPLES = STEP // PROBLEMS


def measure(most: int) -> list[str]:
    """Measures every size up to `most` rollouts."""
    rows = []
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".scale-") as folder:
        for size in [size for size in SIZES if size <= most]:
            path = Path(folder) / f"{size}.db"
            fill(path, size)
            with instant() as address:
                step = measured_apart("scale_machine", "step", path, address)
            before = measured_apart("scale_machine", "before", path, "")
            rows.append((size, step, before))
            path.unlink()
    lines = [
        "A step of 100 problems with 5 attempts at each, in a run that has so many rollouts on "
        "record. *All* is reading every rollout of the run. CPU time, and memory of the process at "
        "its peak.",
        "",
        "| rollouts | a rollout | memory | all | memory, all |",
        "|---:|---:|---:|---:|---:|",
    ]
    for size, step, before in rows:
        lines.append(
            f"| {size:,} | {step['each'] * 1e3:.2f} ms | {step['megabytes']:.0f} MB | "
            f"{before['seconds']:.2f} s | {before['megabytes']:.0f} MB |"
        )
    first, last = rows[0], rows[-1]
    lines += [
        "",
        f"From {first[0]:,} to {last[0]:,} rollouts on record: time per rollout "
        f"{last[1]['each'] / first[1]['each']:.2f} ×, memory "
        f"{last[1]['megabytes'] / first[1]['megabytes']:.2f} ×; reading all of them "
        f"{last[2]['seconds'] / first[2]['seconds']:.0f} × the time and "
        f"{last[2]['megabytes'] / first[2]['megabytes']:.1f} × the memory.",
    ]
    return lines


def peak() -> float:
    """Returns the most memory that this process has had, in MB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def settings() -> Any:
    """Returns those of the run."""
    from tfgrpo.settings import TrainSettings

    sizes = {"epochs": 1, "batch_size": PROBLEMS, "group_size": SAMPLES}
    return TrainSettings(data="p.jsonl", policy="paper", **sizes)


def fill(path: Path, rollouts: int) -> None:
    """Makes a store with a run of so many rollouts and their calls."""
    from tfgrpo.learn.run_setup import prepare_run, put_on_record
    from tfgrpo.store import Store

    with Store.init(path) as store:
        put_on_record(store, prepare_run(store, settings()))
        run = store.runs.all()[-1]
        db = store.port.connection  # type: ignore[attr-defined]
        answer = json.dumps({"content": "fine", "finish_reason": "stop"})
        db.execute("insert into texts (digest, text) values (?, ?)", (b"t" * 32, "question"))
        verdict = json.dumps({"answer": "1", "reason": "right", "response": "x" * 200})
        numbers = "with recursive c(n) as (select 0 union all select n + 1 from c where n < ?)"
        db.execute(
            f"{numbers} insert into journal (key, run, stage, step, model, request, answer,"
            " prompt_tokens, cached_tokens, completion_tokens, reasoning_tokens, attempts, seconds,"
            f" time) select randomblob(32), ?, 'rollout', n / {STEP}, 'instant', 1, ?, 200, 0, 50,"
            " 0, 1, 0.1, 1 from c",
            (rollouts - 1, run.id, answer),
        )
        db.execute(
            f"{numbers} insert into rollouts (run, step, problem, sample, version, calls, outcome,"
            f" reward, verdict, time) select ?, n / {STEP}, 'p' || (n / {SAMPLES} % {PROBLEMS}),"
            f" n % {SAMPLES}, 0, '[]', 'answered', n % 2 / 1.0, ?, 1 from c",
            (rollouts - 1, run.id, verdict),
        )
        if db.in_transaction:
            db.commit()


def make_step(path: Path, address: str) -> dict[str, float]:
    """Makes the next step of the run."""
    from tfgrpo.connect import CallLimits, Endpoints
    from tfgrpo.domains.verifier import Verifier
    from tfgrpo.learn.collector import Batch
    from tfgrpo.learn.loop import Training
    from tfgrpo.model.endpoint import Endpoint
    from tfgrpo.runs.run_problems import RunProblems
    from tfgrpo.session import Session
    from tfgrpo.store import Store
    from tfgrpo.store.activity.journal import Journal

    dataset = problems(PROBLEMS * SAMPLES)
    with Store.open(path) as store, Verifier() as verifier:
        run = store.runs.all()[-1]
        row = store.port.row("select max(step) from rollouts")  # type: ignore[attr-defined]
        step = int(row[0]) + 1
        journal = Journal(store.port.records.writer())
        endpoint = Endpoint("instant", address)
        endpoints = Endpoints(endpoint, endpoint, CallLimits(CONCURRENCY))
        training = Training(Session(store, journal, endpoints, verifier), run, RunProblems(dataset))
        collector = training._collector

        async def session() -> float:
            await warm(endpoint)
            started = time.process_time()
            await collector.groups(Batch(step, dataset, store.library("v0")))
            spent = time.process_time() - started
            await endpoints.close()
            return spent

        spent = asyncio.run(session())
        made = len(store.runs.rollouts(run, step))
        journal.close()
    return {
        "each": spent / made,
        "megabytes": peak(),
    }


def read_all(path: Path) -> dict[str, float]:
    """Reads every rollout of the run."""
    from tfgrpo.store import Store

    with Store.open(path) as store:
        run = store.runs.all()[-1]
        started = time.process_time()
        assert store.runs.rollouts(run)
        seconds = time.process_time() - started
    megabytes = peak()
    return {"seconds": seconds, "megabytes": megabytes}


def main(arguments: Sequence[str]) -> None:
    """Runs one part; prints its figures as JSON."""
    what, path, address = arguments
    figures = make_step(Path(path), address) if what == "step" else read_all(Path(path))
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
