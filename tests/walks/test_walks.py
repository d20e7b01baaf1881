"""Six kinds of users, each from an empty folder to what they came for."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from walking import Walk

WALKS = ("git", "reference", "notebook", "engineer", "newcomer", "agent")


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("name", WALKS)
def test_a_walk_gets_where_it_wants_to(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Walk(tmp_path)
    importlib.import_module(f"walk_{name}").walk(made)
    with capsys.disabled():
        print(f"\n{name}\n{made.report()}")
    assert made.steps


def test_every_walk_is_walked() -> None:
    files = {path.stem for path in Path(__file__).parent.glob("walk_*.py")}
    assert files == {f"walk_{name}" for name in WALKS}
