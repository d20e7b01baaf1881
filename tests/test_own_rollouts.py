"""Attempts that code of the user's makes: how many at once, what they cost, what is kept."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import pytest
from conftest import TFGRPO, Cli, environment
from scripted import ScriptedEndpoint, stage
from waiting import until

DOMAIN = """
import asyncio, os
from tfgrpo.domains import Domain, Trajectory, Verdict

open_now = most = 0

async def rollout(context):
    global open_now, most
    open_now += 1
    most = max(most, open_now)
    for _ in range(20):
        await asyncio.sleep(0)
    open_now -= 1
    with open("attempts.txt", "a") as log:
        log.write(f"{context.problem.id} {context.sample} {most}\\n")
    context.record("SEVEN", prompt_tokens=int(os.environ.get("TOKENS", 0)), completion_tokens=1)
    return Trajectory("LONG WORDS 7" if context.sample % 2 else "LONG WORDS 8")

def verify(problem, response):
    return Verdict(float(response.endswith("7")), response, "")

DOMAIN = Domain(name="counting", verify=verify, rollout=rollout)
"""
ONCE = ("--epochs", "1", "--batch-size", "12", "--group-size", "4", "--model", "m")
ONCE += ("--policy", "paper")  # which learns from a last step too


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "counting_case.py").write_text(DOMAIN)
    rows = [{"id": f"p{n}", "problem": f"p{n}", "answer": "7"} for n in range(12)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def attempts(folder: Path) -> list[list[str]]:
    return [line.split() for line in (folder / "attempts.txt").read_text().splitlines()]


def test_concurrency_bounds_attempts_and_their_cost_is_on_record(cli: Cli, folder: Path) -> None:
    with ScriptedEndpoint() as server:
        where = ("--base-url", server.base_url, "--domain", "counting_case:DOMAIN")
        cli("train", "d.jsonl", *where, *ONCE, "--concurrency", "4", env={"TOKENS": "50"})
    made = attempts(folder)
    assert len(made) == 48
    assert max(int(most) for _, _, most in made) == 4
    stages = json.loads(cli("cost", "--json").stdout)["calls"]
    (told,) = [one for one in stages if one["stage"] == "rollout"]
    assert (told["calls"], told["prompt_tokens"], told["completion_tokens"]) == (48, 2400, 48)


def test_a_budget_in_tokens_ends_attempts_that_ask_elsewhere(cli: Cli, folder: Path) -> None:
    with ScriptedEndpoint() as server:
        where = ("--base-url", server.base_url, "--domain", "counting_case:DOMAIN")
        options = (*where, *ONCE, "--concurrency", "4")
        command = ("train", "d.jsonl", *options, "--budget", "500tok")
        said = cli(*command, ok=False, env={"TOKENS": "50"}).stderr
        assert not server.requests
    assert "the budget of 500 tokens is reached" in said
    assert "459 tokens spent" in said, "nine attempts of 51"
    assert len(attempts(folder)) == 9


def test_what_an_attempt_said_is_shown_after_a_kill_as_before(cli: Cli, folder: Path) -> None:
    held = threading.Event()

    def script(request: dict[str, object]) -> str:
        held.wait(240)
        return "{}"

    with ScriptedEndpoint(script) as server:
        where = ("--base-url", server.base_url, "--domain", "counting_case:DOMAIN")
        command = ("train", "d.jsonl", *where, *ONCE, "--concurrency", "4")
        process = subprocess.Popen([TFGRPO, *command], cwd=folder, env=environment())
        until(lambda: server.requests or process.poll() is not None)
        assert process.poll() is None
        process.kill()
        process.wait()
        assert len(attempts(folder)) == 48
        before = {json.dumps(one) for one in server.requests}
        server.requests.clear()
        held.set()
        cli(*command, ok=False)
        again = {json.dumps(one) for one in server.requests}
        assert {stage(one) for one in server.requests} >= {"comparison"}
    assert len(attempts(folder)) == 48, "none is made again"
    assert before & again, "the reflection model is shown the very same"
    assert all("LONG WORDS" in one for one in before)
