"""What a promotion would take from the branch: what that gained and the candidate does not have.

A promotion puts the candidate's version in the branch's place. So whatever the branch gained since
the two parted goes, unless the candidate has it too. An older version and a library of another
origin may be compared with a branch all the same. But what would go is said when an experiment
begins, and only a person who insists promotes such a candidate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfgrpo.learn.library_draft import plain
from tfgrpo.store.errors import UnknownRevision
from tfgrpo.store.history.merge import Sides, joined
from tfgrpo.store.history.walks import common_ancestors, has_in_history
from tfgrpo.store.records import Change, Version
from tfgrpo.store.store import Store

if TYPE_CHECKING:
    from tfgrpo.production.experiment import Experiment

SHOWN = 3
"""How many of the experiences that would go are named."""
LONGEST = 80
"""How many characters of a text are shown."""


def losses(store: Store, tip: Version, candidate: Version) -> tuple[Change, ...]:
    """Returns what a branch at `tip` gained and would lose if it moved to a candidate: each
    experience as it is in the branch (`before`) and as the candidate has it (`after`)."""
    if has_in_history(store, candidate, tip):
        return ()
    base, *more = common_ancestors(store, candidate, tip)
    merged = joined(store, Sides(base, candidate, tip, tuple(more)))
    lacking = {one.experience for one in merged.operations}
    lacking |= {one.experience for one in merged.conflicts}
    there = {plain(one.text) for one in store.library(candidate).readable}
    return tuple(
        one
        for one in store.diff(tip, candidate)
        if one.experience in lacking
        and (one.after is not None or plain(one.before or "") not in there)
    )


def losses_of(store: Store, experiment: Experiment) -> tuple[Change, ...]:
    """Returns what the control's branch would lose by a promotion now, or has lost by the one that
    was, or by taking that back, other than what was promoted; nothing where the branch is gone."""
    if len(experiment.moves) > 1:
        last, after = (store.resolve(one) for one in experiment.moves[-1])
        stays = store.library(after).texts
        since = losses(store, last, store.resolve(experiment.candidate.digest))
        return tuple(one for one in since if stays.get(one.experience) != one.before)
    if experiment.moves:
        return losses(store, *(store.resolve(one) for one in experiment.moves[0]))
    try:
        tip = store.tip(experiment.control.revision)
    except UnknownRevision:
        return ()
    return losses(store, tip, store.resolve(experiment.candidate.digest))


def losses_in_words(lost: Sequence[Change]) -> str:
    """Returns what goes in words: the first few texts, and how many more there are."""
    words = [_in_words(one) for one in lost[:SHOWN]]
    more = len(lost) - SHOWN
    return ", ".join(words) + (f" and {more} more" if more > 0 else "")


def _in_words(one: Change) -> str:
    text = " ".join((one.before or one.after or "").split())
    short = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return f'"{short}"' if one.before is not None else f'the deletion of "{short}"'
