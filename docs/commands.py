"""Prints docs/commands.md: every command's help, as the command line itself gives it.

python docs/commands.py > docs/commands.md
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from tfgrpo.cli.help import EVERYTHING
from tfgrpo.cli.main import tfgrpo


def pages(name: str, command: click.Command, parent: click.Context | None) -> Iterator[str]:
    """Yields a section for a command and for each below it."""
    context = click.Context(
        command,
        info_name=name.split()[-1],
        parent=parent,
        max_content_width=80,
        terminal_width=80,
        help_option_names=["-h", "--help"],
    )
    context.meta[EVERYTHING] = True
    yield f"## {name}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            assert found is not None
            yield from pages(f"{name} {sub}", found, context)


if __name__ == "__main__":
    print("# Commands\n\nThe help of every command; `docs/commands.py` writes this page.\n")
    print("\n".join(pages("tfgrpo", tfgrpo, None)), end="")
