"""`tfgrpo completion`."""

from __future__ import annotations

import click

from tfgrpo.cli import printing


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for your shell: commands, flags, revisions and experience ids.

    \b
    Examples:
      tfgrpo completion bash
      tfgrpo completion zsh
    """
    from click.shell_completion import get_completion_class

    context = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None, "the choices are those that click knows"
    script = kind(context.command, {}, "tfgrpo", "_TFGRPO_COMPLETE").source()
    # A name goes into the line as it comes (`start_context.py` quotes it), and is split at no
    # space.
    script = script.replace("COMPREPLY+=($value)", 'COMPREPLY+=("$value")')
    printing.echo(script.replace("read type value", "read -r type value"))
