"""Runs, rollouts, calls and evaluations: appended once, durable at once, honest about a kill."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from store_helpers import add, child, kill_after_ready, killed, kills, run_child

from tfgrpo.store import InvalidName, Store, StoreError, UnknownRevision, process_lock
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.activity.runs import Call, RolloutRow, Run, Score
from tfgrpo.store.sqlite.journal import SqliteWriter


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.init(tmp_path / "store.db", author="ann") as store:
        store.commit("main", [add("a")], message="m")
        yield store


@pytest.fixture
def run(store: Store) -> Run:
    return store.runs.create("R", "uid-r", "main", 1, {"seed": 1}, "ann")


def call(key: str, content: str = "hi", *, run: int | None = None, stage: str = "rollout") -> Call:
    return Call(
        key=key.encode(),
        run=run,
        stage=stage,
        step=0,
        model="m",
        request="the same request",
        answer={"content": content, "finish_reason": "stop"},
        prompt_tokens=10,
        cached_tokens=3,
        completion_tokens=5,
        reasoning_tokens=1,
        attempts=1,
        seconds=0.5,
        time=123,
    )


def rollout(run: Run, sample: int, reward: float | None = 1.0, *, step: int = 0) -> RolloutRow:
    return RolloutRow(
        run=run.id,
        step=step,
        problem="p1",
        sample=sample,
        version=1,
        calls=("aa", "bb"),
        outcome="answered",
        reward=reward,
        verdict={"answer": "42"},
        time=5,
    )


def journalled(path: Path) -> dict[str, int]:
    """Key → how often it is in the journal."""
    with sqlite3.connect(path) as db:
        rows = db.execute("select cast(key as text), count(*) from journal group by key")
        return dict(rows.fetchall())


# runs:


def test_a_run_is_found_again_with_everything_it_was_made_with(store: Store, run: Run) -> None:
    assert store.runs.get("R") == store.runs.find("R") == run
    assert (run.uid, run.branch, run.base, run.config) == ("uid-r", "main", 1, {"seed": 1})
    other = store.runs.create("S", "uid-s", "main", 0, {"seed": 2}, "ann")
    again = store.runs.create("T", "uid-t", "main", 0, {"seed": 1}, "ann")
    assert store.runs.all() == [run, other, again]


def test_a_run_name_is_used_once(store: Store, run: Run) -> None:
    with pytest.raises(InvalidName) as caught:
        store.runs.create("R", "another", "main", 1, {}, "ann")
    assert "--resume R" in str(caught.value.hint)
    assert store.runs.all() == [run]


def test_an_unknown_run_is_an_error_that_lists_those_there_are(store: Store) -> None:
    with pytest.raises(UnknownRevision) as caught:
        store.runs.get("Q")
    assert caught.value.hint
    store.runs.create("R", "uid-r", "main", 1, {}, "ann")
    with pytest.raises(UnknownRevision) as caught:
        store.runs.get("Q")
    assert "R" in str(caught.value.hint)


def test_a_run_of_a_version_that_is_not_there_is_refused_with_an_error(store: Store) -> None:
    with pytest.raises(StoreError):
        store.runs.create("R", "uid-r", "main", 99, {}, "ann")
    assert store.runs.all() == []


def test_a_runs_state_is_the_last_it_reached(store: Store, run: Run) -> None:
    assert store.runs.state(run) == "created"
    store.runs.note(run, "started")
    store.runs.note(run, "failed", "no disk")
    assert store.runs.state(run) == "failed"
    store.runs.note(run, "resumed")
    store.runs.note(run, "finished")
    assert store.runs.state(run) == "finished"
    states = store.runs.states(run)
    assert [s.state for s in states] == ["started", "failed", "resumed", "finished"]
    assert states[1].detail == "no disk"


HOLD = """
import sys
from pathlib import Path
from tfgrpo.store import Store
from tfgrpo.store import process_lock as lock
with Store.open(sys.argv[1]) as store:
    run = store.runs.get("R")
    with lock.held(store.runs.lock_path(run)) as free:
        assert free
        store.runs.note(run, sys.argv[2])
        print("ready", flush=True)
        sys.stdin.readline()
    store.runs.note(run, "finished")
