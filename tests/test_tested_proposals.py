"""Proposals and experiments: what is proposed is tested, and one decision settles both."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_experiment import found_in, plan_of, run, store  # noqa: F401

from tfgrpo.improvement.proposal_reopening import reopen
from tfgrpo.improvement.proposals import Draftsman, OnTrial, accept, get_proposal, propose
from tfgrpo.learn.turned_down import turned_down
from tfgrpo.production.experiment import (
    ExperimentPlan,
    experiment,
    experiments,
    promote,
    roll_back,
    start,
)
from tfgrpo.production.experiment_end import settle_all
from tfgrpo.production.experiment_evidence import evidence
from tfgrpo.store import InvalidName, InvalidOperation, Operation, StaleVersion, Store
from tfgrpo.store.activity.decisions import decisions
from tfgrpo.store.history.merge import MergeConflict


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


TRIAL = "experiment start e --control prod --candidate"
HOTFIX = "Never promise refunds."


def do(store: Store, line: str) -> str:  # noqa: F811
    return run(store, *line.split())


def texts(store: Store, revision: str) -> list[str]:  # noqa: F811
    return [one.text for one in store.library(revision)]


def gain(store: Store, text: str = HOTFIX) -> None:  # noqa: F811
    """Adds an experience to prod, which no proposal was made with."""
    store.commit("prod", [Operation("ADD", text=text)], message=text)


@pytest.mark.parametrize("named", ["p1", "proposal/x"])
def test_what_is_tried_of_a_proposal_has_what_the_branch_gained_since(
    proposed: Store, named: str
) -> None:
    gain(proposed)
    said = do(proposed, f"{TRIAL} {named} --guard none")
    assert "subjects get trial/e (v6), the others prod (v5)" in said
    whole = ["Count both days.", HOTFIX, "Give units.", "Say please."]
    assert texts(proposed, "trial/e") == whole
    with pytest.raises(OnTrial, match="e is trying proposal p1"):
        run(proposed, "proposal", "reject", "p1", "--why", "no")
    run(proposed, "experiment", "promote", "e", "--why", "ok")
    assert texts(proposed, "prod") == whole
    done = get_proposal(proposed, "p1")
    assert (done.state, done.version) == ("accepted", proposed.tip("prod").name)
    assert set(done.accepted) == {one.experience for one in done.changes}
    assert sorted(proposed.branches()) == ["main", "prod"]
    with pytest.raises(InvalidOperation, match="accepted with experiment e"):
        reopen(proposed, "p1")
    roll_back(proposed, "e")
    assert texts(proposed, "prod") == ["Count both days.", HOTFIX]
    opened = get_proposal(proposed, "p1")
    assert (opened.state, opened.accepted) == ("open", ())
    assert proposed.tip("proposal/x").digest == opened.candidate.digest


def test_a_trial_makes_what_accepting_makes(proposed: Store) -> None:
    gain(proposed)
    do(proposed, f"{TRIAL} p1")
    tried = proposed.tip("trial/e")
    run(proposed, "experiment", "stop", "e")
    assert "trial/e" not in proposed.branches()
    accept(proposed, "p1")
    accepted = proposed.tip("prod")
    assert (accepted.parents, texts(proposed, "prod")) == (
        tried.parents,
        texts(proposed, tried.name),
    )


def test_a_branch_of_a_persons_own_stays_when_an_experiment_ends(proposed: Store) -> None:
    proposed.create_branch("trial/e", "proposal/x")
    start(proposed, "e", ("prod", "trial/e"), 0.5)
    run(proposed, "experiment", "stop", "e")
    assert "trial/e" in proposed.branches()


def test_a_protected_branch_of_a_trial_holds_up_no_end(proposed: Store) -> None:
    proposed.commit("prod", [Operation("ADD", text="Never promise refunds.")], message="more")
    run(proposed, "experiment", "start", "e", "--control", "prod", "--candidate", "p1")
    run(proposed, "branch", "--protect", "trial/e")
    run(proposed, "experiment", "stop", "e")
    assert experiment(proposed, "e").state == "stopped"
    assert "trial/e" not in proposed.branches()


def test_a_name_that_makes_no_branch_is_refused_as_that_of_an_experiment(proposed: Store) -> None:
    proposed.commit("prod", [Operation("ADD", text="Never promise refunds.")], message="more")
    with pytest.raises(InvalidName, match="cannot name an experiment that needs a branch"):
        run(proposed, "experiment", "start", "v2.", "--control", "prod", "--candidate", "p1")


def test_what_a_rollback_took_from_the_branch_is_not_tried_again(proposed: Store) -> None:
    gain(proposed, "Promise refunds.")
    proposed.create_branch("proposal/y", "prod")
    proposed.commit("proposal/y", [Operation("ADD", text="Be brief.")], message="brief")
    propose(proposed, Draftsman("proposal/y", "prod", "improve", proposed.tip("prod")))
    do(proposed, "branch --back prod --why incident")
    do(proposed, f"{TRIAL} p2")
    assert texts(proposed, "trial/e") == ["Count both days.", "Be brief."]


def test_what_was_turned_down_of_a_proposal_is_not_tried(proposed: Store) -> None:
    do(proposed, "proposal reject p1 --only G2 --why wrong")
    do(proposed, f"{TRIAL} p1")
    assert texts(proposed, "trial/e") == ["Count both days.", "Give units."]
    do(proposed, "experiment promote e")
    done = get_proposal(proposed, "p1")
    assert (done.state, [one.state for one in done.changes]) == (
        "accepted",
        ["accepted", "rejected"],
    )


def test_a_proposal_that_conflicts_with_the_branch_is_not_tried(store: Store) -> None:  # noqa: F811
    (there,) = store.library("prod")
    store.create_branch("proposal/x", "prod")
    store.commit("proposal/x", [Operation("MODIFY", there.id, "Count days.")], message="x")
    propose(store, Draftsman("proposal/x", "prod", "improve", store.tip("prod")))
    store.commit("prod", [Operation("MODIFY", there.id, "Count nights.")], message="nights")
    before = decisions(store), store.branches(), store.port.last_version()
    with pytest.raises(MergeConflict, match="prod has changed what proposal p1") as refused:
        do(store, f"{TRIAL} p1")
    assert "nothing was started" in (refused.value.hint or "")
    assert (decisions(store), store.branches(), store.port.last_version()) == before


def test_what_a_promotion_would_take_is_said_and_it_is_taken_only_by_force(
    store: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gain(store)
    said = do(store, f"{TRIAL} main --guard none --auto")
    assert f'a promotion would take "{HOTFIX}" from prod' in said
    assert f'a promotion would take "{HOTFIX}" from prod' in run(store, "experiment", "status")
    doubts = evidence(store, experiment(store, "e")).verdict.doubts
    assert doubts == (f'a promotion would take "{HOTFIX}" from prod',)
    better = found_in(plan_of(), [0.0] * 60, [1.0] * 60)
    monkeypatch.setattr("tfgrpo.production.experiment_end.evidence", lambda *_: better)
    (refused,) = settle_all(str(store.path))
    assert "prod has what main (v2) lacks" in str(refused)
    with pytest.raises(InvalidOperation, match=r"prod has what main \(v2\) lacks") as error:
        run(store, "experiment", "promote", "e")
    assert f'takes "{HOTFIX}" from prod' in (error.value.hint or "")
    assert f'prod has lost "{HOTFIX}"' in run(store, "experiment", "promote", "e", "--force")


def test_benefit_with_a_loss_is_not_promoted_automatically(
    store: Store,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gain(store)
    running = start(store, "e", ("prod", "main"), 0.5, ExperimentPlan(guards=(), auto=True))
    better = found_in(plan_of(), [0.0] * 60, [1.0] * 60)
    monkeypatch.setattr("tfgrpo.production.experiment_evidence.weighed", lambda *_: better)
    assert (
        "the candidate is better, but a promotion would take"
        in evidence(store, running).verdict.said
    )
    assert settle_all(str(store.path)) == []


def test_what_came_while_a_candidate_was_tried_is_said_before_it_goes(proposed: Store) -> None:
    do(proposed, f"{TRIAL} p1")
    gain(proposed)
    with pytest.raises(StaleVersion) as refused:
        promote(proposed, "e")
    assert f'takes "{HOTFIX}" from prod' in (refused.value.hint or "")
    said = run(proposed, "experiment", "promote", "e", "--force")
    assert f'prod has lost "{HOTFIX}"; `tfgrpo experiment rollback e`' in said


@pytest.mark.parametrize(("candidate", "lost"), [("v0", "Count both days."), ("v2", None)])
def test_an_older_version_may_be_compared(
    store: Store,  # noqa: F811
    candidate: str,
    lost: str | None,
) -> None:
    said = do(store, f"{TRIAL} {candidate}")
    assert ("a promotion would take" in said) == (lost is not None)
    assert (f'"{lost}"' in said) == (lost is not None)


def test_other_words_and_deletions_of_the_branch_are_losses_and_repeated_texts_are_not(
    store: Store,  # noqa: F811
) -> None:
    for text in ("One of it.", "Give  units."):
        gain(store, text)
    store.create_branch("other", "prod")
    ids = {one.text: one.id for one in store.library("prod")}
    operations = [
        Operation("MODIFY", ids["One of it."], "Two of it."),
        Operation("DELETE", ids["Count both days."]),
    ]
    store.commit("prod", operations, message="by hand")
    said = do(store, f"{TRIAL} other")
    assert 'take the deletion of "Count both days.", "Two of it." from prod' in said
    do(store, "experiment stop e")
    said = do(store, "experiment start f --control prod --candidate main")
    assert "units" not in said


def test_an_undone_start_says_that_the_experiment_goes_on(proposed: Store) -> None:
    gain(proposed)
    do(proposed, f"{TRIAL} p1")
    assert "the decision stays on record" in run(proposed, "undo")
    assert "trial/e" not in proposed.branches()
    promote(proposed, "e")
    assert HOTFIX in texts(proposed, "prod")
