"""Options made from the records of settings, and those that commands share. Help reads
`setting_options.json`, by `docs/setting_options.py`, and loads no record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any

import click

from tfgrpo.cli.flags import Decorator, flag, option, path, together
from tfgrpo.cli.start_context import BRANCH, App

CONFIG = option(
    "--config",
    "Settings file; by default tfgrpo.toml next to the store.",
    type=path(),
)
BUDGET = option("--budget", "Stop before spending more than this: 5.00 (US dollars) or 200000tok.")
INSPECT = option(
    "--inspect FILE[@TASK]",
    "In place of DATA: a task of inspect_ai, with its samples, solver and scorers.",
)
FLAGS = {"fields": "field", "run": "agent"}
"""Settings whose options are not called as they are."""
METAVARS = {
    "field": "OURS=THEIRS",
    "agent": "AGENT",
    "reward": "COMMAND",
    "policy": "NAME",
    "workspace": "FOLDER",
    "prompts": "FOLDER",
    "answer_file": "FILE",
    "corpus": "FILE",
    "patience": "TIME",
    "heldout": "DATA",
    "gate": "DATA",
    "sealed": "DATA",
}
"""Options whose text the settings read, and what that is."""
PATHS = ("FOLDER", "FILE", "DATA")
TYPES: dict[str, type] = {"int": int, "float": float}
DEFAULTS = {
    "answer_file": "standard output",
    "library_tokens": "no limit",
    "patience": "10m",
    "reflection_api_key_env": "--api-key-env",
    "reflection_base_url": "--base-url",
    "reward": "the domain's verifier",
    "top_k": "0; 2 for a local model where problems have one answer",
    **dict.fromkeys(("branch", "model", "agent_objective", "learning_objective"), ""),
}
"""Defaults that are told in other words than the record's; an empty one is not told."""


def from_settings(*kinds: str, own: Collection[str] = (), also: Collection[str] = ()) -> Decorator:
    """Gives a command the `shared` settings, and of `train` or `eval` all or its `own`, as one
    mapping `settings`, in which options of its own that are settings `also` are."""
    from json import loads

    records = loads(Path(__file__).with_name("setting_options.json").read_text())
    listed = {"inspect": INSPECT}
    for kind in kinds:
        for name, *setting in records[kind]:
            if kind == "shared" or not own or name in own:
                listed[name] = _option(name, *setting)

    def added(command: Any) -> Any:
        there = {name for one in getattr(command, "__click_params__", ()) for name in one.opts}
        for name in [name for name in listed if f"--{name.replace('_', '-')}" in there]:
            del listed[name]

        @wraps(command)
        def called(*args: Any, **given: Any) -> Any:
            settings = {name: given.pop(name) for name in (*listed, *also)}
            return command(*args, settings=settings, **given)

        return together(*listed.values())(called)

    return added


def _option(name: str, shape: str | list[str], default: object, help: str) -> Decorator:
    written, metavar = f"--{name.replace('_', '-')}", METAVARS.get(name)
    words = DEFAULTS.get(name, _default_words(default))
    help += f"  [{words}]" if words else ""
    if shape == "bool":
        return flag(f"{written}/--no-{written[2:]}" if default else written, help, default=None)
    kind: Any = TYPES.get(shape, str) if isinstance(shape, str) else click.Choice(shape)
    if name == "branch":
        kind = BRANCH
    elif metavar is not None:
        kind = click.Path() if metavar in PATHS else str
    return option(written, help, type=kind, multiple=name == "field", metavar=metavar)


def _default_words(default: object) -> str:
    """How help tells a default: nothing where there is none to tell."""
    if isinstance(default, bool):
        return "yes" if default else ""
    if isinstance(default, int | float):
        return f"{default:g}"
    return default if isinstance(default, str) else ""


def _details_of_one(command: Any) -> Any:
    @wraps(command)
    def called(*args: Any, **given: Any) -> Any:
        if given["details"] and not given["estimate"]:
            raise click.UsageError("--details needs --estimate")
        return command(*args, **given)

    return called


estimate = together(
    flag("--estimate", "Print the estimated calls and cost, then exit."),
    flag("--details", "With --estimate: calls, tokens and cost by stage."),
    _details_of_one,
)


def refuse_revisions(app: App, verb: str, data: Sequence[str]) -> None:
    """Raises SettingsError for data that are revisions, with the command that was meant."""
    from tfgrpo.data import datasets
    from tfgrpo.store.errors import SettingsError, TfgrpoError

    revisions = []
    for name in data:
        spec = datasets.parse(name)
        with suppress(TfgrpoError):  # neither: what is wrong with it is told when it is opened
            if not (spec.on_hub or Path(spec.source).exists()) and app.store.resolve(name):
                revisions.append(name)
    if not revisions:
        return
    *against, library = revisions
    control = f" --against {against[-1]}" if against else ""
    files = " ".join(name for name in data if name not in revisions) or "DATA.jsonl"
    raise SettingsError(
        f"{revisions[0]} is a version, where a file of problems is expected",
        hint=f"tfgrpo {verb} {files} --library {library}{control}",
    )


def read_flags(values: Mapping[str, Any]) -> dict[str, Any]:
    """The flags that were given, with --field as a table. Raises SettingsError."""
    from tfgrpo.project import read_options

    return read_options(values)
