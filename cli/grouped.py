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
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        records = {
            flag: record
            for option in options
            if (record := option.get_help_record(ctx)) is not None
            for flag in option.opts
        }
        grouped = {flag for flags in self.groups.values() for flag in flags}
        for title, flags in self.groups.items():
            rows = list(dict.fromkeys(records[flag] for flag in flags if flag in records))
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        others = [
            record
            for option in options
            if (record := option.get_help_record(ctx)) is not None
            and not grouped & set(option.opts)
        ]
        if others:
            with formatter.section("Other options"):
                formatter.write_dl(others)
