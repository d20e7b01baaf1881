"""Markdown that people write for agents: every word is kept, or listed as skipped with its line.

`playbooks/` has files of the shapes that AGENTS.md, CLAUDE.md, SKILL.md and rules have, written
for these tests.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from conftest import ROOT, Cli

from tfgrpo import interchange
from tfgrpo.interchange import Document, markdown_blocks

PLAYBOOKS = sorted((ROOT / "tests" / "playbooks").iterdir())
MARKER = re.compile(
    r"^[\s>]*(?:(?:[-*+]|\d+[.)])\s+)*(?:\[[ xX]\]\s)?|</?[a-z]+[^>\n]*>$", re.MULTILINE
)


def words(text: str) -> Counter[str]:
    """The words of a text, without the marks of lists and tags that stand alone."""
    return Counter(re.findall(r"\w+", MARKER.sub("", text).casefold()))


def kept(document: Document) -> Counter[str]:
    """The words in what was read: texts, the sections they are in, what is said about the whole."""
    found = words(" ".join(item.text for item in document.items))
    sections = {(item.evidence or {}).get("section", "") for item in document.items}
    about = json.dumps(dict(document.meta), ensure_ascii=False).replace("_", " ")
    return found + words(" ".join(map(str, sections))) + words(about)


def skipped(document: Document, source: str) -> Counter[str]:
    """The words in the lines that are listed as skipped."""
    lines = source.split("\n")
    found: Counter[str] = Counter()
    for entry in document.skipped:
        assert 0 < entry.first <= entry.last <= len(lines), entry
        found += words("\n".join(lines[entry.first - 1 : entry.last]))
    return found


def text_of(name: str) -> tuple[Document, str]:
    path = ROOT / "tests" / "playbooks" / name
    return interchange.read(path), path.read_text(encoding="utf-8")


def texts(name: str) -> list[str]:
    return [item.text for item in text_of(name)[0].items]


def test_there_are_enough_shapes() -> None:
    assert len(PLAYBOOKS) >= 12


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.name)
def test_every_word_of_a_playbook_is_kept_or_listed_as_skipped(path: Path) -> None:
    document, source = text_of(path.name)
    wanted = words(source)
    lost = wanted - kept(document) - skipped(document, source)
    assert lost == Counter(), "silently lost"
    for item in document.items:
        assert item.line, item


def test_no_line_of_a_code_block_is_an_experience() -> None:
    for name in ("commands.md", "long-code.md", "mixed-lists.md"):
        for text in texts(name):
            assert not re.match(r"09:14|wind 5|crew of four|name:|not a rule|# - not", text), text


def test_what_introduces_goes_before_each_text_under_it() -> None:
    found = texts("forbidden.md")
    assert "Never: hand over a knife blade first" in found
    assert "Don't: Leave rice out for more than an hour" in found
    assert "Never refreeze fish" in found, "it says so itself"
    assert "**When it drops:** step back" in found
    assert "Label every box with date and name." in found
    assert "A release needs all of: a signed tag" in texts("commands.md")
    assert "When a test fails: read the message aloud" in texts("numbered.md")
    assert texts("mixed-lists.md").count("second:\n```sh\nls -l\n```") == 1
    assert "数字は半角で書く： 電話番号" in texts("unicode.md")


def test_short_code_stays_with_what_introduces_it_and_long_code_is_listed() -> None:
    found = texts("commands.md")
    assert "Install the tools once:\n```bash\nmake tools\nmake hooks\n```" in found
    assert "Start the service with: `make run PORT=8080`" in found
    document, _ = text_of("long-code.md")
    assert [str(entry) for entry in document.skipped] == [
        "lines 3–21: code of 15 lines, and what introduces it: The steps are in the script, "
        "which looks like this:",
        "lines 25–27: code of 1 line: 1. not a rule either",
    ]


def test_rows_of_a_table_name_their_columns() -> None:
    found = texts("tables.md")
    assert found[0] == (
        "What to do, by code: Code: E10; Meaning: sensor cold; "
        "Action: wait four minutes, then retry"
    )
    assert "No outer bars here: Shift: late; Lead: Jonas" in found
    assert "Port: Ness | Point; High water: +1:05; Low water: +1:20" in texts("skill.md")


def test_sections_are_evidence_and_a_heading_that_is_a_rule_is_one() -> None:
    document, _ = text_of("tasks.md")
    found = {item.text: (item.evidence or {})["section"] for item in document.items}
    assert found["Raise the version in *both* files"] == "Before a release"
    assert found["documented"] == "Before a release > Definition of done"
    assert "Tell support before the switch" in found
    assert [entry.what for entry in document.skipped] == ["a heading with nothing under it"]


def test_comments_and_scripts_are_skipped_and_tags_around_rules_are_no_obstacle() -> None:
    document, _ = text_of("tags.md")
    found = [item.text for item in document.items]
    assert found[:3] == [
        "You look after a public garden.",
        "Water before ten in the morning",
        "Close the north gate at dusk",
    ]
    assert [entry.first for entry in document.skipped] == [1, 26]


def test_an_image_is_skipped_in_a_list_too_and_a_link_stays_in_its_text() -> None:
    lines = ["- ![pic](p.png)", "- Ask [the desk](http://desk.example).", "", "![map](m.png)"]
    found = markdown_blocks.read(lines)
    assert [item.text for item in found.items] == ["Ask [the desk](http://desk.example)."]
    assert [entry[:3] for entry in found.skipped] == [(1, 1, "an image"), (4, 4, "an image")]


def test_lines_are_those_of_the_file_behind_front_matter_too() -> None:
    document, source = text_of("skill.md")
    lines = source.split("\n")
    for item in document.items:
        assert item.line
        assert item.text.split()[-1].strip("*.") in lines[item.line - 1], item


def test_an_import_says_what_it_skips_and_a_dry_run_records_nothing(
    cli: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "AGENTS.md"
    file.write_bytes((ROOT / "tests" / "playbooks" / "long-code.md").read_bytes())
    cli("init")
    dry = cli("import", "AGENTS.md", "--dry-run").stdout
    assert "would add" in dry
    assert "Roll back first, ask questions later." in dry
    assert "skipped 2 parts of AGENTS.md" in dry
    assert "lines 25–27: code of 1 line" in dry
    assert "v1" not in cli("log").stdout
    found = json.loads(cli("import", "AGENTS.md", "--json").stdout)
    assert [(entry["first"], entry["last"]) for entry in found["skipped"]] == [(3, 21), (25, 27)]
    assert found["to"] == "v1"
    again = json.loads(cli("import", "AGENTS.md", "--dry-run", "--json").stdout)
    assert again["operations"] == []
    assert again["known"] == 1


LONG = "very " * 80 + "long"


@pytest.mark.parametrize(
    "content",
    [
        f"{LONG}:\n\n" + "- point\n" * 20,
        f"- {LONG}:\n" + "  - point\n" * 20,
        f"# {LONG}\n\n" + "- point\n" * 20,
        f"| {LONG} | b |\n|---|---|\n" + "| c | d |\n" * 20,
    ],
    ids=["introduction", "point", "heading", "table"],
)
def test_what_is_too_long_to_be_repeated_is_an_experience_of_its_own(content: str) -> None:
    found = [item.text for item in markdown_blocks.read(content.split("\n")).items]
    assert sum("very" in text for text in found) == 1
    assert len(found) == 21


def test_what_nests_deep_is_read_and_too_deep_listed_with_its_lines() -> None:
    for depth, levels in ((60, 60), (200, 60)):
        lines = ["  " * level + f"- level {level}" for level in range(depth)]
        found = markdown_blocks.read(lines)
        assert [item.text for item in found.items] == [f"level {n}" for n in range(levels)]
        assert [entry[:2] for entry in found.skipped] == [(levels + 1, depth)] * (depth > levels)
    found = markdown_blocks.read([*lines[:60], "", "A last rule."])
    assert found.items[-1].text == "A last rule."
    assert found.skipped == ()


def test_more_markdown_than_anybody_writes_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "big.md"
    file.write_text("- x\n" * 100_001)
    with pytest.raises(interchange.UnreadableLibrary, match="in 100,001 lines") as caught:
        interchange.read(file)
    assert caught.value.hint == "split it"
