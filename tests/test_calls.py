"""Every model call goes through the journal, is counted, and is tried again only here."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Numbered, Reply, ScriptedEndpoint, completion, opened_calls

from tfgrpo.costs.prices import FREE, Price
from tfgrpo.model.client import CallConditions, Calls, Meter, RecordedAnswer
from tfgrpo.model.endpoint import Answer, CallFailed, EndpointError, Request
from tfgrpo.model.rate_limits import FIRST_TRIES
from tfgrpo.store.activity.runs import Call
from tfgrpo.store.sqlite.journal import SqliteRecords

SOON = {"retry-after": "0"}


def request(text: str = "hello", **more: Any) -> Request:
    return Request(more.pop("stage", "rollout"), (("user", text),), 0.5, 64, **more)


def together(calls: Calls, *asking: Coroutine[Any, Any, RecordedAnswer]) -> list[RecordedAnswer]:
    """Runs calls side by side and closes the endpoint's connections."""

    async def run() -> list[RecordedAnswer]:
        try:
            return await asyncio.gather(*asking)
        finally:
            await calls.endpoint.close()

    return asyncio.run(run())


def numbered(script: Any = lambda _: "fine") -> Numbered:
    return Numbered(script)


def test_an_answer_from_the_journal_is_not_asked_for_again(tmp_path: Path) -> None:
    with ScriptedEndpoint(lambda r: r["messages"][-1]["content"].upper()) as server:
        found = []
        for _ in range(3):
            with opened_calls(tmp_path, server.base_url) as calls:
                found.append(together(calls, calls.ask(request("a")), calls.ask(request("b"))))
                assert calls.meter.calls == 2
        assert found[0] == found[1] == found[2]
        assert [r.answer.content for r in found[0]] == ["A", "B"]
        assert len(server.requests) == 2
        assert calls.meter.replayed == 2


