"""Workers: a run in a shared store comes to the same whoever makes its groups."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import click
import pytest
import yaml
from conftest import ROOT, Cli, environment, one_line_error
from crew import UID, Disturbed, Timed, forks, outcome, prepare, train, train_alone
from pooler import Pooler, program
from postgres import Cluster
from relay import Relay
from scripted import Reply, ScriptedEndpoint, completion, restless, write_problems
from waiting import until

from tfgrpo.cli.main import tfgrpo
from tfgrpo.learn.run import run_to_end
from tfgrpo.learn.run_setup import RunChoice, ready_run
from tfgrpo.model.budget import Budget, BudgetReached, Reservation
from tfgrpo.model.rate_limits import Throttle
from tfgrpo.project import Project, open_project
from tfgrpo.store import Store, child_processes
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.activity.runs import RolloutRow
from tfgrpo.store.address import parse_address
from tfgrpo.store.errors import RowRefused, StoreAway, StoreError, TfgrpoError
from tfgrpo.store.port import CallValues, RolloutValues
from tfgrpo.store.postgres.session import unreachable_error
from tfgrpo.workers import worker
from tfgrpo.workers.hand_out import handing_out
from tfgrpo.workers.queue import Offer, Queue, opened, queue_address, read_crew, state_of
from tfgrpo.workers.restart_workers import COMMAND, store_when_there
from tfgrpo.workers.shared_budget import SharedBudget
from tfgrpo.workers.worker_run import WorkPlan

pytestmark = pytest.mark.postgres


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks lie in the working folder's project, and all runs here have one uid."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the run comes to in one process, with a store in a file."""
    folder = tmp_path_factory.mktemp("alone")
    file = str(folder / "store.db")
    with ScriptedEndpoint(restless) as server:
        prepare(folder, file, server.base_url)
        train_alone(folder, file)
    return outcome(file)


def test_two_workers_make_the_run_that_one_process_makes(
    tmp_path: Path, shared: str, alone: Any, cli: Cli
) -> None:
    with ScriptedEndpoint(restless) as server:
        prepare(tmp_path, shared, server.base_url)
        crew, _ = train(tmp_path, shared, 2)
        rollouts = server.stages["rollout"]
    assert outcome(shared) == alone
    shown = json.loads(cli("--store", shared, "workers", "list", "--json").stdout)
    assert [one["state"] for one in shown["workers"]] == ["left", "left"]
    assert sum(one["groups"] for one in shown["workers"]) == 12
    assert sum(one["calls"] for one in shown["workers"]) == 36
    assert rollouts > 36, "the driver itself tries lessons at the problems that taught them"
    assert all(one["groups"] for one in shown["workers"])
    assert shown["runs"] == []
    assert {one.name for one in crew} == {one["name"] for one in shown["workers"]}


def test_a_budget_bounds_what_workers_and_the_driver_spend_together(
    tmp_path: Path, shared: str, alone: Any
) -> None:
    def spent() -> int:
        with Store.open(shared) as store:
            rows = list(store.runs.spent())
        return sum(one.usage.prompt_tokens + one.usage.completion_tokens for one in rows)

    def costly(request: dict[str, Any]) -> Reply:
        body = completion(restless(request), model=request["model"])
        written = min(500, request["max_tokens"])
        body["usage"] = {"prompt_tokens": 100, "completion_tokens": written}
        return Reply(body)

    with ScriptedEndpoint(costly) as server:
        prepare(tmp_path, shared, server.base_url)
        with pytest.raises(ExceptionGroup) as raised:
            train(tmp_path, shared, 2, budget="9ktok")
        reached = "the budget of 9,000 tokens is reached"
        assert raised.group_contains(BudgetReached, match=reached)
        assert 4_000 < spent() <= 9_000
        calls = len(server.requests)
        train(tmp_path, shared, 2, budget="10Mtok")
        assert len(server.requests) == alone[2], "nothing is paid for twice"
        assert calls < alone[2]
    assert outcome(shared) == alone


SILENT = "update leases set beat = now() - interval '1 hour' where holder like 'worker%%'"
"""A worker that is taken for dead."""


@asynccontextmanager
async def shared_between(shared: str) -> AsyncIterator[tuple[Queue, SharedBudget, SharedBudget]]:
    """A queue, and a budget of 1,000 tokens that a driver shares with a worker."""
    async with opened(queue_address(shared)) as queue:
        driver = SharedBudget(Budget(1_000, in_tokens=True), lambda: 0.0)
        worker = SharedBudget(Budget(1_000, in_tokens=True), leased=True)
        driver.join(queue, "r", "driver")
        worker.join(queue, "r", "worker 1")
        await driver.share()
        yield queue, driver, worker


