"""What any implementation of `tfgrpo.store.sql.port.Port` must do, as a class to inherit from.

Half of it, the records of training and evaluation, is in `records_contract.py`, names are in
`names_contract.py`.

A test module subclasses `PortContract` and gives it two fixtures: `port`, a fresh and empty
port, and `another`, a function that opens one more port onto the same store for another thread
to use. Everything above the port (replay, diff, merge, the method) relies on what stands here.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from typing import ClassVar

import pytest
from names_contract import NamesContract
from port_rows import Another, event, move, record, version
from records_contract import RecordsContract

from tfgrpo.store import Op, StoreError, Version
from tfgrpo.store.history import replay
from tfgrpo.store.history.walks import version_of_row
from tfgrpo.store.records import VERSION_SCHEMA, Deletion, EventRow, Redaction, lane_of, lane_start
from tfgrpo.store.sql.port import Port


class PortContract(NamesContract, RecordsContract):
    """Inherit, and give the fixtures `port` and `another`."""

    news_takes: ClassVar[float] = 0.0
    """Seconds after which everybody knows at the latest that somebody has committed."""

    # transactions:

    def test_a_fresh_port_is_empty(self, port: Port) -> None:
        assert port.last_version() < 0
        assert port.version(0) is None
        assert port.versions_by_digest("", 5) == []
        assert list(port.events(0, 1 << 62)) == []
        assert port.counts.events() == 0
        assert port.names.refs("") == []
        assert port.names.ref("HEAD") is None
        assert list(port.names.ref_log(None)) == []
        assert port.snapshot(0, 1 << 62) is None
        assert port.lane_tip(0)

    def test_what_a_transaction_wrote_is_there_for_every_port(
        self, port: Port, another: Another
    ) -> None:
        with port.transaction():
            port.append_version(version(0, 2, 2), [event(1), event(2)])
            port.names.append_refs([move("heads/main", 0)])
            port.put_snapshot(2, [1, 2])
            assert port.last_version() == 0, "a writer sees what it writes"
        other = another()
        assert other.version(0) == port.version(0) == version(0, 2, 2)
        assert list(other.events(0, 9)) == [event(1), event(2)]
        assert other.names.ref("heads/main") == port.names.ref("heads/main")
        other.close()

    def test_changes_tells_that_another_has_committed(self, port: Port, another: Another) -> None:
        other = another()
        before = port.changes()
        assert port.changes() == before
        with other.transaction():
            other.append_version(version(0, 1, 1), [event(1)])
        until = time.monotonic() + self.news_takes
        while port.changes() == before and time.monotonic() < until:
            time.sleep(0.001)
        assert port.changes() != before
        other.close()

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
    def test_a_transaction_that_fails_leaves_nothing(
        self, port: Port, error: type[BaseException]
    ) -> None:
        record(port, 0, [event(1)])

        def write() -> None:
            with port.transaction():
                row = lane_start(port.open_lane(1)) + 1
                port.append_version(version(1, row, 1), [event(row)])
                port.names.append_refs([move("heads/main", 1)])
                port.put_snapshot(1, [1])
                raise error

        with pytest.raises(error):
            write()
        assert port.last_version() == 0
        assert port.version(1) is None
        assert list(port.events(0, 1 << 62)) == [event(1)]
        assert port.names.refs("") == []
        assert port.snapshot(0, 9) is None
        record(port, 1, [event(2)])
        assert port.last_version() == 1

    def test_a_transaction_inside_another_joins_it(self, port: Port, another: Another) -> None:
        other = another()

        def write() -> None:
            with port.transaction():
                with port.transaction():
                    port.append_version(version(0, 1, 1), [event(1)])
                assert other.last_version() < 0, "the inner one has ended, and not the outer"
                raise KeyError

        with pytest.raises(KeyError):
            write()
        assert port.last_version() < 0
        other.close()

    def test_a_reader_sees_nothing_of_a_transaction_before_its_end(
        self, port: Port, another: Another
    ) -> None:
        other = another()
        with port.transaction():
            port.append_version(version(0, 1, 1), [event(1)])
            port.names.append_refs([move("heads/main", 0)])
            assert other.last_version() < 0
            assert list(other.events(0, 9)) == []
            assert other.names.ref("heads/main") is None
        assert other.last_version() == 0
        other.close()

    def test_writers_take_turns_and_see_what_the_one_before_wrote(
        self, port: Port, another: Another
    ) -> None:
        record(port, 0, [])

        def write() -> None:
            mine = another()
            for _ in range(20):
                with mine.transaction():
                    last = mine.last_version()
                    mine.append_version(version(last + 1, last + 1, 1), [event(last + 1)])
            mine.close()

        threads = [threading.Thread(target=write) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert port.last_version() == 60
        assert [e.row for e in port.events(0, 99)] == list(range(1, 61))

    # one state:

    def test_what_is_read_is_of_one_state_whatever_others_commit(
        self, port: Port, another: Another
    ) -> None:
        record(port, 0, [event(1)])
        other = another()
        with port.reading():
            assert port.last_version() == 0
            record(other, 1, [event(2)])
            with other.transaction():
                other.names.append_refs([move("heads/main", 1)])
            with port.reading():
                assert port.last_version() == 0
            assert [e.row for e in port.events(0, 9)] == [1]
            assert port.counts.events() == 1
            assert port.names.ref("heads/main") is None
            assert other.last_version() == 1, "whoever reads so keeps nobody from writing"
        assert port.last_version() == 1
        assert port.counts.events() == 2
        other.close()

    def test_nothing_is_written_while_one_state_is_read(self, port: Port) -> None:
        record(port, 0, [event(1)])

        def write() -> None:
            with port.reading():
                record(port, 1, [event(2)])

        with pytest.raises(AssertionError):
            write()
        assert port.last_version() == 0
        record(port, 1, [event(2)])
        assert port.last_version() == 1

    def test_reading_inside_a_transaction_sees_what_it_wrote(self, port: Port) -> None:
        with port.transaction():
            port.append_version(version(0, 1, 1), [event(1)])
            with port.reading():
                assert port.last_version() == 0
            port.append_version(version(1, 2, 1), [event(2)])
        assert port.counts.events() == 2

    # versions and events:

    def test_versions_and_events_are_read_back_as_they_were_appended(self, port: Port) -> None:
        rows = [
            event(1, text="ä \U0001f600 \x00 '\"\n", reason=None, evidence=None),
            event(2, "DELETE", replaces=1, birth=1, seal=None, salt=None, reason=None),
        ]
        new = version(0, 2, 2, message="", meta={"run": "R", "n": [1, None, "ü"]}, time=1 << 52)
        with port.transaction():
            port.append_version(new, rows)
            port.append_version(version(1, 2, 0, merged=0), [])
        assert port.version(0) == new
        assert port.version(1) == version(1, 2, 0, merged=0)
        assert port.version(2) is None
        assert port.versions_at([1, 7, 0, 1]) == [new, version(1, 2, 0, merged=0)]
        assert port.version(-1) is None
        assert list(port.events(0, 2)) == rows
        links = list(port.chain())
        assert links[0].meta == '{"n":[1,null,"ü"],"run":"R"}', "as its digest covers it"
        assert links[1].meta is None
        assert [link.schema for link in links] == [VERSION_SCHEMA] * 2
        assert list(port.chain([1, 7])) == links[1:]

    def test_a_number_or_row_that_is_there_is_never_appended_again(self, port: Port) -> None:
        record(port, 0, [event(1)])
        for again in (version(0, 2, 1), version(1, 1, 1)):
            rows = [event(again.position, text="other")]
            with pytest.raises(StoreError), port.transaction():
                port.append_version(again, rows)
        with pytest.raises(StoreError), port.transaction():
            port.append_version(version(1, 2, 1, digest=version(0, 0, 0).digest), [event(2)])
        assert port.last_version() == 0
        assert port.version(0) == version(0, 1, 1)
        assert list(port.events(0, 99)) == [event(1)]

    def test_ranges_of_events_leave_out_their_lower_and_hold_their_upper_end(
        self, port: Port
    ) -> None:
        record(port, 0, [event(r) for r in range(1, 6)])
        assert [e.row for e in port.events(1, 4)] == [2, 3, 4]
        assert [e.row for e in port.events(0, 1 << 61)] == [1, 2, 3, 4, 5]
        assert [e.row for e in port.events(3, 3)] == []

    def test_steps_are_the_events_in_order_without_keeps(self, port: Port) -> None:
        rows = [
            event(1),
            event(2, "KEEP", replaces=1),
            event(3, "MODIFY", replaces=1),
            event(4, "DELETE", replaces=3),
        ]
        record(port, 0, rows)
        steps = [(1, "ADD", None), (3, "MODIFY", 1), (4, "DELETE", 3)]
        assert list(port.steps(0, 4)) == steps
        assert list(port.steps(1, 3)) == steps[1:2]
        assert list(port.steps(4, 4)) == []

    def test_events_at_gives_those_there_are_in_row_order(self, port: Port) -> None:
        record(port, 0, [event(r) for r in range(1, 9)])
        assert [e.row for e in port.events_at({7, 1, 3, 99})] == [1, 3, 7]
        assert [e.row for e in port.events_at(iter([3, 3]))] == [3]
        assert port.events_at([]) == []
        assert [e.row for e in port.events_at([7, 1, 7])] == [1, 7]
        assert len(port.events_at(range(40_000))) == 8, "any number may be asked for"

    def test_shapes_are_what_a_library_needs_of_the_events_at_rows(self, port: Port) -> None:
        rows = [
            event(1, experience="x"),
            event(2, experience="y", text=None, salt=None, reason=None),
            event(3, "MODIFY", "x", replaces=1, birth=1),
        ]
        record(port, 0, rows)
        assert list(port.shapes_at({3, 2})) == [("y", None, 2, 2), ("x", "text 3", 3, 1)]
        assert list(port.shapes_at(iter([1, 1, 9]))) == [("x", "text 1", 1, 1)]
        assert list(port.shapes_at([])) == []

    def test_the_chain_is_every_version_with_what_its_digest_is_made_from(self, port: Port) -> None:
        versions = [
            version(0, 1, 1),
            version(1, 1, 0, meta={"b": "ü", "a": [1]}),
            version(2, 2, 1, merged=0),
        ]
        record(port, 0, [event(1)])
        with port.transaction():
            port.append_version(versions[1], [])
            port.append_version(versions[2], [event(2)])
        assert [link.version for link in port.chain()] == versions
        assert [link.meta for link in port.chain()] == [None, '{"a":[1],"b":"ü"}', None]
        assert {link.schema for link in port.chain()} == {VERSION_SCHEMA}

    def test_events_of_an_experience_are_those_on_every_branch_in_row_order(
        self, port: Port
    ) -> None:
        record(port, 0, [event(1, experience="x"), event(2)])
        with port.transaction():
            row = lane_start(port.open_lane(1)) + 1
            port.append_version(version(1, row, 1), [event(row, "MODIFY", "x", replaces=1)])
        record(port, 2, [event(3, "DELETE", "x", replaces=1)])
        assert [e.row for e in port.events_of("x")] == [1, 3, row]
        assert port.events_of("y") == []
        assert port.deletions_of(["y", "x", "x"]) == [Deletion("x", 3, None)]
        assert port.deletions_of(["y"]) == port.deletions_of([]) == []

    def test_experiences_are_found_by_the_beginning_of_their_id(self, port: Port) -> None:
        ids = ["aa0000000000", "aa1000000000", "aazzzzzzzzzz", "ab0000000000"]
        rows = [event(i, experience=id) for i, id in enumerate([*ids, ids[0]], 1)]
        record(port, 0, rows)
        assert port.experiences_like("aa", 9) == ids[:3]
        assert port.experiences_like("aa", 2) == ids[:2]
        assert port.experiences_like(ids[3], 9) == [ids[3]]
        for none in ("b", "%", "a_", "aaz" * 5):
            assert port.experiences_like(none, 9) == []

    def test_ops_are_counted_by_kind(self, port: Port) -> None:
        ops: list[Op] = ["ADD", "ADD", "KEEP", "MODIFY", "DELETE", "ADD"]
        record(port, 0, [event(i, op) for i, op in enumerate(ops, 1)])
        assert port.counts.ops(1, 5) == {"ADD": 1, "KEEP": 1, "MODIFY": 1, "DELETE": 1}
        assert port.counts.ops(0, 6)["ADD"] == 3
        assert port.counts.ops(6, 6) == {}
        assert port.counts.events() == 6

    def test_keeps_are_counted_by_the_event_they_confirm_within_a_history(self, port: Port) -> None:
        def keep(row: int, of: int) -> EventRow:
            return event(row, "KEEP", "x" if of != 2 else "y", replaces=of)

        modified = event(5, "MODIFY", "x", replaces=1)
        rows = [
            event(1, experience="x"),
            event(2, experience="y"),
            keep(3, 1),
            keep(4, 1),
            modified,
        ]
        record(port, 0, [*rows, keep(6, 5), keep(7, 2)])
        with port.transaction():
            row = lane_start(port.open_lane(4)) + 1
            port.append_version(version(1, row, 1), [keep(row, 1)])
        assert port.counts.keeps({"x": 1, "y": 2}, [(0, 7)]) == {1: 2, 2: 1}
        assert port.counts.keeps({"x": 5, "y": 2}, [(0, 7)]) == {2: 1, 5: 1}
        assert port.counts.keeps({"x": 1}, [(3, 7)]) == {1: 1}
        assert port.counts.keeps({"x": 1, "y": 2}, [(0, 4), (row - 1, row)]) == {1: 3}
        assert port.counts.keeps({"x": 3}, [(0, 7)]) == port.counts.keeps({"x": 1}, []) == {}

    def test_versions_are_found_by_the_beginning_of_their_digest(self, port: Port) -> None:
        tails = [b"\x12\x34" + b"\x00" * 30, b"\x12\x3f" + b"\xff" * 30, b"\xff" * 32]
        with port.transaction():
            for number, digest in enumerate(tails):
                port.append_version(version(number, 0, 0, digest=digest), [])

        def numbers(prefix: str, limit: int = 9) -> list[int]:
            return sorted(v.number for v in port.versions_by_digest(prefix, limit))

        assert numbers("123") == [0, 1]
        assert numbers("1234") == [0]
        assert numbers("123f") == [1]
        assert numbers("ffff") == numbers("ff" * 32) == [2]
        assert numbers("1235") == []
        assert len(numbers("123", 1)) == 1

    def test_the_first_version_since_a_time_is_the_lowest_number_wherever_clocks_were(
        self, port: Port
    ) -> None:
        with port.transaction():
            for number, time in enumerate((0, 10, 30, 20, 40)):
                port.append_version(version(number, 0, 0, time=time), ())
        assert [port.first_since(t) for t in (0, 10, 11, 31, 40, 41)] == [0, 1, 2, 4, 4, None]

    def test_versions_and_modifies_are_counted_within_a_history(self, port: Port) -> None:
        ops: list[tuple[Op, str]] = [
            ("ADD", "a"),
            ("MODIFY", "a"),
            ("MODIFY", "b"),
            ("MODIFY", "a"),
        ]
        with port.transaction():
            port.append_version(version(0, 0, 0), ())
            for row, (op, id) in enumerate(ops, 1):
                port.append_version(version(row, row, 1), [event(row, op, id)])
            port.append_version(version(5, 4, 0), ())
            port.put_snapshot(2, [1, 2])
            port.put_snapshot(4, [3, 4])

    def test_the_version_of_a_row_is_the_one_that_holds_it(self, port: Port) -> None:
        record(port, 0, [])
        record(port, 1, [event(1), event(2)])
        record(port, 2, [], position=2)
        record(port, 3, [event(3)])
        with port.transaction():
            row = lane_start(port.open_lane(2)) + 1
            port.append_version(version(4, row, 1), [event(row)])
        found = [version_of_row(port, r).number for r in (1, 2, 3, row)]
        assert found == [1, 1, 3, 4]
        assert port.numbers_of_rows([row, 3, 1, 2]) == {1: 1, 2: 1, 3: 3, row: 4}
        assert port.numbers_of_rows([]) == {}
        with pytest.raises(StoreError):
            version_of_row(port, row + 1)
        with pytest.raises(StoreError):
            port.numbers_of_rows([1, row + 1])

    # lanes:

    def test_a_lane_remembers_where_it_left_and_has_a_tip_of_its_own(self, port: Port) -> None:
        record(port, 0, [event(1), event(2)])
        assert not port.lane_tip(1)
        assert port.lane_tip(2)
        with port.transaction():
            first, second = port.open_lane(1), port.open_lane(2)
        assert 0 < first < second
        assert (port.lane_base(first), port.lane_base(second)) == (1, 2)
        assert port.lane_tip(lane_start(first))
        row = lane_start(first) + 1
        record(port, 1, [event(row)])
        assert not port.lane_tip(lane_start(first))
        assert port.lane_tip(row)
        assert port.lane_tip(2), "another lane's events do not matter"
        assert port.lane_tip(lane_start(second))

    def test_a_lane_that_was_rolled_back_is_forgotten(self, port: Port) -> None:
        record(port, 0, [event(1), event(2)])
        with suppress(InterruptedError), port.transaction():
            lane = port.open_lane(1)
            assert port.lane_base(lane) == 1
            raise InterruptedError
        with port.transaction():
            assert port.open_lane(2) == lane
            assert port.lane_base(lane) == 2
        assert port.lane_base(lane) == 2

    # snapshots:

    def test_the_latest_snapshot_in_a_range_is_found_until_all_are_dropped(
        self, port: Port
    ) -> None:
        far = lane_start(3) + 7
        with port.transaction():
            port.put_snapshot(5, [1, 2, 5])
            port.put_snapshot(9, [])
            port.put_snapshot(far, [1, far])
        assert port.snapshot(0, 8) == (5, [1, 2, 5])
        assert port.snapshot(0, 9) == port.snapshot(5, 100) == (9, [])
        assert port.snapshot(5, 8) is None
        assert port.snapshot(lane_start(3), far) == (far, [1, far])
        assert port.counts.snapshot_positions() == [5, 9, far]
        port.storage.drop_snapshots()
        assert port.counts.snapshot_positions() == []
        assert port.snapshot(0, 1 << 62) is None

    # redactions:

    def test_redactions_of_an_event_are_read_back_in_order(self, port: Port) -> None:
        record(port, 0, [event(1), event(2)])
        made = [Redaction("ann", 5, "leak"), Redaction("bob", 4, "once more")]
        with port.transaction():
            port.redactions.append(2, made[:1])
            port.redactions.append(2, made[1:])
        assert port.redactions.of(2) == made
        assert port.redactions.of(1) == []

    # what stands on it:

    def test_libraries_and_diffs_replayed_over_it_are_those_of_a_plain_fold(
        self, port: Port
    ) -> None:
        dice = random.Random(5)
        record(port, 0, [])
        made: list[tuple[Version, dict[str, EventRow]]] = [(version(0, 0, 0), {})]
        for number in range(1, 40):
            base, live = dice.choice(made[-6:])
            live, rows = dict(live), []
            with port.transaction():
                at = base.position
                if not port.lane_tip(at):
                    at = lane_start(port.open_lane(at))
                for row in range(at + 1, at + 1 + dice.randrange(1, 5)):
                    op = dice.choice(["ADD", "MODIFY", "DELETE", "KEEP"]) if live else "ADD"
                    was = live[dice.choice(sorted(live))] if op != "ADD" else None
                    rows.append(
                        event(
                            row,
                            op,  # type: ignore[arg-type]
                            was.experience if was else "",
                            replaces=was.row if was else None,
                            birth=(was.birth or was.row) if was else None,
                        )
                    )
                    if op == "DELETE" and was is not None:
                        del live[was.experience]
                    elif op != "KEEP":
                        live[rows[-1].experience] = rows[-1]
                new = version(number, rows[-1].row, len(rows), parent=base.number)
                port.append_version(new, rows)
                if dice.random() < 0.2:
                    port.put_snapshot(new.position, sorted(e.row for e in live.values()))
            made.append((new, live))
        assert len({lane_of(v.position) for v, _ in made}) > 2
        for _ in range(2):
            for new, live in made:
                ordered = sorted(live.values(), key=lambda e: e.birth or e.row)
                found = [(e.id, e.text) for e in replay.library_at(port, new)]
                assert found == [(e.experience, e.text) for e in ordered]
            for (a, before), (b, after) in zip(made, made[::-1], strict=True):
                changed = {
                    id
                    for id in before.keys() | after.keys()
                    if (e := before.get(id)) is None
                    or (f := after.get(id)) is None
                    or e.text != f.text
                }
                assert {c.experience for c in replay.diff(port, a, b)} == changed
            port.storage.drop_snapshots()

    # redactions:

    def test_a_redaction_blanks_what_an_event_says_and_is_on_record(self, port: Port) -> None:
        record(port, 0, [event(1), event(2)])
        assert port.redactions.rows() == port.redactions.of(2) == []
        why = [Redaction("ann", 7, "leak"), Redaction("bob", 8, "again")]
        with port.transaction():
            port.redactions.append(2, why)
            port.redactions.blank(2)
        one, two = port.events_at([1, 2])
        assert one == event(1)
        assert two == event(2)._replace(text=None, reason=None, salt=None)
        assert port.redactions.of(2) == why
        assert port.redactions.rows() == [2]

    def test_a_redaction_that_fails_blanks_nothing(self, port: Port) -> None:
        record(port, 0, [event(1)])

        def fail() -> None:
            with port.transaction():
                port.redactions.append(1, [Redaction("ann", 7, "leak")])
                port.redactions.blank(1)
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
        assert port.events_at([1]) == [event(1)]
        assert port.redactions.rows() == []

    def test_a_sound_storage_has_no_damage(self, port: Port) -> None:
        record(port, 0, [event(1)])
        assert port.storage.check() == []
        assert port.storage.size() >= 0
