"""Every verb of the store in any order, against plain dicts.

A state machine drives a real store file and `library_model.Model` side by side and compares
libraries, diffs, logs, lives, blame and names after every step; snapshots come every few events,
and at the end every library is replayed without them.

To add a verb: give the model a method that says what it does in dicts, or raises Refused, and
the machine a rule that calls both through `both`. (A run of the machine leaves some rules out, so
that the rest meet more often: a kind of commit is a rule of its own.) TFGRPO_LONG=1 runs longer.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import LONG
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from library_model import Conflicts, Model, Refused
from store_helpers import broken, clock

from tfgrpo.store import Operation, StaleVersion, Store, TfgrpoError, derived_id
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history import merge, replay
from tfgrpo.store.history.blame import blame
from tfgrpo.store.history.name_moves import redo, undo

which = st.integers(0, 30)
texts = st.builds("l{} and r{}".format, st.integers(0, 3), st.integers(0, 3))
ops = st.sampled_from(["ADD", "ADD", "AGAIN", "MODIFY", "MODIFY", "DELETE", "KEEP"])
plans = st.lists(st.tuples(ops, which, texts), max_size=6)
names = st.sampled_from(["main", "web", "draft", "x/y"])
sides = st.sampled_from([None, None, "ours", "theirs"])
MEMORY = Path("/dev/shm")


class StoreMachine(RuleBasedStateMachine):
    """One store file seen through two connections, and what it ought to hold."""

    @initialize(every=st.sampled_from([1, 3, 8, 60]), short=st.sampled_from([-1, 2, 2000]))
    def begin(self, every: int, short: int) -> None:
        self.was = (replay.SNAPSHOT_EVERY, replay.SHORT_RANGE)
        replay.SNAPSHOT_EVERY, replay.SHORT_RANGE = every, short
        room = MEMORY if MEMORY.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="tfgrpo-machine-", dir=room))
        self.path = self.place()
        self.now = clock()
        Store.init(self.path, author="tester", now=self.now).close()
        self.stores = [self.opened(), self.opened()]
        self.model = Model()
        self.model.rank = lambda number: self.store.version(number).digest
        self.born = 0
        self.looks = 0
        self.commit(0, [("ADD", 0, f"l{i} and r{i}") for i in range(4)], None)
        for name in ("web", "draft"):
            self.create_branch(name, 1)

    def place(self) -> Path | str:
        """Where the store is."""
        return self.folder / "store.db"

    def damage(self) -> list[str]:
        """What is wrong with the storage that no check of a store finds."""
        return broken(Path(self.path))

    def opened(self) -> Store:
        store = Store.open(self.path, author="tester", now=self.now)
        store.port.connection.execute("pragma synchronous = off")  # type: ignore[attr-defined]
        return store

    @property
    def store(self) -> Store:
        return self.stores[0]

    def both(self, modelled: Callable[[], object], real: Callable[[], object]) -> None:
        """Does a verb on the model and on the store: both do it, or both refuse."""
        expected, found = refusal(modelled), refusal(real)
        assert (expected is None) == (found is None), found
        if isinstance(expected, Conflicts):
            assert isinstance(found, merge.MergeConflict)
            assert {c.experience for c in found.conflicts} == expected.ids

    def branch(self, number: int) -> str:
        branches = sorted(self.model.branches) or ["main"]  # which is not there, then
        return branches[number % len(branches)]

    def version(self, number: int) -> int:
        return number % len(self.model.versions)

    # versions:

    @rule(on=which, plans=plans, tag=st.none() | names)
    def commit(self, on: int, plans: list[tuple[str, int, str]], tag: str | None) -> None:
        branch = self.branch(on)
        operations = self.operations(branch, plans)
        tags = [] if tag is None else [tag]
        self.both(
            lambda: self.model.commit(branch, operations, tags=tags),
            lambda: self.store.commit(
                branch,
                [Operation(*operation) for operation in operations],  # type: ignore[arg-type]
                message="m",
                tags=tags,
            ),
        )

    @rule(on=which, text=texts)
    def add(self, on: int, text: str) -> None:
        self.commit(on, [("ADD", 0, text)], None)

    @rule(on=which, number=which, text=texts)
    def modify(self, on: int, number: int, text: str) -> None:
        self.commit(on, [("MODIFY", number, text)], None)

    @rule(on=which, number=which)
    def delete(self, on: int, number: int) -> None:
        self.commit(on, [("DELETE", number, "")], None)

    @rule(on=which, number=which)
    def keep(self, on: int, number: int) -> None:
        self.commit(on, [("KEEP", number, "")], None)

    @rule(on=which, number=which, text=texts)
    def bring_back(self, on: int, number: int, text: str) -> None:
        self.commit(on, [("AGAIN", number, text)], None)

    @rule(on=which, number=which, to=which)
    def move(self, on: int, number: int, to: int) -> None:
        branch = self.branch(on)
        ids = [id for id, _ in self.model.versions[self.model.branches.get(branch, 0)].library]
        if len(ids) < 2:
            return
        ids.insert(to % len(ids), ids.pop(number % len(ids)))
        self.both(
            lambda: self.model.arrange(self.model.commit(branch, []), ids),
            lambda: self.store.commit(branch, [], message="m", order=ids),
        )

    def operations(
        self, branch: str, plans: list[tuple[str, int, str]]
    ) -> list[tuple[str, str, str | None]]:
        """Turns plans into operations. Few of them cannot apply, and then nothing may happen."""
        live = set(self.model.versions[self.model.branches.get(branch, 0)].live)
        ever = sorted({id for version in self.model.versions for id in version.order})
        made: list[tuple[str, str, str | None]] = []
        for plan, number, text in plans:
            if plan == "ADD" or not ever:
                self.born += 1
                made.append(("ADD", derived_id("machine", self.born), text))
                continue
            fitting = sorted(set(ever) - live if plan == "AGAIN" else live)
            pool = fitting if fitting and number % 10 else ever
            op = "ADD" if plan == "AGAIN" else plan
            made.append((op, pool[number % len(pool)], None if op in ("DELETE", "KEEP") else text))
            (live.discard if op == "DELETE" else live.add)(made[-1][1])
        return made

    @rule(on=which, at=which)
    def commit_to_where_the_branch_was(self, on: int, at: int) -> None:
        branch, expected = self.branch(on), self.version(at)
        if self.model.branches.get(branch, expected) == expected:
            return
        with pytest.raises(StaleVersion):
            self.store.commit(branch, [], message="m", expected=f"v{expected}")

    @rule(on=which, at=which, plans=plans)
    def commit_what_was_made_for_an_earlier_version(
        self, on: int, at: int, plans: list[tuple[str, int, str]]
    ) -> None:
        branch, onto = self.branch(on), self.version(at)
        operations = self.operations(branch, plans)

        def modelled() -> None:
            there = self.model.versions[onto].live
            here = self.model.versions[self.model.branches.get(branch, 0)].live
            if any(there.get(id) != here.get(id) for _, id, _ in operations):
                raise Refused("somebody has changed it since")
            self.model.commit(branch, operations)

        self.both(
            modelled,
            lambda: self.store.commit(
                branch,
                [Operation(*operation) for operation in operations],  # type: ignore[arg-type]
                message="m",
                onto=self.store.version(onto),
            ),
        )

    @rule(on=which, at=which, side=sides)
    def merge(self, on: int, at: int, side: str | None) -> None:
        self.combine(merge.merge, self.model.merge, on, self.version(at), side)

    @rule(on=which, at=which, side=sides)
    def merge_a_branch(self, on: int, at: int, side: str | None) -> None:
        tip = self.model.branches.get(self.branch(at), 0)
        self.combine(merge.merge, self.model.merge, on, tip, side)

    @rule(on=which, at=which, side=sides)
    def cherry_pick(self, on: int, at: int, side: str | None) -> None:
        def modelled(branch: str, theirs: int, side: str | None) -> None:
            self.model.apply(branch, self.model.versions[theirs].parent, theirs, side)

        self.combine(merge.cherry_pick, modelled, on, self.version(at), side)

    @rule(on=which, at=which, side=sides)
    def revert(self, on: int, at: int, side: str | None) -> None:
        def modelled(branch: str, theirs: int, side: str | None) -> None:
            self.model.apply(branch, theirs, self.model.versions[theirs].parent, side)

        self.combine(merge.revert, modelled, on, self.version(at), side)

    def combine(
        self,
        verb: Callable[..., object],
        modelled: Callable[[str, int, str | None], object],
        on: int,
        theirs: int,
        side: str | None,
    ) -> None:
        branch = self.branch(on)
        tip = self.model.branches.get(branch, 0)
        if self.moves_experiences(verb, tip, theirs):  # see test_store_order.py
            return
        resolve = None if side is None else merge.side("ours" if side == "ours" else "theirs")
        self.both(
            lambda: modelled(branch, theirs, side),
            lambda: verb(
                self.store, branch, self.store.version(theirs), message="m", resolve=resolve
            ),
        )

    def moves_experiences(self, verb: Callable[..., object], tip: int, theirs: int) -> bool:
        """Whether what is combined is in another order than what it is compared with."""
        base = self.model.versions[theirs].parent or 0
        if verb is merge.merge:
            base = max(self.model.ancestors(tip) & self.model.ancestors(theirs))
        fast = verb is merge.merge and base in (tip, theirs)
        return not fast and len({self.model.versions[n].arranged for n in (base, theirs)}) > 1

    # names:

    @rule(name=names, at=which)
    def create_branch(self, name: str, at: int) -> None:
        version = self.version(at)
        self.both(
            lambda: self.model.name("heads", name, version, force=False),
            lambda: self.store.create_branch(name, f"v{version}"),
        )

    @rule(name=names, at=which)
    def move_branch(self, name: str, at: int) -> None:
        version = self.version(at)
        self.both(
            lambda: self.model.move_branch(name, version),
            lambda: self.store.move_branch(name, f"v{version}"),
        )

    @rule(name=names, at=which, force=st.booleans())
    def create_tag(self, name: str, at: int, force: bool) -> None:
        version = self.version(at)
        self.both(
            lambda: self.model.name("tags", name, version, force=force),
            lambda: self.store.create_tag(name, f"v{version}", force=force),
        )

    @rule(name=names)
    def delete_branch(self, name: str) -> None:
        self.both(lambda: self.model.delete("heads", name), lambda: self.store.delete_branch(name))

    @rule(name=names)
    def delete_tag(self, name: str) -> None:
        self.both(lambda: self.model.delete("tags", name), lambda: self.store.delete_tag(name))

    @rule(name=names)
    def checkout_name(self, name: str) -> None:
        tag = None if name in self.model.branches else self.model.tags.get(name)
        self.both(
            lambda: self.model.checkout(name if tag is None else None, tag or 0),
            lambda: self.store.checkout(name),
        )

    @rule(at=which)
    def checkout(self, at: int) -> None:
        version = self.version(at)
        self.both(
            lambda: self.model.checkout(None, version), lambda: self.store.checkout(f"v{version}")
        )

    @rule()
    def undo(self) -> None:
        self.both(self.model.undo, lambda: undo(self.store))

    @rule()
    def redo(self) -> None:
        self.both(self.model.redo, lambda: redo(self.store))

    # what must change nothing:

    @rule()
    def another_writer_goes_on(self) -> None:
        self.stores.reverse()  # what the other remembers is stale by now

    @rule()
    def close_and_open(self) -> None:
        self.stores.pop(0).close()
        self.stores.append(self.opened())

    @rule()
    def drop_snapshots(self) -> None:
        self.store.port.storage.drop_snapshots()

    @rule(on=which)
    def fail_at_the_last_moment(self, on: int) -> None:
        if not self.model.branches:
            return

        def also(_: object) -> None:
            raise InterruptedError

        with pytest.raises(InterruptedError):
            self.store.commit(
                self.branch(on), [Operation("ADD", None, "never there")], message="m", also=also
            )

    # comparing:

    @invariant()
    def names_stand_where_they_should(self) -> None:
        for store in self.stores:
            assert store.branches() == self.model.branches
            assert store.tags() == self.model.tags
            head = store.head
            assert (head.branch, head.version.number) == self.model.head
            assert store.port.last_version() == len(self.model.versions) - 1

    @invariant()
    def libraries_and_lives_are_the_models(self) -> None:
        """Every tip, and one other version and experience in turn."""
        self.looks += 1
        last = len(self.model.versions) - 1
        other = self.looks * 7 % (last + 1)
        for number in {*self.model.branches.values(), last, other}:
            self.check_library(number)
        ever = sorted({id for version in self.model.versions for id in version.order})
        if ever:
            id = ever[self.looks % len(ever)]
            life = [(e.version, e.op, e.text) for e in self.store.history(id)]
            assert sorted(life) == sorted(self.model.life(id))

    @invariant()
    def diffs_and_logs_are_the_models(self) -> None:
        last = len(self.model.versions) - 1
        head = self.model.head[1]
        for a, b in ((last, self.looks % (last + 1)), (self.looks * 5 % (last + 1), head)):
            found = self.store.diff(f"v{a}", f"v{b}")
            assert {c.experience: (c.before, c.after) for c in found} == self.model.diff(a, b)
            assert len({c.experience for c in found}) == len(found)
            above = self.model.ancestors(b)
            assert [v.number for v in self.store.log(f"v{b}")] == sorted(above, reverse=True)
            some = [v.number for v in self.store.log(f"v{a}..v{b}")]
            assert some == sorted(above - self.model.ancestors(a), reverse=True)

    @invariant()
    def blame_names_who_gave_each_its_text(self) -> None:
        head = self.model.head[1]
        for found in blame(self.store, self.store.version(head)):
            expected = self.model.blame(head, found.experience.id)
            assert (found.version.number, found.keeps) == expected

    def check_library(self, number: int) -> None:
        library = [(e.id, e.text) for e in self.store.library(f"v{number}")]
        assert library == self.model.versions[number].library

    def teardown(self) -> None:
        if not hasattr(self, "folder"):
            return
        try:
            assert fsck(self.store).problems == ()
            assert self.damage() == []
            self.store.port.storage.drop_snapshots()
            replay.SNAPSHOT_EVERY = 10**9
            for number, known in enumerate(self.model.versions):
                self.check_library(number)
                version = self.store.version(number)
                assert (version.parent, version.merged) == (known.parent, known.merged)
                events = [(e.op, e.experience, e.text) for e in self.store.events(version)]
                assert tuple(events) == known.operations
        finally:
            replay.SNAPSHOT_EVERY, replay.SHORT_RANGE = self.was
            for store in self.stores:
                store.close()
            shutil.rmtree(self.folder)


def refusal(act: Callable[[], object]) -> Refused | TfgrpoError | None:
    """How something refused to be done, if it did."""
    try:
        act()
    except (Refused, TfgrpoError) as refused:
        return refused
    return None


StoreMachine.TestCase.settings = settings(
    max_examples=1000 if LONG else 60,
    stateful_step_count=80 if LONG else 40,
    phases=[Phase.generate] if LONG else settings.default.phases,  # shrinking takes minutes
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
test_every_verb_does_what_plain_dicts_do = StoreMachine.TestCase
