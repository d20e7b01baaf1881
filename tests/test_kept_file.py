"""`tfgrpo watch`: files that always have the library in force, and nothing else in them changes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import TFGRPO, environment, one_line_error
from skills_ref import validate
from waiting import until

from tfgrpo import interchange
from tfgrpo.domains.prompt_library import live
from tfgrpo.interchange.format_types import UnreadableLibrary
from tfgrpo.serving.kept_file import BEGIN, END, KeptFile, Overtaken, keep
from tfgrpo.store import Operation, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.init(tmp_path / ".tfgrpo/store.db", author="tester") as made:
        made.commit("main", [Operation("ADD", text="Count both days.")], message="one")
        made.create_branch("prod")
        yield made


def add(store: Store, text: str) -> None:
    store.commit("prod", [Operation("ADD", text=text)], message="add")


def kept(store: Store, path: Path, name: str | None = None) -> KeptFile:
    return KeptFile(path, live("prod", store=store.path), name=name, description=None)


def seconds_of_work(pid: int, seconds: float) -> float:
    """Returns how many seconds of processor time a process takes in so many seconds."""

    def ticks() -> int:
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().split()[13:15]))

    before = ticks()
    time.sleep(seconds)
    return (ticks() - before) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("before", [b"", b"# Ours\n", b"# Ours", b"\xef\xbb\xbf# O\r\n\r\n- x\r\n"])
def test_only_its_own_block_is_touched(store: Store, tmp_path: Path, before: bytes) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_bytes(before)
    path.chmod(0o664)
    file = kept(store, path)
    assert file.bring_up_to_date()
    assert not file.bring_up_to_date()
    once = path.read_bytes()
    assert once.startswith(before)
    assert b"\n- Count both days. <!-- " in once
    assert (b"\n" in once.replace(b"\r\n", b"")) != (b"\r\n" in before)
    path.write_bytes(b"Begin.\n" + once + b"\xff after it, and no end of line")
    add(store, f"Write {END} after {BEGIN}.")
    assert file.bring_up_to_date()
    twice = path.read_bytes()
    assert twice.startswith(b"Begin.\n" + before)
    assert twice.endswith(b"\xff after it, and no end of line")
    assert twice.count(END.encode()) == twice.count(BEGIN.encode()) == 1
    store.move_branch("prod", "v1")
    file.bring_up_to_date()
    assert path.read_bytes() == b"Begin.\n" + once + b"\xff after it, and no end of line"
    assert path.stat().st_mode & 0o777 == 0o664


def test_what_another_writes_right_after_is_seen(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, replace = tmp_path / "AGENTS.md", os.replace
    path.write_text("# Ours\n")
    file = kept(store, path)

    def replace_and_save(*given: object) -> None:
        replace(*given)  # type: ignore[arg-type]
        monkeypatch.setattr(os, "replace", replace)
        path.write_text("# An editor's older text\n")

    monkeypatch.setattr(os, "replace", replace_and_save)
    assert file.bring_up_to_date()
    assert path.read_text() == "# An editor's older text\n"
    assert file.bring_up_to_date()
    assert path.read_text().startswith("# An editor's older text\n\n")
    assert not file.bring_up_to_date()


def test_what_is_saved_while_the_disk_takes_our_copy_is_no_less_seen(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "AGENTS.md"
    path.write_text("# Ours\n")
    file, fsync, edits = kept(store, path), os.fsync, ["# Ours\nBy hand.\n"]

    def slow_fsync(descriptor: int) -> None:
        fsync(descriptor)
        if edits:
            path.write_text(edits.pop())

    monkeypatch.setattr(os, "fsync", slow_fsync)
    with pytest.raises(Overtaken):
        file.bring_up_to_date()
    assert path.read_text() == "# Ours\nBy hand.\n"
    assert sorted(os.listdir(tmp_path)) == [".tfgrpo", "AGENTS.md"]
    assert file.bring_up_to_date()
    assert path.read_text().startswith("# Ours\nBy hand.\n")
    assert "Count both days." in path.read_text()


def test_a_file_whose_block_cannot_be_told_is_left_alone(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "CLAUDE.md"
    for text in (BEGIN, END, f"{END}\n{BEGIN}\n", f"{BEGIN}\n{END}\n{BEGIN}\n{END}\n"):
        path.write_text(text)
        with pytest.raises(UnreadableLibrary, match="no single block"):
            kept(store, path).bring_up_to_date()
        assert path.read_text() == text


def test_a_link_to_another_agents_file_stays_a_link(store: Store, tmp_path: Path) -> None:
    (tmp_path / "CLAUDE.md").write_text("# Rules\n")
    (tmp_path / "AGENTS.md").symlink_to("CLAUDE.md")
    kept(store, tmp_path / "AGENTS.md").bring_up_to_date()
    assert (tmp_path / "AGENTS.md").is_symlink()
    assert "Count both days." in (tmp_path / "CLAUDE.md").read_text()


def test_a_new_skill_passes_the_reference_validator_and_keeps_its_own_words(
    store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "bike-hire/SKILL.md"
    file = kept(store, path)
    file.bring_up_to_date()
    assert validate(path.parent) == []
    assert "name: bike-hire\n" in path.read_text()
    path.write_text(path.read_text().replace("Short rules learned", "Bike hire, rules learned"))
    add(store, "Give units.")
    file.bring_up_to_date()
    assert validate(path.parent) == []
    assert "Bike hire, rules learned" in path.read_text()
    assert "- Give units. <!-- " in path.read_text()
    document = interchange.read(path)
    assert [item.text for item in document.items] == ["Count both days.", "Give units."]


def test_what_others_do_to_the_file_is_mended_and_a_store_that_is_gone_changes_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "AGENTS.md"
    file = kept(store, path)
    stop, wrote, looks, look = threading.Event(), [], [], file.bring_up_to_date
    monkeypatch.setattr(file, "bring_up_to_date", lambda: (looks.append(1), look())[1])
    thread = threading.Thread(target=keep, args=(file, stop, wrote.append))
    thread.start()
    try:
        until(path.exists)
        first = path.read_text()
        (tmp_path / "new").write_text("A new file.\n")
        (tmp_path / "new").replace(path)  # whole, lest its beginning is what is mended
        until(lambda: path.read_text() != "A new file.\n")
        assert path.read_text() == f"A new file.\n\n{first}"
        path.unlink()
        until(path.exists)
        folder = store.path.parent
        folder.rename(folder.with_name("away"))
        before = len(looks)
        until(lambda: len(looks) >= before + 2)
        assert path.read_text() == first
        folder.with_name("away").rename(folder)
        add(store, "Give units.")
        until(lambda: "Give units." in path.read_text())
        until(lambda: len(wrote) == 4)  # it is said after the file is there
        assert wrote == ["v1", "v1", "v1", "v2"]
    finally:
        stop.set()
        thread.join()


def test_the_command_follows_a_branch_costs_next_to_nothing_and_ends_cleanly(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "AGENTS.md").write_text("# Ours\n")
    process = subprocess.Popen(
        [TFGRPO, "watch", "--export", "AGENTS.md", "--revision", "prod"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline() == "wrote v1 to AGENTS.md\n"
        assert process.stderr.readline().startswith("watching prod")
        until(lambda: seconds_of_work(process.pid, 2) <= 0.05)  # what it starts with is done then
        assert seconds_of_work(process.pid, 2) <= 0.05, "seconds of CPU in two"
        add(store, "Give units.")
        assert process.stdout.readline() == "wrote v2 to AGENTS.md\n"
        assert "Give units." in (tmp_path / "AGENTS.md").read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == 0
        assert not [name for name in os.listdir(tmp_path) if name.startswith(".AGENTS")]
    finally:
        process.kill()
        process.communicate()


def test_once_and_what_it_cannot_write(store: Store, tmp_path: Path, cli: Callable) -> None:
    assert cli("watch", "--export", "out.json", "--once").stdout == "wrote v1 to out.json\n"
    assert (tmp_path / "out.json").read_text().startswith('{\n  "G0": "Count both days."')
    assert "already" in cli("watch", "--export", "out.json", "--once").stdout
    one_line_error(cli("watch", "--export", "x.exe", "--once", ok=False), "no format goes by")
    one_line_error(cli("watch", "--export", "no/AGENTS.md", "--once", ok=False), "no folder")
    one_line_error(
        cli("watch", "--export", "a/SKILL.md", "--once", "--name", "A b", ok=False), "name a skill"
    )
