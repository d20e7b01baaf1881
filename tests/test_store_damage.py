"""Unusable files, full disks, newer schemas: said with a hint, and never made worse."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_helpers import add, broken, child, run_child

from tfgrpo import migrations
from tfgrpo.store import Operation, Store, StoreError, find, store_path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with Store.init(path) as store:
        for i in range(3):
            store.commit("main", [add(f"{i}")], message="m")
    return path


def refused(path: Path) -> StoreError:
    """Opening raises a StoreError with a hint, and the file is as it was, to the byte."""
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreError) as caught:
        Store.open(path)
    assert caught.value.hint
    assert str(path) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before
    return caught.value


# finding and opening:


def test_a_store_is_found_from_any_folder_below_it(tmp_path: Path) -> None:
    Store.init(store_path(tmp_path)).close()
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find(below) == store_path(tmp_path).resolve()
    Store.init(store_path(tmp_path / "a")).close()
    assert find(below) == store_path(tmp_path / "a").resolve()


def test_no_store_here_or_above_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as caught:
        find(tmp_path)
    assert "tfgrpo init" in str(caught.value.hint)


def test_opening_a_missing_file_is_refused_and_makes_none(tmp_path: Path) -> None:
    assert "init" in str(refused(tmp_path / "none.db").hint)
    assert not (tmp_path / "none.db").exists()
    assert "init" in str(refused(tmp_path).hint), "a folder is no store"


def test_a_text_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary\n" * 500)
    refused(path)
    with pytest.raises(StoreError):
        Store.init(path)
    assert path.read_text() == "dear diary\n" * 500


def test_an_empty_file_is_refused_by_open(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    refused(path)


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("create table versions (number integer primary key, other text)")
        db.execute("insert into versions values (1, 'mine')")
    db.close()
    before = path.read_bytes()
    refused(path)
    with pytest.raises(StoreError) as caught:
        Store.init(path)
    assert caught.value.hint
    assert path.read_bytes() == before


def test_a_store_of_a_newer_schema_is_refused_and_not_modified(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("pragma user_version = 99")
        db.execute("pragma wal_checkpoint(truncate)")
    db.close()
    error = refused(path)
    assert "99" in str(error)
    assert "upgrade" in str(error.hint)
    with pytest.raises(StoreError):
        Store.init(path)


def test_a_truncated_store_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2 - 100])

    def read() -> None:
        with Store.open(path) as store:
            list(store.log())
            store.library()

    with pytest.raises(StoreError) as caught:
        read()
    assert caught.value.hint


def test_reading_a_damaged_page_is_a_store_error(path: Path) -> None:
    with Store.open(path) as store:
        store.commit("main", [add("x" * 500) for _ in range(200)], message="m")
        id = next(iter(store.library())).id
    content = bytearray(path.read_bytes())
    with sqlite3.connect(path) as db:
        (root,) = db.execute("select rootpage from sqlite_master where name = 'events'").fetchone()
    db.close()
    content[(root - 1) * 4096 : root * 4096] = b"\xff" * 4096
    path.write_bytes(content)
    with Store.open(path) as store:
        assert store.head.version.number == 4
        for act in (
            lambda: store.library(),
            lambda: store.diff("v1", "v4"),
            lambda: store.events(store.version(4)),
            lambda: store.history(id),
            lambda: store.commit("main", [add("y")], message="m"),
        ):
            with pytest.raises(StoreError) as caught:
                act()
            assert caught.value.hint


# what cannot be written:


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that another user can reach: pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


AS_NOBODY = """
import os, sys
import difflib, json
from tfgrpo.store import Operation, Store, StoreError, sqlite  # while it may
from tfgrpo.store.history import append
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    with Store.open(sys.argv[1]) as store:
        print("read", [e.text for e in store.library()], [v.number for v in store.log()])
        try:
            store.commit("main", [Operation("ADD", text="x")], message="m")
            print("wrote")
        except StoreError as error:
            print("refused", bool(error.hint))
except StoreError as error:
    print("closed", bool(error.hint))
