"""`tfgrpo log`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

import click

from tfgrpo.cli import text
from tfgrpo.cli.context import REVISION, App, pass_app
from tfgrpo.store.records import OPS, Version
from tfgrpo.store.store import Store


@click.command()
@click.argument("revision", default="HEAD", type=REVISION)
@click.option("-n", "--number", type=click.IntRange(1), help="Show at most this many.")
@click.option("--oneline", is_flag=True, help="One line for each version.")
@click.option("--run", help="Only versions that this run made.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@pass_app
def log(
    app: App, revision: str, number: int | None, oneline: bool, run: str | None, as_json: bool
) -> None:
    """Show versions, newest first: the history of REVISION, or the versions in A..B.

    +2 ~1 -1 =3 counts the events of a version: experiences added, modified, deleted, and kept
    (confirmed by another group that came to the same lesson).

    \b
    Examples:
      tfgrpo log -n 5
      tfgrpo log v1..main --oneline
    """
    store = app.store
    found = store.log(revision)
    if run is not None:
        found = (v for v in found if v.meta.get("run") == run)
    names = refs(store)
    shown = islice(found, number)
    if as_json:
        text.emit_json_lines(as_object(store, version, names) for version in shown)
    elif oneline:
        text.emit(app, (one_line(store, version, names) for version in shown))
    else:
        text.emit(app, entries(store, shown, names))


def refs(store: Store) -> dict[int, list[str]]:
    """Returns version number → the names that stand there: HEAD, branches, remotes', tags."""
    head = store.head
    names: dict[int, list[str]] = {}
    for branch, number in store.branches().items():
        names.setdefault(number, []).append(
            f"HEAD -> {branch}" if branch == head.branch else branch
        )
    for name, number in (store.remote_branches() | store.tags()).items():
        names.setdefault(number, []).append(name)
    if head.branch is None:
        names.setdefault(head.version.number, []).insert(0, "HEAD")
    for there in names.values():
        there.sort(key=lambda name: not name.startswith("HEAD"))
    return names


def entries(
    store: Store, versions: Iterator[Version], names: dict[int, list[str]]
) -> Iterator[str]:
    """Yields each version as a few lines with a blank one between."""
    for number, version in enumerate(versions):
        if number:
            yield ""
        yield from heading(store, version, names)


def heading(store: Store, version: Version, names: dict[int, list[str]]) -> list[str]:
    """Returns a version's lines: name and counts, who and when, message, evaluations."""
    first = [text.Word(version.name, fg="yellow", bold=True)]
    first += _named(names.get(version.number, []))
    first += text.counts(store.counts(version))
    lines = text.wrap(first, indent=2)
    if version.parent is not None:
        who = f"{text.when(version.time)} ({text.age(version.time)}) by {version.author}"
        lines += text.wrap(text.words(who, dim=True), first="  ", indent=2)
    lines += text.wrap(text.words(version.message), first="  ", indent=2)
    for line in scores(store, version):
        lines += text.wrap(text.words(line, fg="magenta"), first="  ", indent=4)
    return lines


def one_line(store: Store, version: Version, names: dict[int, list[str]]) -> str:
    """Returns a version as one line, cut to the terminal."""
    digest = version.digest.hex()[:8]
    line = [text.Word(version.name, fg="yellow"), text.Word(digest, dim=True)]
    line += text.counts(store.counts(version))
    line += _named(names.get(version.number, []))
    line += text.words(version.message)
    lines = text.wrap(line)
    return lines[0] + (" …" if len(lines) > 1 else "")


def scores(store: Store, version: Version) -> list[str]:
    """Returns a line for each evaluation of a version."""
    lines = []
    for evaluation in store.runs.evaluations(version.number) if store.evaluated else ():
        summary, config = evaluation.summary, evaluation.config
        mean, low, high = summary["mean"]
        told = f"{evaluation.dataset}: mean@{summary['samples']} {mean:.3f}"
        if low is not None:
            told += f" [{low:.3f}, {high:.3f}]"
        told += f", {summary['problems']} problems, {config['model']}"
        lines.append(f"{told}, temperature {config['temperature']:g}")
    return lines


def as_object(store: Store, version: Version, names: dict[int, list[str]]) -> dict[str, Any]:
    """Returns a version as JSON for programs."""
    counts = store.counts(version)
    return {
        "version": version.name,
        "digest": version.digest.hex(),
        "parents": [f"v{p}" for p in (version.parent, version.merged) if p is not None],
        "names": names.get(version.number, []),
        "author": version.author,
        "time": datetime.isoformat(version.when),
        "message": version.message,
        "counts": {op: counts.get(op, 0) for op in OPS},
        "meta": version.meta,
        "evaluations": [
            {"dataset": e.dataset, **e.config, **e.summary}
            for e in (store.runs.evaluations(version.number) if store.evaluated else ())
        ],
    }


def _named(names: list[str]) -> list[text.Word]:
    if not names:
        return []
    line = [text.Word("(", fg="yellow")]
    for number, name in enumerate(names):
        head = name.startswith("HEAD")
        comma = "," if number < len(names) - 1 else ")"
        words = text.words(name, fg="cyan" if head else "green", bold=head)
        line += [words[0]._replace(glue=number == 0), *words[1:]]
        line.append(text.Word(comma, fg="yellow", glue=True))
    return line
