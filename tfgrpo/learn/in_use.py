"""Where the experiences of a library are shown in use: each at every problem, or where prompts get
the part that fits best (`--top-k`), at those of the run's problems that it fits.

The effect of an experience in force is the mean over the problems where it is shown: those where it
belongs (`rivals.py`), and others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from tfgrpo.learn.advantage import Effect, overall
from tfgrpo.learn.assign import factors
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.library_draft import Draft
from tfgrpo.learn.rivals import Nearness, of_name, replaced
from tfgrpo.rendering.experience_texts import EXAMPLES, is_example
from tfgrpo.rendering.retrieve import relevant
from tfgrpo.store.records import Library, Operation

Places: TypeAlias = Mapping[str, Collection[str]]
"""The ids of the problems where each of some things is shown, by its name."""


def places_in_use(
    parts: RunParts, library: Library, members: Mapping[str, Collection[str]]
) -> Places:
    """The problems of a run where each of some things in a library is shown. `members` holds the
    ids of the experiences of each."""
    top_k, rank = parts.settings.top_k or None, parts.domain.retrieve
    shown = {one.id: relevant(library, one.problem, top_k, rank=rank) for one in parts.problems}
    return {
        name: frozenset(p for p, part in shown.items() if not part.by_id.keys().isdisjoint(ids))
        for name, ids in members.items()
    }


def effects_in_use(
    effects: Mapping[str, Effect], places: Places, known: Nearness
) -> dict[str, Effect]:
    """The effects of things in force where they are shown; none of one that is shown nowhere, or
    that nothing is known of."""
    whole = {
        name: overall(effects, name, known.share(of_name(name), there))
        for name, there in places.items()
        if there
    }
    return {name: effect for name, effect in whole.items() if effect is not None}


class Choices:
    """The libraries that a run might have reached from its `base`, from which the experiences
    `start` may leave. `texts` has the text of everything that it tried, by id."""

    def __init__(
        self, parts: RunParts, base: Library, start: Collection[str], texts: Mapping[str, str]
    ) -> None:
        self._parts, self._base, self._start, self._texts = parts, base, start, texts
        self._of_base = factors(base)
        self._examples = tuple(id for id in texts if is_example(texts[id]) and id not in base.by_id)
        self._places: dict[tuple[str, ...], Places] = {}

    def in_use(self, taken: tuple[str, ...]) -> Places:
        """Where each thing is shown that is `taken`, or may not leave."""
        if taken not in self._places:
            members = self._with(taken)
            self._places[taken] = places_in_use(self._parts, self.library(taken), members)
        return self._places[taken]

    def _with(self, taken: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
        stay = (name for name in self._of_base if name not in self._start)
        return {name: self._members(name) for name in (*stay, *taken)}

    def library(self, taken: tuple[str, ...]) -> Library:
        """The library with what is `taken`, and what may not leave."""
        members = self._with(taken)
        left = (id for one in self._start if one not in members for id in self._of_base[one])
        draft = Draft(self._base.less(frozenset(left)))
        new = (name for name in members if name not in self._of_base)
        for name in sorted(new, key=lambda name: replaced(name) is not None):
            for id in members[name]:
                if replaced(name) is None or id in draft.texts:
                    text = self._texts[id if name == EXAMPLES else of_name(name)]
                    draft.apply(Operation("ADD", id, text))
        return draft.library

    def _members(self, name: str) -> tuple[str, ...]:
        new = self._examples if name == EXAMPLES else (replaced(name) or name,)
        return self._of_base.get(name, new)
