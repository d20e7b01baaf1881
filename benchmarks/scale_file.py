"""What one machine with a store in a file pays: an older checkout and this one, in turns.

Each turn is a step of training of `scheduler.py`, in a process of its own, against an endpoint
that answers at once: once in an older checkout, once here. What is compared is processor time, in
pairs, so that a machine that is busier for a while is so for both.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.scheduler import instant

PAIRS, ROLLOUTS = 8, 500
ROOT = Path(__file__).resolve().parent.parent
T = {5: 2.571, 7: 2.365, 9: 2.262, 11: 2.201}
"""Student's t for an interval of 95 %, by degrees of freedom."""


def measure(older: str) -> list[str]:
    """Measures `PAIRS` pairs. `older` is the folder of a checkout with an environment `.venv`."""
    if not older:
        return ["No older checkout was named (`--older FOLDER`)."]
    trees = (Path(older).resolve(), ROOT)
    turns: list[list[dict[str, float]]] = []
    for number in range(PAIRS):
        pair = [step(tree) for tree in (trees if number % 2 else trees[::-1])]
        turns.append(pair if number % 2 else pair[::-1])
    logs = [math.log(new["cpu"] / old["cpu"]) for old, new in turns]
    mean, half = statistics.mean(logs), T[PAIRS - 1] * statistics.stdev(logs) / PAIRS**0.5
    ratio, low, high = (math.exp(value) for value in (mean, mean - half, mean + half))
    each = [statistics.median(pair[n]["cpu"] for pair in turns) / ROLLOUTS for n in (0, 1)]
    memory = [statistics.median(pair[n]["megabytes"] for pair in turns) for n in (0, 1)]
    return [
        f"A step of {ROLLOUTS} rollouts whose answers come at once, {PAIRS} pairs in alternating "
        f"order: this checkout ({revision(ROOT)}) beside {revision(trees[0])}, from before there "
        "were other stores. Processor time of the process that trains.",
        "",
        "| | CPU a rollout, median | memory at its peak |",
        "|---|---:|---:|",
        f"| {revision(trees[0])} | {each[0] * 1e3:.2f} ms | {memory[0]:.0f} MB |",
        f"| {revision(ROOT)} | {each[1] * 1e3:.2f} ms | {memory[1]:.0f} MB |",
        "",
        f"Ratio {ratio:.3f} (95 % interval {low:.3f} to {high:.3f}).",
    ]


def step(tree: Path) -> dict[str, float]:
    """Returns what a step costs in a checkout."""
    with instant() as url:
        command = [
            str(tree / ".venv/bin/python"), str(tree / "benchmarks/scheduler.py"),
            *("--measure", "ours", url, str(ROLLOUTS)),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, cwd=tree)
    if done.returncode:
        sys.exit(done.stderr)
    return dict(json.loads(done.stdout))


def revision(tree: Path) -> str:
    """Returns what is checked out."""
    command = ["git", "-C", str(tree), "describe", "--always"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
