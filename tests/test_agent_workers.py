"""Agents over workers: a run in a shared store comes to the same whoever starts its agents."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from crew import outcome, prepare, train, train_alone
from scripted import ScriptedEndpoint, restless
from test_agents import PROGRAM

pytestmark = pytest.mark.postgres


def test_two_workers_with_an_agent_make_the_run_of_the_built_in_loop(
    tmp_path: Path, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    alone = tmp_path / "alone"
    alone.mkdir()
    with ScriptedEndpoint(restless) as server:
        prepare(alone, str(alone / "store.db"), server.base_url)
        train_alone(alone, str(alone / "store.db"))
    (tmp_path / "my_agent.py").write_text(PROGRAM)
    with ScriptedEndpoint(restless) as server:
        agent = {"run": f"{sys.executable} my_agent.py"}
        prepare(tmp_path, shared, server.base_url, agent=agent)
        train(tmp_path, shared, 2)
        rollouts = server.stages["rollout"]
    assert outcome(shared) == outcome(str(alone / "store.db"))
    assert rollouts > 36, "the driver itself tries lessons at the problems that taught them"
