"""Each option that a page of the documentation shows with a command is one of that command's."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from tfgrpo.cli.main import tfgrpo

PAGES = sorted(Path(__file__).parent.parent.glob("docs/*.md"))
SHOWN = re.compile(r"`(tfgrpo [^`]+)`|^\$? ?(tfgrpo [^\n]+)$", re.M)
ALONE = re.compile(r"`(--[a-z][^`]*)`")
ELSEWHERE = ("commands", "for-git-users", "from-the-reference")
"""The page that is written from the options, and those that name options of other programs."""
STRING = re.compile(r"\"[^\"]*\"|'[^']*'")


def command_of(words: list[str]) -> tuple[click.Command, list[str]]:
    """Returns the command that words begin with, and the rest of them."""
    command: click.Command = tfgrpo
    context = click.Context(tfgrpo)
    rest = list(words)
    while rest and isinstance(command, click.Group):
        if rest[0].startswith("-"):
            break
        within = command.get_command(context, rest[0])
        if within is None:
            break
        command, rest = within, rest[1:]
    return command, rest


def options_of(command: click.Command) -> set[str]:
    """Returns the options of a command, without those of the commands in it."""
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return known | {"--help", "--help-all"}


def every_option(command: click.Command) -> set[str]:
    """Returns the options of a command and of all in it."""
    if not isinstance(command, click.Group):
        return options_of(command)
    context = click.Context(command)
    within = (command.get_command(context, name) for name in command.list_commands(context))
    return options_of(command).union(*map(every_option, filter(None, within)))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_options_that_there_are(page: Path) -> None:
    wrong = []
    for match in SHOWN.finditer(page.read_text()):
        line = STRING.sub("x", match[1] or match[2])
        if page.stem == "commands":
            continue
        for one in re.split(r"[|;&]+ ?|\$\(", line):
            words = one.split()
            if words[:1] != ["tfgrpo"]:
                continue
            command, rest = command_of(words[1:])
            if isinstance(command, click.Group):
                continue  # options of the program itself, or no command that was named
            given = {re.split("[=]", word)[0] for word in rest if re.match("--[a-z]", word)}
            wrong += [f"{one}: {name}" for name in sorted(given - options_of(command))]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_option_that_a_page_names_alone_is_one_of_some_command(page: Path) -> None:
    named = {re.split("[ =]", span)[0] for span in ALONE.findall(page.read_text())}
    assert page.stem in ELSEWHERE or named - every_option(tfgrpo) == set()
