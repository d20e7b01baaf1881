"""The whole way with a real model on this machine: fetched, served, trained with, killed, resumed.

The smallest model there is, so nothing is claimed about what it learns; that is what the quick
start measures with a larger one.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path

import pytest
from conftest import TFGRPO, Cli, environment
from waiting import until

pytestmark = pytest.mark.model

SETTINGS = """
[model]
model = "local:smollm2-135m"

[train]
data = "sums.jsonl"
heldout = "sums.jsonl"
heldout_samples = 1
epochs = 1
batch_size = 2
group_size = 4
max_tokens = 60
"""


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    rows = [{"problem": f"What is {n} + {n}?", "answer": 2 * n} for n in (2, 3, 4, 5)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tfgrpo.toml").write_text(SETTINGS)
    return tmp_path


def journalled(store: Path) -> set[bytes]:
    with sqlite3.connect(store) as db:
        return {key for (key,) in db.execute("select key from journal")}


def test_a_real_model_trains_is_killed_and_goes_on(cli: Cli, sums: Path) -> None:
    store = sums / ".tfgrpo/store.db"
    cli("model", "get", "smollm2-135m", timeout=600)
    running = subprocess.Popen(
        [TFGRPO, "train"],
        cwd=sums,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: running.poll() is not None or (store.exists() and len(_safely(store)) >= 5))
    assert running.poll() is None, running.stderr and running.stderr.read()
    running.kill()
    running.communicate()
    before = journalled(store)

    said = cli("train", timeout=300).stdout
    assert "resumed" in said
    assert "step_2 is checked out" in said
    assert "v2 - v0:" in said
    assert before <= journalled(store), "an answer that was paid for is gone"

    with sqlite3.connect(store) as db:
        rollouts = db.execute("select outcome, reward, verdict from rollouts").fetchall()
        (answers,) = db.execute(
            "select count(*) from journal where stage = 'rollout' and completion_tokens > 0"
        ).fetchone()
    assert len(rollouts) == 4 * 4
    assert answers >= 4 * 4
    assert {outcome for outcome, _, _ in rollouts} <= {"answered", "truncated"}
    versions = json.loads(cli("log", "--json").stdout)
    assert [v["version"] for v in versions] == ["v2", "v1", "v0"]
    assert versions[0]["evaluations"][0]["model"] == "local:smollm2-135m"


def _safely(store: Path) -> set[bytes]:
    try:
        return journalled(store)
    except sqlite3.OperationalError:  # it is being made this very moment
        return set()
