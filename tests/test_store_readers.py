"""Whoever reads much, beside a process that commits as fast as it can: one state, no false alarm."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_helpers import add, child, killed

from tfgrpo.store import Store
from tfgrpo.store.fsck import fsck

CHECKS = 12

WRITER = """
import sys
from tfgrpo.store import Operation, Store
store = Store.open(sys.argv[1], author="writer")
run = store.runs.all()[0]
print("ready", flush=True)
n = 0
while True:
    n += 1
    branch = ("main", "web")[n % 2]
    added = [Operation("ADD", text=f"{n} {i}") for i in range(3)]
    store.commit(branch, added, message=f"m{n}", tags=[f"{run.name}/t{n}"])
    if n % 10 == 0:
        store.create_branch(f"b{n}", "main~1")
        store.commit(f"b{n}", [Operation("ADD", text="elsewhere")], message="another lane")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "store.db"
    with Store.init(made) as store:
        for n in range(60):
            store.commit("main", [add(f"{n} {i}") for i in range(10)], message="m")
        store.create_branch("web")
        store.runs.create("R", "uid", "main", 0, {}, "ann")
    return made


@pytest.fixture
def busy(path: Path) -> Iterator[Store]:
    """The store, while another process commits to it without a pause."""
    with killed(child(WRITER, path)) as writer, Store.open(path) as store:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        yield store
        assert writer.poll() is None, writer.stderr and writer.stderr.read()


def test_fsck_finds_nothing_wrong_beside_a_writer(busy: Store) -> None:
    before = busy.port.last_version()
    for _ in range(CHECKS):
        checked = fsck(busy)
        assert checked.problems == ()
    assert checked.versions > before + CHECKS
