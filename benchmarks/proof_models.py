"""Proofs and measured merges on real models, on families of problems.

    python -m benchmarks.proof_models prove FOLDER --family en-hotel --model local:NAME
    python -m benchmarks.proof_models prove FOLDER --library FILE --family en-hotel --model M
    python -m benchmarks.proof_models merge FOLDER --theirs FILE --family en-hotel --model M

FOLDER is made with a store and the family's problems, and used again: what was asked is not asked
twice. Without a library of its own a proof is of the family's rules as a person writes them. What
`tfgrpo train` learned on another model is a FILE by `tfgrpo export --format card`. Beside the
attempts that were made stands how many a test of a fixed size takes (`benchmarks/proof.py`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from benchmarks.families.family import Family
from benchmarks.families.registry import FAMILIES
from benchmarks.families.results import as_text
from benchmarks.proof import SMALLEST, fixed
from tfgrpo.evaluation.pair_verdicts import SPREAD

PROBLEMS, LIBRARY = "problems.jsonl", "rules.md"


def options(command: Any) -> Any:
    """Adds what both commands take."""
    for option in (
        click.option("--seed", default=0, show_default=True, help="Which problems are drawn."),
        click.option("--count", default=48, show_default=True, help="How many."),
        click.option("--base-url", help="Endpoint of a model that is not local."),
        click.option("--model", required=True),
        click.option("--family", "name", type=click.Choice(list(FAMILIES)), required=True),
        click.argument("folder", type=click.Path(path_type=Path, file_okay=False)),
    ):
        command = option(command)
    return command


@click.group()
def main() -> None:
    """Proves and merges libraries on models."""


@main.command()
@options
@click.option("--library", type=click.Path(path_type=Path, exists=True, dir_okay=False))
def prove(folder: Path, name: str, library: Path | None, **how: Any) -> None:
    """Proves a library, or a family's own rules, on a model."""
    flags = _prepared(folder, FAMILIES[name], how)
    what = str((library or folder / LIBRARY).resolve())
    done = json.loads(_tfgrpo(folder, "prove", what, "--json", *flags))
    for one in done["experiences"]:
        effect, low, high = one["effect"]
        click.echo(
            f"{one['verdict']:10} {effect:+.3f} [{low:+.3f}, {high:+.3f}] "
            f"{one['pairs']:4} pairs  {one['text'][:60]}"
        )
    click.echo(
        f"{done['calls']} calls in run {done['run']}; a test of a fixed size for an effect of "
        f"{SMALLEST} takes {fixed(SPREAD)} at each item's problems"
    )


@main.command()
@options
@click.option("--ours", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option(
    "--theirs", type=click.Path(path_type=Path, exists=True, dir_okay=False), required=True
)
def merge(folder: Path, name: str, ours: Path | None, theirs: Path, **how: Any) -> None:
    """Merges two files of lessons by measured effect; ours are by default a family's rules."""
    flags = _prepared(folder, FAMILIES[name], how)
    branches = _tfgrpo(folder, "branch", "--json")
    if "theirs" not in json.loads(branches)["branches"]:
        _tfgrpo(folder, "branch", "theirs", "v0")
        _tfgrpo(folder, "import", str((ours or folder / LIBRARY).resolve()))
        _tfgrpo(folder, "switch", "theirs")
        _tfgrpo(folder, "import", str(theirs.resolve()))
        _tfgrpo(folder, "switch", "main")
    click.echo(_tfgrpo(folder, "merge", "theirs", "--measure", "--ours", *flags))
    listed = json.loads(_tfgrpo(folder, "log", "-1", "--json"))[0]
    click.echo(json.dumps(listed["meta"].get("measured"), indent=2, ensure_ascii=False))


def _prepared(folder: Path, family: Family, how: dict[str, Any]) -> list[str]:
    """Makes the folder where it is not there yet; returns the flags for problems and model."""
    if not (folder / ".tfgrpo").exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows = family.draw("train", how["seed"], how["count"])
        lines = (json.dumps({**row, "answer": as_text(row["answer"])}) + "\n" for row in rows)
        (folder / PROBLEMS).write_text("".join(lines), encoding="utf-8")
        rules = "".join(f"- {rule}\n" for rule in family.rules)
        (folder / LIBRARY).write_text(rules, encoding="utf-8")
        table = "".join(f"{k} = {json.dumps(v)}\n" for k, v in family.settings.items())
        settings = f"[train]\ndomain = {json.dumps(family.domain)}\n{table}"
        (folder / "tfgrpo.toml").write_text(settings, encoding="utf-8")
        _tfgrpo(folder, "init")
        _tfgrpo(folder, "trust", "--yes")
    flags = ["--data", PROBLEMS, "--model", how["model"]]
    return flags + (["--base-url", how["base_url"]] if how["base_url"] else [])


def _tfgrpo(folder: Path, *arguments: str) -> str:
    """Runs a command in the folder and returns what it printed. Raises click's error."""
    program = Path(sys.executable).with_name("tfgrpo")
    done = subprocess.run([program, *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise click.ClickException(done.stderr.strip() or done.stdout.strip())
    return done.stdout


if __name__ == "__main__":
    main()
