"""Writers of one store take turns in the order in which they came; readers never queue."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from store_helpers import add, broken, child, killed
from waiting import until

from tfgrpo.store import Operation, StaleVersion, Store
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history import merge as merges
from tfgrpo.store.history import replay
from tfgrpo.store.sqlite.file import SUFFIX, WriterQueue

WRITERS, READERS, COMMITS = 8, 4, 60

WRITER = """
import sys
from tfgrpo.store import Operation, Store
path, name, commits = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = Store.open(path, author=name)
print("ready", flush=True)
sys.stdin.readline()
for i in range(commits):
    seen = store.port.last_version()
    version = store.commit("main", [Operation("ADD", text=f"{name} {i}")], message=str(i))
    print(version.number - seen - 1)
"""

READER = """
import sys
from tfgrpo.store import Store
store = Store.open(sys.argv[1])
store.port.connection.execute("pragma busy_timeout = 0")
print("ready", flush=True)
sys.stdin.readline()
versions = 0
while versions < int(sys.argv[2]):
    library = store.library("main")
    assert len(library) == library.version.number >= versions
    assert store.head.version.number >= library.version.number
    versions = library.version.number
"""

HOLDER = """
import sys
from pathlib import Path
from tfgrpo.store.sqlite.file import WriterQueue
with WriterQueue(Path(sys.argv[1])).turn():
    print("held", flush=True)
    sys.stdin.readline()
"""

pytestmark = pytest.mark.skipif(os.name != "posix", reason="without fcntl there is no queue")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "store.db"
    Store.init(made).close()
    Path(f"{made}{SUFFIX}").unlink(missing_ok=True)
    return made


def test_eight_writers_and_four_readers_lose_nothing_and_nobody_waits_for_more_than_four_rounds(
    path: Path,
) -> None:
    """The wait is counted in commits of others between a writer's asking and its own commit."""
    total = WRITERS * COMMITS
    processes = [child(WRITER, path, f"w{n}", COMMITS) for n in range(WRITERS)]
    processes += [child(READER, path, total) for _ in range(READERS)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    waits: list[int] = []
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        waits += map(int, out.split())
    with Store.open(path) as store:
        assert store.port.last_version() == total
        texts = [e.text for e in store.library()]
        for n in range(WRITERS):
            mine = [text for text in texts if text.split()[0] == f"w{n}"]
            assert mine == [f"w{n} {i}" for i in range(COMMITS)]
        assert len(texts) == total
        assert fsck(store).problems == ()
    assert not broken(path)
    assert len(waits) == total
    assert max(waits) <= 4 * WRITERS


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="who waits is looked up there")
def test_those_who_wait_are_served_in_the_order_in_which_they_came(path: Path) -> None:
    served: list[int] = []

    def take(number: int) -> None:
        turns = WriterQueue(path)
        with turns.turn():
            served.append(number)
        turns.close()

    first = WriterQueue(path)
    threads = []
    with first.turn():
        for number in range(10):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            until_waiting(path, number + 1)
        assert served == []
    for thread in threads:
        thread.join(timeout=120)
    first.close()
    assert served == list(range(10))


def until_waiting(path: Path, count: int) -> None:
    """Returns when so many wait for a turn: Linux lists who is blocked under each lock."""
    inode = f":{Path(f'{path}{SUFFIX}').stat().st_ino} "
    locks = Path("/proc/locks")

    def waiting() -> int:
        return sum("->" in one and inode in one for one in locks.read_text().splitlines())

    until(lambda: waiting() >= count, pause=0.001)


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="who waits is looked up there")
def test_a_killed_holder_or_waiter_holds_up_nobody(path: Path) -> None:
    holder = child(HOLDER, path)
    with killed(holder):
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with killed(child(HOLDER, path)):
            until_waiting(path, 1)
    with Store.open(path) as store:
        assert store.commit("main", [add("on it goes")], message="m").number == 1


def test_who_only_reads_makes_no_queue_and_keeps_no_writer_waiting(path: Path) -> None:
    with Store.open(path) as reading:
        reading.port.connection.execute("begin")  # type: ignore[attr-defined]
        assert list(reading.library()) == []
        assert not Path(f"{path}{SUFFIX}").exists()
        with Store.open(path) as writing:
            writing.commit("main", [add("x")], message="m")
        assert list(reading.library()) == []


