"""Verification by stated rules and within limits: options, patterns that hang, memory, several
right answers, and no ground truth on the wire."""

from __future__ import annotations

import asyncio
import importlib
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli
from pebble.pool.process import WorkerManager
from scripted import ScriptedEndpoint
from waiting import until

from tfgrpo import domains
from tfgrpo.data.problems import Problem
from tfgrpo.domains import DomainError, math
from tfgrpo.domains.base import Verdict, Verify
from tfgrpo.domains.mathematics import arithmetic
from tfgrpo.domains.verifier import Killed, Verifier
from tfgrpo.evaluation.verifier_cases import by_pattern


def write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def reward(spec: str, gold: str, answer: str) -> float | None:
    domain = domains.find(spec)
    assert domain.function is not None
    return domain.function(Problem("p", "q", gold), rf"\boxed{{{answer}}}").reward


def test_how_close_is_equal_and_when_units_matter_are_options() -> None:
    assert reward("math", r"\frac13", "0.333") == 0.0
    assert reward("math:digits=3", r"\frac13", "0.333") == 1.0
    assert reward("math:digits=3", r"\frac13", "0.334") == 0.0
    assert reward("math:digits=3", r"\sqrt{2}", "1.41") == 1.0
    assert reward("math", r"\sqrt{2}", "1.41") == 0.0
    assert reward("math", "12 cm", "12") == 1.0
    assert reward("math:units=strict", "12 cm", "12") == 0.0
    assert reward("math:units=strict", "12 cm", "0.12 m") == 1.0
    assert reward("math:units=strict", "12", "12 cm") == 1.0
    assert reward("math:digits=3,units=strict", r"\frac13", "0.333") == 1.0


def test_options_are_part_of_what_a_score_depends_on() -> None:
    assert domains.find("math:digits=6") is math.DOMAIN
    assert math.DOMAIN.identity == ""
    assert domains.find("math:digits=4").identity == "digits=4"


@pytest.mark.parametrize("options", ["digits=1", "digits=x", "units=none", "tolerance=1"])
def test_an_unknown_option_is_an_error_with_a_hint(options: str) -> None:
    with pytest.raises(DomainError) as caught:
        domains.find(f"math:{options}")
    assert "digits=2|3|4|" in str(caught.value.hint)


def test_any_of_several_ground_truths_is_right_and_the_rule_is_shown(
    cli: Cli, tmp_path: Path
) -> None:
    rows = [
        {"gold": ["080", "081"], "pred": r"\boxed{81}", "expected": True},
        {"gold": ["080", "081"], "pred": r"\boxed{80}", "expected": True},
        {"gold": ["080", "081"], "pred": r"\boxed{82}", "expected": False},
        {"gold": r"\frac12", "pred": r"\boxed{\frac13}", "expected": False},
        {"gold": "5 kg", "pred": r"\boxed{5 lbs}", "expected": False},
        {"gold": "x+1", "pred": r"\boxed{1+x}", "expected": True},
    ]
    write(tmp_path / "c.jsonl", rows)
    found = json.loads(cli("verify", "c.jsonl", "--json").stdout)
    assert found["agreement"] == [6, 6]
    rules = [case["reason"].partition(":")[0] for case in found["judged"]]
    assert rules == ["number", "number", "number", "number", "number", "formula"]
    assert "formula: equal" in cli("verify", "c.jsonl", "--all").stdout


def test_a_pattern_that_hangs_ends_with_the_time_limit(cli: Cli, tmp_path: Path) -> None:
    rows = [{"gold": "5", "pred": "a" * 40 + "!"}, {"gold": "5", "pred": "ab"}]
    write(tmp_path / "c.jsonl", rows)
    flags = ("--pattern", "^((?:a+)+)b?$", "--timeout", "1.5", "--workers", "1", "--json")
    found = json.loads(cli("verify", "c.jsonl", *flags).stdout)
    assert [case["verdict"] for case in found["judged"]] == ["unverifiable", "wrong"]
    assert "--pattern" in found["judged"][0]["reason"]


