"""Scenario: whole processes from a cold start, beside a Python that imports click and sqlite3.

The package is laid out as an installation would have it, and every process runs without `site`,
so that neither an editable install nor what else is installed here is in the figures.
"""

from __future__ import annotations

import compileall
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.extremes import make_deep
from benchmarks.figures import Figure, Sizes, span, times
from tfgrpo.store import Operation, Store, derived_id, store_path

ID = derived_id("benchmark")
ROOT = Path(__file__).parent.parent
BARE = ["-c", "import click, sqlite3"]
SCRIPT = "import sys\nfrom tfgrpo.cli.main import main\nsys.exit(main())\n"
VERBS = {("--help",): 1.2, ("log",): 1.15, ("diff", "v1", "v2"): 1.2, ("checkout", "main"): 1.15}
"""Each with how many times the bare Python it may take."""


def measure(folder: Path, sizes: Sizes) -> list[Figure]:
    """Starts each verb and the bare Python in turn."""
    installed = folder / "installed"
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    for package, source in sorted(tables["package-dir"].items()):
        target = installed / package.replace(".", "/")
        shutil.copytree(ROOT / source, target, dirs_exist_ok=True)
    compileall.compile_dir(installed, quiet=2)
    script = folder / "tfgrpo"
    script.write_text(SCRIPT)
    shutil.copytree(Path(click.__file__).parent, installed / "click")
    environment = {"PYTHONPATH": str(installed), "PATH": os.environ["PATH"], "LOGNAME": "you"}

    def run(arguments: Sequence[str], folder: Path = folder) -> tuple[float, float]:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-S", *arguments],
            cwd=folder,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    with Store.init(store_path(folder), author="you") as store:
        for operation in (
            Operation("ADD", ID, "Count both days."),
            Operation("MODIFY", ID, "Count both days, always."),
        ):
            store.commit("main", [operation], message="by hand")
    figures = []

    def compare(what: str, verb: Sequence[str], goal: float, where: Path) -> None:
        pairs = [(run([str(script), *verb], where), run(BARE)) for _ in range(sizes.rounds)]
        ours, bare = ([pair[i][1] for pair in pairs] for i in (0, 1))
        wall, cpu = (statistics.median(a[i] / b[i] for a, b in pairs) for i in (0, 1))
        beside = f"bare {span(statistics.median(bare))}: CPU {times(cpu)}, wall {times(wall)}"
        figures.append(
            Figure(what, span(statistics.median(ours)), beside, f"≤ {goal}× bare", cpu <= goal)
        )

    for verb, goal in VERBS.items():
        compare(f"`tfgrpo {' '.join(verb)}` from a cold start", verb, goal, folder)
    many = folder / "many"
    versions = sizes.large // 10
    make_deep(many, versions)
    with Store.open(store_path(many), author="you") as store:
        names = [(f"tags/t{number:05d}", number % versions, None) for number in range(sizes.small)]
        store.move_names(names, "many")
        spent = []
        for _ in range(sizes.rounds):
            begun = time.process_time()
            next(store.log())
            spent.append(time.process_time() - begun)
    told = f"{versions:,} versions and {sizes.small:,} tags"
    first = statistics.median(spent)
    figures.append(
        Figure(f"first row of `log`, {told}", span(first), "", "≤ 0.1 ms", first <= 0.1e-3)
    )
    compare(f"`tfgrpo log -1` from a cold start, {told}", ["log", "-1"], 1.2, many)
    return figures
