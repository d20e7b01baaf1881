"""The verbs that look at a library and change it by hand, as a person meets them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import Cli, one_line_error
from test_house import commands

from tfgrpo.cli.help import MEANT, NEEDLESS

DAYS, EUROS = "Count both the first and the last day.", "Round up to whole euros."


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A store with three versions: two experiences added, one modified, one kept."""
    cli("init")
    cli("add", DAYS, EUROS, "-r", "the shop's rule")
    cli("modify", "G0", "Count both the first and the last day of a hire.")
    cli("keep", "G1")
    return cli


def test_log_shows_versions_newest_first_with_counts_and_names(shop: Cli) -> None:
    lines = shop("log").stdout.splitlines()
    heads = [line for line in lines if re.match(r"v\d", line)]
    assert heads == ["v3 (HEAD -> main) =1", "v2 ~1", "v1 +2", "v0"]


def test_log_of_a_range_leaves_out_what_the_first_side_has(shop: Cli) -> None:
    found = [line.split()[0] for line in shop("log", "v1..main", "--oneline").stdout.splitlines()]
    assert found == ["v3", "v2"]


def test_log_json_is_a_list(shop: Cli) -> None:
    rows = json.loads(shop("log", "--json").stdout)
    assert [row["version"] for row in rows] == ["v3", "v2", "v1", "v0"]
    assert rows[2]["counts"] == {"ADD": 2, "MODIFY": 0, "DELETE": 0, "KEEP": 0}


def test_diff_marks_words_when_piped_and_exits_with_1_on_request(shop: Cli) -> None:
    done = shop("diff", "v1", "v3", "--exit-code", ok=False)
    assert done.returncode == 1
    assert "the last [-day.-] {+day of a hire.+}" in done.stdout
    assert done.stdout.endswith("v1 → v3: 1 modified\n")
    assert shop("diff", "v2", "v3", "--exit-code").returncode == 0


def test_diff_json_names_both_texts(shop: Cli) -> None:
    (change,) = json.loads(shop("diff", "v1..v2", "--json").stdout)["changes"]
    assert change["op"] == "MODIFY"
    assert change["before"] == DAYS


def test_show_gives_events_reasons_and_the_library(shop: Cli) -> None:
    shown = shop("show", "v1").stdout
    assert "because the shop's rule" in shown
    assert f"[G1] {EUROS}" in shown


def test_show_of_a_label_gives_the_experiences_whole_life(shop: Cli) -> None:
    life = shop("show", "G1").stdout
    assert next(line for line in life.splitlines() if line.startswith("v")).startswith("v1 ")
    assert re.search(r"^= \w+ Round up", life, re.MULTILINE)


def test_checkout_writes_what_inference_reads_and_says_how_to_come_back(
    shop: Cli, tmp_path: Path
) -> None:
    said = shop("checkout", "v1").stdout
    assert "detached" in said
    assert "tfgrpo checkout main" in said
    written = json.loads((tmp_path / ".tfgrpo/experiences.json").read_text())
    assert written == {"G0": DAYS, "G1": EUROS}
    assert "on branch main" in shop("checkout", "main").stdout


def test_checkout_to_standard_output_prints_the_library_alone(shop: Cli) -> None:
    done = shop("checkout", "v1", "--format", "prompt", "-o", "-")
    assert done.stdout == f"[G0] {DAYS}\n[G1] {EUROS}\n"
    assert "HEAD is at v1" in done.stderr


def test_a_version_needs_a_branch(shop: Cli) -> None:
    shop("checkout", "v1")
    one_line_error(shop("add", "x", ok=False), "detached", "checkout")


def test_every_change_by_hand_refreshes_what_inference_reads(shop: Cli, tmp_path: Path) -> None:
    shop("delete", "G1", "-r", "misleading")
    written = json.loads((tmp_path / ".tfgrpo/experiences.json").read_text())
    assert list(written.values()) == ["Count both the first and the last day of a hire."]


def test_every_format_beside_the_store_is_written_anew(shop: Cli, tmp_path: Path) -> None:
    shop("checkout", "main", "--format", "md")
    shop("checkout", "main", "--format", "prompt")
    shop("add", "Helmets are free.")
    folder = tmp_path / ".tfgrpo"
    for name in ("experiences.json", "experiences.md", "experiences.txt"):
        assert "Helmets are free." in (folder / name).read_text(), name
    (folder / "experiences.md").unlink()
    shop("undo")
    assert "Helmets" not in (folder / "experiences.txt").read_text()
    assert not (folder / "experiences.md").exists()


