"""Training end to end: what a run leaves behind, and that nothing that happens to it shows.

Every run here goes against a real endpoint on loopback, a real store file and real worker
processes. `restless` is a script under which every step changes the library, so equal
libraries at the end are no accident.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from desk import UID, Desk, learned, libraries, steps
from desk import made as made_desk
from scripted import (
    LESSON,
    Numbered,
    Reply,
    ScriptedEndpoint,
    restless,
    stage,
    teachable,
)
from store_helpers import begin

from tfgrpo.data import datasets
from tfgrpo.domains.verifier import Verifier
from tfgrpo.learn.collector import Batch, Collector
from tfgrpo.learn.groups import RunParts
from tfgrpo.learn.loop import plan_steps
from tfgrpo.learn.policies.protocol import Learned, Step
from tfgrpo.model.endpoint import EndpointError
from tfgrpo.model.gather import gather_all
from tfgrpo.store import Operation, Store, Version
from tfgrpo.store.activity.runs import Call, RolloutRow
from tfgrpo.store.sqlite.journal import SqliteRecords

Undisturbed = tuple[str, list[list[tuple[str, str]]]]

Script = Callable[[dict[str, Any]], str | Reply]


posix = pytest.mark.skipif(os.name != "posix", reason="kill -9")


@pytest.fixture
def make(tmp_path: Path, verifier: Verifier) -> Callable[..., Desk]:
    return partial(made_desk, tmp_path, verifier)


def journalled(path: Path) -> set[int]:
    """Returns the numbers of the requests whose answers are in the journal (see Numbered)."""
    with Store.open(path) as store:
        rows = store.port.connection.execute("select prompt_tokens from journal")  # type: ignore[attr-defined]
        return {number for (number,) in rows}


def identity(request: dict[str, Any]) -> str:
    return json.dumps(request, sort_keys=True)


# what a run leaves behind:


def test_a_step_learns_and_the_next_one_is_better(make: Callable[..., Desk]) -> None:
    desk = make()
    with ScriptedEndpoint(teachable) as server:
        training = desk.train(server)
        assert server.stages["rollout"] == 2 * 6 * 3
    run = training.progress.run
    assert run == "problems"
    found = libraries(desk.path, run)
    assert [[text for _, text in library] for library in found] == [[]] + [[LESSON]] * 4
    assert len({id for library in found for id, _ in library}) == 1
    versions = steps(desk.path, run)
    means = [version.meta["stats"]["mean_reward"] for version in versions]
    assert means[0] < 1.0
    assert means[1:] == [1.0, 1.0, 1.0]
    assert [version.meta["step"] for version in versions] == [0, 1, 2, 3]
    assert [version.meta["epoch"] for version in versions] == [1, 1, 2, 2]
    assert all(version.message.endswith("; nothing learned") for version in versions[1:])
    assert "mixed" in versions[0].message
    assert "nothing learned" not in versions[0].message
    with Store.open(desk.path) as store:
        assert store.tags() == {f"{run}/step_{n}": n for n in range(5)}
        assert store.runs.state(store.runs.get(run)) == "finished"
        assert [s.state for s in store.runs.states(store.runs.get(run))] == ["started", "finished"]
        assert {v.author for v in versions} == {"tfgrpo (scripted)"}


def test_every_event_can_say_who_taught_it(make: Callable[..., Desk]) -> None:
    desk = make(epochs=4)
    desk.prepare()
    with ScriptedEndpoint(restless) as server:
        desk.train(server)
    seen = Counter()
    with Store.open(desk.path) as store:
        rows = store.runs.rollouts(store.runs.get("run"))
        rewards = {(r.step, r.problem, r.sample): r.reward for r in rows}
        keys = [key.hex() for (key,) in store.port.connection.execute("select key from journal")]  # type: ignore[attr-defined]
        for version in steps(desk.path):
            for event in store.events(version):
                evidence = event.evidence
                assert evidence is not None
                seen[event.op] += 1
                step = evidence["step"]
                assert (evidence["run"], step) == ("run", version.meta["step"])
                assert (evidence["model"], evidence["reflection_model"]) == ("scripted",) * 2
                assert set(evidence["prompts"]) == {"rollout", "summary", "comparison", "plan"}
                for sample, reward in evidence["rollouts"]:
                    assert rewards[step, evidence["problem"], sample] == reward
                found = {reward for _, reward in evidence["rollouts"]}
                assert found == {0.0, 1.0}
                for call in evidence["calls"]:
                    assert sum(key.startswith(call) for key in keys) == 1
                assert event.reason
    assert set(seen) >= {"ADD", "MODIFY", "KEEP"}


def test_every_attempt_is_recorded_with_its_call_and_reward(make: Callable[..., Desk]) -> None:
    desk = make()
    desk.prepare()
    with ScriptedEndpoint(restless) as server:
        desk.train(server)
    with Store.open(desk.path) as store:
        rows = store.runs.rollouts(store.runs.get("run"))
        assert len(rows) == 2 * 6 * 3
        for row in rows:
            (key,) = row.calls
            call = store.runs.call(bytes.fromhex(key))
            assert call is not None
            assert (call.stage, call.step) == ("rollout", row.step)
            number = int(row.problem[1:])
            right = f"\\boxed{{{2 * number + 4}}}" in call.answer["content"]
            assert row.reward == float(right)
            assert store.tags()[f"run/step_{row.step}"] == row.version


def test_an_epoch_shuffles_anew_and_the_last_batch_may_be_smaller(
    make: Callable[..., Desk],
) -> None:
    desk = make(count=5, epochs=3, batch_size=3)
    plan = plan_steps(datasets.load(desk.settings.data), desk.settings)
    assert [(epoch, len(batch)) for epoch, batch in plan] == [
        (1, 3),
        (1, 2),
        (2, 3),
        (2, 2),
        (3, 3),
        (3, 2),
    ]
    orders = {tuple(p.id for _, b in plan[n : n + 2] for p in b) for n in (0, 2, 4)}
    assert len(orders) > 1


def test_attempts_without_a_verdict_never_count_as_0(make: Callable[..., Desk]) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if stage(request) != "rollout":
            return teachable(request)
        user = request["messages"][-1]["content"]
        if "What is 1 op" in user:
            return Reply({"error": {"message": "not allowed"}}, status=400)
        if "What is 2 op" in user:
            return r"\boxed{\sum_{n=1}^{99999999} \frac{1}{n^n+1}}"
        a, b = map(int, re.findall(r"\d+", user))
        return f"\\boxed{{{a + b + 1}}}"

    desk = make(count=4, epochs=1, batch_size=4, group_size=2)
    desk.prepare()
    with Verifier(workers=2, seconds=2.5) as quick, ScriptedEndpoint(script) as server:
        desk.verifier = quick
        training = desk.train(server)
    with Store.open(desk.path) as store:
        rows = store.runs.rollouts(store.runs.get("run"))
    told = {row.problem: (row.outcome, row.reward) for row in rows}
    assert told == {
        "p1": ("failed", None),
        "p2": ("unverifiable", None),
        "p3": ("answered", 1.0),
        "p4": ("answered", 1.0),
    }
    stats = steps(desk.path)[0].meta["stats"]
    assert (stats["mean_reward"], stats["mixed"]) == (1.0, 0)
    assert (stats["failed"], stats["unverifiable"], stats["rollouts"]) == (2, 2, 8)
    assert set(training.progress.rewards) == {1.0}
    assert server.stages.keys() == {"rollout"}


def test_when_every_attempt_fails_the_run_stops_and_says_why(make: Callable[..., Desk]) -> None:
    desk = make()
    desk.prepare()

    def refusing(_: dict[str, Any]) -> Reply:
        return Reply({"error": {"message": "context window exceeded"}}, status=400)

    with ScriptedEndpoint(refusing) as server:
        with pytest.raises(EndpointError, match="context window exceeded") as caught:
            desk.train(server)
        assert caught.value.hint
    assert libraries(desk.path) == [[]]
    with Store.open(desk.path) as store:
        state = store.runs.states(store.runs.get("run"))[-1]
    assert state.state == "stopped"
    assert "context window exceeded" in str(state.detail)


def test_a_run_that_stopped_because_every_attempt_failed_goes_on_when_the_cause_is_mended(
    make: Callable[..., Desk],
) -> None:
    desk = make()
    desk.prepare()
    broken = threading.Event()
    broken.set()

    def script(request: dict[str, Any]) -> str | Reply:
        if broken.is_set():
            return Reply({"error": {"message": "model is loading"}}, status=400)
        return teachable(request)

    with ScriptedEndpoint(script) as server:
        with pytest.raises(EndpointError):
            desk.train(server)
        broken.clear()
        desk.train(server)
    assert [len(library) for library in libraries(desk.path)] == [0, 1, 1, 1, 1]


def test_reflection_that_failed_is_in_the_versions_record(make: Callable[..., Desk]) -> None:
    turns: Counter[str] = Counter()
    lock = threading.Lock()

    def script(request: dict[str, Any]) -> str:
        contents = [str(message["content"]) for message in request["messages"][::-1]]
        user = next((content for content in contents if "What is" in content), "")
        match stage(request):
            case "rollout":
                with lock:
                    turns[user] += 1
                    right = turns[user] % 2
                a, b = map(int, re.findall(r"\d+", user))
                return f"\\boxed{{{a + b + right}}}"
            case "summary":
                return "It joined the numbers."
            case "comparison":
                number = int(re.findall(r"What is (\d+) op", user)[0])
                lesson = {"reason": "r", "text": f"Lesson {number}."}
                return "no idea" if number == 1 else json.dumps({"lessons": [lesson]})
            case _:
                asked = "\n".join(contents)
                lessons = re.findall(r"^(\d+)\. (Lesson \d\.)", asked, re.MULTILINE)
                wrong = {"op": "keep", "experience": "G99", "text": ""}
                plan = [{"lessons": [int(number)], **wrong} for number, _ in lessons[1:]]
                added = {"lessons": [1], "op": "add", "text": lessons[0][1]}
                return json.dumps({"operations": [added, *plan]})

    desk = make(count=4, epochs=1, batch_size=4, group_size=2)
    desk.prepare()
    with ScriptedEndpoint(script) as server:
        desk.train(server)
    (version,) = steps(desk.path)
    (failure,) = version.meta["failed"]
    assert (failure["stage"], failure["problem"]) == ("comparison", "p1")
    refused = version.meta["refused"]
    assert len(refused) == 2
    assert all("G99" in refusal["reason"] and refusal["problem"] for refusal in refused)
    (event,) = _events(desk.path, version)
    assert event.op == "ADD"
    assert sorted([event.text, *(r["text"] for r in refused)]) == [
        "Lesson 2.",
        "Lesson 3.",
        "Lesson 4.",
    ]


def _events(path: Path, version: Version) -> tuple[Any, ...]:
    with Store.open(path) as store:
        return store.events(version)


# people at work beside a run:


def beside(desk: Desk, act: Callable[[Store], object]) -> tuple[Script, list[bool]]:
    """Returns a script that acts on the store once, in the middle of the first step."""
    done: list[bool] = []
    lock = threading.Lock()

    def script(request: dict[str, Any]) -> str:
        with lock:
            if stage(request) == "comparison" and not done:
                with desk.store() as store:
                    act(store)
                done.append(True)
        if stage(request) == "plan" and "[G0]" in request["messages"][-1]["content"]:
            change = {"op": "modify", "experience": "G0", "text": "Machine's text."}
            return json.dumps({"operations": [{"lessons": [1], **change}]})
        return teachable(request)

    return script, done


def test_a_persons_commit_during_a_step_is_kept_and_the_step_goes_on_top(
    make: Callable[..., Desk],
) -> None:
    desk = make(epochs=1)
    desk.prepare()
    script, done = beside(
        desk,
        lambda store: store.commit("main", [Operation("ADD", text="By hand.")], message="by hand"),
    )
    with ScriptedEndpoint(script) as server:
        desk.train(server)
    assert done
    texts = [[text for _, text in library] for library in libraries(desk.path)]
    assert texts[1] == ["By hand.", LESSON]
    with Store.open(desk.path) as store:
        messages = [v.message for v in store.log("main")][::-1]
    assert messages[1] == "by hand"
    assert messages[2].startswith("step 1 of 2")


def test_an_operation_on_what_a_person_deleted_meanwhile_is_refused_on_record(
    make: Callable[..., Desk],
) -> None:
    desk = make(epochs=1, batch_size=6)
    with desk.store() as store:
        store.commit("main", [Operation("ADD", text="Old advice.")], message="known")
        (known,) = store.library()
    desk.prepare()
    script, done = beside(
        desk, lambda store: store.commit("main", [Operation("DELETE", known.id)], message="gone")
    )
    with ScriptedEndpoint(script) as server:
        desk.train(server)
    assert done
    assert libraries(desk.path)[-1] == []
    (version,) = steps(desk.path)
    refused = version.meta["refused"]
    assert any(r["reason"].startswith(f"MODIFY of {known.id}") for r in refused)
    assert all(r["problem"] for r in refused)


def test_a_text_that_a_person_changed_meanwhile_is_not_overwritten(
    make: Callable[..., Desk],
) -> None:
    desk = make(epochs=1, batch_size=6)
    with desk.store() as store:
        store.commit("main", [Operation("ADD", text="Old advice.")], message="known")
        (known,) = store.library()
    desk.prepare()
    script, done = beside(
        desk,
        lambda store: store.commit(
            "main", [Operation("MODIFY", known.id, "A person's text.")], message="mended"
        ),
    )
    with ScriptedEndpoint(script) as server:
        desk.train(server)
    assert done
    assert (known.id, "A person's text.") in libraries(desk.path)[-1]
    assert steps(desk.path)[0].meta["refused"]


def test_what_a_person_does_between_sessions_is_what_the_next_step_works_under(
    make: Callable[..., Desk],
) -> None:
    desk = make(epochs=1, batch_size=3)
    desk.prepare()
    script = stopping_after(restless, 0, at_the_second_step=True)
    with ScriptedEndpoint(script) as server, pytest.raises(EndpointError):
        desk.train(server)
    with desk.store() as store:
        store.commit("main", [Operation("ADD", text="By hand.")], message="by hand")
    with ScriptedEndpoint(restless) as server:
        desk.train(server)
        shown = [r["messages"][0]["content"] for r in server.requests if stage(r) == "rollout"]
    assert shown
    assert all("By hand." in text for text in shown)
    assert "By hand." in [text for _, text in libraries(desk.path)[1]]


# whatever happens to a run, the result is the same:


def stopping_after(
    script: Script, answers: int, *, at_the_second_step: bool = False, status: int = 401
) -> Script:
    """Returns a script that answers so many requests and then refuses all.

    With `at_the_second_step`, it refuses what comes first there: rollouts with a library.
    """
    lock = threading.Lock()
    given = 0

    def stopping(request: dict[str, Any]) -> str | Reply:
        nonlocal given
        with lock:
            given += 1
            refused = given > answers
        if at_the_second_step:
            system = request["messages"][0]["content"]
            refused = stage(request) == "rollout" and "[G0]" in system
        if refused:
            error = {"error": {"message": "come back later"}}
            return Reply(error, status=status, headers={"retry-after": "0"})
        return script(request)

    return stopping


@pytest.fixture(scope="module", params=["paper", "probation"])
def undisturbed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, verifier: Verifier
) -> Undisturbed:
    """A policy, and the libraries of its run that every disturbed one is compared with."""
    folder = tmp_path_factory.mktemp("undisturbed")
    desk = made_desk(folder, verifier, policy=request.param)
    desk.prepare()
    with ScriptedEndpoint(restless) as server:
        desk.train(server)
    found = learned(desk.path)
    assert len(libraries(desk.path)) == 5
    assert len(set(map(tuple, found))) > 2  # what is compared with is no constant
    return request.param, found


@pytest.mark.parametrize("seed", range(2))
def test_the_order_in_which_answers_arrive_does_not_show(
    make: Callable[..., Desk], undisturbed: Undisturbed, seed: int
) -> None:
    chance = random.Random(seed)

    def script(request: dict[str, Any]) -> str:
        time.sleep(chance.random() * 0.04)
        return restless(request)

    policy, expected = undisturbed
    desk = make(policy=policy)
    desk.prepare()
    with ScriptedEndpoint(script) as server:
        desk.train(server, concurrency=(3, 32)[seed])
    assert learned(desk.path) == expected


@pytest.mark.parametrize("stops", [[1], [13, 5], [16, 2, 20], [1, 4, 7, 10, 13]])
def test_a_run_that_was_stopped_goes_on_to_the_same_result_and_repeats_no_call(
    make: Callable[..., Desk],
    undisturbed: Undisturbed,
    stops: list[int],
) -> None:
    policy, expected = undisturbed
    desk = make(policy=policy)
    desk.prepare()
    script = Numbered(restless)
    paid: set[str] = set()
    for answers in stops:
        before = len(script.requests)
        stopping = stopping_after(script, answers)
        with ScriptedEndpoint(stopping) as server, pytest.raises(EndpointError):
            desk.train(server)
        assert not paid & {identity(r) for r in script.requests[before:]}
        paid |= {identity(script.requests[n - 1]) for n in journalled(desk.path)}
    before = len(script.requests)
    with ScriptedEndpoint(script) as server:
        desk.train(server)
    assert not paid & {identity(r) for r in script.requests[before:]}
    assert learned(desk.path) == expected
    with Store.open(desk.path) as store:
        states = [s.state for s in store.runs.states(store.runs.get("run"))]
    assert states[:2] == ["started", "stopped"]
    assert states[-2:] == ["resumed", "finished"]


def test_a_server_that_fails_for_a_while_and_recovers_does_not_show(
    make: Callable[..., Desk], undisturbed: Undisturbed
) -> None:
    policy, expected = undisturbed
    desk = make(policy=policy, patience=1.0)
    desk.prepare()
    failing = stopping_after(restless, 10, status=500)
    gave_up = pytest.raises(EndpointError, match=r"gave up after .* tries in")
    with ScriptedEndpoint(failing) as server, gave_up:
        desk.train(server)
    desk = replace(desk, settings=desk.settings.model_copy(update={"patience": 600.0}))
    chance = random.Random(7)
    lock = threading.Lock()

    def flaky(request: dict[str, Any]) -> str | Reply:
        with lock:
            trouble = chance.random()
        if trouble < 0.06:
            return Reply(b"", 500, {"retry-after": "0"})
        if trouble < 0.08:
            return Reply(b"{", 200)
        return restless(request)

    with ScriptedEndpoint(flaky) as server:
        training = desk.train(server)
    assert training.progress.meter.retries > 0
    assert learned(desk.path) == expected


def test_a_finished_run_that_is_run_again_asks_for_nothing(make: Callable[..., Desk]) -> None:
    desk = make(epochs=1)
    with ScriptedEndpoint(restless) as server:
        desk.train(server)
        with desk.store() as store:
            run = store.runs.all()[-1]
            assert store.runs.state(run) == "finished"
            assert begin(store, desk.settings) == (run, True)
            fresh, resumed = begin(store, desk.settings, new=True)
            assert not resumed
            assert fresh.uid != run.uid
            assert fresh.name == f"{run.name}-2"


class OneStep:
    """A policy of one's own that needs no further step after its first."""

    def __init__(self, parts: RunParts, collector: Collector) -> None:
        self._collector = collector

    async def learn(self, step: Step) -> Learned:
        batch = Batch(step.number, step.batch, step.library, step.is_last)
        return Learned(tuple(await self._collector.groups(batch)), is_over=True)


