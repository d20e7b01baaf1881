"""`merge`, `cherry-pick`, `revert`: bringing changes together, and taking them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tfgrpo.cli import checkout, show, text
from tfgrpo.cli.context import REVISION, App, pass_app
from tfgrpo.store import merge as merges
from tfgrpo.store.errors import InvalidOperation
from tfgrpo.store.merge import Conflict, MergeConflict, Resolve
from tfgrpo.store.records import Version

resolutions = (
    click.option("--ours", "take", flag_value="ours", help="Conflicts: take HEAD's text."),
    click.option("--theirs", "take", flag_value="theirs", help="Conflicts: take the other text."),
    click.option("--edit", "take", flag_value="edit", help="Conflicts: write each in $EDITOR."),
    click.option("-m", "--message", help="The version's message."),
)


def resolving(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags that say what becomes of conflicts."""
    for option in reversed(resolutions):
        command = option(command)
    return command


@click.command()
@click.argument("revision", type=REVISION)
@resolving
@pass_app
def merge(app: App, revision: str, take: str | None, message: str | None) -> None:
    """Merge REVISION into HEAD's branch: three-way by experience, by word inside a text.

    When both sides changed the same words, nothing is recorded and the conflicts are listed.

    \b
    Examples:
      tfgrpo merge web
      tfgrpo merge web --theirs
    """
    store = app.store
    branch, before = _branch(app)
    theirs = store.resolve(revision)
    told = message or f"merge {revision} into {branch}"
    version = _trying(
        lambda: merges.merge(store, branch, theirs, message=told, resolve=_resolve(take))
    )
    if version.number == before.number:
        click.echo(f"{branch} has all of {revision} already")
        return
    if version.merged is None:
        click.echo(f"moved {branch} forward from {before.name} to {version.name}")
        checkout.materialise(app)
    else:
        say(app, version, branch)
    alike(app, before, version)


@click.command("cherry-pick")
@click.argument("revision", type=REVISION)
@resolving
@pass_app
def cherry_pick(app: App, revision: str, take: str | None, message: str | None) -> None:
    """Apply what one version changed to HEAD's branch, as a new version.

    \b
    Examples:
      tfgrpo cherry-pick web
      tfgrpo cherry-pick web --ours
    """
    store = app.store
    branch, _ = _branch(app)
    picked = store.resolve(revision)
    told = message or f"cherry-pick {picked.name}: {picked.message}"
    version = _trying(
        lambda: merges.cherry_pick(store, branch, picked, message=told, resolve=_resolve(take))
    )
    say(app, version, branch)


@click.command()
@click.argument("revision", type=REVISION)
@resolving
@pass_app
def revert(app: App, revision: str, take: str | None, message: str | None) -> None:
    """Take back what one version changed, as a new version. History stays as it is.

    Experiences that later versions changed again are conflicts, listed and left alone.

    \b
    Examples:
      tfgrpo revert HEAD
      tfgrpo revert v2 -m "the rule was dropped"
    """
    store = app.store
    branch, _ = _branch(app)
    reverted = store.resolve(revision)
    told = message or f"revert {reverted.name}: {reverted.message}"
    version = _trying(
        lambda: merges.revert(store, branch, reverted, message=told, resolve=_resolve(take))
    )
    say(app, version, branch)


def _branch(app: App) -> tuple[str, Version]:
    head = app.store.head
    if head.branch is None:
        raise InvalidOperation(
            "HEAD is detached: a version needs a branch to grow",
            hint="`tfgrpo switch main` goes onto one",
        )
    return head.branch, head.version


def _trying(work: Callable[[], Version]) -> Version:
    try:
        return work()
    except MergeConflict as found:
        show_conflicts(found)
        raise


def show_conflicts(found: MergeConflict) -> None:
    """Prints what each side says of every experience that has to be decided."""
    for conflict in found.conflicts:
        for line in _conflict(conflict):
            click.echo(line, err=True)


def _conflict(conflict: Conflict) -> list[str]:
    lines = [click.style(f"conflict {conflict.experience}", fg="red", bold=True)]
    for name in ("base", "ours", "theirs"):
        words = getattr(conflict, name)
        told = text.words(words) if words is not None else text.words("(not there)", dim=True)
        lines += text.wrap(told, first=f"  {name}: ", indent=10)
    return lines


def _resolve(take: str | None) -> Resolve | None:
    if take is None:
        return None
    return _edited if take == "edit" else merges.side("ours" if take == "ours" else "theirs")


def _edited(conflict: Conflict) -> str | None:
    """Asks for the text in the user's editor; an empty text means that none is to stand."""
    comment = "\n".join(f"# {line}" for line in _conflict(conflict))
    start = conflict.ours or conflict.theirs or ""
    asked = f"{start}\n\n{click.unstyle(comment)}\n# Lines with # go; no text deletes it.\n"
    edited = click.edit(asked)
    if edited is None:
        raise InvalidOperation(
            f"{conflict.experience} was not decided", hint="save the file to decide it"
        )
    kept = " ".join(line for line in edited.splitlines() if not line.startswith("#")).split()
    return " ".join(kept) or None


def say(app: App, version: Version, branch: str) -> None:
    """Writes the library for inference and prints a version that was just made."""
    store = app.store
    assert version.parent is not None
    before = {e.id: e.text for e in store.library(store.version(version.parent))}
    checkout.materialise(app)
    click.echo(f"{version.name} on {branch}: {version.message}")
    for event in store.events(version):
        for line in show.event_lines(event._replace(reason=None), before.get(event.experience)):
            click.echo(line)


def alike(app: App, before: Version, after: Version) -> None:
    """Points out experiences that a merge brought together and that say nearly the same."""
    from rapidfuzz import fuzz

    library = app.store.library(after)
    old = set(app.store.library(before).by_id)
    label = library.label_of
    for new in (e for e in library if e.id not in old):
        for there in (e for e in library if e.id in old):
            if fuzz.token_sort_ratio(new.text.casefold(), there.text.casefold()) >= 85:
                click.echo(
                    f"{label[new.id]} and {label[there.id]} say nearly the same: "
                    f"`tfgrpo delete {label[new.id]}` if they do"
                )