async def rest(queue: Queue) -> int:
    """What nobody has leased."""
    return int((await queue.rows("select rest from budgets"))[0]["rest"])


def test_a_holder_that_was_taken_for_dead_does_not_give_back_twice(shared: str) -> None:
    Store.init(shared, author="tests").close()

    async def rests() -> list[int]:
        async with shared_between(shared) as (queue, driver, worker):
            rests: list[int] = []
            for again in (worker.give_back, partial(worker._extend, 10)):
                assert await worker._extend(200)  # takes 800
                rests.append(await rest(queue))
                await queue.execute(SILENT)
                await driver.give_back()
                rests.append(await rest(queue))
                await again()
                rests.append(await rest(queue))
                await worker.give_back()
                rests.append(await rest(queue))
            return rests

    assert asyncio.run(rests()) == [200, 200, 1_000, 1_000, 200, 200, 160, 1_000]


def test_what_a_dead_worker_had_in_flight_counts_as_spent_in_every_later_session(
    shared: str,
) -> None:
    Store.init(shared, author="tests").close()

    async def rests() -> list[int]:
        async with shared_between(shared) as (queue, driver, worker):
            await worker.hold(300)  # a call in flight, which its provider may bill
            await worker.give_back()
            rests = [await rest(queue)]
            await queue.execute(SILENT)
            await driver.give_back()
            rests.append(await rest(queue))
            later = SharedBudget(Budget(1_000, in_tokens=True), lambda: 100.0)
            later.join(queue, "r", "driver")
            await later.share()
            rests.append(await rest(queue))
            with pytest.raises(BudgetReached, match="300 tokens set aside for calls of workers"):
                await later.hold(700)
            return rests

    assert asyncio.run(rests()) == [700, 700, 600]


