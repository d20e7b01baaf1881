"""`tfgrpo blame`: where each experience comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from tfgrpo.cli import credit, text
from tfgrpo.cli.context import REVISION, App, pass_app
from tfgrpo.projections.events import credit_words

if TYPE_CHECKING:
    from tfgrpo.projections.library import KnownExperience


@click.command()
@click.argument("revision", default="HEAD", type=REVISION)
@click.option("--json", "as_json", is_flag=True, help="Output JSON.")
@pass_app
def blame(app: App, revision: str, as_json: bool) -> None:
    """Show who last changed each experience: version, run, step and problem, and how often it was
    confirmed.

    =3 means that three KEEPs have confirmed it since. Its effect on the reward is shown if a run
    has measured it.

    \b
    Examples:
      tfgrpo blame
      tfgrpo blame v1 --json
    """
    from tfgrpo.projections.library import effect_object, known_experiences
    from tfgrpo.projections.versions import recorder_object

    store = app.store
    known = known_experiences(store, store.resolve(revision))
    if as_json:
        text.emit_json(
            [
                {
                    "id": b.experience.id,
                    "text": b.experience.text,
                    "version": b.version.name,
                    "author": b.version.author,
                    **recorder_object(store, b.version),
                    "time": b.version.when.isoformat(),
                    "keeps": b.keeps,
                    "evidence": b.event.evidence,
                    "credit": effect_object(effect),
                }
                for _, b, effect in known
            ]
        )
    else:
        text.emit(app, _lines(known))


def _lines(known: Iterable[KnownExperience]) -> Iterator[str]:
    for name, b, effect in known:
        label = text.style(f"[{name}]", fg="cyan") + " "
        yield from text.wrap(text.words(b.experience.text), first=label, indent=6)
        line = [
            text.Word(b.version.name, fg="yellow"),
            text.Word(text.SIGNS[b.event.op], fg=text.COLOURS[b.event.op]),
        ]
        if b.keeps:
            line.append(text.Word(f"={b.keeps}", fg="cyan"))
        line += text.words(
            f"{credit_words(b.event, b.version)}, {text.age(b.version.time)}", dim=True
        )
        yield from text.wrap(line, first=" " * 6, indent=6)
        if effect is not None:
            words = credit.words(effect)
            yield from text.wrap(words, first=" " * 6 + "effect ", indent=6)
