"""docs/agent-recipes.md, run: each file of it makes attempts at a problem, with a library."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from test_agent_commands import made as attempted
from test_agent_gateway import LESSON, Rig, rigged
from wires import Said, WireEndpoint

from tfgrpo.domains.verifier import Verifier

PAGE = (ROOT / "docs" / "agent-recipes.md").read_text()
ANSWER = "8 days."
FILES = ROOT / "examples" / "agents"
FRAMEWORKS = {
    "openai_agent": "openai",
    "agents_sdk_agent": "agents",
    "langgraph_agent": "langgraph",
    "pydantic_ai_agent": "pydantic_ai",
    "smolagents_agent": "smolagents",
    "dspy_agent": "dspy",
}


def answers(path: str, body: dict[str, Any]) -> Said:
    """A model that calls the tool that it is given once, and answers in the form that is asked."""
    text = json.dumps(body)
    tools = [
        (one.get("function") or one).get("name")
        for one in body.get("tools") or ()
        if isinstance(one, dict)
    ]
    if "final_answer" in tools:
        return "final_answer", {"answer": ANSWER}
    if tools and '"tool"' not in text and "tool_result" not in text:
        return str(tools[0]), {}
    if "[[ ## answer ## ]]" in text:
        return f"[[ ## answer ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]"
    return ANSWER


def has_library(server: WireEndpoint) -> bool:
    escaped = json.dumps(LESSON, ensure_ascii=False)[1:-1]
    return bool(server.requests) and all(
        json.dumps(body, ensure_ascii=False).count(escaped) == 1 for _, body in server.requests
    )


def test_the_page_lists_every_file_and_each_is_run_here() -> None:
    listed = re.findall(r"\]\(\.\./examples/agents/(\S+)\)", PAGE)
    assert sorted(listed) == sorted(path.name for path in FILES.iterdir() if path.is_file())
    others = ["node_agent.mjs", "curl_agent.sh", "score.sh", "verifiers_agent.py"]
    assert listed == [*(f"{name}.py" for name in FRAMEWORKS), *others]
    for path in FILES.glob("*.*"):
        code = [line for line in path.read_text().splitlines() if line.strip()]
        assert len(code) < 25, path
    (shown,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    assert shown == (FILES / "agents_sdk_agent.py").read_text()


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework(
    name: str, tmp_path: Path, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(FRAMEWORKS[name], reason=f"{FRAMEWORKS[name]} is not installed")
    module = types.ModuleType("my_agent")
    exec((FILES / f"{name}.py").read_text(), module.__dict__)
    monkeypatch.setitem(sys.modules, "my_agent", module)
    with WireEndpoint(answers) as server, rigged(tmp_path, server, verifier) as rig:
        found = attempted(rig, tmp_path, 60.0, run="my_agent:run")
        assert found.response == ANSWER, found.reason
        assert found.calls
        assert has_library(server)


@dataclass
class Served(Rig):
    """A rig with the endpoint that it asks."""

    server: WireEndpoint


@pytest.fixture
def rig(tmp_path: Path, verifier: Verifier) -> Any:
    with WireEndpoint(answers) as server, rigged(tmp_path, server, verifier) as opened:
        yield Served(opened.calls, opened.verifier, server)


def test_node(rig: Any, tmp_path: Path) -> None:
    node = shutil.which("node")
    modules = os.environ.get("TFGRPO_NODE_MODULES", "")
    if node is None or not (Path(modules) / "openai").is_dir():
        pytest.skip("needs node, and TFGRPO_NODE_MODULES with the npm package openai")
    shutil.copy(FILES / "node_agent.mjs", tmp_path)
    (tmp_path / "node_modules").symlink_to(modules)
    found = attempted(rig, tmp_path, 60.0, run="node node_agent.mjs")
    assert found.response == ANSWER, found.reason
    assert has_library(rig.server)


@pytest.mark.skipif(not (shutil.which("jq") and shutil.which("curl")), reason="needs jq and curl")
def test_a_shell_script(rig: Any, tmp_path: Path) -> None:
    shutil.copy(FILES / "curl_agent.sh", tmp_path)
    found = attempted(rig, tmp_path, 60.0, run="sh curl_agent.sh")
    assert found.response == ANSWER, found.reason
    assert has_library(rig.server)


STAND_IN = """
import json, os, subprocess, sys, urllib.request

