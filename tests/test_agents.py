"""Agents of the user's: functions and commands that make the attempts, through a gateway."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG, Cli, one_line_error
from scripted import LESSON, ScriptedEndpoint, restless, stage, teachable, write_problems

import tfgrpo
from tfgrpo import AgentContext, Attempt
from tfgrpo.agents.workspace import Workspace
from tfgrpo.data.problems import Problem

ONCE = {"epochs": 2, "batch_size": 4, "group_size": 4, "model": "m", "policy": "paper"}
FLAGS = (
    *("--epochs", "2", "--batch-size", "4", "--group-size", "4", "--model", "m"),
    *("--policy", "paper"),
)
PROGRAM = """
import json, sys, urllib.request, os
task = json.load(sys.stdin)
assert "answer" not in task
assert json.loads(os.environ["TFGRPO_PROBLEM"]) == task
body = {"model": "whatever", "messages": task["prompt"], "seed": task["seed"],
        "temperature": task["temperature"], "max_tokens": task["max_tokens"]}
request = urllib.request.Request(
    os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(),
    {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"})
print(json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_problems(tmp_path / "problems.jsonl", 8)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def where(endpoint: ScriptedEndpoint, store: str, **more: Any) -> dict[str, Any]:
    return {**ONCE, "base_url": endpoint.base_url, "store": store, **more}


async def asks(problem: Problem, context: AgentContext) -> str:
    assert not problem.answer, "an agent is not told the answer"
    client = context.openai()
    answer = await client.chat.completions.create(
        model="some-other",
        messages=context.messages,
        seed=context.seed,
        temperature=context.temperature,
        max_tokens=context.max_tokens,
    )
    return str(answer.choices[0].message.content)


def asks_in_a_thread(problem: Problem, context: AgentContext) -> str:
    client = context.openai()
    answer = client.chat.completions.create(
        model="some-other",
        messages=context.messages,
        seed=context.seed,
        temperature=context.temperature,
        max_tokens=context.max_tokens,
    )
    return str(answer.choices[0].message.content)


def texts(result: tfgrpo.TrainResult) -> list[str]:
    return [experience.text for experience in result.library]


def learned(folder: Path, store: str) -> list[list[str]]:
    """The library at every version, in words."""
    with tfgrpo.Store.open(folder / store / ".tfgrpo/store.db") as opened:
        (run,) = opened.runs.all()
        return [
            [e.text for e in opened.library(f"{run.name}/step_{number}")] for number in range(1, 5)
        ]


@pytest.mark.parametrize("script", [restless, teachable] if LONG else [restless])
def test_every_way_learns_the_very_library_of_the_built_in_loop(folder: Path, script: Any) -> None:
    (folder / "my_agent.py").write_text(PROGRAM)
    command = f"{sys.executable} -S my_agent.py"
    agents: dict[str, Any] = {"own": None, "async": asks, "sync": asks_in_a_thread}
    asked = {}
    for name, agent in (agents | {"command": command}).items():
        (folder / name).mkdir()
        (folder / name / "my_agent.py").write_text(PROGRAM)
        with ScriptedEndpoint(script) as endpoint:
            more = {} if agent is None else {"agent": agent}
            result = tfgrpo.train_sync("problems.jsonl", **where(endpoint, name, **more))
            asked[name] = sorted(
                json.dumps(r["messages"]) for r in endpoint.requests if stage(r) == "rollout"
            )
            assert result.cost.usage.calls == len(endpoint.requests)
    assert len({json.dumps(learned(folder, name)) for name in asked}) == 1
    assert learned(folder, "own")[-1], "something is learned"
    assert asked["own"] == asked["async"] == asked["sync"] == asked["command"]


async def ask_plainly(problem: Problem, context: AgentContext) -> Attempt:
    """As a program does that knows nothing of a library."""
    client = context.openai()
    messages: list[Any] = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": problem.problem},
    ]
    first = await client.chat.completions.create(model="x", messages=messages, seed=context.seed)
    said = first.choices[0].message.content
    messages += [
        {"role": "assistant", "content": said},
        {"role": "user", "content": f"Sure? {problem.problem}"},
    ]
    again = await client.chat.completions.create(model="x", messages=messages, seed=context.seed)
    return Attempt(str(again.choices[0].message.content))


def test_the_library_goes_into_each_call_and_the_trajectory_comes_off_the_wire(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    result = tfgrpo.train_sync("problems.jsonl", **where(endpoint, ".", agent=ask_plainly))
    assert texts(result) == [LESSON]
    taught = [r for r in endpoint.requests if "You are an agent." in r["messages"][0]["content"]]
    later = [r for r in taught if LESSON in r["messages"][0]["content"]]
    assert len(taught) == 2 * 2 * 8 * 4
    assert len(later) == 3 * len(taught) // 4, "from the second of four steps on"
    assert all(r["messages"][0]["content"].count(LESSON) == 1 for r in later)
    assert all(r["model"] == "m" for r in taught)
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        rows = store.rollouts("problems")
        roles = [[m["role"] for m in row.verdict["messages"]] for row in rows]
        assert set(map(tuple, roles)) == {("assistant", "user", "assistant")}
        assert all(len(row.calls) == 2 for row in rows)


def test_an_attempt_is_shown_in_the_evaluation_and_scores_are_kept(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    write_problems(folder / "heldout.jsonl", 6, start=20)
    tfgrpo.train_sync("problems.jsonl", **where(endpoint, ".", agent=ask_plainly, epochs=1))
    options: dict[str, Any] = {"samples": 2, "store": ".", "agent": ask_plainly}
    scores = tfgrpo.evaluate_sync("heldout.jsonl", against="v0", **options)
    assert scores.mean == 1.0
    asked = len(endpoint.requests)
    verdict = tfgrpo.compare_sync("v0", "HEAD", "heldout.jsonl", **options)
    assert verdict.mean > 0
    assert len(endpoint.requests) == asked
    with pytest.raises(tfgrpo.TfgrpoError, match="ask_plainly is a Python object"):
        tfgrpo.evaluate_sync("heldout.jsonl", samples=1, store=".")


def test_an_estimate_goes_by_the_attempts_that_there_were(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    options = where(endpoint, ".", agent=ask_plainly, epochs=1)
    before = tfgrpo.estimate_sync("problems.jsonl", **options)
    assert any("no attempt is on record yet" in one for one in before.left_out)
    tfgrpo.train_sync("problems.jsonl", **options)
    after = tfgrpo.estimate_sync("problems.jsonl", **options, new=True)
    calls = {one.stage: one.calls for one in after.expected}
    assert calls["rollout"] == 2 * 32


def takes_one(problem: Problem) -> str:
    return ""


def generates(problem: Problem, context: AgentContext) -> Any:
    yield "no"


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("no-such-command --at all", "there is no command no-such-command for the agent"),
        ("./here.sh", "there is no command ./here.sh"),
        ("no_such_module:run", "cannot load the agent no_such_module:run"),
        ("json:no_such_function", "module 'json' has no attribute 'no_such_function'"),
        ("json:JSONEncoder", "is no function"),
        (takes_one, "does not take a problem and a context"),
        (generates, "is a generator"),
        ("'unclosed", "is no command"),
        ("", "run is empty"),
        ("  ", "run is empty"),
        ("json.py:loads", "cannot load the agent json.py:loads"),
    ],
)
def test_an_agent_that_is_none_is_refused_before_a_call(
    folder: Path, endpoint: ScriptedEndpoint, agent: Any, said: str
) -> None:
    with pytest.raises(tfgrpo.TfgrpoError, match=said.replace("(", "\\(")) as refused:
        tfgrpo.train_sync("problems.jsonl", **where(endpoint, ".", agent=agent))
    assert refused.value.hint
    assert not endpoint.requests
    assert not (folder / ".tfgrpo").exists()


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"workspace": ""}, "workspace is empty"),
        ({"workspace": ".", "answer_file": ""}, "answer_file is empty"),
        ({"workspace": ".", "answer_file": "/etc/passwd"}, "is not a path within the workspace"),
        ({"workspace": ".", "answer_file": "a/../../b"}, "is not a path within the workspace"),
        ({"workspace": ".", "answer_file": "."}, "is not a path within the workspace"),
        ({"reward": "no-such"}, "there is no command no-such for the reward"),
    ],
)
def test_what_an_agent_is_given_is_refused_before_a_call(
    folder: Path, endpoint: ScriptedEndpoint, more: dict[str, str], why: str
) -> None:
    with pytest.raises(tfgrpo.TfgrpoError, match=why) as refused:
        tfgrpo.train_sync("problems.jsonl", **where(endpoint, ".", agent="cat", **more))
    assert refused.value.hint
    assert "--agent 'python" not in refused.value.hint
    assert not endpoint.requests
    assert not (folder / ".tfgrpo").exists()


