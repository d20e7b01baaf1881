"""docs/exit-codes.md: the codes are those that commands have, and who speaks JSON is named."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from conftest import ROOT, Cli, problems
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
        ("log --since garbage", 2),
        ("log --until garbage", 2),
        ("traffic --since x", 2),
        ("collect --since x", 2),
        ("proxy --keep x", 2),
        ("proxy --keep yesterday", 2),
        ("proxy --keep '2 days ago'", 2),
        ("proxy --keep 0d", 2),
        ("rollout approved --on main --until yesterday", 2),
        ("rollout approved --on main --until '1h ago'", 2),
        ("key new x --budget abc", 2),
        ("key new x --expires x", 2),
        ("train p.jsonl --domain nope", 2),
        ("train p.jsonl --domain math:7", 2),
        ("train p.jsonl --domain 'choice:[1'", 2),
        ("train p.jsonl --domain json:{", 2),
        ("train p.jsonl --domain rubric:missing.toml", 2),
        ("train p.jsonl --domain math+verify=nope", 2),
        ("train p.jsonl --field foo=bar", 2),
        ("train p.jsonl --run 'bad name' --model m --base-url http://127.0.0.1:1/v1", 2),
        ("train p.jsonl --branch 'bad name' --model m --base-url http://127.0.0.1:1/v1", 2),
        ("train p.jsonl --budget abc --model m --base-url http://127.0.0.1:1/v1", 2),
        ("verify p.jsonl --pattern '('", 2),
        ("verify p.jsonl --field foo=bar", 2),
        ("branch 'bad name'", 2),
        ("tag v7", 2),
        ("remote add 'bad name' elsewhere", 2),
        ("experiment start 'bad name' --control main --candidate approved", 2),
        ("improve", 1),
        ("model check --base-url http://127.0.0.1:1/v1", 1),
        ("train p.jsonl --base-url http://127.0.0.1:1/v1", 1),
    ],
)
def test_commands_exit_as_the_page_says(cli: Cli, tmp_path: Path, line: str, code: int) -> None:
    cli("init")
    cli("add", "Count both days.")
    cli("tag", "approved")
    (tmp_path / "p.jsonl").write_text(problems(range(4)))
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
