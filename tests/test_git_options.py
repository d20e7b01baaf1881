"""Options and words that hands know from git are taken, and mean what they mean there."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from conftest import Verb, environment
from test_git_habits import DAYS, EUROS, messages

from tfgrpo.store import Store
from tfgrpo.store.history.log_filter import UnknownTime, parse_time


@pytest.fixture
def shop(verb: Verb) -> Verb:
    verb("init")
    verb("add", DAYS, EUROS)
    return verb


def forked(shop: Verb) -> None:
    """A branch web with a version of its own, and a merge of it into main."""
    shop("switch", "-c", "web")
    shop("add", "Quote prices with VAT.")
    shop("switch", "main")
    shop("modify", "G1", "Round down to whole euros.")
    shop("merge", "web")


def test_branches_are_listed_whole_and_the_current_one_alone(shop: Verb, tmp_path: Path) -> None:
    shop("branch", "web")
    shop("bundle", "create", "all.bundle")
    shop("remote", "add", "origin", str(tmp_path / "all.bundle"))
    shop("fetch", "--all")
    assert shop("branch", "-v").out == shop("branch").out
    assert "origin/web" not in shop("branch").out
    assert {"main", "web", "origin/main", "origin/web"} <= set(shop("branch", "-a").out.split())
    assert shop("branch", "--show-current").out == "main\n"
    assert shop("branch", "-l", "w*", "--json").out == (
        '{\n  "head": "main",\n  "branches": {\n    "web": 1\n  },\n  "protected": []\n}\n'
    )
    shop("checkout", "v0")
    assert shop("branch", "--show-current").out == "\n"
    assert shop("fetch", "origin", "--all").code == 2
    assert "origin" in shop("remote", "-v").out
    assert shop("remote", "-v").out == shop("remote", "list").out == shop("remote").out


@pytest.mark.parametrize(
    "line",
    ["branch -d web -a", "branch -l web -m other", "branch -a web v0", "tag -l t1 --protect t1"],
)
def test_a_list_does_nothing_else(shop: Verb, line: str) -> None:
    shop("branch", "web")
    shop("tag", "t1")
    done = shop(*line.split())
    assert (done.code, "do nothing else" in done.err) == (2, True)


def test_a_protected_branch_goes_with_a_capital_d(shop: Verb) -> None:
    shop("branch", "web")
    shop("branch", "--protect", "web")
    assert shop("branch", "-d", "web").code == 1
    assert shop("branch", "-D", "web").code == 0
    assert "web" not in shop("branch").out


def test_tags_are_listed_by_a_pattern_and_pushed_at_once(shop: Verb, tmp_path: Path) -> None:
    shop("tag", "approved", "v0")
    shop("switch", "-c", "aside", "v0")
    shop("add", "Aside.")
    shop("tag", "seen")
    shop("switch", "main")
    assert [row.split()[0] for row in shop("tag", "-l", "a*").out.splitlines()] == [
        "tag",
        "approved",
    ]
    assert shop("tag", "-l").out == shop("tag").out
    assert shop("tag", "-a", "read", "-m", "by both of us").code == 0
    with Store.init(tmp_path / "team.db", author="ann"):
        pass
    shop("remote", "add", "team", str(tmp_path / "team.db"))
    shop("push", "team")
    with Store.open(tmp_path / "team.db") as team:
        assert "seen" not in team.tags()
        shop("push", "team", "--tags")
        assert {"approved", "seen"} <= team.tags().keys()
        assert "aside" not in team.branches()


def test_a_log_takes_reverse_no_merges_and_decorate(shop: Verb) -> None:
    forked(shop)
    newest_first = messages(shop)
    assert messages(shop, "--reverse") == newest_first[::-1]
    assert messages(shop, "-2", "--reverse") == newest_first[:2][::-1], "cut first, as in git"
    assert messages(shop, "--no-merges") == newest_first[1:]
    assert shop("log", "--decorate").out == shop("log").out
    assert shop("log", "--graph", "--reverse").code == 2
    assert shop("log", "--decisions", "--reverse").code == 2


def test_a_log_finds_the_versions_that_put_a_text_in_or_take_it_out(shop: Verb) -> None:
    shop("keep", "G1")
    shop("modify", "G1", "Always round up to whole euros.")
    shop("modify", "G1", "Always round down.")
    shop("delete", "G0")
    assert messages(shop, "-S", "whole euros") == [
        "modify: Always round down.",
        f"add: {DAYS} (and 1 more)",
    ]
    assert messages(shop, "-S", "days")[0] == f"delete: {DAYS}"
    assert messages(shop, "-S", "WHOLE") == [], "as it is written"


def test_a_log_has_formats(shop: Verb) -> None:
    rows = json.loads(shop("log", "--json").out)
    lines = [f"{row['digest'][:8]} {row['author']} {row['subject']}" for row in rows]
    assert shop("log", "--format", "%h %an %s").out.splitlines() == lines
    assert shop("log", "--pretty=format:%h %an %s").out.splitlines() == lines
    assert shop("log", "-1", "--format", "%v%d%n%H%%").out == (
        f"v1 (HEAD -> main)\n{rows[0]['digest']}%\n"
    )
    assert shop("log", "-1", "--format=%p").out == f"{rows[1]['digest'][:8]}\n"
    assert shop("log", "--format", "oneline").out == shop("log", "--oneline").out
    for wrong in ("%q", "nonsense"):
        refused = shop("log", "--format", wrong)
        assert (refused.code, "%s (subject)" in refused.err) == (2, True)


def test_yesterday_is_a_day(shop: Verb) -> None:
    now = int(datetime(2026, 11, 20, 15, 30).timestamp() * 1_000_000)

    def at(text: str, *, end: bool = False) -> datetime:
        return datetime.fromtimestamp(parse_time(text, now=now, end=end) / 1_000_000)

    assert at("yesterday") == datetime(2026, 11, 19)
    assert at("Today") == datetime(2026, 11, 20)
    assert at("yesterday", end=True) == datetime(2026, 11, 20) - timedelta(microseconds=1)
    assert at("2 months ago") == datetime(2026, 11, 20, 15, 30) - timedelta(days=60)
    assert at("2m") == datetime(2026, 11, 20, 15, 28), "a minute"
    with pytest.raises(UnknownTime):
        at("tomorrow")
    assert len(messages(shop, "--since", "yesterday")) == 1
    assert messages(shop, "--until", "yesterday") == []


def test_a_quiet_diff_tells_by_its_exit_code(shop: Verb) -> None:
    assert (shop("diff", "-q").out, shop("diff", "-q").code) == ("", 1)
    assert shop("diff", "-q", "v1", "HEAD").code == 0


def test_several_versions_are_reverted_as_one_operation_and_all_or_none(shop: Verb) -> None:
    shop("modify", "G1", "Round down to whole euros.")
    shop("add", "Helmets are free.")
    before = json.loads(shop("status", "--json").out)["head"]
    done = shop("revert", "v1..v3").out
    assert [line for line in done.splitlines() if line.startswith("v")] == [
        "v4 on main: revert v3: add 1 experience",
        f"v5 on main: revert v2: {json.loads(shop('log', 'v2', '-1', '--json').out)[0]['message']}",
    ]
    assert list(json.loads(shop("export").out).values()) == [DAYS, EUROS]
    assert "undid revert v3, v2\n  main is back at v3\n" in shop("undo").out
    refused = shop("revert", "v3", "v1")  # v2 changed what v1 put in
    assert (refused.code, "changed on both sides" in refused.err) == (1, True)
    assert json.loads(shop("status", "--json").out)["head"] == before
    assert shop("revert", "v3", "v2", "--edit").code == 2


@pytest.mark.parametrize("way", ["revert", "cherry-pick"])
def test_a_merges_first_parent_is_named_as_in_git(shop: Verb, way: str) -> None:
    forked(shop)
    merge = json.loads(shop("log", "-1", "--json").out)[0]
    if way == "cherry-pick":
        shop("switch", "-c", "other", "v1")
    before = json.loads(shop("status", "--json").out)["head"]
    for parent in ("2", "3", "0"):
        refused = shop(way, merge["version"], "-m", parent)
        assert (refused.code, f"-m {parent}" in refused.err) == (2, True), refused.err
        assert "-m 1" in refused.err
    assert json.loads(shop("status", "--json").out)["head"] == before
    done = shop(way, merge["version"], "-m", "1")
    assert (done.code, "first parent" in done.err) == (0, True), done.err
    made = json.loads(shop("log", "-1", "--json").out)[0]
    assert made["message"] == f"{way} {merge['version']}: {merge['message']}"


def test_a_number_is_a_message_where_nothing_is_a_merge(shop: Verb) -> None:
    forked(shop)
    assert shop("revert", "v1", "-m", "1", "--ours").code == 0
    assert messages(shop, "-1") == ["1"]
    shop("revert", "HEAD~1", "-m", "2024")  # more than a parent's number, of a merge
    assert messages(shop, "-1") == ["2024"]


@pytest.mark.parametrize("mode", ["--abort", "--continue", "--skip", "--quit"])
@pytest.mark.parametrize("way", ["merge", "pull", "cherry-pick", "revert"])
def test_nothing_is_ever_under_way(shop: Verb, way: str, mode: str) -> None:
    done = shop(way, mode)
    assert (done.code, f"{mode} is not needed" in done.err) == (2, True)
    assert "nothing is under way" in done.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        *((["amend"], "edit or modify"), (["comit"], "add or edit"), (["st"], "status")),
        *((["grep", "x"], "log --grep"), (["co", "main"], "checkout"), (["br"], "branch")),
        *((["logg"], "log"), (["chekout"], "checkout"), (["rev-parse", "HEAD"], "show")),
        (["proposal", "acept"], "proposal accept"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_word_of_gits_or_a_slip_is_told_what_was_meant(
    verb: Verb,
    typed: list[str],
    meant: str,
) -> None:
    done = verb(*typed)
    assert (done.code, f"did you mean {meant}?" in done.err) == (2, True), done.err


def test_settings_are_no_command_and_no_option_is_suggested_for_a_far_one(verb: Verb) -> None:
    assert "settings are in tfgrpo.toml" in verb("config", "user.name").err
    verb("init")
    for line, near in (
        (["switch", "--abort"], None),
        (["log", "--stat"], None),
        (["reset", "--autostash", "v0"], None),
        (["log", "--onelin"], "--oneline"),
        (["train", "--group", "3"], "--group-size"),
    ):
        said = verb(*line).err
        assert (f"Did you mean '{near}'" in said) if near else ("Did you mean" not in said), said


def test_a_folder_is_gone_to_first(verb: Verb, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    assert verb("-C", "shop", "init").code == 0
    os.chdir(tmp_path)
    assert (tmp_path / "shop/.tfgrpo/store.db").is_file()
    assert not (tmp_path / ".tfgrpo").exists()
    assert verb("-C", "shop", "--store", ".tfgrpo/store.db", "status", "-s").code == 0
    os.chdir(tmp_path)
    assert verb("-C", "nowhere", "status").code == 2


@pytest.mark.parametrize(
    ("words", "variables", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "0"}, False),
        ([], {"FORCE_COLOR": ""}, False),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "always"], {}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "auto"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_are_forced_and_forbidden(
    tmp_path: Path, words: list[str], variables: dict[str, str], coloured: bool
) -> None:
    import subprocess

    program = Path(sys.executable).with_name("tfgrpo")

    def run(*line: str) -> tuple[str, str]:
        done = subprocess.run(
            [program, *line], cwd=tmp_path, env=environment() | variables, capture_output=True
        )
        return done.stdout.decode(), done.stderr.decode()

    run("init")
    run("add", DAYS)
    out, _ = run(*words, "log")
    assert ("\x1b[" in out) is coloured
    _, error = run(*words, "show", "nothing")
    assert ("\x1b[" in error) is coloured
