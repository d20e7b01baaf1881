"""`tfgrpo history` and `tfgrpo blame`: where an experience comes from."""

from __future__ import annotations

from collections.abc import Iterator

import click

from tfgrpo.cli import show, text
from tfgrpo.cli.context import EXPERIENCE, REVISION, App, pass_app
from tfgrpo.cli.events import evidence_words
from tfgrpo.store.blame import Blame

json_option = click.option("--json", "as_json", is_flag=True, help="JSON for programs.")


@click.command()
@click.argument("experience", type=EXPERIENCE)
@json_option
@pass_app
def history(app: App, experience: str, as_json: bool) -> None:
    """Show every event of one experience on any branch, oldest first, with word diffs.

    EXPERIENCE is an id, the beginning of one, or a label at HEAD such as G0.

    \b
    Examples:
      tfgrpo history G0
      tfgrpo history G0 --json
    """
    show.show_experience(app, app.store, app.store.experience_id(experience), as_json)


@click.command()
@click.argument("revision", default="HEAD", type=REVISION)
@json_option
@pass_app
def blame(app: App, revision: str, as_json: bool) -> None:
    """Show who last shaped each experience: version, run, step and problem, and its votes.

    =3 says that three KEEPs have confirmed it since.

    \b
    Examples:
      tfgrpo blame
      tfgrpo blame v1 --json
    """
    from tfgrpo.store import blame as blames

    store = app.store
    found = blames.blame(store, store.resolve(revision))
    if as_json:
        text.emit_json(
            [
                {
                    "id": b.experience.id,
                    "text": b.experience.text,
                    "version": b.version.name,
                    "author": b.version.author,
                    "time": b.version.time,
                    "keeps": b.keeps,
                    "evidence": b.event.evidence,
                }
                for b in found
            ]
        )
    else:
        text.emit(app, _lines(found))


def _lines(found: list[Blame]) -> Iterator[str]:
    for number, b in enumerate(found):
        label = click.style(f"[G{number}]", fg="cyan") + " "
        yield from text.wrap(text.words(b.experience.text), first=label, indent=6)
        line = [
            text.Word(b.version.name, fg="yellow"),
            text.Word(text.SIGNS[b.event.op], fg=text.COLOURS[b.event.op]),
        ]
        if b.keeps:
            line.append(text.Word(f"={b.keeps}", fg="cyan"))
        told = evidence_words(b.event) or f"by {b.version.author}"
        line += text.words(f"{told}, {text.age(b.version.time)}", dim=True)
        yield from text.wrap(line, first=" " * 6, indent=6)
