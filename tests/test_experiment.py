"""Experiments, and branches that go back: who gets what, what is found, and what follows."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from providers import OK, Provider, ProxyThread, post
from proxy_fixtures import Choice, make
from test_proxy import ASK, CHAT, listen, text_of
from waiting import until

from tfgrpo.cli.main import tfgrpo
from tfgrpo.production.experiment import (
    Arm,
    Experiment,
    ExperimentPlan,
    arm_of,
    change_share,
    experiment,
    experiments,
    promote,
    roll_back,
    start,
    stop,
)
from tfgrpo.production.experiment_end import main as settle_experiments
from tfgrpo.production.experiment_end import settle, settle_all
from tfgrpo.production.experiment_evidence import Evidence, evidence, weighed
from tfgrpo.production.rollback import rollback
from tfgrpo.proxy.library_choice import Chooser
from tfgrpo.proxy.proxy_settings import ProxySettings, parse_upstream
from tfgrpo.proxy.running_experiments import Decider
from tfgrpo.store import (
    InvalidName,
    InvalidOperation,
    Operation,
    ProtectedName,
    StaleVersion,
    Store,
    StoreError,
    TfgrpoError,
    UnknownRevision,
)
from tfgrpo.store import child_processes as children
from tfgrpo.store.activity.decisions import decide, decisions
from tfgrpo.store.activity.traffic import (
    ArmCall,
    ArmScore,
    CallFilter,
    CallRecord,
    Feedback,
    traffic_path,
)
from tfgrpo.store.fsck import fsck
from tfgrpo.store.history.name_moves import protect, undo
from tfgrpo.store.opening import open_traffic
from tfgrpo.store.redact import Target, redact


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """`prod` at v1, and `main` one experience further."""
    with make(tmp_path / ".tfgrpo/store.db", "Count both days.") as made:
        made.create_branch("prod")
        made.commit("main", [Operation("ADD", text="Give units.")], message="units")
        yield made


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(OK) as running:
        yield running


@pytest.fixture
def settings(store: Store, provider: Provider) -> ProxySettings:
    upstream = parse_upstream(provider.url)
    return ProxySettings({"s": Choice(store.path, "prod")}, "s", upstream, upstream, port=0)


def run(store: Store, *arguments: str) -> str:
    done = CliRunner().invoke(tfgrpo, ["--store", str(store.path), "--no-pager", *arguments])
    if isinstance(done.exception, TfgrpoError):
        raise done.exception
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


def ask(proxy: ProxyThread, user: str | None = None) -> tuple[str, str | None]:
    """Makes a call for a user; returns its id and its arm."""
    header = [] if user is None else [b"x-tfgrpo-subject: " + user.encode()]
    answer = proxy.ask(post(CHAT, ASK, *header))
    assert answer.startswith(b"HTTP/1.1 200 "), answer
    call = re.search(rb"X-Tfgrpo-Call: (\S+)", answer)
    arm = re.search(rb"X-Tfgrpo-Arm: (\S+)", answer)
    assert call
    return call[1].decode(), arm and arm[1].decode()


def say(proxy: ProxyThread, call: str, score: object) -> None:
    body = json.dumps({"call": call, "score": score}).encode()
    assert proxy.ask(post("/feedback", body)).startswith(b"HTTP/1.1 201 ")


def recorded(store: Store) -> list[CallRecord]:
    with closing(open_traffic(traffic_path(store.path))) as traffic:
        return [one.call for one in traffic.calls(CallFilter(), 10_000)]


# on the wire:


def test_where_calls_are_counted_each_has_an_arm_of_its_own(
    settings: ProxySettings, store: Store
) -> None:
    plan = ExperimentPlan(guards=(), unit="call")
    id = start(store, "shorter", ("prod", "main"), 0.5, plan).id
    with ProxyThread(settings) as proxy:
        arms = dict(ask(proxy, "ann") for _ in range(24))
    assert arms == {call: f"shorter/{arm_of(id, call, 0.5)}" for call in arms}
    assert len(set(arms.values())) == 2, "of one subject"


def test_an_experiment_whose_calls_were_deleted_for_their_age_decides_nothing_any_more(
    store: Store,
) -> None:
    plan = ExperimentPlan(guards=(), auto=True)
    running = start(store, "shorter", ("prod", "main"), 0.5, plan)
    blank = CallRecord(*[None] * len(CallRecord._fields))._replace(
        worker="w", route="/", streamed=0, stale=0, status=200, added=1, latency=1
    )
    calls, scores = [], []
    for n in range(400):
        arm = running.control if n % 2 else running.candidate
        name = f"shorter/{'control' if n % 2 else 'candidate'}"
        calls.append(
            blank._replace(
                id=f"call-{n:08x}",
                time=running.started + n,
                arm=name,
                digest=arm.digest[:16],
                subject=f"s{n}",
            )
        )
        scores.append(Feedback(calls[-1].id, running.started + n, "till", float(n % 2)))
    with closing(open_traffic(traffic_path(store.path), create=True)) as traffic:
        traffic.add(calls, [])
        for one in scores:
            traffic.add_feedback(one)
        traffic.delete_before(running.started)
        assert evidence(store, running).verdict.kind == "harm"
        for one in scores:
            if not one.score:  # what a candidate did badly
                assert traffic.withdraw_feedback(one.call, one.key) == one
        assert evidence(store, running).verdict.kind == "harm", "a first value stays the first"
        traffic.delete_before(running.started + 10)
    found = evidence(store, running)
    assert found.verdict.kind == "none"
    assert "deleted" in found.verdict.doubts[0]
    assert found.verdict.doubts[0] in found.notes
    assert settle(store, running) is None


def test_a_share_of_subjects_gets_the_candidate_and_each_the_same_one_every_time(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    id = start(store, "shorter", ("prod", "main"), 0.5).id
    arms: dict[str, set[str | None]] = {}
    with ProxyThread(settings) as proxy, ProxyThread(settings) as other:
        for user in map(str, range(20)):
            for worker in (proxy, other, proxy):
                _, arm = ask(worker, user)
                arms.setdefault(user, set()).add(arm)
                assert ("Give units." in text_of(provider)) == (arm == "shorter/candidate")
                assert "Count both days." in text_of(provider)
    assert arms == {user: {f"shorter/{arm_of(id, user, 0.5)}"} for user in arms}
    assert {arm for (arm,) in arms.values()} == {"shorter/control", "shorter/candidate"}
    calls = recorded(store)
    assert Counter(call.arm for call in calls).total() == 60
    assert {(call.arm, call.version) for call in calls} == {
        ("shorter/control", "v1"),
        ("shorter/candidate", "v2"),
    }


def test_a_candidate_may_be_the_empty_library(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    start(store, "none", ("prod", "v0"), 1)
    with ProxyThread(settings) as proxy:
        answer = proxy.ask(post(CHAT, ASK, b"x-tfgrpo-subject: ann"))
        assert "Count both days." not in text_of(provider)
    assert b"X-Tfgrpo-Arm: none/candidate\r\n" in answer
    assert b"X-Tfgrpo-Version: v0 " in answer
    assert [(call.arm, call.version) for call in recorded(store)] == [("none/candidate", "v0")]


def test_every_step_is_seen_at_the_next_request(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    def got() -> tuple[str | None, bool]:
        _, arm = ask(proxy, "ann")
        return arm, "Give units." in text_of(provider)

    control, candidate = "e/control", "e/candidate"
    with ProxyThread(settings) as proxy:
        assert got() == (None, False)
        start(store, "e", ("prod", "main"), 0)
        assert got() == (control, False)
        change_share(store, "e", 1)
        assert got() == (candidate, True)
        store.commit("main", [Operation("ADD", text="Untested.")], message="later")
        assert got() == (candidate, True)
        assert "Untested" not in text_of(provider), "what was named at the beginning is compared"
        store.move_branch("main", "v0")
        store.create_branch("x")
        store.checkout("x")
        store.delete_branch("main")
        assert got() == (candidate, True), "a name that vanishes takes nothing away"
        store.move_branch("prod", "v0")
        assert got() == (None, False), "moved by hand: everybody gets that"
        store.move_branch("prod", "v1")
        assert got() == (candidate, True)
        promote(store, "e")
        assert got() == (None, True)
        roll_back(store, "e")
        assert got() == (None, False)


def test_a_call_without_a_subject_or_a_beginning_is_one_of_its_own(
    settings: ProxySettings, store: Store
) -> None:
    start(store, "e", ("prod", "main"), 0.5)
    with ProxyThread(settings) as proxy:
        body = b'{"model": "m", "messages": []}'
        answers = [proxy.ask(post(CHAT, body)) for _ in range(40)]
        arms = {m[1].decode() for a in answers if (m := re.search(rb"X-Tfgrpo-Arm: (\S+)", a))}
    assert arms == {"e/control", "e/candidate"}


def test_an_experiment_is_on_its_branch_alone_and_on_head_where_that_follows_it(
    settings: ProxySettings, store: Store
) -> None:
    start(store, "e", ("prod", "main"), 1)
    with ProxyThread(settings) as proxy:
        for named, arm in ((b"@main", None), (b"@v1", None), (b"@HEAD", None), (b"s@prod", True)):
            answer = proxy.ask(post(CHAT, ASK, b"x-tfgrpo-library: " + named))
            assert (b"X-Tfgrpo-Arm: e/candidate" in answer) == bool(arm), named
        store.checkout("prod")
        assert b"X-Tfgrpo-Arm" in proxy.ask(post(CHAT, ASK, b"x-tfgrpo-library: @HEAD"))


def test_a_text_of_the_candidate_that_is_redacted_is_in_no_later_request(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    store.commit("main", [Operation("ADD", text="The code is hunter2.")], message="code")
    start(store, "e", ("prod", "main"), 1, why="The code is hunter2.")
    with ProxyThread(settings) as proxy:
        ask(proxy)
        assert "hunter2" in text_of(provider)
        redact(store, Target(texts=("The code is hunter2.",)), reason="leaked")
        assert ask(proxy)[1] == "e/candidate"
        assert "Give units." in text_of(provider)
        assert "hunter2" not in text_of(provider)
    begun, redacted, texts = decisions(store)
    assert (begun.why, redacted.subject, redacted.why) == ("[redacted]", begun.id, "leaked")
    assert (texts.kind, texts.subject) == ("redaction", "texts")
    assert experiment(store, "e").state == "running"
    assert fsck(store).problems == ()


@pytest.mark.parametrize(
    "content", [{}, {"action": "explode"}, {"action": "start", "control": 7}, {"action": "share"}]
)
def test_garbage_on_record_stops_no_request_and_takes_no_newer_library_away(
    content: dict[str, object], settings: ProxySettings, provider: Provider, store: Store
) -> None:
    start(store, "e", ("prod", "main"), 1)
    with ProxyThread(settings) as proxy:
        assert ask(proxy)[1] == "e/candidate"
        decide(store, "experiment", "other", content)
        assert ask(proxy)[1] is None
        store.commit("prod", [Operation("ADD", text="Newer.")], message="newer")
        ask(proxy)
        assert "Newer." in text_of(provider)
    with pytest.raises(StoreError, match="damaged"):
        experiments(store)


def test_feedback_decides_and_status_shows_it_by_arm(settings: ProxySettings, store: Store) -> None:
    begin = ("experiment", "start", "e", "--control", "prod", "--candidate", "main")
    run(store, *begin, "--share", "50%")
    with ProxyThread(settings) as proxy:
        for call, arm in [ask(proxy, f"u{user}") for user in range(90)]:
            say(proxy, call, arm == "e/candidate")
    shown = json.loads(run(store, "experiment", "status", "--json"))
    score = shown["evidence"]["metrics"]["score"]
    assert score["candidate"][1] == 1
    assert score["control"][1] == 0
    assert sum(shown["evidence"]["subjects"].values()) == 90
    assert score["benefit"] > score["needed"] == 50
    assert shown["evidence"]["verdict"] == "benefit"
    said = run(store, "experiment", "status")
    assert "the candidate is better: promote" in said
    assert "better" in said.splitlines()[2]
    live = json.loads(run(store, "traffic", "--figures", "--json"))
    assert {arm["name"]: arm["score"] for arm in live["arms"]} == {
        "e/control": 0.0,
        "e/candidate": 1.0,
    }
    assert "e/candidate" in run(store, "traffic", "--figures")
    listed = run(store, "traffic", "--arm", "e/candidate", "--json")
    assert {one["arm"] for one in json.loads(listed)} == {"e/candidate"}


# what is on record:


def test_what_was_decided_by_whom_when_and_why_is_asked_of_the_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TFGRPO_AUTHOR", "bob")
    begin = ("experiment", "start", "e", "--control", "prod", "--candidate", "main")
    run(store, *begin, "--why", "units")
    run(store, "experiment", "share", "e", "50%")
    monkeypatch.setenv("TFGRPO_AUTHOR", "cy")
    assert "prod is at v2" in run(store, "experiment", "promote", "e", "--why", "both read it")
    assert "again (was v2)" in run(store, "branch", "--back", "prod", "--why", "incident 214")
    found = json.loads(run(store, "log", "--decisions", "--json"))
    assert [(one["author"], one["kind"], one["content"].get("action")) for one in found] == [
        ("cy", "rollback", None),
        ("cy", "experiment", "promote"),
        ("bob", "experiment", "share"),
        ("bob", "experiment", "start"),
    ]
    assert [one["why"] for one in found] == ["incident 214", "both read it", None, "units"]
    assert found[1]["content"]["evidence"]["verdict"] == "none"
    assert abs(time.time() - store.now() / 1e6) < 60
    log = run(store, "log", "--decisions", "prod", "--grep", "incident")
    assert "rollback prod" in log
    assert "by cy" in log
    assert "incident 214" in log
    assert "experiment" not in log
    assert "bob" not in run(store, "log", "--decisions", "--author", "cy")
    assert run(store, "log", "--decisions", "nothing") == ""
    refused = CliRunner().invoke(tfgrpo, ["--store", str(store.path), "log", "--decisions", "-p"])
    assert refused.exit_code == 2
    reflog = run(store, "reflog", "prod").splitlines()
    assert "rollback prod to v1: incident 214 (just now, cy)" in reflog[0]
    assert "promote e: both read it (just now, cy)" in reflog[1]


def test_an_experiment_that_makes_no_sense_is_refused_and_nothing_is_recorded(store: Store) -> None:
    arms = ("prod", "main")
    start(store, "e", arms, 0.1)
    store.create_branch("web", "v0")
    before = decisions(store)
    with pytest.raises(InvalidOperation, match="e is running on prod"):
        start(store, "f", arms, 0.1)
    with pytest.raises(InvalidName):
        start(store, "e", ("web", "main"), 0.1)
    for name in ("", "a b", "../x", "x" * 65, "ü"):
        with pytest.raises(InvalidName):
            start(store, name, ("web", "main"), 0.1)
    with pytest.raises(InvalidOperation, match="nothing to compare"):
        start(store, "f", ("web", "v0"), 0.1)
    with pytest.raises(UnknownRevision):
        start(store, "f", ("web", "nowhere"), 0.1)
    with pytest.raises(UnknownRevision):
        start(store, "f", ("v0", "main"), 0.1)
    for share in (-0.1, 1.01, float("nan")):
        with pytest.raises(InvalidOperation):
            start(store, "f", ("web", "main"), share)
        with pytest.raises(InvalidOperation):
            change_share(store, "e", share)
    for plan in (
        ExperimentPlan("speed"),
        ExperimentPlan("score:"),
        ExperimentPlan(guards=(("score", 0.0),)),
        ExperimentPlan(unit="country"),
        ExperimentPlan(guards=(("errors", -1.0),)),
    ):
        with pytest.raises(InvalidOperation):
            start(store, "f", ("web", "main"), 0.1, plan)
    protect(store, "branch", "web")
    with pytest.raises(InvalidOperation, match="protected"):
        start(store, "f", ("web", "main"), 0.1, ExperimentPlan(auto=True))
    with pytest.raises(UnknownRevision):
        stop(store, "nobody")
    assert decisions(store) == before
    start(store, "g", ("web", "main"), 0.1)
    with pytest.raises(ProtectedName):
        promote(store, "g")
    assert experiment(store, "g").state == "running"
    stop(store, "e")
    for act in (promote, roll_back, stop):
        with pytest.raises(InvalidOperation, match="is over"):
            act(store, "e")
    start(store, "h", arms, 0.1)


def test_promoting_needs_the_branch_where_it_was_and_taking_back_too(store: Store) -> None:
    start(store, "e", ("prod", "main"), 0.1)
    store.commit("prod", [Operation("ADD", text="By hand.")], message="by hand")
    with pytest.raises(StaleVersion, match="has moved to v3"):
        promote(store, "e")
    with store.forced():
        promote(store, "e")
    assert store.tip("prod").name == "v2"
    store.move_branch("prod", "v0")
    with pytest.raises(StaleVersion):
        roll_back(store, "e")
    store.move_branch("prod", "v2")
    assert roll_back(store, "e").state == "rolled back"
    assert store.tip("prod").name == "v3", "where it stood just before the promotion"


def test_a_promotion_is_taken_back_to_where_it_found_the_branch_and_status_says_so(
    store: Store,
) -> None:
    start(store, "e", ("prod", "main"), 0.1)
    store.commit("prod", [Operation("ADD", text="Hotfix.")], message="hotfix")
    run(store, "experiment", "promote", "e", "--force")
    assert "prod went from v3 to main (v2)\n" in run(store, "experiment", "status", "e")
    run(store, "experiment", "rollback", "e")
    assert [one.text for one in store.library("prod")] == ["Count both days.", "Hotfix."]
    said = run(store, "experiment", "status", "e")
    assert "prod went from v3 to main (v2), and back to v3\n" in said


def test_what_came_after_a_promotion_is_said_when_that_is_taken_back_by_force(store: Store) -> None:
    start(store, "e", ("prod", "main"), 0.1)
    run(store, "experiment", "promote", "e")
    store.commit("prod", [Operation("ADD", text="Hotfix.")], message="hotfix")
    said = run(store, "experiment", "rollback", "e", "--force")
    assert 'prod has lost "Hotfix."; `tfgrpo reflog prod` says where it is' in said
    assert "units" not in said


@pytest.mark.parametrize("end", ["stop", "rollback"])
def test_a_branch_that_somebody_else_moved_did_not_stay_where_it_was(
    store: Store, end: str
) -> None:
    start(store, "e", ("prod", "main"), 0.1)
    store.commit("prod", [Operation("ADD", text="Hotfix.")], message="hotfix")
    run(store, "experiment", end, "e")
    store.move_branch("prod", "v0")
    said = run(store, "experiment", "status", "e")
    assert "prod was moved from v1 to v3 meanwhile, without main (v2)" in said


# rollbacks:


def test_a_rollback_goes_to_where_the_branch_stood_and_a_second_one_further_back(
    store: Store,
) -> None:
    for text in ("a", "b"):
        store.commit("prod", [Operation("ADD", text=text)], message=text)
    store.move_branch("prod", "v2")
    assert [m.version for m in store.port.names.ref_log("heads/prod")] == [2, 4, 3, 1]
    went = [rollback(store, "prod", why=f"{n}").after.name for n in range(3)]
    assert went == ["v4", "v3", "v1"]
    with pytest.raises(UnknownRevision, match="nowhere before"):
        rollback(store, "prod", why="more")
    assert rollback(store, "prod", to="v4", why="forth").after.name == "v4"
    with pytest.raises(InvalidOperation, match="already"):
        rollback(store, "prod", to="v4", why="again")
    with pytest.raises(InvalidOperation, match="reason"):
        rollback(store, "prod", why=" ")
    undo(store)
    assert store.tip("prod").name == "v1"


def test_a_rollback_stops_the_experiment_on_the_branch_and_asks_for_force_on_a_protected_one(
    settings: ProxySettings, provider: Provider, store: Store
) -> None:
    store.commit("prod", [Operation("ADD", text="Wrong.")], message="wrong")
    start(store, "e", ("prod", "main"), 1)
    protect(store, "branch", "prod")
    with ProxyThread(settings) as proxy:
        ask(proxy)
        with pytest.raises(ProtectedName):
            run(store, "branch", "--back", "prod", "--why", "wrong")
        assert ask(proxy)[1] == "e/candidate"
        assert "experiment e was stopped" in run(
            store, "branch", "--back", "prod", "--why", "bad", "-f"
        )
        assert ask(proxy)[1] is None
        assert text_of(provider).endswith("[G0] Count both days.")
    assert experiment(store, "e").state == "stopped"
    assert "rolled back: bad" in str(decisions(store, kind="experiment")[-1].why)


# what calls say:


def plan_of(**fields: object) -> Experiment:
    blank = Experiment(
        "e",
        "id",
        "ann",
        Arm("prod", "c" * 64),
        Arm("main", "d" * 64),
        ExperimentPlan(guards=()),
        "running",
        0,
        None,
        ((0, 0.5),),
    )
    from dataclasses import replace

    return replace(blank, **fields)  # type: ignore[arg-type]


def call(number: int, candidate: bool, **fields: object) -> ArmCall:
    blank = ArmCall(
        f"call-{number}",
        number,
        f"u{number}",
        "e/candidate" if candidate else "e/control",
        ("d" if candidate else "c") * 16,
        200,
        100_000,
        70,
        30,
    )
    return blank._replace(**fields)  # type: ignore[arg-type]


def found_in(plan: Experiment, control: list[float], candidate: list[float]) -> Evidence:
    calls, scores = [], []
    for number, (arm, value) in enumerate(
        pair
        for both in zip(control, candidate, strict=True)
        for pair in zip((0, 1), both, strict=True)
    ):
        calls.append(call(number, bool(arm)))
        scores.append(ArmScore(f"call-{number}", value, None))
    return weighed(plan, calls, scores)


def test_right_or_wrong_numbers_and_their_guards_are_told_apart() -> None:
    right, wrong = [1.0] * 40, [0.0] * 40
    for control, candidate, verdict in (
        (right, wrong, "harm"),
        (wrong, right, "benefit"),
        (right, right, "none"),
    ):
        found = found_in(plan_of(), control, candidate)
        assert found.verdict.kind == verdict
        assert found.compared[0].kind == "right or wrong"
        assert found.compared[0].needed == pytest.approx(40)
    dice = random.Random(5)
    low, high = ([dice.gauss(mean, 0.1) for _ in range(200)] for mean in (0.5, 0.6))
    assert found_in(plan_of(), low, high).verdict.kind == "benefit"
    worse = found_in(plan_of(), high, low)
    assert worse.verdict.kind == "harm"
    (one,) = worse.compared
    assert one.kind == "scale"
    assert one.low < -0.1 < one.high < 0
    assert (one.harm >= one.needed) == (one.high < 0)


def test_a_guard_that_is_harmed_stands_against_promoting() -> None:
    plan = plan_of(plan=ExperimentPlan(guards=(("errors", 0.0), ("latency", 0.2), ("tokens", 0.2))))
    calls = [call(n, bool(n % 2), latency=100_000 + n % 7) for n in range(400)]
    scores = [ArmScore(c.id, float("candidate" in c.arm), None) for c in calls]
    assert weighed(plan, calls, scores).verdict.kind == "benefit"
    slow = [c._replace(latency=c.latency * (1 + 0.5 * ("cand" in c.arm))) for c in calls]
    found = weighed(plan, slow, scores)
    assert found.verdict == ("harm", "the guard latency is worse: roll back", ())
    slower = [c._replace(latency=round(c.latency * (1 + 0.1 * ("cand" in c.arm)))) for c in calls]
    assert weighed(plan, slower, scores).verdict.kind == "benefit", "within its tolerance"
    failing = [c._replace(status=500 if "cand" in c.arm else 200) for c in calls]
    assert weighed(plan, failing, scores).verdict.said == "the guard errors is worse: roll back"


def test_a_judges_scores_are_a_metric_of_their_own() -> None:
    plan = plan_of(plan=ExperimentPlan("score", (("score:judge", 0.0),)))
    calls = [call(n, bool(n % 2)) for n in range(200)]
    scores = [ArmScore(c.id, float("cand" in c.arm), "arithmetic") for c in calls]
    scores += [ArmScore(c.id, float("control" in c.arm), "judge") for c in calls]
    main, judge = weighed(plan, calls, scores).compared
    assert (main.candidate.mean, main.control.mean) == (1, 0)
    assert (judge.candidate.mean, judge.control.mean) == (0, 1)
    assert weighed(plan, calls, scores).verdict.said == "the guard score:judge is worse: roll back"


def test_a_subject_counts_once_and_in_the_arm_that_it_was_seen_in_first() -> None:
    plan = plan_of(shares=((0, 0.1), (50, 0.9)))
    calls = [call(n, n % 10 == 0, subject=f"u{n}") for n in range(50)]
    calls += [call(50 + n, n % 10 != 1, subject=f"u{n}") for n in range(50)]
    calls += [call(200, True, digest="e" * 16)]
    scores = [ArmScore(c.id, 1.0, None) for c in calls]
    found = weighed(plan, calls, scores)
    assert found.subjects == {"control": 45, "candidate": 5}
    assert found.moved == 40
    assert found.calls == {"control": 50, "candidate": 10}
    assert (found.compared[0].control.size, found.compared[0].candidate.size) == (45, 5)
    assert "40 subjects were seen in both arms" in found.notes[0]
    assert "1 calls under another version" in found.notes[1]
    late = [*scores, *(one._replace(score=0.0) for one in scores)]
    assert weighed(plan, calls, late).compared == found.compared, "its first score stays"
    by_call = weighed(plan_of(plan=ExperimentPlan(guards=(), unit="call")), calls, scores)
    assert (by_call.moved, by_call.subjects["candidate"]) == (0, 50)


def regulars(seed: int, shares: tuple[tuple[int, float], ...]) -> Evidence:
    """Ten days of an experiment without any difference. 200 subjects come back every day and are
    pleased more often than as many who come once; some say so."""
    dice, day = random.Random(seed), 86_400_000_000
    plan = plan_of(shares=tuple((at * day, share) for at, share in shares), id=f"id{seed}")
    calls, scores = [], []
    for number in range(10):
        who = [(f"r{n}", 0.85) for n in range(200)] + [(f"n{number}/{n}", 0.45) for n in range(200)]
        dice.shuffle(who)
        for at, (subject, pleased) in enumerate(who):
            time = number * day + 1000 * at + 1
            share = [share for since, share in plan.shares if since <= time][-1]
            is_candidate = arm_of(plan.id, subject, share) == "candidate"
            made = call(len(calls), is_candidate, subject=subject)._replace(time=time)
            calls.append(made)
            if dice.random() < 0.15:
                scores.append(ArmScore(made.id, float(dice.random() < pleased), None))
    return weighed(plan, calls, scores)


def test_a_larger_share_makes_no_difference_of_who_comes_back() -> None:
    ramps = (((0, 0.1), (2, 0.5)), ((0, 0.05), (2, 0.2), (4, 0.5)), ((0, 0.5), (5, 1.0)))
    found = [regulars(seed, ramp) for ramp in ramps for seed in range(10)]
    assert sum(one.verdict.kind != "none" for one in found) <= 1
    shown = [one.compared[0] for one in found]
    differences = [one.candidate.mean - one.control.mean for one in shown]
    assert abs(sum(differences) / len(differences)) < 0.03
    for one, difference in zip(shown, differences, strict=True):
        assert one.low - 0.05 < difference < one.high + 0.05, "what is shown is what is tested"


def test_arms_of_the_wrong_size_are_said_and_nothing_is_promoted() -> None:
    plan = plan_of(shares=((0, 0.1),))
    right = [call(n, n % 10 == 0) for n in range(3000)]
    assert weighed(plan, right, []).mismatch < 1
    wrong = [call(n, n % 5 == 0) for n in range(3000)]
    scores = [ArmScore(c.id, float("cand" in c.arm), None) for c in wrong]
    found = weighed(plan, wrong, scores)
    assert found.mismatch > 1000
    assert found.verdict.kind == "benefit"
    assert found.verdict.doubts
    assert "not what the shares would give" in found.verdict.said
    assert any("not sent by chance" in note for note in found.notes)


def heard(seed: int, right: tuple[float, float], silent: float) -> Evidence:
    """Returns what 1,000 users show: each arm is right as often as `right` says, and a share of the
    candidate's unhappy ones is `silent`."""
    dice, plan = random.Random(seed), plan_of()
    calls, scores = [], []
    for number in range(1000):
        is_candidate = dice.random() < 0.5
        calls.append(call(number, is_candidate))
        is_right = dice.random() < right[is_candidate]
        if dice.random() < 0.8 * (1 - silent * (is_candidate and not is_right)):
            scores.append(ArmScore(calls[-1].id, float(is_right), None))
    return weighed(plan, calls, scores)


