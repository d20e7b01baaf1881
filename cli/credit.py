"""`tfgrpo credit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from tfgrpo.cli import text
from tfgrpo.cli.context import REVISION, App, pass_app

if TYPE_CHECKING:
    from tfgrpo.training.credit import Credit, Credited

COLOURS = {"helpful": "green", "harmful": "red", "inconclusive": None}


@click.command()
@click.argument("revision", default="HEAD", type=REVISION)
@click.option("--json", "as_json", is_flag=True, help="Output JSON.")
@pass_app
def credit(app: App, revision: str, as_json: bool) -> None:
    """Rank experiences by the effect of their presence in the prompt on the reward.

    This needs a run trained with --dropout RATE, which leaves a random part of the library out of
    each attempt. Effects are in units of reward, with 95 % intervals; the ranking shrinks them
    towards 0 to allow for noise. The counts are attempts with and without the experience.

    \b
    Examples:
      tfgrpo credit
      tfgrpo credit HEAD --json
    """
    from tfgrpo.training.credit import credits

    found = credits(app.store, app.store.resolve(revision))
    if as_json:
        text.emit_json([_object(one) for one in found])
    else:
        text.emit(app, _lines(found))


def _lines(found: Sequence[Credited]) -> Iterator[str]:
    if not any(one.credit for one in found):
        yield "no credit is known: train with `--dropout 0.2` to measure it"
        return
    for one in found:
        label = text.style(f"[{one.label}]", fg="cyan") + " "
        yield from text.wrap(text.words(one.experience.text), first=label, indent=6)
        line = words(one.credit)
        if one.credit:
            told = f"shrunk {one.credit.shrunk:+.3f}, {one.credit.present} with, "
            line += text.words(told + f"{one.credit.absent} without", dim=True)
        yield from text.wrap(line, first=" " * 6, indent=6)


def words(credit: Credit | None) -> list[text.Word]:
    """Returns an effect with its interval and verdict, coloured."""
    if credit is None:
        return text.words("nothing known")
    return text.words(str(credit), fg=COLOURS[credit.verdict])


def _object(one: Credited) -> dict[str, Any]:
    from tfgrpo.evaluation.figures import interval_object

    known = one.credit
    found = {"label": one.label, "id": one.experience.id, "text": one.experience.text}
    if known is None:
        return found | {"verdict": None}
    return found | {
        "verdict": known.verdict,
        "effect": interval_object(known.effect, known.low, known.high),
        "shrunk": known.shrunk,
        "present": known.present,
        "absent": known.absent,
    }
