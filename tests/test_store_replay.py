"""A library is a replay: against a plain model, with and without snapshots, on any branch."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import clock

from tfgrpo.store import Change, Operation, Store, derived_id
from tfgrpo.store.history import replay
from tfgrpo.store.redact import Target, redact

Pairs = list[tuple[str, str]]
Plan = tuple[str, int, str]  # what to do, to which of those it may be done to, the text


class Known(NamedTuple):
    """A version as the model knows it: every id ever added, in order, and what is live."""

    parent: int | None
    merged: int | None
    order: tuple[str, ...]
    live: dict[str, str]

    def library(self) -> Pairs:
        return [(id, self.live[id]) for id in self.order if id in self.live]


class Model:
    """The whole history as a dict fold."""

    def __init__(self) -> None:
        self.versions = [Known(None, None, (), {})]
        self.branches = {"main": 0}
        self.born = 0

    def operations(self, tip: int, plans: Sequence[Plan]) -> tuple[list[Operation], Known]:
        """Turns plans into operations that apply at a version; returns what they make of it."""
        _, _, order, live = self.versions[tip]
        live, done, touched = dict(live), [], set()
        for plan, which, text in plans:
            dead = [id for id in self.known() if id not in live and id not in touched]
            if plan in ("MODIFY", "DELETE", "KEEP") and live:
                id = sorted(live)[which % len(live)]
                done.append(Operation(plan, id, text if plan == "MODIFY" else None))  # type: ignore[arg-type]
                if plan == "MODIFY":
                    live[id] = text
                elif plan == "DELETE":
                    del live[id]
                    touched.add(id)
            elif plan in ("ADD", "AGAIN"):
                self.born += 1
                again = plan == "AGAIN" and dead
                id = dead[which % len(dead)] if again else derived_id("model", self.born)
                done.append(Operation("ADD", id, text))
                live[id] = text
                order = order if id in order else (*order, id)
        return done, Known(tip, None, order, live)

    def known(self) -> list[str]:
        """Every id that was ever added on any branch; another branch may have deleted it."""
        return sorted({id for version in self.versions for id in version.order})

    def diff(self, a: int, b: int) -> list[tuple[str, str | None, str | None]]:
        before, after = self.versions[a].live, self.versions[b].live
        return [
            (id, before.get(id), after.get(id))
            for id in before.keys() | after.keys()
            if before.get(id) != after.get(id)
        ]

    def line(self, version: int) -> list[int]:
        """The first-parent history of a version, newest first."""
        found: list[int] = []
        at: int | None = version
        while at is not None:
            found.append(at)
            at = self.versions[at].parent
        return found

    def ancestors(self, version: int) -> set[int]:
        known = self.versions[version]
        above = [self.ancestors(p) for p in (known.parent, known.merged) if p is not None]
        return {version}.union(*above)


def pairs(store: Store, version: int) -> Pairs:
    return [(e.id, e.text) for e in store.library(f"v{version}")]


def check_libraries(store: Store, model: Model) -> None:
    for number, known in enumerate(model.versions):
        assert pairs(store, number) == known.library()


def check_diffs(store: Store, model: Model) -> None:
    for a in range(len(model.versions)):
        for b in range(len(model.versions)):
            changes = store.diff(f"v{a}", f"v{b}")
            assert sorted(changes) == sorted(Change(*c) for c in model.diff(a, b))
            check_order(model, a, b, [c.experience for c in changes])


def check_order(model: Model, a: int, b: int, ids: list[str]) -> None:
    """A diff is in library order: the descendant's when one descends from the other."""
    if a in model.line(b) or b in model.line(a):
        order = model.versions[b if a in model.line(b) else a].order
        assert ids == [id for id in order if id in ids]
    else:
        for side in (a, b):
            order = model.versions[side].order
            mine = [id for id in ids if id in order]
            if not set(model.versions[a].order) & set(model.versions[b].order) & set(ids):
                assert mine == [id for id in order if id in ids]


