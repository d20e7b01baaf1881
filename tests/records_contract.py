"""What any implementation of the port must do with remotes, records, the journal and redaction.

`port_contract.PortContract` inherits this; both need the same two fixtures.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path

import pytest
from port_rows import (
    Another,
    call,
    call_values,
    evaluation,
    event,
    made,
    move,
    one_call,
    record,
    rollout,
    run,
    version,
    write,
)

from tfgrpo.store import ROOT, InvalidName, Operation, Store, StoreError
from tfgrpo.store.activity.decisions import Decision, decide, decisions
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.activity.runs import RunState, Score
from tfgrpo.store.errors import RowRefused
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history import merge
from tfgrpo.store.redact import Target, redact
from tfgrpo.store.sql.port import Port
from tfgrpo.store.text_occurrences import forms, matcher
from tfgrpo.store.transfer.remotes import Remotes

SECRET = "the key is hunter2"
HOLDS = matcher(forms([SECRET]))
SCORES = [
    Score("p2", 0, None, None, None),
    Score("p1", 1, b"k", 0.0, "7"),
    Score("p1", 0, b"k", 1.0, "42"),
]


class RecordsContract:
    """Inherited by `PortContract`."""

    def test_a_fresh_port_has_no_records(self, port: Port) -> None:
        records = port.records
        assert records.runs() == records.evaluations() == records.spent(None) == []
        assert records.states(1) == records.rollouts(1, None) == records.scores(1) == []
        assert records.usage(1, None) == port.names.remotes() == {}
        assert one_call(records, b"k") is None
        assert not port.storage.evaluated()

    # remotes:

    def test_remotes_are_put_moved_and_dropped(self, port: Port, another: Another) -> None:
        with port.transaction():
            port.names.put_remote("origin", "/a")
            port.names.put_remote("desk", "host:ü")
        assert list(port.names.remotes().items()) == [("desk", "host:ü"), ("origin", "/a")]
        with port.transaction():
            port.names.put_remote("origin", "/b")
            port.names.drop_remote("desk")
            port.names.drop_remote("nobody")
        other = another()
        assert other.names.remotes() == {"origin": "/b"}
        other.close()

    # runs:

    def test_runs_are_found_by_name(self, port: Port) -> None:
        record(port, 0, [])
        one, two = made(port, run("R")), made(port, run("S", config={}, digest="digest R"))
        three = made(port, run("T"))
        assert [one, three] == [run("R", id=one.id), run("T", id=three.id)]
        assert port.records.runs() == [one, two, three]
        assert (port.records.runs(name="S"), port.records.runs(name="U")) == ([two], [])
        assert len({one.id, two.id, three.id}) == 3

    def test_a_run_is_refused_whose_name_is_taken_or_whose_base_is_not_there(
        self, port: Port
    ) -> None:
        record(port, 0, [])
        there = made(port, run("R"))
        for wrong in (run("R", uid="another"), run("S", uid=there.uid), run("S", base=9)):
            with pytest.raises(StoreError), port.transaction():
                port.records.append_run(wrong)
        assert port.records.runs() == [there]

    def test_states_are_those_of_a_run_oldest_first(self, port: Port) -> None:
        record(port, 0, [])
        one, other = made(port, run("R")), made(port, run("S"))
        states = [RunState("started", None, 9), RunState("failed", "ü", 7)]
        for state in states:
            with port.transaction():
                port.records.append_state(one.id, state)
                port.records.append_state(other.id, RunState("resumed", None, 8))
        assert port.records.states(one.id) == states

    def test_records_of_a_transaction_that_fails_are_not_there(self, port: Port) -> None:
        record(port, 0, [])
        there = made(port, run("R"))

        def fail() -> None:
            with port.transaction():
                port.records.append_run(run("S"))
                port.records.append_state(there.id, RunState("started", None, 1))
                port.records.append_evaluation(evaluation(0), SCORES)
                port.names.put_remote("origin", "/a")
                raise KeyError

        with pytest.raises(KeyError):
            fail()
        assert port.records.runs() == [there]
        assert port.records.states(there.id) == port.records.evaluations() == []
        assert port.names.remotes() == {}

    # evaluations:

    def test_evaluations_are_found_by_version_and_conditions_with_their_scores(
        self, port: Port
    ) -> None:
        for number in range(2):
            record(port, number, [])
        wanted = [evaluation(1), evaluation(1, "e", summary={"ü": [None]}), evaluation(0)]
        with port.transaction():
            for scores, one in zip((SCORES, SCORES[:1], ()), wanted, strict=True):
                port.records.append_evaluation(one, scores)
        found = port.records.evaluations()
        assert found == [w._replace(id=f.id) for w, f in zip(wanted, found, strict=True)]
        assert port.storage.evaluated()
        assert port.records.evaluations(1) == found[:2]
        assert port.records.evaluations(1, "e") == found[1:2]
        assert port.records.evaluations(0, "e") == []
        assert port.records.scores(found[0].id) == SCORES[::-1]
        assert port.records.scores(found[1].id) == SCORES[:1]
        assert port.records.scores(found[2].id) == []

    def test_an_evaluation_is_refused_whole_when_it_or_a_score_is_there_twice(
        self, port: Port
    ) -> None:
        record(port, 0, [])
        with pytest.raises(StoreError), port.transaction():
            port.records.append_evaluation(evaluation(0), [SCORES[0], SCORES[0]])
        assert port.records.evaluations() == []
        with port.transaction():
            port.records.append_evaluation(evaluation(0), SCORES)
        with pytest.raises(StoreError), port.transaction():
            port.records.append_evaluation(evaluation(0), ())
        assert len(port.records.evaluations()) == 1

    # the journal's writer:

    def test_what_a_writer_appended_is_there_for_every_port(
        self, port: Port, another: Another
    ) -> None:
        record(port, 0, [])
        id = made(port, run("R")).id
        calls = [
            call("k1", id),
            call("k2", request="ä \U0001f600 \x00 '\"\n"),
            call("k3", step=None),
        ]
        rollouts = [
            rollout(id, 1, reward=None),
            rollout(id, 0, step=1),
            rollout(id, 0, problem="a", calls=()),
            rollout(id, 0, verdict={"ü": "\x00"}),
        ]
        write(port, calls, rollouts)
        other = another()
        for mine in (port, other):
            assert [one_call(mine.records, one.key) for one in calls] == calls
            assert one_call(mine.records, b"k4") is None
            assert mine.records.rollouts(id, None) == [rollouts[i] for i in (2, 3, 0, 1)]
            assert mine.records.rollouts(id, 1) == [rollouts[1]]
            assert mine.records.rollouts(id, 0, "a") == [rollouts[2]]
            assert mine.records.rollouts(id + 1, None) == []
        other.close()

    def test_what_attempts_said_is_read_newest_first(self, port: Port) -> None:
        record(port, 0, [])
        first, second = made(port, run("R")).id, made(port, run("S")).id
        long = "Fünf " * 200
        write(port, [call("l", first, answer={"content": long})], [rollout(first)])
        write(port, [], [rollout(second, 3, calls=("6d",)), rollout(second, 4, calls=())])
        said = list(port.records.spoken(1 << 62))
        assert [(one.run, one.step, one.problem, one.sample) for one in said] == [
            (second, 0, "p", 4),
            (second, 0, "p", 3),
            (first, 0, "p", 0),
        ]
        assert [one.answer for one in said[:2]] == ["", ""]
        assert list(said[2].texts) == ["42", long]
        assert list(port.records.spoken(said[1].place)) == [said[2]]

    def test_many_rows_of_any_number_land_once_each(self, port: Port) -> None:
        record(port, 0, [])
        id = made(port, run("R")).id
        writer = port.records.writer()
        for count in (0, 1, 3, 65, 150):
            calls = [call_values(call(f"{count}-{i}", id)) for i in range(count)]
            writer.append(calls, ())
            writer.append(calls, ())
        writer.close()
        assert port.records.usage(id, None)["rollout"].calls == 219

    def test_a_call_or_rollout_that_is_there_stays_as_it_is(self, port: Port) -> None:
        record(port, 0, [])
        id = made(port, run("R")).id
        first, again = call("k", id), call("k", id, answer={"content": "again"})
        write(port, [first, again], [rollout(id), rollout(id, reward=0.0)])
        write(port, [again, call("new", id)], [rollout(id, reward=None)])
        assert one_call(port.records, b"k") == first
        assert one_call(port.records, b"new") == call("new", id)
        assert port.records.rollouts(id, None) == [rollout(id)]

    def test_rows_with_one_among_them_that_breaks_a_rule_are_refused_together(
        self, port: Port
    ) -> None:
        record(port, 0, [])
        writer = port.records.writer()
        with pytest.raises(RowRefused):
            writer.append([call_values(call("good")), call_values(call("bad", 999))], ())
        assert one_call(port.records, b"good") is None
        writer.append([call_values(call("good"))], ())
        assert one_call(port.records, b"good") == call("good")
        writer.close()

    def test_a_writer_that_wrote_nothing_is_closed_like_any_other(self, port: Port) -> None:
        port.records.writer().close()

    def until_one_waits(self, port: Port) -> bool:
        """Returns once a writer of the journal waits for the end of this port's transaction, and
        False where none has to."""
        return False

    def test_a_writer_of_another_thread_lands_beside_a_transaction(self, port: Port) -> None:
        record(port, 0, [])
        thread = threading.Thread(target=write, args=(port, [call("k")]))
        with port.transaction():
            port.append_version(version(1, 0, 0), [])
            thread.start()
            if self.until_one_waits(port):
                assert thread.is_alive()
                assert one_call(port.records, b"k") is None
            else:
                thread.join()
        thread.join()
        assert one_call(port.records, b"k") == call("k")
        assert port.last_version() == 1

    def test_calls_and_tokens_are_added_up_in_the_order_of_first_calls(self, port: Port) -> None:
        record(port, 0, [])
        one, two = made(port, run("R")).id, made(port, run("S")).id
        write(
            port,
            [
                call("a", one),
                call("b", one, stage="plan", step=1, attempts=1),
                call("c", one, completion_tokens=7, seconds=0.25),
                call("e", one, step=None),
                call("f", two, model="n"),
                call("g"),
            ],
        )
        usage, spent = port.records.usage, port.records.spent
        assert list(usage(one, None)) == ["rollout", "plan", "evaluation"]
        assert usage(one, 0) == {"rollout": (2, 20, 6, 12, 2, 0.75)}
        assert usage(one, 7) == usage(99, None) == {}
        once = (1, 10, 3, 5, 1, 0.5)
        assert spent(one) == [
            (one, 0, "rollout", "m", 2, (2, 20, 6, 12, 2, 0.75), None),
            (one, 1, "plan", "m", 0, once, None),
            (one, None, "evaluation", "m", 1, once, None),
        ]
        others = [(of, 0, "rollout", m, 1, once, None) for of, m in ((two, "n"), (None, "m"))]
        assert spent(None) == [*spent(one), *others]

    def test_days_are_added_up_apart(self, port: Port) -> None:
        record(port, 0, [])
        one, day = made(port, run("R")).id, 86_400_000_000
        times = {"a": 5 * day - 1, "b": 5 * day, "c": 5 * day + 7, "d": 6 * day}
        write(port, [call(key, one, time=time) for key, time in times.items()])
        write(port, [call("e", time=6 * day, model="n")])
        found = port.records.spent_by_day(one)
        assert [(day, s.usage.calls) for day, s in found] == [(4, 1), (5, 2), (6, 1)]
        assert [day for day, _ in port.records.spent_by_day(None)] == [4, 5, 6, 6]
        assert port.records.spent_by_day(99) == []

    def test_what_is_new_is_read_from_where_a_watcher_was(self, port: Port) -> None:
        record(port, 0, [])
        one, two = made(port, run("R")).id, made(port, run("S")).id
        records = port.records
        assert records.spent_since(one, 0) == (0, [])
        assert records.attempts_since(one, 0) == (0, [])
        write(port, [call("a", one), call("b", two), call("c", one)], [rollout(one, 1)])
        last, spent = records.spent_since(one, 0)
        assert spent == records.spent(one)
        place, (mark,) = records.attempts_since(one, 0)
        assert mark == (0, "p", 1, 0, "answered", 1.0, 5)
        write(port, [call("d", two)], [rollout(two)])
        assert records.spent_since(one, last) == (last, [])
        assert records.attempts_since(one, place) == (place, [])
        late = [rollout(one, 0, reward=None, outcome="failed"), rollout(one, 2, step=3)]
        write(port, [call("e", one, step=1)], late)
        more, (added,) = records.spent_since(one, last)
        assert more > last
        assert (added.step, added.usage.calls) == (1, 1)
        _, marks = records.attempts_since(one, place)
        assert [(m.step, m.sample, m.reward) for m in marks] == [(0, 0, None), (3, 2, 1.0)]

    def test_what_was_spent_is_told_by_the_endpoint_that_answered(self, port: Port) -> None:
        record(port, 0, [])
        one = made(port, run("R")).id
        records = port.records
        answers: list[dict[str, object]] = [
            {"content": "x" * 900, "endpoint": "http://a/v1"},
            {"content": 'says "endpoint": "c"'},
            {"content": "z", "endpoint": "http://b/v1"},
            {"content": "z", "endpoint": "http://a/v1"},
        ]
        write(port, [call(str(n), one, answer=answer) for n, answer in enumerate(answers)])
        write(port, [call("other", answer={"content": "", "endpoint": "http://a/v1"})])
        for spent in (
            records.spent(one, by_endpoint=True),
            [of_day for _, of_day in records.spent_by_day(one, by_endpoint=True)],
            records.spent_since(one, 0, by_endpoint=True)[1],
        ):
            assert [(s.endpoint, s.usage.calls, s.usage.cached_tokens) for s in spent] == [
                ("http://a/v1", 2, 6),
                (None, 1, 3),
                ("http://b/v1", 1, 3),
            ]
        assert sum(s.usage.calls for s in records.spent(None, by_endpoint=True) if s.endpoint) == 4
        assert [(s.endpoint, s.usage.calls) for s in records.spent(one)] == [(None, 4)]

    def test_many_calls_are_read_by_their_keys_at_once(self, port: Port) -> None:
        record(port, 0, [])
        calls = [call(f"k{n}", answer={"content": "ü" * n}) for n in range(90)]
        write(port, calls)
        records = port.records
        assert records.calls_by_key([]) == records.calls_by_key([b"none"]) == []
        keys = [b"none", *(one.key for one in calls), b"neither"]
        assert sorted(records.calls_by_key(keys)) == sorted(calls)
        assert records.calls_by_key([b"k7"]) == [calls[7]]

    def test_rewards_are_read_one_by_one_with_what_prompts_went_without(self, port: Port) -> None:
        record(port, 0, [])
        one, two = made(port, run("R")).id, made(port, run("S")).id
        records = port.records
        odd = {"kind": 'a "kind": ü', "without": ["x", "ü"], "answer": '"without":'}
        odd |= {"belongs": ["ü", "x for y@1"]}
        rows = [
            rollout(one, 0, problem="q", step=1, verdict=odd),
            rollout(one, 1, step=1, verdict={"answer": '"kind": "without":'}),
            rollout(one, 0, reward=0.25, verdict={"without": []}),
            rollout(one, 1, reward=None),
            rollout(one, 100),
            rollout(two, 0, step=3),
        ]
        write(port, [], rows)
        with port.reading():
            found = list(records.rewards(one, 100, None, "kind"))
            early = list(records.rewards(one, 100, 0, ""))
        assert [(*row[:5], row.kind) for row in found] == [
            (0, "p", 0, 0, 0.25, ""),
            (1, "p", 1, 0, 1.0, ""),
            (1, "q", 0, 0, 1.0, odd["kind"]),
        ]
        assert [json.loads(row.without or "null") for row in found] == [[], None, ["x", "ü"]]
        assert [json.loads(r.belongs or "null") for r in found] == [None, None, odd["belongs"]]
        assert [row.reward for row in early] == [0.25]
        assert records.reward_steps(one, 100, None) == [(0, 0), (1, 0)]
        assert records.reward_steps(one, 100, 0) == [(0, 0)]

    def test_calls_of_a_stage_are_read_with_their_texts_in_order(self, port: Port) -> None:
        record(port, 0, [])
        one, two = made(port, run("R")).id, made(port, run("S")).id
        long = call("z", one, stage="comparison", request='["' + "ü" * 900 + '"]')
        others = [call("y", one), call("x", two, stage="comparison")]
        later = call("w", one, stage="comparison", step=1)
        write(port, [long, *others, later])
        assert port.records.calls(one, "comparison", None) == [long, later]
        assert port.records.calls(one, "comparison", 1) == [later]
        assert port.records.calls(one, "summary", None) == []

    def test_counts_that_no_endpoint_can_mean_leave_the_sums_readable(self, port: Port) -> None:
        record(port, 0, [])
        one = made(port, run("R")).id
        write(port, [call(str(n), one, prompt_tokens=10**18) for n in range(20)])
        write(port, [call("a", one)])
        (spent,) = port.records.spent(one)
        assert (spent.usage.calls, spent.usage.prompt_tokens) == (21, 10)
        assert port.records.usage(one, None) == {"rollout": spent.usage}

    def test_calls_whose_tokens_no_server_told_are_counted(self, port: Port) -> None:
        record(port, 0, [])
        one = made(port, run("R")).id
        quoted = {"content": '{"estimated":true}', "finish_reason": "stop"}
        write(port, [call("a", one), call("b", one, answer=quoted), call("c")])
        assert port.records.estimated(None) == 0
        counted = {**quoted, "estimated": True}
        write(port, [call("d", one, answer=counted), call("e", answer=counted)])
        assert (port.records.estimated(one), port.records.estimated(None)) == (1, 2)

    def test_how_requests_were_sent_is_known_of_each_model_of_a_run(self, port: Port) -> None:
        record(port, 0, [])
        one, two = made(port, run("R")).id, made(port, run("S")).id
        quoted = {"content": '{"sent":{"room":1}}', "finish_reason": "stop"}
        roomy = {**quoted, "sent": {"room": 2048}}
        write(port, [call("a", one), call("b", one, answer=quoted)])
        assert port.records.sent(one) == []
        write(port, [call("c", one, answer=roomy), call("d", one, answer=roomy)])
        write(port, [call("e", two, answer={**quoted, "sent": {"room": 1}})])
        write(port, [call("f", one, answer={**quoted, "sent": {"schema": "prompt"}})])
        assert port.records.sent(one) == [("m", {"room": 2048}), ("m", {"schema": "prompt"})]

    # texts:

    def test_a_text_is_found_wherever_it_is_and_replaced_where_no_digest_covers_it(
        self, port: Port
    ) -> None:
        escaped = f'[["user","say \\"{SECRET}\\" again"]]'
        record(port, 0, [event(1, text=f"x {SECRET}"), event(2), event(3, reason=SECRET)])
        with port.transaction():
            port.append_version(version(1, 3, 0, message=f"note {SECRET}"), [])
            port.names.append_refs([move("heads/main", 1, action=f"commit: note {SECRET}")])
        id = made(port, run("R")).id
        write(
            port,
            [
                call("asked", id, request=escaped),
                call("answered", id, answer={"content": [SECRET], "finish_reason": "stop"}),
                call("other", id),
            ],
            [rollout(id, verdict={SECRET: "42"}), rollout(id, 1)],
        )
        said = evaluation(0, config={"why": SECRET}, summary={"of": [SECRET]})
        with port.transaction():
            port.records.append_evaluation(said, [SCORES[0]._replace(answer=f"it: {SECRET}")])

        assert port.redactions.events_holding(HOLDS) == [1, 3]
        found = port.redactions.occurrences(HOLDS)
        kept = [trace for trace in found if trace.kept]
        assert len(found) - len(kept) >= 5
        assert len(kept) == 2, "a message and a move that repeats it"
        assert (
            port.redactions.occurrences(re.compile("nowhere"))
            == port.redactions.events_holding(re.compile("nowhere"))
            == []
        )
        with port.transaction():
            port.redactions.replace(HOLDS)
        assert port.redactions.occurrences(HOLDS) == kept
        assert port.redactions.events_holding(HOLDS) == [1, 3], "events are blanked one by one"
        assert port.redactions.rewrite()

        records = port.records
        asked, answered = (one_call(records, key) for key in (b"asked", b"answered"))
        assert asked is not None
        assert answered is not None
        assert asked.request == '[["user","say \\"[redacted]\\" again"]]'
        assert asked.answer == call("asked").answer
        assert answered.answer == {"content": ["[redacted]"], "finish_reason": "redacted"}
        assert one_call(records, b"other") == call("other", id)
        verdicts = [row.verdict for row in records.rollouts(id, None)]
        assert verdicts == [{"[redacted]": "42"}, {"answer": "42"}]
        (evaluated,) = records.evaluations()
        assert evaluated.config == {"why": "[redacted]"}
        assert evaluated.summary == {"of": ["[redacted]"]}
        assert [score.answer for score in records.scores(evaluated.id)] == ["it: [redacted]"]

    # decisions:

    def test_decisions_are_read_back_by_kind_subject_and_time(
        self, port: Port, another: Another
    ) -> None:
        assert port.records.decisions() == []
        made = [
            Decision(0, "a", 5, "ann", "experiment", "shorter", {"share": 0.1, "of": ["ü"]}, "try"),
            Decision(0, "b", 6, "bob", "rollback", "prod", {}, None),
            Decision(0, "c", 7, "ann", "experiment", "longer", {}, None),
        ]
        with port.transaction():
            rows = [port.records.append_decision(decision) for decision in made]
        assert rows == sorted(set(rows))
        made = [decision._replace(row=row) for decision, row in zip(made, rows, strict=True)]
        other = another()
        records = other.records
        assert records.decisions() == made
        assert records.decisions("experiment") == [made[0], made[2]]
        assert records.decisions("experiment", "longer") == [made[2]]
        assert records.decisions(since=6) == made[1:]
        other.close()
        with pytest.raises(StoreError), port.transaction():
            port.records.append_decision(made[0])
        assert port.records.decisions() == made

    def test_a_decision_is_redacted_on_record_and_the_others_stay(
        self, port: Port, tmp_path: Path
    ) -> None:
        store = Store(port, tmp_path / "store.db", author="ann", now=lambda: 7)
        with port.transaction():
            port.append_version(ROOT, ())
            port.names.append_refs([move("heads/main", 0), move("HEAD", 0, symbol="heads/main")])
        one = decide(store, "experiment", "x", {"quote": [f"said {SECRET}"]}, why=SECRET)
        two = decide(store, "experiment", "y", {"quote": "nothing"}, why="because")
        done = redact(store, Target(texts=(SECRET,)), reason="leak")
        assert {place.column for place in done.plan.records} == {"content", "why"}
        found = decisions(store)
        assert found[0] == one._replace(content={"quote": ["said [redacted]"]}, why="[redacted]")
        assert found[1] == two
        places = {"places": len(done.plan.records)}
        assert [decision[4:] for decision in found[2:]] == [
            ("redaction", "records", places, "leak"),
            ("redaction", one.id, {}, "leak"),
            ("redaction", "texts", found[4].content, "leak"),
        ]
        assert fsck(store).problems == ()

    # what stands on it:

    def test_a_whole_store_works_over_it(self, port: Port, tmp_path: Path) -> None:
        store = Store(port, tmp_path / "store.db", author="ann", now=lambda: 7)
        with port.transaction():
            port.append_version(ROOT, ())
            port.names.append_refs([move("heads/main", 0), move("HEAD", 0, symbol="heads/main")])
        added = [Operation("ADD", text=text) for text in ("Count both days.", SECRET, "Round up.")]
        first = store.commit("main", added, message="rules", tags=["approved"])
        store.create_branch("web")
        store.commit("web", [Operation("DELETE", next(iter(store.library())).id)], message="less")
        store.commit("main", [Operation("ADD", text="Say why.")], message="more")
        merge.merge(store, "main", store.tip("web"), message="both", resolve=None)
        wanted = [SECRET, "Round up.", "Say why."]
        assert [e.text for e in store.library("main")] == wanted

        one = store.runs.create("R", "uid", "main", 0, {"seed": 1}, "ann")
        with pytest.raises(InvalidName):
            store.runs.create("R", "uid", "main", 0, {"seed": 1}, "ann")
        store.runs.note(one, "started")
        assert store.runs.state(one) == "interrupted"

        async def go() -> list[object]:
            journal = Journal(port.records.writer())
            appends = [journal.append(call(f"k{i}", one.id)) for i in range(40)]
            appends.append(journal.append(call("bad", 999)))
            appends.append(journal.rollout(rollout(one.id, calls=(b"k1".hex(),))))
            try:
                return await asyncio.gather(*appends, return_exceptions=True)
            finally:
                journal.close()

        told = asyncio.run(go())
        assert isinstance(told.pop(40), RowRefused), "it costs itself alone"
        assert told == [None] * 41
        assert store.runs.usage(one)["rollout"].calls == 40

        Remotes(store).add("origin", "/a")
        assert Remotes(store).move("origin", "/b") == "/a"
        assert Remotes(store).default() == "origin"
        assert fsck(store).problems == ()
        done = redact(store, Target(texts=(SECRET,)), reason="leak")
        assert done.finished
        assert [e.text for e in store.library("main")] == wanted[1:]
        assert [e.text for e in store.library(first)] == [
            "Count both days.",
            "[redacted]",
            "Round up.",
        ]
        assert fsck(store).problems == ()