def test_adding_a_text_that_is_there_is_a_confirmation(shop: Cli) -> None:
    shop("add", EUROS)
    assert json.loads(shop("log", "-n", "1", "--json").stdout)[0]["counts"]["KEEP"] == 1


def test_branches_and_tags_are_listed_made_moved_and_deleted(shop: Cli) -> None:
    shop("branch", "web", "v1")
    one_line_error(shop("branch", "web", "v2", ok=False), "exists", "--force")
    shop("branch", "web", "v2", "--force")
    assert json.loads(shop("branch", "--json").stdout)["branches"] == {"main": 3, "web": 2}
    shop("branch", "-d", "web")
    shop("tag", "approved", "v1")
    assert json.loads(shop("tag", "--json").stdout)["tags"] == {"approved": 1}
    shop("tag", "-d", "approved")
    assert json.loads(shop("tag", "--json").stdout)["tags"] == {}
    one_line_error(shop("branch", "v9", ok=False), "cannot be the name", code=2)
    one_line_error(shop("branch", "übung", ok=False), "use the letters a to z", code=2)


def test_markdown_comes_back_as_changes_of_the_same_experiences(shop: Cli, tmp_path: Path) -> None:
    markdown = shop("export", "--format", "md").stdout
    (tmp_path / "edited.md").write_text(markdown.replace("Round up", "Always round up"))
    shop("import", "edited.md")
    row = json.loads(shop("log", "-n", "1", "--json").stdout)[0]
    assert row["counts"] == {"ADD": 0, "MODIFY": 1, "DELETE": 0, "KEEP": 0}
    assert "nothing new" in shop("import", "edited.md").stdout
    assert json.loads(shop("log", "-n", "1", "--json").stdout)[0]["version"] == row["version"]


def test_programs_are_told_what_an_import_changed(shop: Cli, tmp_path: Path) -> None:
    markdown = shop("export", "--format", "md").stdout
    (tmp_path / "edited.md").write_text(markdown.replace("Round up", "Always round up"))
    told = json.loads(shop("import", "edited.md", "--json").stdout)
    (change,) = told.pop("changes")
    assert (change["op"], change["before"]) == ("MODIFY", EUROS)
    assert change["after"] == EUROS.replace("Round up", "Always round up")
    shape = {"branch": "main", "known": 1, "left": [], "skipped": []}
    assert told == {**shape, "from": "v3", "to": "v4", "versions": ["v4"]}
    again = json.loads(shop("import", "edited.md", "--json").stdout)
    assert again == {**told, "known": 2, "from": "v4", "versions": [], "changes": []}
    (tmp_path / "old.md").write_text(markdown)
    old = json.loads(shop("import", "old.md", "--json").stdout)
    assert old["left"] == [change["experience"]]


def test_the_reference_implementations_file_comes_in_and_goes_out(
    shop: Cli, tmp_path: Path
) -> None:
    shop("export", "v1", "-o", "experiences.json")
    (tmp_path / "other").mkdir()
    shop("--store", "other/store.db", "init")
    shop("--store", "other/store.db", "import", "experiences.json")
    out = shop("--store", "other/store.db", "export").stdout
    assert json.loads(out) == {"G0": DAYS, "G1": EUROS}


def test_status_says_where_head_is(shop: Cli) -> None:
    assert "on branch main, at v3" in shop("status").stdout
    assert json.loads(shop("status", "--json").stdout)["experiences"] == 2


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["log", "v99"], "the newest version is v3", 1),
        (["log", "mian"], "did you mean main?", 1),
        (["show", "G9"], "G9", 1),
        (["show", "step_4"], "step_4", 1),
        (["diff", "v1", "HEAD~9"], "before the first version", 1),
        (["checkout", "v1..v2"], "range", 1),
        (["modify", "G7", "x"], "G7", 1),
        (["modify", "G1", EUROS], "already says that", 1),
        (["add", "  "], "needs a text", 1),
        (["import", "nothing.json"], "no file", 1),
        (["runs", "x"], "there is no run", 1),
        (["model", "get", "qwen2.5-coder-1.5"], "qwen2.5-coder-1.5b", 1),
        (["lgo"], "did you mean log", 2),
        (["rm", "G0"], "'rm'; did you mean delete?", 2),
        (["ls"], "did you mean show?", 2),
        (["commit"], "did you mean add or edit?", 2),
        (["verify-tag", "released"], "did you mean tag --verify?", 2),
        (["verify-commit", "main"], "did you mean log --show-signature?", 2),
        (["rebase", "main"], "did you mean merge or cherry-pick?", 2),
        (["stash"], "'stash': nothing is ever uncommitted", 2),
        (["models"], "did you mean model?", 2),
        (["model", "pull", "x"], "'model pull'; did you mean model get?", 2),
        (["model", "remove", "x"], "did you mean model rm?", 2),
        (["model", "ls"], "did you mean model list?", 2),
        (["remote", "rm", "x"], "did you mean remote remove?", 2),
        (["bundle", "list", "x"], "did you mean bundle list-heads?", 2),
        (["log", "--nope"], "--nope", 2),
        (["model", "list", "--no-pager"], "--no-pager goes before the command", 2),
        (["log", "--version"], "--version goes before the command", 2),
        (["checkout"], "REVISION", 2),
    ],
)
def test_a_mistake_gets_one_line_and_a_hint(
    shop: Cli, arguments: list[str], said: str, code: int
) -> None:
    one_line_error(shop(*arguments, ok=False), said, code=code)