def test_an_arm_whose_unhappy_users_are_silent_is_not_promoted() -> None:
    found = [heard(seed, (0.6, 0.6), 0.6) for seed in range(12)]
    assert sum(one.verdict.kind == "benefit" for one in found) >= 8, "it looks better"
    assert sum(one.verdict.kind == "benefit" and not one.verdict.doubts for one in found) <= 1
    assert any("differ in how many give scores" in one.verdict.said for one in found)
    honest = [heard(seed, (0.5, 0.75), 0.0) for seed in range(12)]
    assert sum(one.verdict.kind == "benefit" and not one.verdict.doubts for one in honest) >= 11


def test_no_calls_say_nothing(store: Store) -> None:
    found = evidence(store, start(store, "e", ("prod", "main"), 0.1))
    assert found.verdict.kind == "none"
    assert found.subjects == {"control": 0, "candidate": 0}
    assert "no decision yet" in run(store, "experiment", "status", "e")


def test_of_what_is_over_is_told_how_it_ended_and_nothing_is_advised(store: Store) -> None:
    for name, act, ended in (
        ("kept", "stop", "prod stayed at v1, without main (v2)"),
        ("back", "rollback", "prod stayed at v1, without main (v2)"),
        ("new", "promote", "prod went from v1 to main (v2)"),
    ):
        start(store, name, ("prod", "main"), 0.1)
        run(store, "experiment", act, name, "--why", "so")
        status = run(store, "experiment", "status", name)
        assert ended in status
        assert "of subjects get" not in status
        assert "neither is shown to be better" in status


