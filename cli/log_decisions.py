"""`tfgrpo log --decisions`: who approved what, when, on what evidence and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tfgrpo.cli import printing
from tfgrpo.cli.start_context import App
from tfgrpo.store.activity.decisions import Decision, about, decisions
from tfgrpo.store.history.log_filter import Filter


def show(app: App, name: str | None, filter: Filter, number: int | None, as_json: bool) -> None:
    """Prints the decisions that fit a filter's times, words and author, about a name if given."""
    matches = (one for one in reversed(decisions(app.store)) if _fits(one, name, filter))
    shown = printing.first(matches, number)
    printing.answer(app, map(as_object, shown), _listed(shown), as_json)


def as_object(decision: Decision) -> dict[str, Any]:
    """A decision as JSON for programs."""
    fields = decision._asdict()
    del fields["row"]
    return fields | {"time": printing.iso(decision.time)}


def _fits(decision: Decision, name: str | None, filter: Filter) -> bool:
    if name is not None and not about(decision, name):
        return False
    if filter.since is not None and decision.time < filter.since:
        return False
    if filter.until is not None and decision.time > filter.until:
        return False
    if filter.author is not None and filter.author.casefold() not in decision.author.casefold():
        return False
    if filter.words is None:
        return True
    searched = (decision.kind, decision.subject, decision.why or "", _value_words(decision.content))
    return any(filter.words.casefold() in words.casefold() for words in searched)


def _listed(entries: Iterable[Decision]) -> Iterator[str]:
    for number, decision in enumerate(entries):
        if number:
            yield ""
        yield from _lines(decision)


def _lines(decision: Decision) -> Iterator[str]:
    first = [printing.Word(printing.shown(decision.kind), fg="yellow", bold=True)]
    first += printing.words(decision.subject, fg="green")
    action = decision.content.get("action")
    first += printing.words(str(action), bold=True) if action else []
    yield from printing.wrap([*first, *printing.words(decision.id, dim=True)], indent=2)
    who = f"{printing.when(decision.time)} ({printing.age(decision.time)}) by {decision.author}"
    yield from printing.wrapped(who, dim=True, first="  ", indent=2)
    if decision.why:
        yield from printing.wrapped(decision.why, first="  ", indent=2)
    for key, value in decision.content.items():
        if key != "action":
            yield from _field(key, value, "  ")


def _field(key: str, value: object, before: str) -> Iterator[str]:
    """Yields a field of a content; one with fields of its own as lines below it."""
    words = [printing.Word(f"{printing.shown(key)}:", dim=True)]
    if isinstance(value, dict) and any(isinstance(v, dict) for v in value.values()):
        yield from printing.wrap(words, first=before)
        for name, inner in value.items():
            yield from _field(name, inner, before + "  ")
        return
    if isinstance(value, dict):
        content = ", ".join(f"{k} {_value_words(v)}" for k, v in value.items() if v is not None)
    else:
        content = _value_words(value)
    yield from printing.wrap(
        [*words, *printing.words(content)], first=before, indent=len(before) + 4
    )


def _value_words(value: object) -> str:
    """A value of a content as people read it: a text as it is, all else as JSON."""
    import json

    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