def greedy(size: int) -> int:
    return len(bytearray(size))


def test_a_worker_that_asks_for_too_much_memory_is_refused_it_and_the_pool_goes_on() -> None:
    async def ask(verifier: Verifier) -> tuple[int, str]:
        try:
            await verifier.run(greedy, 3 << 30)
        except Killed as error:
            return await verifier.run(greedy, 1000), str(error)
        raise AssertionError("it was given")

    with Verifier(workers=1, memory=2 << 30) as verifier:
        assert asyncio.run(ask(verifier)) == (1000, "MemoryError")


def test_a_verifier_that_exits_is_unverifiable_and_the_pool_goes_on() -> None:
    async def run() -> None:
        with Verifier(workers=1, seconds=60, warm=False) as verifier:
            problem = Problem("p", "q", "1")
            verdict = await verifier.verdict(problem, "r", exits)
            assert verdict.reward is None
            assert verdict.reason == "unverifiable: SystemExit: no licence"
            assert await verifier.run(len, "abc") == 3

    asyncio.run(run())


def exits(problem: Problem, response: str) -> Verdict:
    """Judges nothing, in a worker process."""
    sys.exit("no licence")


FINE = "from tfgrpo.domains.base import Verdict\ndef judge(p, r): return Verdict(1.0, r, '')\n"
IN_A_WORKER = "import os, multiprocessing\nif multiprocessing.parent_process():\n    "


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (f"{IN_A_WORKER}raise OSError('no device')\n{FINE}", "OSError: no device"),
        (f"{IN_A_WORKER}raise SystemExit('no licence')\n{FINE}", "SystemExit: no licence"),
        (f"{IN_A_WORKER}os._exit(3)\n{FINE}", "its worker ended as it started"),
        (f"{IN_A_WORKER}os.kill(os.getpid(), 9)\n{FINE}", "its worker ended as it started"),
        (
            "class Odd:\n    def __reduce__(self): return int, ('x',)\n"
            "def judge(p, r): return Odd()\n",
            "ValueError: invalid literal for int() with base 10: 'x'",
        ),
        ("def judge(p, r): return lambda: r\n", "Can't pickle local object"),
    ],
)
def test_a_verifier_that_workers_cannot_load_or_send_back_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    """Their answers are more than a pipe holds, so that most wait in the parent."""
    name = f"judge_{abs(hash(code))}"
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / f"{name}.py").write_text(code)
    bad = importlib.import_module(name).judge

    async def judged() -> tuple[list[Verdict], Verdict]:
        with Verifier(seconds=60, warm=False) as verifier:

            def one(judge: Verify) -> Awaitable[Verdict]:
                return verifier.verdict(Problem("p", "q"), "x" * 20_000, judge)

            all_at_once = asyncio.gather(*(one(judge) for judge in [fine, bad] * 12))
            return await asyncio.wait_for(all_at_once, 200), await one(fine)

    verdicts, after = asyncio.run(judged())
    assert [verdict.reward for verdict in verdicts] == [1.0, None] * 12
    assert all(reason in verdict.reason for verdict in verdicts[1::2])
    assert after.reward == 1.0


def fine(problem: Problem, response: str) -> Verdict:
    """Judges everything right, in a worker process."""
    return Verdict(1.0, response, "")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10^{10^{10}}", "large"),
        ("9^{9^{9^9}}", "large"),
        ("10^{-10^{10}}", "small"),
        ("(10^{9})!", "large"),
        ("5^{10^{10}} - 5^{10^{10}}", None),
        ("1^{10^{10}}", 1),
        ("2(3)(4)", 24),
        (r"22\frac{1}{2}", 22.5),
        ("7 7", None),
        ("3 +", None),
        ("1/0", None),
        ("(" * 500 + "1" + ")" * 500, None),
    ],
)
def test_numbers_that_nobody_can_write_down_are_told_from_others(text: str, value: object) -> None:
    assert arithmetic.value(text) == value