"""


def test_a_read_only_file_in_a_writable_folder_is_read_and_not_written(shared: Path) -> None:
    path = shared / "store.db"
    with Store.init(path) as store:
        store.commit("main", [add("a")], message="m")
    path.chmod(0o444)
    shared.chmod(0o777)
    assert run_child(AS_NOBODY, path).splitlines() == ["read ['a'] [1, 0]", "refused True"]
    assert not broken(path)


NOBODY = """
import getpass, os, sys
from tfgrpo.store.history import append  # while it may
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
from tfgrpo.cli.main import main
sys.argv = ["tfgrpo", "--store", sys.argv[1], *sys.argv[2:]]
main()
"""


def as_nobody(path: Path, *arguments: str) -> tuple[str, str]:
    """Runs a command as a user who may write nothing; returns what it printed."""
    process = child(NOBODY, path, *arguments)
    return process.communicate(timeout=240)


@pytest.mark.parametrize("mode", [0o444, 0o666])
def test_a_read_only_folder_is_read_and_not_written(shared: Path, mode: int) -> None:
    path = shared / "store.db"
    with Store.init(path) as store:
        store.commit("main", [add("a")], message="m")
    path.chmod(mode)
    shared.chmod(0o555)
    assert run_child(AS_NOBODY, path).splitlines() == ["read ['a'] [1, 0]", "refused True"]
    for line in (["log"], ["show"], ["status"], ["export"]):
        out, err = as_nobody(path, *line)
        assert out, line
        assert not err, line
    _, err = as_nobody(path, "add", "b")
    assert f"error: cannot write {path}: its folder {shared} cannot be written" in err
    assert "check the folder's permissions" in err


def test_a_log_that_cannot_be_read_is_not_passed_over(shared: Path) -> None:
    """What was committed last is in it alone, and without its index it is not read."""
    path = shared / "store.db"
    with Store.init(path) as store:
        store.commit("main", [add("a")], message="m")
        copy = shared / "copy.db"
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{copy}{end}")
            Path(f"{copy}{end}").chmod(0o444)
    assert Path(f"{copy}-wal").stat().st_size
    shared.chmod(0o555)
    _, err = as_nobody(copy, "log")
    assert f"error: cannot read {copy}: its last changes are in {copy}-wal" in err
    assert "copy both files" in err


WATCHED_AS_NOBODY = """
import os, sys
from tfgrpo.store import Store, StoreError, sqlite
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
with Store.open(sys.argv[1], watching=bool(sys.argv[2])) as store:
    print([e.text for e in store.library()], flush=True)
    sys.stdin.readline()
    try:
        print([e.text for e in store.library()])
    except StoreError as error:
        print(error)
with Store.open(sys.argv[1]) as store:
    print([e.text for e in store.library()])
"""


@pytest.mark.parametrize("watching", ["", "watching"])
@pytest.mark.parametrize("closes", [False, True])
def test_a_change_is_told_to_who_reads_in_a_read_only_folder(
    shared: Path, closes: bool, watching: str
) -> None:
    path = shared / "store.db"
    with Store.init(path) as store:
        store.commit("main", [add("a")], message="m")
    path.chmod(0o444)
    shared.chmod(0o555)
    process = child(WATCHED_AS_NOBODY, path, watching)
    assert process.stdout is not None
    assert process.stdout.readline() == "['a']\n"
    shared.chmod(0o755)
    path.chmod(0o644)
    writer = Store.open(path)
    writer.commit("main", [add("b")], message="m")
    if closes:
        writer.close()
    shared.chmod(0o555)
    out, err = process.communicate("go on\n", timeout=240)
    writer.close()
    assert out.splitlines() == [f"{path} has changed while it was read", "['a', 'b']"], err


LIVE_AS_NOBODY = """
import asyncio, os, sys
from pathlib import Path
import tfgrpo
from tfgrpo.domains import prompt_library
from tfgrpo.store import sqlite
from tfgrpo.ui.store_per_thread import Stores
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
prompt_library.LOOK = 0.0
live, stores = tfgrpo.live(store=sys.argv[1]), Stores(Path(sys.argv[1]))
for _ in range(3):
    shown = asyncio.run(stores.run("ann", lambda store: len(store.library())))
    print(len(live), shown, live.trouble, flush=True)
    sys.stdin.readline()
"""


def test_what_serves_a_read_only_folder_sees_a_change(shared: Path) -> None:
    path = shared / "store.db"
    Store.init(path).close()
    path.chmod(0o444)
    process = child(LIVE_AS_NOBODY, path)
    assert process.stdin is not None
    assert process.stdout is not None
    shared.chmod(0o555)
    for count in range(3):
        assert process.stdout.readline() == f"{count} {count} None\n"
        shared.chmod(0o755)
        path.chmod(0o644)
        with Store.open(path) as store:
            store.commit("main", [add(f"{count}")], message="m")
        shared.chmod(0o555)
        process.stdin.write("go on\n")
        process.stdin.flush()
    process.communicate(timeout=240)


FETCHED_AS_NOBODY = """
import os, sys
from tfgrpo.store.transfer import locations
from tfgrpo.store import StoreError
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    with locations.source(locations.parse(sys.argv[1]), author="ann"):
        print("opened")
except StoreError as error:
    print(error.hint)
"""


def test_a_file_that_may_not_be_read_is_refused_with_a_hint(shared: Path) -> None:
    Store.init(shared / "store.db").close()
    (shared / "store.db").chmod(0)
    assert run_child(FETCHED_AS_NOBODY, shared / "store.db") == "check the file's permissions\n"


def test_a_store_cannot_be_made_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError) as caught:
        Store.init(tmp_path / "file" / "store.db")
    assert caught.value.hint


# full disks:

FULL = """
import resource, signal, sys
from tfgrpo.store import Operation, Store, StoreError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
most = int(sys.argv[2])
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
with Store.open(sys.argv[1]) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    whole = 0
    try:
        for i in range(1000):
            store.commit("main", [Operation("ADD", text="x" * 2000)] * 5, message=f"full {i}")
            whole += 1
    except StoreError as error:
        assert "space" in error.hint, error.hint
        assert "cannot write" in str(error), error
    else:
        raise SystemExit("the disk never filled")
    assert len(store.library()) == 3 + 5 * whole, "the open store forgot or invented something"
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store.commit("main", [Operation("ADD", text="again")], message="again")
    print(whole)
