"""`--inject credited`: what harms problems of a kind is left out of their prompts, on the wire."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Cli, one_line_error, problems
from scripted import Reply, ScriptedEndpoint, stage

from tfgrpo.evaluation.clusters import count_for, group_vectors
from tfgrpo.store import Store

SWAYS, IDLE = "When in doubt, stop early.", "Write tidily."
"""The first harms small numbers and helps large ones."""


def numbers_of(request: dict[str, Any]) -> tuple[int, int]:
    user = request["messages"][-1]["content"].split()
    return int(user[-3]), int(user[-1].rstrip("?"))


def script(request: dict[str, Any]) -> str | Reply:
    """A model that an experience helps with large numbers and harms with small ones."""
    match stage(request):
        case "embedding":
            number = int(request["input"].split()[2])
            vector = [1.0, 0.01 * number] if number > 6 else [0.01 * number, 1.0]
            return Reply({"data": [{"embedding": vector}], "usage": {"prompt_tokens": 3}})
        case "rollout":
            a, b = numbers_of(request)
            sign = 0.4 if a > 6 else -0.4
            chance = 0.5 + sign * (SWAYS in request["messages"][0]["content"])
            user = request["messages"][-1]["content"]
            coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()[0] / 256
            return f"\\boxed{{{a + b + (coin < chance)}}}"
        case "comparison":
            return json.dumps({"right_did": "", "wrong_did": "", "lessons": []})
        case _:
            return json.dumps({"closest": "G0", "decision": "same", "text": ""})


def shares(requests: list[dict[str, Any]]) -> dict[str, float]:
    """Returns how many of the attempts at small and at large numbers were shown what sways."""
    found: dict[str, list[bool]] = {"small": [], "large": []}
    for request in requests:
        if stage(request) == "rollout":
            size = "large" if numbers_of(request)[0] > 6 else "small"
            found[size].append(SWAYS in request["messages"][0]["content"])
    return {size: sum(seen) / len(seen) for size, seen in found.items()}


def write(folder: Path) -> None:
    rows = [json.loads(line) for line in problems(range(1, 13)).splitlines()]
    rows = [row | {"size": "large" if n > 6 else "small"} for n, row in enumerate(rows, 1)]
    (folder / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_kinds_by_a_field_are_left_out_in_training_gate_and_evaluation(
    tmp_path: Path, cli: Cli
) -> None:
    write(tmp_path)
    cli("init")
    cli("add", SWAYS, IDLE)
    kinds = ("--field", "kind=size")
    with ScriptedEndpoint(script) as server:
        where = ("--model", "m", "--base-url", server.base_url)
        how = ("--epochs", "1", "--batch-size", "12", "--group-size", "6")
        cli("train", "problems.jsonl", *how, *where, *kinds, "--dropout", "0.4", "--run", "learned")
        assert 0.4 < shares(server.requests)["small"] < 0.8, "all are shown it by default"
        done = cli("train", "problems.jsonl", *how, *where, "--inject", "credited", ok=False)
        one_line_error(done, "credited needs kinds", code=2)
        server.requests.clear()
        more = ("--inject", "credited", "--run", "credited", "--group-size", "4")
        cli("train", "problems.jsonl", *how, *where, *kinds, *more)
        assert shares(server.requests) == {"small": 0.0, "large": 1.0}
        server.requests.clear()
        scored = ("eval", "problems.jsonl", *where, *kinds, "--samples", "1")
        told = cli(*scored).stdout
        assert "without what harms a problem's kind" in told
        assert shares(server.requests) == {"small": 0.0, "large": 1.0}, "as the run was trained"
        server.requests.clear()
        cli(*scored)
        assert not server.requests, "scores are kept"
        cli(*scored, "--inject", "all")
        assert shares(server.requests) == {"small": 1.0, "large": 1.0}, "and apart from others"
    with Store.open(tmp_path / ".tfgrpo" / "store.db") as store:
        run = store.runs.get("credited")
        assert run.config["inject"] == "credited"
        sways = store.experience_id("G0")
        small = [r for r in store.runs.rollouts(run) if r.verdict["kind"] == "small"]
        assert all(sways in row.verdict["without"] for row in small)


def test_kinds_by_embedding_and_a_run_that_is_gone_on_with(tmp_path: Path, cli: Cli) -> None:
    """In the second epoch what harms is shown by the turned coin alone; a run that was cut off
    and gone on with asks what one in one go asks."""
    write(tmp_path)

    def asked(name: str, cut: int | None) -> list[dict[str, Any]]:
        def until(request: dict[str, Any]) -> str | Reply:
            enough = cut is not None and server.stages["rollout"] >= cut
            return Reply({"error": "no"}, status=401) if enough else script(request)

        with ScriptedEndpoint(until) as server:
            (tmp_path / "tfgrpo.toml").write_text('[model]\nembedding_model = "e"\n')
            where = ("--model", "m", "--base-url", server.base_url)
            how = ("--epochs", "2", "--batch-size", "12", "--group-size", "6", "--run", "r")
            how += ("--dropout", "0.3", "--inject", "credited", "--concurrency", "4")
            store = ("--store", f"{name}.db")
            cli(*store, "init")
            cli(*store, "add", SWAYS, IDLE)
            if cut is not None:
                assert cli(*store, "train", "problems.jsonl", *how, *where, ok=False).returncode
                server.script = script
            cli(*store, "train", "problems.jsonl", *how, *where)
            assert server.stages["embedding"] == 12, "each problem once"
            made = list(server.requests)
            if cut is None:  # problems of an evaluation belong to the nearest cluster
                cli(*store, "eval", "problems.jsonl", *where, "--samples", "1")
                assert shares(server.requests[len(made) :]) == {"small": 0.0, "large": 1.0}
            return made

    whole = asked("whole", None)
    attempts = [request for request in whole if stage(request) == "rollout"]
    first, second = shares(attempts[:72]), shares(attempts[72:])
    assert first["small"] == pytest.approx(0.7, abs=0.2)
    assert second["small"] == pytest.approx(0.3, abs=0.2)
    assert second["large"] == pytest.approx(0.7, abs=0.2)
    resumed = [r for r in asked("cut", 100) if stage(r) == "rollout"]

    def texts(requests: list[dict[str, Any]]) -> set[str]:
        return {json.dumps([r["messages"], r.get("seed")]) for r in requests}

    assert texts(attempts) == texts(resumed)
    with Store.open(tmp_path / "whole.db") as store:
        rows = store.runs.rollouts(store.runs.get("r"))
        assert {row.verdict["kind"] for row in rows} == {"cluster-1", "cluster-2"}


def test_clusters_are_the_same_each_time_and_take_in_others() -> None:
    dice = np.random.default_rng(3)
    centres = np.eye(8, dtype="<f4")[:3]
    learned = np.repeat(centres, 20, axis=0) + dice.normal(0, 0.1, (60, 8)).astype("<f4")
    learned /= np.linalg.norm(learned, axis=1, keepdims=True)
    found = group_vectors(learned, 3, np.vstack([learned, centres]))
    groups = [set(found[n * 20 : n * 20 + 20]) for n in range(3)]
    assert sorted(map(len, groups)) == [1, 1, 1]
    assert [{place} for place in found[60:]] == groups
    assert found == group_vectors(learned, 3, np.vstack([learned, centres]))
    assert set(group_vectors(learned[:1], 5, learned[:1])) == {0}
    assert [count_for(n) for n in (1, 12, 100, 1000)] == [1, 2, 7, 12]
