"""Libraries in files: what survives each format, and that reading twice changes nothing."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from conftest import ROOT
from hypothesis import given, settings
from hypothesis import strategies as st
from store_helpers import add

from tfgrpo import interchange
from tfgrpo.interchange import UnreadableLibrary
from tfgrpo.interchange.format_types import Format
from tfgrpo.interchange.formats import markdown
from tfgrpo.interchange.incoming_versions import Imported, bring_in
from tfgrpo.rendering.experience_texts import one_line
from tfgrpo.store import Experience, Operation, Store, derived_id
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history.library_order import ids_of

FILES = tempfile.TemporaryDirectory(prefix="interchange-")  # gone when the tests are
WRITTEN = [interchange.named(name) for name in interchange.written()]
FULL = [f for f in WRITTEN if f.keeps != "history"]

BREAKS = ["\n", "\n\n", "  ", "\t", "\r\n", "\u2028", "\x85", "\x00", "\x07", "\ufeff"]
MARKUP = ["- ", "* ", "# ", "## ", "```\n", "---\n", "<br>", "{", '"', "'", ": ", "\\", "&#10;"]
MARKS = ["&amp;#9;", "<!-- ", " -->", "<!-- 0123456789ab -->", "[G0] ", "\n[G1]. ", "é", "日本"]
HARD = st.sampled_from([*BREAKS, *MARKUP, *MARKS, "[shr-00001] helpful=1 :: "])
texts = st.lists(
    st.lists(HARD | st.text(st.characters(codec="utf-8"), max_size=8), min_size=1, max_size=7)
    .map("".join)
    .filter(lambda text: text.strip()),
    min_size=1,
    max_size=5,
    unique_by=one_line,
)


@contextmanager
def store_of(*found: str) -> Iterator[Store]:
    """A store whose library holds these texts."""
    with (
        tempfile.TemporaryDirectory(dir=FILES.name) as folder,
        Store.init(Path(folder) / "store.db", author="me") as store,
    ):
        if found:
            store.commit("main", [add(text) for text in found], message="there")
        yield store


def written(content: str | bytes, name: str = "library.txt") -> Path:
    path = Path(tempfile.mkdtemp(dir=FILES.name)) / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def bring(store: Store, path: Path, branch: str = "main", *, again: bool = False) -> Imported:
    return bring_in(store, interchange.read(path), branch, again=again)


def saved(store: Store, format: str, revision: str = "HEAD") -> Path:
    path = written("", f"library.{interchange.named(format).ending}")
    interchange.save(store, path, revision, format)
    return path


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """A store in which every example has branches of its own."""
    with store_of() as found:
        yield found


def branch(store: Store, *found: str) -> str:
    """Makes a branch whose library holds these texts and nothing else."""
    name = f"b{len(store.branches())}"
    store.create_branch(name, "v0")
    if found:
        store.commit(name, [add(text) for text in found], message="there")
    return name


@pytest.mark.parametrize("format", FULL, ids=lambda f: f.name)
@given(found=texts)
@settings(max_examples=40, deadline=None)
def test_an_exported_library_comes_back_equal_in_an_empty_one(
    format: Format, store: Store, found: list[str]
) -> None:
    there, here = branch(store, *found), branch(store)
    path = saved(store, format.name, there)
    assert interchange.read(path).format == format.name
    bring(store, path, here)
    if format.keeps == "ids":
        assert store.library(here) == store.library(there)
    else:
        same = one_line if format.keeps == "words" else str
        assert [same(e.text) for e in store.library(here)] == [same(text) for text in found]


@pytest.mark.parametrize("format", WRITTEN, ids=lambda f: f.name)
@given(found=texts)
@settings(max_examples=20, deadline=None)
def test_reading_an_export_back_makes_no_version_neither_here_nor_twice_elsewhere(
    format: Format, store: Store, found: list[str]
) -> None:
    there, here = branch(store, *found), branch(store)
    path = saved(store, format.name, there)
    assert bring(store, path, there).versions == ()
    assert len(bring(store, path, here).versions) == 1
    assert bring(store, path, here).versions == ()


@given(texts)
@settings(max_examples=150, deadline=None)
def test_a_list_item_gives_back_its_text_and_id_to_the_letter(found: list[str]) -> None:
    for one in (False, True):
        content = "".join(
            markdown.written(Experience(derived_id(n), text, n), one_line=one) + "\n"
            for n, text in enumerate(found)
        )
        if one:
            assert content.count("\n") == len(found)
        items = list(markdown.items(content.split("\n")))
        assert [(i.id, i.text) for i in items] == [(derived_id(n), t) for n, t in enumerate(found)]


def test_json_is_the_flat_object_of_labels_and_texts() -> None:
    with store_of("Add: one.", 'Say "two".') as store:
        content = "".join(interchange.export(store, "HEAD", "json"))
    assert content.endswith("}\n")
    assert list(json.loads(content).items()) == [("G0", "Add: one."), ("G1", 'Say "two".')]


def test_markdown_has_a_line_for_each_experience_with_its_id_and_its_lines_below() -> None:
    with store_of("Add one.", "Do:\n- this\n\n- that") as store:
        lines = "".join(interchange.export(store, "HEAD", "md")).split("\n")
        first, second = (e.id for e in store.library())
        assert lines[0] == f"# Library v1 ({store.tip('main').digest.hex()[:12]})"
    assert lines[2] == f"- Add one. <!-- {first} -->"
    assert lines[3:] == ["- Do:", "  - this", "", f"  - that <!-- {second} -->", ""]


def test_a_whole_history_comes_back_with_the_same_operations() -> None:
    with store_of("Add one.", "Round up.") as there, store_of() as here:
        ids = [e.id for e in there.library()]
        there.commit(
            "main",
            [
                Operation("MODIFY", ids[0], "Add two.", "it was wrong", {"run": "r", "step": 2}),
                Operation("KEEP", ids[1]),
            ],
            message="better",
        )
        there.commit("main", [Operation("DELETE", ids[1], reason="of no use")], message="fewer")
        path = saved(there, "events")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [row["op"] for row in rows] == ["ADD", "ADD", "MODIFY", "KEEP", "DELETE"]
        assert rows[2]["evidence"] == {"run": "r", "step": 2}
        assert rows[2]["author"] == "me"
        versions = bring(here, path).versions
        assert [v.message for v in versions] == ["there", "better", "fewer"]
        assert here.library() == there.library()
        assert [(e.op, e.experience, e.text, e.reason) for e in here.events(versions[1])] == [
            ("MODIFY", ids[0], "Add two.", "it was wrong"),
            ("KEEP", ids[1], None, None),
        ]
        said = versions[1].meta["import"]
        assert said["version"] == there.resolve("HEAD~1").digest.hex()
        assert said["author"] == "me"
        assert here.events(versions[1])[0].evidence == {
            "run": "r",
            "step": 2,
            "import": {k: v for k, v in said.items() if k not in ("author", "time")},
        }
        assert not fsck(here).problems
        there.commit("main", [add("Mind the gap.")], message="more")
        assert [v.message for v in bring(here, saved(there, "events")).versions] == ["more"]


def test_a_history_has_the_moves_of_its_library() -> None:
    with store_of("One.", "Two.", "Three.") as there, store_of() as here:
        one, two, three = (e.id for e in there.library())
        there.commit("main", [], message="last first", order=[three, one, two])
        there.commit("main", [add("Four.")], message="more")
        there.commit("main", [Operation("DELETE", one)], message="back", order=[two, three])
        path = saved(there, "events")
        assert bring(here, path).versions[-1].message == "back"
        for n in range(4):
            assert ids_of(here.library(f"HEAD~{n}")) == ids_of(there.library(f"HEAD~{n}"))
        assert bring(here, path).versions == ()
        assert not fsck(here).problems
        text = path.read_text().replace(three, "x")
        with pytest.raises(UnreadableLibrary):
            bring(here, written(text, "h.jsonl"))


def test_a_history_that_cannot_apply_is_refused_whole_with_its_line() -> None:
    with store_of("Add one.") as there, store_of("Another.") as here:
        there.commit("main", [Operation("KEEP", there.library().labels["G0"])], message="keep")
        lines = saved(there, "events").read_text().splitlines()
        path = written("\n".join([lines[0].replace("ADD", "MODIFY"), lines[1]]), "h.jsonl")
        with pytest.raises(UnreadableLibrary, match=r"h\.jsonl:1: MODIFY of \w+"):
            bring(here, path)
        assert here.head.version.number == 1


def test_a_version_says_which_file_it_is_from_and_no_folder() -> None:
    with store_of() as store:
        path = written('{"G0": "New advice."}', "experiences.json")
        (version,) = bring(store, path).versions
        provenance = {
            "source": "experiences.json",
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "format": "json",
        }
        assert version.meta == {"import": provenance}
        (event,) = store.events(version)
        assert event.evidence == {"label": "G0", **provenance}
        assert version.message == "import experiences.json"


def test_the_same_text_gets_the_same_id_in_every_store() -> None:
    path = written("- New advice.\n")
    with store_of() as a, store_of("Other.") as b:
        bring(a, path)
        bring(b, path)
        assert next(iter(a.library())).id in b.library().by_id


def test_what_later_versions_decided_stands_unless_asked_for_again() -> None:
    path = written('{"G0": "Add one.", "G1": "Round up."}')
    with store_of() as store:
        bring(store, path)
        first, second = (e.id for e in store.library())
        store.commit(
            "main",
            [Operation("MODIFY", first, "Add two."), Operation("DELETE", second)],
            message="later",
        )
        found = bring(store, path)
        assert found.versions == ()
        assert found.left == (first, second)
        assert [e.text for e in store.library()] == ["Add two."]
        bring(store, path, again=True)
        assert [e.text for e in store.library()] == ["Add one.", "Round up."]


@pytest.mark.parametrize("format_", ["json", "skill"])
def test_what_was_taken_back_stays_so_in_files_without_ids(format_: str) -> None:
    with store_of("Add one.", "Round up.", "Use hours.") as store:
        path = saved(store, format_)
        first, second, third = (e.id for e in store.library())
        store.commit(
            "main",
            [Operation("MODIFY", first, "Add two."), Operation("DELETE", second)],
            message="later",
        )
        found = bring(store, path)
        assert (found.versions, found.left) == ((), (first, second))
        assert [e.text for e in store.library()] == ["Add two.", "Use hours."]
        bring(store, path, again=True)
        assert {e.id: e.text for e in store.library()} == {
            first: "Add one.",
            second: "Round up.",
            third: "Use hours.",
        }


def test_an_old_export_does_not_take_back_what_was_modified_since() -> None:
    with store_of("Add one.", "Round up.") as store:
        path = saved(store, "md")
        id = store.library().labels["G0"]
        store.commit("main", [Operation("MODIFY", id, "Add two.")], message="later")
        path.write_text(path.read_text().replace("Round up.", "Round up to euros."))
        (version,) = bring(store, path).versions
        assert [event.op for event in store.events(version)] == ["MODIFY"]
        assert [e.text for e in store.library()] == ["Add two.", "Round up to euros."]


def test_a_file_never_deletes_and_changes_by_id() -> None:
    with store_of("Add one.", "Carry the ten.") as store:
        id = store.library().labels["G0"]
        bring(store, written(f"- Add one more. <!-- {id} -->\n"))
        assert [e.text for e in store.library()] == ["Add one more.", "Carry the ten."]
        assert next(iter(store.library())).id == id


def test_one_id_twice_in_a_file_is_two_experiences() -> None:
    with store_of() as store:
        id = derived_id(1)
        bring(store, written(f"- One. <!-- {id} -->\n- Two. <!-- {id} -->\n"))
        assert [e.text for e in store.library()] == ["One.", "Two."]


READABLE = {
    "the reference implementation's object": ('{"G0": "a b", "G1": "c"}', ["a b", "c"]),
    "a list": ('["a b", "c"]', ["a b", "c"]),
    "blank and repeated texts": ('{"G0": "a", "G1": " ", "G2": "a"}', ["a"]),
    "lines in a text": ('{"G0": "a\\n  b"}', ["a\n  b"]),
    "a byte order mark": (b'\xef\xbb\xbf{"G0": "a"}', ["a"]),
    "Markdown by hand": ("# Rules\n\n- a\n* b\n  - c\n\nThis too.\n", ["a", "b", "c", "This too."]),
    "a numbered list": ("1. a\n2. b\n", ["a", "b"]),
    "wrapped Markdown": ("- a long\n  text\n- b\n", ["a long text", "b"]),
    "Windows line ends": ("- a\r\n- b\r\n", ["a", "b"]),
    "a comment that is no id": ("- a <!-- todo -->\n", ["a"]),
    "prompt text": ("[G0] a\n[G1] b\n", ["a", "b"]),
    "labels with dots and colons": ("G0. a\nG1: b\n", ["a", "b"]),
    "an agent": (
        'agent:\n  name: x\n  instructions: "Do.\\n[G0]. a\\n[G1]. b"\n',
        ["a", "b"],
    ),
    "a playbook": ("## S\n[shr-00001] a\n\n[shr-00002] helpful=3 harmful=0 :: b\n", ["a", "b"]),
    "a skillbook": (
        '{"skills": {"s-1": {"content": "a"}, "s-2": {"content": "b", "status": "invalid"}}}',
        ["a"],
    ),
    "a skill": ("---\nname: x\ndescription: y\n---\n# X\n\n- a\n- b\n", ["a", "b"]),
    "rows of content": ('{"id": "x-1", "content": "a"}\n{"content": "b", "n": 2}\n', ["a", "b"]),
}


@pytest.mark.parametrize(("content", "expected"), READABLE.values(), ids=READABLE)
def test_formats_are_told_apart_by_their_content(content: str | bytes, expected: list[str]) -> None:
    with store_of() as store:
        bring(store, written(content))
        assert [e.text for e in store.library()] == expected


def test_a_playbooks_sections_and_counters_are_kept_and_written_again() -> None:
    with store_of() as store:
        bring(store, written("## VERIFY\n[chk-00007] helpful=3 harmful=1 :: Check twice.\n"))
        (experience,) = store.library()
        assert store.history(experience.id)[0].evidence is not None
        evidence = store.history(experience.id)[0].evidence or {}
        assert {k: evidence[k] for k in ("bullet", "section", "helpful", "harmful")} == {
            "bullet": "chk-00007",
            "section": "VERIFY",
            "helpful": 3,
            "harmful": 1,
        }
        store.commit("main", [Operation("KEEP", experience.id)], message="keep")
        assert saved(store, "ace").read_text() == (
            "## VERIFY\n[chk-00007] helpful=4 harmful=1 :: Check twice.\n\n"
        )


def test_an_agent_is_yaml_with_instructions_and_no_model_or_key() -> None:
    with store_of("Add: one.", "Round # up.") as store:
        content = "".join(interchange.export(store, "HEAD", "agent", name="accountant"))
    found = yaml.safe_load(content)
    assert found.keys() == {"defaults", "type", "agent"}
    assert found["agent"]["name"] == "accountant"
    assert found["agent"]["instructions"].endswith("\n[G0]. Add: one.\n[G1]. Round # up.")


def test_a_skill_has_front_matter_and_says_so_in_the_version_it_makes() -> None:
    with store_of("Add one.") as there, store_of() as here:
        path = written("", "SKILL.md")
        interchange.save(there, path, "HEAD", "skill", name="sums", description="Add: up.")
        front = yaml.safe_load(path.read_text().split("---\n")[1])
        assert front == {"name": "sums", "description": "Add: up."}
        (version,) = bring(here, path).versions
        assert version.meta["import"]["skill_name"] == "sums"


SKILLS: dict[str, str] = {
    "plain": "name: sums\ndescription: Add up.\n",
    "a name that cannot be one": 'name: "My Skill: Sums!"\ndescription: x\n',
    "a long description": f"name: sums\ndescription: {'word ' * 400}\n",
    "hyphens, quotes, lines": 'name: sums\ndescription: |\n  a --- b: "c" # d\n  --- e\n  - f\n',
    "fields of one agent": "name: sums\ndescription: x\nmodel: opus\nhooks: [{a: [1, {}]}]\n",
    "all there is": (
        "name: sums\ndescription: x\nlicense: MIT\ncompatibility: 3.5\n"
        "allowed-tools: [Bash, Read]\nmetadata: {version: 1.0, empty: {}, on: 2026-01-01}\n"
    ),
    "numbers and nothing": "name: 2026\ndescription: null\nlicense: null\nmetadata: []\n",
}


@pytest.mark.parametrize("front", SKILLS.values(), ids=SKILLS)
def test_a_skill_passes_the_reference_validator_whatever_was_imported(front: str) -> None:
    from skills_ref import read_properties, validate

    with store_of() as store:
        bring(store, written(f"---\n{front}---\n- Add one.\n- Round --- up.\n", "SKILL.md"))
        path = Path(tempfile.mkdtemp()) / "new/SKILL.md"
        path.parent.mkdir()
        interchange.save(store, path, "HEAD", "skill")
        named = str(read_properties(path.parent).name)
        path.parent.rename(folder := path.parent.with_name(named))
        assert validate(folder) == []
        assert (folder / "SKILL.md").read_text().endswith("-->\n")
        again = interchange.read(folder / "SKILL.md")
        assert [item.text for item in again.items] == ["Add one.", "Round --- up."]


def test_a_skill_is_named_as_its_folder_or_as_was_asked_for() -> None:
    from skills_ref import validate

    with store_of("Add one.") as store:
        for folder, name in (("bike-hire", None), ("été-2026", None), ("sums", "sums")):
            path = Path(tempfile.mkdtemp()) / folder / "SKILL.md"
            path.parent.mkdir()
            interchange.save(store, path, "HEAD", "skill", name=name)
            assert validate(path.parent) == []
        for wrong in ("Sums", "a--b", "-a", "a_b", "x" * 65, ""):
            with pytest.raises(UnreadableLibrary, match="cannot name a skill"):
                interchange.save(store, path, "HEAD", "skill", name=wrong)
        with pytest.raises(UnreadableLibrary, match="characters"):
            interchange.save(store, path, "HEAD", "skill", description="x" * 1025)


UNREADABLE: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "library.txt: contains no experiences"),
    "no list": ("Just a sentence.\n", "library.txt: contains no experiences"),
    "an empty object": ("{}", "library.txt: contains no experiences"),
    "JSON cut off": ('{"G0": "a",\n"G1', "library.txt:2: not JSON"),
    "numbers": ('{"G0": "a",\n "G1": 5}', "library.txt:2: 'G1' is no text"),
    "objects": (json.dumps({"G0": {"text": "a"}}), "library.txt:1: 'G0' is no text"),
    "a label twice": ('{"G0": "a",\n"G0": "b"}', "library.txt:1: has 'G0' twice"),
    "not UTF-8": (b"- a\n\xff\xfe\x00", "library.txt:2: not UTF-8"),
    "brackets without end": ("[" * 100_000, "library.txt:1: not JSON"),
    "YAML cut off": ('agent:\n  instructions: "[G0]. a', "library.txt:2: not YAML"),
    "YAML with a control character": ("agent:\n  instructions: \x01\n", "library.txt:1: not YAML"),
    "no instructions": ("agent:\n  instructions: 5\n", "library.txt:2: has no agent.instr"),
    "an agent without experiences": (
        "agent:\n  instructions: Do.\n",
        "library.txt:2: has no experiences",
    ),
    "front matter that is no YAML": ("---\n\tname: a\n---\n- a\n", "library.txt:2: not YAML"),
    "a row without a text": ('{"text": "a"}\n{"x": 1}\n', "library.txt:2: has no text"),
    "rows of something else": ('{"x": 1}\n{"x": 2}\n', "library.txt:1: has no text"),
    "a row cut off": ('{"text": "a"}\n{"te', "library.txt:2: not JSON"),
    "a bullet without a text": ("[shr-00001] a\n[shr-00002]\n", "library.txt:2: shr-00002 has"),
    "a skill without content": ('{"skills": {\n"s-1": {}}}', "library.txt:2: skill 's-1' has"),
    "an unknown operation": (
        '{"version": "v", "op": "RENAME", "experience": "0123456789ab"}\n',
        "library.txt:1: there is no operation 'RENAME'",
    ),
    "an event without an id": (
        '{"version": "v", "op": "ADD", "text": "a", "experience": "x"}\n',
        "library.txt:1: 'x' is not an experience id",
    ),
}


@pytest.mark.parametrize(("content", "said"), UNREADABLE.values(), ids=UNREADABLE)
def test_a_bad_file_gives_one_line_with_the_place(content: str | bytes, said: str) -> None:
    path = written(content)
    with pytest.raises(UnreadableLibrary) as caught:
        interchange.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path.parent}/{said}")
    assert "\n" not in message
    assert caught.value.hint


def test_a_format_can_be_forced() -> None:
    path = written("[G0] a\n- b\n")
    assert [i.text for i in interchange.read(path).items] == ["a - b"]
    assert [i.text for i in interchange.read(path, "md").items] == ["[G0] a", "b"]
    with pytest.raises(UnreadableLibrary, match="unknown format 'xml'"):
        interchange.read(path, "xml")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UnreadableLibrary) as caught:
            interchange.read(path)
        assert caught.value.hint


def test_a_format_that_is_only_read_is_not_written() -> None:
    with store_of("a") as store, pytest.raises(UnreadableLibrary, match="not to write"):
        interchange.export(store, "HEAD", "skillbook")


def test_a_redacted_text_neither_leaves_nor_comes_back() -> None:
    with store_of("The key is hunter2.", "Round up.") as store, store_of() as here:
        before = saved(store, "md")
        event = next(iter(store.library()))
        connection = store.port.connection  # type: ignore[attr-defined]
        connection.execute(
            "insert into redactions (event, author, time, reason) values (?, 'me', 1, 'leak')",
            (event.row,),
        )
        connection.execute(
            "update events set text = null, reason = null, salt = null where row = ?",
            (event.row,),
        )
        for format in WRITTEN:
            assert "hunter2" not in saved(store, format.name).read_text()
        assert bring(store, saved(store, "md")).versions == ()
        bring(here, saved(store, "md"))
        assert [e.text for e in here.library()] == ["Round up."]
        assert "hunter2" in before.read_text()
        found = bring(store, before)
        assert (found.versions, found.left) == ((), (event.id,))


def test_the_page_of_formats_lists_each_with_what_survives() -> None:
    page = (ROOT / "docs/formats.md").read_text()
    for format in interchange.available().values():
        row = re.search(rf"^\| `{format.name}` \|.*\|$", page, re.MULTILINE)
        assert row, format.name
        assert f"| {format.keeps} |" in row[0]
        assert ("read only" in row[0]) == (format.write is None)


NO_NUMBERS = {
    "rows": '{"text": "a", "score": NaN}\n{"text": "b", "score": -Infinity}\n',
    "huge": '{"text": "a", "score": 1e999}\n{"text": "b"}\n',
    "mem0": '{"results": [{"memory": "a", "id": "1", "metadata": {"score": NaN}}]}',
    "skill": "---\nname: a\nscore: .nan\nmetadata:\n  held: [.inf, 1.5]\n---\n- a\n",
    "agent": "agent:\n  instructions: |\n    [G0]. a\n  temperature: .nan\n",
    "a history": '{"version": "v", "op": "ADD", "experience": "0123456789ab", "text": "a", '
    '"evidence": {"reward": [NaN, 1.5]}}\n',
}


@pytest.mark.parametrize("name", NO_NUMBERS)
def test_what_is_no_number_in_a_file_is_none_in_the_store(name: str) -> None:
    with store_of() as store:
        path = written(NO_NUMBERS[name])
        assert bring(store, path).versions
        assert not bring(store, path).versions
        assert not fsck(store).problems
        for format in interchange.written():
            saved(store, format)


HALF = {
    "a row": ('{"text": "a"}\n{"text": "b\\ud800"}\n', 2),
    "a short value": ('{"text": "a"}\n{"text": "b", "by": "\\uDC00"}\n', 2),
    "a name of a value": ('{"text": "a"}\n{"text": "b", "b\\udc00": "c"}\n', 2),
    "a label's text": ('{"G0": "\\ud83d\\ude00",\n"G1": "x\\ud83d"}', 2),
    "a label": ('{"G0": "a",\n"\\ude00\\ud83d": "x"}', 2),
    "a list": ('["a",\n"x\\ud83d"]', 2),
    "mem0": ('{"results": [{"memory": "a", "id": "1",\n"metadata": {"by": "\\ud800"}}]}', None),
    "a skill": ('---\nname: a\nby: "\\ud800"\n---\n- a\n', 3),
    "a history": (
        '{"version": "v", "op": "ADD", "experience": "0123456789ab", "text": "a", '
        '"evidence": {"by": ["\\ud800"]}}\n',
        1,
    ),
    "a message": (
        '{"version": "v", "op": "ADD", "experience": "0123456789ab", "text": "a", '
        '"message": "\\ud800"}\n',
        1,
    ),
}


@pytest.mark.parametrize("name", HALF)
def test_half_a_character_is_refused_with_its_line(name: str) -> None:
    content, line = HALF[name]
    path = written(content)
    with pytest.raises(UnreadableLibrary, match="half a character") as caught:
        interchange.read(path)
    assert str(caught.value).startswith(f"{path}:{line}: " if line else f"{path}:")
    assert caught.value.hint


def test_a_cell_of_a_sheet_may_be_long() -> None:
    long = "Round up. " * 20_000
    path = written(f'"id","text"\n"a","{long}"\n', "sheet.csv")
    assert [item.text for item in interchange.read(path).items] == [long]


def test_a_file_name_that_is_no_text_is_written_with_marks_for_what_it_is_not() -> None:
    with store_of() as store:
        assert bring(store, written("- a\n", "b\udcff.md")).versions
        assert not fsck(store).problems


def test_two_halves_of_a_character_are_one() -> None:
    (item,) = interchange.read(written('agent:\n  instructions: "[G0]. a \\ud83d\\ude00"\n')).items
    assert item.text == "a 😀"