def test_what_is_done_with_a_budget_while_the_answer_is_lost_is_done_once(
    shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.init(shared, author="tests").close()

    async def rests() -> list[int]:
        async with opened(queue_address(shared)) as queue:
            driver = SharedBudget(Budget(1_000, in_tokens=True), lambda: 40.0)
            worker = SharedBudget(Budget(1_000, in_tokens=True), leased=True)
            driver.join(queue, "r", "driver")
            worker.join(queue, "r", "worker 1")
            await driver.share()
            await worker.give_back()
            assert await worker._extend(10)
            worker.settle(Reservation(0, 0), 30)
            with pytest.raises(StoreError), losing_the_answer(monkeypatch, "execute"):
                await worker.give_back()
            await worker.give_back()
            return [await rest(queue)]

    assert asyncio.run(rests()) == [930]


def test_whoever_begins_anew_with_a_budget_gives_nothing_back_that_was_spent(shared: str) -> None:
    Store.init(shared, author="tests").close()

    async def rests() -> list[int]:
        async with opened(queue_address(shared)) as queue:
            rests: list[int] = []
            for _ in range(2):  # a driver that is resumed, and its worker that takes the work again
                driver = SharedBudget(Budget(1_000, in_tokens=True), lambda: 30.0 * len(rests))
                driver.join(queue, "r", "driver")
                await driver.share()
                for _ in range(2):
                    worker = SharedBudget(Budget(1_000, in_tokens=True), leased=True)
                    worker.join(queue, "r", "worker 1")
                    await worker.give_back()
                    assert await worker._extend(10)
                    worker.settle(Reservation(0, 0), 30)
                    await worker.give_back()
                    rests.append(await rest(queue))
            return rests

    assert asyncio.run(rests()) == [970, 940, 910, 880]


@contextmanager
def losing_the_answer(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """A queue's statements come through, and nobody learns of it."""
    plain = getattr(Queue, name)

    async def lost(*args: Any, **values: Any) -> Any:
        answer = await plain(*args, **values)
        if name == "execute" or answer:
            raise StoreError("the queue of workers cannot be reached")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Queue, name, lost)
        yield


def test_a_worker_with_other_prompts_refuses_and_says_which(tmp_path: Path, shared: str) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        (folder / "prompts").mkdir(parents=True)
    ours = Path(__file__).parent.parent / "tfgrpo" / "prompts" / "rollout.md"
    (other / "prompts" / "rollout.md").write_text(ours.read_text() + "\nBe brief.\n")
    with ScriptedEndpoint(restless) as server:
        prepare(mine, shared, server.base_url, prompts=str(mine / "prompts"), epochs=1)
        crew, notices = train(mine, shared, 1, roots=(other,))
    refusal = "differs here: prompt rollout"
    warnings = [str(notice) for notice in notices if "worker" in str(notice)]
    assert f"warning: worker {crew[0].name} does not work for this run: {refusal}" in warnings
    assert any("its groups are made here meanwhile" in text for text in warnings)
    outcome(shared)  # which the driver came to alone


@pytest.mark.skipif(program() is None, reason="pgbouncer is not installed")
def test_a_run_by_way_of_pgbouncer_is_the_same(
    tmp_path: Path, shared: str, cluster: Cluster, alone: Any
) -> None:
    with ScriptedEndpoint(restless) as server, Pooler(cluster.folder) as pooler:
        prepare(tmp_path, shared, server.base_url)
        train(tmp_path, pooler.address(parse_address(shared).library), 1)
    assert outcome(shared) == alone


def test_a_job_of_an_earlier_driver_that_nobody_works_on_holds_nothing_up(
    tmp_path: Path, shared: str, alone: Any
) -> None:
    """The database took a worker's asking for a job, and was gone before it answered; then the
    driver died."""
    there = (
        "insert into crew (name, slots, seconds, figures)"
        " values ('there', 1, 60, jsonb_build_object('runs', jsonb_build_array(%(run)s::text)))"
    )
    taken = (
        "with one as (insert into procrastinate_workers (last_heartbeat)"
        " values (now() + interval '1 hour') returning id)"
        " update procrastinate_jobs j set status = 'doing', worker_id = one.id from one"
        " returning j.id"
    )

    async def drive_for_a_while() -> None:
        with Store.open(shared) as store:
            project = open_project(tmp_path)
            ready = ready_run(store, project, {}, RunChoice(resume="run"))
            async with opened(queue_address(shared)) as queue:
                await queue.execute(there, run=UID)
                async with handing_out(queue_address(shared)) as hand_out:
                    driver = asyncio.create_task(
                        run_to_end(store, project, ready, hand_out=hand_out)
                    )
                    while not await queue.rows(taken):
                        await asyncio.sleep(0.1)
                    driver.cancel()
                    await asyncio.gather(driver, return_exceptions=True)
                await queue.execute("update crew set ended = now()")

    with ScriptedEndpoint(restless) as server:
        prepare(tmp_path, shared, server.base_url)
        asyncio.run(drive_for_a_while())
        train(tmp_path, shared, 1, heartbeat=1.0)
    assert outcome(shared) == alone


def test_killed_workers_drivers_and_databases_cost_no_completed_call(
    tmp_path: Path, shared: str, cluster: Cluster, alone: Any
) -> None:
    script = Timed(restless)
    with ExitStack() as stack:
        parts = stack.enter_context(forks(tmp_path, workers=1))
        server = stack.enter_context(ScriptedEndpoint(script, delay=0.05))
        relay = stack.enter_context(Relay(cluster.folder))
        prepare(tmp_path, shared, server.base_url)
        disturbed = Disturbed(tmp_path, cluster, shared, script, 4, random.Random(5), relay=relay)
        disturbed.run(parts)
    assert outcome(shared) == alone
    assert disturbed.repeated == 0
    assert set(disturbed.kills) == {"worker", "driver", "database", "network"}
    print(disturbed.kills, f"{disturbed.sent_twice} in flight sent twice")


def test_workers_and_drivers_ask_no_wall_clock() -> None:
    """So that a machine whose clock is wrong is no trouble: `benchmarks.scale network` runs some
    that are an hour off."""
    for path in (ROOT / "tfgrpo" / "workers").glob("*.py"):
        asks = re.search(r"time\.time\(|time_ns\(|\.now\(|utcnow|localtime", path.read_text())
        assert asks is None, path.name


def test_who_may_train_a_library_may_work_at_its_queue(shared: str) -> None:
    import psycopg

    Store.init(shared, author="tests").close()
    address = queue_address(shared)
    library = address.schema
    trainer, reader = f"{library}_trainer", f"{library}_reader"  # roles are the whole cluster's
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        for name, level in ((trainer, "trainer"), (reader, "reader")):
            connection.execute(f"create role {name} login".encode())
            row = f"insert into {library}.members values ('{name}', '{level}')"
            connection.execute(row.encode())

    async def crew(user: str) -> int:
        conninfo = address.conninfo.replace("postgres@", f"{user}@")
        async with opened(address._replace(conninfo=conninfo)) as queue:
            return len(await queue.crew())

    assert asyncio.run(crew("postgres")) == asyncio.run(crew(trainer)) == 0
    with pytest.raises(StoreError, match="may not use the queue"):
        asyncio.run(crew(reader))
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        connection.execute(f"drop schema {address.queue} cascade".encode())
        connection.execute(f"delete from {library}.members where level <> 'owner'".encode())
        connection.execute(f"drop role {trainer}, {reader}".encode())


def test_the_pages_steps_from_an_empty_database_to_three_workers(
    shared: str, tmp_path: Path, cli: Cli
) -> None:
    """`init`, `workers start`, `train --workers` and `workers`, as docs/scale.md has them."""
    cli("--store", shared, "init")
    command = [
        *child_processes.python("-c", COMMAND),
        "--store",
        shared,
        "workers",
        "start",
        "--count",
        "3",
        "--heartbeat",
        "1",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment())
    try:
        until(lambda: len(states(shared)) == 3 or process.poll() is not None)
        assert states(shared) == ["idle"] * 3
        write_problems(tmp_path / "problems.jsonl", 6)
        with ScriptedEndpoint(restless) as server:
            given = {"base-url": server.base_url, "model": "scripted", "epochs": 1, "seed": 1}
            given |= {"batch-size": 3, "group-size": 3}
            options = [text for name, value in given.items() for text in (f"--{name}", str(value))]
            train = ["train", "problems.jsonl", "--workers", *options]
            cli("--store", shared, *train, timeout=240)
        until(lambda: groups_done(cli, shared) == 6)  # told with a worker's next sign of life
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=240) == 0
    finally:
        process.kill()
    assert states(shared) == ["left"] * 3


