"""`tfgrpo mcp`."""

from __future__ import annotations

import os

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import COUNT, flag, option
from tfgrpo.cli.start_context import REVISION, App, pass_app
from tfgrpo.store.errors import TfgrpoError, install_hint


@click.command()
@click.argument("revision", default="HEAD", type=REVISION)
@flag("--http", "Answer on HTTP instead of standard input and output.")
@option("--host", "With --http: the address.", default="127.0.0.1")
@click.option("--port", type=click.IntRange(0, 65535), default=8485, show_default=True)
@option(
    "--top-k",
    "How many experiences a problem gets at most.  [as many as in training, else 20]",
    type=COUNT,
)
@option(
    "--record",
    "What is kept of look-ups: nothing, counts, or the problems too, redacted.",
    type=click.Choice(["off", "counts", "content"]),
    default="counts",
)
@option("--redact", "What else to take out of problems.", metavar="REGEX", default="")
@pass_app
def mcp(
    app: App,
    /,
    revision: str,
    http: bool,
    host: str,
    port: int,
    top_k: int | None,
    **recording: str,
) -> None:
    """Offer the library at REVISION to an agent, over the Model Context Protocol.

    A prompt, a resource, and two tools: `experiences` finds what fits a problem, `feedback` records
    what became of it. Agents start the command themselves, or reach it with --http at
    http://127.0.0.1:8485/mcp. Beyond loopback TFGRPO_MCP_TOKEN must be set: clients send it as a
    bearer token. See docs/production.md.

    \b
    Examples:
      tfgrpo mcp prod
      tfgrpo mcp prod --http --port 8485
    """
    try:
        from tfgrpo.serving import mcp_transport
        from tfgrpo.serving.library_server import LibraryServer
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "anyio", "uvicorn"):
            raise
        raise TfgrpoError("MCP needs the package mcp", hint=install_hint("mcp")) from None
    from tfgrpo.domains.live_library import live
    from tfgrpo.serving.mcp_lookups import Lookups

    token = os.environ.get(mcp_transport.TOKEN) or None
    if http:
        mcp_transport.checked_address(host, token)
    library = live(revision, store=app.path)
    lookups = None
    if recording["record"] != "off":
        lookups = Lookups(
            app.path,
            content=recording["record"] == "content",
            redact=recording["redact"],
            token=(token or "") if http else None,
        )
    server = LibraryServer(library, lookups, top_k=top_k)
    if not http:
        mcp_transport.serve_stdio(server)
        return

    def ready(chosen: int) -> None:
        name = f"[{host}]" if ":" in host else host
        printing.echo(f"listening on http://{name}:{chosen}{mcp_transport.PATH}", err=True)

    mcp_transport.serve_http(server, host, port, token, ready)
