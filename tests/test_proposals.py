"""Proposals: nothing reaches the branch that is read before somebody accepts it, and what was
turned down is not tried by the next training."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import problems
from scripted import ScriptedEndpoint, comparison_of, stage, teachable

from tfgrpo.cli.main import tfgrpo
from tfgrpo.improvement.proposals import (
    Draftsman,
    Effect,
    accept,
    get_proposal,
    list_proposals,
    propose,
    reject,
)
from tfgrpo.improvement.regression import propose_expiry
from tfgrpo.learn.turned_down import turned_down
from tfgrpo.store import Operation, Store, TfgrpoError
from tfgrpo.store.activity.decisions import decisions
from tfgrpo.store.errors import InvalidOperation, ProtectedName, UnknownRevision
from tfgrpo.store.history.blame import blame
from tfgrpo.store.history.merge import MergeConflict

EFFECT = Effect(0.4, 0.6, 0.2, 0.05, 0.35, 0.01, "better", 20, 4, "m")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A branch prod with two experiences, and a proposal that adds, changes and deletes."""
    monkeypatch.chdir(tmp_path)
    with Store.init(tmp_path / ".tfgrpo/store.db", author="ann") as store:
        rules = [Operation("ADD", None, "Count both days."), Operation("ADD", None, "Shout.")]
        store.commit("main", rules, message="by hand")
        store.create_branch("prod")
        yield store


def proposed(store: Store) -> str:
    branch = "proposal/1"
    store.create_branch(branch, "prod")
    base = store.tip("prod")
    ids = [e.id for e in store.library(base)]
    changes = [
        Operation("ADD", None, "Give the price in euros.", "Two calls said dollars."),
        Operation("MODIFY", ids[0], "Count both the first and the last day."),
        Operation("DELETE", ids[1], reason="It helped nobody."),
        Operation("ADD", None, "Be brief."),
    ]
    store.commit(branch, changes, message="learned", author="tfgrpo (m)")
    found = propose(store, Draftsman(branch, "prod", "test", base, EFFECT, {"run": "r"}))
    return found.id


def texts(store: Store, revision: str) -> list[str]:
    return [e.text for e in store.library(revision)]


def run(*arguments: str) -> str:
    done = CliRunner().invoke(tfgrpo, ["--no-pager", *arguments])
    if isinstance(done.exception, TfgrpoError):
        raise done.exception
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_a_proposal_waits_and_shows_its_changes_and_its_evidence(store: Store) -> None:
    id = proposed(store)
    assert texts(store, "prod") == ["Count both days.", "Shout."], "nothing moved"
    (found,) = list_proposals(store)
    assert (found.id, found.state, found.effect, found.target) == (id, "open", EFFECT, "prod")
    assert [(one.label, one.op) for one in found.changes] == [
        ("G0", "MODIFY"),
        ("G1", "DELETE"),
        ("G2", "ADD"),
        ("G3", "ADD"),
    ]
    said = run("proposal", "show", id)
    assert "Give the price in euros." in said
    assert "why: Two calls said dollars." in said
    assert "why: It helped nobody." in said
    assert "+0.200 [+0.050, +0.350], better (20 held-out problems × 4 samples, m)" in said
    (listed,) = json.loads(run("proposal", "list", "--json"))
    assert (listed["id"], listed["effect"]["mean"]) == (id, 0.2)
    assert listed["made"].endswith(("Z", "+00:00"))
    assert "2 additions" in run("proposal", "list")


def test_the_branch_of_a_proposal_has_a_name_that_no_other_ever_had(store: Store) -> None:
    unused = store.library("prod").readable
    made = [propose_expiry(store, "prod", unused[:1], "spring") for _ in range(2)]
    run("proposal", "accept", made[0].id, "--why", "nobody used it")
    made.append(propose_expiry(store, "prod", store.library("prod").readable[:1], "autumn"))
    run("proposal", "reject", made[1].id, "--why", "it is gone")
    run("proposal", "reject", made[2].id, "--why", "it is used")
    made.append(propose_expiry(store, "prod", store.library("prod").readable[:1], "winter"))
    assert len({one.branch for one in made}) == 4
    assert [get_proposal(store, one.branch).id for one in made] == [one.id for one in made]


