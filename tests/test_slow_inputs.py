"""Inputs that somebody shaped to take for ever: each is read, compared or refused in seconds."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import environment
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import add

from tfgrpo import interchange
from tfgrpo.data import readers
from tfgrpo.data.problems import Problem
from tfgrpo.data.readers import DatasetError
from tfgrpo.domains import find
from tfgrpo.interchange import UnreadableLibrary
from tfgrpo.rendering.markdown_edit import _split_identity
from tfgrpo.store import Store
from tfgrpo.store.canonical import derived_id
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history.merge import merge_words
from tfgrpo.store.history.word_diff import SMALL, hunks
from tfgrpo.store.transfer.pack import exported
from tfgrpo.store.transfer.receive import receive

ID = derived_id("a line")
LIMIT = 60
"""Seconds for what takes about one here, and took minutes to ages before."""

READ = """
import sys
from pathlib import Path
from tfgrpo import interchange
try:
    print(len(interchange.read(Path(sys.argv[1]), sys.argv[2] or None).items))
except interchange.UnreadableLibrary as error:
    print(error)
"""

INPUTS: dict[str, tuple[str, Callable[[int], str]]] = {
    "counters of a playbook": ("ace", lambda n: "- [a-1] " + "a=" * n + "\n"),
    "blanks of a playbook": ("ace", lambda n: "- [a-1] x" + " " * n + "y\n"),
    "blanks of a heading": ("ace", lambda n: "##" + " x" * 9 + " " * n + "y\n- [a-1] x\n"),
    "lines of a bullet": ("ace", lambda n: "- [a-1] x\n" + "y\n" * n),
    "blanks of a list": ("md", lambda n: "- x" + " " * n + "y\n"),
    "comments of a list": ("md", lambda n: "- x" + " <!-- 000000000000 -->" * n + " y\n"),
    "open comments": ("md", lambda n: "- x" + " <!--" * n + "\n"),
    "blank lines of a list": ("md", lambda n: "- x\n" + "\n" * n + "end\n"),
    "lines of an item": ("md", lambda n: "- x\n" + "  y\n" * n),
    "a nested list": ("md", lambda n: "".join(" " * (i % 300) + "- x\n" for i in range(n))),
    "introductions": ("md", lambda n: "a:\n\n" * (n // 5)),
    "quotations in points": ("md", lambda n: ("- > " * 15 + "x\n") * (n // 75)),
    "a wide table": ("md", lambda n: "|a" * n + "\n" + "|-" * n + "\n" + "|b\n" * 1000),
    "tags": ("md", lambda n: "<a" + " b" * n + "\n"),
    "blank lines of a configuration": ("", lambda n: "agent:\n" + " \n" * n + "x: 1\n"),
    "a skillbook": (
        "skillbook",
        lambda n: json.dumps(
            {"skills": {f"skill é {i}": {"content": f"do {i}"} for i in range(n)}}, indent=1
        ),
    ),
    "aliases": (
        "agent",
        lambda n: (
            "a0: &a0 [x, x]\n"
            + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))
            + "agent:\n  instructions: *a11\n"
        ),
    ),
    "nested JSON": ("json", lambda n: "[" * n),
}


@pytest.mark.parametrize("size", [1_000, 100_000])
@pytest.mark.parametrize("name", INPUTS)
def test_a_file_is_read_or_refused_in_seconds(tmp_path: Path, name: str, size: int) -> None:
    format, text = INPUTS[name]
    path = tmp_path / "library.md"
    path.write_text(text(size if name != "a skillbook" else min(size, 20_000)))
    done = subprocess.run(
        [sys.executable, "-c", READ, path, format],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr


def test_aliases_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("x: &x y\nagent:\n  instructions: *x\n")
    with pytest.raises(UnreadableLibrary, match=r"agent.yaml:3: .*aliases"):
        interchange.read(path, "agent")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with a name")
def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "library.md")
    with pytest.raises(UnreadableLibrary, match="pipe"):
        interchange.read(tmp_path / "library.md")


def test_a_file_beyond_all_sense_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "library.md"
    with path.open("wb") as file:
        file.truncate(10**10)
    with pytest.raises(UnreadableLibrary, match="10000 MB"):
        interchange.read(path)


DIFF = """
import random, sys
from tfgrpo.cli.printing import word_diff
from tfgrpo.store.history.merge import merge_words
dice, count, kinds = random.Random(7), int(sys.argv[1]), int(sys.argv[2])
a, b = (" ".join(f"w{dice.randrange(kinds)}" for _ in range(count)) for _ in range(2))
word_diff(a, b)
merge_words(a, b, a + " more")
"""


@pytest.mark.parametrize("kinds", [2, 40, 100_000])
@pytest.mark.parametrize("count", [100, 3_000, 30_000])
def test_texts_are_compared_by_word_in_seconds(count: int, kinds: int) -> None:
    subprocess.run([sys.executable, "-c", DIFF, str(count), str(kinds)], check=True, timeout=LIMIT)


@settings(deadline=None)  # the first of them loads a library
@given(
    st.integers(0, 10**6),
    st.integers(0, 400),
    st.integers(0, 400),
    st.integers(1, 30),
)
def test_hunks_make_the_new_text_of_the_old_one(seed: int, n: int, m: int, kinds: int) -> None:
    dice = random.Random(seed)
    old, new = ([f"w{dice.randrange(kinds)}" for _ in range(size)] for size in (n, m))
    found = hunks(old, new)
    made, at = [], 0
    for start, end, new_start, new_end in found:
        made += [*old[at:start], *new[new_start:new_end]]
        at = end
    assert made + old[at:] == new
    for one, next_ in pairwise(found):
        assert one.end <= next_.start
        assert (one.end, one.new_end) != (next_.start, next_.new_start), "neighbours are one"
    if n * m > SMALL:
        assert hunks(old, old) == []


def test_words_far_apart_still_merge_in_long_texts() -> None:
    base = [f"w{n % 700}" for n in range(5_000)]
    ours, theirs = ["new", *base], [*base, "last"]
    merged = merge_words(" ".join(base), " ".join(ours), " ".join(theirs))
    assert merged == " ".join(["new", *base, "last"])


def forked_everywhere(path: Path, versions: int) -> Store:
    """A store in which every version has two children, each of which begins a lane."""
    store = Store.init(path)
    store.port.connection.execute("pragma synchronous = off")  # type: ignore[attr-defined]
    with store.operation("grow"):
        for n in range(versions):
            store.create_branch(f"b{n}", "main")
            store.commit("main", [add(f"left {n}")], message="m", tags=[f"t{n}"])
            store.commit(f"b{n}", [add(f"right {n}")], message="m")
            store.move_branch("main", f"b{n}")
    return store


def test_what_a_version_costs_does_not_grow_with_the_forks_before_it(tmp_path: Path) -> None:
    fetching, checking = [], []
    for versions in (40, 160):
        with (
            forked_everywhere(tmp_path / f"from-{versions}.db", versions) as source,
            Store.init(tmp_path / f"to-{versions}.db") as target,
        ):
            asked: list[str] = []
            target.port.connection.set_trace_callback(asked.append)  # type: ignore[attr-defined]
            with target.port.transaction():
                receive(target.port, exported(source.port, range(1, 2 * versions + 1)))
            fetching.append(len(asked) / versions)
            asked.clear()
            assert fsck(target).problems == ()
            checking.append(len(asked) / versions)
            target.port.connection.set_trace_callback(None)  # type: ignore[attr-defined]
            for number in (versions, 2 * versions):
                digest = source.version(number).digest
                assert target.library(digest.hex()[:12]) == source.library(f"v{number}")
    assert fetching[1] < 1.5 * fetching[0], fetching
    assert checking[1] < 1.5 * checking[0], checking


@pytest.mark.parametrize("times", [1, 10, 100])
@pytest.mark.parametrize("unit", [" ", "<!-- ", "a <!--", "-->", "<!-- x -->"])
def test_a_line_with_an_id_is_read_in_its_length(times: int, unit: str) -> None:
    """100 times as long took 10,000 times as long."""
    text = "a" + unit * 2_000 * times
    started = time.process_time()
    for end in ("", "b", f"<!-- {ID} -->", f"<!-- {ID}" + " " * 2_000 * times):
        _split_identity(text + end)
    assert time.process_time() - started < 10


def test_the_id_at_the_end_of_a_line_is_split_off() -> None:
    assert _split_identity(f"Round up. <!-- {ID} -->") == ("Round up.", ID)
    assert _split_identity(f"Round up.<!--{ID}-->  ") == ("Round up.", ID)
    for text in (f"Round up. <!-- {ID}", "Round up. <!-- no id -->", f"<!-- {ID} --> up", ID):
        assert _split_identity(text) == (text, None)


@pytest.mark.parametrize("name", ["pipe.jsonl", "pipe.csv", "pipe.gz", "pipe.parquet"])
def test_data_that_is_a_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(DatasetError, match="is a pipe or a device"):
        list(readers.read(tmp_path / name))


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/dev/tty"])
def test_data_that_is_a_device_is_refused_at_once(path: str) -> None:
    with pytest.raises(DatasetError, match="is a pipe or a device"):
        list(readers.read(Path(path)))


LONG_RESPONSES = {
    "newlines": "It is so." + "\n" * 30_000 + "\nLabel: billing",
    "spaces": "It is so." + " " * 30_000 + "x\nLabel: billing",
    "spaces before a line": "It is so." + " " * 30_000 + "\nLabel: billing",
    "begun boxes": r"\boxed{" * 14_000 + r"\boxed{billing}",
    "boxes": r"\boxed{billing} x " * 6_000,
    "braces": "{" * 100_000,
    "objects": '{"a":1}\n' * 12_000,
    "blocks": "```\n{}\n```\n" * 9_000,
    "quotes": '"' * 100_000,
    "escaped quotes": '{"a":"' + r"\"" * 50_000,
    "digits": "1" * 100_000,
    "ends": "</s>" * 25_000 + "x",
    "marks of an end": "<|end|>" * 14_000,
}


@pytest.mark.parametrize("kind", LONG_RESPONSES)
@pytest.mark.parametrize("spec", ['choice:["billing","shipping"]', "exact", "json", "math"])
def test_a_long_response_is_judged_at_once(kind: str, spec: str) -> None:
    verify = find(spec).function
    assert verify is not None
    gold = {"json": '{"a": 1}', "math": "42"}.get(spec, "billing")
    begun = time.process_time()
    verify(Problem("p", "?", gold), LONG_RESPONSES[kind])
    assert time.process_time() - begun < 2
