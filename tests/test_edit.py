"""`edit`: what an edited Markdown file asks for, and an editor that does what it likes."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from conftest import TFGRPO, Cli, environment, one_line_error
from hypothesis import given, settings
from hypothesis import strategies as st

from tfgrpo.rendering.experience_texts import one_line
from tfgrpo.rendering.markdown_edit import UnreadableEdit, document, edited
from tfgrpo.store import ROOT, Experience, Library, Operation, derived_id

IDS = [derived_id("edit", n) for n in range(8)]
texts = st.text(min_size=1, max_size=60).filter(lambda t: one_line(t) != "")
comments = st.sampled_from(["# no heading", "- a bullet", "<!-- a comment -->", "ends <!-- x -->"])


def library(*said: str) -> Library:
    return Library(ROOT, tuple(Experience(IDS[n], text, n + 1) for n, text in enumerate(said)))


def applied(before: Library, operations: Sequence[Operation]) -> list[str]:
    """The texts that operations leave; what is checked on the way is what a store checks."""
    there = {e.id: one_line(e.text) for e in before}
    for op, id, text, *_ in operations:
        if op == "ADD":
            assert id is None
            assert text is not None
            there[f"new {text}"] = text
        else:
            assert id in there
            if op == "DELETE":
                del there[id]
            elif op == "MODIFY":
                assert text not in (None, there[id])
                there[id] = str(text)
    return sorted(there.values())


@settings(deadline=None)
@given(st.lists(texts | comments, max_size=8))
def test_an_unedited_file_asks_for_nothing(said: list[str]) -> None:
    before = library(*said)
    assert edited(before, document(before)) == ((), None)


@settings(deadline=None)
@given(st.lists(texts | comments, max_size=8), st.data())
def test_the_library_holds_afterwards_what_the_file_holds(
    said: list[str], data: st.DataObject
) -> None:
    before = library(*said)
    lines = [(one_line(e.text), e.id) for e in before]
    kept = data.draw(
        st.permutations(data.draw(st.lists(st.sampled_from(lines), unique=True)) if lines else [])
    )
    new: list[str] = []
    wanted: list[str] = []
    for text, id in kept:
        text = data.draw(st.sampled_from([text, text, text + " indeed"]) | texts.map(one_line))
        with_id = data.draw(st.booleans()) or text != one_line(before.by_id[id].text)
        new.append(f"- {text} <!-- {id} -->" if with_id else f"- {text}")
        wanted.append(text)
    added = data.draw(st.lists(st.sampled_from(["never seen before", "another lesson entirely"])))
    new += [f"- {text}" for text in added]
    after = edited(before, "# Library\n\n" + "\n".join(new))
    stays = {one_line(text) for text in wanted}
    expected = sorted(wanted + [t for t in dict.fromkeys(added) if t not in stays])
    got = applied(before, after.operations)
    assert set(got) == set(expected)
    assert (after.order is None) or len(kept) > 1


@given(st.permutations(range(6)))
def test_moving_lines_is_another_order_and_no_event(order: list[int]) -> None:
    before = library(*(f"lesson {n}" for n in range(6)))
    lines = document(before).splitlines()
    moved = [*lines[:-6], *(lines[-6:][n] for n in order)]
    found = edited(before, "\n".join(moved))
    assert found.operations == ()
    asked = None if order == sorted(order) else tuple(IDS[n] for n in order)
    assert found.order == asked


def operations(before: Library, *lines: str) -> list[tuple[str, str | None, str | None]]:
    return [op[:3] for op in edited(before, "\n".join(lines)).operations]


SHOP = library("Count both days of a hire.", "Round up to whole euros.", "Use whole hours.")
A, B, C = IDS[:3]


def test_a_line_whose_id_was_cut_off_is_still_the_same_experience() -> None:
    rest = [f"- Use whole hours. <!-- {C} -->"]
    same = ["- Count both days of a hire.", "- Round up to whole euros."]
    assert operations(SHOP, *same, *rest) == []
    near = ["- Count both the days of a hire!", "- Always round up to whole euros."]
    assert operations(SHOP, *near, *rest) == [
        ("MODIFY", A, "Count both the days of a hire!"),
        ("MODIFY", B, "Always round up to whole euros."),
    ]
    other = ["- Ask the customs office first.", f"- Round up to whole euros. <!-- {B} -->"]
    assert operations(SHOP, *other, *rest) == [
        ("DELETE", A, None),
        ("ADD", None, "Ask the customs office first."),
    ]


def test_a_repeated_text_confirms_the_one_that_is_there() -> None:
    lines = document(SHOP).splitlines()
    assert operations(SHOP, *lines, "- Use whole hours.") == [("KEEP", C, None)]


def test_a_text_may_be_wrapped_and_marked_like_other_markdown() -> None:
    assert (
        operations(
            SHOP,
            "* Count both days",
            f"  of a hire. <!-- {A} -->",
            "",
            "- Round up to",
            "    whole euros.",
            f"  <!-- {B} -->",
            "## Another heading",
            "<!-- a comment",
            "- of two lines -->",
            f"  - Use whole hours. <!-- {C} -->",
        )
        == []
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["", "  "], "is empty"),
        (["- x", "plain words"], "line 2"),
        ([f"- x <!-- {derived_id('nobody')} -->"], "not in the library"),
        ([f"- x <!-- {A} -->", f"- y <!-- {A} -->"], "line 1 already"),
        ([f"-  <!-- {A} -->"], "no text"),
        (["-"], "no text"),
        (["# Library v3 (0123456789ab)", "- x"], "0123456789ab"),
    ],
)
def test_a_file_that_does_not_say_what_is_meant_is_refused(lines: list[str], said: str) -> None:
    with pytest.raises(UnreadableEdit, match=said) as found:
        edited(SHOP, "\n".join(lines))
    assert found.value.hint


def test_deleting_all_takes_the_heading() -> None:
    assert [op for op, *_ in operations(SHOP, "# Library")] == ["DELETE"] * 3


@pytest.fixture
def shop(cli: Cli) -> Cli:
    cli("init")
    cli("add", "Count both days of a hire.", "Round up.", "Use whole hours.")
    return cli


Editor = Callable[[str], dict[str, str]]


@pytest.fixture
def editor(tmp_path: Path) -> Editor:
    """Returns the environment in which a shell script, given the file as $1, is the editor."""

    def made(script: str) -> dict[str, str]:
        path = tmp_path / "my editor"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return {"EDITOR": f'"{path}"', "VISUAL": ""}

    return made


def left(folder: Path) -> list[Path]:
    return sorted((folder / ".tfgrpo").glob("edit-*"))


def test_an_edit_is_one_version_of_all_that_changed(
    shop: Cli, editor: Editor, tmp_path: Path
) -> None:
    script = 'sed -i -e "s/both days/both the days/" -e "/Round up/d" "$1"; echo "- New." >> "$1"'
    said = shop("edit", "-m", "spring clean", "-r", "the shop asked", env=editor(script)).stdout
    assert "v2 on main: spring clean" in said
    row = json.loads(shop("log", "-n", "1", "-p", "--json").stdout)[0]
    assert row["counts"] == {"ADD": 1, "MODIFY": 1, "DELETE": 1, "KEEP": 0}
    assert {event["reason"] for event in row["events"]} == {"the shop asked"}
    library = json.loads((tmp_path / ".tfgrpo/experiences.json").read_text())
    assert list(library.values()) == ["Count both the days of a hire.", "Use whole hours.", "New."]
    assert left(tmp_path) == []
    shop("undo")
    assert "v1" in shop("status").stdout


def test_nothing_saved_is_nothing_recorded_and_a_moved_line_a_move(
    shop: Cli, editor: Editor, tmp_path: Path
) -> None:
    assert shop("edit", env=editor("true")).stdout == "nothing changed\n"
    moved = shop("edit", env=editor('sed -i "/Count/{h;d};\\$G" "$1"')).stdout
    assert re.search(r"\[G\d → G\d\] Count", moved)
    assert json.loads(shop("status", "--json").stdout)["head"] == "v2"
    assert json.loads(shop("show", "--json").stdout)["library"][-1]["text"].startswith("Count")
    assert left(tmp_path) == []


def test_an_editor_that_fails_changes_nothing(shop: Cli, editor: Editor, tmp_path: Path) -> None:
    one_line_error(shop("edit", env=editor("exit 3"), ok=False), "nothing changed", "EDITOR")
    one_line_error(shop("edit", env={"EDITOR": "/no/such", "VISUAL": ""}, ok=False), "/no/such")
    assert left(tmp_path) == []
    script = 'echo "- Half a thought." >> "$1"; exit 1'
    one_line_error(shop("edit", env=editor(script), ok=False), "saved")
    assert "Half a thought" in (left(tmp_path)[0] / "draft.md").read_text()
    assert json.loads(shop("status", "--json").stdout)["head"] == "v1"


def test_a_file_that_cannot_be_read_is_kept_and_taken_later(
    shop: Cli, editor: Editor, tmp_path: Path
) -> None:
    script = 'echo "- One more." >> "$1"; echo "and a stray line" >> "$1"'
    done = shop("edit", env=editor(script), ok=False)
    one_line_error(done, "stray line", "the same command with")
    found = re.search(r"--file (\S+)`", done.stderr)
    assert found is not None
    path = tmp_path / found[1]
    path.write_text(path.read_text().replace("and a stray line", ""))
    assert "One more." in shop("edit", "--file", found[1]).stdout
    assert left(tmp_path) == []
    one_line_error(shop("edit", "--file", found[1], ok=False), "cannot read")


@pytest.mark.parametrize(
    "where",
    [("-C", "shop"), ("--store", "shop/.tfgrpo/store.db"), ("-C", "shop/deep")],
    ids=" ".join,
)
def test_the_file_of_a_refused_edit_is_taken_where_it_was_typed(
    cli: Cli, editor: Editor, tmp_path: Path, where: tuple[str, ...]
) -> None:
    (tmp_path / "shop/deep").mkdir(parents=True)
    cli("-C", "shop", "init")
    cli("-C", "shop", "add", "Round up.")
    script = 'echo "- One more." >> "$1"; echo stray >> "$1"'
    refused = cli(*where, "edit", "--force", env=editor(script), ok=False)
    suggested = re.search(r"the same command with `--file (.+)`", refused.stderr)
    assert suggested is not None
    path = Path(suggested[1])
    path.write_text(path.read_text().replace("stray", ""))
    assert "One more." in cli(*where, "edit", "--force", "--file", suggested[1]).stdout


def test_a_conflict_is_decided_by_what_stands_above_the_scissors_line(
    shop: Cli, editor: Editor
) -> None:
    def decided(script: str) -> list[str]:
        done = shop("merge", "web", "--edit", env=editor(script))
        assert done.returncode == 0, done.stderr
        texts = list(json.loads(shop("export").stdout).values())
        shop("undo")
        return texts[1:2]

    shop("switch", "-c", "web")
    shop("modify", "G1", "# 1 rule: round down.")
    shop("switch", "main")
    shop("modify", "G1", "# 2 rules: round to the nearest.")
    save = 'cat "$1" > "$1.new"; cat "$1.new" > "$1"; rm "$1.new"'
    assert decided(save) == ["# 2 rules: round to the nearest."]
    assert decided('sed -i "1s/.*/#3 is\\n# the number/" "$1"') == ["#3 is # the number"]
    assert decided('echo "# all anew" > "$1"') == ["# all anew"]
    assert decided('sed -i 1d "$1"') == ["Use whole hours."], "no text deletes it"


def test_an_emptied_file_changes_nothing(shop: Cli, editor: Editor, tmp_path: Path) -> None:
    one_line_error(shop("edit", env=editor(': > "$1"'), ok=False), "is empty")
    assert left(tmp_path) == []
    assert json.loads(shop("status", "--json").stdout)["experiences"] == 3


def test_an_edit_goes_on_from_what_somebody_else_added_meanwhile(
    shop: Cli, editor: Editor, tmp_path: Path
) -> None:
    script = f'echo "- Mine." >> "$1"; "{TFGRPO}" add "Theirs."'
    assert "v3 on main: " in shop("edit", env=editor(script)).stdout
    assert left(tmp_path) == []
    assert shop("export", "--format", "prompt").stdout.splitlines()[-2:] == [
        "[G3] Theirs.",
        "[G4] Mine.",
    ]


def test_an_edit_of_what_somebody_else_edited_meanwhile_is_kept_and_merged_later(
    shop: Cli, editor: Editor, tmp_path: Path
) -> None:
    script = f'sed -i "s/whole hours/half hours/" "$1"; "{TFGRPO}" modify G2 "Use full hours."'
    done = shop("edit", env=editor(script), ok=False)
    one_line_error(done, "main has moved on to v2", "diff v1 v2", "saved")
    assert json.loads(shop("status", "--json").stdout)["head"] == "v2"
    (kept,) = left(tmp_path)
    shop("checkout", "-b", "mine", "v1")
    shop("edit", "--file", str(kept / "draft.md"))
    shop("switch", "main")
    one_line_error(shop("merge", "mine", ok=False), "changed on both sides")
    shop("merge", "mine", "--theirs")
    assert "Use half hours." in shop("export", "--format", "prompt").stdout


def killed(folder: Path, environment_: dict[str, str]) -> Path:
    """Kills an edit while its editor is open, which ends after that; returns the draft."""
    before = set(left(folder))
    for name in ("open", "close"):
        os.mkfifo(folder / name)
    process = subprocess.Popen([TFGRPO, "edit"], cwd=folder, env=environment(**environment_))
    (folder / "open").read_bytes()
    process.kill()
    process.wait()
    (folder / "close").write_bytes(b"")
    for name in ("open", "close"):
        (folder / name).unlink()
    return (set(left(folder)) - before).pop() / "draft.md"


def test_a_draft_that_a_kill_has_left_goes_with_the_next_and_a_changed_one_is_named(
    shop: Cli, editor: Editor, tmp_path: Path
) -> None:
    opened = f': > "{tmp_path}/open"; cat "{tmp_path}/close"'
    killed(tmp_path, editor(opened))
    other = editor(f'echo "- Words." >> "$1"; {opened}')
    changed = killed(tmp_path, other)
    assert left(tmp_path) == [changed.parent], "the first was as it was made"
    killed(tmp_path, editor(opened))
    shop("modify", "G1", "Count both the days of hire.")
    again = shop("edit", env=editor("true"))
    assert left(tmp_path) == [changed.parent], "it is as it was made, and not as another is now"
    assert again.stderr.count("has an edit") == 1
    shop("undo")
    # Many editors write a new file and rename it: what one has open is in use all the same.
    swapping = editor(f'cp "$1" "$1~"; mv "$1~" "$1"; VISUAL=true "{TFGRPO}" edit; test -e "$1"')
    said = shop("edit", env=swapping)
    assert said.stdout == "nothing changed\nnothing changed\n"
    assert said.stderr.count(f"{changed.relative_to(tmp_path)} has an edit") == 2
    assert left(tmp_path) == [changed.parent]
    assert "Words." in shop("edit", "--file", str(changed)).stdout
    assert left(tmp_path) == []


def test_it_works_without_a_standard_input(shop: Cli, editor: Editor, tmp_path: Path) -> None:
    variables = environment(**editor('echo "- New." >> "$1"'))
    done = subprocess.run(
        f'"{TFGRPO}" edit <&-', shell=True, cwd=tmp_path, env=variables, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert b"New." in done.stdout


def test_what_was_written_for_one_conflict_is_repeated_where_the_next_is_not_decided(
    shop: Cli, editor: Editor, tmp_path: Path
) -> None:
    shop("checkout", "-b", "web")
    shop("modify", "G0", "Count each day of a hire.")
    shop("modify", "G1", "Round down.")
    shop("checkout", "main")
    shop("modify", "G0", "Count no day of a hire.")
    shop("modify", "G1", "Round to even.")
    once = tmp_path / "once"
    script = f'test -e {once} || {{ touch {once}; echo "Count the days that count." > "$1"; }}'
    refused = shop("merge", "web", "--edit", env=editor(script), ok=False)
    assert "was not decided" in refused.stderr
    assert "you wrote: Count the days that count." in refused.stderr
    assert "merge web" not in shop("log", "-n", "1").stdout