def test_accepting_makes_one_version_that_says_who_and_why(store: Store) -> None:
    id = proposed(store)
    said = run("proposal", "accept", id, "--why", "right on the till")
    assert f"accepted 4 changes of proposal {id}: prod is at v3" in said
    expected = [
        "Count both the first and the last day.",
        "Give the price in euros.",
        "Be brief.",
    ]
    assert texts(store, "prod") == expected
    version = store.tip("prod")
    assert version.message == f"accept proposal {id}: right on the till"
    assert version.parents == (1, 2)
    assert "proposal/1" not in store.branches()
    found = get_proposal(store, id)
    assert (found.state, found.why, found.version) == ("accepted", "right on the till", "v3")
    author = {one.experience.text: one.version.author for one in blame(store, version)}
    assert author["Be brief."] == "tfgrpo (m)", "who taught it, not who accepted it"
    assert run("proposal", "list").startswith("no proposal")
    assert json.loads(run("proposal", "list", "--all", "--json"))[0]["state"] == "accepted"
    with pytest.raises(InvalidOperation, match="was accepted by"):
        run("proposal", "accept", id)
    run("undo")
    assert texts(store, "prod") == ["Count both days.", "Shout."]


def test_several_changes_are_turned_down_at_once(store: Store) -> None:
    id = proposed(store)
    said = run("proposal", "reject", id, "--only", "G0", "G1", "--why", "not now")
    assert "turned down 2 changes" in said
    assert len(get_proposal(store, id).changes) == 4
    bare = CliRunner().invoke(tfgrpo, ["proposal", "reject", id, "G2", "--why", "no"])
    assert (bare.exit_code, "labels go with --only" in bare.output) == (2, True)


def test_a_part_can_be_accepted_and_the_rest_turned_down_for_its_own_reason_or_left_open(
    store: Store,
) -> None:
    id = proposed(store)
    said = run("proposal", "accept", id, "--only", "G2", "G0", "--why", "enough")
    assert "2 changes still open" in said
    assert not turned_down(store, store.tip("prod"), before=2**62)
    found = get_proposal(store, id)
    assert (found.state, found.measured) == ("open", None)
    assert "effect: not measured of a part" in run("proposal", "show", id)
    assert "+0.200" not in run("proposal", "show", id)
    assert "1 change still open" in run(
        "proposal", "reject", id, "--only", "G1", "--why", "shouting helps"
    )
    with pytest.raises(InvalidOperation, match="G1 was rejected before"):
        accept(store, id, only=["G1"])
    assert not turned_down(store, store.tip("prod"), before=2**62), "there is no text to try again"
    run("proposal", "reject", id, "--why", "too brief")
    assert [*turned_down(store, store.tip("prod"), before=2**62).values()] == ["Be brief."]
    assert get_proposal(store, id).state == "accepted"
    assert texts(store, "prod") == [
        "Count both the first and the last day.",
        "Shout.",
        "Give the price in euros.",
    ]
    assert "rejected/proposal/1" in store.branches()
    author = {one.experience.text: one.version.author for one in blame(store, store.tip("prod"))}
    assert author["Give the price in euros."] == "tfgrpo (m)"
    with pytest.raises(UnknownRevision, match="G9"):
        accept(store, proposed(store), only=["G9"])


def test_words_can_be_edited_on_the_way_in(store: Store, tmp_path: Path) -> None:
    id = proposed(store)
    file = tmp_path / "edited.md"
    file.write_text("- [G2] Give prices in euros and cents.\n- [G3] Be brief.\n\n- [G1] \n")
    run("proposal", "accept", id, "--edit", "-F", str(file), "--why", "clearer")
    assert texts(store, "prod") == [
        "Count both days.",
        "Give prices in euros and cents.",
        "Be brief.",
    ]
    again = proposed_again(store)
    file.write_text("")
    with pytest.raises(InvalidOperation, match="nothing is taken"):
        run("proposal", "accept", again, "-F", str(file))
    file.write_text("- [G7] no such line\n")
    done = CliRunner().invoke(tfgrpo, ["proposal", "accept", again, "-F", str(file)])
    assert done.exit_code == 2
    assert "none of the proposal's" in done.output


