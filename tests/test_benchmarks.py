"""What the benchmark compares is comparable. No figure is tested: those are for RESULTS.md."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from itertools import accumulate
from pathlib import Path

import pytest
from conftest import ROOT


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def test_the_workload_is_the_same_every_time_and_stays_within_its_bound() -> None:
    from benchmarks.workload import batches, changes, fold

    events = list(changes(5000, live=100))
    assert events == list(changes(5000, live=100))
    assert max(len(fold(events[:n])) for n in range(0, 5000, 50)) in (100, 101)
    assert len({event.text for event in events if event.text}) > 2000
    assert sum(batches(25_000)) == 25_000
    assert set(batches(25_000)) == {1, 10, 100}


def test_this_store_and_the_raw_table_hold_the_same_libraries(tmp_path: Path) -> None:
    from benchmarks.peers.ours import Ours
    from benchmarks.peers.raw import Raw
    from benchmarks.workload import batches

    ours, raw = Ours(tmp_path), Raw(tmp_path)
    for store in (ours, raw):
        store.build(7000, 300)
    last = len(list(batches(7000)))
    for version in (0, 1, last // 2, last):
        library = ours.store.library(f"v{version}")
        assert {e.id: e.text for e in library} == raw._library(version)
    assert ours.diff(20, last) == raw.diff(20, last) > 0
    assert ours.size() > raw.size()


def test_versions_that_are_said_to_be_apart_are(tmp_path: Path) -> None:
    from benchmarks import reads
    from benchmarks.workload import batches

    ends = [0, *accumulate(batches(30_000))]
    for apart in reads.APART:
        pairs = reads._pairs(30_000, apart)
        assert pairs
        assert {ends[b] - ends[a] for a, b in pairs} == {apart}


def test_a_worker_answers_from_a_process_of_its_own(tmp_path: Path) -> None:
    from benchmarks.worker import Worker
    from benchmarks.workload import changes

    with Worker("sqlite3", tmp_path / "a") as raw:
        assert raw("append", list(changes(1))).value is True
        assert raw("blame").value is None, "what it cannot do"
        assert raw("size").value > 0
        assert raw("peak").value > 1


def test_the_benchmark_says_how_it_is_used() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--quick" in done.stdout


def test_simulated_proofs_end_as_those_of_the_product_do() -> None:
    """The product's verdict is open until the pair at which a simulated stream ends."""
    import numpy as np

    from benchmarks import proof
    from tfgrpo.evaluation.pair_verdicts import Pair, judge

    dice, verdicts, seen = np.random.default_rng(4), ("helps", "harms", "too small"), Counter[str]()
    for effect in (0.0, 0.2, 0.4, -0.3):
        for ease in ("every", "hard", "turned"):
            differences = proof.streams(dice, 40, min(effect, 0.3), ease)[:, :144]
            pairs, first = differences.shape[1], proof.firsts(differences)
            size = proof.PROBLEMS
            for n, row in enumerate(differences):
                stream = [Pair(f"p{at % size}", at // size, one) for at, one in enumerate(row)]
                at = min(int(one[n]) for one in first)
                verdict = next(v for v, one in zip(verdicts, first, strict=True) if one[n] == at)
                looks = {at - 1, *dice.integers(1, at, 2).tolist()} - {0} if at > 1 else set()
                for look in looks:
                    assert judge(stream[:look], pairs - look).verdict == "undecided"
                assert judge(stream[:at], pairs - at).verdict == verdict
                seen[verdict] += 1
    assert min(seen[verdict] for verdict in verdicts) > 20, seen


def test_a_program_writes_the_whole_of_its_results() -> None:
    """What a person wrote of models is in a file of its own, which no program writes."""
    by_program = (ROOT / "benchmarks/RESULTS-proof.md").read_text()
    assert [line for line in by_program.splitlines() if line[:1] == "#"] == ["# A proof, simulated"]
