"""What a git user types without thinking does what they expect, or says why it cannot."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from conftest import Verb

from tfgrpo.author import AUTHOR
from tfgrpo.mirror import mirror
from tfgrpo.store import Operation, Store
from tfgrpo.store.transfer import locations, sync
from tfgrpo.store.transfer.remotes import Remotes, apart_from_remote

DAYS, EUROS = "Count both days of a hire.", "Round up to whole euros."


@pytest.fixture
def shop(verb: Verb) -> Verb:
    verb("init")
    verb("add", DAYS, EUROS)
    return verb


def messages(verb: Verb, *words: str) -> list[str]:
    """The subjects of a log, newest first, without v0's."""
    rows = json.loads(verb("log", "--json", *words).out)
    return [row["subject"] for row in rows if row["parents"]]


def test_a_log_of_work_by_hand_shows_its_first_words_and_a_message_stays_what_it_is(
    shop: Verb,
) -> None:
    shop("modify", "G1", "Round down to whole euros, unless the customer insists on the cents.")
    shop("add", DAYS)
    shop("add", DAYS, "Helmets are free.")
    shop("delete", "G0")
    shop("add", "Tandems count twice.", "-m", "tandems, at last")
    assert messages(shop) == [
        "tandems, at last",
        f"delete: {DAYS}",
        "keep, add: Count both days of a hire. (and 1 more)",
        f"keep: {DAYS}",
        "modify: Round down to whole euros, unless the customer insists on …",
        f"add: {DAYS} (and 1 more)",
    ]
    assert "  add: Count both days of a hire. (and 1 more)\n" in shop("log").out
    assert " add: Count both" in shop("branch", "old", "v1").out + shop("branch").out


def test_the_words_of_a_text_are_in_no_message_so_redacting_it_removes_them(shop: Verb) -> None:
    secret = "The key of the shop is 4711."
    shop("add", secret)
    with Store.open() as store:
        assert messages(shop)[0] == f"add: {secret}"
        assert "4711" not in store.head.version.message
    assert shop("redact", "--yes", "-r", "a key", "G2").code == 0
    assert all("4711" not in message for message in messages(shop))


