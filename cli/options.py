"""Flags that `train` and `eval` share, and how flags and `tfgrpo.toml` become settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tfgrpo.cli.context import App

if TYPE_CHECKING:
    from tfgrpo.data.problems import Problem
    from tfgrpo.domains.base import Domain
    from tfgrpo.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
PATHS = ("data", "heldout", "gate", "sealed", "prompts")
FILES = (*PATHS, "corpus")

MODEL = click.option("--model", help="local:NAME, or a model at --base-url.")
SHARED = (
    click.option("--config", type=click.Path(path_type=Path), help="Settings; else tfgrpo.toml."),
    click.option(
        "--field",
        "fields",
        multiple=True,
        metavar="OURS=THEIRS",
        help="Where DATA keeps problem, answer or id, as in answer=gold.",
    ),
    click.option(
        "--skip-unverifiable",
        is_flag=True,
        default=None,
        help="Leave out problems whose ground truth no answer can be compared with.",
    ),
    click.option(
        "--domain", help="What kind of problems: a name or package.module:object.  [math]"
    ),
    click.option(
        "--mode",
        type=click.Choice(["prompt", "agent"]),
        help="Answer at once, or with the tools of [tools] in tfgrpo.toml.  [prompt]",
    ),
    click.option("--turns", type=int, help="The most turns of an agent's attempt.  [10]"),
    click.option("--corpus", help="Passages for an agent to search and visit, as JSONL."),
    click.option(
        "--sandbox",
        type=click.Choice(["auto", "require", "off"]),
        help="Where an agent's code runs: bubblewrap if it works here, or it alone.  [auto]",
    ),
    click.option(
        "--inject",
        type=click.Choice(["all", "top-k"]),
        help="Put the whole library into a prompt, or what fits the problem best.  [all]",
    ),
    click.option("--top-k", type=int, help="Experiences in a prompt with --inject top-k.  [8]"),
    MODEL,
    click.option("--base-url", help="An OpenAI-compatible endpoint, as http://127.0.0.1:8000/v1."),
    click.option("--api-key-env", help="The environment variable that holds the key."),
    click.option("--agent-objective", help="What attempts are for, in your words."),
    click.option("--prompts", help="A folder of prompts that take the place of ours."),
    click.option("--concurrency", type=int, help="Requests in flight at once.  [128]"),
    click.option("--temperature", type=float, help="Of the attempts."),
    click.option("--max-tokens", type=int, help="Of one answer.  [16384]"),
    click.option("--task-timeout", type=float, help="Seconds for one attempt.  [1800]"),
    click.option("--seed", type=int, help="Of batches and samples.  [0]"),
)


def shared(command: F) -> F:
    """Adds the flags that training and evaluation share."""
    for option in reversed(SHARED):
        command = option(command)
    return command


def shared_by_models(command: F) -> F:
    """Adds the flags that `shared` does, without --model, for a command that takes several."""
    for option in reversed(SHARED):
        command = command if option is MODEL else option(command)
    return command


def from_file(app: App, config: Path | None) -> dict[str, dict[str, Any]]:
    """Returns the tables of the settings file: the one named, else `tfgrpo.toml` by the store.

    Paths in it are relative to the file. Raises SettingsError.
    """
    from tfgrpo.settings import FILE, read_toml

    path = config or _root(app) / FILE
    if config is None and not path.is_file():
        return {}
    tables = read_toml(path)
    for table in tables.values():
        for key in FILES:
            if isinstance(table.get(key), str) and not _on_hub(table[key]):
                table[key] = str(path.parent / table[key])
        name, colon, argument = str(table.get("domain", "")).partition(":")
        if colon and (path.parent / argument).is_file():
            table["domain"] = f"{name}:{path.parent / argument}"
    return tables


def flags(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags that were given, with --field as a table."""
    given = {key: value for key, value in values.items() if value is not None}
    pairs = given.pop("fields", ())
    for pair in pairs:
        ours, equals, theirs = pair.partition("=")
        if not equals or not theirs:
            raise click.BadParameter(f"{pair!r} is not OURS=THEIRS", param_hint="--field")
        given.setdefault("fields", {})[ours] = theirs
    return given


