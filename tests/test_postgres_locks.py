"""A run in a shared store is seen to be at work, and left alone, from every machine."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from conftest import environment
from crew import prepare
from scripted import ScriptedEndpoint, restless, write_problems
from store_helpers import child
from waiting import until, until_so

from tfgrpo.improvement import improve
from tfgrpo.improvement.improvement_record import Round, end, rounds
from tfgrpo.improvement.proposals import list_proposals
from tfgrpo.learn.run import run_to_end
from tfgrpo.learn.run_setup import RunChoice, ready_run
from tfgrpo.project import open_project
from tfgrpo.store import Operation, Store, Version
from tfgrpo.store.address import Address, parse_address
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.postgres.port import PostgresPort

pytestmark = pytest.mark.postgres

HOLDER = """
import sys, time
from tfgrpo.store import Store
with Store.open(sys.argv[1]) as store:
    run = store.runs.create("r", "5" * 32, "main", 0, {}, "ann")
    with store.runs.hold(store.runs.lock_path(run)) as free:
        print(free, flush=True)
        time.sleep(600)
"""


def test_a_run_at_work_on_another_machine_is_not_begun_again(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    monkeypatch.chdir(ours)
    with Store.init(shared, author="ann") as store:
        holder = subprocess.Popen(
            [sys.executable, "-c", HOLDER, shared],
            cwd=theirs,
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "True\n"
            run = store.runs.get("r")
            path = store.runs.lock_path(run)
            assert not path.exists(), "the file is on the other machine"
            assert store.runs.state(run) == "running"
            with store.runs.hold(path) as free:
                assert not free
            os.kill(holder.pid, signal.SIGKILL)
            holder.wait()
            until(lambda: not store.runs.is_held(path))
            assert store.runs.state(run) != "running"
            with store.runs.hold(path) as free:
                assert free
                assert store.runs.state(run) == "running"
        finally:
            holder.kill()
            holder.wait()


def test_a_lock_that_was_lost_is_taken_again_unless_another_has_it(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which ends a run that was cut off from its database while another process went on with it."""
    monkeypatch.chdir(tmp_path)
    address = parse_address(shared)
    with ScriptedEndpoint(restless, delay=0.3) as server:
        prepare(tmp_path, shared, server.base_url, concurrency=1)
        with Store.open(shared) as store, closing(PostgresPort(shared)) as elsewhere:
            path = store.runs.lock_path(store.runs.get("run"))
            with store.runs.hold(path) as free:
                assert free
                lose_locks(address)
                assert store.runs.is_ours(path)
                assert store.runs.is_held(path)
            assert not store.runs.is_held(path)
            ready = ready_run(store, open_project(tmp_path), {}, RunChoice(resume="run"))

            async def drive() -> None:
                work = asyncio.create_task(run_to_end(store, open_project(tmp_path), ready))
                await until_so(lambda: len(server.requests) >= 2)
                while True:
                    lose_locks(address)
                    with elsewhere.storage.hold(path.stem) as free:
                        if free:
                            await work
                    await asyncio.sleep(0.05)

            with pytest.raises(InvalidOperation, match="is running in another process"):
                asyncio.run(drive())
            requests = len(server.requests)
    assert requests < 40


EVALUATOR = """
import os, sys
import tfgrpo
shared, folder, base_url = sys.argv[1:]
os.chdir(folder)
given = {"store": shared, "base_url": base_url, "model": "m", "samples": 2}
print(tfgrpo.evaluate_sync("heldout.jsonl", **given).mean)
"""


def test_an_evaluation_on_two_machines_at_once_is_paid_once(shared: str, tmp_path: Path) -> None:
    Store.init(shared).close()
    with ScriptedEndpoint(restless, delay=0.05) as server:
        evaluators = []
        for name in ("ours", "theirs"):
            folder = tmp_path / name
            folder.mkdir()
            write_problems(folder / "heldout.jsonl", 6)
            evaluators.append(child(EVALUATOR, shared, folder, server.base_url))
        means = {one.communicate(timeout=240) for one in evaluators}
        assert len(means) == 1, means
        assert len(server.requests) == 6 * 2


def test_a_lock_is_free_at_once_when_it_is_given_back(shared: str) -> None:
    port = PostgresPort(shared, create=True)
    for number in range(200):
        with port.storage.hold("lock") as free:
            assert free, number
        assert not port.storage.is_held("lock"), number
    port.close()


@pytest.fixture
def improved(shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A shared library with a branch prod and ten problems to learn from."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tfgrpo.toml").write_text('[model]\nmodel = "m"\nbase_url = "http://127.0.0.1:9"\n')
    write_problems(tmp_path / "collected.jsonl", 10)
    with Store.init(shared, author="ann") as store:
        store.create_branch("prod")
        yield store


def test_an_improvement_at_work_on_another_machine_is_not_joined(
    improved: Store, shared: str, tmp_path: Path
) -> None:
    def run() -> improve.Improvement:
        request = improve.ImproveRequest(least=11)
        return asyncio.run(improve.improve(improved, open_project(tmp_path), request))

    with closing(PostgresPort(shared)) as elsewhere:
        with elsewhere.storage.hold(improve.lock_path(improved).stem) as free:
            assert free
            with pytest.raises(improve.Busy, match="another improvement"):
                run()
        assert run().outcome == "nothing new"


@pytest.mark.parametrize("still", [True, False])
def test_an_improvement_that_lost_its_lock_to_another_records_nothing(
    improved: Store, shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, still: bool
) -> None:
    """The other one is at work still, or has ended it by now."""
    name = improve.lock_path(improved).stem

    async def train(job: improve.Improving, one: Round) -> Version:
        return job.store.commit(one.branch, [Operation("ADD", text="Learned.")], message="learned")

    async def effect(*_: object) -> None:
        lose_locks(parse_address(shared))
        if still:
            assert stack.enter_context(elsewhere.storage.hold(name))
            return
        with elsewhere.storage.hold(name) as free, Store.open(shared) as there:
            assert free
            (one,) = rounds(there, "prod")
            end(there, one, "nothing learned")

    monkeypatch.setattr(improve.Improving, "_train", train)
    monkeypatch.setattr(improve.Improving, "_effect", effect)
    with ExitStack() as stack:
        elsewhere = stack.enter_context(closing(PostgresPort(shared)))
        work = improve.improve(improved, open_project(tmp_path), improve.ImproveRequest())
        with pytest.raises(improve.Busy, match="another improvement"):
            asyncio.run(work)
    assert list_proposals(improved) == []
    assert [one.ended for one in rounds(improved, "prod")] == [None if still else "nothing learned"]


def lose_locks(address: Address) -> None:
    """Ends the connections that hold a lock, as a network does that is cut."""
    import psycopg

    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(l.pid) from pg_locks l where l.locktype = 'advisory'"
        )
