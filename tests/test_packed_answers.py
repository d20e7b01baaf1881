"""Long answers and requests take a fraction of their bytes in the file, and lose none of them."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from port_rows import call, write

from tfgrpo.store import Store, StoreError
from tfgrpo.store.activity.runs import Call
from tfgrpo.store.canonical import canonical
from tfgrpo.store.fsck import fsck
from tfgrpo.store.redact import Target, redact

SECRET = 'sk-"Zürich"\\7f3a'
WORDS = [
    "and",
    "both",
    "cases",
    "check",
    "divisor",
    "equation",
    "even",
    "every",
    "factor",
    "for",
    "in",
    "into",
    "is",
    "may",
    "modulo",
    "of",
    "prime",
    "remainder",
    "seven",
    "sides",
    "so",
    "sum",
    "the",
    "therefore",
    "turn",
    "two",
    "until",
    "vanishes",
    "we",
    "which",
]


def reasoning(seed: int, words: int = 3000) -> str:
    """An answer of some 4,000 tokens."""
    dice = random.Random(seed)
    return " ".join(
        dice.choice(WORDS) if dice.random() < 0.8 else str(dice.randrange(10_000))
        for _ in range(words)
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.init(tmp_path / "store.db", author="ann") as store:
        yield store


def long_call(key: str, content: str, request: str = "q") -> Call:
    return call(
        key,
        request=canonical([["user", request]]).decode(),
        answer={"content": content, "finish_reason": "stop"},
    )


def recorded(store: Store, key: str, content: str, request: str = "q") -> bytes:
    one = long_call(key, content, request)
    write(store.port, [one])
    return one.key


def held(store: Store) -> list[str]:
    """Returns the types of the answers as they lie in the file."""
    with sqlite3.connect(store.path) as db:
        return [kind for (kind,) in db.execute("select typeof(answer) from journal order by id")]


def test_a_long_answer_is_packed_and_read_back_and_a_short_one_is_kept_as_it_is(
    store: Store,
) -> None:
    long, short = recorded(store, "long", reasoning(1), reasoning(2)), recorded(store, "s", "42")
    assert held(store) == ["blob", "text"]
    there = store.runs.call(long)
    assert there is not None
    assert there.answer["content"] == reasoning(1)
    assert json.loads(there.request) == [["user", reasoning(2)]]
    again = store.runs.call(short)
    assert again is not None
    assert again.answer["content"] == "42"
    assert fsck(store).problems == ()


def test_long_answers_leave_less_than_their_size_in_the_file_and_its_log_together(
    store: Store,
) -> None:
    before = store.port.storage.size()
    log = Path(f"{store.path}-wal")
    for batch in range(5):  # as a journal writes what came in together
        write(store.port, [long_call(f"{batch} {n}", reasoning(8 * batch + n)) for n in range(8)])
    trajectories = sum(len(reasoning(n)) for n in range(40))
    written = store.port.storage.size() - before + log.stat().st_size
    assert written < 1.0 * trajectories


def test_what_noise_is_made_of_is_not_packed(store: Store) -> None:
    dice = random.Random(5)
    noise = "".join(chr(dice.randrange(0x4E00, 0x9FFF)) for _ in range(90))
    key = recorded(store, "noise", noise)
    there = store.runs.call(key)
    assert there is not None
    assert there.answer["content"] == noise
    assert held(store) == ["text"]


@pytest.mark.parametrize("at", [2, 40, -1])
def test_a_flipped_bit_of_a_packed_answer_is_an_error_and_fsck_names_it(
    store: Store, at: int
) -> None:
    key = recorded(store, "long", reasoning(3))
    with sqlite3.connect(store.path) as db:
        (blob,) = db.execute("select answer from journal").fetchone()
        bad = bytearray(blob)
        bad[at] ^= 4
        db.execute("update journal set answer = ?", (bytes(bad),))
    db.close()
    with pytest.raises(StoreError, match="damaged"):
        store.runs.call(key)
    assert any("journal" in problem.where for problem in fsck(store).problems)


def test_a_secret_is_taken_out_of_packed_answers_and_requests(store: Store) -> None:
    long = f"{reasoning(4)} {SECRET} {reasoning(5)}"
    key = recorded(store, "long", long, request=long)
    other = recorded(store, "other", reasoning(6))
    redact(store, Target(texts=(SECRET,)), reason="leaked")
    there = store.runs.call(key)
    assert there is not None
    assert SECRET not in there.answer["content"]
    assert SECRET not in json.loads(there.request)[0][1]
    assert there.answer["content"].startswith(reasoning(4))
    assert there.answer["finish_reason"] == "redacted"
    clean = store.runs.call(other)
    assert clean is not None
    assert clean.answer["content"] == reasoning(6)
    assert held(store) == ["blob", "blob"], "still packed"
    assert fsck(store).problems == ()


def test_counted_tokens_are_found_in_packed_answers(store: Store) -> None:
    answer = {"content": reasoning(7), "finish_reason": "stop", "estimated": True}
    write(store.port, [call("a", answer=answer), call("b")])
    assert store.runs.estimated() == 1
