"""A writer killed at any instant leaves a store that holds exactly what it acknowledged.

At most the one piece of work that was under way is there as well, whole. 40 kills; with
TFGRPO_LONG=1 a thousand and more, or as many as TFGRPO_KILLS says.
"""

from __future__ import annotations

import collections
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, groupby
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import LONG
from store_helpers import broken, kills

from tfgrpo.store import Operation, Store
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history.name_moves import REDO, UNDO

KILLS = kills(2000 if LONG else 40)
PER_STORE = 20  # a store is checked as a whole after each kill, so it is not let grow for ever
WRITER = Path(__file__).with_name("crash_writer.py")

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="writers are forked")


class Counts(NamedTuple):
    """What a store held when a piece of work was done."""

    last: int = 0
    digest: str = ""
    refs: int = 0
    calls: int = 0
    rollouts: int = 0


class Death(NamedTuple):
    """What a writer acknowledged, and what it was at when it was killed (else between)."""

    done: list[Counts]
    at: str
    made: list[str]  # new stores
    half_made: str | None


class Server:
    """The process that forks writers, and the instants at which they die."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.process = subprocess.Popen(
            [sys.executable, WRITER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def kill(self, folder: Path) -> Death:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{folder} {self.dice.getrandbits(32)}\n")
        word, pid = self.process.stdout.readline().split()
        assert word == "pid"
        opened = self.dice.random() < 0.9
        if opened:
            assert self.process.stdout.readline() == "open\n", "the writer broke"
        time.sleep(self.dice.uniform(0, self.dice.choice([0.005, 0.05])))
        os.kill(int(pid), signal.SIGKILL)
        done, made, at = [], [], "between" if opened else "opening"
        begun: list[str] = []
        for line in iter(self.process.stdout.readline, "end\n"):
            word, *more = line.split()
            if word == "begin":
                at, *begun = more
            elif word == "done":
                made += begun if at == "init" else []
                done.append(Counts(int(more[0]), more[1], *map(int, more[2:])))
                at = "between"
            else:
                assert line == "open\n", f"the writer broke: {line}"
                at = "between"
        return Death(done, at, made, begun[0] if at == "init" else None)


@contextmanager
def server(dice: random.Random) -> Iterator[Server]:
    made = Server(dice)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.communicate()


def fresh(folder: Path) -> Path:
    """A store with the branches and the run that writers use."""
    path = folder / "store.db"
    with Store.init(path, author="tester") as store:
        first = [Operation("ADD", None, f"advice {i}") for i in range(3)]
        store.commit("main", first, message="size 3 tags 0")
        store.create_branch("web")
        store.create_branch("draft")
        store.runs.create("run", "uid", "main", 0, {}, "tester")
    return path


def counts(store: Store) -> Counts:
    port = store.port
    last = port.last_version()
    newest = port.version(last)
    assert newest is not None
    rows = (
        port.row(f"select count(*) from {table}")[0]  # type: ignore[attr-defined]
        for table in ("reflog", "journal", "rollouts")
    )
    return Counts(last, newest.digest.hex(), *rows)


def check_prefix(store: Store, before: Counts, death: Death) -> int:
    """Returns how many pieces of unacknowledged work are there: none or one, and it is whole."""
    told = death.done[-1] if death.done else before
    there = counts(store)
    for acknowledged in death.done:  # also what was undone: no version ever goes
        version = store.port.version(acknowledged.last)
        assert version is not None, "an acknowledged version is lost"
        assert version.digest.hex() == acknowledged.digest
    new_refs = [m for m in store.port.names.ref_log(None) if m.row > told.refs]
    batches = len({m.batch for m in new_refs})
    assert there.last - told.last in (0, 1)
    assert there.calls - told.calls in (0, 1)
    assert there.rollouts - told.rollouts in (0, 1)
    assert there.refs - told.refs == len(new_refs)
    # A version comes with the move of its branch, or not at all.
    more = batches + (there.calls - told.calls) + (there.rollouts - told.rollouts)
    assert more <= 1, "more than the work under way was recorded"
    assert there.last == told.last or batches == 1
    if death.at in ("between", "opening"):
        assert more == 0, "work that was not begun is there"
    return more


def check_whole(store: Store) -> None:
    """Every operation on names has all its moves, and every version its events."""
    pointed = set()
    log = list(store.port.names.ref_log(None))[::-1]
    assert [m.row for m in log] == list(range(1, len(log) + 1))
    for _, moves in groupby(log, key=lambda m: m.batch):
        batch = list(moves)
        action = batch[0].action
        pointed.update(m.version for m in batch)
        if action.startswith("commit: size"):
            words = action.split()
            assert len(batch) == 1 + int(words[4])
            version = store.version(batch[0].version or 0)
            assert len(store.events(version)) == version.events == int(words[2])
        elif not action.startswith((UNDO, REDO, "init")):
            assert len(batch) == 1, action
    assert pointed - {None} == set(range(store.port.last_version() + 1))


def test_a_kill_at_any_instant_leaves_exactly_a_committed_prefix(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    phases: collections.Counter[str] = collections.Counter()
    unacknowledged = acknowledged = 0
    begun = time.monotonic()
    with server(random.Random(seed)) as writers:
        for number in count():
            inside = number - phases["between"] - phases["opening"]
            if number >= KILLS and inside > number / 4:
                break  # enough kills fell into pieces of work, not between them
            folder = tmp_path / str(number // PER_STORE)
            if number % PER_STORE == 0:
                folder.mkdir()
                with Store.open(fresh(folder)) as store:
                    before = counts(store)
            death = writers.kill(folder)
            phases[death.at] += 1
            acknowledged += len(death.done)
            for name in death.made:
                with Store.open(folder / name) as made:
                    assert fsck(made).problems == ()
            if death.half_made is not None:
                with Store.init(folder / death.half_made) as made:
                    assert fsck(made).problems == ()
            with Store.open(folder / "store.db") as store:
                assert fsck(store).problems == ()
                unacknowledged += check_prefix(store, before, death)
                check_whole(store)
                (integrity,) = store.port.row("pragma integrity_check")  # type: ignore[attr-defined]
                assert integrity == "ok"
                before = counts(store)
            assert broken(folder / "store.db") == []
    seconds = time.monotonic() - begun
    print(f"{number} kills in {seconds:.0f} s; {acknowledged} pieces of work acknowledged, 0 lost;")
    print(f"{unacknowledged} unacknowledged and whole; killed at {dict(phases.most_common())}")
