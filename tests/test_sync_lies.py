"""Peers that lie, break or die: a clear error, and the store as it was."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_helpers import add, child, kill_after_ready, kills, run_child
from sync_helpers import grow, libraries, made, rows, sound

from tfgrpo.store import Store, TfgrpoError
from tfgrpo.store.canonical import VersionContent, canonical, seal, version_digest
from tfgrpo.store.damaged_values import LATEST
from tfgrpo.store.errors import InvalidName, TransferError
from tfgrpo.store.fsck import fsck
from tfgrpo.store.records import Redaction
from tfgrpo.store.transfer import locations, sync
from tfgrpo.store.transfer.bundle import Bundle, create
from tfgrpo.store.transfer.other_store import NameMove, StorePeer
from tfgrpo.store.transfer.pack import KnownDigests, Names, PackedEvent, PackedVersion, exported
from tfgrpo.store.transfer.receive import receive

Lie: TypeAlias = Callable[[PackedVersion], PackedVersion]

SALT = b"\x05" * 16


class Liar(StorePeer):
    """A peer that alters the last version it sends, or what it says of its names."""

    def __init__(self, store: Store, lie: Lie, at: dict[str, bytes] | None = None) -> None:
        super().__init__(store)
        self.lie = lie
        self.at = at or {}

    def names(self) -> Names:
        head, at = super().names()
        return Names(head, {**at, **self.at})

    def fetch(self, wants: Sequence[bytes], known: KnownDigests) -> Iterator[PackedVersion]:
        honest = list(super().fetch([self.store.tip("main").digest], known))
        yield from honest[:-1]
        yield self.lie(honest[-1])


def event(version: PackedVersion, **fields: object) -> PackedVersion:
    """The version with its first event altered."""
    first, *rest = version.events
    return version._replace(events=(first._replace(**fields), *rest))  # type: ignore[arg-type]


def forged(version: PackedVersion, *events: PackedEvent, **fields: object) -> PackedVersion:
    """A version whose seals and digest are right, whatever it does."""
    made = version._replace(events=events or version.events, **fields)  # type: ignore[arg-type]
    content = VersionContent(
        schema=made.schema,
        parents=made.parents,
        author=made.author,
        time=made.time,
        message=made.message,
        meta=made.meta,
        events=[
            (e.op, e.experience, e.seal.hex() if e.seal else None, e.evidence, e.schema)
            for e in made.events
        ],
    )
    return made._replace(digest=version_digest(content))


def operation(op: str, experience: str, text: str | None = None) -> PackedEvent:
    """An event with a right seal."""
    salt = SALT if text is not None else None
    made = seal(SALT, text, None) if text is not None else None
    return PackedEvent(op, experience, text, None, None, made, salt, 1, ())  # type: ignore[arg-type]


KNOWN, UNKNOWN = "0" * 12, "z" * 12
LIES: dict[str, Lie] = {
    "a text": lambda v: event(v, text="Count no day."),
    "a reason": lambda v: event(v, reason="because"),
    "a salt": lambda v: event(v, salt=SALT),
    "a seal": lambda v: event(v, seal=b"\x01" * 32),
    "a text with its seal": lambda v: event(v, text="x", salt=SALT, seal=seal(SALT, "x", None)),
    "an operation": lambda v: event(v, op="MODIFY"),
    "an experience": lambda v: event(v, experience=UNKNOWN),
    "evidence": lambda v: event(v, evidence='{"run":"x"}'),
    "an event gone": lambda v: v._replace(events=v.events[1:]),
    "an event twice": lambda v: v._replace(events=(*v.events, v.events[0])),
    "events swapped": lambda v: v._replace(events=v.events[::-1]),
    "an author": lambda v: v._replace(author="eve"),
    "a time": lambda v: v._replace(time=v.time + 1),
    "a message": lambda v: v._replace(message="all is well"),
    "meta": lambda v: v._replace(meta='{"run":"x"}'),
    "a digest": lambda v: v._replace(digest=b"\x09" * 32),
    "a parent that is elsewhere": lambda v: v._replace(parents=v.parents * 2),
    "a parent that is not here": lambda v: v._replace(parents=(b"\x07" * 32,)),
    "no parents": lambda v: v._replace(parents=()),
    "a text gone without a record": lambda v: event(v, text=None, reason=None, salt=None),
    "a redaction of a text that is here": lambda v: event(v, redactions=(Redaction("e", 1, "r"),)),
    "a newer schema": lambda v: v._replace(schema=2),
    "a newer event": lambda v: event(v, schema=2),
    "forged: a schema that never was": lambda v: forged(v, schema=0),
    "forged: an event's schema that never was": lambda v: forged(v, v.events[0]._replace(schema=0)),
    "forged: a time after all years": lambda v: forged(v, time=LATEST),
    "forged: a redaction after all years": lambda v: forged(
        v,
        v.events[0]._replace(
            text=None, reason=None, salt=None, redactions=(Redaction("e", LATEST, "r"),)
        ),
    ),
    "half a character": lambda v: event(v, text="\ud800"),
    "half a character in a message": lambda v: v._replace(message="\ud800"),
    "forged: a modify of what is not there": lambda v: forged(v, operation("MODIFY", UNKNOWN, "x")),
    "forged: a delete of what is not there": lambda v: forged(v, operation("DELETE", UNKNOWN)),
    "forged: an add of what is there": lambda v: forged(v, operation("ADD", KNOWN, "x")),
    "forged: a keep of what is not there": lambda v: forged(v, operation("KEEP", UNKNOWN)),
    "forged: deleted and added": lambda v: forged(
        v, operation("DELETE", KNOWN), operation("ADD", KNOWN, "x")
    ),
    "forged: an add without text": lambda v: forged(v, operation("ADD", UNKNOWN)),
    "forged: an empty text": lambda v: forged(v, operation("ADD", UNKNOWN, "  ")),
    "forged: a delete with a text": lambda v: forged(v, operation("DELETE", KNOWN, "x")),
    "forged: no operation": lambda v: forged(v, operation("DROP", KNOWN)),
    "forged: no experience": lambda v: forged(v, operation("ADD", "../x", "x")),
    "forged: three parents": lambda v: forged(v, parents=v.parents * 3),
    "forged: meta that is no object": lambda v: forged(v, meta="[1]"),
    "forged: meta that is no JSON": lambda v: forged(v, meta="{"),
    "forged: meta that is not canonical": lambda v: forged(v, meta='{"a": 1}'),
    "forged: meta of NaN": lambda v: forged(v, meta='{"a":NaN}'),
    "forged: evidence that is no JSON": lambda v: forged(
        v, operation("KEEP", KNOWN)._replace(evidence="{")
    ),
}


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Store]:
    with made(tmp_path / "team.db") as store:
        store.commit("main", [add("known", KNOWN)], message="known")
        store.commit("main", [add("one"), add("two")], message="last", meta={"n": 1})
        yield store


@pytest.fixture
def mine(team: Store, tmp_path: Path) -> Iterator[Store]:
    """A store that has all but the last version of `team`."""
    with made(tmp_path / "mine.db") as store:
        sync.fetch(store, StorePeer(team), "honest", branches=["main"])
        team.commit("main", [add("three"), add("four")], message="newest", meta={"n": 2})
        store.create_branch("copy", "honest/main")
        yield store


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lie_is_found_and_nothing_is_recorded(lie: Lie, team: Store, mine: Store) -> None:
    before = rows(mine)
    told = lie(next(StorePeer(team).fetch([team.tip("main").digest], StorePeer(mine).known)))
    names = {"heads/main": told.digest}
    with pytest.raises(TransferError) as caught:
        sync.fetch(mine, Liar(team, lie, names if told.digest != b"\x09" * 32 else None), "eve")
    assert "nothing was recorded" in str(caught.value) or "newer tfgrpo" in str(caught.value)
    assert caught.value.hint
    assert rows(mine) == before
    sound(mine)


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_lie_in_a_push_is_found_there(lie: Lie, team: Store, mine: Store) -> None:
    before = rows(mine)
    (honest,) = StorePeer(team).fetch([team.tip("main").digest], StorePeer(mine).known)
    told = lie(honest)
    moves = [NameMove("heads/eve", None, told.digest)]
    with pytest.raises(TransferError):
        StorePeer(mine).push(moves, [told], force=True)
    assert rows(mine) == before


@pytest.mark.parametrize(
    "name", ["heads/v12", "heads/a..b", "tags/step_1", "heads/HEAD", "heads/-x", "heads/\x1b[2J"]
)
def test_a_name_that_cannot_be_one_is_refused(name: str, team: Store, mine: Store) -> None:
    before = rows(mine)
    liar = Liar(team, lambda v: v, {name: team.tip("main").digest})
    with pytest.raises(InvalidName):
        sync.fetch(mine, liar, "eve")
    with pytest.raises(InvalidName):
        StorePeer(mine).push([NameMove(name, None, mine.tip("main").digest)], [], force=True)
    assert rows(mine) == before


@pytest.mark.parametrize("name", ["HEAD", "remotes/origin/main", "heads/", ""])
def test_only_branches_and_tags_travel(name: str, team: Store, mine: Store) -> None:
    before = rows(mine)
    with pytest.raises(TransferError, match="neither a branch nor a tag"):
        sync.fetch(mine, Liar(team, lambda v: v, {name: team.tip("main").digest}), "eve")
    with pytest.raises(TransferError, match="neither a branch nor a tag"):
        StorePeer(mine).push([NameMove(name, None, mine.tip("main").digest)], [], force=True)
    assert rows(mine) == before


def test_a_name_whose_version_never_comes_is_refused(team: Store, mine: Store) -> None:
    before = rows(mine)
    with pytest.raises(TransferError, match="was not sent"):
        sync.fetch(mine, Liar(team, lambda v: v, {"heads/main": b"\x07" * 32}), "eve")
    with pytest.raises(TransferError, match="was not sent"):
        StorePeer(mine).push([NameMove("heads/x", None, b"\x07" * 32)], [], force=True)
    assert rows(mine) == before


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, dict[str, bytes]]:
    """A bundle's lines but the last, its last, and the libraries it holds."""
    folder = tmp_path_factory.mktemp("honest")
    with made(folder / "a.db") as team:
        grow(team, random.Random(6), 6)
        create(team, folder / "b.bundle")
        *body, trailer = (folder / "b.bundle").read_bytes().splitlines(keepends=True)
        return b"".join(body), trailer, libraries(team)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_bundle_altered_anywhere_is_refused_or_changes_nothing(
    data: st.DataObject,
    honest: tuple[bytes, bytes, dict[str, bytes]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Any byte, and the trailer put right again, as somebody who means it would do."""
    body, trailer, wanted = honest
    place = data.draw(st.integers(0, len(body) - 1))
    byte = data.draw(st.integers(0, 255))
    altered = body[:place] + bytes([byte]) + body[place + 1 :]
    end = {**json.loads(trailer), "sha256": hashlib.sha256(altered).hexdigest()}
    folder = tmp_path_factory.mktemp("altered")
    (folder / "b.bundle").write_bytes(altered + canonical(end) + b"\n")
    there = locations.parse(str(folder / "b.bundle"))
    try:
        locations.clone(there, folder / "c.db", author="bob")
    except TfgrpoError:
        assert [path.name for path in folder.iterdir()] == ["b.bundle"]
        return
    with Store.open(folder / "c.db") as copy:
        sound(copy)
        assert all(wanted[d] == library for d, library in libraries(copy).items())


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}\n",
        b"[]\n",
        b"null\n",
        b"\xff\n",
        b'{"tfgrpo":"bundle","format":99}\n',
        b'{"tfgrpo":"bundle","format":"1"}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_file_that_is_no_bundle_is_refused(line: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.bundle").write_bytes(line)
    with pytest.raises(TransferError):
        Bundle(tmp_path / "x.bundle")


# death and crowds:


FETCH = """
import sys
from pathlib import Path
from tfgrpo.store.transfer import locations, sync
from tfgrpo.store import Store
print("ready", flush=True)
with Store.open(sys.argv[1]) as store:
    with locations.source(locations.parse(sys.argv[2]), author="x") as source:
        sync.fetch(store, source, "origin")
print("done", flush=True)
"""


def test_a_fetch_killed_at_any_instant_leaves_the_store_as_it_was_or_done(
    tmp_path: Path,
) -> None:
    dice = random.Random(7)
    with made(tmp_path / "team.db") as team:
        with team.port.transaction():
            for n in range(400):
                team.commit("main", [add(f"{n}"), add(f"also {n}")], message=f"{n}")
        wanted = libraries(team)
        tip = team.tip("main").digest
    outcomes = set()
    for number in range(kills(5)):
        path = tmp_path / f"{number}.db"
        with made(path) as store:
            before = rows(store)
        process = child(FETCH, path, tmp_path / "team.db")
        kill_after_ready(process, dice, 0.4)
        with Store.open(path) as store:
            sound(store)
            if rows(store) == before:
                outcomes.add("as it was")
            else:
                outcomes.add("done")
                assert store.resolve("origin/main").digest == tip
                assert libraries(store).items() >= wanted.items()
        run_child(FETCH, path, tmp_path / "team.db")
        with Store.open(path) as store:
            assert store.resolve("origin/main").digest == tip
    assert outcomes


PUSH = """
import sys
from tfgrpo.store.transfer import locations, sync
from tfgrpo.store import Operation, Store, TfgrpoError
me = sys.argv[3]
with Store.open(sys.argv[1], author=me) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    refused = 0
    for n in range(5):
        store.commit("main", [Operation("ADD", text=f"{me} {n}")], message=f"{me} {n}")
        while True:
            there = locations.parse(sys.argv[2])
            try:
                with locations.peer(there, author=me) as peer:
                    sync.push(store, peer, ["main"], remote="origin")
                break
            except TfgrpoError as error:
                assert "pull" in error.hint, error
                refused += 1
                with locations.source(there, author=me) as source:
                    sync.pull(store, source, "origin", "main", into="main", called="origin main")
    print(refused)
"""


def test_clones_that_push_at_once_lose_nothing(tmp_path: Path) -> None:
    with made(tmp_path / "team.db"):
        pass
    processes = []
    for me in ("ann", "bob", "cyd"):
        there = locations.parse(str(tmp_path / "team.db"))
        locations.clone(there, tmp_path / f"{me}.db", author=me)
        processes.append(child(PUSH, tmp_path / f"{me}.db", tmp_path / "team.db", me))
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    with Store.open(tmp_path / "team.db") as team:
        texts = [e.text for e in team.library()]
        wanted = {f"{me} {n}" for me in ("ann", "bob", "cyd") for n in range(5)}
        assert set(texts) >= wanted
        assert len(texts) == len(set(texts))
        sound(team)


WORDS = st.text(max_size=8)
NUMBERS = st.sampled_from([-1, 0, 1, 1, 2, LATEST - 1, LATEST, 2**63 - 1])
OBJECTS = st.one_of(
    st.none(),
    st.sampled_from(["{}", "[]", "{", '{"a":1}', '{"a": 1}', '{"a":NaN}', '{"version":"00"}']),
)
EVENTS = st.builds(
    lambda op, id, text, evidence, schema: operation(op, id, text)._replace(
        evidence=evidence, schema=schema
    ),
    st.sampled_from(["ADD", "MODIFY", "DELETE", "KEEP", "DROP"]),
    st.sampled_from([KNOWN, UNKNOWN, "x", ""]),
    st.one_of(st.none(), WORDS),
    OBJECTS,
    st.sampled_from([1, 1, 1, 0, 2]),
)


@settings(deadline=None, max_examples=150)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "schema": NUMBERS,
            "time": NUMBERS,
            "author": WORDS,
            "message": WORDS,
            "meta": OBJECTS,
        },
    ),
    st.lists(EVENTS, max_size=3),
)
def test_what_is_accepted_leaves_a_store_that_is_sound(
    tmp_path_factory: pytest.TempPathFactory,
    fields: dict[str, object],
    events: list[PackedEvent],
) -> None:
    folder = tmp_path_factory.mktemp("forged")
    with Store.init(folder / "a.db") as first, Store.init(folder / "b.db") as second:
        first.commit("main", [add("x", KNOWN)], message="m")
        (base,) = exported(first.port, [1])
        try:
            version = forged(base._replace(parents=(base.digest,)), *events, **fields)
            with second.port.transaction():
                receive(second.port, [base, version])
        except (TransferError, UnicodeEncodeError):
            return
        assert fsck(second).problems == ()
        assert [v.number for v in second.log("v2")] == [2, 1, 0]
        second.library("v2")
