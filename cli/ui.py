"""`tfgrpo ui`."""

from __future__ import annotations

import secrets

import click

from tfgrpo.cli import text
from tfgrpo.cli.context import App, pass_app
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.store.installed import install_hint

NEEDED = ("jinja2", "markupsafe", "starlette", "uvicorn")


@click.command()
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; any but loopback needs a --login.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7433,
    show_default=True,
    help="Port to listen on; 0 takes any that is free.",
)
@click.option("--read-only", is_flag=True, help="Show everything, record nothing.")
@click.option(
    "--login",
    "logins",
    multiple=True,
    metavar="NAME",
    help="Let this person in, with an address of their own; repeatable.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="A host name by which browsers ask for this server; repeatable.",
)
@click.option("--open", "open_", is_flag=True, help="Open the page in your browser.")
@pass_app
def ui(
    app: App,
    host: str,
    port: int,
    read_only: bool,
    logins: tuple[str, ...],
    names: tuple[str, ...],
    open_: bool,
) -> None:
    """Show the store in a browser: review, history, runs and production.

    The printed address has a token in it, which the browser keeps as a cookie; whoever has it may
    look, and change the library unless --read-only is given. Only this machine is listened to.
    With another --host give each person a --login: what they do is recorded under that name.
    Ctrl-C stops it. See docs/ui.md.

    \b
    Examples:
      tfgrpo ui
      tfgrpo ui --read-only --port 0
      tfgrpo ui --host 0.0.0.0 --login ana --login ben
    """
    try:
        from tfgrpo.ui.serve import serve
        from tfgrpo.ui.settings import UiSettings, is_loopback
    except ModuleNotFoundError as error:
        if error.name not in NEEDED:
            raise
        raise TfgrpoError(f"the pages need {error.name}", hint=install_hint("ui")) from None
    if not logins and not is_loopback(host):
        raise click.UsageError(
            f"--host {host} lets others in: say who, with --login NAME for each person"
        )
    people = {secrets.token_urlsafe(24): name for name in logins or (app.author(),)}
    app.store.close()  # what cannot be opened is an error before anything is listened to
    settings = UiSettings(app.path.absolute(), people, host, port, read_only, names)

    def ready(at: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        urls = {token: f"http://{shown}:{at}/?token={token}" for token in people}
        for token, name in people.items():
            who = f"  ({name})" if logins else ""
            text.echo(f"{urls[token]}{who}", err=True)
        if open_:
            import webbrowser

            webbrowser.open(next(iter(urls.values())))

    serve(settings, ready)
