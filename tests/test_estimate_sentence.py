"""An estimate in one sentence: what a well-behaved run takes is below its bound, and not far."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from scripted import (
    Reply,
    ScriptedEndpoint,
    comparison_of,
    completion,
    plain_plan,
    stage,
    write_problems,
)

import tfgrpo
from tfgrpo.cli.main import tfgrpo as command_line
from tfgrpo.costs.accounts import costs, total
from tfgrpo.learn.run_estimate import RunEstimate, StageEstimate
from tfgrpo.model.budget import BudgetReached
from tfgrpo.rendering.token_count import count_tokens
from tfgrpo.store import Store

pytestmark = pytest.mark.usefixtures("spoken")

PRICES = {"model": {"prompt": 1.0, "completion": 4.0}}
SENTENCE = re.compile(
    r"about \$[\d.,]+ and [\d hmins]+ \([\d,]+ in, [\d,]+ out a step\), at most \$[\d.,]+"
)


def prose(request: dict[str, Any], least: int, most: int) -> str:
    """A text of so many words, the same for the same request and sample."""
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).digest()
    return "so " * (least + digest[0] * (most - least) // 256)


def behaving(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., Reply]:
    """A model with answers as long as models give them, and usage counted in what is sent."""

    def script(request: dict[str, Any]) -> Reply:
        kind = stage(request)
        coin = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).digest()
        if kind == "rollout":
            message = answer(request)
        elif kind == "summary":
            message = {"content": prose(request, 100, 250)}
        elif kind == "comparison":
            text = f"When case {coin[0]} comes up, look at part {coin[1]} of it first, then add."
            if label := re.search(r"Right answer: ([a-z]+)", request["messages"][-1]["content"]):
                text = f"When case {coin[0]} of part {coin[1]} comes up, the answer is {label[1]}."
            lessons = [{"reason": prose(request, 20, 50), "text": text}]
            parts = ("right_did", "wrong_did", "right_takes")
            said = {part: prose(request, 30, 60) for part in parts}
            message = {"content": json.dumps({**comparison_of(lessons), **said})}
        else:
            operations = list(plain_plan(request["messages"][-1]["content"]))
            message = {"content": json.dumps({"operations": operations})}
        body = completion("", model=request["model"])
        body["choices"][0]["message"] |= message
        read = sum(count_tokens(json.dumps(part)) for part in request["messages"])
        read += sum(count_tokens(json.dumps(tool)) for tool in request.get("tools", ()))
        written = count_tokens(message.get("content") or "") + sum(
            count_tokens(json.dumps(call)) for call in message.get("tool_calls", ())
        )
        body["usage"] = {"prompt_tokens": read, "completion_tokens": written}
        return Reply(body)

    return script


def solved(request: dict[str, Any]) -> dict[str, Any]:
    """A solution of a few hundred tokens, right half the time."""
    asked = "".join(str(part["content"]) for part in request["messages"])
    a, b = map(int, re.findall(r"What is (\d+) op (\d+)", asked)[-1])
    right = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).digest()[5] % 2
    return {"content": prose(request, 400, 1_000) + f"\\boxed{{{a + b + right}}}"}


def labelled(request: dict[str, Any]) -> dict[str, Any]:
    """A label with a few words around it."""
    coin = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).digest()[5]
    return {"content": prose(request, 5, 30) + f"\n{('billing', 'technical')[coin % 2]}"}


def acted(request: dict[str, Any]) -> dict[str, Any]:
    """Two to four searches, then a solution."""
    turns = sum(part["role"] == "assistant" for part in request["messages"])
    asked = json.dumps(request["messages"][:2])
    if turns < 2 + hashlib.sha256(f"{asked}{request.get('seed')}".encode()).digest()[0] % 3:
        query = json.dumps({"query": prose(request, 10, 20)})
        function = {"name": "search", "arguments": query}
        call = {"id": f"call_{turns}", "type": "function", "function": function}
        return {"content": prose(request, 20, 60), "tool_calls": [call]}
    return solved(request)


SHAPES: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any]]] = {
    "math": (solved, {}),
    "labels": (labelled, {"domain": "choice", "batch_size": 10}),
    "agent": (acted, {"mode": "agent", "corpus": "passages.jsonl", "turns": 6}),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with problems, labels, passages and prices."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TFGRPO_STORE", raising=False)
    write_problems(tmp_path / "math.jsonl", 10)
    kinds = ("billing", "technical")
    rows = [{"problem": f"Ticket {n}: it fails.", "answer": kinds[n % 2]} for n in range(20)]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"title": f"Page {n}", "text": "It is so. " * 60, "url": f"u{n}"} for n in range(20)]
    (tmp_path / "passages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "tfgrpo.toml").write_text("[prices]\nmodel = {prompt = 1, completion = 4}\n")
    return tmp_path


def dollars(stages: tuple[StageEstimate, ...]) -> float:
    return sum(one.dollars or 0.0 for one in stages)


def paid(path: Path) -> float:
    """Returns what all calls of a store have cost."""
    with Store.open(path) as store:
        return total(costs(store, PRICES)).dollars


@pytest.mark.parametrize("policy", ["probation", "paper"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_costs_less_than_at_most_and_more_than_a_fifth_of_it(
    folder: Path, shape: str, policy: str
) -> None:
    answer, options = SHAPES[shape]
    data = "labels.jsonl" if shape == "labels" else "math.jsonl"
    with ScriptedEndpoint(behaving(answer)) as server:
        asked = {"model": "model", "base_url": server.base_url, "epochs": 2, **options}
        asked["policy"] = policy
        first: RunEstimate = tfgrpo.estimate_sync(data, **asked)
        tfgrpo.train_sync(data, **asked, run="r")
        cost = paid(folder / ".tfgrpo" / "store.db")
        seen: RunEstimate = tfgrpo.estimate_sync(data, **asked, new=True)
    assert cost <= dollars(first.most) <= 5 * cost
    assert dollars(first.expected) < dollars(first.most)
    assert 0.5 * cost <= dollars(seen.expected) <= 1.6 * cost
    assert cost <= dollars(seen.most) <= 4 * cost


def test_the_sentence_and_what_is_left_of_a_run(folder: Path) -> None:
    with ScriptedEndpoint(behaving(solved)) as server:
        asked = ("math.jsonl", "--model", "model", "--base-url", server.base_url)
        small = ("--epochs", "3", "--batch-size", "5", "--group-size", "3")
        command = ["train", *asked, *small]
        before = CliRunner().invoke(command_line, [*command, "--estimate"]).output
        assert SENTENCE.search(" ".join(before.split())), before
        assert "--details" in before
        assert "comparison" not in before
        detailed = CliRunner().invoke(command_line, [*command, "--estimate", "--details"]).output
        assert "comparison" in detailed
        stopped = CliRunner().invoke(command_line, [*command, "--budget", "0.22"])
        assert stopped.exit_code, stopped.output
        path = folder / ".tfgrpo" / "store.db"
        gone = paid(path)
        rest = [CliRunner().invoke(command_line, [*command, "--estimate"]).output]
        rest += [
            CliRunner().invoke(command_line, ["train", "--resume", "math", "--estimate"]).output
        ]
        assert rest[0] == rest[1]
        assert "for what is left after" in " ".join(rest[0].split()), rest[0]
        said = CliRunner().invoke(command_line, [*command, "--estimate", "--json"]).stdout
        left = json.loads(said)
        CliRunner().invoke(command_line, command)
        more = paid(path) - gone
    assert 0 < left["steps_done"] < 6
    assert left["steps"] + left["steps_done"] == 6
    assert left["spent_dollars"] == pytest.approx(gone)
    expected, most = (sum(one["dollars"] for one in left[key]) for key in ("expected", "most"))
    assert 0.6 * more <= expected <= 1.6 * more
    assert more <= most <= 5 * more


@pytest.mark.parametrize("priced", [True, False])
def test_what_is_left_of_a_run_that_stopped_in_its_first_step(folder: Path, priced: bool) -> None:
    if not priced:
        (folder / "tfgrpo.toml").unlink()
    with ScriptedEndpoint(behaving(solved)) as server:
        small = ("--epochs", "3", "--batch-size", "5", "--group-size", "3")
        command = ["train", "math.jsonl", "--base-url", server.base_url, "--model", "model", *small]
        assert CliRunner().invoke(command_line, [*command, "--budget", "4000tok"]).exit_code
        asked = len(server.requests)

    def estimated(*more: str) -> dict[str, Any]:
        done = CliRunner().invoke(command_line, [*more, "--estimate", "--json"])
        estimate: dict[str, Any] = json.loads(done.stdout)
        return estimate

    with Store.open(folder / ".tfgrpo" / "store.db") as store:
        spent = total(costs(store, PRICES))
    whole, left = estimated(*command, "--new"), estimated(*command)
    assert left == estimated("train", "--resume", "math")
    assert (left["steps"], left["steps_done"]) == (whole["steps"], 0)
    assert (whole["spent_tokens"], whole["spent_dollars"]) == (0, 0)
    tokens = spent.usage.prompt_tokens + spent.usage.completion_tokens
    assert left["spent_tokens"] == tokens > 0
    assert left["spent_dollars"] == (pytest.approx(spent.dollars) if priced else None)
    calls = [
        {one["stage"]: one["calls"] for one in each["expected"]}["rollout"]
        for each in (whole, left)
    ]
    assert calls[0] - calls[1] == asked == spent.usage.calls
    resume = ["train", "--resume", "math", "--estimate", "--details"]
    said = " ".join(CliRunner().invoke(command_line, resume).output.split())
    assert re.search(r"for what is left after \S+( k tokens)? in the first step", said), said
    assert "nothing has been spent" not in said
    anew = CliRunner().invoke(command_line, [*command, "--new", "--estimate", "--details"]).output
    assert "nothing has been spent" in anew
    assert "what is left" not in anew


def test_what_is_left_of_a_run_with_a_gate_has_the_trials_that_come(folder: Path) -> None:
    lines = (folder / "math.jsonl").read_text().splitlines(keepends=True)
    (folder / "math.jsonl").write_text("".join(lines[:6]))
    (folder / "gate.jsonl").write_text("".join(lines[6:]))
    path = folder / ".tfgrpo" / "store.db"

    def trials() -> int:
        with Store.open(path) as store:
            spent = store.runs.spent()
        return sum(one.usage.calls for one in spent if one.stage == "evaluation")

    with ScriptedEndpoint(behaving(solved)) as server:
        asked = {"base_url": server.base_url, "batch_size": 2, "group_size": 3, "epochs": 5}
        asked |= {"model": "model", "policy": "paper", "gate": "gate.jsonl"}
        with pytest.raises(BudgetReached):
            tfgrpo.train_sync("math.jsonl", **asked, run="r", budget="0.75")
        before = trials()
        left: RunEstimate = tfgrpo.estimate_sync("math.jsonl", **asked)
        tfgrpo.train_sync("math.jsonl", **asked, run="r")
    more = trials() - before
    assert before > 20
    assert left.steps_done > 2
    assert left.steps > 0
    (most,) = (one.calls for one in left.most if one.stage == "evaluation")
    assert 0 < more <= most <= 5 * more


def test_a_local_model_is_told_by_its_time(folder: Path) -> None:
    command = ["train", "math.jsonl", "--model", "local:qwen2.5-coder-1.5b", "--estimate"]
    said = " ".join(CliRunner().invoke(command_line, command).output.split())
    assert re.search(
        r"about [\d hmins]+ \([\d,]+ in, [\d,]+ out a step\), at most [\d hmins]+", said
    )
    assert "at no cost" in said
    left = json.loads(CliRunner().invoke(command_line, [*command, "--json"]).stdout)
    assert 0 < left["seconds"] < left["most_seconds"]


def talks(folder: Path, turns: int) -> Path:
    """Writes conversations of so many turns at most, and the rubric that they are held to."""
    rubric = '[[criteria]]\nname = "short"\nmax_words = 20000\n[[criteria]]\nname = "odd"\n'
    (folder / "rubric.toml").write_text(rubric + r"regex = '\A(?:so so ?)+\Z'" + "\n")
    path = folder / f"talks-{turns}.jsonl"
    rows = [
        {"problem": f"Where is order {n}?", "persona": "somebody in a hurry", "turns": turns}
        for n in range(10)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def talking(request: dict[str, Any]) -> Reply:
    """A model that speaks for either side of a conversation."""
    if "in a hurry" in json.dumps(request["messages"]) and "[done]" in json.dumps(request):
        body = completion(prose(request, 30, 60), model=request["model"])
        read = sum(count_tokens(json.dumps(part)) for part in request["messages"])
        body["usage"] = {"prompt_tokens": read, "completion_tokens": 60}
        return Reply(body)
    return behaving(lambda request: {"content": prose(request, 100, 300)})(request)


@pytest.mark.parametrize("policy", ["probation", "paper"])
def test_a_conversation_costs_less_than_at_most_whatever_its_turns(
    folder: Path, policy: str
) -> None:
    with ScriptedEndpoint(talking) as server:
        options = {"model": "model", "base_url": server.base_url, "policy": policy, "epochs": 2}
        options["domain"] = "rubric:rubric.toml"
        short, long = (
            tfgrpo.estimate_sync(str(talks(folder, turns)), **options) for turns in (2, 12)
        )
        tfgrpo.train_sync("talks-12.jsonl", **options, run="r")
        cost = paid(folder / ".tfgrpo" / "store.db")
        seen = tfgrpo.estimate_sync("talks-12.jsonl", **options, new=True)
    assert cost <= dollars(long.most)
    assert cost <= dollars(seen.most)
    for one in ("persona", "summary"):
        few, many = (
            next(row.prompt_tokens / row.calls for row in estimate.most if row.stage == one)
            for estimate in (short, long)
        )
        assert many > 2.5 * few, one


def test_an_agent_takes_all_its_turns_at_most_however_few_were_seen(folder: Path) -> None:
    answer, options = SHAPES["agent"]
    with ScriptedEndpoint(behaving(answer)) as server:
        options = {"model": "model", "base_url": server.base_url, "epochs": 1, **options}
        first = tfgrpo.estimate_sync("math.jsonl", **options)
        tfgrpo.train_sync("math.jsonl", **options, run="r")
        seen = tfgrpo.estimate_sync("math.jsonl", **options, new=True)
    calls = [
        next(row.calls for row in estimate.most if row.stage == "rollout")
        for estimate in (first, seen)
    ]
    assert calls[0] == calls[1]
