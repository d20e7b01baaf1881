"""Branches that running experiments name: they do not go unawares, and status says which went."""

from __future__ import annotations

import json

import pytest
from test_experiment import run, store  # noqa: F401

from tfgrpo.production.experiment import delete_branch, experiment, rename_branch
from tfgrpo.store import InvalidName, Store

START = ("experiment", "start", "e", "--control", "prod", "--candidate", "new")


@pytest.fixture
def running(store: Store) -> Store:  # noqa: F811
    """An experiment e of prod (v1) and new (v2), with HEAD on main."""
    store.create_branch("new", "main")
    run(store, *START)
    return store


@pytest.mark.parametrize(
    ("line", "does"),
    [
        ("-d prod", "is running on prod"),
        ("-d new", "is trying new"),
        ("-m prod shop", "is running on prod"),
        ("-m new newer", "is trying new"),
    ],
)
def test_a_name_of_a_running_experiment_stays_unless_forced(
    running: Store, line: str, does: str
) -> None:
    before = running.branches()
    with pytest.raises(InvalidName, match=f"experiment e {does}") as refused:
        run(running, "branch", *line.split())
    assert "`tfgrpo experiment stop e` first" in (refused.value.hint or "")
    assert running.branches() == before
    run(running, "experiment", "stop", "e")
    run(running, "branch", *line.split())
    assert running.branches() != before


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("-D prod", "experiment e is paused, as it has no branch prod any more"),
        ("-D new", "experiment e goes on with v2, which was new"),
        ("-m -f prod shop", "experiment e is paused, as it has no branch prod any more"),
        ("-m -f new newer", "experiment e goes on with v2, which was new"),
    ],
)
def test_what_becomes_of_the_experiment_is_said_where_it_is_forced(
    running: Store, line: str, becomes: str
) -> None:
    said = json.loads(run(running, "branch", *line.split(), "--json"))
    assert said["experiments"][0].startswith(becomes)
    run(running, "undo")
    assert becomes in run(running, "branch", *line.split())


def test_programs_meet_the_same_refusal(running: Store) -> None:
    with pytest.raises(InvalidName):
        delete_branch(running, "prod")
    with pytest.raises(InvalidName):
        rename_branch(running, "prod", "shop")
    with running.forced():
        version, become = delete_branch(running, "new")
    assert (version.name, become) == ("v2", ["experiment e goes on with v2, which was new"])


def test_status_tells_a_branch_that_is_gone_from_one_that_was_moved(running: Store) -> None:
    def status() -> tuple[str, object, object]:
        fields = json.loads(run(running, "experiment", "status", "e", "--json"))
        return run(running, "experiment", "status", "e"), fields["state"], fields["paused"]

    assert status()[1:] == ("running", None)
    run(running, "branch", "-D", "prod")
    said, *state = status()
    assert "prod is gone, so nobody gets new (v2)" in said
    assert "`tfgrpo branch prod v1` makes it again" in said
    assert "was moved" not in said
    assert state == ["paused", "gone"]
    run(running, "branch", "prod", "v0")
    said, *state = status()
    assert "prod was moved since the experiment began" in said
    assert state == ["paused", "moved"]
    run(running, "branch", "-D", "prod")
    assert run(running, "experiment", "stop", "e") == "stopped e: prod is gone\n"
    assert "prod was deleted meanwhile, without new (v2)" in status()[0]
    assert experiment(running, "e").state == "stopped"
