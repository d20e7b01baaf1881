"""`tfgrpo blame`: where each experience comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from tfgrpo.cli import credit, printing
from tfgrpo.cli.flags import JSON
from tfgrpo.cli.start_context import REVISION, App, pass_app
from tfgrpo.display.event_lines import credit_words

if TYPE_CHECKING:
    from tfgrpo.display.library_figures import KnownExperience


@click.command()
@click.argument("revision", default="HEAD", type=REVISION)
@JSON
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
    from tfgrpo.display.library_figures import effect_object, known_experiences
    from tfgrpo.display.version_rows import recorder_object

    store = app.store
    known = known_experiences(store, store.resolve(revision))
    if as_json:
        printing.emit_json(
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
        printing.emit(app, _lines(known))


def _lines(known: Iterable[KnownExperience]) -> Iterator[str]:
    for name, b, effect in known:
        label = printing.style(f"[{name}]", fg="cyan") + " "
        yield from printing.wrapped(b.experience.text, first=label, indent=6)
        line = [
            printing.Word(b.version.name, fg="yellow"),
            printing.Word(printing.SIGNS[b.event.op], fg=printing.COLOURS[b.event.op]),
        ]
        if b.keeps:
            line.append(printing.Word(f"={b.keeps}", fg="cyan"))
        line += printing.words(
            f"{credit_words(b.event, b.version)}, {printing.age(b.version.time)}", dim=True
        )
        yield from printing.wrap(line, first=" " * 6, indent=6)
        if effect is not None:
            words = credit.words(effect)
            yield from printing.wrap(words, first=" " * 6 + "effect ", indent=6)