@pytest.mark.parametrize("way", ["wraps", "lambda"])
def test_what_only_wraps_an_async_function_gets_its_clients(
    folder: Path, endpoint: ScriptedEndpoint, way: str
) -> None:
    kinds: set[str] = set()

    async def inner(problem: Any, context: Any) -> str:
        client = context.openai()
        kinds.add(type(client).__name__)
        done = await client.chat.completions.create(
            model=context.model, messages=[{"role": "user", "content": problem.problem}]
        )
        return str(done.choices[0].message.content)

    def wrapped(*given: Any) -> Any:
        return inner(*given)

    agent = wrapped if way == "wraps" else (lambda problem, context: inner(problem, context))
    row = {"problem": "What is 2 op 3?", "answer": "6"}
    tfgrpo.train_sync([row], agent=agent, **where(endpoint, "s.db", keep_going=True))
    assert kinds == {"AsyncOpenAI"}


def test_a_function_that_raises_is_named(folder: Path, endpoint: ScriptedEndpoint) -> None:
    def breaks(problem: Problem, context: AgentContext) -> str:
        raise KeyError("no such price")

    with pytest.raises(tfgrpo.TfgrpoError, match="the agent breaks raised KeyError") as refused:
        tfgrpo.train_sync("problems.jsonl", **where(endpoint, ".", agent=breaks))
    assert "the code of the agent" in str(refused.value.hint)


