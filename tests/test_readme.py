"""What the README and docs/a-session.md show, run for real, with a model on loopback."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import ROOT, environment, quick_path
from scripted import LESSON, ScriptedEndpoint, stage, teachable

README = (ROOT / "README.md").read_text()
SESSION = (ROOT / "docs/a-session.md").read_text()
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


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)


def session() -> list[str]:
    """The commands that the session shows, but for the training itself."""
    typed = [
        line[2:]
        for block in blocks(SESSION, "console")
        for line in block.splitlines()
        if line[:2] == "$ "
    ]
    return [command for command in typed if not command.startswith("tfgrpo train")]


def first_screen() -> list[str]:
    """The commands from `train` to `checkout` that the README lists, each with a comment."""
    (block,) = [block for block in blocks(README, "sh") if "tfgrpo blame" in block]
    return [line.partition(" #")[0].strip() for line in block.splitlines()]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A folder in which the quick start has been run, and the model that it was run with."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / EXAMPLE, folder / EXAMPLE)
    with ScriptedEndpoint(firm) as endpoint:
        config = str(EXAMPLE / "tfgrpo.toml")
        flags = ["--config", config, "--model", "m", "--base-url", endpoint.base_url]
        done = run(folder, f"tfgrpo train {' '.join(flags)}")
        assert "step_9 is checked out" in done.stdout
        yield folder


def run(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "-c", command],
        cwd=folder,
        env=environment(PATH=quick_path()),
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


def test_the_readme_goes_from_train_to_blame_to_revert(trained: Path, tmp_path: Path) -> None:
    train, *others = first_screen()
    assert train == f"tfgrpo train --config {EXAMPLE / 'tfgrpo.toml'}"
    assert {command.split()[1] for command in others} >= {"blame", "revert", "undo"}
    folder = Path(shutil.copytree(trained, tmp_path / "copied"))
    assert run(folder, "tfgrpo checkout main").returncode == 0, "as training leaves it"
    for command in others:
        done = run(folder, command)
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout.strip(), command


def test_the_picture_is_drawn_from_the_recording() -> None:
    recording = (ROOT / "docs/terminal.ansi").read_text()
    picture = ElementTree.parse(ROOT / "docs/terminal.svg").getroot()
    drawn = "".join(text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text"))
    shown = re.sub(r"\x1b\[[0-9;]*m", "", recording)
    missing = [word for word in shown.split() if word not in drawn.replace("\xa0", " ")]
    assert not missing, "`python docs/terminal_picture.py draw docs/terminal.ansi` draws it anew"
    assert "docs/terminal.svg" in README
    typed = [line.split()[2] for line in shown.splitlines() if line.startswith("$ tfgrpo ")]
    assert {"log", "blame", "revert"} <= set(typed)


def test_the_python_runs(trained: Path) -> None:
    code, *_ = blocks(README, "python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=trained, env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert LESSON in done.stdout
