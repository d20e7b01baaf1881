"""`tfgrpo proxy` and `key`: the proxy before a provider, and keys of its own."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import printing, trust
from tfgrpo.cli.flags import COUNT, JSON, PORT, flag, many, option, path, together
from tfgrpo.cli.help import SuggestingGroup
from tfgrpo.cli.start_context import REVISION, App, needed, pass_app
from tfgrpo.store.activity import key_ledger
from tfgrpo.store.errors import SettingsError
from tfgrpo.store.history.log_filter import parse_coming, parse_span
from tfgrpo.store.opening import open_ledger
from tfgrpo.wording import money

if TYPE_CHECKING:
    from tfgrpo.proxy.proxy_settings import ProxySettings

ROUTES = {
    "anthropic": ("Anthropic", "/v1/messages"),
    "gemini": ("Gemini", "/v1beta/models"),
    "bedrock": ("Bedrock", "/model"),
}
"""By API, the company's name and what its paths begin with."""
OF_LIBRARY = ("revision", "top_k", "dropout", "allow")
OF_PROXY = (
    *("host", "port", "record", "redact", "personal", "sample"),
    *("drain", "access_log", "require_key"),
)
"""Options that are settings of the only library, and of the proxy, under the same names."""


@click.command()
@option(
    "--library", "Revision to serve: a branch, a tag, HEAD.  [HEAD]", name="revision", type=REVISION
)
@option("--upstream", "Base URL of an OpenAI-compatible provider.")
@option("--anthropic", "Base URL for the Anthropic routes, if it differs.")
@many(
    "--allow",
    "Another revision that requests may name; repeatable.  [any on loopback, none beyond]",
    type=REVISION,
)
@option(
    "--key-env VARIABLE",
    "Variable with the provider's key, for callers with a key of `tfgrpo key new`.",
)
@option("--anthropic-key-env VARIABLE", "The same for the Anthropic routes.")
@flag("--require-key", "Accept only requests with a key of `tfgrpo key new`.", default=None)
@option("--top-k", "Put in only the experiences that fit best.", type=COUNT)
@option(
    "--dropout",
    "Share of experiences to leave out of each request, to learn what each is worth.",
    type=click.FloatRange(0, 0.5),
)
@option("--host", "Address to listen on; any but loopback needs a token.  [127.0.0.1]")
@option("--port", "Port to listen on.  [8484]", type=PORT)
@option("--workers", "Processes.", type=COUNT, default=1)
@option(
    "--record",
    "What to record of calls: nothing, counts, or their redacted words too.  [counts]",
    type=click.Choice(["off", "counts", "content"]),
)
@option("--keep", "How long to keep calls: 12h, 30d, forever.", default="30d")
@many("--redact REGEX", "Also remove what this expression matches from recorded words; repeatable.")
@many(
    "--personal COUNTRY",
    "Also remove IP addresses and a country's telephone numbers (DE); repeatable.",
)
@option(
    "--sample",
    "Share of calls whose words are kept, with --record content.  [1]",
    type=click.FloatRange(0, 1),
)
@option("--drain", "Seconds for requests to finish after SIGTERM.  [30]", type=click.FloatRange(0))
@option("--access-log FILE", "Write a line of JSON for each request; - here.")
@option(
    "--config",
    "File with several libraries and rules; by default proxy.toml next to the store.",
    type=path(dir_okay=False),
)
@pass_app
def proxy(app: App, /, workers: int, config: Path | None, **flags: Any) -> None:
    """Put the library in force into an application's requests to a provider.

    Point the client's base URL here: http://127.0.0.1:8484/v1. Chat completions, Responses,
    Anthropic's Messages, Gemini's generateContent and Bedrock's converse get the library after
    their own system text, its examples as turns before their own (lines in Responses); all else is
    passed through as it is. After a commit, a checkout or a rollback the next request has the new
    library. To listen beyond this machine, set TFGRPO_PROXY_TOKEN: clients send it as the header
    x-tfgrpo-token. See docs/production.md.

    \b
    Examples:
      tfgrpo proxy
      tfgrpo proxy --library prod --upstream http://127.0.0.1:8000/v1
    """
    with needed("proxy", "the proxy needs {}", "httptools"):
        from tfgrpo.proxy.worker_processes import run
    trust.ask_on_a_terminal()
    settings = settings_of(app, config, flags)

    def ready(port: int) -> None:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        address = settings.openai.shown("/v1/chat/completions")
        printing.echo(f"listening on http://{host}:{port}/v1, asking {address}", err=True)
        if settings.openai.through is not None:
            way = settings.openai.through
            printing.echo(f"by way of the proxy {way.host}:{way.port}", err=True)
        usual = str(settings.openai), settings.openai.before_v1
        for api, (name, route) in ROUTES.items():
            other = settings.upstreams.get(api)
            if other is not None and (str(other), other.before_v1) != usual:
                printing.echo(f"{name}'s routes: {other.shown(route)}", err=True)

    run(settings, workers, ready, lambda: settings_of(app, config, flags))


