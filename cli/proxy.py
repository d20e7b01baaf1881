"""`tfgrpo proxy`."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import options, printing, trust
from tfgrpo.cli.flags import COUNT, PORT, flag, option
from tfgrpo.cli.start_context import REVISION, App, pass_app
from tfgrpo.store.errors import SettingsError, TfgrpoError, install_hint

if TYPE_CHECKING:
    from tfgrpo.proxy.proxy_settings import ProxySettings

TOKEN = "TFGRPO_PROXY_TOKEN"
FILE = "proxy.toml"
ROUTES = {
    "anthropic": ("Anthropic", "/v1/messages"),
    "gemini": ("Gemini", "/v1beta/models"),
    "bedrock": ("Bedrock", "/model"),
}
"""By API, the company's name and what its paths begin with."""


@click.command()
@option(
    "--library", "Revision to serve: a branch, a tag, HEAD.  [HEAD]", name="revision", type=REVISION
)
@option("--upstream", "Base URL of an OpenAI-compatible provider.")
@option("--anthropic", "Base URL for the Anthropic routes, where it is another.")
@option(
    "--allow",
    "Another revision that requests may name; repeatable.  [any on loopback, none beyond]",
    multiple=True,
    type=REVISION,
)
@option(
    "--key-env",
    "Variable with the provider's key, for callers with a key of `tfgrpo key new`.",
    metavar="VARIABLE",
)
@option("--anthropic-key-env", "The same for the Anthropic routes.", metavar="VARIABLE")
@flag("--require-key", "Take requests with such a key alone.", default=None)
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
    "What is kept of calls: nothing, counts, or their words too, redacted.  [counts]",
    type=click.Choice(["off", "counts", "content"]),
)
@option("--keep", "For how long: 12h, 30d, forever.", default="30d")
@option(
    "--redact",
    "What else to take out of words that are kept; repeatable.",
    metavar="REGEX",
    multiple=True,
)
@option(
    "--personal",
    "Take telephones, as written there (DE), and IP addresses out too; repeatable.",
    metavar="COUNTRY",
    multiple=True,
)
@option(
    "--sample",
    "Share of calls whose words are kept, with --record content.  [1]",
    type=click.FloatRange(0, 1),
)
@option(
    "--drain", "Seconds that requests under way have at SIGTERM.  [30]", type=click.FloatRange(0)
)
@option("--access-log", "Write a line of JSON for each request; - here.", metavar="FILE")
@option(
    "--config",
    "File with several libraries and rules; by default proxy.toml next to the store.",
    type=click.Path(dir_okay=False, path_type=Path),
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
    try:
        from tfgrpo.proxy.worker_processes import run
    except ModuleNotFoundError as error:
        if error.name != "httptools":
            raise
        raise TfgrpoError("the proxy needs httptools", hint=install_hint("proxy")) from None
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
        for api, (name, path) in ROUTES.items():
            other = settings.upstreams.get(api)
            if other is not None and (str(other), other.before_v1) != usual:
                printing.echo(f"{name}'s routes: {other.shown(path)}", err=True)

    run(settings, workers, ready, lambda: settings_of(app, config, flags))


def settings_of(app: App, config: Path | None, flags: dict[str, Any]) -> ProxySettings:
    """What the flags and the file say together. Raises SettingsError."""
    from tfgrpo.proxy.proxy_settings import (
        LibraryChoice,
        ProxySettings,
        either,
        read_file,
        upstreams,
        with_keys,
    )

    if config is None and os.path.isfile(beside := app.root / FILE):
        config = beside
    for name in ("allow", "personal"):
        flags[name] = flags[name] or None
    redact = flags["redact"]
    flags["redact"] = either(redact) if redact and not isinstance(redact, str) else redact or None
    given = [name for name, value in flags.items() if value is not None]
    values: dict[str, Any] = {} if config is None else read_file(config, given)
    own = {
        key: flags[key]
        for key in ("revision", "top_k", "dropout", "allow")
        if flags[key] is not None
    }
    libraries = dict(values.get("libraries", {}))
    if not libraries:
        libraries["default"] = LibraryChoice(app.path, **own)
    elif own:
        raise SettingsError(
            f"{config} says which libraries there are", hint="set revision, allow and top_k there"
        )
    values["libraries"] = libraries
    values.setdefault("default", next(iter(libraries)))
    if values.get("providers") and (flags["upstream"] or flags["anthropic"]):
        raise SettingsError(f"{config} lists the providers", hint="set them there")
    if flags["upstream"] or flags["anthropic"]:
        listed = (values.get("openai"), values.get("anthropic"), *values.get("others", {}).values())
        if any(one and one.key for one in listed) and not flags["key_env"]:
            raise SettingsError(
                f"{config} has the key of another provider", hint="name one with --key-env"
            )
    if flags["upstream"] or flags["anthropic"] or "openai" not in values:
        values |= upstreams({"openai": flags["upstream"], "anthropic": flags["anthropic"]})
    with_keys(values, {"openai": flags["key_env"], "anthropic": flags["anthropic_key_env"]})
    plain = ["host", "port", "record", "redact", "personal", "sample", "drain", "access_log"]
    plain.append("require_key")
    values |= {key: flags[key] for key in plain if flags[key] is not None}
    keep = None
    if flags["keep"] != "forever":
        from tfgrpo.store.history.log_filter import parse_time

        keep = -parse_time(flags["keep"], now=0) / 1e6
        if keep <= 0:  # a date: every call would be older than that
            raise SettingsError(
                f"--keep says for how long, and {flags['keep']!r} does not",
                hint="12h, 30d or forever",
            )
    settings = ProxySettings(**values, keep=keep, token=os.environ.get(TOKEN) or None)
    if settings.has_keys or settings.budgets:  # a project is 12 MB of modules
        return replace(settings, prices=options.open_project(app, None).table("prices"))
    return settings
