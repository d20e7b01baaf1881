"""`tfgrpo regress`: whether a library still helps on another model, or on the same one by now."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from scripted import Reply, ScriptedEndpoint, completion
from store_helpers import fixed
from test_collected_problems import BLANK

from tfgrpo.cli.main import tfgrpo
from tfgrpo.improvement import regression
from tfgrpo.improvement.proposals import list_proposals
from tfgrpo.store import Operation, Store, TfgrpoError
from tfgrpo.store.activity.traffic import CallContent, traffic_path
from tfgrpo.store.opening import open_traffic

pytestmark = pytest.mark.usefixtures("spoken")

ADD_ONE, BRIEF = "Add one more at the end.", "Keep it to one line."
SETTINGS = """
[model]
model = "old"
base_url = "{base_url}"

[train]
domain = "exact"
"""


class Models:
    """Two models: `old` is right when it is told to add one, `new` is wrong when it is told to be
    brief, and right by a coin whatever else it is told. `aged` makes the old one like it."""

    aged = False
    count = 0

    def __call__(self, request: dict[str, Any]) -> Reply:
        self.count += 1
        system, user = (request["messages"][n]["content"] for n in (0, -1))
        a, b = map(int, re.search(r"What is (\d+) op (\d+)\?", user).groups())  # type: ignore[union-attr]
        coin = hashlib.sha256(f"{user}/{request.get('seed')}".encode()).digest()[1] % 2 == 0
        if request["model"] == "old" and not self.aged:
            right = ADD_ONE in system or coin
        else:
            right = coin and BRIEF not in system
        return Reply(completion(f"\\boxed{{{a + b + right}}}", model=request["model"]))


@pytest.fixture
def models() -> Models:
    return Models()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, models: Models) -> Iterator[Store]:
    monkeypatch.chdir(tmp_path)
    rows = [{"problem": f"What is {n} op {n + 3}?", "answer": str(2 * n + 4)} for n in range(20)]
    (tmp_path / "heldout.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with (
        ScriptedEndpoint(models) as endpoint,
        Store.init(tmp_path / ".tfgrpo/store.db", author="ann") as store,
    ):
        (tmp_path / "tfgrpo.toml").write_text(SETTINGS.format(base_url=endpoint.base_url))
        store.commit("main", map(fixed, (ADD_ONE, BRIEF)), message="learned")
        store.create_branch("prod")
        yield store


def run(*arguments: str) -> str:
    done = CliRunner().invoke(tfgrpo, ["--no-pager", "regress", *arguments])
    if isinstance(done.exception, TfgrpoError):
        raise done.exception
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def test_an_estimate_counts_the_attempts_of_both_sides_and_asks_nothing(
    store: Store, models: Models
) -> None:
    before = store.path.read_bytes()
    asked = ("heldout.jsonl", "--model", "new", "--propose", "prod", "--estimate")
    planned = json.loads(run(*asked, "--json"))
    # 20 problems × 4 samples: with the library, without, and with half of it, on two sides.
    assert [(one["stage"], one["calls"]) for one in planned["most"]] == [("evaluation", 480)]
    assert "proposal of deletions" in planned["left_out"][0]
    said = run(*asked, "--details")
    assert "on old and new:" in said
    assert "nothing has been spent" in said
    assert store.path.read_bytes() == before
    evaluate = ("eval", "heldout.jsonl", "--against", "v0", "--estimate", "--json")
    done = CliRunner().invoke(tfgrpo, evaluate)
    (stage,) = json.loads(done.output)["expected"]
    assert stage["calls"] == 2 * 20 * 8


def test_another_model_is_compared_and_what_stopped_helping_is_named(store: Store) -> None:
    found = json.loads(run("heldout.jsonl", "--model", "new", "--propose", "prod", "--json"))
    assert (found["then"]["model"], found["now"]["model"]) == ("old", "new")
    assert found["then"]["adds"]["verdict"] == "better"
    assert found["then"]["mean"] == 1.0
    assert found["change"]["verdict"] == "worse"
    assert found["change"]["high"] < 0
    standing = {one["text"]: one["standing"] for one in found["experiences"]}
    assert standing == {ADD_ONE: "stopped helping", BRIEF: "hurts"}
    assert [e.text for e in store.library("prod")] == [ADD_ONE, BRIEF], "nothing is deleted"
    (proposal,) = list_proposals(store)
    assert proposal.id == found["proposal"]
    assert [one.op for one in proposal.changes] == ["DELETE", "DELETE"]
    assert "hurts under new" in (proposal.changes[1].reason or "")
    assert proposal.effect is not None
    assert proposal.effect.model == "new"
    assert proposal.effect.mean > 0.2
    said = run("heldout.jsonl", "--model", "new")
    assert "it helps less" in said
    assert "[G1] hurts:" in said
    assert len(list_proposals(store)) == 1


def test_a_change_may_be_beyond_one_and_its_interval_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [str(n) for n in range(12)]
    tables = {
        ("then", "full"): {one: [1.0 if int(one) % 3 else 0.5] for one in ids},
        ("then", "empty"): {one: [0.0] for one in ids},
        ("now", "full"): {one: [0.0] for one in ids},
        ("now", "empty"): {one: [0.75 if int(one) % 2 else 0.0] for one in ids},
    }
    monkeypatch.setattr(regression, "_rewards", lambda _, library, task: tables[task, library])
    found = regression._change(None, ("full", "empty"), "then", "now")  # type: ignore[arg-type]
    low, high = found.estimate.bounds
    assert low < found.estimate.mean < -1
    assert high - found.estimate.mean == pytest.approx(found.estimate.mean - low)


def test_the_same_model_by_now_is_compared_with_the_scores_on_record(
    store: Store, models: Models
) -> None:
    first = json.loads(run("heldout.jsonl", "--json"))
    assert first["then"] is None
    assert {one["standing"] for one in first["experiences"]} == {"helps", "undecided"}
    again = json.loads(run("heldout.jsonl", "--json"))
    assert again["change"]["verdict"] == "inconclusive"
    assert [one["standing"] for one in again["experiences"]] == ["helps", "undecided"]
    models.aged = True
    aged = json.loads(run("heldout.jsonl", "--json"))
    assert aged["change"]["verdict"] == "worse"
    assert [one["standing"] for one in aged["experiences"]] == ["stopped helping", "hurts"]


@pytest.mark.parametrize("named", ["model", "both"])
def test_the_same_model_by_its_name_is_asked_afresh_too(
    store: Store, models: Models, named: str
) -> None:
    address = re.search(r'base_url = "(.+)"', Path("tfgrpo.toml").read_text())
    assert address is not None
    same = ("--model", "old", *(("--base-url", address[1]) if named == "both" else ()))
    first = json.loads(run("heldout.jsonl", *same, "--json"))
    assert first["then"] is None, "nothing is on record to compare with"
    asked = models.count
    models.aged = True
    aged = json.loads(run("heldout.jsonl", *same, "--json"))
    assert models.count > asked
    assert aged["change"]["verdict"] == "worse"
    assert [one["standing"] for one in aged["experiences"]] == ["stopped helping", "hurts"]


def test_a_model_of_the_same_name_at_another_address_is_another_side(store: Store) -> None:
    aged = Models()
    aged.aged = True
    with ScriptedEndpoint(aged) as other:
        found = json.loads(run("heldout.jsonl", "--base-url", other.base_url, "--json"))
    assert aged.count
    assert (found["then"]["model"], found["now"]["model"]) == ("old", "old")
    assert found["then"]["adds"]["verdict"] == "better"
    assert found["change"]["verdict"] == "worse"
    assert {one["standing"] for one in found["experiences"]} == {"stopped helping", "hurts"}


def test_what_was_shown_is_proposed_without_asking_again(store: Store, models: Models) -> None:
    """A look, then the same with --propose; and an aged model is found out however it is cut."""
    json.loads(run("heldout.jsonl", "--json"))
    models.aged = True
    looked = json.loads(run("heldout.jsonl", "--json"))
    asked = models.count
    acted = json.loads(run("heldout.jsonl", "--propose", "prod", "--json"))
    standing = ["stopped helping", "hurts"]
    assert [one["standing"] for one in looked["experiences"]] == standing
    assert [one["standing"] for one in acted["experiences"]] == standing
    assert models.count == asked, "what is left is the empty library, which was asked"
    (proposal,) = list_proposals(store)
    assert [one.op for one in proposal.changes] == ["DELETE", "DELETE"]
    run("heldout.jsonl", "--propose", "prod")
    assert models.count > asked, "what was acted on is asked afresh the next time"


def test_a_proposal_that_is_cut_off_comes_to_the_same(store: Store, models: Models) -> None:
    json.loads(run("heldout.jsonl", "--json"))
    models.aged = True
    with pytest.MonkeyPatch.context() as patch:

        def cut_off(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("tfgrpo.improvement.regression.propose", cut_off)
        done = CliRunner().invoke(tfgrpo, ["regress", "heldout.jsonl", "--propose", "prod"])
        assert done.exit_code != 0
    assert [name for name in store.branches() if name.startswith("proposal/")] == []
    found = json.loads(run("heldout.jsonl", "--propose", "prod", "--json"))
    assert [one["standing"] for one in found["experiences"]] == ["stopped helping", "hurts"]
    assert [len(one.changes) for one in list_proposals(store)] == [2]


def test_an_experience_that_says_something_else_by_now_is_not_deleted(store: Store) -> None:
    brief = next(e.id for e in store.library("prod") if e.text == BRIEF)
    store.commit("prod", [Operation("MODIFY", brief, "Write the unit.")], message="other words")
    run("heldout.jsonl", "--model", "new", "--propose", "prod")
    (proposal,) = list_proposals(store)
    assert [(one.op, one.before) for one in proposal.changes] == [("DELETE", ADD_ONE)]


def test_unused_experiences_expire_only_as_a_proposal(store: Store) -> None:
    ids = [e.id for e in store.library("prod")]
    later = store.now() + 3_600_000_000

    def calls(count: int, experiences: str | None, branch: str = "prod") -> None:
        with closing(open_traffic(traffic_path(store.path), create=True)) as traffic:
            rows = [
                BLANK._replace(
                    id=f"call-{branch}-{experiences}-{n}",
                    time=later,
                    digest=store.tip(branch).digest.hex()[:16],
                    experiences=experiences,
                )
                for n in range(count)
            ]
            traffic.add(rows, [CallContent(row.id, "{}", "{}") for row in rows])

    store.create_branch("sales", store.version(0))
    store.commit("sales", [Operation("ADD", text="For sales.")], message="sales")
    calls(60, json.dumps([]), "sales")
    calls(2, None, "sales")
    calls(49, json.dumps(ids[:1]))
    asked = ("--unused", "0s", "--library", "prod")
    assert "no experience of prod is known to be unused" in run(*asked), "too few calls to say"
    calls(5, json.dumps([]))
    assert f"[G1] in no prompt since 0s: {BRIEF}" in run(*asked)
    version = store.tip("prod").name
    assert f"[G1] in no prompt since 0s: {BRIEF}" in run("--unused", "0s", "--library", version)
    assert "no experience of v0 is known" in run("--unused", "0s", "--library", "v0")
    aside = run("--unused", "0s", "--library", version, "--propose", "sales")
    assert "proposal" not in aside, "sales has nothing of it"
    assert list_proposals(store) == []
    assert "proposal p1 deletes them" in run(*asked, "--propose", "prod")
    (proposal,) = list_proposals(store)
    assert [(one.op, one.before) for one in proposal.changes] == [("DELETE", BRIEF)]
    assert len(store.library("prod")) == 2
    calls(1, None)
    assert "no experience of prod" in run(*asked), "a prompt with the whole library has them all"


@pytest.mark.parametrize(
    "more",
    [("heldout.jsonl",), ("--model", "m"), ("--estimate",), ("--budget", "1"), ("--samples", "4")],
    ids=" ".join,
)
def test_what_reads_calls_on_record_takes_no_options_of_a_measurement(
    store: Store, more: tuple[str, ...]
) -> None:
    refused = CliRunner().invoke(tfgrpo, ["regress", "--unused", "28d", *more])
    named = more[0] if more[0].startswith("-") else "DATA"
    assert (refused.exit_code, f"{named} cannot be used" in refused.output) == (2, True)


def test_an_empty_library_cannot_regress(store: Store) -> None:
    with pytest.raises(TfgrpoError, match="no experience"):
        run("heldout.jsonl", "--library", "v0")