"""


@pytest.mark.parametrize("state", ["started", "resumed"])
def test_a_run_is_running_while_its_process_lives_and_interrupted_after_its_kill_9(
    store: Store, run: Run, state: str
) -> None:
    process = child(HOLD, store.path, state)
    assert process.stdout is not None
    with killed(process):
        assert process.stdout.readline() == "ready\n"
        assert store.runs.state(run) == "running"
        with process_lock.held(store.runs.lock_path(run)) as free:
            assert not free, "two processes would train one run"
    assert store.runs.state(run) == "interrupted"
    assert [s.state for s in store.runs.states(run)] == [state]


def test_a_run_whose_process_ended_well_is_finished(store: Store, run: Run) -> None:
    process = child(HOLD, store.path, "started")
    process.communicate("go\n", timeout=120)
    assert store.runs.state(run) == "finished"


ASK = """
import sys
from pathlib import Path
from tfgrpo.store import process_lock as lock
print("ready", flush=True)
sys.stdin.readline()
print(sum(lock.is_held(Path(sys.argv[1])) for _ in range(4000)))
"""


def test_two_who_ask_at_once_do_not_take_each_other_for_the_runs_process(
    store: Store, run: Run
) -> None:
    path = store.runs.lock_path(run)
    with process_lock.held(path):
        pass
    processes = [child(ASK, path) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate(timeout=120)[0] for process in processes] == ["0\n"] * 4


# the journal:


def test_a_call_is_read_back_as_it_was_journalled(store: Store, run: Run) -> None:
    one = call("k1", "ä \U0001f600 \x00 end", run=run.id)

    async def go() -> None:
        journal = Journal(store.port.records.writer())
        await journal.append(one)
        await journal.append(call("k2"))
        journal.close()

    asyncio.run(go())
    assert store.runs.call(b"k1") == one
    assert store.runs.call(b"k3") is None
    with sqlite3.connect(store.path) as db:
        assert db.execute("select count(*) from texts").fetchone() == (1,), "kept once"


def test_two_hundred_calls_at_once_land_exactly_once(store: Store) -> None:
    async def go() -> None:
        journal = Journal(store.port.records.writer())
        keys = [f"k{i}" for i in range(200)]
        await asyncio.gather(*(journal.append(call(key)) for key in keys + keys[:50]))
        journal.close()

    asyncio.run(go())
    assert journalled(store.path) == {f"k{i}": 1 for i in range(200)}


def test_calls_of_several_processes_and_a_committer_all_land(store: Store) -> None:
    processes = [child(APPEND_MANY, store.path, f"w{i}-") for i in range(2)]
    for i in range(20):
        store.commit("main", [add(f"{i}")], message="m")
    for process in processes:
        _, err = process.communicate(timeout=240)
        assert process.returncode == 0, err
    assert journalled(store.path) == {f"w{w}-{i}": 1 for w in range(2) for i in range(100)}
    assert store.head.version.number == 21


CALL = """
import asyncio, sys
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.activity.runs import Call
from tfgrpo.store.sqlite.journal import SqliteWriter
def call(key):
    return Call(key.encode(), None, "s", 0, "m", "q", {"content": key}, 1, 0, 1, 0, 1, 0.1, 1)
"""

APPEND_MANY = (
    CALL
    + """
async def go():
    journal = Journal(SqliteWriter(sys.argv[1]))
    await asyncio.gather(*(journal.append(call(f"{sys.argv[2]}{i}")) for i in range(100)))
    journal.close()
asyncio.run(go())
"""
)

APPEND_FOREVER = (
    CALL
    + """
async def worker(journal, name):
    for i in range(10 ** 9):
        await journal.append(call(f"{name}.{i}"))
        print(f"{name}.{i}", flush=True)
async def go():
    journal = Journal(SqliteWriter(sys.argv[1]))
    print("ready", flush=True)
    await asyncio.gather(*(worker(journal, f"{sys.argv[2]}.{n}") for n in range(8)))
asyncio.run(go())
"""
)


def test_a_call_that_append_returned_from_survives_kill_9(store: Store) -> None:
    dice = random.Random()
    told: list[str] = []
    for i in count():
        if i >= kills(8) and told:  # a slow machine may kill many before a first append
            break
        most = 0.06 if i < kills(8) else 1
        told += kill_after_ready(child(APPEND_FOREVER, store.path, i), dice, most)
    there = journalled(store.path)
    assert set(told) <= there.keys()
    assert set(there.values()) == {1}


def test_the_same_key_twice_keeps_the_first_answer(store: Store) -> None:
    async def go() -> None:
        journal = Journal(store.port.records.writer())
        await journal.append(call("k", "first"))
        await asyncio.gather(journal.append(call("k", "second")), journal.append(call("k", "3rd")))
        journal.close()

    asyncio.run(go())
    found = store.runs.call(b"k")
    assert found is not None
    assert found.answer["content"] == "first"


def test_close_writes_what_is_waiting(store: Store) -> None:
    async def go() -> None:
        journal = Journal(store.port.records.writer())
        waiting = [asyncio.ensure_future(journal.append(call(f"k{i}"))) for i in range(30)]
        await asyncio.sleep(0)
        journal.close()
        assert len(journalled(store.path)) == 30
        await asyncio.gather(*waiting)

    asyncio.run(go())


def test_a_cancelled_append_harms_no_other(store: Store) -> None:
    async def go() -> None:
        journal = Journal(store.port.records.writer())
        tasks = [asyncio.ensure_future(journal.append(call(f"k{i}"))) for i in range(40)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks[1::2])
        await journal.append(call("after"))
        journal.close()

    asyncio.run(go())
    assert {f"k{i}" for i in range(1, 40, 2)} | {"after"} <= journalled(store.path).keys()


def test_a_call_that_cannot_be_recorded_is_an_error_and_the_journal_goes_on(store: Store) -> None:
    async def go() -> None:
        journal = Journal(store.port.records.writer())
        with pytest.raises(StoreError):
            await journal.append(call("bad", run=999))
        await journal.append(call("good"))
        journal.close()

    asyncio.run(go())
    assert journalled(store.path) == {"good": 1}


def test_a_journal_of_a_missing_store_raises_and_makes_no_file(tmp_path: Path) -> None:
    async def go() -> None:
        journal = Journal(SqliteWriter(tmp_path / "none.db"))
        with pytest.raises(StoreError) as caught:
            await journal.append(call("k"))
        assert caught.value.hint
        journal.close()

    asyncio.run(go())
    assert not (tmp_path / "none.db").exists()


def test_an_append_to_a_closed_journal_is_an_error_and_does_not_wait_forever(store: Store) -> None:
    async def go() -> None:
        journal = Journal(store.port.records.writer())
        journal.close()
        try:
            await asyncio.wait_for(journal.append(call("late")), timeout=240)
        except TimeoutError:
            pytest.fail("append waits forever")
        except StoreError:
            pass

    asyncio.run(go())


FULL = (
    CALL
    + """
