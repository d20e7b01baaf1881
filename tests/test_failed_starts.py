"""A start that fails leaves nothing behind, and an unfinished run can be hidden, on record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conftest import Cli, one_line_error, problems
from scripted import Reply, ScriptedEndpoint, teachable

from tfgrpo.store import Store


def refuse(request: dict[str, Any]) -> Reply:
    return Reply(b'{"error": {"message": "no such key"}}', 401)


def state_of(path: Path) -> tuple[object, ...]:
    with Store.open(path) as store:
        moves = len(list(store.port.names.ref_log(None)))
        return store.tags(), store.branches(), moves, store.runs.all()


def test_starts_that_fail_leave_no_run_no_tag_no_branch_and_no_lock(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "nums.jsonl").write_text(problems(range(4)))
    cli("init")
    store = tmp_path / ".tfgrpo/store.db"
    before = state_of(store)
    with ScriptedEndpoint(refuse) as server:
        where = ("nums.jsonl", "--model", "m", "--base-url", server.base_url, "--epochs", "1")
        for more in ((), ("--group-size", "2"), ("--branch", "other")):
            done = cli("train", *where, *more, ok=False)
            one_line_error(done, "no such key")
            assert state_of(store) == before
        assert list((tmp_path / ".tfgrpo/locks").glob("*.lock")) == []
        server.script = teachable
        assert "run nums: 4 problems" in cli("train", *where).stdout  # and not nums-4
    tags = json.loads(cli("tag", "--json").stdout)["tags"]
    assert set(tags) == {"nums/step_0", "nums/step_1"}


def test_a_run_is_on_record_from_its_first_answer_and_resumes(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "nums.jsonl").write_text(problems(range(4)))
    answered: list[int] = []

    def once(request: dict[str, Any]) -> str | Reply:
        answered.append(1)
        return teachable(request) if len(answered) == 1 else refuse(request)

    with ScriptedEndpoint(once) as server:
        where = ("nums.jsonl", "--model", "m", "--base-url", server.base_url)
        done = cli("train", *where, "--epochs", "1", "--concurrency", "1", ok=False)
        assert done.returncode == 1
        (run,) = json.loads(cli("runs", "--json").stdout)
        assert [state["state"] for state in run["states"]] == ["started", "stopped"]
        assert run["usage"]["rollout"]["calls"] == 1
        server.script = teachable
        again = ("train", *where, "--epochs", "1", "--keep-going")
        assert "run nums-2:" in cli(*again, "--seed", "1").stdout
        assert "run nums resumed" in cli(*again, "--concurrency", "2").stdout
        assert len(json.loads(cli("runs", "--json").stdout)) == 2
        assert "run nums is finished" in cli("train", "--resume", "nums").stdout


def test_an_unfinished_run_is_hidden_on_record_and_comes_back(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "nums.jsonl").write_text(problems(range(4)))
    with Store.init(tmp_path / ".tfgrpo/store.db", author="tester") as store:
        base = store.tip("main")
        for name in ("lost", "done"):
            store.create_tag(f"{name}/step_0", base)
            run = store.runs.create(
                name,
                name * 8,
                "main",
                base.number,
                {"data": "d", "models": {"model": "m"}},
                "tester",
            )
            store.runs.note(run, "interrupted" if name == "lost" else "finished")
    one_line_error(cli("runs", "rm", "lost", "done", ok=False), "run done is finished")
    assert len(json.loads(cli("runs", "--json").stdout)) == 2
    said = cli("runs", "rm", "lost", "-r", "a mistyped model").stdout
    assert said == "removed run lost; `tfgrpo train --resume lost` brings it back\n"
    again = json.loads(cli("runs", "rm", "lost", "--json").stdout)
    assert again == {"removed": ["lost"]}
    assert [run["name"] for run in json.loads(cli("runs", "--json").stdout)] == ["done"]
    assert "lost" not in cli("status").stdout
    removed = json.loads(cli("runs", "--all", "--json").stdout)[0]["states"][-1]
    assert (removed["state"], removed["detail"]) == ("removed", "a mistyped model")
    assert set(json.loads(cli("tag", "--json").stdout)["tags"]) == {"done/step_0"}
    cli("fsck")
