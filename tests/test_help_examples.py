"""Every example in every command's help, run for real."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import environment, problems, quick_path, run_command
from scripted import ScriptedEndpoint, stage, teachable
from test_house import commands, examples

from tfgrpo.production.experiment import start
from tfgrpo.store import Store
from tfgrpo.store.transfer.remotes import Remotes

ALONE = (
    "tfgrpo model get",
    "tfgrpo model serve",
    "tfgrpo model rm",
    "tfgrpo proxy",
    "tfgrpo ui",
    "tfgrpo mcp",
    "tfgrpo watch",
    "tfgrpo rollout ",
    "tfgrpo workers",
    "tfgrpo --store postgresql:",
    "tfgrpo traffic",
    "tfgrpo feedback",
    "tfgrpo collect",
    "tfgrpo proposal accept",
    "tfgrpo improve",
    "tfgrpo regress --unused",
    "tfgrpo proposal reject",
    "tfgrpo proposal show p1",
    "tfgrpo proposal reopen",
    "tfgrpo traffic --figures",
    "tfgrpo redo",
    "tfgrpo bisect run --data",
    "tfgrpo tag -s",
)
"""Not run here: those that fetch or serve real weights, what runs until it is stopped, what looks
at its calls (test_traffic.py and test_collected_problems.py do), decisions about proposals
(test_proposals.py makes some), a redo with nothing undone, a search by scores that nobody has
recorded, and what needs a person's key (test_signing.py makes one)."""

AFTER_A_RUN = ("tfgrpo plot", "tfgrpo rollouts")
"""Run once something was trained."""

CASES = [
    example
    for _, command in commands()
    for example in examples(command)
    if not example.startswith(ALONE) and "local:" not in example
]


def answered(request: dict[str, Any]) -> str:
    """The model that can be taught; what is no problem of its own is about Paris."""
    if stage(request) == "rollout" and " op " not in request["messages"][-1]["content"]:
        return "Paris"
    return teachable(request)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder as the examples suppose it: some history, a branch web, files to read."""
    tmp_path = tmp_path_factory.mktemp("examples")
    (tmp_path / "problems.jsonl").write_text(problems(range(4)))
    (tmp_path / "heldout.jsonl").write_text(problems(range(20, 24)))
    cases = [{"gold": "5", "pred": r"\boxed{5}", "expected": True}, {"gold": "5", "pred": "6"}]
    (tmp_path / "cases.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    (tmp_path / "experiences.json").write_text('{"G0": "From a file."}')
    tickets = "".join(f"ticket {n},{'ab'[n % 2]}\n" for n in range(20))
    (tmp_path / "tickets.csv").write_text(f"text,label\n{tickets}")
    (tmp_path / "library.md").write_text("- From Markdown.\n")
    with ScriptedEndpoint(answered) as endpoint:
        settings = f'[model]\nmodel = "m"\nbase_url = "{endpoint.base_url}"\n'
        (tmp_path / "tfgrpo.toml").write_text(settings)
        for command in (
            "init",
            "add 'Count both days.' 'Round up.'",
            "branch web",
            "modify G0 'Count both the days.'",
            "checkout web",
            "modify G1 'Round up to whole euros.'",
            "checkout main",
            "clone . team",
            "remote add origin team",
            "bundle create team.bundle",
            "bisect start HEAD v0",
        ):
            run(tmp_path, f"tfgrpo {command}")
        yield tmp_path


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    """A copy of that folder, to be changed at will."""
    copy = Path(shutil.copytree(prepared, tmp_path / "copied"))
    with Store.open(copy / ".tfgrpo/store.db") as store:
        Remotes(store).move("origin", str(copy / "team"))
    return copy


def run(folder: Path, command: str) -> None:
    env = environment(PATH=quick_path(), EDITOR="sed -i s/both/all/", VISUAL="")
    if set(command) & set("|<>;&$`*"):
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=240,
        )
    else:
        program, *arguments = shlex.split(command)
        assert program == "tfgrpo"
        done = run_command(arguments, folder, env, timeout=240)
    assert done.returncode == 0, (command, done.stdout, done.stderr)


@pytest.mark.parametrize("example", CASES)
def test_the_example_runs(example: str, folder: Path) -> None:
    if example.startswith(("tfgrpo experiment", "tfgrpo branch --back")):
        with Store.open(folder / ".tfgrpo/store.db") as store:
            store.create_branch("prod", "v0")
            store.move_branch("prod", "web" if "--back" in example else "main~1")
            if " start " not in example:
                start(store, "shorter", ("prod", "main"), 0.1)
    if example.startswith("tfgrpo key") and " new " not in example:
        run(folder, "tfgrpo key new shop")
        run(folder, "tfgrpo key new 'support bot'")
    settings = (folder / "tfgrpo.toml").read_text()
    address = settings.split('base_url = "')[1].split('"')[0]
    if "init --from" in example:  # it writes settings, and overwrites none
        (folder / "tfgrpo.toml").unlink()
    if example.startswith(AFTER_A_RUN):
        run(folder, "tfgrpo train problems.jsonl --epochs 1")
    run(folder, example.replace("http://127.0.0.1:8000/v1", address))
