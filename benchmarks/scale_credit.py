"""Credit of a library's experiences, from many attempts on record: time and memory.

The store is filled directly, with attempts that went without a random fifth of the library, in
steps of 500, under twenty libraries one after the other. Then a process of its own works out the
credit. Beside it: reading every attempt into one matrix, as was done before.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import measured_apart
from benchmarks.scale_machine import PROBLEMS, SAMPLES, SIZES, STEP, peak

EXPERIENCES = 20
LIBRARIES = 20
PATTERNS = 997


def measure(most: int) -> list[str]:
    """Measures every size up to `most` rollouts."""
    rows = []
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent, prefix=".scale-") as folder:
        for size in [size for size in SIZES if size <= most]:
            path = Path(folder) / f"{size}.db"
            fill(path, size)
            now, before = (measured_apart("scale_credit", how, path) for how in ("now", "before"))
            rows.append((size, now, before))
            path.unlink()
    lines = [
        f"`tfgrpo credit` of {EXPERIENCES} experiences and what {LIBRARIES} libraries had of them, "
        f"from attempts at {PROBLEMS} problems that each hide a part. *Before* is reading them all "
        "into one matrix. CPU time, and memory of the process at its peak.",
        "",
        "| rollouts | time | a rollout | memory | time, before | memory, before | differs by |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for size, now, before in rows:
        pairs = zip(now["effects"], before["effects"], strict=True)
        apart = max(abs(one - other) for one, other in pairs)
        lines.append(
            f"| {size:,} | {now['seconds']:.2f} s | {now['seconds'] / size * 1e6:.0f} µs | "
            f"{now['megabytes']:.0f} MB | {before['seconds']:.2f} s | "
            f"{before['megabytes']:.0f} MB | {apart:.0e} |"
        )
    first, last = rows[0], rows[-1]
    lines += [
        "",
        f"From {first[0]:,} to {last[0]:,} rollouts: memory "
        f"{last[1]['megabytes'] / first[1]['megabytes']:.2f} ×; before, "
        f"{last[2]['megabytes'] / first[2]['megabytes']:.1f} ×.",
        "",
        "Attempts are read twice, one after the other: for the effects, and then for what the "
        "effects leave unexplained, which their intervals come from. The store cannot add them "
        "up: residuals are of whole attempts, and with twenty experiences hardly two attempts "
        "went without the same ones.",
    ]
    return lines


def fill(path: Path, rollouts: int) -> None:
    """Makes a store with a run of so many rollouts, each without a part of its library."""
    from tfgrpo.learn.run_setup import prepare_run, put_on_record
    from tfgrpo.settings import TrainSettings
    from tfgrpo.store import Operation, Store

    dice = random.Random(7)
    settings = TrainSettings(
        data="p.jsonl", batch_size=PROBLEMS, group_size=SAMPLES, policy="probation"
    )
    with Store.init(path) as store:
        texts = [f"lesson {n}" for n in range(EXPERIENCES)]
        store.commit("main", [Operation("ADD", None, text) for text in texts], message="first")
        put_on_record(store, prepare_run(store, settings))
        run = store.runs.all()[-1]
        for number in range(LIBRARIES):
            id = store.experience_id(f"G{number % EXPERIENCES}")
            said = [Operation("MODIFY", id, f"lesson {number}, again")]
            meta = {"run": run.name, "step": number}
            store.commit("main", said, message="step", meta=meta)
        ids = [one.id for one in store.library()]
        db = store.port.connection  # type: ignore[attr-defined]
        db.execute("create temp table patterns (n integer primary key, verdict text)")
        for n in range(PATTERNS):
            out = sorted(id for id in ids if dice.random() < 0.2)
            verdict = {"answer": "1", "reason": "right", "response": "x" * 200, "without": out}
            db.execute("insert into patterns values (?, ?)", (n, json.dumps(verdict)))
        steps = -(-rollouts // STEP)
        db.execute(
            "with recursive c(n) as (select 0 union all select n + 1 from c where n < ?)"
            " insert into rollouts (run, step, problem, sample, version, calls, outcome, reward,"
            f" verdict, time) select ?, n / {STEP}, 'p' || (n / {SAMPLES} % {PROBLEMS}),"
            f" n % {SAMPLES}, 1 + n / {STEP} * {LIBRARIES} / ?, '[]', 'answered',"
            " abs(random()) % 2 / 1.0, (select verdict from patterns where patterns.n ="
            f" (c.n * 7919 + c.n / {PATTERNS}) % {PATTERNS}), 1 from c",
            (rollouts - 1, run.id, steps),
        )
        if db.in_transaction:
            db.commit()


def now(path: Path) -> list[float]:
    """Returns the credits of the library, as numbers."""
    from tfgrpo.evaluation.credit import credits
    from tfgrpo.store import Store

    with Store.open(path) as store:
        found = credits(store, store.tip("main"))
    known = sorted((one.experience.id, one.credit) for one in found if one.credit)
    return [value for _, credit in known for value in credit[1:5]]


def before(path: Path) -> list[float]:
    """Returns the same from all attempts in one matrix."""
    from tfgrpo.evaluation.credit import Observation, estimate_effects, unit
    from tfgrpo.store import Store

    with Store.open(path) as store:
        run = store.runs.all()[-1]
        seen = []
        libraries: dict[int, list[tuple[str, str]]] = {}
        for row in store.runs.rollouts(run):
            if row.version not in libraries:
                there = store.library(store.version(row.version))
                libraries[row.version] = [(one.id, unit(one)) for one in there]
            library, without = libraries[row.version], set(row.verdict.get("without", ()))
            seen.append(
                Observation(
                    f"{run.name}/{row.version}/{row.problem}",
                    row.problem,
                    [name for _, name in library],
                    frozenset(name for id, name in library if id in without),
                    row.reward or 0.0,
                )
            )
        known = {credit.experience: credit for credit in estimate_effects(seen)}
        found = sorted((one.id, known.get(unit(one))) for one in store.library())
    return [value for _, credit in found if credit for value in credit[1:5]]


def main(arguments: Sequence[str]) -> None:
    """Runs one part; prints its figures as JSON."""
    what, path = arguments
    started = time.process_time()
    effects = {"now": now, "before": before}[what](Path(path))
    seconds = time.process_time() - started
    print(json.dumps({"seconds": seconds, "megabytes": peak(), "effects": effects}))


if __name__ == "__main__":
    main(sys.argv[1:])
