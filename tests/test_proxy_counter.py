"""What workers began is counted once, whoever looks for those that are gone, and whenever."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tfgrpo.proxy.record_writer import Counter, count_lost, counter_path
from tfgrpo.store.activity.traffic import Traffic
from tfgrpo.store.opening import open_traffic

WORKER = "0123456789abcdef"


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "traffic.db")


@pytest.fixture
def traffic(path: str) -> Iterator[Traffic]:
    with closing(open_traffic(path, create=True)) as opened:
        yield opened


def at_first_lock(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Has something happen between the opening of the next file and its lock."""
    lock, acts = fcntl.flock, [act]

    def flock(file: object, operation: int) -> None:
        if acts:
            acts.pop()()
        lock(file, operation)  # type: ignore[arg-type]

    monkeypatch.setattr(fcntl, "flock", flock)


def test_a_worker_that_begins_while_another_looks_for_the_lost_is_counted(
    monkeypatch: pytest.MonkeyPatch, path: str, traffic: Traffic
) -> None:
    at_first_lock(monkeypatch, lambda: count_lost(traffic, path))
    counter = Counter(counter_path(path, WORKER))
    for _ in range(3):
        counter.increase()
    count_lost(traffic, path)
    assert traffic.lost() == 0  # it is alive
    counter.close()
    count_lost(traffic, path)
    assert traffic.lost() == 3
    assert not os.path.exists(counter_path(path, WORKER))


def test_what_another_counts_meanwhile_is_counted_once(
    monkeypatch: pytest.MonkeyPatch, path: str, traffic: Traffic
) -> None:
    counter = Counter(counter_path(path, WORKER))
    counter.increase()
    counter.close()
    at_first_lock(monkeypatch, lambda: count_lost(traffic, path))
    count_lost(traffic, path)
    assert traffic.lost() == 1


class Killed(BaseException):
    """Ends what counts as a signal does: nothing of it goes on."""


def test_what_was_counted_is_counted_once_where_its_file_stays(
    monkeypatch: pytest.MonkeyPatch, path: str, traffic: Traffic
) -> None:
    """Whoever counts may be killed before it takes the file away."""
    counter = Counter(counter_path(path, WORKER))
    for _ in range(5):
        counter.increase()
    counter.close()

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", kill)
        with pytest.raises(Killed):
            count_lost(traffic, path)
    assert traffic.lost() == 5
    count_lost(traffic, path)
    assert traffic.lost() == 5
    assert not os.path.exists(counter_path(path, WORKER))