def test_an_evaluation_sends_no_ground_truth_that_a_conversation_ends_in(
    cli: Cli, tmp_path: Path
) -> None:
    secret = r"It comes to 4177, so \boxed{4177}."
    turns = [
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": secret},
    ]
    write(tmp_path / "d.jsonl", [{"problem": turns, "answer": "4177"}, {"problem": turns}])
    cli("init")
    with ScriptedEndpoint(lambda request: r"\boxed{4177}") as server:
        where = ("--model", "m", "--base-url", server.base_url)
        done = cli("eval", "d.jsonl", "--samples", "1", *where, "--json")
        assert "4177" not in json.dumps(server.requests)
    assert json.loads(done.stdout)["evaluations"][0]["mean"]["mean"] == 1.0


def test_a_log_says_how_many_samples_could_not_be_judged(cli: Cli, tmp_path: Path) -> None:
    rows = [{"problem": f"q{n}", "answer": "5"} for n in range(4)]
    write(tmp_path / "d.jsonl", rows)
    (tmp_path / "hanging.py").write_text(
        "from tfgrpo.domains import Domain, Verdict\n"
        "def verify(problem, response):\n"
        "    return Verdict(None if problem.id == 'line-2' else 1.0, None, 'no verdict')\n"
        "DOMAIN = Domain(name='hanging', verify=verify)\n"
    )
    cli("init")
    with ScriptedEndpoint(lambda request: r"\boxed{5}") as server:
        where = ("--model", "m", "--base-url", server.base_url)
        cli("eval", "d.jsonl", "--samples", "1", "--domain", "hanging:DOMAIN", *where)
    assert "1 sample could not be judged" in " ".join(cli("log").stdout.split())


def test_a_verifier_that_was_closed_starts_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with Verifier(workers=1) as verifier:
        assert asyncio.run(verifier.run(str.upper, "a")) == "A"
    monkeypatch.setattr("tfgrpo.domains.worker_pool.WorkerPool", None)
    with pytest.raises(Killed, match="the verifier was closed"):
        asyncio.run(verifier.run(str.upper, "a"))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the clock is all there is")
def test_a_worker_that_a_busy_machine_holds_up_judges_all_the_same() -> None:
    pattern, response = "^((?:a+)+)b?$", "a" * 22 + "!"  # a tenth of a second, about

    async def judged() -> str:
        with Verifier(workers=1, seconds=1.0) as verifier:
            others = {one.pid for one in multiprocessing.active_children()}
            await verifier.run(by_pattern, pattern, "aa")
            [worker] = {one.pid for one in multiprocessing.active_children()} - others
            assert worker is not None
            answer = asyncio.create_task(verifier.run(by_pattern, pattern, response))
            await asyncio.sleep(0.05)
            os.kill(worker, signal.SIGSTOP)
            await asyncio.wait({answer}, timeout=2.0)  # twice what it may take
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGCONT)
            return await answer

    assert asyncio.run(judged()) == ""


def test_a_worker_that_is_still_starting_when_all_is_over_says_nothing(
    spawned: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is held at its start until what it shares with the others is gone."""
    held: list[Any] = []
    start, close = WorkerManager.new_worker, WorkerManager.close_channels

    def hold(self: WorkerManager) -> None:
        start(self)
        if len(self.workers) == 2 and not held:
            held.append([*self.workers.values()][-1])
            os.kill(held[0].pid, signal.SIGSTOP)

    def let_go(self: WorkerManager) -> None:
        close(self)
        if held[0].is_alive():
            os.kill(held[0].pid, signal.SIGCONT)
            until(lambda: not held[0].is_alive())

    monkeypatch.setattr(WorkerManager, "new_worker", hold)
    monkeypatch.setattr(WorkerManager, "close_channels", let_go)
    with Verifier(workers=2, warm=False) as verifier:
        assert asyncio.run(verifier.run(abs, -1)) == 1
    assert not held[0].is_alive()
    assert capfd.readouterr().err == ""
