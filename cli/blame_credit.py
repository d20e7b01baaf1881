"""`tfgrpo blame` and `credit`: where each experience comes from, and what it does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import printing
from tfgrpo.cli.flags import JSON, flag
from tfgrpo.cli.start_context import REVISION, App, pass_app
from tfgrpo.display.event_lines import credit_words
from tfgrpo.evaluation.statistics import interval_object
from tfgrpo.rendering.experience_texts import is_example

if TYPE_CHECKING:
    from tfgrpo.display.library_figures import KnownExperience
    from tfgrpo.evaluation.credit import Credited
    from tfgrpo.evaluation.presence_effects import Credit


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
    """
    from tfgrpo.display.library_figures import effect_object, known_experiences
    from tfgrpo.display.version_rows import recorder_object

    store = app.store
    known = known_experiences(store, store.resolve(revision))
    objects = [
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
    printing.answer(app, objects, _lines(known), as_json)


def _lines(known: Iterable[KnownExperience]) -> Iterator[str]:
    for name, b, effect in known:
        label = printing.style(f"[{name}]", fg="cyan") + " "
        yield from printing.wrapped(b.experience.text, first=label, indent=6)
        line = [printing.Word(b.version.name, fg="yellow"), printing.sign(b.event.op)]
        line += [printing.Word(f"={b.keeps}", fg="cyan")] if b.keeps else []
        who = f"{credit_words(b.event, b.version)}, {printing.age(b.version.time)}"
        line += printing.words(who, dim=True)
        yield from printing.wrap(line, first=" " * 6, indent=6)
        if effect is not None:
            yield from printing.wrap(words(effect), first=" " * 6 + "effect ", indent=6)


COLOURS = {"helpful": "green", "harmful": "red", "inconclusive": None}


@click.command()
@click.argument("revision", default="HEAD", type=REVISION)
@flag("--by-kind", "Show the effect on each kind of problem separately.")
@JSON
@pass_app
def credit(app: App, revision: str, by_kind: bool, as_json: bool) -> None:
    """Rank experiences by the effect of their presence in the prompt on the reward.

    Training leaves a random part of the library out of each attempt, unless it is the published
    method (--preset paper). Effects are in units of reward, with 95 % intervals; the ranking
    shrinks them towards 0 to allow for noise. The counts are attempts with and without the
    experience. If a run chose the experience by some of these, the effect is too high. Kinds are
    the values of the field that the run was given as --field kind=FIELD. Experiences that are
    harmful with confidence are listed at the end.

    \b
    Examples:
      tfgrpo credit
    """
    from tfgrpo.evaluation.credit import credits, credits_by_kind

    store, version = app.store, app.store.resolve(revision)
    objects: list[dict[str, Any]]
    if by_kind:
        kinds = credits_by_kind(store, version)
        objects = [{"kind": k, "experiences": [*map(_object, kinds[k])]} for k in kinds]
        lines = [] if kinds else ["no kinds are known: train with `--field kind=FIELD`"]
        for kind, listed in kinds.items():
            lines += [printing.style(kind, bold=True), *_credit_lines(listed)]
    else:
        credited = credits(store, version)
        objects = [_object(one) for one in credited]
        lines = [*_credit_lines(credited), *_advice(credited)]
    printing.answer(app, objects, lines, as_json)


def _credit_lines(credited: Sequence[Credited]) -> Iterator[str]:
    if not any(one.credit for one in credited):
        yield "no credit is known: no run of this library has measured it"
        return
    for one in credited:
        label = printing.style(f"[{one.label}]", fg="cyan") + " "
        yield from printing.wrapped(one.experience.text, first=label, indent=6)
        line = words(one.credit)
        if one.credit:
            figures = f"shrunk {one.credit.shrunk:+.3f}, {one.credit.present} with, "
            more = ", of all examples together" if is_example(one.experience.text) else ""
            more += ", chosen by some of these attempts" if one.was_chosen else ""
            line += printing.words(f"{figures}{one.credit.absent} without{more}", dim=True)
        yield from printing.wrap(line, first=" " * 6, indent=6)


def _advice(credited: Sequence[Credited]) -> Iterator[str]:
    harmful = [one for one in credited if one.credit and one.credit.verdict == "harmful"]
    if harmful:
        verb = "is" if len(harmful) == 1 else "are"
        labels = ", ".join(one.label for one in harmful)
        ids = " ".join(one.experience.id for one in harmful)  # at HEAD a label may be another's
        yield f"{labels} {verb} harmful with confidence: `tfgrpo delete {ids}`"


def words(credit: Credit | None) -> list[printing.Word]:
    """An effect with its interval and verdict, coloured."""
    if credit is None:
        return printing.words("nothing known")
    return printing.words(str(credit), fg=COLOURS[credit.verdict])


def _object(one: Credited) -> dict[str, Any]:
    known, lesson = one.credit, one.experience
    fields: dict[str, Any] = {"label": one.label, "id": lesson.id, "text": lesson.text}
    if known is None:
        return fields | {"verdict": None}
    effect = interval_object(known.effect, known.low, known.high)
    fields |= {"verdict": known.verdict, "effect": effect, "shrunk": known.shrunk}
    fields |= {"present": known.present, "absent": known.absent}
    return fields | {"was_chosen": one.was_chosen}
