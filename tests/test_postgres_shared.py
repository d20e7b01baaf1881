"""What a shared database promises beside the port's contract: who may do what, what is told of
errors, that nothing is lost by many writers or a crash, and that a move is known at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from conftest import LIBRARIES, TFGRPO, Cli
from port_rows import call, call_values, made, rollout, rollout_values, run, write
from postgres import Cluster
from providers import Provider, ProxyThread, post
from psycopg.conninfo import conninfo_to_dict
from test_store_names import HALF, half_a_character_elsewhere
from waiting import until

from tfgrpo.cli.main import tfgrpo
from tfgrpo.domains.prompt_library import LiveLibrary
from tfgrpo.proxy.proxy_settings import LibraryChoice, ProxySettings, parse_upstream
from tfgrpo.proxy.running_experiments import Decider
from tfgrpo.serving.library_server import Lookups
from tfgrpo.store import InvalidOperation, Operation, Store, StoreError, TfgrpoError
from tfgrpo.store import redact as redactions
from tfgrpo.store.activity.traffic import CallFilter, traffic_path
from tfgrpo.store.address import anchor, located, named_by, parse_address, secrets_of, with_password
from tfgrpo.store.errors import BadLocation
from tfgrpo.store.fsck import fsck
from tfgrpo.store.opening import members_of, open_traffic
from tfgrpo.store.port import Level
from tfgrpo.store.postgres.port import PostgresPort, PostgresWriter
from tfgrpo.store.postgres.session import Session
from tfgrpo.store.redact import Target, redact

pytestmark = pytest.mark.postgres


@pytest.fixture
def store(shared: str) -> Iterator[Store]:
    with Store.init(shared, author="ann") as made:
        yield made


def add(store: Store, text: str) -> None:
    store.commit("main", [Operation("ADD", text=text)], message=text)


def admin(cluster: Cluster, *statements: str) -> None:
    where = cluster.address("main").partition("&")[0]
    with psycopg.connect(where, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@pytest.mark.parametrize("text", ["in an event: sk-live-7", "in an answer: sk-live-7"])
@pytest.mark.parametrize("reads", ["texts", "versions"])  # a lock, and a state that is kept alive
def test_who_opens_a_database_next_from_wherever_finishes_a_redaction(
    text: str,
    reads: str,
    cluster: Cluster,
    shared: str,
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if "event" in text:
        add(store, text)
    else:
        write(store.port, [call("k", made(store.port, run("R")).id, answer={"content": text})])
    schema = store.port.address.schema  # type: ignore[attr-defined]
    where = cluster.address("main").partition("&")[0]
    with psycopg.connect(where) as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute(f'select count(*) from "{schema}".{reads}'.encode())
        done = redact(store, Target(texts=("sk-live-7",)), reason="leaked")
        assert not done.finished
        monkeypatch.chdir(tmp_path)  # where no plan lies
        Store.open(shared).close()
        assert not capsys.readouterr().err
    assert any(p.where == "redaction" for p in fsck(store).problems)
    Store.open(shared).close()
    assert "finished a redaction" in capsys.readouterr().err
    Store.open(shared).close()
    assert not capsys.readouterr().err
    assert redactions.finish(store)  # and drops the plan that lies where it was begun
    assert not any(p.where == "redaction" for p in fsck(store).problems)


# what lies beside it in a folder that is new to it:


def test_calls_and_look_ups_are_recorded_in_a_folder_with_nothing_in_it(
    shared: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"model":"m","messages":[]}'
    for number, look_up in enumerate((False, True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        if look_up:
            lookups = Lookups(anchor(shared))
            id = lookups.add(store.library(), True, "How long?", 0.0)
            assert id is not None
            assert lookups.add_feedback({"call": id, "score": 1}) == id
        else:
            with Provider() as provider:
                upstream = parse_upstream(provider.url)
                libraries = {"default": LibraryChoice(anchor(shared))}
                settings = ProxySettings(libraries, "default", upstream, upstream, port=0)
                with ProxyThread(settings) as proxy:
                    proxy.ask(post("/v1/chat/completions", body))
        with closing(open_traffic(traffic_path(anchor(shared)))) as traffic:
            assert len(traffic.calls(CallFilter(), 10)) == 1
        assert (folder / ".tfgrpo").stat().st_mode & 0o777 == 0o700


def test_a_search_in_attempts_reads_no_more_than_it_looks_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(store.port, run("R"))
    write(store.port, [], [rollout(one.id, sample) for sample in range(3000)])
    read: list[int] = []
    rows = Session.rows

    def counted(self: Session, *query: Any) -> list[Any]:
        answer = rows(self, *query)
        read.append(len(answer))
        return answer

    monkeypatch.setattr(Session, "rows", counted)
    first = store.runs.attempts_saying("42", 20)
    assert [row.sample for row, _ in first.attempts] == list(range(2999, 2979, -1))
    assert sum(read) <= 100
    place, samples = first.reached, [row.sample for row, _ in first.attempts]
    while place is not None:
        more = store.runs.attempts_saying("42", 700, place)
        place = more.reached
        samples += [row.sample for row, _ in more.attempts]
    assert samples == list(range(2999, -1, -1))
    assert store.runs.attempts_saying("43", 20).looked_at == 3000


# addresses:


def test_half_a_character_is_refused_with_nothing_recorded(store: Store) -> None:
    last = store.port.last_version()
    with pytest.raises(InvalidOperation, match="the message is not valid Unicode"):
        store.commit("main", [Operation("ADD", text="x")], message=HALF)
    for act in half_a_character_elsewhere(store):
        with pytest.raises(TfgrpoError, match="Unicode"):
            act()
    assert (store.port.last_version(), store.runs.all()) == (last, [])


def test_a_password_is_taken_out_of_an_address_and_used_for_connecting_alone() -> None:
    address = parse_address("postgres://ann:s3cr%40t@db:5433/team?library=support&sslmode=require")
    assert address.text == "postgresql://ann@db:5433/team?sslmode=require&library=support"
    assert address.conninfo == "postgresql://ann@db:5433/team?sslmode=require"
    assert (address.schema, address.host, address.user) == ("tfgrpo_support", "db", "ann")
    assert "s3cr" not in repr(address)
    assert with_password(address.text).startswith("postgresql://ann:s3cr%40t@db:5433/")
    assert named_by("postgresql://ann:other@db/team") == "postgresql://ann@db/team"
    for wrong in ("postgresql:team", "postgresql://x:pw@h:port:2/db?library=A B", "postgres://h#x"):
        with pytest.raises(Exception) as error:
            parse_address(wrong)
        assert "pw" not in str(error.value)


WITH_PASSWORDS = (
    "postgresql://h/team?password=s3cr%2Ft%40",
    "postgresql://h:5433/team?library=support&password=s3cr%2Ft%40&sslmode=require",
    "postgresql://:s3cr%2Ft%40@h/team",
    "postgresql:///team?host=/run/pg@15&password=s3cr%2Ft%40",
    "postgresql://h?user=ann@x&password=s3cr%2Ft%40",
    "postgresql://[::1]:5433/team?password=s3cr%2Ft%40",
    "postgresql://ann%40x@h1:1,h2:2/team?password=s3cr%2Ft%40",
    "postgresql://ann@x:s3cr%2Ft%40@h/team",
    "postgresql://ann:s3cr%2Ft%40@h/team?password=s3cr%2Ft%40",
)


@pytest.mark.parametrize("text", WITH_PASSWORDS)
def test_a_program_that_is_started_gets_an_address_that_means_the_same(text: str) -> None:
    address = parse_address(text)
    assert "s3cr" not in repr(address)
    handed_on = with_password(address.text)
    assert "s3cr%2Ft%40" in handed_on
    assert parse_address(handed_on) == address
    assert secrets_of(address) == {"password": "s3cr/t@"}
    plain = conninfo_to_dict(address.conninfo)
    library = "" if address.library == "main" else f"library={address.library}"
    expected = conninfo_to_dict(handed_on.replace(library, "").replace("?&", "?").rstrip("&?"))
    assert {**plain, "password": "s3cr/t@"} == expected


def test_whatever_libpq_takes_as_a_secret_is_taken_out_of_an_address() -> None:
    address = parse_address(
        "postgresql://ann@db/team?sslpassword=hunter2%20a&Password=hunter2&passfile=/p"
        "&scram_client_key=hunter2k&oauth_client_secret=hunter2s&sslkey=/k"
    )
    assert address.text == "postgresql://ann@db/team?passfile=/p&sslkey=/k"
    assert "hunter2" not in repr(address)
    assert secrets_of(address) == {
        "sslpassword": "hunter2 a",
        "Password": "hunter2",
        "scram_client_key": "hunter2k",
        "oauth_client_secret": "hunter2s",
    }
    handed_on = with_password(address.text)
    assert parse_address(handed_on) == address
    assert "sslpassword=hunter2%20a" in handed_on


@pytest.mark.parametrize(
    "text", ["postgresql://ann:12/hunter2@db/team", "postgresql://ann:hunter2/x@db/team"]
)
def test_a_password_that_ends_an_address_too_early_is_not_repeated(text: str) -> None:
    with pytest.raises(BadLocation, match="cannot be read") as caught:
        parse_address(text)
    assert "hunter2" not in f"{caught.value}{caught.value.hint}"


def test_a_command_of_bisect_opens_a_store_whose_address_has_a_password_and_no_user(
    cluster: Cluster, cli: Cli
) -> None:
    library = f"t{next(LIBRARIES)}"
    named = {
        "TFGRPO_STORE": f"postgresql:///postgres?host={cluster.folder}&library={library}"
        "&password=hunter2secret",
        "PGUSER": "postgres",
    }
    cli("init", env=named)
    for text in ("Count both days.", "Add once."):
        cli("add", text, env=named)
    cli("bisect", "start", "HEAD", "v0", env=named)
    done = cli("bisect", "run", "--", TFGRPO, "log", "-1", env=named)
    shown = done.stdout + done.stderr
    assert "v1 good" in shown, "the command could open the store"
    assert "hunter2" not in shown


def test_what_is_wrong_with_an_address_is_one_line_with_a_hint(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = {
        "postgresql://ann:hunter2@127.0.0.1:9/team": ("cannot reach the database on 127.0.0.1",),
        cluster.address("none", user="nobody_here"): ("does not exist",),
        cluster.address("none"): ("there is no library none",),
        "postgresql://ann:hunter2@h/db?library=No%20Such": ("a library's name",),
    }
    for address, words in wrong.items():
        done = CliRunner().invoke(tfgrpo, ["log"], env={"TFGRPO_STORE": address})
        assert isinstance(done.exception, TfgrpoError)
        assert all(word in str(done.exception) for word in words)
        assert len(str(done.exception).splitlines()) == 1
        assert done.exception.hint
        assert "hunter2" not in done.output + str(done.exception) + done.exception.hint
    assert list(tmp_path.iterdir()) == []


def test_without_psycopg_the_extra_is_named(shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [name for name in sys.modules if name.startswith("tfgrpo.store.postgres.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(StoreError, match="needs psycopg") as error:
        Store.open(shared)
    assert "psycopg" in str(error.value.hint)


def test_the_process_that_settles_experiments_opens_a_shared_store(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGUSER", "postgres")
    (tmp_path / ".tfgrpo").mkdir()
    library = f"t{next(LIBRARIES)}"
    where = f"postgresql:///postgres?host={cluster.folder}&library={library}&password=hunter2"
    Store.init(where, author="ann").close()
    path = str(located(where))
    with closing(Decider(SimpleNamespace(sources={}))) as decider:  # type: ignore[arg-type]
        decider._look(path)
        assert list(decider._seen) == [path], "what failed is looked at again"


# members:


def test_each_level_may_do_its_own_and_nobody_changes_what_is_recorded(
    cluster: Cluster, store: Store
) -> None:
    add(store, "Count both days.")
    store.create_branch("prod")
    store.move_names([("protected/heads/prod", 1, None)], "protect branch prod")
    library = store.port.address.library  # type: ignore[attr-defined]
    levels: tuple[Level, ...] = ("reader", "trainer", "reviewer", "owner")
    admin(cluster, *(f'create role "{library}_{level}" login' for level in levels))
    for level in levels:
        members_of(store.port).grant(f"{library}_{level}", level)
    assert len(members_of(store.port).all()) == 5

    def may(level: str, work: str) -> bool:
        with Store.open(cluster.address(library, user=f"{library}_{level}"), author="x") as own:
            assert len(own.library()) >= 1
            try:
                if work == "commit":
                    add(own, f"by {level}")
                elif work == "run":
                    made(own.port, run(level))
                elif work == "protected":
                    with own.forced():
                        own.move_branch("prod", own.tip("main"))
                elif work == "unprotect":
                    own.move_names([("protected/heads/prod", None, None)], "unprotect")
                    own.move_names([("protected/heads/prod", 1, None)], "protect")
                elif work == "redact":
                    text = next(iter(own.library("v1"))).text
                    with own.forced():  # it is on a protected branch
                        redact(own, Target(texts=(text,)), reason="private")
                elif work == "grant":
                    members_of(own.port).grant(f"{library}_reader", "reader")
                else:
                    own.port.execute(work)  # type: ignore[attr-defined]
            except StoreError:
                return False
            return True

    allowed = {
        "commit": (False, True, True, True),
        "run": (False, True, False, True),
        "protected": (False, False, True, True),
        "unprotect": (False, False, True, True),
        "grant": (False, False, False, True),
        "update @.versions set author = 'me'": (False,) * 4,
        "delete from @.events": (False,) * 4,
        "truncate @.reflog": (False,) * 4,
        "insert into @.versions (number, recorded_by) values (99, 'me')": (False,) * 4,
        "update @.journal set answer = ''": (False,) * 4,
    }
    for work, expected in allowed.items():
        assert tuple(may(level, work) for level in levels) == expected, work
    assert not may("trainer", "redact")
    assert may("reviewer", "redact")
    by = store.port.rows(  # type: ignore[attr-defined]
        "select author, recorded_by from @.versions order by number"
    )
    assert ("x", f"{library}_trainer") in by
    members_of(store.port).revoke(f"{library}_reader")
    with pytest.raises(StoreError):
        may("reader", "commit")


@pytest.mark.parametrize(
    "statement",
    [
        "update @.versions set author = 'me'",
        "delete from @.versions",
        "update @.events set text = null",
        "delete from @.events",
        "truncate @.events cascade",
        "update @.reflog set version = 0",
        "delete from @.lanes",
        "update @.decisions set author = 'me'",
        "select @.blank_event(1)",
    ],
)
def test_even_the_schemas_own_role_cannot_change_what_is_recorded(
    store: Store, statement: str
) -> None:
    add(store, "Count both days.")
    before = [version.digest for version in store.log()]
    with suppress(StoreError):
        store.port.rows(statement + "")  # type: ignore[attr-defined]
    assert [version.digest for version in store.log()] == before
    assert [e.text for e in store.library()] == ["Count both days."]
    assert fsck(store).problems == ()


# many writers, crashes:


def test_eight_writers_and_four_readers_lose_nothing(shared: str, store: Store) -> None:
    errors: list[BaseException] = []
    done = threading.Event()

    def write(number: int) -> None:
        try:
            with Store.open(shared, author=f"w{number}") as own:
                for i in range(6):
                    add(own, f"{number}-{i}")
        except BaseException as error:
            errors.append(error)

    def read() -> None:
        try:
            with Store.open(shared) as own:
                while not done.is_set():
                    with own.port.reading():
                        version = own.head.version
                        assert len(own.library(version)) == version.number
                    time.sleep(0.01)
        except BaseException as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    readers = [threading.Thread(target=read) for _ in range(4)]
    for thread in [*writers, *readers]:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert errors == []
    texts = {e.text for e in store.library()}
    assert texts == {f"{n}-{i}" for n in range(8) for i in range(6)}
    assert fsck(store).problems == ()


def test_a_watcher_misses_no_row_of_writers_whose_commits_cross(shared: str, store: Store) -> None:
    id = made(store.port, run("R")).id
    records = store.port.records
    slow = PostgresPort(shared)
    with slow.transaction():  # an earlier transaction, which is committed later
        query = "insert into @.rollouts (run, step, problem, sample, version, calls, outcome,"
        query += (
            " reward, verdict, time) values (%s, 0, 'slow', 0, 0, '[]', 'answered', 1, '{}', 1)"
        )
        slow.execute(query, (id,))
        writer = store.port.records.writer()
        writer.append([call_values(call("k", id))], [rollout_values(rollout(id))])
        writer.close()
        place, first = records.attempts_since(id, 0)
        assert [one.problem for one in first] == []
        assert records.spent_since(id, 0)[1][0].usage.calls == 1
    _, then = records.attempts_since(id, place)
    assert sorted(one.problem for one in then) == ["p", "slow"]
    slow.close()


def test_a_database_that_crashes_amid_commits_leaves_whole_versions(tmp_path: Path) -> None:
    cluster = Cluster()
    try:
        address = cluster.address("main")
        with Store.init(address, author="ann") as store:
            id = made(store.port, run("R")).id
            began = threading.Event()
            recorded: list[int] = []

            def appended(writer: PostgresWriter, i: int) -> bool:
                with suppress(StoreError):  # as the journal does, a row is sent again
                    writer.append([call_values(call(f"k{i}", id))], [])
                    return True
                return False

            def journal() -> None:
                writer = PostgresWriter(store.port.address)  # type: ignore[attr-defined]
                for i in range(1000):
                    until(lambda i=i: appended(writer, i))  # type: ignore[misc]
                    recorded.append(i)
                    if i == 20:
                        began.set()
                    if stop.is_set():
                        break
                writer.close()

            stop = threading.Event()
            commits: list[str] = []

            def commit() -> None:
                with Store.open(address, author="bob") as own, suppress(StoreError):
                    for i in range(1000):
                        add(own, f"{i}")
                        commits.append(f"{i}")

            threads = [threading.Thread(target=journal), threading.Thread(target=commit)]
            for thread in threads:
                thread.start()
            assert began.wait(240)
            cluster.stop("immediate")
            threads[1].join()
            with pytest.raises(StoreError, match=r"cannot reach|was lost") as away:
                store.library()
            assert away.value.hint
            cluster.start()
            mark = len(recorded)
            until(lambda: len(recorded) >= mark + 5)
            stop.set()
            threads[0].join()
            assert [e.text for e in store.library()][: len(commits)] == commits, "and it is back"
            assert len(store.library()) - len(commits) in (0, 1)
            assert store.runs.usage(store.runs.get("R"))["rollout"].calls == len(recorded)
            add(store, "after")
            assert {p.where for p in fsck(store).problems} == {"run R"}, "whose digest is made up"
    finally:
        cluster.close()


# news:


def test_a_move_is_known_elsewhere_within_a_tenth_of_a_second(shared: str, store: Store) -> None:
    add(store, "0")
    live = LiveLibrary(store=shared)
    other = Store.open(shared, author="bob")
    numbers = [live.version.number]

    def delays() -> list[float]:
        found = []
        for _ in range(30):
            add(other, f"n{len(numbers)}")
            committed = time.monotonic()
            until(lambda: live.version.number > numbers[-1], pause=0.001)
            found.append(time.monotonic() - committed)
            numbers.append(live.version.number)
        return sorted(found)

    until(lambda: delays()[-2] < 0.1)  # as it is while nobody else has the machine
    other.close()
    live.close()
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_watcher_of_a_database_that_was_away_goes_on(store: Store, shared: str) -> None:
    port = PostgresPort(shared, watching=True)
    before = port.changes()
    store.port.rows(  # type: ignore[attr-defined]
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
        " and query like 'listen%%' or query like '%%@.decisions%%' and pid <> pg_backend_pid()"
    )
    add(store, "x")
    until(lambda: port.changes() != before)
    assert port.last_version() == 1
    port.close()


def test_members_are_told_on_the_command_line(
    cluster: Cluster, store: Store, shared: str, tmp_path: Path
) -> None:
    library = store.port.address.library  # type: ignore[attr-defined]
    admin(cluster, f'create role "{library}_bob" login')
    for arguments, words in (
        (("grant", f"{library}_bob", "--as", "reviewer"), "is a reviewer now"),
        (("members",), f"{library}_bob"),
        (("members", "--json"), '"level": "reviewer"'),
        (("revoke", f"{library}_bob"), "no member any more"),
    ):
        done = CliRunner().invoke(tfgrpo, ["--store", shared, "store", *arguments])
        assert done.exit_code == 0, done.exception
        assert words in done.output
    done = CliRunner().invoke(
        tfgrpo, ["--store", shared, "store", "grant", "no_one", "--as", "owner"]
    )
    assert "no user no_one" in str(done.exception)
    Store.init(tmp_path / "s.db").close()
    done = CliRunner().invoke(tfgrpo, ["--store", str(tmp_path / "s.db"), "store", "members"])
    assert "has no members" in str(done.exception)


def test_fsck_finds_what_a_superuser_did_and_repairs_what_is_derived(store: Store) -> None:
    add(store, "Count both days.")
    assert store.port.storage.check() == []
    run_sql = store.port.execute  # type: ignore[attr-defined]
    run_sql("alter table @.events disable trigger user")
    run_sql("drop index @.events_experience")
    derived = [defect.what for defect in store.port.storage.check()]
    assert any("events_experience is missing" in what for what in derived)
    assert any("of events is missing, disabled" in what for what in derived)
    store.port.storage.rebuild()
    assert store.port.storage.check() == []
    run_sql("alter table @.events disable trigger user")
    run_sql("update @.events set text = 'Count none.'")
    run_sql("alter table @.events enable trigger user")
    assert [problem.where for problem in fsck(store).problems] == ["event 1"]