def groups_done(cli: Cli, file: str) -> int:
    shown = json.loads(cli("--store", file, "workers", "list", "--json").stdout)
    return sum(one["groups"] for one in shown["workers"])


def states(file: str) -> list[str]:
    return [state_of(one) for one in read_crew(queue_address(file)).members]


STARTED_BY = r"\]\((\.\./examples/workers/\S+)\)"


def test_every_command_of_the_page_and_its_files_is_one(cli: Cli) -> None:
    """Slurm, Kubernetes, Ray and compose are not here: what they start is."""
    page = (ROOT / "docs/scale.md").read_text()
    files = {file: (ROOT / "docs" / file).read_text() for file in re.findall(STARTED_BY, page)}
    assert {Path(file).suffix for file in files} == {".yaml", ".sh", ".py"}
    for file, text in files.items():
        page += text
        if file.endswith(".yaml"):
            assert yaml.safe_load(text)
        elif file.endswith(".py"):
            compile(text, file, "exec")
    lines = re.findall(
        r"tfgrpo (workers(?: run| start)?|train)\b((?: problems.jsonl| --?[\w-]+(?: \d+)?)*)", page
    )
    lines += [("workers run", " --slots 64 --grace 45")]  # which the manifest has as a list
    assert len({verb for verb, _ in lines}) == 4
    for verb, given in set(lines):
        command: click.Command = tfgrpo
        for word in verb.split():
            assert isinstance(command, click.Group)
            inner = command.get_command(click.Context(command), word)
            assert inner is not None, verb
            command = inner
        parser = command.make_parser(click.Context(command))
        parser.parse_args(given.replace("--resume", "--resume RUN").split())


def test_a_run_that_was_not_trusted_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "AGAIN", 0.0)
    looks, notes = list[str](), list[str]()

    def plan_work(store: object, project: object, name: str, models: object) -> None:
        looks.append(name)
        raise TfgrpoError(f"the record of {name} is not trusted")

    class OneRun:
        async def offers(self) -> list[Offer]:
            return [Offer(UID, "r", "run-r", {"settings": "x"}, 4)]

    monkeypatch.setattr(worker, "plan_work", plan_work)
    crew_member = worker.Worker(
        cast("Store", None), cast("Project", None), worker.WorkerOptions(), notes.append
    )

    async def look(times: int) -> None:
        for _ in range(times):
            await crew_member._look(cast("Queue", OneRun()))

    asyncio.run(look(3))
    assert looks == ["r"] * 3
    assert notes == ["refuses run r: the record of r is not trusted"], "which is said once"
    monkeypatch.setattr(worker, "plan_work", lambda *given: WorkPlan(*[None] * 4))
    monkeypatch.setattr(worker, "digests", lambda *given: {"settings": "x", "domain d": "y"})
    asyncio.run(look(3))
    assert len(notes) == 2, "what was loaded stays as it is"
    assert notes[1].endswith("differs here: domain d; restart the worker with the same")


