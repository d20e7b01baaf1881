"""Protected names between stores: a push or pull needs force to move one, and none travels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Cli, one_line_error
from store_helpers import add
from sync_helpers import far_ssh, made, names, rows, sound

from tfgrpo.store import ProtectedName, PushRefused, Store
from tfgrpo.store.history.name_moves import protect, protected, undo
from tfgrpo.store.transfer import locations, sync
from tfgrpo.store.transfer.bundle import create


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Store]:
    """A store that others clone, with a branch and a tag that are protected."""
    with made(tmp_path / "team/.tfgrpo/store.db") as store:
        store.create_branch("web")
        store.create_tag("approved")
        store.checkout("web")
        protect(store, "branch", "main")
        protect(store, "tag", "approved")
        yield store


@pytest.fixture(params=["path", "ssh"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> locations.Location:
    return locations.parse("far:team" if request.param == "ssh" else str(tmp_path / "team"))


@pytest.fixture
def copy(team: Store, tmp_path: Path) -> Iterator[Store]:
    path = tmp_path / "copy/.tfgrpo/store.db"
    locations.clone(locations.parse(str(tmp_path / "team")), path, author="bob")
    with Store.open(path, author="bob") as store:
        store.create_branch("main", "origin/main")
        yield store


def push(store: Store, where: locations.Location, name: str, **flags: bool) -> None:
    ssh = far_ssh(Path(store.path).parents[2])
    with locations.peer(where, author="bob", ssh=ssh) as peer:
        sync.push(store, peer, [name], remote="origin", **flags)


def test_protections_stay_where_they_are(team: Store, copy: Store, tmp_path: Path) -> None:
    assert protected(copy, "branch") | protected(copy, "tag") == set()
    header, _ = create(team, tmp_path / "all.bundle", [])
    assert header.names.at.keys() == {"heads/main", "heads/web", "tags/approved"}


def test_a_push_moves_a_protected_branch_only_by_force(
    team: Store, copy: Store, where: locations.Location
) -> None:
    copy.commit("main", [add("New.")], message="new")
    before = rows(team)
    with pytest.raises(PushRefused, match="branch main is protected there") as refused:
        push(copy, where, "main")
    assert "--force" in str(refused.value.hint)
    assert rows(team) == before
    push(copy, where, "main", force=True)
    assert team.tip("main").digest == copy.tip("main").digest
    assert protected(team, "branch") == {"main"}
    with pytest.raises(ProtectedName):
        team.commit("main", [add("x")], message="only that push was forced")
    push(copy, where, "main")  # where it stands: no move
    sound(team)


def test_a_push_deletes_a_protected_name_only_by_force_and_its_protection_too(
    team: Store, copy: Store, where: locations.Location
) -> None:
    before = names(team)
    for name in ("main", "approved"):
        with pytest.raises(PushRefused, match="is protected there"):
            push(copy, where, name, delete=True)
    assert names(team) == before
    for name in ("main", "approved"):
        push(copy, where, name, delete=True, force=True)
    assert protected(team, "branch") | protected(team, "tag") == set()
    with team.forced():
        undo(team)
    assert protected(team, "tag") == {"approved"}
    sound(team)


def test_a_pull_into_a_protected_branch_is_refused_whole(
    team: Store, copy: Store, tmp_path: Path
) -> None:
    with team.forced():
        team.commit("main", [add("New.")], message="new")
    protect(copy, "branch", "main")
    before = rows(copy)

    def pull() -> sync.Pulled:
        source = locations.source(locations.parse(str(tmp_path / "team")), author="bob")
        with source as team:
            return sync.pull(copy, team, "origin", "main", into="main", called="origin main")

    with pytest.raises(ProtectedName):
        pull()
    assert rows(copy) == before
    with copy.forced():
        assert pull().after.digest == team.tip("main").digest
    pull()  # nothing to move, nothing to refuse
    sound(copy)


def test_the_verbs_refuse_and_take_force(team: Store, copy: Store, cli: Cli) -> None:
    copy.checkout("main")
    with team.forced():
        team.commit("main", [add("New.")], message="new")
    protect(copy, "branch", "main")
    env = {"TFGRPO_STORE": str(copy.path)}
    one_line_error(cli("pull", env=env, ok=False), "protected", "--force")
    cli("fetch", env=env)
    assert "fast-forwarded main" in cli("pull", "--force", env=env).stdout
    cli("add", "From Bob.", "--force", env=env)
    one_line_error(cli("push", env=env, ok=False), "main is protected there", "--force")
    assert "main  v2 → v3" in cli("push", "--force", env=env).stdout
    redact = ["redact", "--text", "From Bob.", "--reason", "not his to say", "--yes"]
    one_line_error(cli(*redact, env=env, ok=False), "protected", "--force")
    assert "From Bob." in cli("show", env=env).stdout
    cli(*redact, "--force", env=env)
    assert "From Bob." not in cli("show", env=env).stdout
    assert "no problems" in cli("fsck", env=env).stdout
