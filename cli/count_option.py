"""A command to which `-3` means `-n 3`, as to git's log."""

from __future__ import annotations

import re

import click

NUMBER = r"-(\d+)\Z"


class CountedCommand(click.Command):
    """A command with an option -n that may be given as the number alone: `tfgrpo log -3`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads arguments; a number with a dash is -n, unless it is another option's value."""
        taking = {
            flag
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for flag in option.opts
        }
        plain: list[str] = []
        for before, word in zip(["", *args], args, strict=False):
            number = None if before in taking or "--" in plain else re.match(NUMBER, word)
            plain += ["-n", number[1]] if number else [word]
        return super().parse_args(ctx, plain)
