"""What a trial of a merge came to, as the merge's version has it on record, in lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tfgrpo.store.damaged_values import listed, mapping, number, text, texts, whole
from tfgrpo.store.history.merge import MEASURED
from tfgrpo.store.history.walks import common_ancestor
from tfgrpo.wording import plural, with_bounds

if TYPE_CHECKING:
    from tfgrpo.store.records import Version
    from tfgrpo.store.store import Store

KINDS = {
    "redundant": "redundant: either alone helps as much as both",
    "conflict": "in conflict: each helps alone, and harms beside the other",
}
WHY = {
    "harms": "harms by itself, and is left out",
    "conflict": "left out because it harms beside the other side",
}
STAYS = "harms by itself, and stays"


def measured_lines(store: Store, version: Version) -> list[str]:
    """What a version says of the trial of its merge; nothing where there was none. The texts are
    those of the versions that were merged."""
    figures = mapping(version.meta.get(MEASURED))
    sides = [store.version(number) for number in version.parents]
    if not figures or len(sides) != 2:
        return []
    return list(figure_lines(figures, changed_texts(store, common_ancestor(store, *sides), *sides)))


def changed_texts(store: Store, base: Version, *sides: Version) -> dict[str, str]:
    """What some versions say that another one does not, by id."""
    before = {(e.id, e.text) for e in store.library(base)}
    libraries = [store.library(side).readable for side in sides]
    return {e.id: e.text for there in libraries for e in there if (e.id, e.text) not in before}


def figure_lines(figures: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[str]:
    """Yields what a trial's figures say, with the texts of experiences by id."""
    attempts = plural(whole(figures.get("attempts")) or 0, "attempt")
    on = f" on {text(figures.get('model'))}" if text(figures.get("model")) else ""
    yield f"measured in run {text(figures.get('run'))}{on}, {attempts}"
    possible, examined = (whole(figures.get(f"pairs_{key}")) for key in ("possible", "examined"))
    if possible is not None and examined is not None:
        yield f"pairs seen often enough to tell: {examined} of {possible}"
    decided: set[str] = set()
    for pair in map(mapping, listed(figures.get("pairs"))):
        kind, ids = text(pair.get("kind")), texts(pair.get("experiences"))
        decided |= set(ids) if kind == "conflict" else set()
        yield f"{KINDS.get(kind, 'together')}: {_named(ids, words)}"
    left_out = mapping(figures.get("left_out"))
    alike: dict[tuple[str, str], list[str]] = {}  # all examples are one
    for id, one in mapping(figures.get("experiences")).items():
        why = WHY.get(text(left_out.get(id)), "")
        if not why and id not in decided and mapping(one).get("verdict") == "harms":
            why = STAYS
        if why:
            alike.setdefault((why, _effect(mapping(one))), []).append(id)
    for (why, effect), several in alike.items():
        yield f"{why}: {_named(several, words)}{effect}"


def _named(ids: Iterable[str], words: Mapping[str, str]) -> str:
    return " / ".join(words.get(id, id) for id in ids)


def _effect(one: Mapping[str, Any]) -> str:
    values = [number(value) for value in listed(one.get("effect"))]
    pairs = whole(one.get("pairs"))
    if len(values) != 3 or None in values or pairs is None:
        return ""
    mean, low, high = (value or 0.0 for value in values)
    return f" ({with_bounds(mean, low, high)}, {plural(pairs, 'pair')})"
