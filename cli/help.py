"""`tfgrpo help`."""

from __future__ import annotations

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import flag
from tfgrpo.cli.suggest import EVERYTHING


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@flag("-a, --all", "Leave no command or option out.", name="everything")
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...], everything: bool) -> None:
    """Show the help of a command; without one, the list of commands.

    \b
    Examples:
      tfgrpo help --all
      tfgrpo help merge
      tfgrpo help remote add
    """
    here = ctx.find_root()
    here.meta[EVERYTHING] = everything
    for word in words:
        group = here.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{here.command_path} has no command {word!r}", here)
        name, command, _ = group.resolve_command(here, [word])
        assert command is not None, "resolve_command says what is wrong with a name"
        here = click.Context(command, info_name=name, parent=here)
    printing.echo(here.get_help())
