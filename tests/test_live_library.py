"""`tfgrpo.live`: always the library in force, whatever happens to the store meanwhile."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from waiting import until

import tfgrpo
from tfgrpo.store import Operation, Store, StoreError, UnknownRevision

FOLDERS = {"store": "store", "cli": "cli", "migrations": "migrations"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with one experience, on main and on the branch prod."""
    with Store.init(tmp_path / ".tfgrpo/store.db", author="tester") as made:
        made.commit("main", [Operation("ADD", text="Count both days.")], message="first")
        made.create_branch("prod")
        yield made


def add(store: Store, branch: str, text: str) -> None:
    store.commit(branch, [Operation("ADD", text=text)], message=text)


def test_a_commit_a_checkout_and_a_rollback_are_seen_at_the_next_look(
    store: Store, tmp_path: Path
) -> None:
    head, prod = tfgrpo.live(store=tmp_path), tfgrpo.live("prod", store=tmp_path)
    assert head.prompt() == prod.prompt() == "[G0] Count both days."
    for number in range(30):
        add(store, "prod", f"Rule {number}.")
        assert len(prod) == number + 2
        assert len(head) == 1
    store.checkout("prod")
    assert len(head) == 31
    store.move_branch("prod", "prod~20")
    assert len(head) == len(prod) == 11
    assert head.version == store.tip("prod")
    assert head.render("How long?")[0]["content"].endswith("[G10] Rule 9.")


def test_what_changes_something_else_leaves_the_same_object(store: Store, tmp_path: Path) -> None:
    live = tfgrpo.live("prod", store=tmp_path)
    before = live.library
    add(store, "main", "Give units.")
    assert live.library is before
    assert live.library is before