def test_words_that_cannot_be_taken_are_kept(store: Store, tmp_path: Path) -> None:
    id = proposed(store)
    arguments = ["proposal", "accept", id, "--edit", "--why", "clearer"]
    done = CliRunner().invoke(tfgrpo, arguments, env={"VISUAL": r"sed -i '$s/.*/&!\nBe kind./'"})
    assert isinstance(done.exception, TfgrpoError)
    hint = str(done.exception.hint)
    kept = re.search(r"`--file (\S+)`", hint)
    assert kept is not None, done.exception
    file = Path(kept[1])
    file.write_text(file.read_text().replace("Be kind.\n", ""))
    run("proposal", "accept", id, "--why", "clearer", "--file", kept[1])
    assert any(text.endswith("!") for text in texts(store, "prod"))
    assert not file.parent.exists()


def proposed_again(store: Store) -> str:
    base = store.tip("prod")
    store.create_branch("proposal/2", base)
    store.commit("proposal/2", [Operation("ADD", None, "Be kind.")], message="learned")
    return propose(store, Draftsman("proposal/2", "prod", "test", base)).id


def test_what_the_branch_did_meanwhile_stays(store: Store) -> None:
    first, second = proposed(store), proposed_again(store)
    store.commit("prod", [Operation("ADD", None, "be  brief")], message="by hand")
    accept(store, first)
    assert texts(store, "prod")[-2:] == ["be  brief", "Give the price in euros."], "not twice"
    accept(store, second)
    assert texts(store, "prod")[-1] == "Be kind."
    assert [one.state for one in list_proposals(store)] == ["accepted", "accepted"]


def test_a_conflict_is_decided_and_records_nothing_before(store: Store) -> None:
    id = proposed(store)
    first = next(iter(store.library("prod"))).id
    store.commit("prod", [Operation("MODIFY", first, "Count nights.")], message="by hand")
    before = store.tip("prod")
    with pytest.raises(MergeConflict, match="prod has changed"):
        accept(store, id)
    assert store.tip("prod") == before
    assert get_proposal(store, id).state == "open"
    run("proposal", "accept", id, "--ours")
    assert texts(store, "prod")[0] == "Count nights."


def test_a_protected_branch_needs_force(store: Store) -> None:
    id = proposed(store)
    run("branch", "--protect", "prod")
    with pytest.raises(ProtectedName):
        run("proposal", "accept", id)
    assert get_proposal(store, id).state == "open"
    run("proposal", "accept", id, "--force")
    assert get_proposal(store, id).state == "accepted"


def test_turning_down_needs_a_reason_and_moves_nothing(store: Store) -> None:
    id = proposed(store)
    assert CliRunner().invoke(tfgrpo, ["proposal", "reject", id]).exit_code == 2
    with pytest.raises(InvalidOperation, match="reason"):
        reject(store, id, why=" ")
    run("proposal", "reject", id, "--why", "the till rounds by itself")
    assert texts(store, "prod") == ["Count both days.", "Shout."]
    found = get_proposal(store, id)
    assert (found.state, found.why) == ("rejected", "the till rounds by itself")
    assert "rejected/proposal/1" in store.branches()
    with pytest.raises(UnknownRevision, match="p9"):
        run("proposal", "reject", "p9", "--why", "x")


def test_a_decision_is_taken_back_and_the_proposal_waits_again(store: Store) -> None:
    id = proposed(store)
    before = store.tip("prod").name
    assert CliRunner().invoke(tfgrpo, ["proposal", "reject", id, "--why", "not so"]).exit_code == 0
    result = CliRunner().invoke(tfgrpo, ["proposal", "reopen", id, "--why", "it is so"])
    assert (result.exit_code, result.output) == (0, f"proposal {id} waits again\n")
    assert CliRunner().invoke(tfgrpo, ["proposal", "accept", id]).exit_code == 0
    version = get_proposal(store, id).version
    result = CliRunner().invoke(tfgrpo, ["proposal", "reopen", id, "--why", "it shouts"])
    assert result.output == f"proposal {id} waits again: prod is at {before}, without {version}\n"
    assert get_proposal(store, id).state == "open"
    assert store.tip("prod").name == before
    last = decisions(store)[-1]
    assert (last.content["took_back"], last.why) == ("accepted", "it shouts")
    result = CliRunner().invoke(tfgrpo, ["proposal", "reopen", id])
    assert isinstance(result.exception, InvalidOperation)
    for wrong in (["reopen"], ["show", id, "--why", "x"], [id]):
        assert CliRunner().invoke(tfgrpo, ["proposal", *wrong]).exit_code == 2