def test_a_mirror_has_the_same_subjects_and_messages(shop: Verb, tmp_path: Path) -> None:
    shop("add", "Tandems count twice.", "-m", "tandems, at last")
    with Store.open() as store:
        mirror(store, tmp_path / "mirror")
    git = ["git", "-C", str(tmp_path / "mirror"), "log", "--format=%s"]
    done = subprocess.run(git, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[:2] == ["tandems, at last", f"add: {DAYS} (and 1 more)"]


def test_an_edit_says_what_it_did(shop: Verb, tmp_path: Path) -> None:
    page = shop("export", "--format", "md").out.replace("both days", "both the days")
    (tmp_path / "mine.md").write_text(page)
    (id,) = json.loads(shop("diff", "v0", "--json").out)["changes"][0:1]
    printed = shop("edit", "--file", "mine.md").out
    assert printed.startswith(f"v2 on main: modify {id['experience']}\n")
    assert messages(shop)[0] == "modify: Count both the days of a hire."


def test_add_reads_standard_input(shop: Verb) -> None:
    printed = shop("add", "-", typed="Helmets are free.\n\n  Tandems count twice.  \n")
    assert printed.out.startswith("v2 on main: add 2 experiences\n")
    empty = shop("add", "-", typed="\n")
    assert (empty.code, "standard input is empty" in empty.err) == (1, True)
    texts = json.loads(shop("export").out).values()
    assert list(texts) == [DAYS, EUROS, "Helmets are free.", "Tandems count twice."]


def test_a_confirmation_is_not_called_an_addition(shop: Verb) -> None:
    assert "add 1" not in shop("add", DAYS).out
    assert json.loads(shop("log", "-1", "--json").out)[0]["message"].startswith("keep ")


def test_switch_goes_back_and_begins_a_branch_anywhere(shop: Verb) -> None:
    none = shop("switch", "-")
    assert (none.code, "HEAD was on no other branch" in none.err) == (1, True)
    assert shop("switch", "-c", "old", "v0").out == "on branch old, at v0, 0 experiences\n"
    assert shop("switch", "-").out == "on branch main, at v1, 2 experiences\n"
    assert shop("checkout", "-").out.startswith("HEAD is at v0, 0 experiences, on branch old")
    assert shop("switch", "main", "v0").code == 2
    shop("branch", "-m", "ancient")
    shop("switch", "main")
    assert shop("switch", "-").out.startswith("on branch ancient, at v0")


def test_a_log_takes_a_number_all_names_an_author_and_three_dots(
    shop: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(AUTHOR, "Bob Berg")
    shop("switch", "-c", "web")
    shop("add", "Quote prices with VAT.")
    monkeypatch.setenv(AUTHOR, "ann")
    shop("switch", "main")
    shop("add", "Helmets are free.")
    assert messages(shop, "-1") == ["add: Helmets are free."]
    assert len(messages(shop, "-12")) == 2
    assert shop("log", "--grep", "-1").out == "", "a value is no number of versions"
    everything = ["add: Helmets are free.", "add: Quote prices with VAT."]
    assert messages(shop, "--all")[:2] == everything
    assert messages(shop, "--all", "--author", "berg") == everything[1:]
    assert messages(shop, "web...main") == everything
    assert messages(shop, "web..main") == everything[:1]
    assert shop("log", "web", "--all").code == 2
    assert len(shop("reflog", "-2").out.splitlines()) == 2


def test_a_bare_diff_is_of_the_last_version_and_three_dots_leave_out_the_other_side(
    shop: Verb,
) -> None:
    shop("switch", "-c", "web")
    shop("modify", "G1", "Round down to whole euros.")
    shop("switch", "main")
    shop("add", "Helmets are free.")
    assert "+ " in shop("diff").out
    assert shop("diff").out.endswith("v1 → v3: 1 added\n")
    assert shop("diff", "main...web").out.endswith("v1 → v2: 1 modified\n")
    assert shop("diff", "main..web").out.endswith("v3 → v2: 1 modified, 1 deleted\n")
    shop("switch", "-c", "empty", "v0")
    assert shop("diff").out == "v0 and v0 hold the same library\n"


def test_branches_are_renamed_and_tags_say_why(shop: Verb) -> None:
    assert shop("branch", "-m", "trunk").out == "renamed branch main to trunk\n"
    assert shop("branch", "-m", "trunk", "main").out == "renamed branch trunk to main\n"
    assert shop("tag", "--rename", "x").code == 2
    assert shop("branch", "-m").code == 2
    shop("tag", "-m", "read by both of us", "approved")
    assert "approved  v1  read by both of us" in shop("tag").out
    assert "tag approved: read by both of us" in shop("reflog", "-1").out
    assert shop("tag", "-m", "no name").code == 2


def test_cherry_pick_takes_several_as_one_operation_and_all_or_none(shop: Verb) -> None:
    shop("switch", "-c", "web")
    shop("add", "Quote prices with VAT.")
    shop("add", "Helmets are free.")
    shop("modify", "G1", "Round down to whole euros.")
    shop("switch", "main")
    printed = shop("cherry-pick", "v2", "v3").out
    assert [line for line in printed.splitlines() if line.startswith("v")] == [
        "v5 on main: cherry-pick v2: add 1 experience",
        "v6 on main: cherry-pick v3: add 1 experience",
    ]
    undone = shop("undo").out
    assert "undid cherry-pick v2, v3\n  main is back at v1\n" in undone
    assert shop("redo").out.endswith("HEAD is on branch main, at v6\n")
    shop("undo")
    shop("modify", "G1", "Round to the nearest euro.")
    before = json.loads(shop("status", "--json").out)["head"]
    failed = shop("cherry-pick", "main..web")
    assert (failed.code, "changed on both sides" in failed.err) == (1, True)
    assert json.loads(shop("status", "--json").out)["head"] == before
    assert shop("cherry-pick", "v2", "v3", "--edit").code == 2
    assert shop("cherry-pick", "v1..v3", "--edit").code == 2
    assert shop("revert", "v1..v3", "--edit").code == 2
    shop("cherry-pick", "main..web", "--theirs")
    texts = json.loads(shop("export").out).values()
    assert set(texts) >= {"Quote prices with VAT.", "Round down to whole euros."}


def test_one_side_is_taken_and_not_two(shop: Verb) -> None:
    for command in (["merge", "v0"], ["cherry-pick", "v1"], ["revert", "v1"], ["pull"]):
        both = shop(*command, "--ours", "--theirs")
        assert (both.code, "give only one of --ours and --theirs" in both.err) == (2, True)


def test_reset_explains_its_missing_modes(shop: Verb) -> None:
    for mode in ("--hard", "--soft"):
        done = shop("reset", mode, "v0")
        assert (done.code, f"{mode} is not needed" in done.err) == (2, True)
        assert "undo" in done.err
    assert json.loads(shop("status", "--json").out)["head"] == "v1"


def test_status_counts_what_the_remote_has_and_lacks(shop: Verb, tmp_path: Path) -> None:
    team = tmp_path / "team"
    locations.clone(locations.parse(str(tmp_path)), team / ".tfgrpo/store.db", author="ann")
    with Store.open(author="ann") as store, Store.open(team / ".tfgrpo/store.db") as there:
        Remotes(store).add("origin", str(team))
        assert "origin" not in shop("status").out

        def fetch() -> None:
            with locations.source(locations.parse(str(team)), author="ann") as source:
                sync.fetch(store, source, "origin")

        fetch()
        assert "  the same as origin/main when last fetched\n" in shop("status").out
        shop("add", "Helmets are free.")
        assert "1 version ahead of origin/main: `tfgrpo push`" in shop("status").out
        changed = [Operation("MODIFY", e.id, "Round down.") for e in list(there.library("v1"))[1:]]
        there.commit("main", changed, message="down")
        fetch()
        assert "1 version ahead of origin/main and 1 behind" in shop("status").out
        assert json.loads(shop("status", "--json").out)["remote"] == {
            "name": "origin/main",
            "ahead": 1,
            "behind": 1,
        }
        assert apart_from_remote(store, "main") == ("origin/main", 1, 1)
        shop("modify", "G1", "Round to the nearest euro.")
        conflict = shop("pull")
        assert (conflict.code, "tfgrpo merge origin/main --edit" in conflict.err) == (1, True)
        assert "with --edit" not in conflict.err, "pull has no --edit"


def test_help_is_a_verb_and_what_a_bare_command_prints(verb: Verb) -> None:
    bare = verb()
    assert (bare.code, bare.err) == (0, "")
    assert bare.out.startswith("Usage: tfgrpo ")
    assert verb("help").out == bare.out
    assert verb("help", "merge").out == verb("merge", "--help").out
    assert verb("help", "remote", "add").out == verb("remote", "add", "--help").out
    unknown = verb("help", "mrege")
    assert (unknown.code, "did you mean merge" in unknown.err) == (2, True)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *(("worker", "workers run"), ("up", "workers start"), ("proposals", "proposal list")),
        *(("accept", "proposal accept"), ("reject", "proposal reject"), ("history", "show")),
        *(("rollback", "branch --back"),),
    ],
)
def test_a_verb_that_became_part_of_another_is_told(verb: Verb, typed: str, meant: str) -> None:
    done = verb(typed, "p1")
    assert (done.code, f"did you mean {meant}?" in done.err) == (2, True), done.err


