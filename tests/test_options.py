"""Options, their help and the keys of a settings file come from one definition: the records."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from conftest import ROOT

from tfgrpo.agents.agent_settings import AgentSettings
from tfgrpo.cli.help import EVERYTHING, SECTIONS, SectionedCommand
from tfgrpo.cli.main import COMMANDS, FIRST, tfgrpo
from tfgrpo.cli.options import FLAGS
from tfgrpo.model.settings import ModelSettings
from tfgrpo.project import open_project, read_options
from tfgrpo.settings import EvalSettings, TrainSettings, build
from tfgrpo.tools.toolbox import ToolSettings

TABLES = {
    "model": ModelSettings,
    "tools": ToolSettings,
    "agent": AgentSettings,
    "train": TrainSettings,
}
WORDS = {
    FLAGS.get(name, name): (table, name, " ".join(field.description.split()))
    for table, kind in TABLES.items()
    for name, field in kind.model_fields.items()
    if field.description is not None
}
"""An option of `train` → the table and key that set the same, and the words of its help."""
NEEDED = {"workspace": {"agent": "a b"}, "answer_file": {"agent": "a b", "workspace": "w"}}
"""What has to be set beside a setting."""


def command(verb: str) -> click.Command:
    found = tfgrpo.get_command(click.Context(tfgrpo), verb)
    assert found is not None
    return found


def options(verb: str) -> dict[str, click.Option]:
    found = [one for one in command(verb).params if isinstance(one, click.Option)]
    return {str(one.name): one for one in found}


def test_train_has_an_option_for_each_setting_that_has_words_with_these_words() -> None:
    there = options("train")
    assert len(WORDS) > 40
    for name, (_, _, words) in WORDS.items():
        assert " ".join(str(there[name].help).split()).startswith(words), name


def test_no_help_of_a_setting_is_written_twice() -> None:
    known, words = {one for _, _, one in WORDS.values()}, Counter[str]()
    for path in (ROOT / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                said = " ".join(node.value.partition("  [")[0].split())
                words[said] += said in known
    assert {said for said, number in words.items() if number} == set()


@pytest.mark.parametrize("name", sorted(WORDS.keys() - {"corpus"}))  # which also adds the tools
def test_an_option_and_its_key_in_a_settings_file_come_to_the_same(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    option = options("train")[name]
    values = {name: value_of(name, option), **NEEDED.get(name, {})}
    tables: dict[str, dict[str, Any]] = {}
    words: list[str] = []
    for key, value in values.items():
        table, setting, _ = WORDS[key]
        tables.setdefault(table, {})[setting] = value
        words += written(options("train")[key], value)
    lines = [f"[{table}]\n{toml(settings)}" for table, settings in tables.items()]
    with command("train").make_context("train", words) as context:
        given = read_options({key: context.params[key] for key in values})
    bare = open_project(tmp_path)
    by_option = recorded(bare, given)
    Path("tfgrpo.toml").write_text("\n".join(lines))
    assert by_option == recorded(open_project(tmp_path), {})
    assert name in (*NEEDED, "workspace") or by_option != recorded(bare, {})


def recorded(project: Any, given: dict[str, Any]) -> TrainSettings:
    given = dict(given)
    layers = [project.tool_layer(given), given, project.table("train"), project.table("model")]
    return build(TrainSettings, *layers, {"data": "d.jsonl"}, find_domain=project.domain)


def value_of(name: str, option: click.Option) -> Any:
    """A value that is not the default."""
    fixed = {"fields": {"answer": "gold"}, "field": {"answer": "gold"}, "domain": "exact"}
    fixed |= {"temperature": 1.5, "api_key_env": "KEY", "reflection_api_key_env": "KEY"}
    fixed |= {"base_url": "http://127.0.0.1:1/v1", "reflection_base_url": "http://127.0.0.1:2"}
    fixed |= dict.fromkeys(("gate", "heldout", "prompts", "sealed"), "/elsewhere")
    fixed |= {"agent": "a b", "patience": "90s", "policy": "paper"}
    if name in fixed:
        return fixed[name]
    if isinstance(option.type, click.Choice):
        return list(option.type.choices)[-1]
    if option.is_flag:
        return not option.secondary_opts
    number = {click.INT: 17, click.FLOAT: 17.5}.get(option.type)
    return "other" if number is None else number


def written(option: click.Option, value: Any) -> list[str]:
    if option.is_flag:
        return [option.opts[0] if value else option.secondary_opts[0]]
    pairs = [f"{ours}={theirs}" for ours, theirs in value.items()] if option.multiple else [value]
    return [word for one in pairs for word in (option.opts[0], str(one))]


def toml(settings: dict[str, Any]) -> str:
    def shown(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{key} = {shown(one)}" for key, one in value.items()) + "}"
        return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')

    return "".join(f"{key} = {shown(value)}\n" for key, value in settings.items())


def help_of(verb: str, *, everything: bool) -> str:
    context = click.Context(command(verb), info_name=verb)
    if everything:
        context.meta[EVERYTHING] = True
    return command(verb).get_help(context)


def listed_in(help: str) -> list[str]:
    return help.partition("\nRun:\n")[2].splitlines()


@pytest.mark.parametrize("verb", ["train", "eval", "compare", "improve", "regress"])
def test_help_lists_what_most_people_need_and_help_all_each_option_once(verb: str) -> None:
    assert isinstance(command(verb), SectionedCommand)
    listed = [name for parts in SECTIONS.values() for part in parts for name in part]
    assert len(listed) == len(set(listed))
    flags = {one.opts[-1] for one in options(verb).values()}
    brief, whole = (help_of(verb, everything=everything) for everything in (False, True))
    rows = [row for row in listed_in(whole) if row.startswith("  -")]
    named = [row.split("  ")[1].replace(",", " ").split() for row in rows]
    assert sorted(flag for row in named for flag in row if flag in flags) == sorted(flags)
    shown = [row for row in listed_in(brief) if row.startswith("  -")]
    assert len(shown) < len(rows)
    assert f"lists {len(rows) - len(shown)} more options" in brief
    assert "more options" not in whole


def test_the_help_of_train_is_short_and_has_each_section() -> None:
    brief = help_of("train", everything=False)
    assert sum(row.startswith("  -") for row in brief.splitlines()) <= 28
    assert [row[:-1] for row in brief.splitlines() if row[:-1] in SECTIONS] == list(SECTIONS)


def test_the_first_help_shows_about_ten_verbs_and_says_how_to_see_all() -> None:
    context = click.Context(tfgrpo, info_name="tfgrpo")
    brief = tfgrpo.get_help(context)
    listed = brief.partition("\nCommands:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == list(FIRST)
    assert 8 <= len(FIRST) <= 12
    assert f"`tfgrpo help --all` lists all {len(COMMANDS)} commands" in brief
    context.meta[EVERYTHING] = True
    whole = tfgrpo.get_help(context)
    assert all(f"\n  {verb} " in whole for verb in COMMANDS)


def test_an_evaluation_tells_its_own_default() -> None:
    assert str(EvalSettings.model_fields["temperature"].default) in str(
        options("eval")["temperature"].help
    )


@pytest.mark.parametrize("verb", ["train", "prove", "eval", "collect", "improve", "regress"])
def test_the_details_of_an_estimate_need_one(verb: str) -> None:
    words = [verb, "--details", *(["v0"] if verb == "prove" else [])]
    done = CliRunner().invoke(tfgrpo, words)
    assert (done.exit_code, "--details needs --estimate" in done.output) == (2, True)