def verifiable(
    dataset: tuple[Problem, ...], named: str, domain: Domain, *, skip: bool
) -> tuple[tuple[Problem, ...], tuple[str, ...]]:
    """Returns the problems that can be judged, and the ids of those left out, having told them.

    Raises DatasetError where there are such and `skip` does not allow to leave them out.
    """
    from tfgrpo.data.problems import without
    from tfgrpo.domains.verifier import check_golds, describe_objection

    found = check_golds(dataset, named, domain, skip=skip)
    if not found:
        return dataset, ()
    ids = tuple(problem.id for problem, _ in found)
    some = ", ".join(ids[:8]) + (", …" if len(ids) > 8 else "")
    told = f"{named}: {len(ids)} of {len(dataset):,} problems left out, as they cannot be judged"
    warn([f"{told}: {some} ({describe_objection(*found[0])})"])
    return without(dataset, ids), ids


def tools(app: App, tables: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings of tools as a layer: [tools], and over it flags, which leave `given`.

    A corpus is kept relative to the store's folder, and makes search and visit tools to use.
    """
    table = dict(tables.get("tools", {}))
    flags = {key: given.pop(key) for key in ("corpus", "sandbox") if key in given}
    if "corpus" in flags:
        table.setdefault("use", ["search", "visit"])
    table |= flags
    if isinstance(table.get("corpus"), str):
        table["corpus"] = kept_path(app, table["corpus"])
    return {"tools": table} if table else {}


def tell_sandbox(settings: Settings) -> None:
    """Says once what an agent's Python runs in, where that is not the strongest."""
    if settings.mode == "agent" and "python" in settings.tools.use:
        from tfgrpo.tools.sandbox import strength

        found = strength(settings.tools.sandbox)
        if found.level != "bubblewrap":
            warn([f"Python runs in {found}, not in bubblewrap; --sandbox require refuses that"])


def domain(app: App, spec: str | None) -> Domain:
    """Returns the domain of that name; modules are looked for here and beside the store.

    A file in its argument is relative to the store's folder where there is none here.
    Raises DomainError.
    """
    from tfgrpo import domains

    name, colon, argument = (spec or domains.DEFAULT).partition(":")
    root = _root(app)
    if argument and name in domains.names() and not os.path.exists(argument):
        beside = root / argument
        argument = str(beside) if beside.exists() else argument
    return domains.find(name + colon + argument, (Path.cwd(), root))


def _root(app: App) -> Path:
    """Returns the store's folder, or this one where there is no store."""
    from tfgrpo.store.errors import StoreError

    try:
        return app.root
    except StoreError:
        return Path.cwd()


def kept_domain(app: App, spec: str) -> str:
    """Returns a domain's name as it goes into a record, a file in it relative to the store's."""
    name, colon, argument = spec.partition(":")
    return f"{name}:{kept_path(app, argument)}" if colon and os.path.exists(argument) else spec


def warn(lines: Sequence[str]) -> None:
    """Prints what a person should know, to standard error."""
    color = False if os.environ.get("NO_COLOR") else None
    for line in lines:
        click.secho("warning: ", fg="yellow", nl=False, err=True, color=color)
        click.echo(line, err=True, color=color)


def kept_path(app: App, path: str) -> str:
    """Returns a path as it goes into a record: relative to the store's folder."""
    return path if _on_hub(path) else os.path.relpath(path, app.root)


def _on_hub(name: str) -> bool:
    """Whether a dataset's name is no path."""
    from tfgrpo.data.datasets import parse

    return parse(name).on_hub


def opened_data(app: App, name: str) -> str:
    """Returns a dataset from a record by its name as seen from here."""
    return name if _on_hub(name) else str(opened_path(app, name))


def opened_path(app: App, path: str) -> Path:
    """Returns where a path from a record is, as seen from here."""
    found = app.root / path
    relative = os.path.relpath(found)
    return Path(relative) if not relative.startswith("..") else found.resolve()
