"""`tfgrpo stats`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import text
from tfgrpo.cli.context import REVISION, App, pass_app

if TYPE_CHECKING:
    from tfgrpo.store.blame import Confirmed, Stats
    from tfgrpo.store.store import Store


@click.command()
@click.argument("revision", default="HEAD", type=REVISION)
@click.option(
    "-n",
    "--number",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="How many experiences to list in each group.",
)
@click.option("--live", is_flag=True, help="What calls through the proxy came to, instead.")
@click.option("--since", help="With --live: from when on.  [7d]")
@click.option(
    "--by",
    metavar="DIMENSION",
    help="With --live: by version, arm, day, user, key, model, provider, or a tag's name.",
)
@click.option(
    "--tag", "tags", multiple=True, metavar="NAME=VALUE", help="With --live: only calls with it."
)
@click.option("--json", "as_json", is_flag=True, help="Output JSON, with every experience.")
@pass_app
def stats(
    app: App, /, revision: str, number: int, live: bool, as_json: bool, **filters: Any
) -> None:
    """Show the size of a library's history, how much it changes, and which experiences are
    confirmed.

    \b
    Examples:
      tfgrpo stats
      tfgrpo stats v1 --json
      tfgrpo stats --live --since 1d
      tfgrpo stats --live --by day --tag team=blue
    """
    from tfgrpo.store import blame as figures

    given = [name for name, value in filters.items() if value]
    if given and not live:
        raise click.UsageError(f"--{given[0].removesuffix('s')} goes with --live")
    if live:
        _live(app, filters, number, as_json)
        return
    store = app.store
    summary = figures.stats(store, store.resolve(revision))
    if as_json:
        text.emit_json(_object(summary))
    else:
        text.emit(app, _lines(store, summary, number))


def _live(app: App, filters: Mapping[str, Any], number: int, as_json: bool) -> None:
    """Shows calls in figures: by version, by arm, and by the experiences that were in the
    prompt, or by another dimension alone."""
    import os
    import time

    from tfgrpo.cli.traffic import dollars_of, live_lines, opened, parse_tag
    from tfgrpo.store.errors import TfgrpoError
    from tfgrpo.store.log_filter import parse_time
    from tfgrpo.store.traffic import by_dimension, by_experience, traffic_path
    from tfgrpo.visible import shown

    store = app.store

    def library_of(digest: str) -> list[str]:
        try:
            return [experience.id for experience in store.library(digest)]
        except TfgrpoError:  # of another store, or redacted away
            return []

    start = parse_time(filters["since"] or "7d", now=time.time_ns() // 1000)
    cost = dollars_of(app)
    if not os.path.isfile(traffic_path(app.file)):
        raise TfgrpoError("no calls are on record", hint="`tfgrpo proxy` records them")
    with opened(app) as traffic:
        calls = traffic.measured(start, tuple(map(parse_tag, filters["tags"])))
        if filters["by"]:
            groups = by_dimension(calls, filters["by"], cost)
            if as_json:
                text.emit_json([one._asdict() for one in groups])
            else:
                text.emit(app, live_lines(shown(filters["by"]), groups, {}))
            return
        versions = by_dimension(calls, "version", cost)
        arms = sorted(by_dimension(calls, "arm", cost))
        experiences = by_experience(calls, library_of)
        lost = traffic.lost()
    if as_json:
        text.emit_json(
            {
                "versions": [one._asdict() for one in versions],
                "arms": [one._asdict() for one in arms],
                "experiences": [one._asdict() for one in experiences],
                "lost": lost,
            }
        )
        return
    texts = {e.id: shown(e.text)[:40] for e in store.library("HEAD")}

    def lines() -> Iterator[str]:
        yield from live_lines("version", versions, {})
        if arms:
            yield from live_lines("arm", arms, {})
        yield from live_lines("experience", experiences[:number], texts)
        if lost:
            yield f"{text.plural(lost, 'call')} lost with workers that were killed"

    text.emit(app, lines())


def _lines(store: Store, stats: Stats, number: int) -> Iterator[str]:
    size = text.plural(len(stats.experiences), "experience")
    letters = sum(len(c.experience.text) for c in stats.experiences)
    yield f"{text.style(stats.version.name, fg='yellow', bold=True)}: {size}, {letters} characters"
    share = f"{stats.snapshot_share:.1%} of it in {text.plural(stats.snapshots, 'snapshot')}"
    yield (
        f"file     {stats.bytes / 1e6:.2f} MB, {share if stats.snapshots else 'no snapshots'}; "
        f"{text.plural(stats.file_versions, 'version')}, {text.plural(stats.file_events, 'event')}"
    )
    counted = " ".join(word.styled() for word in text.counts(stats.events)) or "no events"
    since = "" if stats.first is None else f", since {text.when(stats.first.time)}"
    age = "" if stats.first is None else f" ({text.age(stats.first.time)})"
    yield f"history  {text.plural(stats.versions, 'version')} with {counted}{since}{age}"
    most = [c for c in stats.most_confirmed if c.keeps][:number]
    least = [c for c in stats.least_confirmed if c not in most][:number]
    label = {c.experience.id: f"G{i}" for i, c in enumerate(stats.experiences)}
    for title, sign, listed in (
        ("most confirmed", "=", most),
        ("least confirmed", "=", least),
        ("most often changed", "~", stats.churn[:number]),
    ):
        if listed:
            yield text.style(title, bold=True)
            yield from _listed(listed, sign, label)
    if stats.steps:
        rows = [
            (
                s.run,
                str(s.step + 1),
                s.version.name,
                text.age(s.version.time),
                " ".join(word.text for word in text.counts(s.events)),
            )
            for s in stats.steps
        ]
        yield from text.table(rows, header=("run", "step", "version", "age", "events"))


def _listed(listed: Sequence[Confirmed], sign: str, label: dict[str, str]) -> Iterator[str]:
    for confirmed in listed:
        count = confirmed.keeps if sign == "=" else confirmed.modified
        version = confirmed.version
        line = [
            text.Word(f"{sign}{count}", fg="cyan" if sign == "=" else "yellow"),
            text.Word(f"[{label[confirmed.experience.id]}]", fg="cyan"),
            *text.words(confirmed.experience.text),
            *text.words(f"({version.name}, {text.age(version.time)})", dim=True),
        ]
        yield from text.wrap(line, first="  ", indent=6)


def _object(stats: Stats) -> dict[str, Any]:
    return {
        "version": stats.version.name,
        "experiences": [
            {
                "id": c.experience.id,
                "text": c.experience.text,
                "keeps": c.keeps,
                "modified": c.modified,
            }
            for c in stats.experiences
        ],
        "versions": stats.versions,
        "events": stats.events,
        "since": None if stats.first is None else stats.first.when.isoformat(),
        "steps": [
            {"run": s.run, "step": s.step + 1, "version": s.version.name, "events": s.events}
            for s in stats.steps
        ],
        "file": {
            "bytes": stats.bytes,
            "versions": stats.file_versions,
            "events": stats.file_events,
            "snapshots": stats.snapshots,
            "snapshot_bytes": stats.snapshot_bytes,
        },
    }