def settings_of(app: App, config: Path | None, flags: dict[str, Any]) -> ProxySettings:
    """What the flags and the file say together. Raises SettingsError."""
    from tfgrpo.proxy import proxy_file
    from tfgrpo.proxy import proxy_settings as shapes

    if config is None and os.path.isfile(beside := app.root / proxy_file.FILE):
        config = beside
    flags |= {name: flags[name] or None for name in ("allow", "personal", "redact")}
    given = {name: value for name, value in flags.items() if value is not None}
    values: dict[str, Any] = {} if config is None else proxy_file.read_file(config, given)
    own = {name: given[name] for name in OF_LIBRARY if name in given}
    libraries = dict(values.get("libraries", {}))
    if not libraries:
        libraries["default"] = shapes.LibraryChoice(app.path, **own)
    elif own:
        raise SettingsError(
            f"{config} already names the libraries", hint="set revision, allow and top_k there"
        )
    values["libraries"] = libraries
    values.setdefault("default", next(iter(libraries)))
    if config is None:
        values |= shapes.named_providers({}, given)
    values |= {name: given[name] for name in OF_PROXY if name in given}
    keep = None
    if flags["keep"] != "forever":
        span = parse_span(flags["keep"])
        if not span:
            raise SettingsError(
                f"--keep: {flags['keep']!r} is not a length of time",
                hint="write 12h, 30d or forever",
            )
        keep = span / 1e6
    token = os.environ.get("TFGRPO_PROXY_TOKEN") or None
    settings = shapes.ProxySettings(**values, keep=keep, token=token)
    if settings.has_keys or settings.budgets:  # a project is 12 MB of modules
        return replace(settings, prices=app.project().table("prices"))
    return settings


@click.group(cls=SuggestingGroup)
def key() -> None:
    """Give applications keys of the proxy's own, each with its limits.

    Where the proxy has the provider's key (`tfgrpo proxy --key-env`), a request with such a key is
    sent on with the provider's. Only a digest of a key is kept, beside the store. See
    docs/production.md.

    \b
    Examples:
      tfgrpo key new shop --budget 5/day --rate 60
      tfgrpo key list
    """


LIMITS = together(
    option("--budget DOLLARS", "5/day, 100/month or 20/total."),
    option("--rate", "Requests in a minute.", type=COUNT),
    many("--model GLOB", "A model that the key may ask; repeatable.  [all]", "models"),
    many("--library GLOB", "A library that the key may use; repeatable.  [all]", "libraries"),
    many(
        "--path GLOB", "Another path that the key may reach: /v1/embeddings; repeatable.", "paths"
    ),
    option("--expires TIME", "Until when: 30d, 2027-01-31."),
)


