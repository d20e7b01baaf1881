"""A task of inspect_ai is learned from as it is: its samples, its solver, its scorers."""

from __future__ import annotations

import json
import os
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, one_line_error
from scripted import LESSON, ScriptedEndpoint, stage, teachable

import tfgrpo

TASK = """
from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, system_message

ROWS = [
    Sample(id=f"p{n}", input=f"What is {n} op {n + 3}?", target=f"boxed{{{2 * n + 4}}}")
    for n in range(1, 4)
]

@task
def sums():
    return Task(MemoryDataset(ROWS), solver=[system_message("You add."), generate()],
                scorer=includes())

@task
def other():
    return Task(MemoryDataset(ROWS[:1]), solver=generate(), scorer=includes())
"""


def test_a_task_is_learned_from_and_scored_by_its_own_scorers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sums.py").write_text(TASK)

    numbers = count()

    def by_turns(request: dict[str, Any]) -> Any:
        if stage(request) != "rollout":
            return teachable(request)
        a, b = map(int, re.findall(r"What is (\d+) op (\d+)", json.dumps(request["messages"]))[-1])
        return f"It is boxed{{{a + b + next(numbers) % 2}}}"

    with ScriptedEndpoint(by_turns) as endpoint:
        result = tfgrpo.train_sync(
            inspect="sums.py@sums",
            epochs=1,
            batch_size=3,
            group_size=3,
            model="m",
            base_url=endpoint.base_url,
            store=".",
            policy="paper",
            concurrency=4,
        )
        asked = [r for r in endpoint.requests if stage(r) == "rollout"]
    assert len(asked) == 9
    assert all(r["messages"][0]["content"].startswith("You add.") for r in asked)
    assert [e.text for e in result.library] == [LESSON]
    with tfgrpo.Store.open(tmp_path / ".tfgrpo/store.db") as store:
        rows = store.rollouts(result.run.name)
    assert {row.reward for row in rows} == {0.0, 1.0}
    assert all(
        (row.reward == 1.0) == (json.dumps(row.verdict["response"]).endswith(_right(row.problem)))
        for row in rows
    )


def _right(problem: str) -> str:
    return f'{{{2 * int(problem[1:]) + 4}}}"'


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("nowhere.py@sums", "there is no file nowhere.py"),
        ("sums.py", "name one @TASK"),
        ("sums.py@nothing", "nothing"),
    ],
)
def test_a_task_that_is_none_is_refused_on_one_line(
    cli: Cli, tmp_path: Path, spec: str, words: str
) -> None:
    pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
    (tmp_path / "sums.py").write_text(TASK)
    where = ("--base-url", "http://127.0.0.1:9/v1", "--model", "m")
    env = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    one_line_error(cli("train", "--inspect", spec, *where, ok=False, env=env), words, code=2)


def test_without_the_package_it_says_what_to_install(cli: Cli, tmp_path: Path) -> None:
    try:
        import inspect_ai  # noqa: F401
    except ImportError:
        pass
    else:
        pytest.skip("inspect_ai is installed")
    (tmp_path / "sums.py").write_text(TASK)
    where = ("--base-url", "http://127.0.0.1:9/v1", "--model", "m")
    done = cli("train", "--inspect", "sums.py@sums", *where, ok=False)
    one_line_error(done, "pip install inspect_ai", code=2)
