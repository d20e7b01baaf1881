"""The page for git users: every command on it, in its order, prints what the page shows."""

from __future__ import annotations

import difflib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import ROOT, command_server, environment
from test_house import commands

PAGE = ROOT / "docs/for-git-users.md"


@pytest.fixture(scope="module")
def console() -> ModuleType:
    spec = importlib.util.spec_from_file_location("console", ROOT / "docs/console.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_command_prints_what_the_page_shows(console: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    page = PAGE.read_text()
    now = console.refreshed(page, folder, command_server().programs)
    changed = "\n".join(difflib.unified_diff(page.splitlines(), now.splitlines(), lineterm=""))
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert "ADD Tandems count twice.\n" in done.stdout, done.stderr
    assert now == page, f"`python docs/console.py {PAGE}` prints the page as it is now\n{changed}"


def test_another_id_or_time_is_no_difference_but_another_experience_is(
    console: ModuleType,
) -> None:
    same = [console.Same(), console.Same()]
    assert same[0]("~ m63kfn5r906n at 2026-11-20 20:05 (just now)") == same[1](
        "~ zzzkfn5r9zzz at 2027-01-02 03:04 (2 days ago)"
    )
    assert same[0]("= m63kfn5r906n") == same[1]("= zzzkfn5r9zzz")
    assert same[0]("= 000kfn5r9000") != same[1]("= zzzkfn5r9zzz")


def test_the_way_from_init_to_merge_is_whole() -> None:
    typed = set(re.findall(r"^\$ (?:EDITOR=.* )?tfgrpo ([\w-]+)", PAGE.read_text(), re.MULTILINE))
    way = "init add log show diff modify keep edit status switch branch merge export revert undo"
    way += " redo reset reflog blame bisect tag checkout import fsck"
    assert typed >= set(way.split())


def test_every_verb_in_its_table_exists() -> None:
    table = PAGE.read_text().partition("## git → tfgrpo")[2]
    cells = [row.split("|")[2] for row in table.splitlines() if row.startswith("| ")][1:]
    verbs = {word for cell in cells for word in re.findall(r"`(?:tfgrpo )?([a-z-]+)\b", cell)}
    known = {name.split()[1] for name, _ in commands() if " " in name}
    assert verbs - known - {"v", "main", "a", "the"} == set()
