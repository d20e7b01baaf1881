"""The example of a desk with tools and a simulated customer, on the tasks of public packages."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli
from scripted import LESSON, Reply, ScriptedEndpoint, comparison_of, completion, stage, teachable

import tfgrpo
from tfgrpo import AgentContext

CUSTOMER = "You play a person"


class Desk:
    """A model that serves a customer rightly where it is shown the lesson, or by its seed, and a
    customer who says at once what it is about."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = {row["id"]: row for row in rows}
        self.heard: list[str] = []

    def __call__(self, request: dict[str, Any]) -> str | Reply:
        system, last = request["messages"][0]["content"], request["messages"][-1]
        if CUSTOMER in system:
            self.heard.append(system + last["content"])
            wanted = next(row for row in self.rows.values() if row["persona"] in system)
            begun = "Assistant:" in last["content"]
            return "[done]" if begun else f"It is about case {wanted['id']}."
        if stage(request) != "rollout":
            return teachable(request)
        said = next(one["content"] for one in request["messages"] if one["role"] == "user")
        row = self.rows[said.removesuffix(".").split()[-1]]
        done = sum(one["role"] == "tool" for one in request["messages"])
        right = LESSON in system or request["seed"] % 2 == 0
        if not right or done == len(row["expected"]):
            return "Done: " + " ".join(row["tell"]) if right else "I am sorry."
        function = {**row["expected"][done]}
        function["arguments"] = json.dumps(function["arguments"])
        body = completion("", model="scripted")
        calls = [{"id": f"c{done}", "type": "function", "function": function}]
        body["choices"][0]["message"] |= {"content": None, "tool_calls": calls}
        return Reply(body)


@pytest.mark.parametrize("desk", ["retail", "airline"])
def test_a_desk_is_learned_at_from_what_it_leaves_in_the_data(
    cli: Cli, tmp_path: Path, desk: str
) -> None:
    module = f"tau2_{desk}_mcp"
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"the tasks are not installed: pip install tau2-{desk}-mcp-eval")
    example = ROOT / "examples/customer-desk"
    shutil.copy(example / "agent.py", tmp_path)
    wrote = [sys.executable, str(example / "rows.py"), desk, "3"]
    subprocess.run(wrote, cwd=tmp_path, check=True)
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    assert len(rows) == 3
    with ScriptedEndpoint(model := Desk(rows)) as server:
        where = ("--model", "m", "--base-url", server.base_url)
        agent = ("--agent", "agent:run", "--reward", "agent", "--policy", "paper")
        small = ("--epochs", "2", "--batch-size", "3", "--group-size", "3")
        cli("train", "train.jsonl", *where, *agent, *small)
    assert LESSON in cli("show", "HEAD").stdout
    attempts = json.loads(cli("rollouts", "train", "--json").stdout)
    first = [one for one in attempts if one["step"] == 1]
    assert {one["reward"] for one in first} == {0.0, 1.0}
    assert {one["reward"] for one in attempts if one["step"] == 2} == {1.0}
    assert not any(LESSON in heard or '"db"' in heard for heard in model.heard)
    costs = json.loads(cli("cost", "--json").stdout)["calls"]
    persona = sum(one["calls"] for one in costs if one["stage"] == "persona")
    assert persona == len(model.heard) == 2 * len(attempts)


async def asks_the_customer(problem: object, context: AgentContext) -> str:
    said = await context.reply([])
    more = [{"role": "user", "content": said}, {"role": "tool", "content": "secret"}]
    assert await context.reply([*more, {"role": "assistant", "content": "Well."}]) is None
    return str(said)


def asks_in_a_thread(problem: object, context: AgentContext) -> str:
    return str(context.reply([]).send(None))


def test_a_customer_speaks_to_any_agent_and_hears_nothing_of_tools(tmp_path: Path) -> None:
    heard: list[str] = []

    def script(request: dict[str, Any]) -> str:
        if CUSTOMER not in request["messages"][0]["content"]:
            return json.dumps(comparison_of([]))
        heard.append(request["messages"][-1]["content"])
        return "[done]" if "Well." in heard[-1] else "Where is it?"

    rows = [{"problem": "A parcel is late.", "persona": "A man in a hurry.", "answer": "x"}]
    options: dict[str, Any] = {"store": tmp_path, "model": "m", "keep_going": True, "epochs": 1}
    options |= {"verify": lambda problem, response: response == "Where is it?", "group_size": 2}
    with ScriptedEndpoint(script) as server:
        options["base_url"] = server.base_url
        tfgrpo.train_sync(rows, agent=asks_the_customer, **options)
        with pytest.raises(tfgrpo.TfgrpoError, match="a function that is `async`"):
            tfgrpo.train_sync(rows, agent=asks_in_a_thread, run="other", **options)
        del rows[0]["persona"]
        with pytest.raises(tfgrpo.TfgrpoError, match="a persona in the problem's row"):
            tfgrpo.train_sync(rows, agent=asks_the_customer, run="third", **options)
    assert len(heard) == 4
    assert sum("(nothing yet)" in one for one in heard) == 2
    assert not any("secret" in one for one in heard)
