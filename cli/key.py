"""`tfgrpo key`: keys of the proxy's own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import COUNT, JSON, flag, option, together
from tfgrpo.cli.help import SuggestingGroup
from tfgrpo.cli.start_context import App, pass_app
from tfgrpo.store.activity.key_ledger import (
    KeyLimits,
    Spent,
    VirtualKey,
    key_digest,
    ledger_path,
    new_key,
    parse_budget,
    spent_by,
)
from tfgrpo.store.history.log_filter import parse_time
from tfgrpo.store.opening import open_ledger
from tfgrpo.terminal_safe import shown
from tfgrpo.wording import money


@click.group(cls=SuggestingGroup)
def key() -> None:
    """Give applications keys of the proxy's own, each with its limits.

    Where the proxy has the provider's key (`tfgrpo proxy --key-env`), a request with such a key is
    sent on with the provider's. Of a key only a digest is kept, beside the store. See
    docs/production.md.

    \b
    Examples:
      tfgrpo key new shop --budget 5/day --rate 60
      tfgrpo key list
    """


PATTERNS: dict[str, Any] = {"multiple": True, "metavar": "GLOB"}
PATH = "Another path that it reaches: /v1/embeddings; repeatable."
LIMITS = together(
    option("--budget", "5/day, 100/month or 20/total.", metavar="DOLLARS"),
    option("--rate", "Requests in a minute.", type=COUNT),
    option("--model", "A model that it may ask; repeatable.  [all]", name="models", **PATTERNS),
    option(
        "--library", "A library that it may use; repeatable.  [all]", name="libraries", **PATTERNS
    ),
    option("--path", PATH, name="paths", **PATTERNS),
    option("--expires", "Until when: 30d, 2027-01-31.", metavar="TIME"),
)


@key.command()
@click.argument("name")
@LIMITS
@pass_app
def new(app: App, /, name: str, **given: Any) -> None:
    """Make a key, and print it: once, for it is kept nowhere.

    \b
    Examples:
      tfgrpo key new shop --budget 5/day --rate 60 --model 'gpt-5*'
      tfgrpo key new trial --expires 30d --library support
    """
    limits, secret, now = _of(given), new_key(), time.time_ns() // 1000
    if not name.isprintable() or not name.strip() or len(name) > 100:
        raise click.UsageError("a key's name is a word or some")
    with _opened(app, create=True) as ledger:
        ledger.add_key(VirtualKey(0, name, key_digest(secret), app.author(), now, None, limits))
    printing.echo(f"the key {name}, which is not shown again:", err=True)
    printing.echo(secret)


@key.command("list")
@flag("--all", "Revoked ones too.", name="everything")
@JSON
@pass_app
def list_(app: App, everything: bool, as_json: bool) -> None:
    """List keys, with their limits and what they have spent.

    \b
    Examples:
      tfgrpo key list
      tfgrpo key list --all --json
    """
    with _opened(app) as ledger:
        listed = [one for one in ledger.virtual_keys() if everything or one.revoked is None]
        spent = ledger.spent("")
    printing.answer(app, [_object(one, spent) for one in listed], _lines(listed, spent), as_json)


@key.command()
@click.argument("name")
@LIMITS
@pass_app
def change(app: App, /, name: str, **given: Any) -> None:
    """Change limits of a key. Those that are not named stay; seen at the next request.

    \b
    Examples:
      tfgrpo key change shop --budget 10/day
      tfgrpo key change shop --rate 120 --expires 2027-01-31
    """
    with _opened(app) as ledger:
        named = [one for one in ledger.virtual_keys() if one.name == name and one.revoked is None]
        before = named[0].limits._asdict() if named else {}
        after = {k: v for k, v in _of(given)._asdict().items() if v not in (None, ())}
        ledger.change_key(name, KeyLimits(**(before | after)))
    printing.echo(f"changed the key {name}")


@key.command()
@click.argument("name")
@pass_app
def revoke(app: App, name: str) -> None:
    """Revoke a key: the next request with it is refused.

    \b
    Examples:
      tfgrpo key revoke shop
      tfgrpo key revoke "support bot"
    """
    with _opened(app) as ledger:
        ledger.revoke_key(name, time.time_ns() // 1000)
    printing.echo(f"revoked the key {name}")


def _opened(app: App, *, create: bool = False) -> Any:
    """Opens the keys beside the store, for a `with` block. Raises StoreError."""
    return closing(open_ledger(ledger_path(app.file), create=create))


def _of(given: dict[str, Any]) -> KeyLimits:
    expires, now = given["expires"], time.time_ns() // 1000
    if expires is not None:
        at = parse_time(expires, now=0)
        expires = now - at if at < 0 else at  # 30d is said of the past elsewhere
        if expires <= now:
            raise click.UsageError(f"--expires {given['expires']!r} is over already")
    return KeyLimits(
        None if given["budget"] is None else parse_budget(given["budget"]),
        given["rate"],
        given["models"] or None,
        given["libraries"] or None,
        given["paths"],
        expires,
    )


def _object(one: VirtualKey, spent: Spent) -> dict[str, Any]:
    limits = one.limits._asdict()
    limits["budget"] = one.limits.budget and one.limits.budget._asdict()
    fields = one._asdict() | {"limits": limits, "spent": spent_by(one, spent)}
    del fields["digest"]
    return fields


def _lines(listed: list[VirtualKey], spent: Spent) -> Iterator[str]:
    rows = []
    for one in listed:
        limits = one.limits
        parts = [] if limits.rate is None else [f"{limits.rate} a minute"]
        for name, patterns in (("models", limits.models), ("libraries", limits.libraries)):
            if patterns:
                parts.append(f"{name} {' '.join(patterns)}")
        if limits.paths:
            parts.append(f"also {' '.join(limits.paths)}")
        if limits.expires is not None:
            parts.append(f"until {printing.when(limits.expires)}")
        if one.revoked is not None:
            parts.append(f"revoked {printing.age(one.revoked)}")
        budget = money(spent_by(one, spent)) + (f" of {limits.budget}" if limits.budget else "")
        rows.append((shown(one.name), printing.age(one.created), budget, shown("; ".join(parts))))
    yield from printing.table(rows, header=("key", "made", "spent", "limits"))