import resource, signal
from tfgrpo.store import StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
async def go():
    journal = Journal(SqliteWriter(sys.argv[1]))
    await journal.append(call("before"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    failed = []
    for i in range(200):
        try:
            await journal.append(call(f"{i}" + "x" * 5000))
        except StoreError as error:
            failed.append(error.hint)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await journal.append(call("after"))
    journal.close()
    print(len(failed), set(failed))
asyncio.run(go())
"""
)


def test_a_full_disk_fails_the_append_that_met_it_and_loses_nothing_else(store: Store) -> None:
    number, _, hints = run_child(FULL, store.path).partition(" ")
    there = journalled(store.path)
    assert int(number) > 0
    assert "space" in hints
    assert len(there) == 202 - int(number)
    assert {"before", "after"} <= there.keys()


def test_usage_adds_up_calls_and_tokens_by_stage_and_step(store: Store, run: Run) -> None:
    async def go() -> None:
        journal = Journal(store.port.records.writer())
        for i in range(3):
            await journal.append(call(f"r{i}", run=run.id))
        await journal.append(call("c", run=run.id, stage="plan")._replace(step=1))
        await journal.append(call("elsewhere"))
        journal.close()

    asyncio.run(go())
    usage = store.runs.usage(run)
    assert list(usage) == ["rollout", "plan"]
    assert usage["rollout"] == (3, 30, 9, 15, 3, 1.5)
    assert store.runs.usage(run, step=1) == {"plan": (1, 10, 3, 5, 1, 0.5)}
    assert store.runs.usage(run, step=7) == {}


# rollouts:


def test_a_rollout_is_recorded_once_and_read_back_in_order(store: Store, run: Run) -> None:
    async def go() -> None:
        journal = Journal(store.port.records.writer())
        for sample in (2, 0, 1):
            await journal.rollout(rollout(run, sample))
        await journal.rollout(rollout(run, 0, reward=0.0))
        await journal.rollout(rollout(run, 0, reward=None, step=1))
        journal.close()

    asyncio.run(go())
    assert store.runs.rollouts(run, 0) == [rollout(run, i) for i in range(3)]
    assert store.runs.rollouts(run) == [
        *(rollout(run, i) for i in range(3)),
        rollout(run, 0, reward=None, step=1),
    ]
    assert store.runs.rollouts(run, 5) == []


# evaluations:

SCORES = [Score("p2", 0, None, None, None), Score("p1", 1, b"k", 0.0, "7"), Score("p1", 0, b"k", 1.0, "42")]  # fmt: skip  # noqa: E501


def test_an_evaluation_is_stored_once_per_version_and_digest(store: Store) -> None:
    put = store.runs.put_evaluation
    first = put(1, "aime", "d1", {"k": 1}, {"mean": 0.5}, SCORES)
    assert put(1, "aime", "d1", {"k": 1}, {"mean": 0.9}, []) == first
    assert first.summary == {"mean": 0.5}
    assert store.runs.scores(first) == sorted(SCORES, key=lambda s: (s.problem, s.sample))
    other = put(1, "aime", "d2", {}, {}, [])
    elsewhere = put(0, "aime", "d1", {}, {}, [])
    assert store.runs.evaluations(1) == [first, other]
    assert store.runs.evaluation(0, "d1") == elsewhere
    assert store.runs.evaluation(0, "d2") is None


def test_an_evaluation_lands_with_all_its_scores_or_not_at_all(store: Store) -> None:
    twice = [SCORES[0], SCORES[0]]
    with pytest.raises(StoreError):
        store.runs.put_evaluation(1, "aime", "d1", {}, {}, twice)
    assert store.runs.evaluations(1) == []
    with sqlite3.connect(store.path) as db:
        assert db.execute("select count(*) from scores").fetchone() == (0,)
