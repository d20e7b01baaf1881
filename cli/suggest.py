"""Groups of commands that know what was meant by a name they have not got."""

from __future__ import annotations

import click

EVERYTHING = "tfgrpo.everything"
"""What a context's `meta` has where help is to leave nothing out."""
MEANT = {
    "rm": ("delete", "remove"),
    "remove": ("delete", "rm"),
    "delete": ("remove", "rm"),
    "ls": ("list", "list-heads", "show"),
    "list": ("list-heads", "show"),
    "pull": ("get",),
    "fetch": ("get",),
    "download": ("get",),
    "models": ("model",),
    "commit": ("add", "edit"),
    "rebase": ("merge", "cherry-pick"),
    "worker": ("workers run",),
    "up": ("workers start",),
    "proposals": ("proposal list",),
    "accept": ("proposal accept",),
    "reject": ("proposal reject",),
    "history": ("show",),
    "stats": ("status -v",),
    "rollback": ("branch --back",),
}
"""What people call a command elsewhere → what it may be called here, in whichever group."""

SENTENCE = 400
"""More characters than the first sentence of any command's help has."""
NEEDLESS = {
    "stash": "nothing is ever uncommitted",
    "gc": "versions are append-only, so there is nothing to collect",
}
"""What git has and we have not, by design."""


class SuggestingGroup(click.Group):
    """A group that suggests what was meant, and lists its commands with whole sentences."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes each command with the first sentence of its help, wrapped and not cut off."""
        rows = [
            (name, command.get_short_help_str(limit=SENTENCE))
            for name in self.list_commands(ctx)
            if (command := self.get_command(ctx, name)) is not None and not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        there = self.list_commands(ctx)
        if args and args[0] not in there and not args[0].startswith("-"):
            path = "".join(f"{word} " for word in ctx.command_path.split()[1:])
            message = f"there is no command {path + args[0]!r}{_hint(args[0], there, path)}"
            raise click.UsageError(message, ctx)
        return super().resolve_command(ctx, args)


def _hint(word: str, there: list[str], path: str) -> str:
    if not path and word in NEEDLESS:
        return f": {NEEDLESS[word]}"
    near = [name for name in MEANT.get(word, ()) if name.split()[0] in there]
    if not near:
        import difflib

        near = difflib.get_close_matches(word, there, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(path + name for name in near)}?" if near else ""


class ListingGroup(SuggestingGroup):
    """A group that lists without a command: `tfgrpo remote -v` is `tfgrpo remote list -v`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads arguments; those of no command are `list`'s."""
        own = {flag for option in self.get_params(ctx) for flag in option.opts}
        bare = not args or (args[0].startswith("-") and args[0] not in own)
        return super().parse_args(ctx, ["list", *args] if bare else args)
