"""Failures and retries: whatever an endpoint does, a run finishes or stops with a clear account.

`faults.py` has the faults. Pauses are cut short here, for what is promised is not how long
they are.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from conftest import LONG, Cli
from faults import LASTING, TRANSIENT, Storm
from scripted import Reply, ScriptedEndpoint, opened_calls, restless, write_problems
from test_cli_training import SMALL, start
from test_training import UID, Desk, libraries, steps
from waiting import until

from tfgrpo.domains.verifier import Verifier
from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import CallFailed, EndpointError, Request, Transient
from tfgrpo.model.rate_limits import FIRST_TRIES, Throttle
from tfgrpo.settings import TrainSettings, build
from tfgrpo.store import Store
from tfgrpo.store.fsck import fsck


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("openai.resources.chat.completions")  # slow
    monkeypatch.setattr("tfgrpo.model.rate_limits.LONGEST_PAUSE", 0.02)


def request(text: str = "hello") -> Request:
    return Request("rollout", (("user", text),), 0.5, 64)


def asked(calls: Calls, count: int) -> list[Any]:
    """Asks for so many answers side by side; returns them, or the errors."""

    async def run() -> list[Any]:
        asking = (calls.ask(request(str(n))) for n in range(count))
        try:
            return await asyncio.gather(*asking, return_exceptions=True)
        finally:
            await calls.endpoint.close()

    return asyncio.run(run())


# each fault alone:


@pytest.mark.parametrize("kind", TRANSIENT)
def test_a_fault_that_passes_costs_another_try_and_nothing_else(tmp_path: Path, kind: str) -> None:
    tries: Counter[str] = Counter()

    def script(sent: dict[str, Any]) -> str | Reply:
        text = sent["messages"][-1]["content"]
        tries[text] += 1
        if text == "0" and tries[text] == 1:
            return Reply(stall=4.5, close=True) if kind == "stalled" else TRANSIENT[kind]()
        return text

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, timeout=3 if kind == "stalled" else 60) as calls,
    ):
        found = asked(calls, 4)
        assert [r.answer.content for r in found] == ["0", "1", "2", "3"]
        assert tries == {"0": 2, "1": 1, "2": 1, "3": 1}
        assert calls.meter.retries == 1
        call = calls._runs.call(bytes.fromhex(found[0].key))
        assert call is not None
        assert call.attempts == 2


@pytest.mark.parametrize("kind", [k for k in LASTING if k != "400"])
def test_an_answer_that_is_no_good_is_an_answer_and_is_not_paid_for_twice(
    tmp_path: Path, kind: str
) -> None:
    with ScriptedEndpoint(lambda _: LASTING[kind]()) as server:
        for _ in range(2):
            with opened_calls(tmp_path, server.base_url) as calls:
                (found,) = asked(calls, 1)
        assert len(server.requests) == 1
    wanted = {"finish_reason length": 9, "a refusal": 9, "10 MB": 10_000_000, "empty content": 0}
    assert len(found.answer.content) == wanted[kind]
    assert found.answer.truncated == (kind == "finish_reason length")


def test_a_request_that_is_refused_for_good_fails_alone(tmp_path: Path) -> None:
    def script(sent: dict[str, Any]) -> str | Reply:
        return LASTING["400"]() if sent["messages"][-1]["content"] == "1" else "fine"

    with ScriptedEndpoint(script) as server, opened_calls(tmp_path, server.base_url) as calls:
        found = asked(calls, 4)
        assert [isinstance(one, CallFailed) for one in found] == [False, True, False, False]
        assert len(server.requests) == 4


def test_a_request_that_keeps_failing_while_others_are_answered_fails_alone(
    tmp_path: Path,
) -> None:
    def script(sent: dict[str, Any]) -> str | Reply:
        time.sleep(0.005)
        return Reply(b"", 500) if sent["messages"][-1]["content"] == "0" else "fine"

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, concurrency=2) as calls,
    ):
        found = asked(calls, 60)
        assert isinstance(found[0], CallFailed)
        assert "gave up after 8 tries: 500" in str(found[0])
        assert not any(isinstance(one, Exception) for one in found[1:])
        assert len(server.requests) == 59 + 8


# rate limits:


class Limited:
    """A script that bears `most` requests at once and refuses the others."""

    def __init__(self, most: int, **headers: str) -> None:
        self.most, self.refused, self.peak = most, 0, 0
        self._here, self._headers = 0, headers
        self._lock = threading.Lock()

    def __call__(self, _: object) -> str | Reply:
        with self._lock:
            self._here += 1
            here = self._here
            self.peak = max(self.peak, here)
        try:
            if here > self.most:
                with self._lock:
                    self.refused += 1
                return Reply({"error": {"message": "Too many at once"}}, 429, self._headers)
            time.sleep(0.01)
            return "fine"
        finally:
            with self._lock:
                self._here -= 1


def test_concurrency_falls_to_what_the_endpoint_bears_and_rises_again(tmp_path: Path) -> None:
    limited, limits = Limited(8), list[float]()

    def script(request: object) -> str | Reply:
        limits.append(calls.throttle.limit)
        return limited(request)

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, concurrency=64) as calls,
    ):
        found = asked(calls, 600)
        assert [one for one in found if isinstance(one, Exception)] == []
        assert limited.peak > 8
        assert limited.refused < 600 * 0.4, limited.refused
        lowest = min(limits)  # a busy machine may not fill the endpoint any more, and it rises
        assert lowest <= 32
        limited.most = 1000
        found = asked(calls, 900)[600:]
        assert [one for one in found if isinstance(one, Exception)] == []
        assert calls.throttle.limit > lowest + 8


@pytest.mark.parametrize("form", ["seconds", "date", "milliseconds"])
def test_a_retry_after_holds_for_every_caller(tmp_path: Path, form: str) -> None:
    times: list[float] = []
    lock = threading.Lock()

    def script(_: object) -> str | Reply:
        with lock:
            times.append(time.time())
            first = len(times) == 1
        if not first:  # those that were on their way are held until the pause is nearly over
            time.sleep(max(0.01, times[0] + 0.9 - time.time()))
            return "fine"
        date = datetime.now(UTC) + timedelta(seconds=2)  # it has whole seconds
        header = {
            "seconds": {"retry-after": "1"},
            "milliseconds": {"retry-after-ms": "1000"},
            "date": {"retry-after": format_datetime(date, usegmt=True)},
        }[form]
        return Reply(b"", 429, header)

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, concurrency=2) as calls,
    ):
        found = asked(calls, 12)
    assert [one for one in found if isinstance(one, Exception)] == []
    under_way = [at for at in times[1:] if at < times[0] + 0.9]
    assert len(under_way) <= 2  # the other one, and one that took its place before the answer
    assert all(at >= times[0] + 0.9 for at in times[1 + len(under_way) :])


def test_an_endpoint_that_asks_for_a_long_wait_stops_the_run(tmp_path: Path) -> None:
    def script(_: object) -> Reply:
        return Reply({"error": {"message": "Daily limit"}}, 429, {"retry-after": "7200"})

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, concurrency=4) as calls,
    ):
        found = asked(calls, 20)
    assert all(isinstance(one, EndpointError) for one in found)
    assert "asks for a wait of 7200 s: 429: " in str(found[0])
    assert len(server.requests) == 4


def test_a_rate_limit_is_waited_out_also_before_the_first_answer(tmp_path: Path) -> None:
    """As long as patience lasts, with a Retry-After or without, and whatever it is called."""
    message = {"error": {"message": "You exceeded your quota of requests per minute"}}
    for number, reply in enumerate(
        (
            Reply(b"", 429, {"retry-after": "0.02"}),
            Reply(b"", 429),
            Reply(message, 429, {"retry-after": "0.02"}),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        refused = iter([reply] * 30)
        with (
            ScriptedEndpoint(lambda _, left=refused: next(left, "fine")) as server,
            opened_calls(folder, server.base_url, concurrency=1) as calls,
        ):
            found = asked(calls, 2)
            assert [one for one in found if isinstance(one, Exception)] == []
            assert len(server.requests) == 32


# outages:


def test_an_outage_longer_than_any_number_of_tries_is_waited_out(tmp_path: Path) -> None:
    replies = iter(["fine", *[Reply(b"", 500)] * 15, *[Reply(close=True)] * 15])
    with (
        ScriptedEndpoint(lambda _: next(replies, "fine")) as server,
        opened_calls(tmp_path, server.base_url, concurrency=1) as calls,
    ):
        found = asked(calls, 4)
        assert [one for one in found if isinstance(one, Exception)] == []
        assert len(server.requests) == 34


def test_the_pauses_of_an_outage_are_a_share_of_it_and_its_end_gives_everything_back() -> None:
    throttle = Throttle(16)
    now = time.monotonic()
    throttle.answered(now)
    for _ in range(8):
        throttle.troubled(time.monotonic(), Transient("500"))
    assert throttle.limit == 1
    assert not throttle.healthy
    assert throttle.closed_until - time.monotonic() < 0.1
    assert throttle.pause(20) == 0, "the gate waits, and who wakes late would miss the end"
    throttle.answered(time.monotonic())
    assert throttle.healthy
    assert throttle.limit == 16
    assert throttle._open()


def test_where_many_requests_fail_by_chance_each_is_tried_more_often_and_soon() -> None:
    throttle = Throttle(16)
    assert throttle.tries == 8
    for _ in range(100):
        throttle.answered(time.monotonic())
        throttle.troubled(time.monotonic(), Transient("500"))
    assert throttle.healthy
    assert throttle.tries >= 13, "fewer would give up one request in thousands"
    assert all(throttle.pause(attempt) <= 2 for attempt in range(1, 40))
    for _ in range(100):
        throttle.answered(time.monotonic())
    assert throttle.tries == 8


@pytest.mark.parametrize("concurrency", [2, 16])
def test_every_other_request_may_fail_without_one_call_that_does(
    tmp_path: Path, concurrency: int
) -> None:
    tries, lock = Counter[str](), threading.Lock()

    def script(sent: dict[str, Any]) -> str | Reply:
        text = sent["messages"][-1]["content"]
        with lock:
            tries[text] += 1
            return Reply(b"", 500) if tries[text] % 2 else "fine"

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, concurrency=concurrency) as calls,
    ):
        found = asked(calls, 74)
        assert [one for one in found if isinstance(one, Exception)] == []
        assert calls.meter.retries == len(server.requests) - 74


def test_a_dead_endpoint_is_told_after_a_few_requests_and_not_after_all(tmp_path: Path) -> None:
    with (
        ScriptedEndpoint(lambda _: Reply(b"", 502)) as server,
        opened_calls(tmp_path, server.base_url, concurrency=32) as calls,
    ):
        found = asked(calls, 300)
        assert all(isinstance(one, EndpointError) for one in found)
        assert f"gave up after {FIRST_TRIES} tries" in str(found[0])
        assert found[0].hint
        assert len(server.requests) <= 32 + 32 + 16 + FIRST_TRIES


def test_an_outage_that_ends_is_waited_out(tmp_path: Path) -> None:
    served: list[int] = []
    lock = threading.Lock()

    def script(_: object) -> str | Reply:
        with lock:
            served.append(1)
            number = len(served)
        return Reply(close=True) if 100 < number <= 140 else "fine"

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, concurrency=32) as calls,
    ):
        found = asked(calls, 300)
        assert [one for one in found if isinstance(one, Exception)] == []
        assert len(server.requests) == 340
        assert calls.meter.retries == 40


# whole runs:

Script = Callable[[Any], Any]


def trained(folder: Path, verifier: Verifier, script: Any, **more: Any) -> Desk:
    """Trains in a folder of its own, with a uid that makes libraries comparable."""
    folder.mkdir(exist_ok=True)
    data = folder.parent / "problems.jsonl"
    if not data.exists():
        write_problems(data, 40 if LONG else 8)
    values = {"epochs": 2, "batch_size": 4, "group_size": 4, "data": str(data), "task_timeout": 1.0}
    values["policy"] = "paper"
    values |= {"patience": more.get("patience", 600.0)}
    desk = Desk(folder, verifier, build(TrainSettings, {"model": "scripted", **values}))
    if not desk.path.exists():
        desk.prepare()
    with ScriptedEndpoint(script) as server:
        desk.train(server, concurrency=more.get("concurrency", 16))
    return desk


@pytest.fixture
def undisturbed(tmp_path: Path, verifier: Verifier) -> list[list[tuple[str, str]]]:
    return libraries(trained(tmp_path / "calm", verifier, restless).path)


def test_a_storm_of_faults_that_pass_changes_nothing(
    tmp_path: Path, verifier: Verifier, undisturbed: list[list[tuple[str, str]]]
) -> None:
    storm = Storm(restless, 0.6)
    desk = trained(tmp_path / "storm", verifier, storm)
    assert libraries(desk.path) == undisturbed
    twice = {name: n for name, n in storm.answered.items() if n > 1}
    print(f"{sum(storm.answered.values())} calls, {sum(storm.met.values())} faults: {storm.met}")
    assert not twice
    assert set(storm.met) == set(TRANSIENT)
    assert set(storm.stages) == {"rollout", "summary", "comparison", "plan"}
    with Store.open(desk.path) as store:
        spent = store.runs.spent(store.runs.get("run"))
        assert sum(one.usage.calls for one in spent) == sum(storm.answered.values())
        assert sum(one.retries for one in spent) == sum(storm.met.values())
        assert fsck(store).problems == ()
        assert all(not version.meta.get("failed") for version in steps(desk.path))


def test_a_storm_of_everything_finishes_with_an_account_of_what_failed(
    tmp_path: Path, verifier: Verifier
) -> None:
    few = {kind: fault for kind, fault in LASTING.items() if kind != "10 MB"}
    passing = {kind: TRANSIENT[kind] for kind in ("429", "503", "dropped", "invalid JSON")}
    storm = Storm(restless, 0.3, {**passing, **few})
    big = iter([LASTING["10 MB"]])

    def script(sent: dict[str, Any]) -> str | Reply:
        return next(big, lambda: storm(sent))()

    desk = trained(tmp_path / "storm", verifier, script)
    assert len(libraries(desk.path)) == 5
    print(f"{sum(storm.answered.values())} calls, {sum(storm.met.values())} faults: {storm.met}")
    assert not {name for name, n in storm.answered.items() if n > 1}
    assert storm.met["400"] > 0
    stats = [version.meta["stats"] for version in steps(desk.path)]
    assert sum(one.get("truncated", 0) for one in stats) > 0
    failures = sum(one.get("failed", 0) for one in stats) + sum(
        len(version.meta.get("failed", [])) + len(version.meta.get("refused", []))
        for version in steps(desk.path)
    )
    assert failures > 0
    with Store.open(desk.path) as store:
        assert store.runs.state(store.runs.get("run")) == "finished"
        assert fsck(store).problems == ()


def test_a_run_whose_endpoint_dies_stops_keeps_all_and_goes_on_when_it_is_back(
    tmp_path: Path, verifier: Verifier, undisturbed: list[list[tuple[str, str]]]
) -> None:
    calm = Storm(restless, 0.0)
    alive = iter(range(90))

    def dying(sent: dict[str, Any]) -> str | Reply:
        return calm(sent) if next(alive, None) is not None else Reply(b"", 503)

    with pytest.raises(EndpointError, match="gave up after"):
        trained(tmp_path / "storm", verifier, dying, patience=1.0)
    with Store.open(tmp_path / "storm/store.db") as store:
        run = store.runs.get("run")
        assert store.runs.state(run) == "stopped"
        assert "503" in (store.runs.states(run)[-1].detail or "")
        assert sum(one.usage.calls for one in store.runs.spent(run)) == 90
        assert store.runs.find("run") is not None
        assert run.uid == UID
    desk = trained(tmp_path / "storm", verifier, calm)
    assert libraries(desk.path) == undisturbed
    assert not {name for name, n in calm.answered.items() if n > 1}


# Ctrl-C:


@pytest.mark.skipif(os.name != "posix", reason="signals to a group of processes")
def test_ctrl_c_lets_calls_in_flight_finish_and_keeps_their_answers(
    cli: Cli, tmp_path: Path
) -> None:
    write_problems(tmp_path / "problems.jsonl", 12)
    with ScriptedEndpoint(restless, delay=0.5) as server:
        flags = (*SMALL, "--base-url", server.base_url, "--concurrency", "6")
        running = start(tmp_path, "train", "problems.jsonl", *flags, start_new_session=True)
        until(lambda: len(server.requests) >= 20)
        os.killpg(running.pid, signal.SIGINT)  # as a terminal does: the workers get it too
        out, err = running.communicate(timeout=120)
        assert running.returncode == 130
        (line, command) = err.strip().splitlines()[-2:]
        asked = len(server.requests)
        (steps,) = re.findall(r"^run problems: 12 problems, (\d+) steps?", out, re.MULTILINE)
        plural = "s" * (steps != "1")
        assert line == (
            f"interrupted; run problems: 0 of {steps} step{plural} done, {asked} answers saved"
        )
        assert command == "resume with `tfgrpo train --resume problems`"
        assert "Traceback" not in err + out
        assert "KeyboardInterrupt" not in err + out
    with sqlite3.connect(tmp_path / ".tfgrpo/store.db") as db:
        assert db.execute("select count(*) from journal").fetchone() == (asked,)