def check_logs(store: Store, model: Model) -> None:
    numbers = range(len(model.versions))
    above = [model.ancestors(n) for n in numbers]
    for b in numbers:
        whole = [v.number for v in store.log(f"v{b}")]
        assert whole == sorted(above[b], reverse=True)
        for a in numbers:
            some = [v.number for v in store.log(f"v{a}..v{b}")]
            assert some == sorted(above[b] - above[a], reverse=True)


def commit(
    stores: Sequence[Store], model: Model, branch: str, plans: Sequence[Plan], merged: int | None
) -> None:
    """Commits the same to several stores and to the model."""
    operations, known = model.operations(model.branches[branch], plans)
    for store in stores:
        version = store.commit(
            branch,
            operations,
            message="m",
            merged=None if merged is None else store.version(merged),
        )
        assert version.number == len(model.versions)
    model.branches[branch] = len(model.versions)
    model.versions.append(known._replace(merged=merged))


def fail(store: Store, branch: str) -> None:
    """Tries a commit whose transaction breaks at the last moment: nothing may remain of it."""

    def also(_: object) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        store.commit(branch, [Operation("ADD", None, "never there")], message="m", also=also)


plans = st.lists(
    st.tuples(
        st.sampled_from(["ADD", "ADD", "MODIFY", "DELETE", "KEEP", "AGAIN"]),
        st.integers(0, 50),
        st.text(min_size=1, max_size=8).filter(lambda t: bool(t.strip()) and encodable(t)),
    ),
    max_size=6,
)
moves = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 50), plans, st.none() | st.integers(0, 50)),
        st.tuples(st.just("fork"), st.integers(0, 50), st.none(), st.none()),
        st.tuples(st.just("fail"), st.integers(0, 50), st.none(), st.none()),
        st.tuples(st.just("writer"), st.integers(0, 50), st.none(), st.none()),
    ),
    min_size=1,
    max_size=12,
)


def encodable(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)


@settings(max_examples=80, deadline=None)
@given(moves=moves, every=st.sampled_from([1, 3, 8, 60]), short=st.sampled_from([-1, 2, 2000]))
def test_every_library_diff_and_log_equals_the_models(
    tmp_path_factory: pytest.TempPathFactory,
    moves: list[tuple[str, int, list[Plan] | None, int | None]],
    every: int,
    short: int,
) -> None:
    folder = tmp_path_factory.mktemp("replay")
    model = Model()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfgrpo.store.history.replay.SNAPSHOT_EVERY", every)
        patch.setattr("tfgrpo.store.history.replay.SHORT_RANGE", short)
        kept = Store.init(folder / "kept.db", now=clock())
        bare = Store.init(folder / "bare.db", now=clock())
        others = [kept, Store.open(folder / "kept.db", now=clock(10**9))]
        for move, which, todo, merged in moves:
            branch = sorted(model.branches)[which % len(model.branches)]
            if move == "fork":
                name = f"b{len(model.branches)}"
                at = which % len(model.versions)
                for store in (kept, bare):
                    store.create_branch(name, f"v{at}")
                model.branches[name] = at
            elif move == "fail":
                fail(kept, branch)
            elif move == "writer":
                others.reverse()  # another process goes on: what the first remembers is stale
                kept = others[0]
            else:
                assert todo is not None
                second = None if merged is None else merged % len(model.versions)
                commit((kept, bare), model, branch, todo, second)
                bare.port.storage.drop_snapshots()
                for store in (*others, bare):
                    check_libraries(store, model)
        with Store.open(folder / "kept.db") as fresh:
            for store in (fresh, bare):
                check_libraries(store, model)
                check_diffs(store, model)
            check_logs(fresh, model)
            fresh.port.storage.drop_snapshots()
            check_libraries(fresh, model)
        for store in (*others, bare):
            store.close()


def snapshots(store: Store) -> list[int]:
    """The positions of the snapshots on a version's lane, newest first, read through the port."""
    found, upto = [], 1 << 62
    while (snapshot := store.port.snapshot(0, upto)) is not None:
        found.append(snapshot[0])
        upto = snapshot[0] - 1
    return found


