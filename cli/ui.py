"""`tfgrpo ui`."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import PORT, flag, many, option, path
from tfgrpo.cli.start_context import App, Given, needed, pass_given

PAGES = ("ui", "the pages need {}", "httpx2", "jinja2", "markupsafe", "starlette", "uvicorn")


@click.command()
@option("--host", "Address to listen on; any but loopback needs a --login.", default="127.0.0.1")
@option("--port", "Port to listen on; 0 takes any that is free.", type=PORT, default=7433)
@flag("--read-only", "Show everything, record nothing.")
@many("--login NAME", "Let this person in, with an address of their own; repeatable.", "logins")
@many("--reader NAME", "Let this person only view the pages; repeatable.", "readers")
@many("--name HOST", "A host name under which browsers may reach this server; repeatable.", "names")
@flag("--open", "Open the page in your browser.", name="open_")
@option(
    "--export DIR",
    "Write the pages as files into this new folder instead.",
    name="export",
    type=path(file_okay=False),
)
@flag("--no-content", "Leave out examples and the texts of attempts and calls; record nothing.")
@many(
    "--notify URL",
    "Tell this webhook or mail server when a proposal waits, a run fails or harm is shown; "
    "repeatable.",
)
@pass_given
def ui(app: App, given: Given) -> None:
    """Show the store in a browser: review, history, runs and production.

    The printed address has a token in it, which the browser keeps as a cookie; whoever has it may
    look, and change the library unless --read-only is given. Only this machine is listened to.
    With another --host give each person a --login: what they do is recorded under that name.
    Ctrl-C stops it. With --export DIR nothing is listened to: the same pages are written as files
    that open from a folder or a static host. See docs/ui.md.

    \b
    Examples:
      tfgrpo ui
      tfgrpo ui --host 0.0.0.0 --login ana --login ben --reader eve
      tfgrpo ui --export report --no-content
    """
    with needed(*PAGES):
        from tfgrpo.ui.notifications import teller
        from tfgrpo.ui.site import serve
        from tfgrpo.ui.ui_settings import UiSettings, is_loopback, reachable
    if given.export is not None:
        _export(app, given.export, content=not given.no_content)
        return
    if not (given.logins or given.readers) and not is_loopback(given.host):
        raise click.UsageError(
            f"--host {given.host} lets others in: say who, with --login NAME for each person"
        )
    looking = {secrets.token_urlsafe(24): f"{name}" for name in given.readers}
    writing = {secrets.token_urlsafe(24): name for name in given.logins or (app.author(),)}
    people = writing | looking
    for url in given.notify:
        teller(url)
    app.store.close()  # what cannot be opened is an error before anything is listened to
    hosts = reachable(given.host, given.names)
    settings = UiSettings(
        app.path.absolute(),
        people,
        content=not given.no_content,
        readers=frozenset(looking),
        public=f"http://{hosts[0]}:{given.port}" if given.port else "",
        **given.of("host", "port", "read_only", "names", "notify"),
    )

    def ready(at: int) -> None:
        places = [f"[{one}]" if ":" in one else one for one in hosts]
        for token, name in people.items():
            who = f"  ({name}{', only looks' * (token in looking)})"
            who = who if given.logins or given.readers else ""
            for place in places:
                printing.echo(f"http://{place}:{at}/?token={token}{who}", err=True)
        if given.open_:
            import webbrowser

            webbrowser.open(f"http://{places[0]}:{at}/?token={next(iter(people))}")

    serve(settings, ready)


def _export(app: App, folder: Path, *, content: bool) -> None:
    from tfgrpo.ui.export_pages import export_site

    app.store.close()
    done = export_site(app.path.absolute(), folder, author=app.author(), content=content)
    pages, size = printing.plural(done.pages, "page"), f"{done.bytes / 1e6:.1f} MB"
    printing.echo(f"wrote {pages} to {folder / 'index.html'} ({size})")
    if done.left:
        printing.echo(f"{done.left:,} links lead to pages that were left out: there are too many")
    printing.warn(f"{page} is left out: status {status}" for page, status in done.failed.items())
