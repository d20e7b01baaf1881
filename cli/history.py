"""`tfgrpo history` and `tfgrpo blame`: where an experience comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import credit, show, text
from tfgrpo.cli.context import EXPERIENCE, REVISION, App, pass_app
from tfgrpo.cli.events import credit_words
from tfgrpo.store.blame import Blame
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.training.credit import Credited

json_option = click.option("--json", "as_json", is_flag=True, help="Output JSON.")


@click.command()
@click.argument("experience", type=EXPERIENCE)
@json_option
@pass_app
def history(app: App, experience: str, as_json: bool) -> None:
    """Show every event of one experience on any branch, oldest first, with word diffs.

    EXPERIENCE is an id, a prefix of one, or a label at HEAD such as G0.

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
    """Show who last changed each experience: version, run, step and problem, and how often it was
    confirmed.

    =3 means that three KEEPs have confirmed it since. Its effect on the reward is shown if a run
    with --dropout has measured it.

    \b
    Examples:
      tfgrpo blame
      tfgrpo blame v1 --json
    """
    from tfgrpo.store import blame as blames

    store = app.store
    version = store.resolve(revision)
    blamed = blames.blame(store, version)
    known = _credits(store, version)
    if as_json:
        text.emit_json(
            [
                {
                    "id": b.experience.id,
                    "text": b.experience.text,
                    "version": b.version.name,
                    "author": b.version.author,
                    "time": b.version.when.isoformat(),
                    "keeps": b.keeps,
                    "evidence": b.event.evidence,
                    "credit": _effect(known.get(b.experience.id)),
                }
                for b in blamed
            ]
        )
    else:
        text.emit(app, _lines(blamed, known))


def _credits(store: Store, version: Version) -> dict[str, Credited]:
    """Returns what is known of experiences' effects; nothing is imported where no run looked."""
    if not any(run.config.get("dropout") for run in store.runs.all()):
        return {}
    from tfgrpo.training.credit import credits

    return {one.experience.id: one for one in credits(store, version) if one.credit}


def _effect(one: Credited | None) -> dict[str, Any] | None:
    from tfgrpo.evaluation.figures import interval_object

    if one is None or one.credit is None:
        return None
    credit = one.credit
    return {
        "effect": interval_object(credit.effect, credit.low, credit.high),
        "verdict": credit.verdict,
    }


def _lines(blamed: list[Blame], known: Mapping[str, Credited]) -> Iterator[str]:
    for number, b in enumerate(blamed):
        label = text.style(f"[G{number}]", fg="cyan") + " "
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
        if b.experience.id in known:
            effect = credit.words(known[b.experience.id])
            yield from text.wrap(effect, first=" " * 6 + "effect ", indent=6)
