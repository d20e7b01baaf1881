"""The part of the port's contract that is about names."""

from __future__ import annotations

from itertools import pairwise

from port_rows import event, move, record, version

from tfgrpo.store.records import BranchTip
from tfgrpo.store.sql.port import Port


class NamesContract:
    def test_the_latest_move_of_a_name_is_where_it_is(self, port: Port) -> None:
        for number in range(3):
            record(port, number, [])
        with port.transaction():
            port.names.append_refs([move("heads/main", 0), move("HEAD", 0, symbol="heads/main")])
        with port.transaction():
            port.names.append_refs([move("heads/main", 1, previous=0, action="commit")])
        with port.transaction():
            port.names.append_refs([move("tags/t", 2), move("tags/t", None, previous=2)])
        main, head, tag = (
            port.names.ref("heads/main"),
            port.names.ref("HEAD"),
            port.names.ref("tags/t"),
        )
        assert main is not None
        assert head is not None
        assert tag is not None
        assert main[2:] == ("heads/main", 1, None, 0, None, "ann", 1, "commit")
        assert head.symbol == "heads/main"
        assert tag.version is None, "a deleted name has a last move too"
        assert port.names.ref("heads/mai") is None

    def test_names_are_listed_once_each_ascending_by_prefix(self, port: Port) -> None:
        record(port, 0, [])
        names = ["tags/b", "heads/main", "HEAD", "tags/a", "heads/a/b", "tags/a", "tags/é"]
        for name in names:
            with port.transaction():
                port.names.append_refs([move(name, 0)])
        assert [r.name for r in port.names.refs("tags/")] == ["tags/a", "tags/b", "tags/é"]
        assert [r.name for r in port.names.refs("heads/a")] == ["heads/a/b"]
        assert [r.name for r in port.names.refs("")] == sorted(set(names))
        assert port.names.refs("tags/a")[0] == port.names.ref("tags/a")
        assert port.names.refs("nothing") == []

    def test_the_tags_at_a_version_are_those_that_stood_there_after_a_move(
        self, port: Port
    ) -> None:
        for number in range(3):
            record(port, number, [])
        moves = [
            move("heads/main", 1),
            move("tags/b", 1),
            move("remotes/o/main", 1),
            move("protected/tags/b", 1),
            move("tags/a", 2),
        ]
        with port.transaction():
            port.names.append_refs(moves)
        then = port.names.last_move()
        with port.transaction():
            port.names.append_refs([move("tags/b", 2), move("tags/a", None), move("tags/c", 1)])
        assert port.names.marks_at(1, then) == ["remotes/o/main", "tags/b"]
        assert port.names.marks_at(2, then) == ["tags/a"]
        assert port.names.marks_at(1, port.names.last_move()) == ["remotes/o/main", "tags/c"]
        assert port.names.marks_at(2, port.names.last_move()) == ["tags/b"]
        assert port.names.marks_at(0, then) == port.names.marks_at(1, 0) == []

    def test_a_tag_at_a_version_of_its_own_is_at_the_version_below_too(self, port: Port) -> None:
        record(port, 0, [])
        record(port, 1, [])
        own = version(2, 0, 0)._replace(parent=1, meta={"tag": "a"})
        with port.transaction():
            port.append_version(own, [])
            port.append_version(version(3, 0, 0)._replace(parent=1, meta={"step": 1}), [])
            moves = [move("tags/a", 2), move("tags/b", 3), move("remotes/o/x", 2)]
            port.names.append_refs(moves)
        then = port.names.last_move()
        assert port.names.marks_at(1, then) == ["tags/a"]
        assert port.names.marks_at(2, then) == ["remotes/o/x", "tags/a"]
        assert port.names.marks_at(0, then) == []

    def test_the_version_that_a_name_stands_at_is_that_of_its_last_move(self, port: Port) -> None:
        assert port.names.last_move() == 0
        for number in range(2):
            record(port, number, [])
        with port.transaction():
            port.names.append_refs([move("heads/main", 0), move("tags/a", 0)])
            port.names.append_refs([move("heads/main", 1), move("tags/a", None)])
        assert port.names.standing("heads/main") == version(1, 0, 0)
        assert port.names.standing("tags/a") is None
        assert port.names.standing("heads/mai") is None

    def test_a_branch_s_tip_has_all_that_an_append_has_to_know(self, port: Port) -> None:
        assert port.names.branch_tip("heads/main") is None
        record(port, 0, [])
        record(port, 1, [event(1)])
        record(port, 2, [], position=1)
        with port.transaction():
            port.names.append_refs(
                [move("heads/main", 0), move("heads/b", 1), move("tags/t", None)]
            )
        main, other = port.names.branch_tip("heads/main"), port.names.branch_tip("heads/b")
        assert main == BranchTip("heads/main", version(0, 0, 0), 0, None, 2, 3, False, False)
        assert other == BranchTip("heads/b", version(1, 1, 1), 1, None, 2, 3, True, False)
        assert port.names.branch_tip("tags/t") is None
        guard = move("protected/heads/b", 1)
        with port.transaction():
            port.names.append_refs([guard], after=port.names.last_move())
            assert port.names.append_refs([move("HEAD", 2, symbol="heads/b")], after=4) == 5
        other, head = port.names.branch_tip("heads/b"), port.names.branch_tip("HEAD")
        assert other is not None
        assert (other.is_protected, other.last_move) == (True, 5)
        assert head is not None
        assert (head.version, head.symbol) == (2, "heads/b")
        with port.transaction():
            port.names.append_refs([guard._replace(version=None)])
        other = port.names.branch_tip("heads/b")
        assert other is not None
        assert not other.is_protected

    def test_head_is_at_the_version_of_the_branch_it_follows_or_its_own(self, port: Port) -> None:
        assert port.names.head() is None
        for number in range(3):
            record(port, number, [])
        with port.transaction():
            port.names.append_refs([move("HEAD", 0, symbol="heads/main")])
        assert port.names.head() is None, "there is no such branch"
        with port.transaction():
            port.names.append_refs([move("heads/main", 1)])
        assert port.names.head() == ("heads/main", version(1, 0, 0))
        with port.transaction():
            port.names.append_refs([move("HEAD", 2)])
        assert port.names.head() == (None, version(2, 0, 0))
        with port.transaction():
            port.names.append_refs([move("HEAD", 2, symbol="heads/main"), move("heads/main", None)])
        assert port.names.head() is None

    def test_the_ref_log_keeps_every_move_newest_first_in_batches(self, port: Port) -> None:
        record(port, 0, [])
        batches = [["HEAD", "heads/main"], ["heads/main"], ["tags/a", "tags/b", "HEAD"]]
        for names in batches:
            with port.transaction():
                port.names.append_refs([move(name, 0, row=77, batch=88) for name in names])
        log = list(port.names.ref_log(None))[::-1]
        assert [m.name for m in log] == [name for names in batches for name in names]
        assert all(a.row < b.row for a, b in pairwise(log))
        assert [m.batch for m in log] == [log[i].row for i in (0, 0, 2, 3, 3, 3)]
        assert list(port.names.ref_log("HEAD")) == [log[5], log[0]]
        assert list(port.names.ref_log("nobody")) == []

    def test_moves_can_join_a_batch(self, port: Port) -> None:
        record(port, 0, [])
        with port.transaction():
            first = port.names.append_refs([move("HEAD", 0), move("heads/main", 0)])
            assert port.names.append_refs([move("tags/a", 0)], first) == first
            other = port.names.append_refs([move("tags/b", 0)])
        assert [m.batch for m in port.names.ref_log(None)] == [other, first, first, first]
        assert other != first