def test_workers_of_a_store_in_a_file_are_refused(cli: Cli) -> None:
    cli("init")
    for verb in (
        ["workers", "run"],
        ["workers"],
        ["workers", "start"],
        ["train", "problems.jsonl", "--workers"],
    ):
        one_line_error(cli(*verb, ok=False), "workers need a shared store", "docs/scale.md")


class Away:
    """A writer whose database is away for a while."""

    def __init__(self, error: StoreError, times: int) -> None:
        self.error, self.left = error, times
        self.rows = 0

    def append(self, calls: list[CallValues], rollouts: list[RolloutValues]) -> None:
        if self.left:
            self.left -= 1
            raise self.error
        self.rows += len(calls) + len(rollouts)

    def close(self) -> None:
        pass


def test_a_shared_journal_that_is_away_is_waited_for_and_a_refused_row_is_not() -> None:
    row = RolloutRow(1, 0, "p", 0, 0, (), "answered", 1.0, {}, 0)

    def write(writer: Away, patience: float) -> None:
        journal = Journal(writer, patience=patience)
        try:
            asyncio.run(journal.rollout(row))
        finally:
            journal.close()

    away = Away(StoreError("away"), 2)
    write(away, 60.0)
    assert away.rows == 1
    with pytest.raises(StoreError, match="away"):
        write(Away(StoreError("away"), 1), 0.0)
    refusing = Away(RowRefused("no"), 9)
    with pytest.raises(RowRefused):
        write(refusing, 60.0)
    assert refusing.left == 7, "once with the others of its batch, and once alone"


def test_a_throttle_shares_its_room_and_takes_it_back() -> None:
    throttle = Throttle(8)
    throttle.resize(2)
    assert (throttle.most, throttle.limit) == (2, 2.0)
    throttle.resize(8)
    assert (throttle.most, throttle.limit) == (8, 8.0)
    throttle.limit = 1.0  # a rate limit has halved it
    throttle.resize(4)
    assert (throttle.most, throttle.limit) == (4, 1.0)


def test_a_worker_waits_for_a_database_that_is_away_when_it_starts(
    tmp_path: Path, shared: str, cluster: Cluster
) -> None:
    """And Ctrl-C ends the waiting, of a worker and of what starts workers."""
    Store.init(shared, author="tests").close()
    waits = "; it is waited for\n"
    outputs = {verb: tmp_path / verb for verb in ("run", "start")}
    said = {verb: path.read_text for verb, path in outputs.items()}
    cluster.stop()
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for verb, path in outputs.items():
            with path.open("wb") as out:
                command = [
                    *child_processes.python("-c", COMMAND),
                    "--store",
                    shared,
                    "workers",
                    verb,
                ]
                running[verb] = subprocess.Popen(
                    command, cwd=tmp_path, env=environment(), stdout=out, stderr=out
                )
        until(lambda: all(waits in text() for text in said.values()))
        running["start"].send_signal(signal.SIGINT)
        assert running["start"].wait(timeout=240) == 0
    finally:
        cluster.start()
        running.pop("start").kill()
    try:
        until(lambda: "Ctrl-C ends it" in said["run"]())
        running["run"].send_signal(signal.SIGINT)
        assert running["run"].wait(timeout=240) == 0
    finally:
        running["run"].kill()
    text = said["run"]()
    assert text.count(waits) == 1, text
    assert text.startswith("cannot reach the database on "), text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("postgresql://postgres@nowhere.invalid/postgres", "resolve|translate"),
        ("postgresql://nobody-here@/postgres?host=FOLDER", "does not exist"),
        ("postgresql://postgres@/no-such?host=FOLDER", "does not exist"),
        ("postgresql://postgres@/postgres?host=FOLDER&library=none", "there is no library none"),
    ],
)
def test_what_waiting_does_not_mend_is_an_error_at_once(
    cluster: Cluster, wrong: str, message: str
) -> None:
    def never(text: str) -> None:
        raise AssertionError(text)

    with pytest.raises(StoreError, match=message):
        store_when_there(wrong.replace("FOLDER", str(cluster.folder)), "tests", never)


def test_a_wrong_password_is_not_waited_for() -> None:
    address = parse_address("postgresql://ann@db.example/team")
    text = 'connection failed: FATAL:  password authentication failed for user "ann"'
    assert not isinstance(unreachable_error(Exception(text), address), StoreAway)
    text = "connection failed: FATAL:  the database system is starting up"
    assert isinstance(unreachable_error(Exception(text), address), StoreAway)