"""


@pytest.mark.parametrize("most", [100_000, 250_000, 1_000_000])
def test_a_full_disk_fails_one_commit_and_leaves_the_store_usable(path: Path, most: int) -> None:
    whole = int(run_child(FULL, path, most))
    assert not broken(path)
    with Store.open(path) as store:
        messages = [v.message for v in store.log()]
        assert messages[0] == "again"
        assert messages[1:-4] == [f"full {i}" for i in reversed(range(whole))]
        assert len(store.library()) == 3 + 5 * whole + 1


def test_a_full_file_system_fails_one_commit_and_leaves_the_store_usable(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(disk)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no right to mount a small file system")
    try:
        with Store.init(disk / "store.db") as store:

            def fill() -> None:
                for _ in range(1000):
                    store.commit("main", [add("x" * 2000)] * 5, message="m")

            with pytest.raises(StoreError) as caught:
                fill()
            assert "space" in str(caught.value.hint)
            whole = store.head.version.number
            assert whole > 0
            assert len(store.library()) == 5 * whole
            subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
            store.commit("main", [add("again")], message="m")
        assert not broken(disk / "store.db")
        with Store.open(disk / "store.db") as store:
            assert len(store.library()) == 5 * whole + 1
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_store_that_is_busy_for_long_is_an_error_with_a_hint(path: Path) -> None:
    with sqlite3.connect(path, isolation_level=None) as writer, Store.open(path) as store:
        store.port.connection.execute("pragma busy_timeout = 50")  # type: ignore[attr-defined]
        writer.execute("begin immediate")
        assert len(store.library()) == 3, "a reader does not wait for a writer"
        with pytest.raises(StoreError) as caught:
            store.commit("main", [add("x")], message="m")
        assert "busy" in str(caught.value)
        assert caught.value.hint
        writer.execute("rollback")
        store.commit("main", [add("x")], message="m")
    writer.close()


# the schema's history:


def migrate_outside(path: Path) -> None:
    """Migrates as `sqlite-utils migrate store.db migrations.py` does from a shell."""
    script = Path(str(migrations.__file__)).parent / "migrations.py"
    command = [sys.executable, "-m", "sqlite_utils", "migrate", str(path), str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def schema(path: Path) -> list[tuple[str, str]]:
    with sqlite3.connect(path) as db:
        rows = db.execute("select name, sql from sqlite_master where sql <> '' order by name")
        found = rows.fetchall()
        found += db.execute("select 'user_version', user_version from pragma_user_version")
        found += db.execute("select 'application', application_id from pragma_application_id")
    db.close()
    return found


def test_migrating_from_outside_gives_the_very_same_schema(path: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.db"
    migrate_outside(outside)
    assert schema(outside) == schema(path)
    with Store.init(outside) as store:
        store.commit("main", [add("x")], message="m")
    assert not broken(outside)


def test_migrating_an_up_to_date_store_again_changes_nothing(path: Path) -> None:
    before = schema(path)
    migrate_outside(path)
    assert schema(path) == before
    with Store.open(path) as store:
        assert len(store.library()) == 3


def test_every_store_is_in_wal_mode_however_its_schema_was_made(path: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.db"
    migrate_outside(outside)
    for each in (path, outside):
        with Store.init(each) as store:
            (mode,) = store.port.connection.execute("pragma journal_mode").fetchone()  # type: ignore[attr-defined]
            assert mode == "wal"


def test_opening_a_migrated_file_without_a_root_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "outside.db"
    migrate_outside(path)
    with pytest.raises(StoreError) as caught, Store.open(path) as store:
        store.library()
    assert "init" in str(caught.value.hint)


INIT = """
import sys
from tfgrpo.migrations.migrations import migrations
from tfgrpo.store import Operation, Store
print("ready", flush=True)
sys.stdin.readline()
with Store.init(sys.argv[1]) as store:
    store.commit("main", [Operation("ADD", text="x")], message="m")
"""


def test_processes_that_make_one_store_at_once_all_succeed(tmp_path: Path) -> None:
    for attempt in range(3):
        path = tmp_path / f"{attempt}.db"
        processes = [child(INIT, path) for _ in range(3)]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        errors = [process.communicate(timeout=240)[1] for process in processes]
        assert "".join(errors) == ""
        with Store.open(path) as store:
            assert store.head.version.number == 3


def test_an_old_event_is_not_rewritten_by_opening(path: Path) -> None:
    with sqlite3.connect(path) as db:
        before = list(db.iterdump())
    with Store.open(path) as store:
        store.library()
        store.diff("v0")
    with sqlite3.connect(path) as db:
        assert list(db.iterdump()) == before
    with Store.open(path) as store:
        store.commit("main", [Operation("ADD", text="x")], message="m")
