"""Options of commands, by their flags and their words."""

from __future__ import annotations

from collections.abc import Callable
from string import ascii_lowercase, digits
from typing import Any, TypeAlias

import click

COUNT, PORT = click.IntRange(1), click.IntRange(0, 65535)
Decorator: TypeAlias = Callable[[Any], Any]


def option(flags: str, help: str, *, name: str | None = None, **more: Any) -> Decorator:
    """An option by its flags and what stands for its value, as `-o, --output FILE`, and its words,
    a default among them."""
    *others, last = flags.split(", ")
    last, _, metavar = last.partition(" ")
    more = {"show_default": bool(more.get("default")), "metavar": metavar or None, **more}
    return click.option(*others, last, *([name] if name else []), help=help, **more)


def flag(flags: str, help: str, *, name: str | None = None, **more: Any) -> Decorator:
    """An option that is on or off, by its flags and its words."""
    return option(flags, help, name=name, is_flag=True, **more)


def many(flags: str, help: str, name: str | None = None, **more: Any) -> Decorator:
    """An option that may be given several times."""
    return option(flags, help, name=name, multiple=True, **more)


SCHEME = frozenset(ascii_lowercase + digits + "+-.")
"""What the scheme of an address is written with."""


class LocalPath(click.Path):
    """A path, and no address: `ssh://host/place` would be a folder `ssh:` here."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        """The path. Fails for an address, of which it repeats the scheme alone."""
        scheme, is_address, _ = str(value).partition("://")
        if is_address and not set(scheme.lower()) - SCHEME:
            self.fail(f"a path on this machine is needed, and {scheme}://… is an address")
        return super().convert(value, param, ctx)


def path(**more: Any) -> LocalPath:
    """The type of a path: of a file alone with `dir_okay=False`."""
    from pathlib import Path  # which a log has no need of

    return LocalPath(path_type=Path, **more)


TEXT_PATH = LocalPath(allow_dash=True)
"""Of a path that may be - for standard output."""


def together(*parameters: Decorator) -> Decorator:
    """The decorator that adds parameters in their order."""

    def added(command: Any) -> Any:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return added


JSON = flag("--json", "Output JSON.", name="as_json")
FORCE = flag(
    "-f, --force",
    "Also move protected branches and tags.",
    expose_value=False,
    callback=lambda ctx, _, value: ctx.obj.force() if value else None,
)
"""For every verb that moves names and has no other use for --force."""
MESSAGE = option("-m, --message", "Message for the new version.")
REASON = option("-r, --reason", "Why; recorded with each event.")