def test_a_run_that_needs_no_further_step_makes_none_when_it_is_gone_on_with(
    make: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tfgrpo.learn.loop.find_policy", lambda *_: OneStep)
    desk = make()
    with ScriptedEndpoint(teachable) as server:
        desk.train(server)
        asked = len(server.requests)
        desk.train(server)
        assert len(server.requests) == asked == 3 * 3
    assert len(steps(desk.path, "problems")) == 1


def test_the_meter_of_a_resumed_run_comes_to_what_an_undisturbed_one_comes_to(
    make: Callable[..., Desk],
) -> None:
    whole, cut = make("whole"), make("cut")
    for desk in (whole, cut):
        desk.prepare()
    with ScriptedEndpoint(stopping_after(restless, 12)) as server, pytest.raises(EndpointError):
        cut.train(server)
    with ScriptedEndpoint(restless) as server:
        expected = whole.train(server).progress.meter
        found = cut.train(server).progress.meter
    assert found.replayed > 0
    assert (found.calls, found.by_stage) == (expected.calls, expected.by_stage)
    assert found.completion_tokens == expected.completion_tokens


def test_a_resumed_step_reads_its_own_attempts_with_their_calls_in_one_query(
    make: Callable[..., Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = make(epochs=1, count=4, batch_size=2, group_size=4)
    with ScriptedEndpoint(stopping_after(restless, 8)) as server, pytest.raises(EndpointError):
        desk.train(server)
    queries: list[int] = []
    steps_read: list[int | None] = []
    by_key, rollouts = SqliteRecords.calls_by_key, SqliteRecords.rollouts

    def counted(self: SqliteRecords, keys: Sequence[bytes]) -> list[Call]:
        queries.append(len(keys))
        return by_key(self, keys)

    def noted(self: SqliteRecords, run: int, step: int | None, *more: Any) -> list[RolloutRow]:
        steps_read.append(step)
        return rollouts(self, run, step, *more)

    monkeypatch.setattr(SqliteRecords, "calls_by_key", counted)
    monkeypatch.setattr(SqliteRecords, "rollouts", noted)
    with ScriptedEndpoint(restless) as server:
        desk.train(server)
    assert queries[0] == 8, "two groups of four: what was judged before, and what was not"
    assert steps_read == [0, 1]


def test_a_run_that_was_killed_before_its_first_tag_can_be_gone_on_with(
    make: Callable[..., Desk],
) -> None:
    desk = make(epochs=1)
    with desk.store() as store:
        config = desk.settings.model_dump(mode="json")
        store.runs.create("run", UID, "main", 0, config, store.author)
    with ScriptedEndpoint(restless) as server:
        desk.train(server)
    assert len(libraries(desk.path)) == 3


def test_the_first_error_of_many_tasks_is_raised_as_it_is_and_ends_the_others() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            ended.append("waiting")
            raise

    async def fail() -> None:
        await asyncio.sleep(0.01)
        raise EndpointError("no")

    async def nested() -> None:
        await gather_all([wait(), fail()])

    with pytest.raises(EndpointError, match="no"):
        asyncio.run(gather_all([wait(), nested()]))  # type: ignore[arg-type]
    assert ended == ["waiting", "waiting"]