def test_a_look_when_nothing_changed_asks_for_the_count_of_changes_alone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m benchmarks` says what that costs."""
    monkeypatch.setattr("tfgrpo.domains.prompt_library.LOOK", 3600.0)
    live = tfgrpo.live(store=tmp_path)
    before, opened = live.library, live._store
    assert opened is not None
    statements: list[str] = []
    opened.port.connection.set_trace_callback(statements.append)
    monkeypatch.setattr("tfgrpo.domains.prompt_library._file", lambda path: pytest.fail(path))
    assert all(live.library is before for _ in range(100))
    assert statements == ["pragma data_version"] * 100


@pytest.mark.usefixtures("always_looking")
def test_a_store_that_is_gone_and_comes_back(store: Store, tmp_path: Path) -> None:
    live = tfgrpo.live("prod", store=tmp_path)
    store.close()
    away = tmp_path / "away"
    (tmp_path / ".tfgrpo").rename(away)
    assert live.prompt() == "[G0] Count both days."
    assert "No such file" in str(live.trouble)
    with Store.open(away / "store.db") as other:
        add(other, "prod", "Give units.")
    away.rename(tmp_path / ".tfgrpo")
    assert live.prompt() == "[G0] Count both days.\n[G1] Give units."
    assert live.trouble is None


@pytest.mark.usefixtures("always_looking")
def test_another_store_in_its_place_is_read(store: Store, tmp_path: Path) -> None:
    live = tfgrpo.live(store=tmp_path)
    with Store.init(tmp_path / "other.db", author="tester") as other:
        add(other, "main", "Something else.")
    (tmp_path / "other.db").rename(tmp_path / ".tfgrpo/store.db")
    for path in (tmp_path / ".tfgrpo").glob("store.db-*"):
        path.unlink()
    assert live.prompt() == "[G0] Something else."


@pytest.mark.usefixtures("always_looking")
def test_a_damaged_store_leaves_the_last_library_and_says_so(store: Store, tmp_path: Path) -> None:
    live = tfgrpo.live("prod", store=tmp_path)
    whole = tmp_path / "whole.db"
    store.port.connection.execute("vacuum into ?", (str(whole),))
    store.close()
    with (tmp_path / ".tfgrpo/store.db").open("r+b") as file:
        file.write(os.urandom(file.seek(0, 2)))
        file.seek(0)
        file.write(os.urandom(100_000))
    assert live.prompt() == "[G0] Count both days."
    assert "damaged" in str(live.check())
    assert live.prompt() == "[G0] Count both days."
    for path in (tmp_path / ".tfgrpo").glob("store.db*"):
        path.unlink()
    whole.rename(tmp_path / ".tfgrpo/store.db")
    assert live.check() is None
    assert live.prompt() == "[G0] Count both days."


def test_a_locked_store_is_never_waited_for(store: Store, tmp_path: Path) -> None:
    live = tfgrpo.live("prod", store=tmp_path)
    with sqlite3.connect(store.path, isolation_level=None) as writer:
        writer.execute("begin exclusive")
        began = time.monotonic()
        assert live.prompt() == "[G0] Count both days."
        assert time.monotonic() - began < 5
        writer.execute("rollback")
    writer.close()


def test_a_branch_that_is_gone_leaves_its_last_library(store: Store, tmp_path: Path) -> None:
    live = tfgrpo.live("prod", store=tmp_path)
    store.delete_branch("prod")
    assert live.prompt() == "[G0] Count both days."
    assert "prod" in str(live.trouble)
    store.create_branch("prod", "v0")
    until(lambda: not len(live))
    assert live.trouble is None


def test_there_has_to_be_a_library_to_begin_with(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        tfgrpo.live(store=tmp_path / "nowhere")
    with pytest.raises(UnknownRevision):
        tfgrpo.live("staging", store=tmp_path)


def test_threads_see_libraries_whole_and_never_an_older_one_again(
    store: Store, tmp_path: Path
) -> None:
    live = tfgrpo.live("prod", store=tmp_path)
    stop, wrong = threading.Event(), []

    def look() -> None:
        last = 0
        while not stop.is_set():
            library = live.library
            if len(library) < last or library.version.number < len(library) - 1:
                wrong.append((last, len(library)))
            last = len(library)

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(40):
        add(store, "prod", f"Rule {number}.")
        if len(live) != number + 2:
            wrong.append((number, len(live)))
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert live.trouble is None


def test_a_child_process_of_a_server_looks_for_itself(store: Store, tmp_path: Path) -> None:
    script = (
        "import os, sys, tfgrpo\n"
        "live = tfgrpo.live('prod', store=sys.argv[1])\n"
        "reader, writer = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.read(0, 1)\n"
        "    os.write(writer, str(len(live)).encode())\n"
        "    os._exit(0)\n"
        "print(len(live), flush=True)\n"
        "print(os.read(reader, 9).decode(), len(live))\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "1\n"
    add(store, "prod", "Give units.")
    assert child.communicate("x", timeout=240)[0] == "2 2\n"


def test_the_standard_library_is_all_that_reading_needs(store: Store, tmp_path: Path) -> None:
    config = {"domain": "web", "agent_objective": "Answer."}
    store.commit(
        "prod",
        [Operation("ADD", text="Give units.")],
        message="a step",
        meta={"run": "web", "step": 0, "rendering": config},
    )
    alone = tmp_path / "alone"
    shutil.copytree(ROOT / "tfgrpo", alone / "tfgrpo")
    for folder, name in FOLDERS.items():
        shutil.copytree(ROOT / folder, alone / "tfgrpo" / name)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import tfgrpo\n"
        "live = tfgrpo.live('prod', store=sys.argv[2])\n"
        "print(live.prompt('units', top_k=1))\n"
        "print(tfgrpo.library('prod', store=sys.argv[2]).prompt())\n"
        "print(tfgrpo.library('v1', store=sys.argv[2]).render('What?')[1]['content'])\n"
        "third = {m.partition('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(sorted(third))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script, str(alone), str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[G1] Give units.",
        "[G0] Count both days.",
        "[G1] Give units.",
        "What?",
        "['__main__', 'tfgrpo']",
    ]
