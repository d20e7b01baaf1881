"""Verbs in any order with arguments of all kinds: an answer or one line of error, no traceback.

The verbs, their options and what each takes are read from the commands themselves, so a new verb
is driven as soon as it is listed. TFGRPO_LONG=1 drives four hundred sequences.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from conftest import LONG, environment

from tfgrpo.cli.main import COMMANDS, main, tfgrpo
from tfgrpo.cli.start_context import EXPERIENCE, REVISION
from tfgrpo.store import Store
from tfgrpo.store.fsck import fsck

SEQUENCES, LENGTH = (400, 40) if LONG else (16, 25)

SERVERS = {"mcp", "proxy", "rollout", "ui", "watch", "workers"}
SKIPPED = {"train", "eval", "improve", "model", "regress", *SERVERS}
"""These call models, fetch files or serve until they are ended, and have tests of their own."""
VERBS = [name for name in COMMANDS if name not in SKIPPED]
OFTEN = [v for v in ("add", "modify", "delete", "switch", "branch", "tag", "merge") if v in VERBS]

REVISIONS = (
    *("HEAD", "@", "main", "web", "x/y", "v0", "v1", "v2", "v3", "HEAD~1", "web^2", "main@{1}"),
    *(
        "HEAD~99",
        "v999",
        "step_0",
        "run/step_1",
        "main@{99}",
        "HEAD~~^",
        "nope",
        "",
        "-",
        "~",
        "@{",
    ),
    *(
        "main..web",
        "v1..HEAD",
        "..",
        "v1..v999",
        "0000",
        "ü",
        "a b",
        "v99999999999999999999",
        "..v2",
    ),
)
EXPERIENCES = ("G0", "G1", "G2", "G3", "G99", "G", "0", "a", "zzzzzzzzzzzz", "", "ü", "HEAD", "%")
NAMES = ("web", "draft", "x/y", "main", "approved", "HEAD", "v3", "a..b", "", "ü", "-x", "x" * 300)
TEXTS = (
    *("count both days", "round up", "count every day", "a\nb", "# no heading", "- item", "[G0]"),
    *("", " ", "ü 数 🙂", "half \udcff", "[red]not markup[/red]", "G0", "0", "x" * 300),
)
FILES = ("out.md", "out.json", "library.md", "missing/out.md", ".", "", "tfgrpo.toml", "-")
NUMBERS = ("1", "2", "50", "0", "-1", "x", "99999999999999999999")


class Sequence:
    """Draws command lines that are mostly well formed."""

    def __init__(self, dice: random.Random, ids: list[str]) -> None:
        self.dice = dice
        self.ids = ids

    def line(self) -> list[str]:
        name = self.dice.choice(OFTEN if self.dice.random() < 0.5 else VERBS)
        words = [name]
        command = tfgrpo.get_command(click.Context(tfgrpo), name)
        while isinstance(command, click.Group) and command.commands:
            words.append(self.dice.choice(sorted(command.commands)))
            command = command.commands[words[-1]]
        assert command is not None
        arguments: list[str] = []
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                words += self.option(parameter)
            else:
                arguments += self.argument(parameter)
        if self.dice.random() < 0.02:
            words.append(self.dice.choice(["--nope", "-9", "--json=1", "--help"]))
        return words + (["--"] if any(a.startswith("-") for a in arguments) else []) + arguments

    def option(self, option: click.Option) -> list[str]:
        if self.dice.random() > 0.12:
            return []
        flag = self.dice.choice(option.opts)
        return [flag] if option.is_flag or option.count else [flag, self.value(option)]

    def argument(self, argument: click.Parameter) -> list[str]:
        if not argument.required and self.dice.random() < 0.4:
            return []
        count = self.dice.randint(1, 3) if argument.nargs == -1 else argument.nargs
        return [self.value(argument) for _ in range(count)]

    def value(self, parameter: click.Parameter) -> str:
        kind = parameter.type
        if self.dice.random() < 0.05:
            return self.dice.choice((*TEXTS, *REVISIONS))
        if isinstance(kind, click.Choice):
            return str(self.dice.choice([str(choice) for choice in kind.choices]))
        if kind is EXPERIENCE:
            known = self.ids if self.ids and self.dice.random() < 0.3 else EXPERIENCES[:4]
            return self.dice.choice(known if self.dice.random() < 0.8 else EXPERIENCES)
        if kind is REVISION:
            return self.dice.choice(REVISIONS[:12] if self.dice.random() < 0.7 else REVISIONS)
        if isinstance(kind, click.Path) or parameter.name in ("file", "output"):
            return self.dice.choice(FILES)
        if isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
            return self.dice.choice(NUMBERS)
        if parameter.name in ("name", "branch", "run"):
            return self.dice.choice(NAMES[:5] if self.dice.random() < 0.8 else NAMES)
        return self.dice.choice(TEXTS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for key in os.environ.keys() - environment().keys():
        monkeypatch.delenv(key)
    for key, value in environment(EDITOR="true", HOME=str(tmp_path)).items():
        monkeypatch.setenv(key, value)
    with open(os.devnull) as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield tmp_path


def run(line: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs a command line in this process, as the shell would; anything but an exit escapes."""
    monkeypatch.setattr("sys.argv", ["tfgrpo", *line])
    with pytest.raises(SystemExit) as left:
        main()
    assert isinstance(left.value.code, int)
    return left.value.code


def test_no_sequence_of_verbs_ends_in_a_traceback_or_a_damaged_store(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = random.randrange(10**6) if LONG else 0
    answered = 0
    for seed in range(first, first + SEQUENCES):
        place = folder / str(seed)
        place.mkdir()
        monkeypatch.chdir(place)
        done = [["init"], ["add", "count both days", "round up"], ["branch", "web"]]
        for line in done:
            assert run(line, monkeypatch) == 0
        for _ in range(LENGTH):
            with Store.open(place / ".tfgrpo/store.db") as store:
                newest = store.version(store.port.last_version())
                ids = [e.id for e in store.library(newest)]
            done.append(Sequence(random.Random(f"{seed} {len(done)}"), ids).line())
            capsys.readouterr()
            try:
                code = run(done[-1], monkeypatch)
            except BaseException as error:
                error.add_note(f"seed {seed}: {done}")
                raise
            out, err = capsys.readouterr()
            answered += code == 0
            told = f"seed {seed}, exit {code}, {done}:\n{out}\n{err}"
            unanswered = code == 130 and "[y/N]" in out + err  # there is nobody to ask
            assert code in (0, 1, 2) or unanswered, told
            errors = [each for each in err.splitlines() if each.startswith("error: ")]
            differing = done[-1][0] == "diff" and "--exit-code" in done[-1] and code == 1
            assert len(errors) == (code != 0) or (differing and not errors), told
            assert "Traceback" not in out + err, told
        with Store.open(place / ".tfgrpo/store.db") as store:
            assert fsck(store).problems == (), done
    assert answered > SEQUENCES * LENGTH / 3, "hardly any command was well formed"
