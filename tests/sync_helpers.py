"""What the tests of sharing share: histories of every shape, and what two stores must agree on."""

from __future__ import annotations

import json
import random
from pathlib import Path

from conftest import quick_path
from store_helpers import add, broken, clock

from tfgrpo.store import Operation, Store
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history.merge import MergeConflict, merge, side
from tfgrpo.store.records import Redaction


def far_ssh(folder: Path) -> list[str]:
    """A command in place of ssh: it runs what a far shell would run, here, in `folder`."""
    script = folder / "far-ssh"
    script.write_text(
        "#!/bin/sh\n"
        f'cd "{folder}"\n'
        f'PATH="{quick_path()}"\n'
        "unset TFGRPO_STORE\n"
        'echo "$@" >> far-ssh.log\n'
        'for last; do :; done\nexec sh -c "$last"\n'
    )
    script.chmod(0o755)
    return [str(script)]


def made(path: Path) -> Store:
    """A store on `main` with two experiences."""
    store = Store.init(path, author="ann", now=clock())
    store.commit("main", [add("Count both days."), add("Round up.")], message="two rules")
    return store


def grow(store: Store, dice: random.Random, versions: int) -> None:
    """Grows a store at random: every operation, branches, merges, forks, tags, empty versions."""
    branches = list(store.branches())
    gone: list[str] = []
    for number in range(versions):
        branch = dice.choice(branches)
        ids = [e.id for e in store.library(store.tip(branch))]
        kind = dice.random()
        if kind < 0.05:
            branches.append(f"b{len(branches)}-{number}")
            back = dice.randrange(store.port.last_version() + 1)
            store.create_branch(branches[-1], f"v{back}")
        elif kind < 0.15 and len(branches) > 1:
            other = dice.choice([b for b in branches if b != branch])
            try:
                merge(store, branch, store.tip(other), message=f"merge {other}")
            except MergeConflict:
                merge(store, branch, store.tip(other), message="m", resolve=side("theirs"))
        elif kind < 0.2:
            store.commit(branch, [], message="nothing", meta={"n": number, "é": [1.5, None]})
        elif kind < 0.3 and gone and gone[-1] not in ids:
            store.commit(branch, [add("back again", gone.pop())], message="back")
        elif kind < 0.45 and ids:
            gone.append(dice.choice(ids))
            why = Operation("DELETE", gone[-1], reason="no use")
            store.commit(branch, [why], message="delete")
        elif kind < 0.7 and ids:
            picked = dice.sample(ids, min(2, len(ids)))
            batch = [
                Operation("MODIFY", picked[0], f"rule {number} – ünï", evidence={"step": number}),
                *(Operation("KEEP", id, reason="again") for id in picked[1:]),
            ]
            store.commit(branch, batch, message="modify", tags=[f"t{number}"])
        else:
            store.commit(branch, [add(f"rule {number}") for _ in range(3)], message="add")


def redact(store: Store, row: int, reason: str = "a leaked key") -> None:
    """Redacts an event as `docs/format.md` says: a record, then text, reason and salt blanked."""
    with store.port.transaction():
        store.port.redactions.append(row, [Redaction("ann", 77, reason)])
        store.port.connection.execute(  # type: ignore[attr-defined]
            "update events set text = null, reason = null, salt = null where row = ?", (row,)
        )


def libraries(store: Store) -> dict[str, bytes]:
    """Digest → the library there, as bytes, and as replayed with no snapshot."""
    found = {}
    for number in range(store.port.last_version() + 1):
        version = store.version(number)
        library = [[e.id, e.text] for e in store.library(version)]
        found[version.digest.hex()] = json.dumps(library).encode()
    return found


def names(store: Store) -> dict[str, str]:
    """Branches and tags → digest."""
    both = store.branches() | {f"tag {n}": v for n, v in store.tags().items()}
    return {name: store.version(number).digest.hex() for name, number in both.items()}


def sound(store: Store) -> None:
    """Asserts that a store is whole, by our fsck and by a reader that knows only the format."""
    assert fsck(store).problems == ()
    assert broken(store.path) == []


def rows(store: Store) -> list[tuple[object, ...]]:
    """Everything in the file that a transfer could touch."""
    db = store.port.connection  # type: ignore[attr-defined]
    tables = ("versions", "events", "lanes", "reflog", "redactions", "remotes")
    return [row for table in tables for row in db.execute(f"select * from {table}")]
