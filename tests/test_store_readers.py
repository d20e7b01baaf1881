"""Whoever reads much while others commit sees one state of the store, and raises no false alarm.

`busy` is a store that another process commits to as fast as it can. `disturbed` leaves nothing
to chance: somebody commits before every single read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from store_helpers import add, child, killed

from tfgrpo.display.version_rows import StandingNames
from tfgrpo.mirror import mirror
from tfgrpo.store import Store
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history.blame import stats
from tfgrpo.store.history.revisions import TAG, resolve_range
from tfgrpo.store.sql.port import Port
from tfgrpo.store.transfer import bundle
from tfgrpo.store.transfer.other_store import StorePeer
from tfgrpo.store.transfer.pack import Names

CHECKS = 12

WRITER = """
import sys
from tfgrpo.store import Operation, Store
store = Store.open(sys.argv[1], author="writer")
print("ready", flush=True)
n = 0
while True:
    n += 1
    added = [Operation("ADD", text=f"{n} {i}") for i in range(3)]
    store.commit(("main", "web")[n % 2], added, message=f"m{n}", tags=[f"t{n}"])
    if n % 10 == 0:
        store.create_branch(f"b{n}", "main~1")
        store.commit(f"b{n}", [Operation("ADD", text="elsewhere")], message="another lane")
"""


class Disturbed:
    """A port before whose every read another one commits to `main`, and tags that version."""

    def __init__(self, port: Port, other: Store) -> None:
        self._port, self._other = port, other

    def __getattr__(self, name: str) -> Any:
        if name not in ("reading", "transaction"):
            n = self._other.port.last_version() + 1
            self._other.commit("main", [add(f"text {n}")], message="meanwhile", tags=[f"t{n}"])
        return getattr(self._port, name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "store.db"
    with Store.init(made) as store:
        for n in range(1, 4):
            store.commit("main", [add(f"text {n}")], message="m", tags=[f"t{n}"])
        store.create_branch("web")
    return made


@pytest.fixture
def busy(path: Path) -> Iterator[Store]:
    with Store.open(path) as store:
        for n in range(60):
            store.commit("main", [add(f"{n} {i}") for i in range(10)], message="m")
        with killed(child(WRITER, path)) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            yield store
            assert writer.poll() is None, writer.stderr and writer.stderr.read()


@pytest.fixture
def disturbed(path: Path) -> Iterator[Store]:
    with Store.open(path) as store, Store.open(path) as other:
        port = store.port
        store.port = cast("Port", Disturbed(port, other))
        yield store
        store.port = port


def test_fsck_finds_nothing_wrong_beside_a_writer_who_goes_on(busy: Store) -> None:
    before = busy.port.last_version()
    checks = 0
    while checks < CHECKS or busy.port.last_version() < before + CHECKS:
        checks += 1
        assert checks < 100 * CHECKS, "the writer does not go on"
        checked = fsck(busy)
        assert checked.problems == ()


def test_fsck_finds_nothing_wrong_where_somebody_commits_before_its_every_read(
    disturbed: Store,
) -> None:
    assert fsck(disturbed).problems == ()


def test_stats_counts_the_versions_and_events_of_one_state(disturbed: Store) -> None:
    found = stats(disturbed, disturbed.resolve("main"))
    assert found.file_events == found.file_versions - 1, "each version but v0 has one event"


def test_a_log_begins_in_the_state_whose_names_it_shows(disturbed: Store) -> None:
    with disturbed.port.reading():
        versions, names = disturbed.log("HEAD"), StandingNames(disturbed)
    first = next(versions)
    assert names[first.number] == ["HEAD -> main", f"t{first.number}"]


def test_both_ends_of_a_range_or_a_diff_are_of_one_state(disturbed: Store) -> None:
    low, high = resolve_range(disturbed, "main~1..main")
    assert low is not None
    assert high.parent == low.number
    assert len(disturbed.diff("main~1", "main")) == 1


def at_main_and_at_the_newest_tag(names: Names) -> tuple[bytes, bytes]:
    tags = {int(n[len(TAG) + 1 :]): at for n, at in names.at.items() if n.startswith(TAG)}
    return names.at["heads/main"], tags[max(tags)]


def test_a_transfer_offers_the_branches_and_tags_of_one_state(disturbed: Store) -> None:
    main, newest = at_main_and_at_the_newest_tag(StorePeer(disturbed).names())
    assert main == newest


def test_a_bundle_has_the_branches_and_tags_of_one_state(disturbed: Store, tmp_path: Path) -> None:
    header, _ = bundle.create(disturbed, tmp_path / "all.bundle")
    main, newest = at_main_and_at_the_newest_tag(header.names)
    assert main == newest


def test_a_mirror_of_a_branch_that_moves_meanwhile_is_made(
    disturbed: Store, tmp_path: Path
) -> None:
    assert "main" in mirror(disturbed, tmp_path / "mirror", "main").moved
