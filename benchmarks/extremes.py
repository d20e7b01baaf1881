"""`python -m benchmarks.extremes`: every verb over stores that are far larger than any library.

Three stores: `long` has texts of 5 MB and of 20,000 words, `wide` 100,000 names, `deep` 1,000,000
versions in 1,000 lanes. Each verb is a process of its own, and has a bound in seconds of CPU
time: what a bare start takes, and some time for each megabyte that is shown, each name that is
listed, or each version that has to be read. A verb that reads no more than its answer has the
bound of a start.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks.figures import span
from tfgrpo.store import Operation, Store, derived_id, store_path
from tfgrpo.store.canonical import VersionContent, seal, version_digest
from tfgrpo.store.history.append import LiveRow, event_contents, place
from tfgrpo.store.records import EVENT_SCHEMA, VERSION_SCHEMA, EventRow, Version, lane_start
from tfgrpo.store.sql.port import REF_COLUMNS, VERSION_COLUMNS
from tfgrpo.store.sqlite.packed_texts import pack
from tfgrpo.store.sqlite.port import SqlitePort

MEGABYTES = 5
WORDS = 20_000
NAMES = 100_000
VERSIONS = 1_000_000
LIVE = 1000
SIDE = 1000
"""Of so many versions of `deep`, one comes from a branch that is merged with the next."""
START = 1.5
"""Seconds of CPU time that a verb may take whatever it shows: a start on a busy machine, and a
library of a thousand experiences."""


class Verb(NamedTuple):
    """A command line, and how many seconds of CPU time it may take beyond a start."""

    arguments: tuple[str, ...]
    more: float = 0.0
    terminal: bool = False


class Took(NamedTuple):
    """What a verb took, in seconds; `code` is None where it did not end."""

    wall: float
    cpu: float
    code: int | None
    output: int


def verb(line: str, more: float = 0.0, *, terminal: bool = False) -> Verb:
    """Returns a verb from its line."""
    return Verb(tuple(line.split()), more, terminal)


# The stores:


def make_long(folder: Path, megabytes: float = MEGABYTES, words: int = WORDS) -> None:
    """Makes a store of long texts: changed by a word, changed altogether, of one word, of two
    words, of what a terminal must not see."""
    dice = random.Random(17)
    size = int(megabytes * 1e6)
    count = size // 8
    large = [f"w{dice.randrange(1_000_000):06d}" for _ in range(count)]
    one, two, three, four, five = (derived_id("extreme", n) for n in range(5))

    def shuffled(of: Sequence[str]) -> str:
        return " ".join(dice.sample(of, len(of)))

    def changed(of: Sequence[str], at: float, by: str) -> str:
        return " ".join([*of[: int(len(of) * at)], by, *of[int(len(of) * at) + 1 :]])

    middle = [f"m{dice.randrange(5000)}" for _ in range(words)]
    pair = [dice.choice(("yes", "no")) for _ in range(words)]
    with Store.init(store_path(folder), author="extreme") as store:
        store.commit("main", [Operation("ADD", one, " ".join(large))], message="long")
        store.commit("main", [Operation("MODIFY", one, changed(large, 0.5, "x"))], message="word")
        store.create_branch("other")
        other = changed(large, 0.2, "y")
        store.commit("other", [Operation("MODIFY", one, other)], message="other")
        far = [*large[: count // 2], "x", *large[count // 2 + 1 : -1], "z"]
        store.commit("main", [Operation("MODIFY", one, " ".join(far))], message="end")
        store.commit("main", [Operation("ADD", two, " ".join(middle))], message="words")
        store.commit("main", [Operation("MODIFY", two, shuffled(middle))], message="shuffled")
        store.commit("main", [Operation("ADD", three, " ".join(pair))], message="two words")
        store.commit("main", [Operation("MODIFY", three, shuffled(pair))], message="two words")
        store.commit("main", [Operation("ADD", four, "x" * size)], message="no blank")
        store.commit("main", [Operation("MODIFY", four, "x" * size + "y")], message="no blank")
        store.commit("main", [Operation("ADD", five, "\x1b[31m\n" * (size // 6))], message="red")
        store.create_branch("same")
        store.commit("same", [Operation("MODIFY", one, shuffled(far))], message="shuffled")


def make_wide(folder: Path, names: int = NAMES) -> None:
    """Makes a store with so many names: half branches, half tags, over a few versions."""
    with Store.init(store_path(folder), author="extreme") as store:
        for number in range(20):
            operation = Operation("ADD", derived_id("extreme", number), f"Experience {number}.")
            store.commit("main", [operation], message=f"by hand {number}")
        moves: list[tuple[str, int | None, str | None]] = []
        for number in range(names // 2):
            moves.append((f"heads/b{number:06d}", number % 20, None))
            moves.append((f"tags/t{number:06d}", number % 20, None))
        store.move_names(moves, "many")


def make_deep(folder: Path, versions: int = VERSIONS) -> None:
    """Makes a store with so many versions of one event each.

    The rows are those that as many commits would leave, put in directly: that takes a minute.
    """
    with Store.init(store_path(folder), author="extreme") as store:
        port = store.port
        assert isinstance(port, SqlitePort)
        port.connection.execute("pragma synchronous = off")
        port.connection.execute("pragma cache_size = -500000")  # nothing is spilled
        with port.transaction():
            _append(store, port, versions)
        port.connection.execute("pragma wal_checkpoint(truncate)")


def _append(store: Store, port: SqlitePort, versions: int) -> None:
    dice = random.Random(17)
    ids = [derived_id("extreme", number) for number in range(LIVE)]
    live: dict[str, LiveRow] = {}
    rows: list[EventRow] = []
    chain: list[tuple[object, ...]] = []
    moves: list[tuple[object, ...]] = []
    lanes = 0
    tip, merged, start = store.version(0), None, 1_700_000_000_000_000
    tips: dict[str, int] = {"heads/main": 0}
    row = port.names.last_move()
    for number in range(1, versions + 1):
        side = number % SIDE == SIDE - 1 and number > LIVE
        id = ids[number - 1] if number <= LIVE else dice.choice(ids)
        op = "ADD" if number <= LIVE else "KEEP" if number % 5 == 0 else "MODIFY"
        text = (
            None if op == "KEEP" else f"Count both days and a half, {number} times: {dice.random()}"
        )
        base = tip.position
        if side:  # a lane of its own, with one version
            lanes += 1
            port.connection.execute("insert into lanes values (?, ?)", (lanes, base))
            base = lane_start(lanes)
        ((placed, _, replaces, birth),), changes = place(port, base, live, [(op, id)])
        salt = dice.randbytes(16) if text else None
        event = EventRow(
            placed,
            op,
            id,
            text,
            None,
            None,
            replaces,
            birth,
            seal(salt, text, None) if salt else None,
            salt,
            EVENT_SCHEMA,
        )
        parents = [tip.digest, *([merged.digest] if merged else [])]
        time = start + number * 1_000_000
        content = VersionContent(
            VERSION_SCHEMA,
            parents,
            "extreme",
            time,
            f"step {number}",
            None,
            event_contents([event]),
        )
        version = Version(
            number,
            version_digest(content),
            tip.number,
            merged.number if merged else None,
            placed,
            1,
            "extreme",
            time,
            f"step {number}",
            {},
        )
        rows.append(event)
        chain.append((*version[:9], None, VERSION_SCHEMA))
        name = "heads/side" if side else "heads/main"
        row += 1
        if side and name in tips and tips[name] != tip.number:  # it is moved to main first
            moves.append((row, row, name, tip.number, None, tips[name], None, *_who(time, "move")))
            row += 1
            tips[name] = tip.number
        elif side and name not in tips:
            moves.append((row, row, name, tip.number, None, None, None, *_who(time, "branch")))
            row += 1
            tips[name] = tip.number
        action = f"commit: step {number}"
        moves.append((row, row, name, number, None, tips[name], None, *_who(time, action)))
        tips[name] = number
        if side:
            merged = version
        else:
            live |= {id: at for id, at in changes.items() if at is not None}
            tip, merged = version, None
        if len(rows) == 10_000 or number == versions:
            marks = ",".join("?" * 11)
            insert = port.connection.executemany
            insert(f"insert into versions ({VERSION_COLUMNS}, schema) values ({marks})", chain)
            insert(f"insert into events values ({marks})", rows)
            marks = ",".join("?" * 10)
            insert(f"insert into reflog ({REF_COLUMNS}) values ({marks})", moves)
            for of in (rows, chain, moves):
                of.clear()
        if number % 500 == 0:
            packed = pack(sorted(at.row for at in live.values()))
            port.connection.execute("insert into snapshots values (?, ?)", (tip.position, packed))


def _who(time: int, action: str) -> tuple[str, int, str]:
    return "extreme", time, action


# The verbs:


def verbs_of_long(megabytes: float) -> list[Verb]:
    """Returns the verbs over `long`, each with time for the megabytes it reads or shows."""
    one, four = derived_id("extreme", 0), derived_id("extreme", 3)
    m = megabytes / 5  # what follows is for 5 MB
    return [
        verb("log", 0),
        verb("log --oneline", 0),
        verb("log -p", 12 * m),
        verb("log -p", 12 * m, terminal=True),
        verb("log -p --json", 4 * m),
        verb("log --grep nowhere", 3 * m),
        verb(f"log --experience {one}", 2 * m),
        verb("log --graph -p same", 12 * m),
        verb("show", 4 * m),
        verb("show", 4 * m, terminal=True),
        verb("show v2", 4 * m),
        verb("show v2", 4 * m, terminal=True),
        verb("show same", 6 * m),
        verb("show --json", 3 * m),
        verb(f"show {one}", 8 * m),
        verb(f"show {four}", 3 * m),
        verb("diff v1 v2", 2 * m),
        verb("diff v1 v2", 2 * m, terminal=True),
        verb("diff v4 same", 4 * m),
        verb("diff main same", 4 * m),
        verb("diff v0 main", 6 * m),
        verb("diff --json v0 main", 3 * m),
        verb("diff --stat v1 main", 1 * m),
        verb("blame", 3 * m),
        verb("blame", 3 * m, terminal=True),
        verb("blame --json", 3 * m),
        verb(f"show {one}", 8 * m),
        verb(f"show --json {one}", 3 * m),
        verb("status", 1 * m),
        verb("status -v", 3 * m),
        verb("status -v --json", 3 * m),
        verb("branch", 0),
        verb("tag", 0),
        verb("tag here", 0),
        verb("reflog", 0),
        verb("checkout v2", 2 * m),
        verb("checkout main --format md", 3 * m),
        verb("checkout main --format prompt -o -", 3 * m),
        verb("checkout main", 2 * m),
        verb("switch main", 2 * m),
        *[
            verb(f"export --format {format} -o out.{format}", 4 * m)
            for format in ("json", "md", "csv", "prompt", "ace", "skill", "rows", "events", "agent")
        ],
        verb("import out.json --dry-run", 8 * m),
        verb("import out.md --dry-run", 8 * m),
        verb("merge --ours other", 6 * m),
        verb("undo", 2 * m),
        verb("merge --theirs other", 6 * m),
        verb("merge --theirs same", 8 * m),
        verb("cherry-pick --theirs v3", 6 * m),
        verb("revert --ours v6", 4 * m),
        verb("keep G0", 2 * m),
        verb("modify G0 short", 2 * m),
        verb("revert HEAD", 4 * m),
        verb("delete G3", 2 * m),
        verb("undo", 2 * m),
        verb("redo", 2 * m),
        verb("redact --text m1700 --dry-run", 4 * m),
        verb("bundle create out.bundle", 6 * m),
        verb("bundle verify out.bundle", 4 * m),
        verb("bundle list-heads out.bundle", 4 * m),
        verb("clone out.bundle copy", 10 * m),
        verb("mirror git mirror", 6 * m),
        verb("fsck", 3 * m),
    ]


def verbs_of_wide(names: int) -> list[Verb]:
    """Returns the verbs over `wide`, each with time for the names it reads or lists."""
    n = names / 100_000  # what follows is for 100,000 names
    return [
        verb("log -1", 1 * n),
        verb("log", 5 * n),
        verb("log --all", 2 * n),
        verb("log --graph --oneline", 5 * n),
        verb("show", 1 * n),
        verb("show b000017", 1 * n),
        verb("show t000017", 1 * n),
        verb("diff b000017 t000001", 0),
        verb("status", 1 * n),
        verb("status -v", 1 * n),
        verb("blame", 1 * n),
        verb("branch", 2 * n),
        verb("branch --json", 3 * n),
        verb("tag", 2 * n),
        verb("tag --json", 3 * n),
        verb("branch fresh", 1 * n),
        verb("branch -d fresh", 1 * n),
        verb("branch -m b000011 renamed", 1 * n),
        verb("branch --protect b000012", 1 * n),
        verb("tag fresh", 1 * n),
        verb("tag -d fresh", 1 * n),
        verb("reflog -3", 1 * n),
        verb("reflog", 5 * n),
        verb("reflog b000017", 0),
        verb("checkout b000017", 1 * n),
        verb("switch main", 1 * n),
        verb("add Count.", 1 * n),
        verb("merge b000017", 1 * n),
        verb("undo", 1 * n),
        verb("reset v3", 1 * n),
        verb("undo", 1 * n),
        verb("bundle create out.bundle", 4 * n),
        verb("bundle list-heads out.bundle", 3 * n),
        verb("bundle verify out.bundle", 3 * n),
        verb("clone out.bundle copy", 15 * n),
        verb("remote add copy copy", 0),
        verb("fetch copy", 15 * n),
        verb("push copy main", 5 * n),
        verb("mirror git mirror", 30 * n),
        verb("fsck", 4 * n),
    ]


def verbs_of_deep(versions: int) -> list[Verb]:
    """Returns the verbs over `deep`, each with time for the versions it has to read."""
    v = versions / 1_000_000  # what follows is for 1,000,000 versions
    half, id = versions // 2, derived_id("extreme", 17)
    return [
        verb("log -1", 0),
        verb("log -1000", 0.5),
        verb("log -1000 -p", 1),
        verb("log --oneline", 120 * v),
        verb("log --graph --oneline -1000", 0.5),
        verb("log --all -3", 0),
        verb(f"log v{half}..main -3", 25 * v),
        verb(f"log v{half}...side -3", 50 * v),
        verb(f"log --experience {id} -3", 0),
        verb(f"log --experience {id}", 60 * v),
        verb("log --grep nowhere", 90 * v),
        verb("log --since 2h", 10 * v),
        verb("log --author nobody", 60 * v),
        verb("log --op delete", 60 * v),
        verb("show", 0),
        verb(f"show v{half}", 0),
        verb(f"show {id}", 2 * v),
        verb(f"show HEAD~{half}", 25 * v),
        verb("show HEAD@{1}", 0),
        verb(f"diff v{half} main", 0.5),
        verb("diff HEAD~1 HEAD", 0),
        verb("blame", 20 * v),
        verb(f"blame v{half}", 20 * v),
        verb(f"show {id}", 2 * v),
        verb("status", 0),
        verb("status -v", 20 * v),
        verb("branch", 0),
        verb("tag", 0),
        verb("tag here", 0),
        verb("tag -d here", 0),
        verb("branch there", 0),
        verb("branch -d there", 0),
        verb("reflog -3", 0),
        verb("reflog main -3", 0),
        verb("reflog", 90 * v),
        verb(f"checkout v{half}", 0),
        verb("checkout main", 0),
        verb("switch main", 0),
        verb("add Count.", 0),
        verb("undo", 0),
        verb("redo", 0),
        verb(f"revert --ours v{half + 1}", 5),
        verb(f"cherry-pick --theirs v{half + 1}", 5),
        verb("merge --theirs side", 25 * v),
        verb(f"reset v{half}", 0),
        verb("undo", 0),
        verb("bisect start main v1", 60 * v),
        verb("bisect status", 60 * v),
        verb("bisect good", 60 * v),
        verb("bisect log", 1),
        verb("bisect reset", 1),
        verb("export -o out.json", 0),
        verb("export --format events -o out.events", 60 * v),
        verb("redact --text half --dry-run", 20 * v),
        verb("bundle create out.bundle", 120 * v),
        verb("bundle list-heads out.bundle", 30 * v),
        verb("bundle verify out.bundle", 60 * v),
        verb("clone out.bundle copy", 240 * v),
        verb("remote add copy copy", 0),
        verb("fetch copy", 2),
        verb("fsck", 40 * v),
    ]


# Measuring:


def take(folder: Path, verb: Verb, limit: float, command: Sequence[str]) -> Took:
    """Runs a verb in a folder; it is ended after `limit` seconds."""
    import time

    main, other = os.openpty() if verb.terminal else os.pipe()
    count = 0

    def read() -> None:
        nonlocal count
        while True:
            try:
                piece = os.read(main, 1 << 20)
            except OSError:  # the terminal's other side was closed
                return
            if not piece:
                return
            count += len(piece)

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    process = subprocess.Popen(
        [*command, "--no-pager", *verb.arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=other,
        stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "100", "LINES": "40", "HOME": str(folder)},
    )
    os.close(other)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        _, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
    reader.join()
    os.close(main)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    code = None if process.returncode == -9 else process.returncode
    if code:
        click.echo(errors.decode()[-400:], err=True)
    return Took(wall, cpu, code, count)


def measure(folder: Path, verbs: Sequence[Verb], limit: float) -> Iterator[tuple[Verb, Took]]:
    """Runs the verbs one after the other; `limit` is wall seconds for each."""
    command = [
        sys.executable,
        "-c",
        "import sys; from tfgrpo.cli.main import main; sys.exit(main())",
    ]
    for each in verbs:
        yield each, take(folder, each, limit, command)


STORES: dict[str, tuple[Callable[[Path, float], None], Callable[[float], list[Verb]], float]] = {
    "long": (
        lambda folder, part: make_long(folder, MEGABYTES * part, int(WORDS * part)),
        verbs_of_long,
        MEGABYTES,
    ),
    "wide": (
        lambda folder, part: make_wide(folder, int(NAMES * part)),
        lambda n: verbs_of_wide(int(n)),
        NAMES,
    ),
    "deep": (
        lambda folder, part: make_deep(folder, int(VERSIONS * part)),
        lambda n: verbs_of_deep(int(n)),
        VERSIONS,
    ),
}


UNITS = {"long": "MB in one text", "wide": "names", "deep": "versions"}
HEAD = ("| verb | CPU | goal | | shown |", "| --- | ---: | ---: | --- | ---: |")


def row(verb: Verb, took: Took) -> str:
    """Returns a verb's row of the table."""
    goal = START + verb.more
    cpu = f"over {span(took.cpu)}" if took.code is None else span(took.cpu)
    verdict = "met" if took.code == 0 and took.cpu <= goal else "**missed**"
    line = " ".join(verb.arguments) + (" (terminal)" if verb.terminal else "")
    return f"| `{line}` | {cpu} | ≤ {goal:.1f} s | {verdict} | {took.output:,} B |"


