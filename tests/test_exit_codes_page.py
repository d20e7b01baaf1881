"""docs/exit-codes.md: the codes are those that commands have, and who speaks JSON is named."""

from __future__ import annotations

import re
import shlex

import click
import pytest
from conftest import ROOT, Cli
from test_house import commands

from tfgrpo.store import exit_codes

PAGE, _, JSON = (ROOT / "docs/exit-codes.md").read_text().partition("\n## `--json`\n")
CODES = {
    int(code)
    for row in re.findall(r"^\| ([\d, ]+)", PAGE, re.M)
    for code in row.split(",")
    if code.strip()
}


def test_the_page_has_every_code_that_an_error_carries() -> None:
    ours = {code for name, code in vars(exit_codes).items() if name.isupper()}
    assert len(ours) == 6
    assert ours < CODES
    assert {0, 129, 143} < CODES


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("log", 0),
        ("show nowhere", 1),
        ("diff --exit-code v0 v1", 1),
        ("diff --exit-code v1 v1", 0),
        ("tag --verify approved", 1),
        ("log --no-such-option", 2),
        ("train no-such-file.jsonl", 1),
        ("fsck", 0),
    ],
)
def test_commands_exit_as_the_page_says(cli: Cli, line: str, code: int) -> None:
    cli("init")
    cli("add", "Count both days.")
    cli("tag", "approved")
    assert cli(*shlex.split(line), ok=code == 0).returncode == code


def test_every_command_with_json_is_named_and_no_other() -> None:
    rows = re.findall(r"^\| \w.* \| (`.*) \|$", JSON, re.M)
    named = [name for row in rows for name in re.findall(r"`([a-z][a-z -]*)`", row)]
    having = {
        name.removeprefix("tfgrpo ")
        for name, command in commands()
        for parameter in command.params
        if isinstance(parameter, click.Option) and "--json" in parameter.opts
    }
    assert sorted(named) == sorted(having)
