"""Groups of commands that know what a wrong name meant, and a command to which `-3` is `-n 3`."""

from __future__ import annotations

import re
from collections.abc import Iterable

import click

NUMBER = r"-(\d+)\Z"
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
    "amend": ("edit", "modify"),
    "annotate": ("blame",),
    "apply": ("import",),
    "archive": ("export", "bundle"),
    "br": ("branch",),
    "cat": ("show",),
    "ci": ("add", "edit"),
    "co": ("checkout",),
    "commit": ("add", "edit"),
    "describe": ("show", "tag"),
    "evaluate": ("eval",),
    "find": ("log --grep",),
    "format-patch": ("export", "bundle"),
    "grep": ("log --grep",),
    "learn": ("train",),
    "ls-files": ("show",),
    "mergetool": ("merge --edit",),
    "notes": ("tag -m",),
    "rebase": ("merge", "cherry-pick"),
    "restore": ("checkout", "undo"),
    "rev-parse": ("show",),
    "search": ("log --grep",),
    "st": ("status",),
    "test": ("eval", "compare"),
    "verify-commit": ("log --show-signature",),
    "verify-tag": ("tag --verify",),
    "whatchanged": ("log -p",),
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
    "stage": "there is no index: a change is a version at once",
    "gc": "versions are append-only, so there is nothing to collect",
    "prune": "versions are append-only, so there is nothing to collect",
    "config": "settings are in tfgrpo.toml; `tfgrpo train --help-all` lists them",
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
    near = _meant(word, there)
    if not near:
        known = [*there, *(name for name in MEANT if _meant(name, there))]
        for name in nearest(word, known, 0.66):
            near += [name] if name in there else _meant(name, there)
    listed = [path + name for name in dict.fromkeys(near)][:2]
    return f"; did you mean {' or '.join(listed)}?" if near else ""


def _meant(word: str, there: list[str]) -> list[str]:
    return [name for name in MEANT.get(word, ()) if name.split()[0] in there]


def nearest(word: str, known: Iterable[str], cutoff: float = 0.7) -> list[str]:
    """The known words that one may mean, nearest first: alike by `cutoff` (0 to 1) at least."""
    import difflib

    known = list(known)
    begun = [name for name in known if len(word) > 3 and name.startswith(word)]
    close = difflib.get_close_matches(word, known, n=2, cutoff=cutoff)
    return list(dict.fromkeys([*begun, *close]))


class ListingGroup(SuggestingGroup):
    """A group that lists without a command: `tfgrpo remote -v` is `tfgrpo remote list -v`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Reads arguments; those of no command are `list`'s."""
        own = {flag for option in self.get_params(ctx) for flag in option.opts}
        bare = not args or (args[0].startswith("-") and args[0] not in own)
        bare = bare and not ctx.resilient_parsing  # the shell is offered the commands
        return super().parse_args(ctx, ["list", *args] if bare else args)


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
