"""Every example trains by its one command and ends with a version that can be shown."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Cli
from scripted import LESSON, ScriptedEndpoint

EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/tfgrpo.toml"))
ROWS = [
    json.loads(line)
    for path in ROOT.glob("examples/*/*.jsonl")
    for line in path.read_text().splitlines()
]
ANSWERS = {row["problem"]: row.get("answer", "") for row in ROWS if "problem" in row}
DECISIONS = {
    "right_did": {"lessons": [{"reason": "It was right.", "text": LESSON}]},
    "decision": {"closest": "G0", "decision": "same"},
    "when": {"when": "", "do": LESSON},
}


def script(request: dict[str, Any]) -> str:
    """Attempts are good or bad by their seed, and good where they are shown the one lesson that
    groups teach; judges see which."""
    asked = request["messages"][-1]["content"]
    wanted = request.get("response_format", {}).get("json_schema", {}).get("schema", {})
    for key, decision in DECISIONS.items():
        if key in wanted.get("properties", {}):
            return json.dumps(decision)
    if "grade" in wanted.get("properties", {}):
        return json.dumps({"why": "", "grade": 9 if "good" in asked else 2})
    if "verdict" in wanted.get("properties", {}):
        return json.dumps({"verdict": "incorrect"})
    taught = LESSON in json.dumps(request["messages"], ensure_ascii=False)
    if request["seed"] % 2 and not taught:
        return "So sorry. Nobody knows \\boxed{-1}."
    order = re.search(r"\d{4}", asked)
    number = order[0] if order else ""
    answer = ANSWERS.get(asked, "")
    return f"A good one: {number}.\nNext: we write.\n\\boxed{{{answer}}}\n<answer>{answer}</answer>"


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_trains_and_ends_with_a_version_to_show(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    """As its page says, in a folder that nobody has trusted but as the page says."""
    shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    page = (tmp_path / name / "README.md").read_text()
    nobody = {"TFGRPO_TRUST": "", "XDG_STATE_HOME": str(tmp_path / "state")}
    for place in re.findall(r"^\$ tfgrpo trust examples/(\S+)$", page, re.M):
        cli("trust", "--yes", place, env=nobody)
    with ScriptedEndpoint(script) as server:
        done = cli(
            "train",
            "--config",
            f"{name}/tfgrpo.toml",
            "--model",
            "m",
            "--base-url",
            server.base_url,
            env=nobody,
        )
    assert "learned 1 experience" in done.stdout
    (show,) = re.findall(r"^\$ tfgrpo show (\S+)$", page, re.M)
    shown = cli("show", show).stdout
    assert "HEAD" in shown.splitlines()[0], "the page names the run's last step"
    assert LESSON in shown


FEW = ("--epochs", "2", "--heldout-problems", "24", "--heldout-samples", "1")


def calculations(request: dict[str, Any]) -> str:
    """Attempts write calculations of bills, wrong ones or none by their seed, and right ones where
    they are shown the lesson."""
    if request["messages"][0]["content"].startswith("A small firm bills its work."):
        first, *more = request["messages"][1:]
        right = int(ANSWERS[first["content"]])
        if not more and request["seed"] % 3 == 0:
            return "That is quite a lot."
        taught = LESSON in request["messages"][0]["content"]
        return f"{right} weeks * {1 if taught or request['seed'] % 2 else 3} bills/week"
    return script(request)


@pytest.mark.usefixtures("measured")
def test_the_example_of_an_agent_learns_and_is_measured_with_its_interval(
    cli: Cli, tmp_path: Path
) -> None:
    """By the command of its page, but for the program's interpreter, and with fewer attempts: each
    is a process."""
    folder = Path("examples/time-on-the-bill")
    shutil.copytree(ROOT / folder, tmp_path / folder)
    train = tmp_path / folder / "train.jsonl"
    train.write_text("".join(train.read_text().splitlines(keepends=True)[:8]))
    page = (tmp_path / folder / "README.md").read_text()
    (line,) = re.findall(r"^\$ tfgrpo (train .* --agent .*)$", page, re.M)
    arguments = shlex.split(line.replace("python ", f"{sys.executable} -S "))
    with ScriptedEndpoint(calculations) as server:
        where = ("--model", "m", "--base-url", server.base_url)
        done = cli(*arguments, *where, *FEW)
    assert LESSON in cli("show", "HEAD").stdout
    told = re.search(r"- v0: (\+[\d.]+) \[(\+[\d.]+), (\+[\d.]+)\]", done.stdout)
    assert told, done.stdout
    assert any(len(one["messages"]) > 2 for one in server.requests if "seed" in one)
