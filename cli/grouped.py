"""A command whose help lists its options in groups, as click itself cannot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

Groups = Mapping[str, tuple[str, ...]]


class GroupedCommand(click.Command):
    """A command with `groups`: a title → the flags below it, in their order.

    Options that are in no group come last, under "Other options".
    """

    def __init__(self, *args: Any, groups: Groups, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options, each in its group."""
        records = {
            flag: record
            for parameter in self.get_params(ctx)
            if (record := parameter.get_help_record(ctx)) is not None
            for flag in parameter.opts
        }
        grouped = {flag for flags in self.groups.values() for flag in flags}
        for title, flags in self.groups.items():
            rows = list(dict.fromkeys(records[flag] for flag in flags if flag in records))
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        others = [
            record
            for parameter in self.get_params(ctx)
            if (record := parameter.get_help_record(ctx)) is not None
            and not grouped & set(parameter.opts)
        ]
        if others:
            with formatter.section("Other options"):
                formatter.write_dl(others)
