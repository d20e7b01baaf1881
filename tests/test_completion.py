"""What the shell offers: every parameter that names something in the store completes it."""

from __future__ import annotations

import json
import re

import click
import pytest
from conftest import Cli
from test_house import commands

from tfgrpo.cli.start_context import Named

ARE_NAMES = ("revision", "experience", "branch", "tag", "run", "library", "against", "resume")
NEW = {
    **dict.fromkeys(
        (f"tfgrpo {verb} tags" for verb in ("traffic", "experiment status")),
        "tags of traffic, NAME=VALUE",
    ),
    "tfgrpo checkout branch": "the name of a branch to be made",
    "tfgrpo train name": "the name of a run to be made",
    "tfgrpo import run": "the name of a run to be made",
    "tfgrpo traffic library": "a library as the proxy's settings name it",
    "tfgrpo collect library": "a library as the proxy's settings name it",
    "tfgrpo improve library": "a library as the proxy's settings name it",
}


def test_every_parameter_that_names_something_completes() -> None:
    bare = [
        f"{name} {parameter.name}"
        for name, command in commands()
        for parameter in command.params
        if parameter.name
        and (parameter.name.rstrip("s") in ARE_NAMES or parameter.name in ("good", "bad"))
        and not isinstance(parameter.type, Named)
        and not isinstance(parameter.type, click.types.BoolParamType)
    ]
    assert set(bare) <= NEW.keys()


def test_every_verb_that_reads_has_json() -> None:
    changes = "init train checkout add modify delete keep move edit import switch reset undo redo"
    changes += " clone fetch pull push mirror feedback rollout"
    other = "export completion serve proxy help mcp ui watch"  # servers, a format
    # groups, whose subcommands that read have it
    groups = "bisect bundle experiment key model proposal remote store workers"
    bare = [
        name.removeprefix("tfgrpo ")
        for name, command in commands()
        if name.count(" ") == 1 and "as_json" not in {p.name for p in command.params}
    ]
    assert set(bare) <= {*changes.split(), *other.split(), *groups.split()}


@pytest.fixture
def shop(cli: Cli) -> Cli:
    cli("init")
    cli("add", "Count both days.", "Round up.")
    cli("branch", "web")
    cli("tag", "approved")
    cli("remote", "add", "team", "../team")
    return cli


OFFERED: dict[str, set[str]] = {
    "show G": {"G0", "G1"},
    "show we": {"web"},
    "remote ": {"add", "list", "remove", "set-url"},
    "proposal acc": {"accept"},
    "workers r": {"run"},
    "-C . switch w": {"web"},
    "log v0..w": {"v0..web"},
    "switch ": {"main", "web"},
    "branch --rename w": {"web"},
    "tag -d ": {"approved"},
    "reflog H": {"HEAD"},
    "bisect start v": {"v0", "v1"},
    "log --experience G": {"G0", "G1"},
    "runs x": set(),
    "fetch ": {"team"},
    "push team ": {"main", "web", "approved"},
    "bundle create a.bundle ma": {"main"},
}


def test_the_shell_is_offered_what_fits(shop: Cli) -> None:
    for typed, offered in OFFERED.items():
        words = ["tfgrpo", *typed.split(" ")]
        env = {
            "_TFGRPO_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
        }
        lines = shop(env=env).stdout.splitlines()
        assert {line.partition(",")[2] for line in lines if line} == offered, typed


def test_diff_works_between_branches_and_across_a_merge(shop: Cli) -> None:
    shop("switch", "web")
    shop("modify", "G0", "Count both the days.")
    shop("switch", "main")
    shop("delete", "G1")
    shop("merge", "web")
    assert shop("diff", "web", "main", "--stat").stdout == "v2 → v4: 1 deleted\n"
    assert shop("diff", "web..main", "--stat").stdout == "v2 → v4: 1 deleted\n"
    assert shop("diff", "main~1", "main", "--stat").stdout == "v3 → v4: 1 modified\n"
    assert shop("diff", "HEAD^2", "HEAD^1", "--stat").stdout == "v2 → v3: 1 modified, 1 deleted\n"
    assert len(shop("diff", "web", "HEAD~1", "--name-only").stdout.splitlines()) == 2
    found = json.loads(shop("diff", "web", "main", "--json").stdout)
    assert [change["op"] for change in found["changes"]] == ["DELETE"]
    assert shop("diff", "web", "main", "--exit-code", ok=False).returncode == 1


def test_a_merge_points_out_what_it_brings_together(cli: Cli) -> None:
    cli("init")
    cli("branch", "web")
    cli("add", "Count both the first and the last day.", "Multiply the weeks by 5.")
    cli("switch", "web")
    cli("add", "Count both the first and the last days.", "Multiply the weeks by 4.")
    cli("add", "Count both, the first and the last day!")  # alike, but not brought together
    cli("switch", "main")
    said = cli("merge", "web").stdout
    assert said.count("say nearly the same") == 2
    assert "G2 and G0 say nearly the same" in said
    suggested = re.findall(r"`tfgrpo (delete \w+)` if they do", said)
    for command in suggested:  # a label would be another experience's once the first is gone
        cli(*command.split())
    left = list(json.loads(cli("export").stdout).values())
    assert len(suggested) == 2
    assert left[0] == "Count both the first and the last day."
    assert [text.partition(" by ")[0] for text in left[1:]] == ["Multiply the weeks"] * 2
    cli("undo")
    cli("undo")
    cli("undo")
    found = json.loads(cli("merge", "web", "--json").stdout)
    assert [change["op"] for change in found["changes"]] == ["ADD"] * 3
    assert len(found["alike"]) == 2
    assert all(pair["likeness"] >= 85 for pair in found["alike"])


def test_conflicts_speak_json(cli: Cli) -> None:
    cli("init")
    cli("add", "Count the days.")
    cli("branch", "web")
    cli("modify", "G0", "Count the first days.")
    cli("switch", "web")
    cli("modify", "G0", "Count the last days.")
    done = cli("merge", "main", "--json", ok=False)
    assert done.returncode == 1
    (conflict,) = json.loads(done.stdout)["conflicts"]
    assert conflict["base"] == "Count the days."
    assert json.loads(cli("merge", "main", "--theirs", "--json").stdout)["conflicts"] == []
    reverted = json.loads(cli("revert", "HEAD", "--json").stdout)
    assert [change["op"] for change in reverted["changes"]] == ["MODIFY"]
