"""Proposals that an experiment tries, as its promotion accepts them and its rollback opens them.

A proposal names its candidate. Where its branch has changed since, or a part of it was decided, a
version was made to be tried instead. A decision about the proposal names that version (`tried`) and
the changes that are in it (`takes`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tfgrpo.learn.turned_down import PROPOSAL
from tfgrpo.store.activity.decisions import Decision, by_subject, decide, decisions
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store


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
