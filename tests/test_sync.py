"""Stores that are brought together: what travels, what moves, what is refused."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_helpers import add, begin, child, clock, kill_after_ready
from sync_helpers import far_ssh, grow, libraries, made, names, redact, rows, sound

from tfgrpo.cli.main import tfgrpo
from tfgrpo.settings import TrainSettings, build
from tfgrpo.store import Operation, Store, TfgrpoError, UnknownRevision, process_lock
from tfgrpo.store.errors import (
    BadLocation,
    InvalidName,
    InvalidOperation,
    PushRefused,
    StoreError,
    TransferError,
)
from tfgrpo.store.history import name_moves
from tfgrpo.store.history.merge import MergeConflict, merge, side
from tfgrpo.store.transfer import locations, sync
from tfgrpo.store.transfer.bundle import Bundle, create
from tfgrpo.store.transfer.other_store import StorePeer
from tfgrpo.store.transfer.remotes import Remotes

Reach: TypeAlias = Callable[[Path], str]


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Store]:
    """A store that others clone."""
    with made(tmp_path / "team/.tfgrpo/store.db") as store:
        yield store


@pytest.fixture
def ssh(tmp_path: Path) -> list[str]:
    return far_ssh(tmp_path)


@pytest.fixture(params=["path", "ssh", "address"])
def reach(request: pytest.FixtureRequest, tmp_path: Path) -> Reach:
    """How another store is reached: its location, given its folder."""

    def location(folder: Path) -> str:
        if request.param == "ssh":
            return f"far:{folder.relative_to(tmp_path)}"
        return f"ssh://ada@far:2222{folder}" if request.param == "address" else str(folder)

    return location


def cloned(location: str, folder: Path, ssh: list[str], author: str = "bob") -> Store:
    path = folder / ".tfgrpo/store.db"
    locations.clone(locations.parse(location), path, author=author, ssh=ssh)
    return Store.open(path, author=author, now=clock(5_000_000_000 + hash(folder) % 1000))


def pushed(store: Store, ssh: list[str], *chosen: str, **flags: bool) -> sync.Transferred:
    there = locations.parse(Remotes(store).location("origin"))
    with locations.peer(there, author=store.author, ssh=ssh) as peer:
        return sync.push(store, peer, chosen or ("main",), remote="origin", **flags)


def fetched(store: Store, ssh: list[str], *branches: str) -> sync.Transferred:
    there = locations.parse(Remotes(store).location("origin"))
    with locations.source(there, author=store.author, ssh=ssh) as source:
        return sync.fetch(store, source, "origin", branches=branches or None)


def pulled(store: Store, ssh: list[str], branch: str = "main", **more: object) -> sync.Pulled:
    there = locations.parse(Remotes(store).location("origin"))
    with locations.source(there, author=store.author, ssh=ssh) as source:
        return sync.pull(
            store,
            source,
            "origin",
            branch,
            into=branch,
            called=f"origin {branch}",
            **more,  # type: ignore[arg-type]
        )


# cloning:


def test_a_clone_has_the_same_digests_libraries_and_names(
    team: Store, tmp_path: Path, reach: Reach, ssh: list[str]
) -> None:
    grow(team, random.Random(1), 60)
    with cloned(reach(tmp_path / "team"), tmp_path / "copy", ssh) as copy:
        sound(copy)
        reachable = {v.digest.hex() for b in team.branches() for v in team.log(b)}
        reachable |= {v.digest.hex() for t in team.tags() for v in team.log(t)}
        assert libraries(copy) == {d: b for d, b in libraries(team).items() if d in reachable}
        assert copy.head.branch == "main"
        assert copy.branches() == {"main": copy.resolve("HEAD").number}
        assert {
            b.removeprefix("origin/"): copy.version(n).digest
            for b, n in copy.remote_branches().items()
        } == {b: team.tip(b).digest for b in team.branches()}
        assert {t: copy.version(n).digest for t, n in copy.tags().items()} == {
            t: team.version(n).digest for t, n in team.tags().items()
        }


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), versions=st.integers(1, 90), hide=st.integers(0, 3))
def test_a_clone_of_a_clone_is_whole_and_replays_to_the_same_bytes(
    seed: int, versions: int, hide: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp_path = tmp_path_factory.mktemp("chain")
    dice = random.Random(seed)
    with made(tmp_path / "a.db") as first:
        grow(first, dice, versions)
        texts = [e.row for e in first.port.events(0, 1 << 62) if e.text is not None]
        for row in dice.sample(texts, min(hide, len(texts))):
            redact(first, row)
        for branch in first.branches():  # so that a clone of a clone has every branch to take
            first.create_tag(f"tip/{branch}", branch)
        for source, target in (("a.db", "b.db"), ("b.db", "c.db")):
            there = locations.parse(str(tmp_path / source))
            locations.clone(there, tmp_path / target, author="bob")
        with Store.open(tmp_path / "c.db") as last:
            sound(last)
            wanted = libraries(first)
            found = libraries(last)
            assert {d: wanted[d] for d in found} == found
            assert {names(first)[f"tag tip/{b}"] for b in first.branches()} <= found.keys()
            last.port.storage.drop_snapshots()
            assert libraries(last) == found


def test_a_clone_of_a_long_history_is_read_through_snapshots_of_its_own(
    team: Store, tmp_path: Path
) -> None:
    ids = [e.id for e in team.library()]
    for n in range(60):
        batch = [Operation("MODIFY", id, f"{n} {id} {i}") for i in range(20) for id in ids]
        team.commit("main", batch, message=f"{n}")
        if n % 10 == 0:
            team.create_branch(f"b{n}", f"v{n // 2 + 1}")
            team.commit(f"b{n}", batch[:3], message="aside")
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        assert copy.port.counts.snapshot_positions()
        sound(copy)
        assert libraries(copy).items() <= libraries(team).items()


def test_a_redacted_event_travels_as_such_with_its_record(
    team: Store, tmp_path: Path, reach: Reach, ssh: list[str]
) -> None:
    redact(team, 1)
    with cloned(reach(tmp_path / "team"), tmp_path / "copy", ssh) as copy:
        sound(copy)
        row = next(iter(copy.port.events(0, 1)))
        assert (row.text, row.reason, row.salt) == (None, None, None)
        assert row.seal is not None
        assert copy.port.redactions.of(1) == team.port.redactions.of(1)
        assert [e.text for e in copy.library()] == ["[redacted]", "Round up."]


def test_a_clone_goes_on_the_branch_that_head_is_on_there(team: Store, tmp_path: Path) -> None:
    team.create_branch("math")
    team.checkout("math")
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        assert copy.head.branch == "math"
        assert list(copy.branches()) == ["math"]
        sound(copy)


def test_a_clone_of_a_store_with_a_detached_head_goes_on_main(team: Store, tmp_path: Path) -> None:
    team.checkout("v0")
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        assert (copy.head.branch, len(copy.library())) == ("main", 2)


def test_a_clone_cannot_be_undone_into_nothing(team: Store, tmp_path: Path) -> None:
    with (
        cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy,
        pytest.raises(TfgrpoError, match="nothing to undo"),
    ):
        name_moves.undo(copy)


@pytest.mark.parametrize("location", ["nowhere", "far:nowhere", "far:team/.tfgrpo/other.db"])
def test_a_clone_that_fails_leaves_nothing(
    location: str, team: Store, tmp_path: Path, ssh: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(TfgrpoError, match="no store"):
        locations.clone(
            locations.parse(location), tmp_path / "x/y/.tfgrpo/store.db", author="bob", ssh=ssh
        )
    assert [p for p in sorted(tmp_path.iterdir()) if p.name != "far-ssh.log"] == before


@pytest.mark.parametrize("damage", ["a byte of a text", "a byte of a page", "the last write"])
def test_a_clone_that_is_damaged_before_it_takes_its_place_leaves_nothing(
    damage: str, team: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = next(iter(team.library())).text.encode()
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())

    def damaged(
        file: Path, *more: int, check: Callable[..., None] = locations._check_whole
    ) -> None:
        content = bytearray(file.read_bytes())
        if damage == "the last write":
            file.with_name(f"{file.name}-wal").write_bytes(b"what could not be moved into the file")
        else:
            content[content.index(text) if "text" in damage else 4096 + 3] ^= 1
            file.write_bytes(content)
        check(file, *more)

    monkeypatch.setattr(locations, "_check_whole", damaged)
    done = CliRunner().invoke(tfgrpo, ["clone", "team", "copy"])
    assert done.exit_code == 1
    assert isinstance(done.exception, StoreError)
    assert str(done.exception).startswith("the copy ")
    assert sorted(tmp_path.iterdir()) == before


def test_a_clone_into_a_store_is_refused(team: Store, tmp_path: Path) -> None:
    before = rows(team)
    with pytest.raises(TfgrpoError, match="there is already a store"):
        locations.clone(locations.parse(str(team.path)), team.path, author="bob")
    assert rows(team) == before


CLONE = """
import sys, time
from pathlib import Path
from tfgrpo.store.transfer import locations, sync
def landed(*arguments, land=sync._land):
    done = land(*arguments)
    print("ready", flush=True)
    time.sleep(60)
    return done
