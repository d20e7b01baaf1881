"""Flags that `train` and `eval` share, and how flags and `tfgrpo.toml` become settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tfgrpo.cli.context import App

if TYPE_CHECKING:
    from tfgrpo.project import Project

F = TypeVar("F", bound=Callable[..., Any])

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
    click.option(
        "--patience", metavar="TIME", help="Stop after so long without any answer: 90s, 2h.  [10m]"
    ),
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


def open_project(app: App, config: Path | None) -> Project:
    """Returns the project of the store, or of this folder where there is none."""
    from tfgrpo import project
    from tfgrpo.store.errors import StoreError

    try:
        root = app.root
    except StoreError:
        root = Path.cwd()
    return project.open_project(root, config)


def read_flags(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags that were given, with --field as a table. Raises SettingsError."""
    from tfgrpo.project import read_options

    return read_options(values)
