"""Attempts that the reference implementation recorded become a run to look into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Cli, one_line_error

from tfgrpo.data import problems
from tfgrpo.data.readers import DatasetError
from tfgrpo.interchange.reference_attempts import import_attempts
from tfgrpo.store import Store
from tfgrpo.store.errors import InvalidName, StoreError, TfgrpoError


def row(problem: int, reward: float | None, **more: Any) -> dict[str, Any]:
    return {
        "runid": 0,
        "problem": f"What is {problem} + 1?",
        "prompt": "Solve it.",
        "groundtruth": str(problem + 1),
        "response": f"It is {problem}.",
        "trajectories": [
            {
                "trajectory": [
                    {"role": "user", "content": "Solve it."},
                    {"role": "assistant", "content": "Let me count."},
                    {"role": "tool", "content": "2"},
                    {"role": "assistant", "content": f"It is {problem}."},
                ]
            }
        ],
        "reward": reward,
        "error": None,
        "rollout_time": 1.5,
    } | more


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """An experiment's folder with two steps, copy j of problem i at line j·batch+i."""
    folder = tmp_path / "data" / "math exp"
    failed = row(2, 0.0, error="the endpoint was gone", response=None, trajectories=None)
    for step, rows in enumerate(
        ([row(1, 1.0), row(2, 1.0), row(1, 0.0), failed], [row(3, 0), row(3, 1)])
    ):
        (folder / f"step_{step}").mkdir(parents=True)
        text = "".join(json.dumps(one) + "\n" for one in rows)
        (folder / f"step_{step}" / "rollout.jsonl").write_text(text)
    return folder


def test_a_folder_of_steps_is_a_finished_run_and_a_dataset(steps: Path, tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db") as store:
        found = import_attempts(store, tmp_path, steps)
        assert found.run.name == "math-exp"
        assert found[2:] == (6, 3, 2, 1)
        assert store.runs.state(found.run) == "finished"
        rows = store.runs.rollouts(found.run)
        assert [(r.step, r.problem, r.sample, r.reward, r.outcome) for r in rows] == [
            (0, "problem-1", 0, 1.0, "answered"),
            (0, "problem-1", 1, 0.0, "answered"),
            (0, "problem-2", 0, 1.0, "answered"),
            (0, "problem-2", 1, None, "failed"),
            (1, "problem-3", 0, 0.0, "answered"),
            (1, "problem-3", 1, 1.0, "answered"),
        ]
        assert [m["role"] for m in rows[0].verdict["messages"]] == [
            "assistant",
            "tool",
            "assistant",
        ]
        assert rows[3].verdict["reason"] == "the endpoint was gone"
        loaded = problems.load(found.dataset)
        assert [(p.id, p.answer) for p in loaded] == [
            ("problem-1", "2"),
            ("problem-2", "3"),
            ("problem-3", "4"),
        ]
        assert len(store.library()) == 0
        with pytest.raises(InvalidName):
            import_attempts(store, tmp_path, steps)
        one = import_attempts(store, tmp_path, steps / "step_1" / "rollout.jsonl", "again")
        assert {r.step for r in store.runs.rollouts(one.run)} == {1}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"reward": 1}', r"rollout\.jsonl:2: no 'problem'"),
        ('{"problem": "q", "reward": 7}', r"rollout\.jsonl:2: 'reward' is 7"),
        ('{"problem": "q"', r"rollout\.jsonl:2: not JSON"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_nothing_is_recorded(
    tmp_path: Path, line: str, said: str
) -> None:
    file = tmp_path / "rollout.jsonl"
    file.write_text(json.dumps(row(1, 1.0)) + "\n" + line + "\n")
    with Store.init(tmp_path / "store.db") as store:
        with pytest.raises(DatasetError, match=said) as caught:
            import_attempts(store, tmp_path, file, "x")
        assert caught.value.hint
        assert store.runs.all() == []
    assert not list(tmp_path.glob("*-problems.jsonl"))


@pytest.mark.parametrize("part", ["problem", "response", "groundtruth", "error"])
def test_half_a_character_is_refused_with_nothing_left(tmp_path: Path, part: str) -> None:
    file = tmp_path / "rollout.jsonl"
    file.write_text(json.dumps(row(1, 1.0) | {part: "x\ud800"}) + "\n")
    with Store.init(tmp_path / "store.db") as store:
        with pytest.raises(TfgrpoError):
            import_attempts(store, tmp_path, file, "x")
        assert store.runs.all() == []
    assert not list(tmp_path.glob("*-problems.jsonl"))


def test_an_import_that_cannot_be_recorded_leaves_no_problems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("no space")

    file = tmp_path / "rollout.jsonl"
    file.write_text(json.dumps(row(1, 1.0)) + "\n")
    with Store.init(tmp_path / "store.db") as store:
        monkeypatch.setattr(type(store.runs), "create", full)
        with pytest.raises(StoreError, match="no space"):
            import_attempts(store, tmp_path, file, "x")
        monkeypatch.undo()
        assert not list(tmp_path.glob("*-problems.jsonl"))
        assert import_attempts(store, tmp_path, file, "x").attempts == 1


def test_the_command_imports_them_and_rollouts_shows_them(
    cli: Cli, tmp_path: Path, steps: Path
) -> None:
    cli("init")
    said = cli("import", "reference-rollouts", str(steps)).stdout
    assert "6 attempts at 3 problems in 2 steps" in said
    assert "1 of them without a reward" in said
    assert "math-exp-problems.jsonl" in said
    listed = cli("rollouts", "math-exp").stdout
    assert "problem-1" in listed
    shown = cli("rollouts", "math-exp", "--problem", "problem-1").stdout
    assert "What is 1 + 1?" in shown
    assert "Let me count." in shown
    assert "math-exp" in cli("runs").stdout
    assert "finished" in cli("runs", "math-exp").stdout
    one_line_error(
        cli("import", "reference-rollouts", str(steps), ok=False), "there is already a run", "--run"
    )