def test_a_call_that_waited_is_not_sent_where_another_process_has_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a worker that was cut off from the database, whose group was made elsewhere."""
    monkeypatch.setattr("tfgrpo.model.client.STALE", 0.0)
    begun, go_on = threading.Event(), threading.Event()

    def script(asked: dict[str, Any]) -> str:
        if asked["messages"][-1]["content"] == "first":
            begun.set()
            assert go_on.wait(240)
        return "fine"

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, shared=True, concurrency=1) as calls,
    ):
        other = Calls(
            calls.endpoint, calls._journal, calls._runs, CallConditions("tests", shared=True)
        )

        async def elsewhere() -> RecordedAnswer:
            await asyncio.to_thread(begun.wait, 60)
            answer = await other.ask(request("second"))
            go_on.set()
            return answer

        asking = (calls.ask(request("first")), calls.ask(request("second")), elsewhere())
        _, late, soon = together(calls, *asking)
        assert late == soon
        assert len(server.requests) == 2
        assert calls.meter.replayed == 1


def test_an_answer_that_another_process_had_first_is_on_record_as_paid(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def script(_: dict[str, Any]) -> str:
        both.wait(240)
        return "fine"

    answering = Numbered(script)
    with (
        ScriptedEndpoint(answering) as server,
        opened_calls(tmp_path, server.base_url, shared=True) as calls,
    ):
        other = Calls(
            calls.endpoint, calls._journal, calls._runs, CallConditions("tests", shared=True)
        )
        ours, theirs = together(calls, calls.ask(request()), other.ask(request()))
        assert ours == theirs
        connection = calls._runs._port.connection  # type: ignore[attr-defined]
        rows = connection.execute("select prompt_tokens from journal").fetchall()
    assert sorted(tokens for (tokens,) in rows) == [1, 2]


def test_calls_that_begin_together_are_looked_up_in_one_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: list[int] = []
    plain = SqliteRecords.calls_by_key

    def counted(self: SqliteRecords, keys: Sequence[bytes]) -> list[Call]:
        queries.append(len(keys))
        return plain(self, keys)

    monkeypatch.setattr(SqliteRecords, "calls_by_key", counted)
    with ScriptedEndpoint(lambda _: "fine") as server:
        for replayed in (0, 41):
            with opened_calls(tmp_path, server.base_url) as calls:
                asked = (calls.ask(request(), sample=n % 40) for n in range(41))
                found = together(calls, *asked)
                assert calls.meter.replayed == max(1, replayed), "two are alike: one is made"
            assert {r.answer.content for r in found} == {"fine"}
        assert len(server.requests) == 40
    assert queries == [40, 1, 40, 1]


def test_what_is_journalled_is_the_call_whole(tmp_path: Path) -> None:
    with ScriptedEndpoint(lambda _: "fïne\x00 🙂") as server:
        with opened_calls(tmp_path, server.base_url) as calls:
            (recorded,) = together(calls, calls.ask(request("ä"), call_path=(3, "p1"), sample=2))
        with opened_calls(tmp_path, server.base_url) as calls:
            call = calls._runs.call(bytes.fromhex(recorded.key))
    assert call is not None
    assert call.request == '[["user","ä"]]'
    assert Answer(**call.answer) == recorded.answer
    assert (call.stage, call.step, call.model) == ("rollout", 3, "scripted")
    assert (call.prompt_tokens, call.completion_tokens, call.attempts) == (50, 10, 1)
    assert call.seconds > 0


def test_samples_places_and_requests_that_differ_are_separate_calls(tmp_path: Path) -> None:
    with ScriptedEndpoint(numbered()) as server, opened_calls(tmp_path, server.base_url) as calls:
        asking = [
            calls.ask(request()),
            calls.ask(request(), sample=1),
            calls.ask(request(), call_path=(1,)),
            calls.ask(request(), call_path=(1, "p")),
            calls.ask(request(), call_path=(2, "p")),
            calls.ask(request(seed=1)),
            calls.ask(request("other")),
            calls.ask(request(stage="summary")),
        ]
        found = together(calls, *asking)
    assert len({r.key for r in found}) == len(found) == len(server.requests)
    assert sorted(r.answer.prompt_tokens for r in found) == list(range(1, 9))


def test_trouble_that_passes_is_waited_out_and_counted(tmp_path: Path) -> None:
    def trouble(_: Any) -> str | Reply:
        kinds = [Reply(b"no JSON"), Reply(b"", 500, SOON), Reply(b"", 429, SOON)]
        number = len(script.requests)
        return kinds[number - 1] if number <= len(kinds) else "fine"

    script = numbered(trouble)
    with ScriptedEndpoint(script) as server, opened_calls(tmp_path, server.base_url) as calls:
        (recorded,) = together(calls, calls.ask(request()))
        assert recorded.answer.content == "fine"
        assert (calls.meter.retries, calls.meter.calls, calls.meter.in_flight) == (3, 1, 0)
        assert calls.meter.trouble is None
        call = calls._runs.call(bytes.fromhex(recorded.key))
        assert call is not None
        assert call.attempts == 4
        assert len(server.requests) == 4


def test_the_servers_retry_after_is_honoured(tmp_path: Path) -> None:
    times: list[float] = []

    def script(_: Any) -> str | Reply:
        times.append(time.monotonic())
        return Reply(b"", 429, {"retry-after": "1"}) if len(times) == 1 else "fine"

    with ScriptedEndpoint(script) as server, opened_calls(tmp_path, server.base_url) as calls:
        together(calls, calls.ask(request()))
    assert 1.0 <= times[1] - times[0] < 30.0


def test_trouble_that_lasts_ends_with_an_endpoint_error_and_no_answer_is_kept(
    tmp_path: Path,
) -> None:
    with (
        ScriptedEndpoint(lambda _: Reply(b"", 500, SOON)) as server,
        opened_calls(tmp_path, server.base_url) as calls,
    ):
        with pytest.raises(EndpointError, match="gave up after") as caught:
            together(calls, calls.ask(request()))
        assert caught.value.hint
        assert len(server.requests) == FIRST_TRIES
        assert calls._runs.call(calls.key(request(), (), 0)) is None
        assert calls.meter.in_flight == 0


def test_an_endpoint_that_has_answered_before_is_waited_for_as_long_as_patience_lasts(
    tmp_path: Path,
) -> None:
    script = numbered(lambda _: "fine" if len(script.requests) == 1 else Reply(b"", 500, SOON))
    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, patience=0.5) as calls,
    ):
        together(calls, calls.ask(request("a")))
        begun = time.monotonic()
        with pytest.raises(EndpointError, match=r"gave up after .* tries in") as caught:
            together(calls, calls.ask(request("b")))
        assert time.monotonic() - begun >= 0.5
        assert "--patience" in str(caught.value.hint)
        assert len(server.requests) > 2


def test_an_answer_that_takes_too_long_fails_that_call_alone(tmp_path: Path) -> None:
    too_late = threading.Event()

    def script(sent: dict[str, Any]) -> str:
        if sent["messages"][-1]["content"] == "slow":
            too_late.wait(240)
        return "fine"

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, timeout=0.2) as calls,
    ):
        with pytest.raises(CallFailed, match=r"0\.2 s"):
            together(calls, calls.ask(request("slow")))
        too_late.set()
        calls._conditions = replace(calls._conditions, timeout=240)
        assert calls._runs.call(calls.key(request("slow"), (), 0)) is None
        (recorded,) = together(calls, calls.ask(request("quick")))
        assert recorded.answer.content == "fine"
        assert calls.meter.in_flight == 0


def test_waiting_for_ones_turn_is_not_part_of_the_time_that_an_answer_may_take(
    tmp_path: Path,
) -> None:
    with (
        ScriptedEndpoint(lambda _: "fine", delay=1.0) as server,
        opened_calls(tmp_path, server.base_url, timeout=5, concurrency=1) as calls,
    ):
        found = together(calls, *(calls.ask(request(str(n))) for n in range(6)))
        assert [r.answer.content for r in found] == ["fine"] * 6


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_requests_are_in_flight_than_allowed(tmp_path: Path, limit: int) -> None:
    here, most = 0, 0
    lock = threading.Lock()

    def script(_: Any) -> str | Reply:
        nonlocal here, most
        with lock:
            here += 1
            most = max(most, here)
        time.sleep(0.02)
        with lock:
            here -= 1
        return "fine"

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, concurrency=limit) as calls,
    ):
        together(calls, *(calls.ask(request(str(n))) for n in range(12)))
    assert most == limit


def test_a_call_that_waits_before_its_next_try_leaves_its_place_to_others(tmp_path: Path) -> None:
    first = threading.Event()

    def script(sent: dict[str, Any]) -> str | Reply:
        if sent["messages"][-1]["content"] == "0" and not first.is_set():
            first.set()
            return Reply(b"", 500, {"retry-after": "1"})
        return "fine"

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, concurrency=1) as calls,
    ):
        together(calls, *(calls.ask(request(str(n))) for n in range(4)))
        order = [sent["messages"][-1]["content"] for sent in server.requests]
    assert order == ["0", "1", "2", "3", "0"]


def test_half_a_character_in_an_answer_does_not_end_the_run(tmp_path: Path) -> None:
    with (
        ScriptedEndpoint(lambda _: "so \ud83d") as server,
        opened_calls(tmp_path, server.base_url) as calls,
    ):
        (first,) = together(calls, calls.ask(request()))
        (again,) = together(calls, calls.ask(request()))
        assert first == again
        assert first.answer.content.startswith("so ")
        assert len(server.requests) == 1


def test_the_meter_adds_up_calls_tokens_stages_and_cost(tmp_path: Path) -> None:
    def script(_: Any) -> Reply:
        body = completion("fine")
        body["usage"]["prompt_tokens_details"] = {"cached_tokens": 20}
        return Reply(body)

    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, price=Price(1.0, 2.0, 0.5)) as calls,
    ):
        asking = [request("a"), request("b"), request("c", stage="summary")]
        together(calls, *(calls.ask(one) for one in asking))
        meter = calls.meter
        assert (meter.calls, meter.replayed, meter.retries) == (3, 0, 0)
        assert (meter.prompt_tokens, meter.completion_tokens) == (150, 30)
        assert meter.by_stage == {"rollout": 2, "summary": 1}
        assert meter.cost == pytest.approx(3 * (30 * 1.0 + 20 * 0.5 + 10 * 2.0) / 1e6)


tokens = st.integers(min_value=0, max_value=10_000)
dollars = st.floats(min_value=0, max_value=100)


@given(prompt=tokens, cached=tokens, completed=tokens, price=dollars, out=dollars, hit=dollars)
def test_a_price_counts_cached_tokens_apart(
    prompt: int, cached: int, completed: int, price: float, out: float, hit: float
) -> None:
    cached = min(prompt, cached)
    answer = Answer("", "stop", prompt, cached, completed)
    plain = (prompt * price + completed * out) / 1e6
    assert Price(price, out).cost(answer) == pytest.approx(plain)
    expected = ((prompt - cached) * price + cached * hit + completed * out) / 1e6
    assert Price(price, out, hit).cost(answer) == pytest.approx(expected)
    assert FREE.cost(answer) == 0


def test_a_cost_that_is_not_known_whole_is_not_told() -> None:
    meter, answer = Meter(), Answer("", "stop", 10, 0, 10)
    meter.count("rollout", answer, Price(1, 1))
    meter.count("summary", answer, None)
    meter.count("rollout", answer, Price(1, 1))
    assert meter.cost is None
    assert meter.calls == 3


def test_a_redacted_answer_is_not_replayed_as_if_the_model_had_said_it(tmp_path: Path) -> None:
    from tfgrpo.store import Store
    from tfgrpo.store.redact import Target, redact

    with ScriptedEndpoint(lambda _: "log in with hunter22") as server:
        with opened_calls(tmp_path, server.base_url) as calls:
            together(calls, calls.ask(request("a")))
        with Store.open(tmp_path / "store.db") as store:
            redact(store, Target(texts=("hunter22",)), reason="leak")
        with (
            opened_calls(tmp_path, server.base_url) as calls,
            pytest.raises(CallFailed, match="redacted"),
        ):
            together(calls, calls.ask(request("a")))
        assert len(server.requests) == 1
