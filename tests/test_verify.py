"""Verdicts come from other processes, and nothing that goes wrong there becomes a 0."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from waiting import until, until_so

from tfgrpo.data.problems import DatasetError, Problem
from tfgrpo.domains import math
from tfgrpo.domains.base import Domain, Verdict
from tfgrpo.domains.verifier import Verifier, verifiable

ENDLESS = r"\boxed{\sum_{n=1}^{99999999} \frac{1}{n^n+1}}"  # it is summed term by term

pytestmark = pytest.mark.usefixtures("spawned")
linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are looked up in /proc")


def problem(answer: str) -> Problem:
    return Problem("p", "q", answer)


def math_or_stuck(problem: Problem, response: str) -> Verdict:
    """Judges as mathematics does; where the response is a path, hangs with its pid left there."""
    if not response.startswith("/"):
        return math.verify(problem, response)
    Path(response).write_text(str(os.getpid()))
    while True:
        time.sleep(1)


def children() -> set[int]:
    """Returns the processes whose parent is this one, apart from Python's resource tracker."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        ours = int(fields[1]) == os.getpid() and fields[0] != "Z"
        if entry.name.isdigit() and ours and b"resource_tracker" not in words:
            found.add(int(entry.name))
    return found


@linux
def test_verdicts_come_from_worker_processes_which_end_with_the_verifier() -> None:
    before = children()
    with Verifier(workers=2) as verifier:
        answers = [r"\boxed{5}", r"\boxed{6}", r"\boxed{\frac{10}{2}}", "nothing"]

        async def ask() -> list[Verdict]:
            return await asyncio.gather(
                *(verifier.verdict(problem("5"), a, math.verify) for a in answers)
            )

        assert [v.reward for v in asyncio.run(ask())] == [1.0, 0.0, 1.0, 0.0]
        assert children() - before
    assert children() <= before


def test_a_judge_that_hangs_is_killed_in_time_and_the_pool_goes_on_serving() -> None:
    async def ask(verifier: Verifier) -> tuple[Verdict, float, Verdict]:
        await verifier.verdict(problem("5"), r"\boxed{5}", math.verify)  # the worker is up
        verifier.seconds, started = 1.5, time.monotonic()
        hung = await verifier.verdict(problem("5"), ENDLESS, math.verify)
        verifier.seconds, took = 60, time.monotonic() - started
        return hung, took, await verifier.verdict(problem("5"), r"\boxed{5}", math.verify)

    with Verifier(workers=1, seconds=60) as verifier:
        hung, took, after = asyncio.run(ask(verifier))
    assert hung.reward is None
    assert "1.5 s" in hung.reason
    assert took < 60
    assert after.reward == 1.0


@linux
def test_a_worker_that_is_killed_leaves_an_unverifiable_verdict_and_no_0(tmp_path: Path) -> None:
    pid = tmp_path / "pid"

    async def ask(verifier: Verifier, before: set[int]) -> tuple[Verdict, Verdict]:
        await verifier.verdict(problem("5"), r"\boxed{5}", math_or_stuck)
        hanging = asyncio.create_task(verifier.verdict(problem("5"), str(pid), math_or_stuck))
        await until_so(lambda: pid.exists() and pid.read_text())
        (worker,) = children() - before
        assert worker == int(pid.read_text())
        os.kill(worker, signal.SIGKILL)
        return await hanging, await verifier.verdict(problem("5"), r"\boxed{6}", math_or_stuck)

    before = children()
    with Verifier(workers=1, seconds=240) as verifier:
        killed, after = asyncio.run(ask(verifier, before))
    assert killed.reward is None
    assert "unverifiable" in killed.reason
    assert after.reward == 0.0


