"""A store is made whole or not at all, and not at all for a training that cannot begin."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import resource
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import worker_server
from forked import Forked
from scripted import write_problems
from test_training import posix
from waiting import until

import tfgrpo
import tfgrpo.migrations.migrations  # before any fork: it takes long to load
from tfgrpo.cli.main import tfgrpo as command_line
from tfgrpo.store import Store, atomic_write
from tfgrpo.store.errors import StoreError, TfgrpoError

PARTS = {"store.db", "store.db-wal", "store.db-shm", "store.db-queue"}


def left(folder: Path) -> set[str]:
    """Returns what lies in a store's folder, but for runs' locks and what belongs to a store; the
    folder of locks belongs to one that is there."""
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if "store.db" in names:
        names.discard("locks")
    return {name for name in names - PARTS if not name.endswith(".lock")}


@posix
def test_a_command_killed_while_its_store_is_made_leaves_a_whole_one_or_none(
    tmp_path: Path,
) -> None:
    """25 kills at moments between the birth of the store's folder and a while after."""
    chance = random.Random(11)
    data = write_problems(tmp_path / "problems.jsonl", 4)
    found = Counter[bool]()
    train = ("train", str(data), "--model", "scripted", "--base-url", "http://127.0.0.1:9/v1")
    with Forked(tmp_path, worker_server().address) as forked:
        for number in range(25):
            folder = tmp_path / str(number)
            forked.start("--store", f"{number}/store.db", *(("init",) if number % 12 else train))
            until(lambda made=folder: made.exists() or forked.ended(), pause=0.001)
            time.sleep(chance.choice([0, chance.uniform(0, 0.02), chance.uniform(0, 0.3)]))
            if not forked.ended():
                forked.kill()
            forked.status()
            assert not left(folder)
            found[(folder / "store.db").exists()] += 1
            if (folder / "store.db").exists():
                Store.open(folder / "store.db").close()
        forked.start("--store", "0/store.db", "init")
        assert forked.status() == 0, forked.said()
    assert found[True]


@posix
@pytest.mark.parametrize("nameless", [True, False])
def test_a_full_disk_leaves_a_whole_store_or_none(tmp_path: Path, nameless: bool) -> None:
    """With as little room for each file as may be, and a little more each time."""
    ends = []
    for room in range(0, 260_000, 26_000):
        path = tmp_path / str(room) / ".tfgrpo" / "store.db"
        (tmp_path / str(room)).mkdir()
        child = os.fork()
        if not child:
            os._exit(_init_with(room, path, nameless=nameless))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        ends.append(code)
        assert code in (0, 3)
        if path.exists():
            Store.init(path).close()
            assert not left(path.parent)
        else:
            assert not path.parent.exists()
    assert ends[0] == 3
    assert ends[-1] == 0


def _init_with(room: int, path: Path, *, nameless: bool) -> int:
    """Makes a store with so many bytes of room for each file; returns 3 where that was told."""
    if not nameless:
        del os.O_TMPFILE
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        Store.init(path)
    except StoreError as error:
        return 3 if "cannot" in str(error) and "free some space" in str(error.hint) else 4
    except BaseException:
        return 5
    return 0


def _init(path: str, start: Any, found: Any) -> None:
    start.wait()
    with Store.init(path, author=f"process {os.getpid()}") as store:
        found.put((store.head.version.digest, store.port.last_version(), len(list(store.log()))))


@posix
@pytest.mark.parametrize("links", [True, False])
def test_eight_processes_that_make_one_store_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        without_links(monkeypatch)
    context = multiprocessing.get_context("fork")
    start, found = context.Barrier(8), context.Queue()
    path = tmp_path / ".tfgrpo" / "store.db"
    workers = [
        context.Process(target=_init, args=(str(path), start, found), daemon=True) for _ in range(8)
    ]
    for worker in workers:
        worker.start()
    seen = {found.get(timeout=240) for _ in workers}
    for worker in workers:
        worker.join()
    assert len(seen) == 1
    assert not left(path.parent)


def without_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes this a file system that knows no links and no files without a name."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.delattr(os, "O_TMPFILE")
    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.parametrize("kind", ["nameless", "named", "no links"])
def test_a_new_file_takes_the_place_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "no links":
        without_links(monkeypatch)
    elif kind == "named":
        monkeypatch.delattr(os, "O_TMPFILE")
    path, dangling = tmp_path / "file", tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    assert atomic_write.create(path, b"one")
    assert not atomic_write.create(path, b"two")
    assert not atomic_write.create(dangling, b"two")
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o600
    assert {each.name for each in tmp_path.iterdir()} == {"file", "dangling"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder without a store, with data of several kinds."""
    for name in ("OPENAI_API_KEY", "TFGRPO_API_KEY", "OPENAI_BASE_URL", "TFGRPO_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    write_problems(tmp_path / "good.jsonl", 4)
    (tmp_path / "empty.jsonl").write_text("")
    rows = [{"nothing": "of use"}] * 3
    (tmp_path / "refused.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


NO_START = {
    "a mistyped file": ("gud.jsonl",),
    "an empty file": ("empty.jsonl",),
    "rows that are all refused": ("refused.jsonl",),
    "all rows skipped": ("refused.jsonl", "--skip-unverifiable"),
    "no data": (),
    "a flag that there is not": ("good.jsonl", "--no-such-flag"),
    "a value that cannot be": ("good.jsonl", "--group-size", "0"),
    "a missing key": ("good.jsonl", "--model", "gpt-x"),
    "a missing named key": ("good.jsonl", "--model", "x", "--api-key-env", "NO_SUCH_KEY"),
    "an unknown local model": ("good.jsonl", "--model", "local:none"),
    "a budget that is none": ("good.jsonl", "--budget", "a lot"),
    "a budget without a price": ("good.jsonl", "--budget", "5", "--model", "x"),
    "a run that there is not": ("--resume", "none"),
    "an unknown domain": ("good.jsonl", "--domain", "nowhere:none"),
    "a missing folder of prompts": ("good.jsonl", "--prompts", "none"),
    "held-out data that is not there": ("good.jsonl", "--heldout", "none.jsonl"),
    "a branch that cannot be": ("good.jsonl", "--branch", "a..b"),
    "a run's name that cannot be": ("good.jsonl", "--run", "a..b"),
}


@pytest.mark.parametrize("arguments", NO_START.values(), ids=NO_START)
def test_a_training_that_cannot_begin_leaves_no_store(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    before = {path.name for path in folder.iterdir()}
    address = () if "--model" in arguments else ("--base-url", "http://127.0.0.1:9/v1")
    model = () if "--model" in arguments else ("--model", "x")
    end = CliRunner().invoke(command_line, ["train", *arguments, *address, *model])
    assert end.exit_code not in (0, None), end.output
    assert isinstance(end.exception, SystemExit | TfgrpoError), end.exc_info
    assert {path.name for path in folder.iterdir()} == before


def test_a_call_that_cannot_begin_leaves_no_store_and_no_rows(folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    rows = [{"nothing": "of use"}]
    for data in (rows, "gud.jsonl", "empty.jsonl", []):
        with pytest.raises(TfgrpoError):
            tfgrpo.train_sync(data, model="x", base_url="http://127.0.0.1:9/v1")
    good = [{"problem": "What is 1 + 1?", "answer": "2"}]
    estimate = tfgrpo.estimate_sync(good, model="x", base_url="http://127.0.0.1:9/v1")
    assert estimate.expected
    assert {path.name for path in folder.iterdir()} == before
