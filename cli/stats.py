"""`tfgrpo stats`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import text
from tfgrpo.cli.context import REVISION, App, pass_app

if TYPE_CHECKING:
    from tfgrpo.store.stats import Confirmed, Stats
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
@click.option("--json", "as_json", is_flag=True, help="Output JSON, with every experience.")
@pass_app
def stats(app: App, revision: str, number: int, as_json: bool) -> None:
    """Show the size of a library's history, how much it changes, and which experiences are
    confirmed.

    \b
    Examples:
      tfgrpo stats
      tfgrpo stats v1 --json
    """
    from tfgrpo.store import stats as figures

    store = app.store
    found = figures.stats(store, store.resolve(revision))
    if as_json:
        text.emit_json(_object(found))
    else:
        text.emit(app, _lines(store, found, number))


def _lines(store: Store, found: Stats, number: int) -> Iterator[str]:
    size = text.plural(len(found.experiences), "experience")
    letters = sum(len(c.experience.text) for c in found.experiences)
    yield f"{click.style(found.version.name, fg='yellow', bold=True)}: {size}, {letters} characters"
    share = f"{found.snapshot_share:.1%} of it in {text.plural(found.snapshots, 'snapshot')}"
    yield (
        f"file     {found.bytes / 1e6:.2f} MB, {share if found.snapshots else 'no snapshots'}; "
        f"{text.plural(found.file_versions, 'version')}, {text.plural(found.file_events, 'event')}"
    )
    counted = " ".join(word.styled() for word in text.counts(found.events)) or "no events"
    since = "" if found.first is None else f", since {text.when(found.first.time)}"
    age = "" if found.first is None else f" ({text.age(found.first.time)})"
    yield f"history  {text.plural(found.versions, 'version')} with {counted}{since}{age}"
    most = [c for c in found.most_confirmed if c.keeps][:number]
    least = [c for c in found.least_confirmed if c not in most][:number]
    label = {c.experience.id: f"G{i}" for i, c in enumerate(found.experiences)}
    for title, sign, listed in (
        ("most confirmed", "=", most),
        ("least confirmed", "=", least),
        ("most often changed", "~", found.churn[:number]),
    ):
        if listed:
            yield click.style(title, bold=True)
            yield from _listed(store, listed, sign, label)
    if found.steps:
        rows = [
            (
                s.run,
                str(s.step + 1),
                s.version.name,
                text.age(s.version.time),
                " ".join(word.text for word in text.counts(s.events)),
            )
            for s in found.steps
        ]
        yield from text.table(rows, header=("run", "step", "version", "age", "events"))


def _listed(
    store: Store, listed: Sequence[Confirmed], sign: str, label: dict[str, str]
) -> Iterator[str]:
    events = store.events_at([c.experience.row for c in listed])
    for confirmed in listed:
        count = confirmed.keeps if sign == "=" else confirmed.modified
        told = store.version(events[confirmed.experience.row].version)
        line = [
            text.Word(f"{sign}{count}", fg="cyan" if sign == "=" else "yellow"),
            text.Word(f"[{label[confirmed.experience.id]}]", fg="cyan"),
            *text.words(confirmed.experience.text),
            *text.words(f"({told.name}, {text.age(told.time)})", dim=True),
        ]
        yield from text.wrap(line, first="  ", indent=6)


def _object(found: Stats) -> dict[str, Any]:
    return {
        "version": found.version.name,
        "experiences": [
            {
                "id": c.experience.id,
                "text": c.experience.text,
                "keeps": c.keeps,
                "modified": c.modified,
            }
            for c in found.experiences
        ],
        "versions": found.versions,
        "events": found.events,
        "since": None if found.first is None else found.first.time,
        "steps": [
            {"run": s.run, "step": s.step + 1, "version": s.version.name, "events": s.events}
            for s in found.steps
        ],
        "file": {
            "bytes": found.bytes,
            "versions": found.file_versions,
            "events": found.file_events,
            "snapshots": found.snapshots,
            "snapshot_bytes": found.snapshot_bytes,
        },
    }
