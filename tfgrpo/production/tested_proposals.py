"""Proposals whose candidate an experiment tested: what ends the one decides the other.

A promotion brings the candidate into the branch, which is what accepting its proposal would have
done. So the proposal counts as accepted, and as it was decided before when that is taken back.
"""

from __future__ import annotations

from tfgrpo.learn.turned_down import PROPOSAL
from tfgrpo.store.activity.decisions import Decision, decide, decisions
from tfgrpo.store.records import Version
from tfgrpo.store.store import Store


def accept_tested(store: Store, experiment: str, branch: str, version: Version) -> list[str]:
    """Records that the proposals of a version for a branch, but those that were accepted before,
    are accepted by an experiment's promotion, and takes their branches out of the way; returns
    their ids."""
    accepted = []
    for first, last in _proposals(store):
        content = first.content
        of_this = (content["target"], content["candidate"]) == (branch, version.digest.hex())
        if not of_this or last.content["state"] == "accepted":
            continue
        base = store.resolve(content["base"])
        taken = [change.experience for change in store.diff(base, version)]
        decided = {
            "state": "accepted",
            "accepted": taken,
            "version": version.digest.hex(),
            "experiment": experiment,
            "before": last.content["state"],
        }
        decide(store, PROPOSAL, first.subject, decided, why=f"promoted by {experiment}")
        own = content["branch"]
        if own in store.branches() and store.head.branch != own:
            store.delete_branch(own)
        accepted.append(first.subject)
    return accepted


def take_back_tested(store: Store, experiment: str, version: Version) -> list[str]:
    """Records that what an experiment's promotion decided about proposals counts no longer; those
    that wait again have their branches. Returns their ids."""
    taken_back = []
    for first, last in _proposals(store):
        if last.content.get("experiment") != experiment:
            continue
        state = last.content["before"]
        if state == "open" and first.content["branch"] not in store.branches():
            store.create_branch(first.content["branch"], version)
        decided = {"state": state, "withdrew": experiment}
        decide(store, PROPOSAL, first.subject, decided, why=f"{experiment} was taken back")
        taken_back.append(first.subject)
    return taken_back


def accepted_by(store: Store, proposal: str) -> str | None:
    """Returns the experiment whose promotion accepted a proposal; None where none did."""
    for first, last in _proposals(store):
        if first.subject == proposal:
            named = last.content.get("experiment")
            return None if named is None else str(named)
    return None


def _proposals(store: Store) -> list[tuple[Decision, Decision]]:
    about: dict[str, list[Decision]] = {}
    for one in decisions(store, kind=PROPOSAL):
        about.setdefault(one.subject, []).append(one)
    return [(each[0], each[-1]) for each in about.values()]