def test_small_snapshot_every_makes_snapshots_occur(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgrpo.store.history.replay.SNAPSHOT_EVERY", 3)
    with Store.init(tmp_path / "s.db") as store:
        for i in range(4):
            store.commit("main", [Operation("ADD", None, f"{i} {k}") for k in range(2)], message="")
        assert snapshots(store) == [8, 4]
        store.port.storage.drop_snapshots()
        assert snapshots(store) == []


def test_a_replay_reads_only_what_follows_the_nearest_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgrpo.store.history.replay.SNAPSHOT_EVERY", 10)
    with Store.init(tmp_path / "s.db") as store:
        for i in range(50):
            store.commit("main", [Operation("ADD", None, f"{i}")], message="")
        for number in range(1, 51):
            _, ranges = replay.segments(store.port, store.version(number).position)
            assert sum(upto - after for after, upto in ranges) < 10


def test_thousands_of_events_replay_the_same_with_the_real_snapshots(tmp_path: Path) -> None:
    dice = random.Random(7)
    model = Model()
    store = Store.init(tmp_path / "s.db", now=clock())
    weights = ["ADD"] * 5 + ["MODIFY"] * 3 + ["DELETE"] * 2 + ["KEEP", "AGAIN"]
    for i in range(60):
        if i in (10, 25, 40):
            at = dice.randrange(len(model.versions))
            store.create_branch(f"b{i}", f"v{at}")
            model.branches[f"b{i}"] = at
        plans = [(dice.choice(weights), dice.randrange(1000), f"advice {i} {k}") for k in range(80)]
        branch = dice.choice(sorted(model.branches))
        commit((store,), model, branch, plans, None)
    assert snapshots(store), "the history was too short to test snapshots"
    check_libraries(store, model)
    for _ in range(150):
        a, b = (dice.randrange(len(model.versions)) for _ in "ab")
        changes = store.diff(f"v{a}", f"v{b}")
        assert sorted(changes) == sorted(Change(*c) for c in model.diff(a, b))
    with Store.open(tmp_path / "s.db") as fresh:
        check_libraries(fresh, model)
        fresh.port.storage.drop_snapshots()
        check_libraries(fresh, model)
    store.close()


def test_a_deleted_experience_comes_back_to_its_old_place_under_its_old_id(tmp_path: Path) -> None:
    first, second = derived_id(1), derived_id(2)
    with Store.init(tmp_path / "s.db") as store:
        store.commit(
            "main", [Operation("ADD", first, "a"), Operation("ADD", second, "b")], message=""
        )
        store.commit("main", [Operation("DELETE", first)], message="")
        store.commit("main", [Operation("ADD", first, "a again")], message="")
        assert pairs(store, 3) == [(first, "a again"), (second, "b")]
        assert [e.op for e in store.history(first)] == ["ADD", "DELETE", "ADD"]


def test_a_library_is_not_changed_by_what_is_recorded_later(tmp_path: Path) -> None:
    id = derived_id(1)
    with Store.init(tmp_path / "s.db") as store:
        version = store.commit("main", [Operation("ADD", id, "a")], message="")
        before = store.library(version)
        store.commit("main", [Operation("MODIFY", id, "b")], message="")
        assert [(e.id, e.text) for e in before] == [(id, "a")]
        assert before == store.library(version)
        assert before != store.library("HEAD")


def test_an_experience_deleted_on_another_branch_is_born_anew_here(tmp_path: Path) -> None:
    elsewhere, here = derived_id("elsewhere"), derived_id("here")
    with Store.init(tmp_path / "s.db") as store:
        store.create_branch("other")
        store.commit("other", [Operation("ADD", elsewhere, "x")], message="")
        store.commit("other", [Operation("DELETE", elsewhere)], message="")
        store.commit("main", [Operation("ADD", here, "a")], message="")
        store.commit("main", [Operation("ADD", elsewhere, "b")], message="")
        assert pairs(store, 4) == [(here, "a"), (elsewhere, "b")]


def test_snapshots_of_a_large_library_stay_small_beside_its_log(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with Store.init(path) as store:
        store.port.connection.execute("pragma synchronous = off")  # type: ignore[attr-defined]
        for i in range(100):
            texts = [
                f"advice {i}.{k}, of some length, so that it is like others" for k in range(200)
            ]
            store.commit("main", [Operation("ADD", None, text) for text in texts], message="")
        assert len(snapshots(store)) > 5
    size = sqlite3.connect(path).execute("select sum(length(live)) from snapshots").fetchone()[0]
    assert size < path.stat().st_size / 10


def test_snapshots_are_as_often_whoever_opens_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgrpo.store.history.replay.SNAPSHOT_EVERY", 5)
    made = []
    for fresh in (False, True):
        store = Store.init(tmp_path / f"{fresh}.db")
        store.create_branch("side")
        for i in range(60):
            if fresh:
                store.close()
                store = Store.open(tmp_path / f"{fresh}.db")
            branch = "side" if i % 7 == 3 else "main"
            store.commit(branch, [Operation("ADD", None, f"{i}")], message="")
        made.append(store.port.counts.snapshot_positions())
        store.close()
    assert made[0] == made[1]
    assert len(made[0]) > 8


def test_a_library_read_after_others_is_that_of_a_fresh_reader(tmp_path: Path) -> None:
    dice = random.Random(8)
    path = tmp_path / "store.db"
    with Store.init(path, author="ann", now=clock()) as store, Store.open(path) as other:
        store.commit("main", [Operation("ADD", text=f"t{n}") for n in range(40)], message="m")
        store.create_branch("side")
        for turn in range(40):
            branch = dice.choice(["main", "side"])
            chosen = dice.sample(list(other.library(branch)), 4)
            edits = [Operation("MODIFY", e.id, f"{turn} {e.text}"[:60]) for e in chosen[1:]]
            other.forget()
            store.commit(branch, [Operation("DELETE", chosen[0].id), *edits], message="m")
            if turn == 20:
                redact(store, Target(next(iter(store.library("side"))).id), reason="leak")
            version = store.version(dice.randrange(store.port.last_version() + 1))
            other.forget()
            assert list(store.library(version)) == list(other.library(version))


def test_nothing_is_remembered_of_a_library_whose_version_was_rolled_back(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db", author="ann") as store:

        def fail() -> None:
            with store.port.transaction():
                lost = store.commit("main", [Operation("ADD", text="lost")], message="m")
                assert [e.text for e in store.library(lost)] == ["lost"]
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        store.commit("main", [Operation("ADD", text="recorded")], message="m")
        assert [e.text for e in store.library()] == ["recorded"]


def test_libraries_are_the_same_however_little_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgrpo.store.history.replay.EVENTS", 10)
    with Store.init(tmp_path / "store.db", author="ann") as store:
        store.commit("main", [Operation("ADD", text=f"text {n}") for n in range(20)], message="m")
        for n, e in enumerate(store.library()):
            store.commit("main", [Operation("MODIFY", e.id, f"other {n}")], message="m")
        for number in [*range(21), *range(20, -1, -1)]:
            texts = [e.text for e in store.library(f"v{number + 1}")]
            want = [f"other {n}" if n < number else f"text {n}" for n in range(20)]
            assert texts == want


def test_head_is_where_the_last_commit_moved_it_whoever_made_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store.init(path, author="ann") as store, Store.open(path) as other:
        for n in range(12):
            (store, other)[n % 3 == 0].commit("main", [], message=f"m{n}")
            assert [s.head.version.message for s in (store, other)] == [f"m{n}"] * 2

        def fail() -> None:
            with store.port.transaction():
                store.commit("main", [], message="lost")
                assert store.head.version.message == "lost"
                assert other.head.version.message == "m11"
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert [s.head.version.message for s in (store, other)] == ["m11"] * 2
        with store.port.reading():
            assert store.head.version.message == "m11"
            other.create_branch("side")
            other.checkout("side")
            assert store.head.branch == "main"
        assert store.head.branch == "side"
