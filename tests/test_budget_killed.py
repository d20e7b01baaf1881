"""A budget is not crossed by a run that is killed again and again: what was in flight counts."""

from __future__ import annotations

import json
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG, worker_server
from forked import Forked
from scripted import Reply, ScriptedEndpoint, completion, restless, write_problems
from test_budget import PRICE, Billed
from test_training import posix
from waiting import until

KILLS = 60 if LONG else 5
CONCURRENCY = 64
MEAN, MOST = 60, 400
"""The tokens of an answer: on the average, and at most."""


class Restless(Billed):
    """Bills as it answers, whether anybody is there to read it; what it answers can be used."""

    def __call__(self, sent: dict[str, Any]) -> Reply:
        reply = super().__call__(sent)
        assert isinstance(reply.body, bytes)
        told = json.loads(reply.body)
        body = completion(restless(sent), finish_reason=told["choices"][0]["finish_reason"])
        return Reply({**body, "usage": told["usage"]})


@posix
@pytest.mark.parametrize(
    ("limit", "option", "policy"),
    [(600_000, "600ktok", "paper"), (0.24, "0.24", "paper"), (0.24, "0.24", "probation")],
    ids=["tokens", "dollars", "decided"],
)
def test_the_bill_of_a_run_that_is_killed_again_and_again_is_at_most_its_budget(
    tmp_path: Path, limit: float, option: str, policy: str
) -> None:
    seed = random.randrange(10**6) if LONG else 5
    chance, billed = random.Random(seed), Restless(seed, MEAN)
    data = write_problems(tmp_path / "problems.jsonl", 20)
    price = f"{{prompt = {PRICE.prompt}, cached = {PRICE.cached}, completion = {PRICE.completion}}}"
    (tmp_path / "tfgrpo.toml").write_text(f"[prices]\nscripted = {price}\n")
    with (
        ScriptedEndpoint(billed, delay=0.05) as server,
        Forked(tmp_path, worker_server().address) as forked,
    ):
        train = [
            *("--store", "store.db", "train", str(data), "--budget", option, "--seed", "1"),
            *("--base-url", server.base_url, "--model", "scripted", "--max-tokens", str(MOST)),
            *("--epochs", "400", "--batch-size", "20", "--group-size", "6"),
            *("--concurrency", str(CONCURRENCY), "--policy", policy),
        ]
        kills = 0
        while True:
            before = len(server.requests)
            forked.start(*train)
            wanted = before + chance.randrange(CONCURRENCY, 2 * CONCURRENCY)
            if kills < KILLS:
                until(lambda n=wanted: len(server.requests) >= n or forked.ended())
                time.sleep(chance.random() * 0.1)
                if not forked.ended():
                    forked.kill()
            code = forked.status()
            server.settle()
            if code != -signal.SIGKILL:
                break
            kills += 1
    end = "is reached" if policy == "paper" else "the rest of the budget pays for no further one"
    assert end in forked.said(), forked.said()
    bill = PRICE.of(billed.prompt, 0, billed.completion)
    bill = billed.tokens if "tok" in option else bill
    print(f"seed {seed}: {kills} kills, {len(server.requests)} requests, {bill / limit:.1%} billed")
    assert kills == KILLS if policy == "paper" else kills > KILLS // 2
    assert bill <= limit
    cut_off = re.search(r"set aside for calls that were cut off", forked.said())
    assert cut_off or policy == "probation"
