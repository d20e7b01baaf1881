"""What a judge was paid for is not paid again: commands begun twice, at once or after an end."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TFGRPO, environment
from scripted import ScriptedEndpoint, write_problems
from store_helpers import killed
from waiting import until

import tfgrpo

STYLE = '[[criteria]]\nname = "kind"\nquestion = "Is it kind?"\n'
YES = json.dumps({"why": "so", "verdict": "yes"})
CASES = 3


class HeldJudge:
    """A judge that answers once it may."""

    def __init__(self) -> None:
        self.may = threading.Event()

    def __call__(self, request: dict[str, Any]) -> str:
        assert self.may.wait(240)
        return YES


@pytest.fixture
def judge() -> Iterator[HeldJudge]:
    held = HeldJudge()
    yield held
    held.may.set()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tfgrpo.Store.init(tmp_path).close()
    (tmp_path / "style.toml").write_text(STYLE)
    rows = [
        {"id": f"c{n}", "problem": f"Question {n}?", "pred": f"Yes, {n}."} for n in range(CASES)
    ]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def verifying(endpoint: ScriptedEndpoint, folder: Path) -> subprocess.Popen[str]:
    model = ("--model", "m", "--base-url", endpoint.base_url)
    log = (folder / "told.txt").open("a")
    with log:
        return subprocess.Popen(
            [TFGRPO, "verify", "cases.jsonl", "--domain", "rubric:style.toml", *model, "--json"],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )


def verdicts(process: subprocess.Popen[str]) -> dict[str, int]:
    counts: dict[str, int] = json.loads(process.communicate(timeout=240)[0])["verdicts"]
    return counts


def waits(folder: Path) -> bool:
    return "waiting for another verification" in (folder / "told.txt").read_text()


def test_a_verification_that_is_begun_twice_at_once_pays_its_judge_once(
    folder: Path, judge: HeldJudge
) -> None:
    with ScriptedEndpoint(judge) as endpoint:
        with killed(verifying(endpoint, folder)) as first:
            until(lambda: len(endpoint.requests) == CASES)
            with killed(verifying(endpoint, folder)) as second:
                until(lambda: waits(folder) or len(endpoint.requests) > CASES)
                judge.may.set()
                assert verdicts(first) == verdicts(second) == {"right": CASES}
        assert len(endpoint.requests) == CASES


def test_a_verification_that_waits_goes_on_where_the_other_is_killed(
    folder: Path, judge: HeldJudge
) -> None:
    with ScriptedEndpoint(judge) as endpoint, killed(verifying(endpoint, folder)) as first:
        until(lambda: len(endpoint.requests) == CASES)
        with killed(verifying(endpoint, folder)) as second:
            until(lambda: waits(folder) or len(endpoint.requests) > CASES)
            assert len(endpoint.requests) == CASES
            first.kill()
            judge.may.set()
            assert verdicts(second) == {"right": CASES}


def test_what_a_judge_answers_after_an_interrupt_is_kept(folder: Path, judge: HeldJudge) -> None:
    with ScriptedEndpoint(judge) as endpoint:
        with killed(verifying(endpoint, folder)) as first:
            until(lambda: len(endpoint.requests) == CASES)
            first.send_signal(signal.SIGINT)
            judge.may.set()
            first.communicate(timeout=240)
            assert first.returncode != 0
        with killed(verifying(endpoint, folder)) as second:
            assert verdicts(second) == {"right": CASES}
        assert len(endpoint.requests) == CASES


def test_an_answer_under_two_libraries_at_once_is_judged_once(
    folder: Path, judge: HeldJudge
) -> None:
    """Both libraries' attempts come to the same answer."""
    write_problems(folder / "heldout.jsonl", 1)
    with tfgrpo.Store.open(folder) as store:
        store.commit("main", [tfgrpo.Operation("ADD", text="Be kind.")], message="by hand")
    judged: list[dict[str, Any]] = []

    def script(request: dict[str, Any]) -> str:
        if "Is it kind?" not in json.dumps(request):
            return "A kind answer."
        judged.append(request)
        return judge(request)

    def watch(notice: tfgrpo.Notice) -> None:
        if "waiting" in str(notice):
            judge.may.set()

    async def both(given: dict[str, Any]) -> list[float]:
        evaluations = [
            asyncio.create_task(tfgrpo.evaluate("heldout.jsonl", library=name, **given))
            for name in ("HEAD", "v0")
        ]
        threading.Thread(
            target=lambda: (until(lambda: len(judged) > 1 or judge.may.is_set()), judge.may.set()),
            daemon=True,
        ).start()
        return [scores.mean for scores in await asyncio.gather(*evaluations)]

    with ScriptedEndpoint(script) as endpoint:
        given = {"store": folder, "base_url": endpoint.base_url, "model": "m", "samples": 1}
        given |= {"domain": "rubric:style.toml", "on_progress": watch}
        assert asyncio.run(both(given)) == [1.0, 1.0]
    assert len(judged) == 1
