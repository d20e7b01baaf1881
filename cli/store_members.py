"""`tfgrpo store`: who may do what in a store that is shared."""

from __future__ import annotations

from typing import cast

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON, option
from tfgrpo.cli.help import SuggestingGroup
from tfgrpo.cli.start_context import App, pass_app
from tfgrpo.store.opening import members_of
from tfgrpo.store.port import Level

LEVELS = ("reader", "trainer", "reviewer", "owner")


@click.group(cls=SuggestingGroup)
def store() -> None:
    """List, add, change or remove the members of a store in a database.

    A member is a user of the database. A reader reads; a trainer also records runs, versions and
    moves of names that are not protected; a reviewer moves protected names as well, decides and
    redacts; an owner does all of it and says who may do what. Nobody may change or delete what is
    recorded.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team store members
      tfgrpo --store postgresql://ann@db/team store grant bob --as trainer
    """


@store.command()
@JSON
@pass_app
def members(app: App, as_json: bool) -> None:
    """List the members, each with a level.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team store members
      tfgrpo --store postgresql://ann@db/team store members --json
    """
    there = members_of(app.store.port).all()
    if as_json:
        printing.emit_json([member._asdict() for member in there])
        return
    width = max((len(member.name) for member in there), default=0)
    for member in there:
        printing.echo(f"{member.name:{width}}  {member.level}")


@store.command()
@click.argument("user")
@option("--as", "What they may do.", name="level", type=click.Choice(LEVELS), required=True)
@pass_app
def grant(app: App, user: str, level: str) -> None:
    """Let USER of the database do what a level may, and nothing more.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team store grant bob --as reviewer
      tfgrpo --store postgresql://ann@db/team store grant eve --as reader
    """
    members_of(app.store.port).grant(user, cast("Level", level))
    printing.echo(f"{user} is a {level} now" if level != "owner" else f"{user} is an owner now")


@store.command()
@click.argument("user")
@pass_app
def revoke(app: App, user: str) -> None:
    """Take away whatever USER may do in the store. What they recorded stays.

    \b
    Examples:
      tfgrpo --store postgresql://ann@db/team store revoke bob
      tfgrpo --store postgresql://ann@db/team?library=support store revoke eve
    """
    members_of(app.store.port).revoke(user)
    printing.echo(f"{user} is no member any more")