@key.command()
@click.argument("name")
@LIMITS
@pass_app
def new(app: App, /, name: str, **given: Any) -> None:
    """Make a key, and print it once: it is stored nowhere.

    \b
    Examples:
      tfgrpo key new shop --budget 5/day --rate 60 --model 'gpt-5*'
      tfgrpo key new trial --expires 30d --library support
    """
    limits, secret, now = _of(given), key_ledger.new_key(), time.time_ns() // 1000
    if not name.isprintable() or not name.strip() or len(name) > 100:
        raise click.UsageError("a key's name has 1 to 100 printable characters")
    with _opened(app, create=True) as ledger:
        digest, author = key_ledger.key_digest(secret), app.author()
        ledger.add_key(key_ledger.VirtualKey(0, name, digest, author, now, None, limits))
    printing.echo(f"the key {name}; it is not shown again:", err=True)
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
    """Change limits of a key. Others stay as they are; the next request is under the new limits.

    \b
    Examples:
      tfgrpo key change shop --budget 10/day
    """
    with _opened(app) as ledger:
        named = [one for one in ledger.virtual_keys() if one.name == name and one.revoked is None]
        before = named[0].limits._asdict() if named else {}
        after = {k: v for k, v in _of(given)._asdict().items() if v not in (None, ())}
        ledger.change_key(name, key_ledger.KeyLimits(**(before | after)))
    printing.echo(f"changed the key {name}")


@key.command()
@click.argument("name")
@pass_app
def revoke(app: App, name: str) -> None:
    """Revoke a key: the next request with it is refused.

    \b
    Examples:
      tfgrpo key revoke shop
    """
    with _opened(app) as ledger:
        ledger.revoke_key(name, time.time_ns() // 1000)
    printing.echo(f"revoked the key {name}")


def _opened(app: App, *, create: bool = False) -> Any:
    """Opens the keys beside the store, for a `with` block. Raises StoreError."""
    return closing(open_ledger(key_ledger.ledger_path(app.file), create=create))


def _of(given: dict[str, Any]) -> key_ledger.KeyLimits:
    expires, now = given["expires"], time.time_ns() // 1000
    if expires is not None:
        expires = parse_coming(expires, now=now)
    budget = None if given["budget"] is None else key_ledger.parse_budget(given["budget"])
    models, libraries = given["models"] or None, given["libraries"] or None
    return key_ledger.KeyLimits(budget, given["rate"], models, libraries, given["paths"], expires)


def _object(one: key_ledger.VirtualKey, spent: key_ledger.Spent) -> dict[str, Any]:
    limits, iso = one.limits, printing.iso
    budget, expires = limits.budget, limits.expires
    fields = one._asdict() | {
        "created": iso(one.created),
        "revoked": one.revoked and iso(one.revoked),
        "limits": limits._asdict()
        | {"budget": budget and budget._asdict(), "expires": expires and iso(expires)},
        "spent": key_ledger.spent_by(one, spent),
    }
    del fields["digest"]
    return fields


def _lines(listed: list[key_ledger.VirtualKey], spent: key_ledger.Spent) -> Iterator[str]:
    rows = []
    for one in listed:
        limits = one.limits
        parts = [] if limits.rate is None else [f"{limits.rate} a minute"]
        lists = {"models": limits.models, "libraries": limits.libraries, "also": limits.paths}
        parts += [f"{name} {' '.join(globs)}" for name, globs in lists.items() if globs]
        if limits.expires is not None:
            parts.append(f"until {printing.when(limits.expires)}")
        if one.revoked is not None:
            parts.append(f"revoked {printing.age(one.revoked)}")
        budget = f" of {limits.budget}" if limits.budget else ""
        budget = money(key_ledger.spent_by(one, spent)) + budget
        rows.append((one.name, printing.age(one.created), budget, "; ".join(parts)))
    yield from printing.table(rows, header=("key", "made", "spent", "limits"))