def test_a_larger_share_adds_subjects_and_takes_none_away() -> None:
    subjects = [f"user {n}" for n in range(2000)]
    before: set[str] = set()
    for share in (0.0, 0.1, 0.5, 1.0):
        now = {s for s in subjects if arm_of("id", s, share) == "candidate"}
        assert abs(len(now) / 2000 - share) < 0.03
        assert before <= now
        before = now
    other = {s for s in subjects if arm_of("another", s, 0.5) == "candidate"}
    assert (
        0.2 < len(other & {s for s in subjects if arm_of("id", s, 0.5) == "candidate"}) / 2000 < 0.3
    )


# by itself:


@pytest.mark.parametrize(
    ("better", "state", "at"), [(True, "promoted", 2), (False, "rolled back", 1)]
)
def test_an_experiment_with_auto_decides_once_and_its_evidence_is_on_record(
    better: bool,
    state: str,
    at: int,
    settings: ProxySettings,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tfgrpo.proxy.running_experiments.LOOK", 0.1)
    monkeypatch.setattr("tfgrpo.proxy.running_experiments.REST", 0.0)
    plan = ExperimentPlan(guards=(), auto=True)
    start(store, "e", ("prod", "main"), 0.5, plan, why="to try it")
    with ProxyThread(settings) as proxy, ProxyThread(settings) as other:
        for call, arm in [ask(proxy if user % 2 else other, f"u{user}") for user in range(80)]:
            say(proxy, call, (arm == "e/candidate") == better)
        until(lambda: experiment(store, "e").state != "running", 60)
        assert ask(other)[1] is None
    assert experiment(store, "e").state == state
    assert store.tip("prod").number == at
    begun, ended = decisions(store)
    assert (begun.author, ended.author) == ("tester", "tester (auto)")
    assert ended.why is not None
    assert ended.why.startswith("auto: the candidate is ")
    score = ended.content["evidence"]["metrics"]["score"]
    assert score["benefit" if better else "harm"] >= score["needed"]
    assert sum(ended.content["evidence"]["subjects"].values()) <= 80


def test_feedback_may_reach_another_worker_than_the_call_and_before_it_is_written(
    settings: ProxySettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ProxyThread(settings) as proxy, ProxyThread(settings) as other:
        ask(other)  # which starts its writer
        (recorder,) = {id(one): one for one in other.proxy.recorders.values()}.values()
        assert recorder.process is not None
        os.kill(recorder.process.pid, signal.SIGSTOP)
        call, _ = ask(other)
        later = threading.Timer(1.2, os.kill, (recorder.process.pid, signal.SIGCONT))
        later.start()
        with monkeypatch.context() as patient:  # a busy machine is slow to write
            patient.setattr("tfgrpo.proxy.own_routes.LOOKS", 300)
            say(proxy, call, True)
        later.join()
        unknown = json.dumps({"call": "call-nobody-made", "score": 1}).encode()
        assert proxy.ask(post("/feedback", unknown)).startswith(b"HTTP/1.1 404 ")
    assert len(recorded(store)) == 2


def test_an_end_waits_for_no_look_that_begins_at_that_moment(
    settings: ProxySettings, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(store, "e", ("prod", "main"), 0.5, ExperimentPlan(guards=(), auto=True))
    open_traffic(traffic_path(store.path), create=True).close()
    begun, ended, starting = threading.Event(), threading.Event(), children.start

    def begin(*given: Any, **more: Any) -> subprocess.Popen[str]:
        begun.set()
        assert ended.wait(240), "it is ended before the process is there"
        return starting(*given, **more)

    monkeypatch.setattr("tfgrpo.proxy.running_experiments.LOOK", 0.05)
    monkeypatch.setattr("tfgrpo.proxy.running_experiments.SETTLE", "import time; time.sleep(600)")
    monkeypatch.setattr("tfgrpo.proxy.running_experiments.child_processes.start", begin)
    with closing(Chooser(settings)) as chooser:
        decider = Decider(chooser)
        assert begun.wait(240)
        join = decider._thread.join
        monkeypatch.setattr(decider._thread, "join", lambda: (ended.set(), join()))
        since = time.monotonic()
        decider.close()
        assert time.monotonic() - since < 60


def test_one_that_cannot_be_promoted_keeps_no_other_from_its_end(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store.create_branch("shop", "v1")
    for name, branch in (("e", "prod"), ("f", "shop")):
        start(store, name, (branch, "main"), 0.5, ExperimentPlan(guards=(), auto=True))
    protect(store, "branch", "prod")
    better = found_in(plan_of(), [0.0] * 60, [1.0] * 60)
    monkeypatch.setattr("tfgrpo.production.experiment_end.evidence", lambda *_: better)
    refused, done = settle_all(str(store.path))
    assert isinstance(refused, str)
    assert "e is not settled: " in refused
    assert (done.name, done.state) == ("f", "promoted")
    with pytest.raises(SystemExit):
        settle_experiments(str(store.path))
    assert "e is not settled" in capsys.readouterr().err


def test_what_stands_against_promoting_keeps_auto_from_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(store, "e", ("prod", "main"), 0.5, ExperimentPlan(guards=(), auto=True))
    plan = experiment(store, "e")
    better = found_in(plan_of(), [0.0] * 60, [1.0] * 60)
    doubted = better._replace(verdict=better.verdict._replace(doubts=("x",)))
    monkeypatch.setattr("tfgrpo.production.experiment_end.evidence", lambda *_: doubted)
    assert settle(store, plan) is None
    monkeypatch.setattr("tfgrpo.production.experiment_end.evidence", lambda *_: better)
    store.move_branch("prod", "v0")
    assert settle_all(str(store.path)) == [], "it is paused"
    store.move_branch("prod", "v1")
    (done,) = settle_all(str(store.path))
    assert (done.name, done.state) == ("e", "promoted")
    assert settle_all(str(store.path)) == []
    with pytest.raises(InvalidOperation, match="is over"):
        settle(store, plan)
    worse = better._replace(verdict=better.verdict._replace(kind="harm"))
    monkeypatch.setattr("tfgrpo.production.experiment_end.evidence", lambda *_: worse)
    with pytest.raises(InvalidOperation, match="is over"):  # somebody promoted it meanwhile
        settle(store, plan)
    assert experiment(store, "e").state == "promoted"


def test_workers_that_are_killed_take_no_arm_and_no_evidence_with_them(
    store: Store, provider: Provider, tmp_path: Path
) -> None:
    start(store, "e", ("prod", "main"), 0.5)
    arguments = ["--library", "prod", "--upstream", provider.url, "--port", "0", "--workers", "2"]
    process, port = listen(arguments, tmp_path)
    users = [f"u{n}" for n in range(12)]
    arms: dict[str, set[str]] = {user: set() for user in users}
    try:
        for turn in range(3):
            for user in users:
                header = b"x-tfgrpo-subject: " + user.encode()
                answer = ask_port(port, post(CHAT, ASK, header))
                arm = re.search(rb"X-Tfgrpo-Arm: (\S+)", answer)
                assert arm, answer
                arms[user].add(arm[1].decode())
            if turn == 0:
                on_record(store, 12)
                children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
                for child in children.split():
                    os.kill(int(child), signal.SIGKILL)
        stop(store, "e")
        assert b"X-Tfgrpo-Arm" not in ask_port(port, post(CHAT, ASK))
    finally:
        process.terminate()
        process.communicate()
    assert all(len(found) == 1 for found in arms.values())
    assert {arm for (arm,) in arms.values()} == {"e/control", "e/candidate"}
    found = evidence(store, experiment(store, "e"))
    assert sum(found.subjects.values()) == 12
    assert sum(found.calls.values()) == 36
    assert found.moved == 0


def on_record(store: Store, wanted: int) -> None:
    """Waits until that many calls are, which workers write a moment after they answer."""
    until(lambda: sum(evidence(store, experiment(store, "e")).calls.values()) >= wanted)


def ask_port(port: int, request: bytes) -> bytes:
    """Asks until a worker answers: one that is killed takes its connections with it."""

    def answer() -> bytes:
        said = b""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=240) as connection,
        ):
            connection.sendall(request)
            while piece := connection.recv(65536):
                said += piece
        return said

    return until(answer)


def test_decisions_stay_where_they_were_made(store: Store, tmp_path: Path) -> None:
    start(store, "e", ("prod", "main"), 0.1)
    done = CliRunner().invoke(
        tfgrpo, ["clone", str(store.path), str(tmp_path / "copy")], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    with Store.open(tmp_path / "copy/.tfgrpo/store.db") as copy:
        assert decisions(copy) == []
        assert fsck(copy).problems == ()
        assert copy.tip("main").digest == store.tip("main").digest


# what an undo says:


@pytest.fixture
def promoted(store: Store) -> Store:
    run(
        store,
        *str.split("experiment start e --control prod --candidate main --share 50%"),
    )
    run(store, *str.split("experiment promote e --force --why better"))
    return store


def test_an_undo_says_that_a_decision_stays_on_record(promoted: Store) -> None:
    stays = "the decision stays on record: `tfgrpo redo`"
    assert run(promoted, "undo").splitlines()[-1].startswith(stays)
    assert "stays on record" not in run(promoted, "redo")
    run(promoted, *str.split("branch --back prod v1 --why incident"))
    assert run(promoted, "undo").splitlines()[-1].startswith(stays)


def test_an_undone_commit_that_is_called_like_a_promotion_leaves_nothing(promoted: Store) -> None:
    run(promoted, *str.split("add New. -m"), "promote e")
    assert "stays on record" not in run(promoted, "undo")
