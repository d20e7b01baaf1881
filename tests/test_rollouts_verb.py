"""Looking at attempts: listed, and with all that they said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Cli, one_line_error
from desk import made
from scripted import ScriptedEndpoint
from test_collect import wandering

from tfgrpo.verify import Verifier


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, verifier: Verifier) -> str:
    folder: Path = tmp_path_factory.mktemp("branches")
    corpus = folder / "passages.jsonl"
    corpus.write_text(json.dumps({"title": "way", "text": "this way"}) + "\n")
    tools = {"use": ["search"], "corpus": str(corpus)}
    values = {"mode": "agent", "tools": tools, "rollouts": "branch", "group_size": 4, "epochs": 1}
    desk = made(folder, verifier, count=2, model="local:scripted", **values)
    desk.prepare()
    with ScriptedEndpoint(wandering) as server:
        desk.train(server)
    return str(desk.path)


def test_attempts_are_listed_with_their_rewards(cli: Cli, store: str) -> None:
    lines = cli("--store", store, "rollouts", "--step", "1").stdout.splitlines()
    assert lines[0].split() == ["step", "problem", "sample", "reward", "outcome", "answer"]
    assert len(lines) == 9


def test_a_branch_shows_what_it_shares_once(cli: Cli, store: str) -> None:
    told = cli("--store", store, "rollouts", "run", "--problem", "p1").stdout
    assert "messages are those of attempt" in told
    assert told.count("attempt ") >= 4
    found = [
        json.loads(line) for line in cli("--store", store, "rollouts", "--json").stdout.splitlines()
    ]
    branches = [row for row in found if "branch" in row["verdict"]]
    assert branches
    assert all(row["messages"][0]["role"] == "assistant" for row in branches)


def test_what_is_not_there_is_one_line(cli: Cli, store: str) -> None:
    one_line_error(cli("--store", store, "rollouts", "--problem", "nowhere", ok=False))
    cli("init")
    one_line_error(cli("rollouts", ok=False))