def test_what_undo_leaves_of_an_acceptance_is_said_with_the_way_on(store: Store) -> None:
    id = proposed(store)
    run("proposal", "accept", id, "--why", "it is so")
    assert "`proposal reopen`" in run("undo")
    assert "proposal" not in run("redo").splitlines()[-1]
    assert "`" not in run("undo", "--help").splitlines()[0]
    run("undo")
    assert f"{id} waits again" in run("proposal", "reopen", id)


@pytest.mark.parametrize(
    ("away", "again"),
    [
        ("undo", "redo"),
        ("branch --back prod --why incident", "undo"),
        ("revert {version}", "undo"),
        ("branch -f prod {base}", "undo"),
        ("branch -D prod", "undo"),
    ],
)
def test_of_what_was_accepted_and_is_there_no_longer_that_is_said(
    store: Store, away: str, again: str
) -> None:
    id = proposed(store)
    if away.startswith("revert"):
        store.checkout("prod")
    run("proposal", "accept", id, "--why", "it is so")
    done = get_proposal(store, id)

    def told() -> list[bool]:
        (listed,) = json.loads(run("proposal", "list", "--all", "--json"))
        assert listed["state"] == "accepted"
        lines = run("proposal", "list", "--all"), run("proposal", "show", id)
        return [listed["gone"], *("accepted, no longer in prod" in line for line in lines)]

    assert told() == [False] * 3
    run(*away.format(version=done.version, base=done.base.name).split())
    assert told() == [True] * 3
    run(again)
    assert told() == [False] * 3
    first = list(store.library("prod"))[-1].id
    store.commit("prod", [Operation("DELETE", first)], message="one of it goes")
    assert told() == [False] * 3, "the others are there"


def test_what_undo_leaves_of_a_rejection_is_said_with_the_way_on(store: Store) -> None:
    id = proposed(store)
    run("proposal", "reject", id, "--why", "not so")
    assert "`proposal reopen`" in run("undo").splitlines()[-1]
    assert get_proposal(store, id).state == "rejected"
    assert f"{id} waits again" in run("proposal", "reopen", id)
    assert get_proposal(store, id).state == "open"


@pytest.mark.parametrize("decided", [("accept",), ("reject", "--why", "not so")])
def test_what_undo_leaves_of_a_decision_taken_back_is_said(
    store: Store, decided: tuple[str, ...]
) -> None:
    id = proposed(store)
    verb, *why = decided
    run("proposal", verb, id, *why)
    run("proposal", "reopen", id)
    said = run("undo").splitlines()
    assert said[0] == f"undid reopen proposal {id}"
    assert said[-1].startswith("the decision stays on record: `tfgrpo redo`")
    assert get_proposal(store, id).state == "open"


def test_the_next_training_does_not_try_what_was_turned_down(store: Store, tmp_path: Path) -> None:
    id = proposed(store)
    (tmp_path / "problems.jsonl").write_text(problems(range(4)))

    def script(request: dict[str, Any]) -> str:
        if stage(request) != "comparison":
            return teachable(request)
        lesson = {"reason": "Two calls said dollars.", "text": "Give the price in euros."}
        return json.dumps(comparison_of([lesson]))

    with ScriptedEndpoint(script) as endpoint:
        asked = ("--model", "m", "--base-url", endpoint.base_url, "--policy", "probation")

        def train(branch: str) -> tuple[bool, str]:
            """Returns whether an attempt was shown the lesson, and what the first step refused."""
            endpoint.requests.clear()
            run("train", "problems.jsonl", "--epochs", "2", *asked, "--new", "--branch", branch)
            shown = [r["messages"][0]["content"] for r in endpoint.requests]
            _, first, *_ = store.log(branch)
            refused = str(first.meta.get("refused"))
            return any("Give the price in euros." in one for one in shown), refused

        shown, refused = train("before")
        assert shown
        assert "turned it down" not in refused
        run("proposal", "reject", id, "--why", "the till rounds by itself")
        for branch in ("prod", "other"):  # that other one's history has where it was proposed
            shown, refused = train(branch)
            assert not shown
            assert "a person has turned it down" in refused
