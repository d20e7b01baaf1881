"""What a promotion means for others: what the branch loses by it, and which proposals it accepts.

A promotion puts the candidate's version in the branch's place. So whatever the branch gained since
the two parted goes, unless the candidate has it too. An older version and a library of another
origin may be compared with a branch all the same. But what would go is said when an experiment
begins, and only a person who insists promotes such a candidate.

A promotion accepts the proposal that was tried, and its rollback opens that again. A proposal names
its candidate. Where its branch has changed since, or a part of it was decided, a version was made
to be tried instead: a decision about the proposal names that version (`tried`) and the changes that
are in it (`takes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfgrpo.learn.library_draft import plain
from tfgrpo.learn.turned_down import PROPOSAL
from tfgrpo.store.activity.decisions import Decision, by_subject, decide, decisions
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


def digests_tried(store: Store, proposal: str) -> set[str]:
    """Returns the digests of the versions that stand for a proposal in an experiment."""
    return set(_takes(decisions(store, kind=PROPOSAL, subject=proposal)))


def is_own_branch(store: Store, branch: str, digest: str) -> bool:
    """Returns whether a branch was made to try a proposal, and stands where it was made."""
    if branch not in store.branches() or store.tip(branch).digest.hex() != digest:
        return False
    return any(
        one.content.get("tried") == digest and one.content.get("branch") == branch
        for one in decisions(store, kind=PROPOSAL)
    )


def _takes(about: Sequence[Decision]) -> dict[str, Sequence[str] | None]:
    """Digest of a version that stands for a proposal → the changes in it; None for all of them."""
    contents = [one.content for one in about if "tried" in one.content]
    return {one["tried"]: one["takes"] for one in contents} | {about[0].content["candidate"]: None}


def accept_tested(store: Store, name: str, branch: str, version: Version) -> None:
    """Records that the proposals of a version for a branch, but those that were accepted before,
    are accepted by an experiment's promotion, and takes their branches out of the way."""
    for about in by_subject(store, PROPOSAL).values():
        first, last = about[0], about[-1]
        content, takes = first.content, _takes(about)
        of_this = content["target"] == branch and version.digest.hex() in takes
        if not of_this or last.content["state"] == "accepted":
            continue
        taken = takes[version.digest.hex()]
        if taken is None:
            base = store.resolve(content["base"])
            taken = [change.experience for change in store.diff(base, version)]
        decided = {
            "state": "accepted",
            "accepted": taken,
            "version": version.digest.hex(),
            "experiment": name,
            "before": last.content["state"],
        }
        decide(store, PROPOSAL, first.subject, decided, why=f"promoted by {name}")
        own = content["branch"]
        if own in store.branches() and store.head.branch != own:
            store.delete_branch(own)


def take_back_tested(store: Store, name: str) -> None:
    """Records that what an experiment's promotion decided about proposals counts no longer; those
    that wait again have their branches."""
    for about in by_subject(store, PROPOSAL).values():
        first, last = about[0], about[-1]
        if last.content.get("experiment") != name:
            continue
        state, own = last.content["before"], first.content["branch"]
        if state == "open" and own not in store.branches():
            store.create_branch(own, first.content["candidate"])
        decided = {"state": state, "withdrew": name}
        decide(store, PROPOSAL, first.subject, decided, why=f"{name} was taken back")


def accepted_by(store: Store, proposal: str) -> str | None:
    """Returns the experiment whose promotion accepted a proposal; None where none did."""
    about = decisions(store, kind=PROPOSAL, subject=proposal)
    named = about[-1].content.get("experiment") if about else None
    return None if named is None else str(named)
