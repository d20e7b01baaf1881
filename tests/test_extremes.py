"""Texts of megabytes, names by the thousand, histories with many merges: work follows the change.

Nothing here is a matter of luck with time: what is counted is work, or took minutes before.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, environment
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.cli import printing
from tfgrpo.cli.printing import Word
from tfgrpo.store import Store, store_path
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history import bisect
from tfgrpo.store.history.merge import merge_words
from tfgrpo.store.history.revisions import _near
from tfgrpo.store.history.walks import row_within
from tfgrpo.store.history.word_diff import Hunk, hunks

COMPARED = """
import random
from tfgrpo.rendering.markdown_edit import _likeness
dice = random.Random(7)
words = [f"w{dice.randrange(1_000_000):06d}" for _ in range(400_000)]
text = " ".join(words)
assert _likeness(text, " ".join([*words[:-1], "end"])) > 99
"""


@pytest.fixture
def extremes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import extremes

    return extremes


def test_texts_of_megabytes_are_told_to_be_alike_in_seconds() -> None:
    subprocess.run([sys.executable, "-c", COMPARED], check=True, env=environment(), timeout=300)


def test_changes_that_lie_far_apart_are_two_hunks() -> None:
    old = [f"w{number}" for number in range(30_000)]
    new = [*old[:10], "x", *old[11:29_000], "y", "z", *old[29_001:]]
    assert hunks(old, new) == [Hunk(10, 11, 10, 11), Hunk(29_000, 29_001, 29_000, 29_002)]
    assert merge_words(" ".join(old), " ".join(new), " ".join(["a", *old[1:]])) == " ".join(
        ["a", *new[1:]]
    )


@pytest.mark.parametrize("kinds", [2, 50, 100_000])
def test_hunks_of_long_texts_make_the_new_one_of_the_old(kinds: int) -> None:
    dice = random.Random(kinds)
    old, new = ([f"w{dice.randrange(kinds)}" for _ in range(size)] for size in (5000, 4000))
    made: list[str] = []
    at = 0
    for start, end, new_start, new_end in hunks(old, new):
        made += [*old[at:start], *new[new_start:new_end]]
        at = end
    assert [*made, *old[at:]] == new


def test_a_search_counts_a_history_of_merges_once() -> None:
    asked = 0

    def parents(number: int) -> tuple[int, ...]:
        nonlocal asked
        asked += 1
        if number < 3:
            return (number - 1,) if number else ()
        # every third is a merge of the one before and of a branch of one version
        return {0: (number - 1, number - 2), 1: (number - 1,), 2: (number - 2,)}[number % 3]

    among = range(1, 9001)
    counts = bisect.reach(parents, among)
    assert counts[9000] == sum(1 for _ in bisect.ancestor_numbers(parents, [9000])) - 1
    assert asked < 20 * len(among)


@given(st.sets(st.integers(0, 200)), st.integers(0, 200))
def test_a_row_is_found_among_ranges(ends: set[int], row: int) -> None:
    edges = sorted(ends)
    ranges = list(zip(edges[::2], edges[1::2], strict=False))
    assert row_within(row, ranges) == any(after < row <= upto for after, upto in ranges)


def by_word(line: list[Word], limit: int, first: str, indent: int) -> list[str]:
    """Wraps word by word, in the plainest way there is."""
    lines, current, room, fresh = [], first, limit - len(first), True
    for word in line:
        space = 0 if fresh or word.glue else 1
        if not fresh and not word.glue and len(word.text) + space > room:
            lines.append(current)
            current, room, space = " " * indent, limit - indent, 0
        current += " " * space + word.text
        room -= space + len(word.text)
        fresh = False
    return [*lines, current]


@given(
    st.lists(st.tuples(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.booleans())),
    st.integers(5, 40),
    st.integers(0, 4),
)
def test_several_words_wrap_as_each_of_them_would(
    runs: list[tuple[list[int], bool]], limit: int, indent: int
) -> None:
    together = [Word(" ".join("x" * n for n in sizes), glue=glue) for sizes, glue in runs]
    apart = [
        Word("x" * n, glue=glue and not at) for sizes, glue in runs for at, n in enumerate(sizes)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(printing, "width", lambda: limit)
        assert printing.wrap(together, first="ab", indent=indent) == by_word(
            apart, limit, "ab", indent
        )


def test_a_misspelt_name_is_found_among_thousands(tmp_path: Path) -> None:
    with Store.init(tmp_path / "store.db", author="you") as store:
        names = [(f"tags/run{number:05d}/step_1", 0, None) for number in range(3000)]
        store.move_names([*names, ("tags/approved", 0, None)], "many")
        assert _near(store, "aproved") == "did you mean approved?"


def test_the_stores_of_the_benchmark_are_sound(tmp_path: Path, extremes) -> None:
    for name, make, size in (
        ("long", extremes.make_long, 0.002),
        ("wide", extremes.make_wide, 60),
        ("deep", extremes.make_deep, 2500),
    ):
        make(tmp_path / name, size)
        with Store.open(store_path(tmp_path / name)) as store:
            assert fsck(store).problems == ()
