"""`tfgrpo improve`: the loop from calls that went wrong to a proposal, as a timer runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from conftest import TFGRPO, environment, run_command
from scripted import LESSON, Numbered, Reply, ScriptedEndpoint, stage, teachable
from test_collected_problems import record
from test_training import identity, journalled
from waiting import until

import tfgrpo as package
from tfgrpo.cli.main import tfgrpo
from tfgrpo.improvement import improve as improving
from tfgrpo.improvement.improvement_record import split
from tfgrpo.improvement.proposals import get_proposal, list_proposals
from tfgrpo.store import Operation, Store, TfgrpoError, process_lock

SETTINGS = """
[model]
model = "m"
base_url = "{base_url}"

[train]
domain = "exact"
policy = "paper"
epochs = 1
group_size = 3
heldout_samples = 1
gate_rule = "not-worse"
concurrency = 8
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store with a branch prod that an application reads."""
    monkeypatch.chdir(tmp_path)
    with Store.init(tmp_path / ".tfgrpo/store.db", author="ann") as store:
        store.commit("main", [Operation("ADD", text="Be brief.")], message="by hand")
        store.create_branch("prod")
        yield store


@pytest.fixture
def model(tmp_path: Path, store: Store) -> Iterator[ScriptedEndpoint]:
    """The model that the settings name: right by a coin until its library says how."""
    with ScriptedEndpoint(teachable) as endpoint:
        (tmp_path / "tfgrpo.toml").write_text(SETTINGS.format(base_url=endpoint.base_url))
        yield endpoint


def wrong_calls(store: Store, numbers: range) -> None:
    """Records calls whose answers were one too small, and corrected."""
    for n in numbers:
        record(
            store, f"call-{n}", f"What is {n} op {n + 3}?", str(2 * n + 3), correct=str(2 * n + 4)
        )


def improve(*flags: str) -> Result:
    done = CliRunner().invoke(tfgrpo, ["--no-pager", "improve", *flags])
    if done.exception is not None and not isinstance(done.exception, SystemExit | TfgrpoError):
        raise done.exception
    return done


def texts(store: Store, revision: str = "prod") -> list[str]:
    return [e.text for e in store.library(revision)]


def test_what_went_wrong_becomes_a_proposal_and_nothing_moves_before_it_is_accepted(
    store: Store, model: ScriptedEndpoint
) -> None:
    wrong_calls(store, range(30))
    done = json.loads(improve("--json").output)
    assert done["outcome"] == "proposed"
    assert texts(store) == ["Be brief."]
    (found,) = list_proposals(store)
    assert [one.after for one in found.changes] == [LESSON]
    assert found.changes[0].evidence["run"] == "improve-1"  # type: ignore[index]
    assert found.effect is not None
    assert (found.effect.verdict, found.effect.after) == ("better", 1.0)
    assert found.effect.problems == 9
    assert found.effect.low is not None
    assert found.effect.low > 0
    assert found.branch == "proposal/improve-1"
    parts = {"learned_from": 12, "gate": 9, "held_out": 9}
    assert found.details == {"run": "improve-1", "problems": 30, **parts}
    shown = CliRunner().invoke(tfgrpo, ["--no-pager", "proposal", "show", found.id]).output
    assert "learned from: 12" in shown
    trained = read(store, "improve-1/train.jsonl")
    parts = [read(store, f"improve-1/{part}.jsonl") for part in ("train", "gate", "heldout")]
    assert list(map(len, parts)) == [12, 9, 9]
    assert trained[0]["from"]["call"].startswith("call-")
    CliRunner().invoke(tfgrpo, ["proposal", "accept", found.id, "--why", "good"])
    assert texts(store) == ["Be brief.", LESSON]


def read(store: Store, name: str) -> list[dict[str, Any]]:
    path = store.path.parent / "improvements" / name
    assert path.stat().st_mode & 0o077 == 0
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_estimate_says_what_an_improvement_takes_and_leaves_nothing(
    store: Store, model: ScriptedEndpoint, tmp_path: Path
) -> None:
    wrong_calls(store, range(6))
    assert json.loads(improve("--estimate", "--json").output) == {
        "nothing": "nothing to do: 6 of 8 new problems"
    }
    wrong_calls(store, range(6, 30))
    before = (tmp_path / ".tfgrpo/store.db").read_bytes()
    planned = json.loads(improve("--estimate", "--json").output)
    assert "30 new problems with m:" in improve("--estimate").output
    assert "collected.jsonl" not in os.listdir(tmp_path)
    assert (tmp_path / ".tfgrpo/store.db").read_bytes() == before
    assert not model.requests
    improve()
    made = Counter(stage(request) for request in model.requests)
    upper = {one["stage"]: one["calls"] for one in planned["most"]}
    assert made["rollout"] <= upper["rollout"] + upper["evaluation"]
    assert upper["rollout"] == 12 * 3
    assert upper["evaluation"] >= 2 * 9 * 1 + 2 * 9 * 4
    for name in ("comparison", "plan"):
        assert 0 < made[name] <= upper[name]


def test_what_is_accepted_is_what_was_measured(
    store: Store, model: ScriptedEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong_calls(store, range(30))
    score = improving.Improving._score

    async def somebody_commits(job: improving.Improving, *rest: Any) -> None:
        await score(job, *rest)
        with Store.open(store.path, author="somebody") as other:
            operations = [Operation("ADD", text="Never measured.")]
            other.commit("proposal/improve-1", operations, message="by hand")

    monkeypatch.setattr(improving.Improving, "_score", somebody_commits)
    assert json.loads(improve("--accept-better", "--json").output)["outcome"] == "accepted"
    assert texts(store) == ["Be brief.", LESSON]


@pytest.mark.parametrize(("most", "compared"), [(200, 18), (12, 12)])
def test_an_estimate_has_the_held_out_problems_of_before_and_no_more_than_are_compared(
    store: Store,
    model: ScriptedEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    compared: int,
) -> None:
    wrong_calls(store, range(30))
    improve()
    monkeypatch.setattr(improving, "MOST_HELDOUT", most)
    wrong_calls(store, range(30, 60))
    planned = json.loads(improve("--estimate", "--json").output)
    improve()
    (upper,) = (one["calls"] for one in planned["most"] if one["stage"] == "evaluation")
    effect = max(list_proposals(store), key=lambda one: one.made).effect
    assert effect is not None
    assert effect.problems == compared
    assert upper >= 2 * compared * 4 + 2 * 9


def test_yesterdays_problems_are_not_paid_for_again_and_nothing_new_is_success(
    store: Store, model: ScriptedEndpoint
) -> None:
    wrong_calls(store, range(12))
    first = json.loads(improve("--json", "--least", "10").output)
    asked = len(model.requests)
    again = improve("--least", "10")
    assert again.exit_code == 0
    assert "nothing to do: 0 of 10 new problems" in again.output
    assert improve("-q", "--least", "10").output == ""
    wrong_calls(store, range(12, 20))
    assert "8 of 10 new problems" in improve("--least", "10").output
    assert len(model.requests) == asked, "not a single call"
    wrong_calls(store, range(20, 24))
    model.requests.clear()
    second = json.loads(improve("--json", "--least", "10").output)
    assert (second["outcome"], second["run"]) == ("proposed", "improve-2")
    old = {row["problem"] for row in read(store, "improve-1/train.jsonl")}
    old |= {row["problem"] for row in read(store, "improve-1/gate.jsonl")}
    heldout = {row["problem"] for row in read(store, "improve-1/heldout.jsonl")}
    sent = [request["messages"][-1]["content"] for request in model.requests]
    assert not old & set(sent)
    under_prod = [
        request["messages"][-1]["content"]
        for request in model.requests
        if LESSON not in request["messages"][0]["content"]
    ]
    assert not heldout & set(under_prod), "what prod scores on them is on record"
    assert second["effect"]["problems"] == first["effect"]["problems"] + 4, "held-out parts add up"


@pytest.mark.parametrize("fields", ["", 'fields = {problem = "question", answer = "gold"}\n'])
def test_a_redaction_makes_no_used_problem_new(
    fields: str, store: Store, model: ScriptedEndpoint, tmp_path: Path
) -> None:
    with (tmp_path / "tfgrpo.toml").open("a") as file:
        file.write(fields)
    for n in range(12):
        question = f"What is {n} op {n + 3}? Reply to the bike shop."
        record(store, f"call-{n}", question, str(2 * n + 3), correct=str(2 * n + 4))
    improve("--least", "10")
    redact = ["redact", "--text", "bike shop", "-r", "a customer", "--yes"]
    assert CliRunner().invoke(tfgrpo, redact).exit_code == 0
    assert "[redacted]" in (tmp_path / "collected.jsonl").read_text()
    assert "nothing to do: 0 of 10 new problems" in improve("--least", "10").output
    wrong_calls(store, range(20, 24))
    assert "nothing to do: 4 of 10 new problems" in improve("--least", "10").output


def test_named_gate_and_heldout_sets_are_used_and_leave_all_problems_to_learn_from(
    store: Store, model: ScriptedEndpoint, tmp_path: Path
) -> None:
    for name, numbers in (("gate", range(100, 108)), ("heldout", range(200, 210))):
        rows = [{"question": f"What is {n} op {n + 3}?", "gold": 2 * n + 4} for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = (tmp_path / "tfgrpo.toml").read_text()
    named = 'gate = "gate.jsonl"\nheldout = "heldout.jsonl"\nsealed = "heldout.jsonl:1"\n'
    named += 'fields = {problem = "question", answer = "gold"}\n'
    (tmp_path / "tfgrpo.toml").write_text(settings + named)
    wrong_calls(store, range(10))
    wrong_calls(store, range(200, 203))
    done = json.loads(improve("--json").output)
    assert done["effect"]["problems"] == 10
    assert done["new"] == 10, "none of the held-out ones"
    rows = read(store, "improve-1/train.jsonl")
    assert len(rows) == 10
    (proposal,) = list_proposals(store)
    assert proposal.details == {"run": "improve-1", "problems": 10, "learned_from": 10}
    assert rows[0].keys() >= {"question", "gold"}
    config = store.runs.get("improve-1").config
    assert (config["gate"], config["heldout"], config["sealed"]) == ("gate.jsonl", None, None)


def test_what_is_better_is_accepted_only_where_that_was_asked_for(
    store: Store, model: ScriptedEndpoint
) -> None:
    wrong_calls(store, range(30))
    done = json.loads(improve("--json", "--accept-better").output)
    assert done["outcome"] == "accepted"
    assert texts(store) == ["Be brief.", LESSON]
    assert "better on held-out problems" in store.tip("prod").message


def test_what_is_worse_is_not_proposed(store: Store, model: ScriptedEndpoint) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if stage(request) != "rollout":
            return teachable(request)
        user = request["messages"][-1]["content"]
        held = user in {row["problem"] for row in read(store, "improve-1/heldout.jsonl")}
        if held:
            taught = LESSON in request["messages"][0]["content"]
            a, b = (int(word) for word in user.strip("?").split() if word.isdigit())
            return f"\\boxed{{{a + b + (0 if taught else 1)}}}"
        return teachable(request)

    model.script = script
    wrong_calls(store, range(21))
    done = json.loads(improve("--json", "--accept-better").output)
    assert done["outcome"] == "worse"
    assert done["effect"]["mean"] == -1.0
    assert list_proposals(store) == []
    assert "rejected/proposal/improve-1" in store.branches()
    assert texts(store) == ["Be brief."]
    assert "nothing to do" in improve().output


def test_nothing_learned_is_success_too(store: Store, model: ScriptedEndpoint) -> None:
    model.script = lambda request: (
        "It must be one, as it always is: \\boxed{1}"
        if stage(request) == "rollout"
        else teachable(request)
    )
    wrong_calls(store, range(10))
    done = improve()
    assert done.exit_code == 0
    assert "nothing learned from 10 new problems" in done.output
    assert "proposal/improve-1" not in store.branches()
    assert "nothing to do" in improve().output


def test_a_second_one_beside_it_ends_at_once_with_a_code_of_its_own(
    store: Store, model: ScriptedEndpoint
) -> None:
    with process_lock.held(store.path.parent / "locks/improve.lock") as taken:
        assert taken
        done = run_command(["improve", "-q"], Path.cwd())
    assert done.returncode == 75
    assert "another improvement" in done.stderr
    assert done.stdout == ""


def test_one_that_is_killed_goes_on_and_pays_for_nothing_twice(
    store: Store, model: ScriptedEndpoint
) -> None:
    wrong_calls(store, range(24))
    model.script = numbered = Numbered(teachable)
    model.delay = 0.01
    paid: set[str] = set()
    before = 0
    for answers in (20, 100):
        process = subprocess.Popen([TFGRPO, "improve", "-q"], env=environment())
        until(lambda most=answers, p=process: len(model.requests) >= most or p.poll() is not None)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        model.settle()
        assert not paid & {identity(request) for request in numbered.requests[before:]}
        before = len(numbered.requests)
        paid |= {identity(numbered.requests[n - 1]) for n in journalled(store.path)}
    assert paid
    wrong_calls(store, range(50, 60))  # of the next day, and not of this improvement
    model.delay = 0.0
    done = json.loads(improve("--json").output)
    assert (done["outcome"], done["new"], done["run"]) == ("proposed", 24, "improve-1")
    assert not paid & {identity(request) for request in numbered.requests[before:]}
    assert len(list_proposals(store)) == 1
    assert json.loads(improve("--json", "--least", "99").output)["new"] == 10


def test_an_outage_of_a_new_improvement_says_what_goes_on_with_it(
    store: Store, model: ScriptedEndpoint
) -> None:
    def dying(request: dict[str, Any]) -> Any:
        down = Reply({"error": {"message": "down"}}, status=503)
        return down if len(model.requests) > 5 else teachable(request)

    wrong_calls(store, range(12))
    model.script = dying
    done = improve("--new", "--patience", "0.5")
    assert isinstance(done.exception, TfgrpoError)
    goes_on = "every answer is saved; the same command without --new goes on"
    assert done.exception.hint == goes_on


def test_what_came_to_nothing_leaves_its_problems_new(
    store: Store, model: ScriptedEndpoint
) -> None:
    wrong_calls(store, range(12))
    done = improve("--budget", "500tok")
    assert isinstance(done.exception, TfgrpoError)
    assert "in no finished step are new again" in (done.exception.hint or "")
    model.script = lambda request: Reply(status=401, body={"error": {"message": "no"}})
    assert isinstance(improve("--patience", "1").exception, TfgrpoError)
    model.script = teachable
    assert "12 new problems" in improve("--new", "--estimate").output
    done = improve("--new", "--json")
    assert json.loads(done.output)["new"] == 12, "none of them was learned from"
    assert "nothing to do: 0 of" in improve("--new").output


def test_what_a_finished_step_learned_from_stays_used(
    store: Store, model: ScriptedEndpoint, tmp_path: Path
) -> None:
    wrong_calls(store, range(24))
    settings = (tmp_path / "tfgrpo.toml").read_text()
    (tmp_path / "tfgrpo.toml").write_text(settings + "batch_size = 3\n")

    def until_the_second_step(request: dict[str, Any]) -> str | Reply:
        with Store.open(store.path) as there:  # in the thread of the endpoint
            over = "improve-1/step_1" in there.tags()
        if stage(request) == "rollout" and over:
            return Reply(status=401, body={"error": {"message": "no"}})
        return teachable(request)

    model.script = until_the_second_step
    assert isinstance(improve("--patience", "1").exception, TfgrpoError)
    first = {rollout.problem for rollout in store.runs.rollouts(store.runs.get("improve-1"), 0)}
    assert len(first) == 3
    model.script = teachable
    assert json.loads(improve("--new", "--json").output)["new"] == 21
    again = [json.dumps(row["problem"]) for row in read(store, "improve-2/train.jsonl")]
    asked = {
        json.dumps(r["problem"]) for r in read(store, "improve-1/train.jsonl") if r["id"] in first
    }
    assert len(asked) == 3
    assert not asked & set(again)


UNREADABLE = r"\frac{{{}"
"""A correction that is none: half a formula."""


def unreadable_calls(store: Store, numbers: range) -> None:
    for n in numbers:
        record(store, f"odd-{n}", f"What was {n} of it?", "1", correct=UNREADABLE.format(n))


@pytest.fixture
def mathematics(model: ScriptedEndpoint, tmp_path: Path) -> ScriptedEndpoint:
    """The model of a project whose answers are mathematics, some of which cannot be parsed."""
    settings = (tmp_path / "tfgrpo.toml").read_text()
    (tmp_path / "tfgrpo.toml").write_text(settings.replace('"exact"', '"math"'))
    return model


def test_corrections_that_cannot_be_read_are_left_out_and_alone_are_nothing_to_do(
    store: Store, mathematics: ScriptedEndpoint
) -> None:
    unreadable_calls(store, range(10))
    for flags in ((), ("--new",), ("--skip-unverifiable", "--new"), ()):
        done = improve(*flags)
        assert done.exit_code == 0, done.exception
        assert "nothing to do: 0 of 8 new problems" in done.output
        assert "10 collected problems left out, as attempts cannot be judged" in done.output
        assert "cannot parse the answer" in done.output
    assert not [name for name in store.branches() if name.startswith("proposal/")]
    estimate = improve("--estimate").output
    assert "nothing to do: 0 of 8 new problems; 10 collected problems left out" in estimate
    assert "10 collected problems" in json.loads(improve("--json").output)["left_out"]
    assert improve("--quiet").output == ""
    wrong_calls(store, range(12))
    done = improve()
    assert "10 collected problems left out" in done.output
    assert get_proposal(store, "p1").details["problems"] == 12


def test_another_models_calls_are_not_for_the_local_model(
    store: Store, model: ScriptedEndpoint, tmp_path: Path
) -> None:
    wrong_calls(store, range(12))
    settings = (tmp_path / "tfgrpo.toml").read_text()
    (tmp_path / "tfgrpo.toml").write_text(settings[settings.index("[train]") :])
    for flags in ((), ("--estimate",), ("--new",)):
        refused = improve(*flags)
        assert isinstance(refused.exception, TfgrpoError)
        assert "the calls on record are of m" in str(refused.exception)
        assert "--model m" in str(refused.exception.hint)
    assert not list((tmp_path / ".tfgrpo").glob("improvements/*"))
    assert not (tmp_path / "collected.jsonl").exists()
    (tmp_path / "tfgrpo.toml").write_text(settings)
    assert "12 new problems with m" in improve("--estimate").output


@pytest.mark.parametrize(
    ("table", "flags", "named"),
    [
        ("", (), None),
        ("[model]", (), None),
        ('[model]\nreflection_model = "m"', (), None),
        ('[model]\napi_key_env = "KEY"', (), None),
        ('[model]\nbase_url = "{url}"', (), None),
        ("", ("--base-url", "{url}"), None),
        ("", ("--model", "m"), "m"),
        ("", ("--model", "m", "--base-url", "{url}"), "m"),
        ('[model]\nmodel = "other"\nbase_url = "{url}"', (), "other"),
        ('[model]\nmodel = "local:qwen2.5-0.5b"', (), "local:qwen2.5-0.5b"),
    ],
)
def test_a_model_is_named_or_the_one_on_record_is_told(
    store: Store,
    model: ScriptedEndpoint,
    tmp_path: Path,
    table: str,
    flags: tuple[str, ...],
    named: str | None,
) -> None:
    wrong_calls(store, range(12))
    settings = (tmp_path / "tfgrpo.toml").read_text()
    own = table.format(url=model.base_url) + "\n" + settings[settings.index("[train]") :]
    (tmp_path / "tfgrpo.toml").write_text(own)
    done = improve("--estimate", *(flag.format(url=model.base_url) for flag in flags))
    if named is None:
        assert "the calls on record are of m" in str(done.exception)
    else:
        assert f"12 new problems with {named}" in done.output
    assert not model.requests


def test_one_that_was_cut_off_and_lost_its_branch_says_how_to_go_on(
    store: Store, model: ScriptedEndpoint
) -> None:
    wrong_calls(store, range(12))
    refusal = Reply(status=401, body={"error": {"message": "no"}})
    model.script = lambda request: refusal if len(model.requests) > 5 else teachable(request)
    assert isinstance(improve("--patience", "1").exception, TfgrpoError)
    with store.forced():
        store.delete_branch("proposal/improve-1")
    model.script = teachable
    refused = improve()
    assert "improve-1 was cut off, and its branch" in str(refused.exception)
    assert "tfgrpo improve --new" in str(getattr(refused.exception, "hint", None))
    assert json.loads(improve("--new", "--json").output)["new"] == 12


def test_one_whose_problems_can_be_judged_no_more_says_how_to_go_on(
    store: Store, model: ScriptedEndpoint, tmp_path: Path
) -> None:
    unreadable_calls(store, range(12))
    refusal = Reply(status=401, body={"error": {"message": "no"}})
    model.script = lambda request: refusal
    assert isinstance(improve().exception, TfgrpoError)
    model.script = teachable
    settings = tmp_path / "tfgrpo.toml"
    begun = settings.read_text()
    settings.write_text(begun.replace('"exact"', '"math"'))
    for _ in range(2):
        refused = improve().exception
        assert "improve-1/train.jsonl: odd-" in str(refused)
        assert "cannot parse the answer" in str(refused)
        assert "tfgrpo improve --new" in str(getattr(refused, "hint", None))
        assert "gives it up" in str(getattr(refused, "hint", None))
    assert "12 collected problems left out" in improve("--new").output
    settings.write_text(begun)
    assert "12 new problems with m" in improve("--estimate").output, "they are new again"


def test_without_the_branch_there_is_a_hint(store: Store, model: ScriptedEndpoint) -> None:
    done = improve("--target", "shop")
    assert isinstance(done.exception, TfgrpoError)
    assert "tfgrpo branch" in (done.exception.hint or "")


def test_an_application_improves_from_python(store: Store, model: ScriptedEndpoint) -> None:
    wrong_calls(store, range(12))
    seen: list[str] = []
    done = package.improve_sync(
        "prod", least=10, heldout_samples=1, on_progress=lambda one: seen.append(str(one))
    )
    assert done.outcome == "proposed"
    assert done.proposal is not None
    assert get_proposal(store, done.proposal.id).effect == done.effect
    assert "proposal p1" in str(done)
    assert any("run improve-1" in line for line in seen)


def test_a_rubric_learns_from_failures_that_nobody_corrected(
    store: Store, model: ScriptedEndpoint, tmp_path: Path
) -> None:
    record(store, "call-a", "When do you open?", "At nine.", score=0.0)
    assert "nothing to do: 0 of 9 new problems" in improve("--least", "9").output
    (tmp_path / "style.toml").write_text('[[criteria]]\nname = "signed"\nends_with = "Sund"\n')
    said = improve("--least", "9", "--domain", "rubric:style.toml").output
    assert "nothing to do: 1 of 9 new problems" in said


@pytest.mark.parametrize("parts", [[], ["gate"], ["heldout", "gate"]])
def test_of_few_problems_some_are_always_learned_from(parts: list[str]) -> None:
    for number in range(1, 41):
        rows = [{"id": f"{n}", "problem": f"Apart {n * 7919} {n}?"} for n in range(number)]
        dealt = split(rows, parts)
        assert sum(map(len, dealt.values())) == number
        assert len(dealt["train"]) >= max(1, int(0.4 * number))
        assert all(len(dealt[part]) == len(dealt[parts[0]]) for part in parts)
    assert [len(dealt[part]) for part in parts] == [12] * len(parts)


@pytest.mark.parametrize("system", ["", "You sell tickets for the ferry. " * 30])
def test_problems_under_one_system_text_are_dealt_as_others_are(system: str) -> None:
    def asked(n: int) -> list[dict[str, str]]:
        before = [{"role": "system", "content": system}] if system else []
        return [*before, {"role": "user", "content": f"Apart {n * 7919} {n}?"}]

    rows = [{"id": f"{n}", "problem": asked(n)} for n in range(30)]
    dealt = split(rows, ["heldout", "gate"])
    assert {part: len(portion) for part, portion in dealt.items()} == {
        "heldout": 9,
        "gate": 9,
        "train": 12,
    }


def test_an_improvement_of_four_problems_is_made(store: Store, model: ScriptedEndpoint) -> None:
    wrong_calls(store, range(4))
    done = improve("--least", "4", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["outcome"] in ("proposed", "nothing learned")


def test_what_may_not_move_a_protected_branch_waits_for_a_decision(
    store: Store, model: ScriptedEndpoint
) -> None:
    CliRunner().invoke(tfgrpo, ["branch", "--protect", "prod"])
    wrong_calls(store, range(30))
    done = improve("--accept-better")
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert "prod is protected" in said
    assert "`tfgrpo proposal accept p1 --force`" in said
    (proposal,) = list_proposals(store)
    assert proposal.state == "open"
    assert CliRunner().invoke(tfgrpo, ["proposal", "accept", "p1", "--force"]).exit_code == 0
    assert texts(store) == ["Be brief.", LESSON]
