"""What the crash test kills: a process that forks one writer after another.

Run as a script. Each line on its standard input, `FOLDER SEED`, forks a writer that works on
`FOLDER/store.db` until it is killed; forking costs a few milliseconds, starting Python a few
hundred. What writers do goes to standard output, a line before and a line after each piece of
work, so that whoever kills knows what was acknowledged and what was under way:

    pid 4711
    open
    begin commit 3 1        what, and what more has to be said about it
    done 12 ab34… 57 9 4    versions, digest of the newest, rows of refs, calls, rollouts
    end
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from tfgrpo import interchange
from tfgrpo.interchange.incoming_versions import bring_in
from tfgrpo.migrations import migrations as _schema  # noqa: F401 - imported once, before any fork
from tfgrpo.store import Operation, Store, TfgrpoError
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.activity.runs import Call, RolloutRow
from tfgrpo.store.fsck import repair
from tfgrpo.store.history import merge, name_moves, replay

BRANCHES = ("main", "web", "draft")
SNAPSHOT_EVERY = 40


class Writer:
    """One life of a writing process: random work until the kill."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.dice = random.Random(seed)
        self.store = Store.open(folder / "store.db", author="writer")
        self.journal = Journal(self.store.port.records.writer())
        self.calls = 0

    def work(self) -> None:
        kinds = {
            self.commit: 40,
            self.merge: 12,
            self.tag: 8,
            self.branch: 6,
            self.checkout: 8,
            self.undo: 8,
            self.import_: 6,
            self.call: 12,
            self.rollout: 6,
            self.snapshots: 3,
            self.fresh: 4,
            self.reopen: 4,
        }
        while True:
            for name in set(BRANCHES) - self.store.branches().keys():  # an undo went as far
                self.do("branch", partial(self.store.create_branch, name, "v1"))
            (kind,) = self.dice.choices(list(kinds), list(kinds.values()))
            kind()

    def do(self, what: str, act: Callable[[], object]) -> None:
        say(f"begin {what}")
        with suppress(TfgrpoError):  # a conflict, nothing to undo: refused as a whole
            act()
        port = self.store.port
        last = port.last_version()
        newest = port.version(last)
        assert newest is not None
        counts = [self.count(table) for table in ("reflog", "journal", "rollouts")]
        say(f"done {last} {newest.digest.hex()} {' '.join(map(str, counts))}")

    def count(self, table: str) -> int:
        (count,) = self.store.port.row(f"select count(*) from {table}")  # type: ignore[attr-defined]
        return int(count)

    def text(self) -> str:
        return " ".join(self.dice.choices(["count", "both", "days", "round", "up", "always"], k=9))

    def operations(self, branch: str, size: int) -> list[Operation]:
        """Returns that many operations, each about another experience."""
        live = [e.id for e in self.store.library(branch)]
        self.dice.shuffle(live)
        made = []
        for _ in range(size):
            if not live or self.dice.random() < 0.4:
                made.append(Operation("ADD", None, self.text(), "because"))
            else:
                op = self.dice.choice(["MODIFY", "MODIFY", "DELETE", "KEEP"])
                text = self.text() if op == "MODIFY" else None
                made.append(Operation(op, live.pop(), text))  # type: ignore[arg-type]
        return made

    def commit(self) -> None:
        branch = self.dice.choice(BRANCHES)
        size = self.dice.choice([0, 1, 1, 2, 5, 10, 100, 400])
        operations = self.operations(branch, size)
        tags = [self.name("c") for _ in range(self.dice.choice([0, 0, 1, 3]))]
        message = f"size {size} tags {len(tags)}"
        self.do(
            f"commit {size}",
            lambda: self.store.commit(branch, operations, message=message, tags=tags),
        )

    def merge(self) -> None:
        branch, other = self.dice.sample(BRANCHES, 2)
        theirs = self.store.tip(other)
        verb = self.dice.choice([merge.merge, merge.cherry_pick, merge.revert])
        resolve = merge.side("ours") if self.dice.random() < 0.8 else None
        self.do(
            verb.__name__,
            lambda: verb(self.store, branch, theirs, message=verb.__name__, resolve=resolve),
        )

    def name(self, prefix: str) -> str:
        return f"{prefix}{self.dice.getrandbits(60):x}x"

    def tag(self) -> None:
        self.do("tag", lambda: self.store.create_tag(self.name("t"), self.dice.choice(BRANCHES)))

    def branch(self) -> None:
        name = self.name("b")
        self.do("branch", lambda: self.store.create_branch(name, "main~1"))
        self.do("delete", lambda: self.store.delete_branch(name))

    def checkout(self) -> None:
        self.do("checkout", lambda: self.store.checkout(self.dice.choice([*BRANCHES, "v0"])))

    def undo(self) -> None:
        verb = self.dice.choice([name_moves.undo, name_moves.undo, name_moves.redo])
        self.do(verb.__name__, lambda: verb(self.store))

    def import_(self) -> None:
        path = self.folder / "library.md"
        interchange.save(self.store, path, "web", "md")
        path.write_text(path.read_text() + f"- {self.text()}\n")
        document = interchange.read(path)
        self.do("import", lambda: bring_in(self.store, document, "main"))

    def call(self) -> None:
        call = Call(
            key=self.name("k").encode(),
            run=None,
            stage="rollout",
            step=0,
            model="m",
            request=json.dumps(self.text()),
            answer={"content": self.text()},
            prompt_tokens=1,
            cached_tokens=0,
            completion_tokens=1,
            reasoning_tokens=0,
            attempts=1,
            seconds=0.1,
            time=1,
        )
        self.do("call", lambda: asyncio.run(self.journal.append(call)))

    def rollout(self) -> None:
        (run,) = self.store.runs.all()
        row = RolloutRow(run.id, 0, self.name("p"), 0, 0, (), "answered", 1.0, {}, 1)
        self.do("rollout", lambda: asyncio.run(self.journal.rollout(row)))

    def snapshots(self) -> None:
        self.do("snapshots", lambda: repair(self.store))

    def fresh(self) -> None:
        path = self.folder / f"{self.name('fresh')}.db"
        self.do(f"init {path.name}", lambda: Store.init(path).close())

    def reopen(self) -> None:
        def again() -> None:  # the last to close a store writes its log back
            self.journal.close()
            self.store.close()
            self.store = Store.open(self.folder / "store.db", author="writer")
            self.journal = Journal(self.store.port.records.writer())

        self.do("reopen", again)


def say(line: str) -> None:
    os.write(1, (line + "\n").encode())


def main() -> None:
    replay.SNAPSHOT_EVERY = SNAPSHOT_EVERY
    for line in sys.stdin:
        folder, seed = line.split()
        child = os.fork()
        if child == 0:
            try:
                say(f"pid {os.getpid()}")
                writer = Writer(Path(folder), int(seed))
                say("open")
                writer.work()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)  # never back into the loop of the parent
        os.waitpid(child, 0)
        say("end")


if __name__ == "__main__":
    main()
