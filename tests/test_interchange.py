"""Libraries in files: what is read, what becomes of it, and that reading twice changes nothing."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfgrpo.interchange import Item, UnreadableLibrary, operations, read
from tfgrpo.render import FORMATS, Format, formatted
from tfgrpo.store import ROOT, Experience, Library, Operation, Store, derived_id

words = (
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
    .map(lambda text: " ".join(text.split()))
    .filter(bool)
)
FILES = tempfile.TemporaryDirectory(prefix="interchange-")  # gone when the tests are
texts = st.lists(words, min_size=1, max_size=6, unique=True)


def library(found: Sequence[str]) -> Library:
    return Library(ROOT, tuple(Experience(derived_id(n), t, n) for n, t in enumerate(found)))


def written(content: str | bytes) -> Path:
    path = Path(tempfile.mkdtemp(dir=FILES.name)) / "library.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def after(there: Library, found: Sequence[Operation]) -> Library:
    """Returns the library with operations applied, by a store of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Store.init(Path(folder) / "store.db") as store,
    ):
        store.commit("main", [Operation("ADD", e.id, e.text) for e in there], message="there")
        store.commit("main", found, message="import")
        return store.library()


@pytest.mark.parametrize("format", FORMATS)
@given(found=texts)
@settings(max_examples=60, deadline=None)
def test_what_was_exported_is_read_back_and_changes_nothing(
    format: Format, found: list[str]
) -> None:
    there = library(found)
    path = written(formatted(there, format))
    items = read(path)
    assert [item.text for item in items] == found
    assert operations(there, items, path) == []
    if format == "md":
        assert [item.id for item in items] == [e.id for e in there]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("text", ["Two  blanks, then three   of them.", "A line\nand another."])
def test_texts_with_other_white_space_than_blanks_come_back_as_no_change(
    format: Format, text: str
) -> None:
    there = library([text, "Another."])
    path = written(formatted(there, format))
    assert operations(there, read(path), path) == []


def test_markdown_with_a_changed_text_changes_that_very_experience() -> None:
    there = library(["Add one.", "Carry the ten."])
    path = written(formatted(there, "md").replace("Add one.", "Add one more."))
    (found,) = operations(there, read(path), path)
    assert found[:3] == ("MODIFY", derived_id(0), "Add one more.")


def test_a_file_never_deletes_and_says_where_its_texts_come_from() -> None:
    there = library(["Add one.", "Carry the ten."])
    path = written('{"G0": "New advice."}')
    (found,) = operations(there, read(path), path)
    assert found == Operation(
        "ADD",
        None,
        "New advice.",
        evidence={
            "source": "library.txt",
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        },
    )


def test_an_id_that_the_library_does_not_hold_is_no_identity_here() -> None:
    path = written(f"- New advice. <!-- {derived_id('elsewhere')} -->\n")
    (found,) = operations(library(["Add one."]), read(path), path)
    assert found[:3] == ("ADD", None, "New advice.")


lines = st.dictionaries(st.integers(0, 7), st.sampled_from("abcdef"), min_size=1, max_size=8)


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True), lines)
@settings(max_examples=15, deadline=None)
def test_a_library_holds_all_of_a_file_after_reading_it_and_reading_it_again_does_nothing(
    found: list[str], edited: dict[int, str]
) -> None:
    there = library(found)
    content = "".join(f"- {text} <!-- {derived_id(n)} -->\n" for n, text in edited.items())
    path = written(content)
    items = read(path)
    result = after(there, operations(there, items, path))
    assert {item.text for item in items} <= {e.text for e in result}
    assert operations(result, items, path) == []


READABLE = {
    "the reference implementation's object": ('{"G0": "a b", "G1": "c"}', ["a b", "c"]),
    "a list": ('["a b", "c"]', ["a b", "c"]),
    "blank and repeated texts": ('{"G0": "a", "G1": " ", "G2": "a"}', ["a"]),
    "lines in a text": ('{"G0": "a\\n  b"}', ["a b"]),
    "a byte order mark": (b'\xef\xbb\xbf{"G0": "a"}', ["a"]),
    "Markdown by hand": ("# Rules\n\n- a\n* b\n  - c\nNot this.\n", ["a", "b", "c"]),
    "Windows line ends": ("- a\r\n- b\r\n", ["a", "b"]),
    "prompt text": ("[G0] a\n[G1] b\n", ["a", "b"]),
    "labels with dots and colons": ("G0. a\nG1: b\n", ["a", "b"]),
}


@pytest.mark.parametrize(("content", "expected"), READABLE.values(), ids=READABLE)
def test_libraries_are_told_apart_by_their_content(
    content: str | bytes, expected: list[str]
) -> None:
    assert [item.text for item in read(written(content))] == expected


def test_a_comment_that_is_no_id_is_no_identity() -> None:
    assert read(written("- a <!-- todo -->\n")) == (Item("a"),)


UNREADABLE = {
    "empty": "",
    "no list": "Just a sentence.\n",
    "an empty object": "{}",
    "JSON cut off": '{"G0": "a", "G1',
    "numbers": '{"G0": 5}',
    "objects": json.dumps({"G0": {"text": "a"}}),
    "not UTF-8": b"\xff\xfe\x00",
    "brackets without end": "[" * 100_000,
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_file_that_holds_no_library_is_refused_by_name(content: str | bytes) -> None:
    path = written(content)
    with pytest.raises(UnreadableLibrary, match=r"library\.txt") as caught:
        read(path)
    assert caught.value.hint


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UnreadableLibrary) as caught:
            read(path)
        assert caught.value.hint
