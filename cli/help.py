"""Help: groups that know what a wrong name meant, options in sections, `help`, `completion`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import click

from tfgrpo.cli.flags import flag

NUMBER = r"-(\d+)\Z"
EVERYTHING = "tfgrpo.everything"
"""What a context's `meta` has where help is to leave nothing out."""
MEANT: dict[str, tuple[str, ...]] = {
    "rm": ("delete", "remove"),
    "remove": ("delete", "rm"),
    "delete": ("remove", "rm"),
    "ls": ("list", "list-heads", "show"),
    "list": ("list-heads", "show"),
    **dict.fromkeys(("pull", "fetch", "download"), ("get",)),
    "models": ("model",),
    "amend": ("edit", "modify"),
    "annotate": ("blame",),
    "apply": ("import",),
    **dict.fromkeys(("archive", "format-patch"), ("export", "bundle")),
    "br": ("branch",),
    **dict.fromkeys(("cat", "ls-files", "rev-parse", "history"), ("show",)),
    **dict.fromkeys(("ci", "commit"), ("add", "edit")),
    "co": ("checkout",),
    "describe": ("show", "tag"),
    "evaluate": ("eval",),
    **dict.fromkeys(("find", "grep", "search"), ("log --grep",)),
    "learn": ("train",),
    "mergetool": ("merge --edit",),
    "notes": ("tag -m",),
    "rebase": ("merge", "cherry-pick"),
    "restore": ("checkout", "undo"),
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
    **dict.fromkeys(
        ("--hard", "--mixed", "--soft", "--keep"),
        "there is no working tree that a reset could lose, and `tfgrpo undo` reverses it",
    ),
    **dict.fromkeys(
        ("--continue", "--abort", "--skip", "--quit"),
        "nothing is under way, as a conflict records nothing; `tfgrpo undo` takes back the rest",
    ),
}
"""Verbs and options that git has and we have not, by design."""


class SuggestingGroup(click.Group):
    """A group that suggests what was meant, and lists its commands with whole sentences."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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
        own = {flag for option in self.get_params(ctx) for flag in option.opts}
        bare = not args or (args[0].startswith("-") and args[0] not in own)
        bare = bare and not ctx.resilient_parsing  # the shell is offered the commands
        return super().parse_args(ctx, ["list", *args] if bare else args)


class CountedCommand(click.Command):
    """A command with an option -n that may be given as the number alone: `tfgrpo log -3`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
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


SECTIONS = {
    title: (basic.split(), rare.split())
    for title, basic, rare in (
        ("Run", "run resume new branch preset", "keep-going workers force config seed"),
        ("Problems", "field domain", "inspect skip-unverifiable verify-timeout"),
        (
            "Model",
            "model base-url api-key-env reflection-model max-tokens",
            "temperature reflection-base-url reflection-api-key-env concurrency task-timeout "
            "patience",
        ),
        (
            "Rollouts",
            "epochs batch-size group-size top-k agent",
            "answers agent-objective prompts workspace answer-file reward mode turns corpus "
            "sandbox",
        ),
        ("Learning", "policy library-tokens", "examples learning-objective ground-truth"),
        ("Gate", "gate heldout sealed", "gate-rule heldout-samples heldout-problems"),
        ("Money", "estimate budget", "details"),
    )
}
"""A section → its options in their order: those that `--help` lists, and those that `--help-all`
adds. What is in none is of one command alone, and stands in its first section."""
PLACED = {name for parts in SECTIONS.values() for part in parts for name in part}


def _help_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta[EVERYTHING] = True
        from tfgrpo.cli import printing

        printing.echo(ctx.get_help())
        ctx.exit()


class SectionedCommand(click.Command):
    """A command whose help has sections, and that has `--help-all`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        how: dict[str, Any] = {"is_flag": True, "is_eager": True, "expose_value": False}
        words = "Show this message with every option, and exit."
        self.params.append(click.Option(["--help-all"], callback=_help_all, help=words, **how))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
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


@click.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@flag("-a, --all", "Leave no command or option out.", name="everything")
@click.pass_context
def help_(ctx: click.Context, words: tuple[str, ...], everything: bool) -> None:
    """Show the help of a command; without one, the list of commands.

    \b
    Examples:
      tfgrpo help --all
      tfgrpo help remote add
    """
    from tfgrpo.cli import printing

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


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a completion script for your shell: commands, flags, revisions and experience ids.

    \b
    Examples:
      tfgrpo completion bash
    """
    from click.shell_completion import get_completion_class

    from tfgrpo.cli import printing

    context = click.get_current_context().find_root()
    kind = get_completion_class(shell)
    assert kind is not None, "the choices are those that click knows"
    script = kind(context.command, {}, "tfgrpo", "_TFGRPO_COMPLETE").source()
    # A name goes into the line as it comes (`start_context.py` quotes it), and is split at no
    # space.
    script = script.replace("COMPREPLY+=($value)", 'COMPREPLY+=("$value")')
    printing.echo(script.replace("read type value", "read -r type value"))
