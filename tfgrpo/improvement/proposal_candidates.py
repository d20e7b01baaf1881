"""What is tried where a candidate is named, in an experiment or a rollout.

What is tried is what a promotion puts in force. Of a proposal that is what accepting it would make.
So where the branch stands elsewhere than when the proposal was made, or a part of the proposal was
decided, a version of its own is tried: the one that `accept` would record. It is on the branch
`trial/NAME` as long as the experiment NAME runs, and the promotion accepts the proposal with it.
"""

from __future__ import annotations

from tfgrpo.improvement.proposals import Proposal, get_proposal, open_proposal, operations_on
from tfgrpo.learn.turned_down import PROPOSAL
from tfgrpo.production import experiment as records
from tfgrpo.production.experiment import Experiment, ExperimentPlan, trial_branch
from tfgrpo.store.activity.decisions import decide
from tfgrpo.store.errors import BadName, UnknownRevision
from tfgrpo.store.history.allowed_names import check_name
from tfgrpo.store.history.merge import MergeConflict
from tfgrpo.store.signing import recordings
from tfgrpo.store.store import Store


def start_trial(
    store: Store,
    name: str,
    arms: tuple[str, str],
    share: float,
    plan: ExperimentPlan,
    *,
    why: str | None = None,
) -> Experiment:
    """Starts an experiment of a branch, `arms[0]`, and of what `arms[1]` names: a revision, or an
    open proposal by its id or its branch. Raises as `experiment.start` does, InvalidOperation for a
    proposal that was decided, and MergeConflict where the branch has changed what it changes."""
    control, named = arms
    for recording in recordings(store, f"start experiment {name}"):
        with recording:
            candidate = _candidate(store, name, control, named)
            started = records.start(store, name, (control, candidate), share, plan, why=why)
    return started


def _candidate(store: Store, name: str, control: str, named: str) -> str:
    """The revision that is tried."""
    proposal = _proposed(store, named)
    if proposal is None:
        return named
    tip = store.tip(control)
    is_whole = len(proposal.waiting) == len(proposal.changes)
    if control != proposal.target or (is_whole and tip.number == proposal.base.number):
        own = store.branches().get(proposal.branch)
        return proposal.branch if own == proposal.candidate.number else proposal.candidate.name
    taken = [one.experience for one in proposal.waiting]
    branch = trial_branch(name)
    try:
        check_name("branch", branch)
    except BadName as bad:
        raise BadName(
            f"{name!r} cannot name an experiment that needs a branch of its own", hint=bad.hint
        ) from None
    try:
        operations = operations_on(store, proposal, tip, taken, {}, None)
    except MergeConflict as conflict:
        raise MergeConflict(
            str(conflict),
            conflict.conflicts,
            hint=f"nothing was started: `tfgrpo proposal accept {proposal.id} --ours` or --theirs "
            "decides, or `tfgrpo proposal reject --only` leaves a change out of the trial",
        ) from None
    store.create_branch(branch, tip)
    version = store.commit(
        branch,
        operations,
        message=f"try proposal {proposal.id} with what {control} has",
        expected=tip,
        merged=proposal.candidate if is_whole else None,
    )
    content = {"state": proposal.state, "branch": branch, "takes": taken}
    tried = content | {"tried": version.digest.hex()}
    decide(store, PROPOSAL, proposal.id, tried, why=f"tried by experiment {name}")
    return branch


def _proposed(store: Store, named: str) -> Proposal | None:
    """The open proposal that a candidate's name stands for; None for a revision of another kind.
    Raises UnknownRevision for neither, and InvalidOperation for a proposal that was decided."""
    try:
        version = store.resolve(named)
    except UnknownRevision as unknown:
        try:
            return open_proposal(store, named)
        except UnknownRevision:
            raise unknown from None
    try:
        proposal = get_proposal(store, named)
    except UnknownRevision:
        return None
    is_tip = version.number == proposal.candidate.number
    return proposal if is_tip and proposal.state == "open" else None
