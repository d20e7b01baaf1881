"""Commands with many options: help lists them in sections, first those that most people need."""

from __future__ import annotations

from typing import Any

import click

from tfgrpo.cli import printing
from tfgrpo.cli.suggest import EVERYTHING

SECTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Run": (
        ("run", "resume", "new", "branch", "preset"),
        ("keep-going", "workers", "force", "config", "seed"),
    ),
    "Problems": (("field", "domain"), ("inspect", "skip-unverifiable", "verify-timeout")),
    "Model": (
        ("model", "base-url", "api-key-env", "reflection-model", "max-tokens"),
        (
            *("temperature", "reflection-base-url", "reflection-api-key-env"),
            *("concurrency", "task-timeout", "patience"),
        ),
    ),
    "Rollouts": (
        ("epochs", "batch-size", "group-size", "top-k", "agent"),
        (
            *("answers", "agent-objective", "prompts", "workspace", "answer-file", "reward"),
            *("mode", "turns", "corpus", "sandbox"),
        ),
    ),
    "Learning": (
        ("policy", "library-tokens"),
        ("examples", "learning-objective", "ground-truth"),
    ),
    "Gate": (("gate", "heldout", "sealed"), ("gate-rule", "heldout-samples", "heldout-problems")),
    "Money": (("estimate", "budget"), ("details",)),
}
"""A section → its options in their order: those that `--help` lists, and those that `--help-all`
adds. What is in none is of one command alone, and stands in its first section."""
PLACED = {name for parts in SECTIONS.values() for part in parts for name in part}


def _help_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[EVERYTHING] = True
        printing.echo(ctx.get_help())
        ctx.exit()


class SectionedCommand(click.Command):
    """A command whose help has sections, and that has `--help-all`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        flag = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_help_all,
            help="Show this message with every option, and exit.",
        )
        self.params.append(flag)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options of each section, and how many there are besides."""
        rows = {
            option.opts[-1].removeprefix("--"): record
            for option in self.get_params(ctx)
            if isinstance(option, click.Option) and (record := option.get_help_record(ctx))
        }
        help = [rows.pop(name) for name in list(rows) if name in ("help", "help-all")]
        own = [record for name, record in rows.items() if name not in PLACED]
        everything = ctx.meta.get(EVERYTHING, False)
        left = 0
        for number, (title, (basic, rare)) in enumerate(SECTIONS.items()):
            listed = [rows[name] for name in basic if name in rows] + ([] if number else own)
            others = [rows[name] for name in rare if name in rows]
            listed += others if everything else []
            left += 0 if everything else len(others)
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)
        with formatter.section("Help"):
            formatter.write_dl(help)
        if left:
            formatter.write_paragraph()
            formatter.write_text(f"`{ctx.command_path} --help-all` lists {left} more options.")
