"""Every example trains by its one command and ends with a version that can be shown."""

from __future__ import annotations

import json
import re
import shutil
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
    assert LESSON in cli("show", show).stdout
