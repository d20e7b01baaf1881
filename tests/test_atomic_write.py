"""Files are written whole or not at all, and nothing that lies in their folder is followed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from tfgrpo.store import Store, atomic_write
from tfgrpo.store.atomic_write import replacing
from tfgrpo.store.errors import StoreError
from tfgrpo.store.history.bisect import start
from tfgrpo.store.process_lock import held, is_held


def test_a_file_is_replaced_whole_or_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    atomic_write.write(path, "one")

    def write_half() -> None:
        with replacing(path) as file:
            file.write(b"half of t")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "one"
    atomic_write.write(path, b"two")
    assert path.read_text() == "two"
    assert os.listdir(tmp_path) == ["file"], "nothing is left behind"
    with pytest.raises(IsADirectoryError):
        atomic_write.write(tmp_path, "x")


@pytest.mark.skipif(os.name != "posix", reason="elsewhere no folder is synchronised")
@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_only_where_a_folder_cannot_be_synchronised_that_is_no_error(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronise = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(number, os.strerror(number))
        synchronise(file)

    monkeypatch.setattr(os, "fsync", fsync)
    with nullcontext() if number == errno.EINVAL else pytest.raises(OSError, match="error"):
        atomic_write.write(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"


@pytest.mark.skipif(os.name != "posix", reason="elsewhere nobody removes leftovers")
def test_what_somebody_is_about_to_remove_is_not_held(tmp_path: Path) -> None:
    (tmp_path / ".clone-left").mkdir()
    held_there: list[bool] = []

    def remove(path: str) -> None:
        handle = os.open(path, os.O_RDONLY)
        held_there.append(atomic_write.hold(handle, path))
        os.close(handle)
        os.rmdir(path)

    atomic_write.sweep(str(tmp_path), ".clone-", remove)
    assert held_there == [False]
    with atomic_write.held_folder(tmp_path, ".clone-") as folder:
        atomic_write.sweep(str(tmp_path), ".clone-", remove)
        assert folder.is_dir()


@pytest.mark.skipif(os.name != "posix", reason="elsewhere nobody removes leftovers")
def test_a_folder_that_is_swept_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir, swept = Path.mkdir, []

    def mkdir_amid_a_sweep(folder: Path, **options: int) -> None:
        mkdir(folder, **options)
        if not swept:
            swept.append(folder)
            atomic_write.sweep(str(tmp_path), ".clone-", os.rmdir)

    monkeypatch.setattr(Path, "mkdir", mkdir_amid_a_sweep)
    with atomic_write.held_folder(tmp_path, ".clone-") as folder:
        assert folder.is_dir()
        assert not swept[0].exists()


@pytest.mark.skipif(os.name != "posix", reason="modes and links are those of POSIX")
def test_a_file_is_its_owners_unless_said_otherwise(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        atomic_write.write(tmp_path / "private", "x")
        atomic_write.write(tmp_path / "shared", "x", mode=atomic_write.SHARED)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / n).stat().st_mode) for n in ("private", "shared")]
    assert modes == [0o600, 0o644]


@pytest.mark.skipif(os.name != "posix", reason="modes and links are those of POSIX")
def test_no_link_that_lies_in_the_folder_is_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "prepared"
    folder.mkdir()
    for name in ("file", f".file.{os.getpid()}", ".file.part", ".file.new"):
        (folder / name).symlink_to(victim)
    atomic_write.write(folder / "file", "new")
    assert victim.read_text() == "mine"
    assert (folder / "file").read_text() == "new"
    (folder / "run.lock").symlink_to(victim)
    with pytest.raises(StoreError) as caught, held(folder / "run.lock"):
        pass
    assert caught.value.hint
    assert victim.read_text() == "mine"


def test_a_lock_is_held_until_its_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "one"
    assert not is_held(path)
    with held(path) as free:
        assert free
        assert is_held(path)
        with held(path) as second:
            assert not second
    assert not is_held(path)


def test_a_search_writes_through_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    with Store.init(tmp_path / "s.db") as store:
        (tmp_path / f".bisect.json.{os.getpid()}").symlink_to(victim)
        start(store, store.version(0), [])
    assert victim.read_text() == "mine"


def amid(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Has `act` done just before the first call of a function of `os`."""
    real, done = getattr(os, name), []

    def called(*arguments: Any, **named: Any) -> Any:
        if not done:
            done.append(True)
            act()
        return real(*arguments, **named)

    monkeypatch.setattr(os, name, called)


def test_another_writer_of_the_same_file_takes_no_copy_that_is_about_to_get_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    amid(monkeypatch, "replace", lambda: atomic_write.write(path, "second"))
    atomic_write.write(path, "first")
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere nobody removes leftovers")
@pytest.mark.parametrize("links", [True, False])
def test_no_copy_that_is_about_to_be_a_new_file_is_taken(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    amid(monkeypatch, "link" if links else "rename", lambda: atomic_write.clear_copies(path))
    assert atomic_write.create(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.skipif(os.name != "posix", reason="elsewhere nobody removes leftovers")
def test_what_a_kill_has_left_is_removed_by_writers_of_that_very_file(tmp_path: Path) -> None:
    left = [tmp_path / f".{name}.{'0a' * 8}" for name in ("run.live", "run.live.x")]
    for path in (*left, tmp_path / ".run.live.0a0a", tmp_path / f".run.live.{'0g' * 8}"):
        path.touch()
    before = set(os.listdir(tmp_path))
    atomic_write.clear_copies(tmp_path / "run.live")
    assert before - set(os.listdir(tmp_path)) == {left[0].name}
    atomic_write.clear_copies(tmp_path / "run.live.x")
    assert not left[1].exists()
