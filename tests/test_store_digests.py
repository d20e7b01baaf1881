"""Digests, seals and ids: recomputed from the file by a rule that is written out again here."""

from __future__ import annotations

import hashlib
import re
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import add, broken, canonical, clock, run_child

from tfgrpo.store import ROOT, InvalidOperation, Operation, Store, derived_id

ID = re.compile(r"[0-9abcdefghjkmnpqrstvwxyz]{12}\Z")
ROOT_DIGEST = "e4562ab694a803dd20cfb99a59bb6eeaf8965cdc10d820643cab89a4db76b8f1"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
reals = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | reals | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.none() | st.dictionaries(texts, json_values, max_size=3)
batches = st.lists(
    st.tuples(texts.filter(lambda t: bool(t.strip())), st.none() | texts, objects), max_size=4
)


@settings(max_examples=60, deadline=None)
@given(versions=st.lists(st.tuples(texts, texts, objects, batches), min_size=1, max_size=4))
def test_every_digest_and_seal_is_what_the_written_rule_gives(
    tmp_path_factory: pytest.TempPathFactory,
    versions: list[tuple[str, str, dict[str, object] | None, list[tuple[str, str, object]]]],
) -> None:
    path = tmp_path_factory.mktemp("digests") / "store.db"
    with Store.init(path, now=clock()) as store:
        store.create_branch("side")
        for i, (author, message, meta, batch) in enumerate(versions):
            operations = [Operation("ADD", None, *content) for content in batch]  # type: ignore[arg-type]
            store.commit(
                "side" if i % 2 else "main",
                operations,
                message=message,
                author=author,
                meta=meta,
                merged=store.tip("main") if i % 2 else None,
            )
        read = [
            (e.text, e.reason, e.evidence or None)
            for version in reversed(list(store.log("main")))
            for e in store.events(version)
        ]
        wrote = [
            (text, reason or None, evidence or None)
            for i, (*_, batch) in enumerate(versions)
            if i % 2 == 0
            for text, reason, evidence in batch
        ]
        assert read == wrote
    assert broken(path) == []


def test_the_root_is_the_same_version_in_every_store(tmp_path: Path) -> None:
    rule = ["tfgrpo.version", 1, [], "tfgrpo", 0, "the empty library", None, []]
    assert hashlib.sha256(canonical(rule)).hexdigest() == ROOT_DIGEST
    for name, author in (("a.db", "ann"), ("b.db", "ben")):
        with Store.init(tmp_path / name, author=author) as store:
            assert store.version(0).digest.hex() == ROOT_DIGEST
            assert store.version(0) == ROOT


def test_a_digest_follows_from_content_and_not_from_local_numbers(tmp_path: Path) -> None:
    def record(path: Path, order: list[str]) -> dict[str, str]:
        times = {"main": 10, "side": 20}
        now = 0
        with Store.init(path, author="ann", now=lambda: now) as store:
            store.create_branch("side")
            for branch in order:
                now = times[branch]
                store.commit(branch, [], message=branch, meta={"of": branch})
            return {b: store.tip(b).digest.hex() for b in times}

    one = record(tmp_path / "one.db", ["main", "side"])
    assert one == record(tmp_path / "two.db", ["side", "main"])
    assert one["main"] != one["side"]


def test_the_same_text_is_sealed_differently_every_time(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with Store.init(path) as store:
        store.commit("main", [add("same"), add("same")], message="m")
    with sqlite3.connect(path) as db:
        (salts, seals) = db.execute(
            "select count(distinct salt), count(distinct seal) from events"
        ).fetchone()
        assert (salts, seals) == (2, 2)
        assert {len(s) for (s,) in db.execute("select salt from events")} == {16}


CHANGES = [
    ("evidence", "replace(evidence, '0.5', '0.6')", ["digest of v1"]),
    ("text", "'another text'", ["seal of event 1"]),
    ("reason", "'another reason'", ["seal of event 1"]),
    ("salt", "zeroblob(16)", ["seal of event 1"]),
    ("seal", "zeroblob(32)", ["digest of v1", "seal of event 1"]),
    ("op", "'KEEP'", ["digest of v1"]),
    ("experience", f"'{derived_id('other')}'", ["digest of v1"]),
]


@pytest.mark.parametrize(("column", "value", "expected"), CHANGES, ids=[c[0] for c in CHANGES])
def test_one_byte_changed_behind_the_stores_back_shows_in_the_digests(
    tmp_path: Path, column: str, value: str, expected: list[str]
) -> None:
    path = tmp_path / "store.db"
    with Store.init(path, now=clock()) as store:
        operation = Operation("ADD", derived_id("a"), "text", "reason", {"rewards": [0.5, 1]})
        store.commit("main", [operation], message="m")
        store.commit("main", [add("b")], message="m")
    assert broken(path) == []
    with sqlite3.connect(path) as db:
        db.execute("drop trigger events_no_update")
        db.execute(f"update events set {column} = {value} where row = 1")
    assert broken(path) == expected


@pytest.mark.parametrize("column", ["author", "time", "message", "meta", "parent"])
def test_every_field_of_a_version_enters_its_digest(tmp_path: Path, column: str) -> None:
    path = tmp_path / "store.db"
    with Store.init(path, now=clock()) as store:
        for i in range(2):
            store.commit("main", [add(f"{i}")], message="m", meta={"a": 1})
    values = {"author": "'x'", "time": "time + 1", "message": "'x'", "meta": "null", "parent": "0"}
    with sqlite3.connect(path) as db:
        db.execute("drop trigger versions_no_update")
        db.execute(f"update versions set {column} = {values[column]} where number = 2")
    assert broken(path) == ["digest of v2"]


def test_fresh_ids_have_the_documented_form_and_do_not_repeat(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db") as store:
        store.commit("main", [add(f"{i}") for i in range(500)], message="m")
        ids = [e.id for e in store.library()]
    assert all(ID.match(id) for id in ids)
    assert len(set(ids)) == 500


@pytest.mark.parametrize("id", ["", "short", "0123456789ab0", "ILOU00000000", "oooooooooooo", "G1"])
def test_an_id_of_another_form_is_refused(tmp_path: Path, id: str) -> None:
    with Store.init(tmp_path / "store.db") as store, pytest.raises(InvalidOperation):
        store.commit("main", [add("x", id)], message="m")


@given(st.lists(json_values, max_size=4))
def test_a_derived_id_is_a_function_of_its_parts(parts: list[object]) -> None:
    rule = hashlib.sha256(canonical(["tfgrpo.experience", *parts])).digest()
    number = int.from_bytes(rule[:8], "big") & ((1 << 60) - 1)
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    letters = ""
    for _ in range(12):
        number, digit = divmod(number, 32)
        letters = alphabet[digit] + letters
    assert derived_id(*parts) == letters
    assert ID.match(letters)


def test_a_derived_id_is_the_same_in_another_process() -> None:
    code = "from tfgrpo.store import derived_id; print(derived_id('run', 3, 'p', 0))"
    assert run_child(code).strip() == derived_id("run", 3, "p", 0)
    assert derived_id("run", 3, "p", 0) != derived_id("run", 3, "p", 1)
