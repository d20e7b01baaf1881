"""What lies beside a store is its owner's alone, and a prepared folder leads nowhere else."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import Cli, one_line_error
from store_helpers import add, child, killed

from tfgrpo.store import Store, StoreError
from tfgrpo.store.sqlite import file as store_file
from tfgrpo.store.transfer import locations

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and links are those of POSIX")


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    """The files and folders in `folder`, itself included, that others may read or write."""
    inside = [folder, *folder.rglob("*")]
    return [str(path) for path in inside if path.lstat().st_mode & 0o077]


def test_everything_beside_a_store_is_its_owners_alone(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    cli("add", "one", "two")
    cli("modify", "G0", "three")
    cli("checkout", "main", "--format", "md")
    cli("bisect", "start", "HEAD", "v0")
    with Store.open(tmp_path / ".tfgrpo" / "store.db") as store:
        store.commit("main", [add("x")], message="m")
        names = {path.name for path in (tmp_path / ".tfgrpo").iterdir()}
        assert names >= {"store.db", "store.db-wal", "store.db-queue", "experiences.json"}
        assert open_to_others(tmp_path / ".tfgrpo") == []
    there = locations.parse(str(tmp_path))
    locations.clone(there, tmp_path / "copy" / ".tfgrpo" / "store.db", author="x")
    assert open_to_others(tmp_path / "copy" / ".tfgrpo") == []


def test_nothing_is_written_through_links_that_lie_there(cli: Cli, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / ".tfgrpo"
    folder.mkdir()
    for name in ("store.db-queue", "experiences.json", "bisect.json", "store.db-redacting"):
        (folder / name).symlink_to(victim)
    cli("init")
    cli("add", "one")
    cli("bisect", "start", "HEAD", "v0")
    cli("redact", "one", "--reason", "leaked", "--yes", ok=None)
    assert victim.read_text() == "mine"


def test_a_store_is_not_made_where_a_link_leads(tmp_path: Path) -> None:
    (tmp_path / "store.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError) as caught:
        Store.init(tmp_path / "store.db")
    assert caught.value.hint
    assert not (tmp_path / "elsewhere").exists()


def test_a_prepared_folder_gets_no_library_to_try(cli: Cli, tmp_path: Path) -> None:
    cli("init")
    cli("add", "one")
    cli("add", "two")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / ".tfgrpo" / "bisect").symlink_to(elsewhere)
    one_line_error(cli("bisect", "start", "HEAD", "v0", ok=False), "is a link")
    assert list(elsewhere.iterdir()) == []


HOLD = """
import fcntl, os, struct, sys
file = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("@hhqqi0q", fcntl.F_RDLCK, 0, 0, 0, 0))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="these locks are Linux's")
def test_whoever_holds_the_queue_holds_up_no_writer_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.db"
    with Store.init(path) as store:
        store.commit("main", [add("before")], message="m")
    monkeypatch.setattr(store_file, "PATIENCE", 0.2, raising=False)
    with killed(child(HOLD, f"{path}-queue")) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        done: list[int] = []

        def write() -> None:
            with Store.open(path) as store:
                for n in range(20):  # and only the first of them waits
                    done.append(store.commit("main", [add(f"{n}")], message="m").number)

        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        writing.join(120)
        assert done == list(range(2, 22))


def test_who_may_not_write_the_store_may_not_hold_its_queue(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Store.init(path).close()
    for mode, queue in ((0o644, 0o600), (0o664, 0o660), (0o600, 0o600)):
        path.chmod(mode)
        Path(f"{path}-queue").unlink(missing_ok=True)
        with Store.open(path) as store:
            store.commit("main", [add("x")], message="m")
        assert Path(f"{path}-queue").stat().st_mode & 0o777 == queue & ~0o022