def test_an_option_behind_the_command_is_shown_before_it(shop: Cli) -> None:
    refused = shop("log", "--store", "other.db", ok=False)
    one_line_error(refused, "goes before the command", code=2)


def test_a_folder_behind_the_command_is_shown_before_it(shop: Cli, tmp_path: Path) -> None:
    refused = shop("log", "-C", str(tmp_path), ok=False)
    one_line_error(refused, "goes before the command", code=2)


def test_a_detached_head_is_shown_the_way_to_a_branch_that_is_there(shop: Cli) -> None:
    shop("add", "Helmets are free.")
    shop("branch", "-m", "trunk")
    left = shop("checkout", "HEAD~1").stdout
    version = json.loads(shop("status", "--json").stdout)["head"]
    begun = re.search(r"`tfgrpo (checkout -b NAME \S+)`", left)
    assert begun is not None
    back = "`tfgrpo checkout trunk`"
    assert back in left
    assert back in shop("status").stdout
    for words in (["add", "More."], ["reset", "v0"], ["push", "/nowhere/{x}"]):
        one_line_error(shop(*words, ok=False), "`tfgrpo switch trunk`")
    shop(*begun[1].split())
    assert json.loads(shop("status", "--json").stdout)["head"] == version


def test_what_is_said_to_be_meant_is_there() -> None:
    names = {path.split()[-1] for path, _ in commands()}
    for meant in (name for several in MEANT.values() for name in several):
        verb, *rest = meant.split()
        assert {verb, *(word for word in rest if not word.startswith("-"))} <= names, meant
    assert not names & NEEDLESS.keys()


def test_without_a_store_the_hint_is_init(cli: Cli) -> None:
    for verb in ("log", "show", "status", "runs", "branch", "tag", "export"):
        one_line_error(cli(verb, ok=False), "no store", "tfgrpo init")


def test_a_store_of_a_newer_schema_is_left_alone(shop: Cli, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / ".tfgrpo/store.db"
    with sqlite3.connect(path) as db:
        db.execute("pragma user_version = 99")
    one_line_error(shop("log", ok=False), "schema 99", "upgrade")


def test_a_file_that_is_no_store_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("just notes, long enough to be read as a header " * 9)
    one_line_error(cli("--store", "notes.txt", "log", ok=False), "notes.txt")


def test_no_colour_when_piped_and_none_on_request(shop: Cli) -> None:
    assert "\x1b" not in shop("log").stdout
    assert "\x1b" not in shop("log", env={"NO_COLOR": "1"}).stdout


def test_init_twice_changes_nothing(shop: Cli) -> None:
    assert "already" in shop("init").stdout
    assert "at v3" in shop("status").stdout


def test_a_reader_that_goes_away_is_no_error(shop: Cli, tmp_path: Path) -> None:
    import subprocess

    from conftest import TFGRPO, environment

    done = subprocess.run(
        ["sh", "-c", f"'{TFGRPO}' log --json | head -n 1"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout.strip("[,\n"))["version"] == "v3"


@pytest.mark.parametrize("words", [["checkout", "v0", "-b", "new"], ["checkout", "v0"], ["export"]])
def test_an_output_that_cannot_be_written_is_named_before_anything_is_done(
    cli: Cli, tmp_path: Path, words: list[str]
) -> None:
    cli("init")
    cli("add", "Count both days.")
    (tmp_path / "file").touch()
    before = cli("branch").stdout, cli("status").stdout
    for folder, reason in (("none", "No such file or directory"), ("file", "Not a directory")):
        done = cli(*words, "-o", f"{folder}/x.json", ok=False)
        assert done.stderr.splitlines()[0] == f"error: {folder}: {reason}"
        assert "hint: check the path: folders are not created" in done.stderr
    done = cli(*words, "-o", ".", ok=False)
    assert done.stderr.startswith("error: .: Is a directory")
    assert (cli("branch").stdout, cli("status").stdout) == before