def test_a_command_that_is_none_is_refused_on_one_line(cli: Cli, folder: Path) -> None:
    done = cli("train", "problems.jsonl", *FLAGS, "--agent", "no-such-command", ok=False)
    one_line_error(done, "there is no command no-such-command", code=2)


def test_an_agent_finds_the_other_fields_of_a_row_and_none_that_is_called_as_answers_are(
    folder: Path, endpoint: ScriptedEndpoint
) -> None:
    found = []

    async def looks(problem: Problem, context: AgentContext) -> str:
        found.append(dict(problem.meta))
        return await asks(problem, context)

    row = {"problem": "What is 2 op 3?", "answer": "6", "gold": "6", "solution": "2 + 3 + 1"}
    row |= {"answers": ["6", "six"], "repo": {"name": "sums"}, "level": 3}
    tfgrpo.train_sync([row], **where(endpoint, ".", agent=looks, keep_going=True))
    assert found
    assert all(one == {"repo": {"name": "sums"}, "level": 3} for one in found)


def test_a_copy_that_fails_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, temporary = tmp_path / "home", tmp_path / "tmp"
    for folder in (home, temporary):
        folder.mkdir()
    for name in ("a", "b"):
        (home / name).write_text(name)
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    workspace = Workspace(home, 1 << 20)

    def fails(source: str, target: str) -> None:
        Path(target).write_text("half")
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr("tfgrpo.agents.workspace.shutil.copy2", fails)
    with pytest.raises(OSError, match="no space"):
        workspace.copy()
    assert list(temporary.iterdir()) == []