@click.command()
@click.argument("stores", nargs=-1, type=click.Choice([*STORES]))
@click.option("--part", default=1.0, help="How much of each store is made.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where stores are made, and kept.")
@click.option("--only", default="", help="Only verbs that begin with this.")
@click.option("--limit", default=120.0, help="Wall seconds after which a verb is ended.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Add the table to this.")
def main(
    stores: tuple[str, ...],
    part: float,
    folder: Path | None,
    only: str,
    limit: float,
    output: Path | None,
) -> None:
    """Measures every verb over stores that are far larger than any library."""
    with tempfile.TemporaryDirectory() as made:
        for name in stores or STORES:
            make, verbs, size = STORES[name]
            here = (folder or Path(made)) / name
            if not here.exists():
                here.mkdir(parents=True)
                make(here, part)
            chosen = [v for v in verbs(size * part) if " ".join(v.arguments).startswith(only)]
            lines = [f"## {name}, {size * part:,.0f} {UNITS[name]}", "", *HEAD]
            for each, took in measure(here, chosen, limit):
                lines.append(row(each, took))
                click.echo(f"{name}: {lines[-1]}")
            if output:
                with output.open("a", encoding="utf-8") as page:
                    page.write("\n".join([*lines, "", ""]))


if __name__ == "__main__":
    main()
