"""Flags that `train` and `eval` share, and how flags and `tfgrpo.toml` become settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tfgrpo.cli.context import App

if TYPE_CHECKING:
    from tfgrpo.project import Project

F = TypeVar("F", bound=Callable[..., Any])

MODEL = click.option("--model", help="local:NAME, or the name of a model at --base-url.")
CONFIG = click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Settings file; by default tfgrpo.toml next to the store.",
)
SHARED = (
    CONFIG,
    click.option(
        "--field",
        "fields",
        multiple=True,
        metavar="OURS=THEIRS",
        help="Field names in DATA for problem, answer, id or kind, such as answer=gold.",
    ),
    click.option(
        "--skip-unverifiable",
        is_flag=True,
        default=None,
        help="Leave out problems whose ground truth cannot be compared with any answer.",
    ),
    click.option("--domain", help="Kind of problem: a name or package.module:object.  [math]"),
    click.option(
        "--agent",
        metavar="AGENT",
        help="Have attempts made by a command, or a Python function as module:function.",
    ),
    click.option(
        "--inspect",
        metavar="FILE[@TASK]",
        help="In place of DATA: a task of inspect_ai, with its samples, solver and scorers.",
    ),
    click.option(
        "--workspace",
        type=click.Path(),
        metavar="FOLDER",
        help="With --agent: make each attempt in a copy of this folder.",
    ),
    click.option(
        "--answer-file",
        metavar="FILE",
        help="File in the workspace with the answer.  [standard output]",
    ),
    click.option(
        "--reward",
        metavar="COMMAND",
        help="Judge by a command that prints a number from 0 to 1.  [the domain's verifier]",
    ),
    click.option(
        "--mode",
        type=click.Choice(["prompt", "agent"]),
        help="Answer directly, or use the tools from [tools] in tfgrpo.toml.  [prompt]",
    ),
    click.option("--turns", type=int, help="Maximum turns of an agent's attempt.  [10]"),
    click.option("--corpus", help="JSONL file of passages that an agent can search and visit."),
    click.option(
        "--sandbox",
        type=click.Choice(["auto", "require", "off"]),
        help="Run an agent's code in bubblewrap if it works here, only there, or without it.  "
        "[auto]",
    ),
    click.option(
        "--answers",
        type=click.Choice(["sampled", "exact"]),
        help="Sample each answer, or, where answers are few and the endpoint tells their "
        "probabilities, take the mean reward over all of them.  [sampled]",
    ),
    click.option(
        "--top-k",
        type=int,
        help="Put only the N experiences that fit a problem best in its prompt; 0 for all.  "
        "[0; 2 for a local model where problems have one answer]",
    ),
    MODEL,
    click.option(
        "--base-url", help="OpenAI-compatible endpoint, such as http://127.0.0.1:8000/v1."
    ),
    click.option("--api-key-env", help="Environment variable with the API key."),
    click.option("--agent-objective", help="What attempts should achieve, in your own words."),
    click.option("--prompts", help="Folder of prompts that replace the built-in ones."),
    click.option("--concurrency", type=int, help="Maximum requests in flight.  [128]"),
    click.option("--temperature", type=float, help="Sampling temperature of attempts."),
    click.option("--max-tokens", type=int, help="Maximum tokens per answer.  [16384]"),
    click.option("--task-timeout", type=float, help="Seconds per attempt.  [1800]"),
    click.option(
        "--patience",
        metavar="TIME",
        help="Stop after this long without any answer, such as 90s or 2h.  [10m]",
    ),
    click.option(
        "--verify-timeout",
        type=float,
        help="Seconds after which judging an answer is given up.  [10]",
    ),
    click.option("--seed", type=int, help="Random seed for batches and samples.  [0]"),
)
SHARED_GROUPS = {
    "Problems": (
        *("--field", "--skip-unverifiable", "--domain"),
        "--verify-timeout",
    ),
    "Model": (
        *("--model", "--base-url", "--api-key-env", "--temperature", "--max-tokens"),
        *("--concurrency", "--task-timeout", "--patience", "--seed"),
    ),
    "Attempts": ("--agent-objective", "--answers", "--prompts", "--top-k"),
    "Agents": (
        *("--agent", "--inspect", "--workspace", "--answer-file", "--reward"),
        *("--mode", "--turns", "--corpus", "--sandbox"),
    ),
}
"""How the help of a command with the shared flags, and few of its own, lists them."""


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


def estimate(command: F) -> F:
    """Gives a command that asks models the flags `--estimate` and `--details`."""
    command = click.option(
        "--details", is_flag=True, help="With --estimate: calls, tokens and cost by stage."
    )(command)
    return click.option(
        "--estimate", is_flag=True, help="Print the estimated calls and cost, then exit."
    )(command)


def refuse_revisions(app: App, verb: str, data: Sequence[str]) -> None:
    """Raises SettingsError for data that are revisions, with the command that was meant."""
    from tfgrpo.data import datasets
    from tfgrpo.store.errors import SettingsError, TfgrpoError

    revisions: list[str] = []
    others: list[str] = []
    for name in data:
        spec = datasets.parse(name)
        try:
            is_data = spec.on_hub or Path(spec.source).exists()
            (others if is_data or not app.store.resolve(name) else revisions).append(name)
        except TfgrpoError:
            others.append(name)  # neither: what is wrong with it is told when it is opened
    if not revisions:
        return
    *against, library = revisions
    control = f" --against {against[-1]}" if against else ""
    files = " ".join(others) or "DATA.jsonl"
    raise SettingsError(
        f"{revisions[0]} is a version, where a file of problems is expected",
        hint=f"tfgrpo {verb} {files} --library {library}{control}",
    )


def open_project(app: App, config: Path | None) -> Project:
    """Returns the project of the store, or of this folder where there is none."""
    from tfgrpo import project
    from tfgrpo.cli import trust
    from tfgrpo.store.errors import StoreError

    trust.ask_on_a_terminal()
    try:
        root = app.root
    except StoreError:
        root = Path.cwd()
    return project.open_project(root, config)


def read_flags(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags that were given, with --field as a table. Raises SettingsError."""
    from tfgrpo.project import read_options

    return read_options(values)