def test_a_reader_does_not_wait_for_a_transaction_that_is_open(path: Path) -> None:
    with Store.open(path) as writing, Store.open(path) as reading:
        reading.port.connection.execute("pragma busy_timeout = 0")  # type: ignore[attr-defined]
        with writing.port.transaction():
            writing.commit("main", [add("x")], message="m")
            assert list(reading.library()) == []
        assert [e.text for e in reading.library()] == ["x"]


def test_two_stores_of_one_process_take_turns_too(path: Path) -> None:
    """As training does, which commits from one thread and journals from another."""
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            with Store.open(path, author=name) as store:
                store.port.connection.execute("pragma busy_timeout = 0")  # type: ignore[attr-defined]
                for i in range(30):
                    store.commit("main", [add(f"{name} {i}")], message="m")
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)
    assert errors == []
    with Store.open(path) as store:
        assert store.port.last_version() == 120


def test_a_store_whose_queue_cannot_be_made_is_written_all_the_same(path: Path) -> None:
    Path(f"{path}{SUFFIX}").mkdir()
    with Store.open(path) as store:
        assert store.commit("main", [add("x")], message="m").number == 1


def test_the_queue_stays_empty_and_may_be_deleted(path: Path) -> None:
    queue = Path(f"{path}{SUFFIX}")
    with Store.open(path) as store:
        store.commit("main", [add("x")], message="m")
        assert queue.stat().st_size == 0
        queue.unlink()
        store.commit("main", [add("y")], message="m")
    with Store.open(path) as store:
        assert store.commit("main", [add("z")], message="m").number == 3


def test_a_wait_can_be_interrupted_and_leaves_the_queue(path: Path) -> None:
    holder = child(HOLDER, path)
    with killed(holder):
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        was = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            with Store.open(path) as store, pytest.raises(KeyboardInterrupt):
                store.commit("main", [add("x")], message="m")
        finally:
            signal.signal(signal.SIGALRM, was)
    with Store.open(path) as store:
        assert store.port.last_version() == 0
        store.commit("main", [add("x")], message="m")


def test_a_fast_forward_does_not_forget_what_another_writer_just_committed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(path) as store, Store.open(path) as other:
        store.create_branch("web")
        store.commit("web", [add("theirs")], message="m")
        base = merges.common_ancestors

        def meanwhile(*versions: object) -> object:
            other.commit("main", [add("ours")], message="between the look and the move")
            return base(*versions)  # type: ignore[arg-type]

        monkeypatch.setattr(merges, "common_ancestors", meanwhile)
        with pytest.raises(StaleVersion):
            merges.merge(store, "main", store.tip("web"), message="m")
        assert [e.text for e in store.library("main")] == ["ours"]


def test_an_append_after_another_writer_reads_what_came_between(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(path) as store, Store.open(path) as other:
        store.commit("main", [add(f"e{n}") for n in range(100)], message="m")
        first, second, third, *_ = store.library()
        changed = [Operation("DELETE", first.id), Operation("MODIFY", second.id, "changed")]
        other.commit("main", [*changed, Operation("KEEP", third.id), add("theirs")], message="m")
        monkeypatch.setattr(replay, "shapes_at", None)  # which reads a library
        store.commit("main", [Operation("KEEP", second.id), add("ours")], message="m")
        monkeypatch.undo()
        texts = [e.text for e in store.library()]
        assert texts == ["changed", *(f"e{n}" for n in range(2, 100)), "theirs", "ours"]
        assert fsck(store).problems == ()


def test_what_a_failed_transaction_made_live_is_forgotten(path: Path) -> None:
    """Though another writer's version has its number and place since."""
    with Store.open(path) as store, Store.open(path) as other:
        with suppress(InterruptedError), store.port.transaction():
            store.commit("main", [add("never there")], message="m")
            raise InterruptedError
        other.commit("main", [add("there")], message="m")
        (there,) = store.library()
        store.commit("main", [Operation("KEEP", there.id)], message="m")
        store.commit("main", [Operation("MODIFY", there.id, "still there")], message="m")
        assert [e.text for e in store.library()] == ["still there"]
        assert fsck(store).problems == ()