def test_the_event_loop_stays_responsive_while_judges_are_busy() -> None:
    gaps: list[float] = []

    async def tick() -> None:
        last = time.thread_time()  # judging here would take time of this thread's
        while True:
            await asyncio.sleep(0.01)
            now = time.thread_time()
            gaps.append(now - last)
            last = now

    async def ask(verifier: Verifier) -> list[Verdict]:
        await verifier.verdict(problem("5"), r"\boxed{5}", math.verify)
        ticking = asyncio.create_task(tick())
        verifier.seconds = 2.5
        hard = [asyncio.ensure_future(verifier.verdict(problem("5"), ENDLESS, math.verify))]
        hard.append(asyncio.ensure_future(verifier.verdict(problem("5"), ENDLESS, math.verify)))
        await asyncio.sleep(0)  # in which they are begun
        verifier.seconds = 60
        easy = [verifier.verdict(problem("5"), r"\boxed{5}", math.verify) for _ in range(50)]
        found = await asyncio.gather(*hard, *easy)
        ticking.cancel()
        return found

    with Verifier(workers=2, seconds=60) as verifier:
        found = asyncio.run(ask(verifier))
    assert [v.reward for v in found] == [None] * 2 + [1.0] * 50
    assert len(gaps) > 20
    assert max(gaps) < 0.5


def test_verdicts_that_are_no_longer_wanted_do_not_hold_up_the_end(tmp_path: Path) -> None:
    async def ask(verifier: Verifier) -> None:
        begun = tmp_path / "begun"
        hanging = asyncio.create_task(verifier.verdict(problem("5"), str(begun), math_or_stuck))
        await until_so(begun.exists)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging

    started = time.monotonic()
    with Verifier(workers=1, seconds=600) as verifier:
        asyncio.run(ask(verifier))
    assert time.monotonic() - started < 45


def hangs(problem: Problem) -> str | None:
    while problem.answer == "hang":
        time.sleep(1)
    return None


def test_a_ground_truth_that_hangs_what_parses_it_is_told_and_the_others_are_fine() -> None:
    domain = Domain(name="hanging", verify=math.verify, check=hangs)
    found = tuple(Problem(str(n), "q", "hang" if n == 7 else "5") for n in range(20))
    with pytest.raises(DatasetError, match=r"d\.jsonl: 7: .*no verdict in 3 s") as caught:
        verifiable(found, "d.jsonl", domain, [], skip=False, seconds=3)
    assert "like that" not in str(caught.value)


def test_unusable_ground_truths_are_refused_by_dataset_and_id_before_anything_is_asked() -> None:
    good = Problem("a", "q", "5")
    assert verifiable((good,), "data.jsonl", math.DOMAIN, [], skip=False) == ((good,), ())
    with pytest.raises(DatasetError, match=r"data\.jsonl: b: ") as caught:
        verifiable((good, Problem("b", "q", "$")), "data.jsonl", math.DOMAIN, [], skip=False)
    assert caught.value.hint


JUDGE = """
import sys, time
from pathlib import Path
from tfgrpo.domains.base import Verdict


def judge(problem, response):
    folder = Path(response)
    with open(folder / "begun", "a") as begun:
        begun.write("x")
    while not (folder / "go").exists():
        time.sleep(0.01)
    return Verdict(1.0, "4", "")
"""
JUDGING = """
import asyncio, sys
from patient import judge
from tfgrpo.data.problems import Problem
from tfgrpo.domains.verifier import Verifier

with Verifier(workers=1, seconds=6) as verifier:
    print(asyncio.run(verifier.verdict(Problem("p", "q", "4"), sys.argv[1], judge)))
"""


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-Z is of POSIX")
def test_the_time_in_which_a_process_stood_still_is_not_a_verdicts(tmp_path: Path) -> None:
    (tmp_path / "patient.py").write_text(JUDGE)
    process = subprocess.Popen(
        [sys.executable, "-c", JUDGING, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        begun = tmp_path / "begun"
        until(lambda: begun.exists() and begun.read_text() == "x")
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(8)  # by then its time is up, as the clock has it
        os.killpg(process.pid, signal.SIGCONT)
        until(lambda: begun.read_text() == "xx")
        (tmp_path / "go").touch()
        found, _ = process.communicate(timeout=240)
        assert "reward=1.0" in found
    finally:
        process.kill()
