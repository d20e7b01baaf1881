"""`tfgrpo mcp` and `watch`: the library for agents, over MCP and in a file."""

from __future__ import annotations

import os
import signal
import threading

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import COUNT, PORT, flag, many, option
from tfgrpo.cli.start_context import REVISION, App, Given, needed, pass_given


@click.command()
@click.argument("revision", default="HEAD", type=REVISION)
@flag("--http", "Answer on HTTP instead of standard input and output.")
@option("--host", "With --http: the address.", default="127.0.0.1")
@option("--port", "With --http: the port.", type=PORT, default=8485)
@option(
    "--top-k",
    "How many experiences a problem gets at most.  [as many as in training, else 20]",
    type=COUNT,
)
@option(
    "--record",
    "What to record of look-ups: nothing, counts, or redacted problems too.",
    type=click.Choice(["off", "counts", "content"]),
    default="counts",
)
@many("--redact REGEX", "Also remove what this expression matches from problems; repeatable.")
@pass_given
def mcp(app: App, given: Given) -> None:
    """Offer the library at REVISION to an agent, over the Model Context Protocol.

    A prompt, a resource, and two tools: `experiences` finds those that fit a problem, `feedback`
    records whether the answer was right. Agents start the command themselves, or reach it with
    --http at http://127.0.0.1:8485/mcp. Beyond loopback TFGRPO_MCP_TOKEN must be set: clients send
    it as a bearer token. See docs/production.md.

    \b
    Examples:
      tfgrpo mcp prod
      tfgrpo mcp prod --http --port 8485
    """
    with needed("mcp", "MCP needs the package mcp", "mcp", "mcp_types", "anyio", "uvicorn"):
        from tfgrpo.serving import library_server as mcp_server
        from tfgrpo.serving.library_server import LibraryServer, Lookups
    from tfgrpo.domains.prompt_library import live
    from tfgrpo.proxy.proxy_file import withheld_beside

    token = os.environ.get(mcp_server.TOKEN) or None
    if given.http:
        mcp_server.checked_address(given.host, token)
    library = live(given.revision, store=app.path)
    lookups = None
    if given.record != "off":
        sent, content = (token or "") if given.http else None, given.record == "content"
        pattern = withheld_beside(app.root, given.redact)
        lookups = Lookups(app.path, content=content, pattern=pattern, token=sent)
    server = LibraryServer(library, lookups, top_k=given.top_k)
    if not given.http:
        mcp_server.serve_stdio(server)
        return

    def ready(chosen: int) -> None:
        name = f"[{given.host}]" if ":" in given.host else given.host
        printing.echo(f"listening on http://{name}:{chosen}{mcp_server.PATH}", err=True)

    mcp_server.serve_http(server, given.host, given.port, token, ready)


@click.command()
@option(
    "--export",
    "The file: AGENTS.md, CLAUDE.md, a SKILL.md, or as for `export -o`.",
    name="path",
    required=True,
    type=click.Path(dir_okay=False),
)
@option("--revision", "What it shows.  [HEAD]", default="HEAD", type=REVISION, show_default=False)
@flag("--once", "Update the file once, then exit.")
@option("--name", "Name of a new SKILL.md's skill; by default its folder's.")
@option("--description", "When to use a new SKILL.md's skill.")
@pass_given
def watch(app: App, given: Given) -> None:
    """Keep a file up to date with the library at REVISION, until it is stopped.

    Of a Markdown file only the block between two comments is written, and everything else in it
    stays; without a block, one is added at its end. A missing file is created.

    \b
    Examples:
      tfgrpo watch --export AGENTS.md --revision prod
      tfgrpo watch --export .claude/skills/sums/SKILL.md --once
    """
    from tfgrpo.domains.prompt_library import live
    from tfgrpo.serving.kept_file import KeptFile, keep

    library = live(given.revision, store=app.path)
    file = KeptFile(given.path, library, name=given.name, description=given.description)

    def wrote(version: str) -> None:
        printing.echo(f"wrote {version} to {given.path}")

    if file.bring_up_to_date():
        wrote(library.version.name)
    elif given.once:
        printing.echo(f"{given.path} has {library.version.name} already")
    if given.once:
        return
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    printing.echo(f"watching {given.revision}; Ctrl-C ends", err=True)
    keep(file, stop, wrote)
