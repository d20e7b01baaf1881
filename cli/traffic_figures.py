"""`tfgrpo traffic --figures`: what the calls through the proxy came to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tfgrpo.cli import printing
from tfgrpo.cli.start_context import App
from tfgrpo.store.errors import TfgrpoError
from tfgrpo.terminal_safe import shown
from tfgrpo.wording import money

if TYPE_CHECKING:
    from tfgrpo.store.activity.traffic import Cost, LiveFigures, MeasuredCall


def show(
    app: App, calls: list[MeasuredCall], lost: int, cost: Cost, number: int, as_json: bool
) -> None:
    """Prints calls in figures: by version, by arm, and by `number` experiences of their prompts."""
    from tfgrpo.store.activity.traffic import by_dimension, by_experience

    store = app.store

    def library_of(digest: str) -> list[str]:
        try:
            return [experience.id for experience in store.library(digest)]
        except TfgrpoError:  # of another store, or redacted away
            return []

    parts = {
        "versions": by_dimension(calls, "version", cost),
        "arms": sorted(by_dimension(calls, "arm", cost)),
        "experiences": by_experience(calls, library_of),
    }
    if as_json:
        listed = {name: [one._asdict() for one in part] for name, part in parts.items()}
        printing.emit_json({**listed, "lost": lost})
        return
    texts = {e.id: shown(e.text)[:40] for e in store.library("HEAD")}

    def lines() -> Iterator[str]:
        yield from _table("version", parts["versions"], {})
        if parts["arms"]:
            yield from _table("arm", parts["arms"], {})
        yield from _table("experience", parts["experiences"][:number], texts)
        if lost:
            yield f"{printing.plural(lost, 'call')} lost with workers that were killed"

    printing.emit(app, lines())


def show_by(app: App, calls: list[MeasuredCall], by: str, cost: Cost, as_json: bool) -> None:
    """Prints calls in figures by one dimension."""
    from tfgrpo.store.activity.traffic import by_dimension

    groups = by_dimension(calls, by, cost)
    printing.answer(app, [one._asdict() for one in groups], _table(shown(by), groups, {}), as_json)


def _table(title: str, figures: list[LiveFigures], names: dict[str, str]) -> Iterator[str]:
    rows = [
        (
            names.get(one.name, one.name),
            str(one.calls),
            str(one.errors),
            token_count(one.prompt_tokens),
            token_count(one.completion_tokens),
            f"{one.p50 / 1000:.0f}",
            f"{one.p95 / 1000:.0f}",
            f"{one.added / 1000:.2f}",
            "" if one.dollars is None else _sum(one),
            "" if one.score is None else f"{one.score:.3f} ({one.scored})",
        )
        for one in figures
    ]
    head = ("calls", "errors", "tokens in", "out", "p50 ms", "p95", "added", "cost", "score")
    yield from printing.table(rows, header=(title, *head))


def _sum(one: LiveFigures) -> str:
    """What calls cost together: more than the sum that is known, where some prices are not."""
    known = one.calls - one.unpriced
    if not known:
        return "unknown"
    return money(one.dollars) + (f" + {one.unpriced} unknown" if one.unpriced else "")


def token_count(tokens: int | None) -> str:
    """How many tokens, or that nobody knows."""
    return "?" if tokens is None else str(tokens)
