"""The README's session and its Python, run for real, with a model on loopback."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, TFGRPO, environment
from scripted import LESSON, ScriptedEndpoint, stage, teachable

README = (ROOT / "README.md").read_text()
EXAMPLE = Path("examples/time-on-the-bill")
ANSWERS = {
    row["problem"]: row["answer"]
    for name in ("train", "heldout")
    for row in map(json.loads, (ROOT / EXAMPLE / f"{name}.jsonl").read_text().splitlines())
}


def firm(request: dict[str, Any]) -> str:
    """A model that knows the firm's rules once it is taught, and else in half of the cases."""
    if stage(request) != "rollout":
        return teachable(request)
    answer = int(ANSWERS[request["messages"][-1]["content"]])
    taught = LESSON in request["messages"][0]["content"]
    return f"So it is \\boxed{{{answer if taught or request['seed'] % 2 else answer + 1}}}"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def session() -> list[str]:
    """The commands that the README's session shows, but for the training itself."""
    typed = [
        line[2:] for block in blocks("console") for line in block.splitlines() if line[:2] == "$ "
    ]
    return [command for command in typed if not command.startswith("tfgrpo train")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder in which the quick start has been run, and the model that it was run with."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / EXAMPLE, folder / EXAMPLE)
    with ScriptedEndpoint(firm) as endpoint:
        config = str(EXAMPLE / "tfgrpo.toml")
        flags = ["--config", config, "--model", "m", "--base-url", endpoint.base_url]
        done = run(folder, f"tfgrpo train {' '.join(flags)}")
        assert "step_3 is checked out" in done.stdout
        yield folder


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    path = f"{TFGRPO.parent}:{environment()['PATH']}"
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environment(PATH=path),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def test_the_session_holds_what_a_newcomer_is_promised() -> None:
    verbs = {command.split()[1] for command in session()}
    assert verbs >= {"log", "diff", "show", "checkout", "eval"}


def test_every_command_of_the_session_runs_in_its_order(trained: Path) -> None:
    for command in session():
        done = run(trained, command)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout.strip(), command


def test_the_python_runs(trained: Path) -> None:
    (code,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=trained, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert LESSON in done.stdout