sync._land = landed
locations.clone(locations.parse(sys.argv[1]), Path(sys.argv[2]), author="x")
"""


def test_what_a_killed_clone_left_is_no_hindrance(team: Store, tmp_path: Path) -> None:
    killed = child(CLONE, tmp_path / "team", tmp_path / "copy/.tfgrpo/store.db")
    kill_after_ready(killed, random.Random(8), 0)
    assert not (tmp_path / "copy/.tfgrpo/store.db").exists()
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        sound(copy)


def test_a_run_in_a_clone_takes_a_name_that_no_run_elsewhere_has(
    team: Store, tmp_path: Path
) -> None:
    team.create_tag("sums/step_0", "v1")
    asked = build(TrainSettings, {"data": "sums.jsonl", "branch": "main", "model": "m"})
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        run, resumed = begin(copy, asked)
        assert (run.name, resumed) == ("sums-2", False)
        assert set(copy.tags()) == {"sums/step_0", "sums-2/step_0"}


# fetching:


def test_a_fetch_brings_only_what_is_missing(
    team: Store, tmp_path: Path, reach: Reach, ssh: list[str]
) -> None:
    grow(team, random.Random(2), 30)
    with cloned(reach(tmp_path / "team"), tmp_path / "copy", ssh) as copy:
        assert fetched(copy, ssh).received == (0, 0)
        team.commit("main", [add("one"), add("two")], message="new", tags=["news"])
        before = copy.head
        done = fetched(copy, ssh)
        assert done.received == (1, 2)
        assert {(m.kind, m.name) for m in done.moved} == {
            ("branch", "origin/main"),
            ("tag", "news"),
        }
        assert copy.head == before, "a fetch moves no branch of ours"
        assert copy.resolve("origin/main").digest == team.tip("main").digest
        assert fetched(copy, ssh) == sync.Transferred(sync.Received(0, 0), (), ())
        sound(copy)


def test_a_fetch_of_one_branch_leaves_the_others(team: Store, tmp_path: Path) -> None:
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        team.create_branch("web")
        team.commit("web", [add("w")], message="w", tags=["w"])
        team.commit("main", [add("m")], message="m", tags=["m"])
        fetched(copy, [], "web")
        assert copy.resolve("origin/main").digest != team.tip("main").digest
        assert set(copy.tags()) == {"w"}
        with pytest.raises(UnknownRevision, match="'wub'") as caught:
            fetched(copy, [], "wub")
        assert "web" in str(caught.value.hint)


def test_names_of_branches_that_are_gone_there_go_here(team: Store, tmp_path: Path) -> None:
    team.create_branch("web")
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        team.delete_branch("web")
        (move,) = fetched(copy, []).moved
        assert (move.name, move.after) == ("origin/web", None)
        assert set(copy.remote_branches()) == {"origin/main"}
        with pytest.raises(UnknownRevision):
            copy.resolve("origin/web")


def test_a_tag_that_stands_elsewhere_here_stays(team: Store, tmp_path: Path) -> None:
    team.create_tag("approved", "v1")
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        copy.create_tag("approved", "v0", force=True)
        assert fetched(copy, []).kept == ("approved",)
        assert copy.tags() == {"approved": 0}
        assert pushed(copy, []).kept == ("approved",)
        assert team.tags() == {"approved": 1}


def test_undo_takes_back_a_fetch_as_one_operation(team: Store, tmp_path: Path) -> None:
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        before = (copy.remote_branches(), copy.tags())
        team.create_branch("web")
        team.commit("web", [add("w")], message="w", tags=["w"])
        team.commit("main", [add("m")], message="m")
        fetched(copy, [])
        after = (copy.remote_branches(), copy.tags())
        assert [m.action for m in name_moves.undo(copy)] == ["fetch origin"] * 3
        assert (copy.remote_branches(), copy.tags()) == before
        name_moves.redo(copy)
        assert (copy.remote_branches(), copy.tags()) == after


# pulling:


def test_a_pull_moves_forward(team: Store, tmp_path: Path, reach: Reach, ssh: list[str]) -> None:
    with cloned(reach(tmp_path / "team"), tmp_path / "copy", ssh) as copy:
        version = team.commit("main", [add("new")], message="new")
        done = pulled(copy, ssh)
        assert done.fetched.received == (1, 1)
        assert copy.head.version == done.after
        assert done.after.digest == version.digest
        again = pulled(copy, ssh)
        assert again.before == again.after == done.after


def test_a_pull_merges_and_undo_takes_all_of_it_back(team: Store, tmp_path: Path) -> None:
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        before = (copy.branches(), copy.remote_branches(), copy.tags())
        team.commit("main", [add("theirs")], message="t", tags=["t"])
        mine = copy.commit("main", [add("mine")], message="m")
        done = pulled(copy, [])
        assert done.after.parent == mine.number
        assert done.after.merged == copy.resolve("origin/main").number
        assert {e.text for e in copy.library()} >= {"theirs", "mine"}
        assert {m.action for m in name_moves.undo(copy)} == {"pull origin main"}
        assert copy.head.version == mine
        assert (copy.remote_branches(), copy.tags()) == before[1:]
        name_moves.redo(copy)
        assert copy.head.version == done.after
        sound(copy)


def test_a_pull_that_conflicts_keeps_what_came_and_merges_nothing(
    team: Store, tmp_path: Path
) -> None:
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        id = next(iter(team.library())).id
        team.commit("main", [Operation("MODIFY", id, "Count every day.")], message="t")
        mine = copy.commit("main", [Operation("MODIFY", id, "Count no day.")], message="m")
        with pytest.raises(MergeConflict) as caught:
            pulled(copy, [])
        assert [c.experience for c in caught.value.conflicts] == [id]
        assert copy.head.version == mine
        assert copy.resolve("origin/main").digest == team.tip("main").digest
        done = pulled(copy, [], resolve=side("theirs"))
        assert copy.library(done.after).by_id[id].text == "Count every day."


# pushing:


def test_a_push_sends_only_what_is_missing_with_its_tags(
    team: Store, tmp_path: Path, reach: Reach, ssh: list[str]
) -> None:
    grow(team, random.Random(3), 30)
    with cloned(reach(tmp_path / "team"), tmp_path / "copy", ssh) as copy:
        version = copy.commit("main", [add("a"), add("b")], message="m", tags=["DAPO100/step_1"])
        done = pushed(copy, ssh)
        assert done.received == (1, 2)
        assert team.tip("main").digest == version.digest
        assert team.resolve("DAPO100/step_1").digest == version.digest
        assert copy.resolve("origin/main") == version
        assert pushed(copy, ssh).moved == ()
        sound(team)


def test_a_push_notes_where_branches_stand_that_are_up_to_date(
    team: Store, tmp_path: Path, ssh: list[str]
) -> None:
    team.create_branch("web", "v0")
    with cloned(str(tmp_path / "team"), tmp_path / "copy", ssh) as copy:
        copy.create_branch("web", "origin/web")
        Remotes(copy).remove("origin")
        Remotes(copy).add("origin", str(tmp_path / "team"))
        assert pushed(copy, ssh, "main", "web").moved == ()
        there = {"origin/main": copy.tip("main").number, "origin/web": 0}
        assert copy.remote_branches() == there
        before = rows(copy)
        assert pushed(copy, ssh, "main", "web").moved == ()
        assert rows(copy) == before, "nothing new was heard"
        name_moves.undo(copy)
        new = copy.commit("web", [add("w")], message="w")
        assert [move.name for move in pushed(copy, ssh, "main", "web").moved] == ["web"]
        assert copy.remote_branches() == there | {"origin/web": new.number}


def test_a_push_makes_a_branch_and_moves_all_or_none(
    team: Store, tmp_path: Path, reach: Reach, ssh: list[str]
) -> None:
    with cloned(reach(tmp_path / "team"), tmp_path / "copy", ssh) as copy:
        copy.create_branch("web")
        copy.commit("web", [add("w")], message="w")
        team.commit("main", [add("theirs")], message="t")
        copy.commit("main", [add("mine")], message="m")
        before = rows(team)
        with pytest.raises(PushRefused, match="main") as caught:
            pushed(copy, ssh, "web", "main")
        assert "tfgrpo pull" in str(caught.value.hint)
        assert rows(team) == before
        pushed(copy, ssh, "web")
        assert team.tip("web").digest == copy.tip("web").digest


def test_a_forced_push_moves_the_name_and_loses_no_version(
    team: Store, tmp_path: Path, reach: Reach, ssh: list[str]
) -> None:
    with cloned(reach(tmp_path / "team"), tmp_path / "copy", ssh) as copy:
        lost = team.commit("main", [add("theirs")], message="t")
        mine = copy.commit("main", [add("mine")], message="m")
        pushed(copy, ssh, force=True)
        assert team.tip("main").digest == mine.digest
        assert team.resolve("main@{1}") == team.version(lost.number) == lost
        sound(team)


def test_a_push_that_lost_the_race_is_refused(team: Store, tmp_path: Path) -> None:
    with (
        cloned(str(tmp_path / "team"), tmp_path / "b", []) as b,
        cloned(str(tmp_path / "team"), tmp_path / "c", []) as c,
    ):
        b.commit("main", [add("b")], message="b")
        c.commit("main", [add("c")], message="c")

        class Late(StorePeer):
            """Between what this peer says of its names and its push, another push comes in."""

            def push(self, *arguments: object, **flags: object) -> None:
                pushed(b, [])
                super().push(*arguments, **flags)  # type: ignore[arg-type]

        with pytest.raises(PushRefused, match="has just moved"):
            sync.push(c, Late(team), ["main"], remote="origin", force=True)
        assert team.tip("main").digest == b.tip("main").digest
        pulled(c, [])
        pushed(c, [])
        assert {e.text for e in team.library()} >= {"b", "c"}
        sound(team)


def test_a_tag_is_moved_there_only_by_force(
    team: Store, tmp_path: Path, reach: Reach, ssh: list[str]
) -> None:
    team.create_tag("approved", "v1")
    with cloned(reach(tmp_path / "team"), tmp_path / "copy", ssh) as copy:
        copy.create_tag("approved", "v0", force=True)
        assert pushed(copy, ssh).moved == ()
        with pytest.raises(PushRefused, match="approved"):
            pushed(copy, ssh, "approved")
        pushed(copy, ssh, "approved", force=True)
        assert team.tags() == {"approved": 0}


def test_a_branch_is_deleted_there_unless_head_is_on_it(
    team: Store, tmp_path: Path, reach: Reach, ssh: list[str]
) -> None:
    team.create_branch("web")
    with cloned(reach(tmp_path / "team"), tmp_path / "copy", ssh) as copy:
        pushed(copy, ssh, "web", delete=True)
        assert "web" not in team.branches()
        assert "origin/web" not in copy.remote_branches()
        with pytest.raises(PushRefused, match="HEAD"):
            pushed(copy, ssh, "main", delete=True)
        with pytest.raises(UnknownRevision):
            pushed(copy, ssh, "nothing", delete=True)


def test_the_branch_of_a_run_at_work_there_is_deleted_only_by_force(
    team: Store, tmp_path: Path, reach: Reach, ssh: list[str]
) -> None:
    team.create_branch("web")
    run = team.runs.create("quick", "uid", "web", 0, {}, "ann")
    with cloned(reach(tmp_path / "team"), tmp_path / "copy", ssh) as copy:
        with process_lock.held(team.runs.lock_path(run)):
            with pytest.raises(PushRefused, match="run quick is at work on web there") as caught:
                pushed(copy, ssh, "web", delete=True)
            assert caught.value.hint
            assert "web" in team.branches()
            assert "origin/web" in copy.remote_branches()
            pushed(copy, ssh, "web", delete=True, force=True)
        assert "web" not in team.branches()


def test_a_push_after_a_merge_goes_forward(team: Store, tmp_path: Path) -> None:
    team.create_branch("web")
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        team.commit("web", [add("w")], message="w")
        copy.commit("main", [add("m")], message="m")
        fetched(copy, [])
        merge(copy, "main", copy.resolve("origin/web"), message="both")
        assert pushed(copy, []).received.versions == 2, "web is there already"
        sound(team)


# bundles:


def test_a_bundle_carries_a_history_from_store_to_store(team: Store, tmp_path: Path) -> None:
    grow(team, random.Random(4), 40)
    redact(team, 2)
    create(team, tmp_path / "all.bundle")
    with cloned(str(tmp_path / "all.bundle"), tmp_path / "copy", []) as copy:
        sound(copy)
        assert libraries(copy).items() <= libraries(team).items()
        assert copy.tip("main").digest == team.tip("main").digest
        since = team.tip("main")
        team.commit("main", [add("late")], message="late")
        header, count = create(team, tmp_path / "all.bundle", ["main"], since=since)
        assert (count, header.needs) == (1, (since.digest,))
        pulled(copy, [])
        assert copy.tip("main").digest == team.tip("main").digest


def test_a_bundle_that_is_not_right_takes_no_files_place(team: Store, tmp_path: Path) -> None:
    path = tmp_path / "all.bundle"
    create(team, path)
    before = path.read_bytes()
    with closing(sqlite3.connect(team.path)) as db, db:
        db.execute("drop trigger events_no_update")
        db.execute("update events set text = 'other words'")
    with pytest.raises(TransferError) as caught:
        create(team, path)
    assert caught.value.hint
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.glob("*.bundle*")] == ["all.bundle"]


def test_a_bundle_that_builds_on_what_is_not_here_is_refused(team: Store, tmp_path: Path) -> None:
    since = team.tip("main")
    team.commit("main", [add("late")], message="late")
    create(team, tmp_path / "late.bundle", since=since)
    with Store.init(tmp_path / "empty.db") as other:
        bundle = Bundle(tmp_path / "late.bundle")
        assert bundle.verify(StorePeer(other).known).lacking == (since.digest,)
        with pytest.raises(TransferError, match=since.digest.hex()[:12]):
            sync.fetch(other, bundle, "late")
        bundle.close()
        assert other.port.last_version() == 0


def test_a_bundle_is_verified_against_a_store(team: Store, tmp_path: Path) -> None:
    create(team, tmp_path / "b.bundle", ["main"])
    bundle = Bundle(tmp_path / "b.bundle")
    found = bundle.verify(StorePeer(team).known)
    bundle.close()
    assert (found.held, found.lacking) == ((1, 2), ())


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_bundle_that_was_cut_short_is_noticed_and_nothing_recorded(
    team: Store, tmp_path: Path, share: float
) -> None:
    grow(team, random.Random(5), 20)
    path = tmp_path / "b.bundle"
    create(team, path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(TransferError):
        Bundle(path)
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(TransferError, match="last line"):
        Bundle(path)
    path.write_bytes(whole + b"{}\n")
    with pytest.raises(TransferError, match="last line"):
        Bundle(path)


# names:


def test_remote_branches_are_revisions_and_a_name_of_ours_wins(team: Store, tmp_path: Path) -> None:
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        tip = copy.resolve("origin/main")
        assert copy.resolve("origin/main~1").number == 0
        assert copy.resolve("remotes/origin/main") == tip
        team.commit("main", [add("x")], message="x")
        fetched(copy, [])
        assert copy.resolve("origin/main@{1}") == tip
        copy.create_branch("origin/main", "v0")
        assert copy.resolve("origin/main").number == 0
        assert copy.resolve("remotes/origin/main").number == 2


def test_remotes_are_added_moved_and_removed(team: Store) -> None:
    remotes = Remotes(team)
    with pytest.raises(UnknownRevision, match="no remote"):
        remotes.default()
    remotes.add("lab", "far:experience")
    assert remotes.default() == "lab"
    remotes.add("origin", "/team")
    assert remotes.default() == "origin"
    with pytest.raises(InvalidName, match="already"):
        remotes.add("lab", "x")
    for bad in ("", "a/b", "-x", "a..b", "HEAD", "a b"):
        with pytest.raises(InvalidName):
            remotes.add(bad, "x")
    assert remotes.move("lab", "far:other") == "far:experience"
    team.move_names([("remotes/lab/main", 1, None)], "seen")
    assert remotes.remove("lab") == 1
    assert (remotes.all(), team.remote_branches()) == ({"origin": "/team"}, {})
    with pytest.raises(UnknownRevision, match="'lab'"):
        remotes.location("lab")


def test_branches_of_a_removed_remote_do_not_come_back_without_it(team: Store) -> None:
    remotes = Remotes(team)
    remotes.add("lab", "far:experience")
    team.move_names([("remotes/lab/main", 1, None)], "seen")
    remotes.remove("lab")
    number = next(team.port.names.ref_log(None)).batch
    for back in (name_moves.undo, lambda store: name_moves.take_back(store, number)):
        with pytest.raises(InvalidOperation, match="lab, which is a remote no longer") as caught:
            back(team)
        assert "tfgrpo remote add lab" in str(caught.value.hint)
        assert team.remote_branches() == {}
    remotes.add("lab", "far:experience")
    name_moves.undo(team)
    assert team.remote_branches() == {"lab/main": 1}


# locations:


def test_locations_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd:name").touch()
    for text, wanted in {
        "team": (str(tmp_path / "team"), None, None),
        "./far:x": (str(tmp_path / "far:x"), None, None),
        "odd:name": (str(tmp_path / "odd:name"), None, None),
        "far:x/y": ("x/y", "far", None),
        "far:x/ada@team/y": ("x/ada@team/y", "far", None),
        "ssh://ada@far:2222/x@y": ("/x@y", "ada@far", 2222),
        "ssh://far/x:y@z": ("/x:y@z", "far", None),
        "ssh://[::1]:22/x@y": ("/x@y", "::1", 22),
        "ada@far:~/x": ("~/x", "ada@far", None),
        "ssh://ada@far:2222/srv/x": ("/srv/x", "ada@far", 2222),
        "ssh://far/~/x%20y": ("~/x y", "far", None),
        "far:": (".", "far", None),
    }.items():
        assert locations.parse(text)[1:] == wanted, text


@pytest.mark.parametrize(
    "text",
    [
        "ssh://ada:hunter2@far/x",
        "ada:hunter2@far:x",
        "https://ada:hunter2@far/x",
        "ssh://:hunter2@f",
        "ssh://ada:hunter2/x@far/x",
        "ssh://ada:12/hunter2@far/x",
        "ssh://ada:12#hunter2@far/x",
        "ssh://ada:12?hunter2@far/x",
        "ada:hun/hunter2@far:x",
        "ada:hunter2/@far:x",
        "ada:hunter2:@/@far:x",
    ],
)
def test_a_location_with_a_password_is_refused_and_not_repeated(text: str, team: Store) -> None:
    with pytest.raises(BadLocation, match="password") as caught:
        locations.parse(text)
    assert "hunter2" not in str(caught.value) + str(caught.value.hint)
    with pytest.raises(BadLocation, match="password"):
        Remotes(team).add("x", text)
    assert Remotes(team).all() == {}


@pytest.mark.parametrize(
    "text",
    [
        "-oProxyCommand=x:y",
        "ssh://-oProxyCommand=x/y",
        "https://far/x",
        "ssh:///x",
        "ssh://far:port/x",
        "",
        "a b:x",
    ],
)
def test_a_location_that_cannot_be_one_is_refused(text: str) -> None:
    with pytest.raises(BadLocation):
        locations.parse(text)


def test_a_location_with_a_port_that_is_none_is_not_repeated() -> None:
    with pytest.raises(BadLocation, match="cannot be read") as caught:
        locations.parse("ssh://far:hunter2/x")
    assert "hunter2" not in f"{caught.value}{caught.value.hint}"


def test_a_path_never_meets_a_shell(tmp_path: Path, ssh: list[str]) -> None:
    nasty = "a b'; touch owned; $(touch owned) #"
    with made(tmp_path / nasty / ".tfgrpo/store.db"):
        pass
    with cloned(f"far:{nasty}", tmp_path / "copy", ssh) as copy:
        assert len(copy.library()) == 2
    assert not (tmp_path / "owned").exists()
    assert (tmp_path / "far-ssh.log").read_text() == "far tfgrpo serve\n"


def test_the_port_and_user_of_an_address_reach_ssh(
    team: Store, tmp_path: Path, ssh: list[str]
) -> None:
    cloned(f"ssh://ada@far:2222{tmp_path}/team", tmp_path / "copy", ssh).close()
    assert (tmp_path / "far-ssh.log").read_text() == "-p 2222 ada@far tfgrpo serve\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'connect to far: refused' >&2; exit 255", "refused"),
        ("echo 'sh: tfgrpo: not found' >&2; exit 127", "not found"),
        ("echo 'Welcome to far!'", "no JSON"),
        ("exit 0", "closed the connection"),
        ("""echo '{"error":"no\\u001b[2J","hint":"h"}'""", "no "),
    ],
)
def test_a_connection_that_fails_is_one_clear_error(script: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(TransferError, match=said) as caught:
        locations.clone(
            locations.parse("far:x"),
            tmp_path / "x/.tfgrpo/store.db",
            author="bob",
            ssh=["sh", "-c", script],
        )
    assert "\x1b" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_a_command_that_is_not_there_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="cannot run no-ssh") as caught:
        locations.clone(locations.parse("far:x"), tmp_path / "x.db", author="bob", ssh=["no-ssh"])
    assert "TFGRPO_SSH" in str(caught.value.hint)


def test_a_clone_has_the_snapshots_of_commits(tmp_path: Path) -> None:
    with made(tmp_path / "a.db") as first:
        first.commit("main", [add(f"rule {n}") for n in range(12_000)], message="many")
        for n in range(30):
            first.commit("main", [add(f"more {n} {k}") for k in range(50)], message="more")
        positions = first.port.counts.snapshot_positions()
    there = locations.parse(str(tmp_path / "a.db"))
    locations.clone(there, tmp_path / "b.db", author="bob")
    with Store.open(tmp_path / "b.db") as copy:
        assert copy.port.counts.snapshot_positions() == positions


@pytest.mark.parametrize("take", [None, "theirs"])
def test_a_pull_of_a_redacted_text_hints_at_what_solves_it(
    take: Literal["theirs"] | None, team: Store, tmp_path: Path
) -> None:
    with cloned(str(tmp_path / "team"), tmp_path / "copy", []) as copy:
        id = next(iter(copy.library())).id
        copy.commit("main", [Operation("MODIFY", id, "Check the units.")], message="mine")
        team.commit("main", [Operation("MODIFY", id, "The key is k.")], message="theirs")
        redact(team, team.port.counts.events())
        team.commit("main", [add("New on the other side.")], message="more")
        more = {} if take is None else {"resolve": side(take)}
        source = StorePeer(team)
        with pytest.raises(TfgrpoError, match="redacted") as caught:
            sync.pull(copy, source, "origin", "main", into="main", called="origin main", **more)
        hint = caught.value.hint or ""
        assert "--theirs" not in hint
        assert "--ours" in hint
        assert "merge origin/main --edit" in hint
        assert copy.resolve("origin/main").digest == team.tip("main").digest, "it is fetched"
        ours = {"resolve": side("ours"), "called": "origin main"}
        sync.pull(copy, source, "origin", "main", into="main", **ours)
        assert {e.text for e in copy.library()} >= {"Check the units.", "New on the other side."}