def test_a_csv_is_a_csv_and_an_unknown_ending_is_refused(shop: Verb, tmp_path: Path) -> None:
    assert shop("export", "-o", "shop.csv").out.endswith("to shop.csv as csv\n")
    assert (tmp_path / "shop.csv").read_text().startswith('"id","label","text"\n"')
    assert shop("import", "shop.csv").out.startswith("nothing new in shop.csv")
    refused = shop("export", "-o", "shop.xlsx")
    assert (refused.code, "no format goes by the ending .xlsx" in refused.err) == (2, True)
    assert not (tmp_path / "shop.xlsx").exists()


def test_an_author_is_the_environments_then_the_settings_then_gits(
    verb: Verb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_AUTHOR_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "login")
    verb("init")

    def signed() -> str:
        verb("add", f"Lesson {verb('log', '--oneline').out.count(chr(10))}.")
        return str(json.loads(verb("log", "-1", "--json").out)[0]["author"])

    assert signed() == "ann"
    monkeypatch.delenv(AUTHOR)
    assert signed() == "login"
    (tmp_path / ".gitconfig").write_text("[user]\n\tname = Gitta\n")
    assert signed() == "Gitta"
    (tmp_path / "tfgrpo.toml").write_text('author = "Tom"\n[model]\nmodel = "m"\n')
    assert signed() == "Tom"
    monkeypatch.setenv(AUTHOR, "ann")
    assert signed() == "ann"
    assert "no table [author]" not in verb("train", "none.jsonl", "--estimate").err


@pytest.mark.parametrize(
    "words",
    [
        *(["revert", ""], ["checkout", ""], ["merge", ""], ["reset", ""], ["reset", "~1"]),
        *(["cherry-pick", ""], ["switch", "-c", "x", ""], ["branch", "x", ""], ["tag", "x", ""]),
        *(["branch", "--force", "main", ""], ["show", ""], ["log", ""], ["diff", "v0", ""]),
    ],
    ids=" ".join,
)
def test_a_variable_that_is_not_set_is_not_head(
    shop: Verb, words: list[str], tmp_path: Path
) -> None:
    def state() -> tuple[object, ...]:
        with Store.open(tmp_path / ".tfgrpo/store.db") as store:
            return store.head, store.branches(), store.tags(), store.port.last_version()

    before = state()
    printed = shop(*words)
    assert printed.code != 0
    assert "empty" in printed.err or "names no version" in printed.err
    assert state() == before


def test_checkout_b_makes_a_branch_at_head_where_no_revision_is_given(shop: Verb) -> None:
    at = shop("log", "-n", "1", "--oneline").out.split()[0]
    assert f"HEAD is at {at}" in shop("checkout", "-b", "fresh").out
    assert "* fresh" in shop("branch").out
    assert shop("checkout").code == 2


def test_an_import_of_a_mirror_has_no_dry_run(shop: Verb) -> None:
    refused = shop("import", "git", "mirror", "--dry-run")
    assert refused.code == 2
    assert "--dry-run is for files" in refused.err
