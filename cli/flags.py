"""Options of commands, by their flags and their words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import click

COUNT, PORT = click.IntRange(1), click.IntRange(0, 65535)
Decorator: TypeAlias = Callable[[Any], Any]


def option(flags: str, help: str, *, name: str | None = None, **more: Any) -> Decorator:
    """An option by its flags, as `-o, --output`, and its words, a default among them."""
    more.setdefault("show_default", bool(more.get("default")))
    return click.option(*flags.split(", "), *([name] if name else []), help=help, **more)


def flag(flags: str, help: str, *, name: str | None = None, **more: Any) -> Decorator:
    """An option that is on or off, by its flags and its words."""
    return option(flags, help, name=name, is_flag=True, **more)


def together(*parameters: Decorator) -> Decorator:
    """The decorator that adds parameters in their order."""

    def added(command: Any) -> Any:
        for parameter in reversed(parameters):
            command = parameter(command)
        return command

    return added


JSON = flag("--json", "Output JSON.", name="as_json")
