"""Proposals and experiments: what is proposed is tested, and one decision settles both."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_experiment import found_in, plan_of, run, store  # noqa: F401

from tfgrpo.improvement.proposal_reopening import reopen
from tfgrpo.improvement.proposals import Draftsman, OnTrial, accept, get_proposal, propose
from tfgrpo.learn.turned_down import turned_down
from tfgrpo.production.experiment import experiment, experiments, promote, roll_back, start
from tfgrpo.store import InvalidOperation, Operation, Store


@pytest.fixture
def proposed(store: Store) -> Store:  # noqa: F811
    """A proposal p1 for prod, two versions further."""
    store.create_branch("proposal/x", "prod")
    for text in ("Give units.", "Say please."):
        store.commit("proposal/x", [Operation("ADD", text=text)], message=text)
    propose(store, Draftsman("proposal/x", "prod", "improve", store.tip("prod")))
    return store


def test_a_proposal_is_a_candidate_and_its_promotion_accepts_it(proposed: Store) -> None:
    run(proposed, "experiment", "start", "e", "--control", "prod", "--candidate", "p1")
    assert experiment(proposed, "e").candidate.digest == proposed.tip("proposal/x").digest.hex()
    run(proposed, "experiment", "promote", "e")
    done = get_proposal(proposed, "p1")
    assert (done.state, done.why) == ("accepted", "promoted by e")
    assert set(done.accepted) == {one.experience for one in done.changes}
    assert done.version == proposed.tip("prod").name
    assert "proposal/x" not in proposed.branches()
    assert "no proposal waits" in run(proposed, "proposal", "list")
    with pytest.raises(InvalidOperation, match="accepted with experiment e"):
        reopen(proposed, "p1")
    roll_back(proposed, "e")
    assert get_proposal(proposed, "p1").state == "open"
    assert proposed.tip("proposal/x").digest == get_proposal(proposed, "p1").candidate.digest
    assert proposed.tip("prod").name == "v1"
    assert not turned_down(proposed, proposed.tip("prod"), before=proposed.now() + 1)


@pytest.mark.parametrize("verdict", ["accept", "reject"])
@pytest.mark.parametrize("verb", ["rollout", "experiment start e --control prod --candidate"])
def test_a_decided_proposal_is_no_candidate(proposed: Store, verdict: str, verb: str) -> None:
    run(proposed, "proposal", verdict, "p1", "--why", "read by us")
    for name in ("p1", "proposal/x"):
        with pytest.raises(InvalidOperation, match=f"p1 was {verdict}ed by") as refused:
            run(proposed, *verb.split(), name)
        assert "`tfgrpo proposal reopen p1`" in (refused.value.hint or "")
    assert not experiments(proposed)


def test_a_promotion_of_something_else_accepts_no_proposal(proposed: Store) -> None:
    start(proposed, "e", ("prod", "main"), 0.1)
    promote(proposed, "e")
    assert get_proposal(proposed, "p1").state == "open"
    roll_back(proposed, "e")
    assert get_proposal(proposed, "p1").state == "open"


def test_accepting_moves_no_branch_under_an_experiment_unless_forced(proposed: Store) -> None:
    start(proposed, "e", ("prod", "main"), 0.1)
    with pytest.raises(OnTrial, match="experiment e is running on prod"):
        accept(proposed, "p1")
    assert proposed.tip("prod").name == "v1"
    run(proposed, "proposal", "accept", "p1", "--force")
    assert get_proposal(proposed, "p1").state == "accepted"


def test_a_candidate_that_was_worse_so_far_is_promoted_only_by_force(
    proposed: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start(proposed, "e", ("prod", "main"), 0.5)
    worse = found_in(plan_of(), [1.0, 0.0] * 4, [1.0, 0.0, 0.0, 0.0] * 2)
    assert worse.verdict.kind == "none"
    monkeypatch.setattr("tfgrpo.production.experiment_evidence.evidence", lambda *_: worse)
    with pytest.raises(
        InvalidOperation, match=r"worse so far: score 0\.250 of 8 against 0\.500 of 8"
    ):
        run(proposed, "experiment", "promote", "e")
    assert experiment(proposed, "e").state == "running"
    assert "nothing is shown yet" in run(proposed, "experiment", "promote", "e", "--force")