task = " ".join(sys.argv[1:])
mark = {"type": "ephemeral"}
tool = {"name": "bash", "input_schema": {"type": "object"}, "cache_control": mark}
system = [{"type": "text", "text": "You are a coding agent.", "cache_control": mark}]
messages = [{"role": "user", "content": [{"type": "text", "text": task, "cache_control": mark}]}]
while True:
    body = {"model": "some-model", "max_tokens": 1024, "stream": True, "system": system,
            "tools": [tool], "messages": messages}
    request = urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages?beta=true", json.dumps(body).encode(),
        {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01",
         "anthropic-beta": "prompt-caching-2024-07-31", "content-type": "application/json"})
    text, given, called = "", "", None
    with urllib.request.urlopen(request) as events:
        assert events.headers["content-type"].startswith("text/event-stream")
        for line in events:
            if not line.startswith(b"data: "):
                continue
            event = json.loads(line[6:])
            block = event.get("content_block", {})
            called = block if block.get("type") == "tool_use" else called
            delta = event.get("delta", {})
            text += delta.get("text", "")
            given += delta.get("partial_json", "")
    if called is None:
        print(text)
        break
    called["input"] = json.loads(given)
    out = subprocess.run("echo PASS >> results.txt; ls", shell=True, capture_output=True, text=True)
    messages.append({"role": "assistant", "content": [called]})
    result = {"type": "tool_result", "tool_use_id": called["id"], "content": out.stdout}
    messages.append({"role": "user", "content": [result]})
"""


@pytest.mark.skipif(not shutil.which("jq"), reason="needs jq")
def test_a_coding_agents_command_line(rig: Any, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "main.txt").write_text("nothing yet\n")
    (tmp_path / "agent.py").write_text(STAND_IN)
    solve = f'{sys.executable} {tmp_path / "agent.py"} "$(jq -r .problem)"\n'
    (tmp_path / "solve.sh").write_text(solve)
    shutil.copy(FILES / "score.sh", tmp_path)
    options = {"run": "sh solve.sh", "workspace": "repo", "reward": "sh score.sh"}
    found = attempted(rig, tmp_path, 60.0, **options)
    assert (found.response, found.reward, found.reason) == (ANSWER, 0.25, "1 of 4"), found.reason
    assert [m["role"] for m in found.messages] == ["assistant", "tool", "assistant", "files"]
    assert "+PASS" in str(found.messages[-1]["content"])
    assert has_library(rig.server)
    _, body = rig.server.requests[0]
    assert json.dumps(body).count('"cache_control": {"type": "ephemeral"}') == 3
    assert rig.server.headers[0]["anthropic-beta"] == "prompt-caching-2024-07-31"


TASKSET = """
import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str = ""


class Days(vf.Task[Data]):
    @vf.reward(weight=1.0)
    async def right(self, trace: vf.Trace) -> float:
        return 0.75 * (self.data.answer == trace.last_reply)


class Taskset(vf.Taskset[Days, vf.TasksetConfig]):
    def load(self):
        for id, problem in (("p", "How many days?"), (None, "How many nights?")):
            yield Days(Data(id=id, prompt=problem, answer="8 days."), self.config.task)


__all__ = ["Taskset"]
"""


def test_an_environment_of_verifiers(rig: Any, tmp_path: Path) -> None:
    python = os.environ.get("TFGRPO_VERIFIERS_PYTHON")
    if python is None:
        pytest.skip("TFGRPO_VERIFIERS_PYTHON names no Python with verifiers and uv")
    (tmp_path / "days_taskset").mkdir()
    (tmp_path / "days_taskset/__init__.py").write_text(TASKSET)
    shutil.copy(FILES / "verifiers_agent.py", tmp_path)
    path = f"{Path(python).parent}:{os.environ['PATH']}"
    command = f"env PYTHONPATH=. PATH={path} {python} verifiers_agent.py days_taskset"
    listed = subprocess.run([*command.split(), "--rows"], cwd=tmp_path, check=True, stdout=-1)
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert rows[1] == {"id": "task-1", "problem": "How many nights?"}
    found = attempted(rig, tmp_path, 120.0, run=command, reward="agent")
    assert (found.response, found.reward) == (ANSWER, 0.75), found.reason
    assert has_library(rig.server)
