"""Limits are for the answer that can be seen, and an answer of nothing never passes silently."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import BaseModel
from scripted import (
    LESSON,
    Reply,
    ScriptedEndpoint,
    completion,
    opened_calls,
    stage,
    teachable,
    write_problems,
)
from standins import Server, StandIn, refuse

import tfgrpo
from tfgrpo.cli.main import tfgrpo as tfgrpo_cli
from tfgrpo.model import structured_answers
from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import Answer, CallFailed, EndpointOptions, Request
from tfgrpo.model.request_adaptation import FIRST_ROOM, MOST_ROOM
from tfgrpo.notices import Notice, WarningNotice

SMALL: dict[str, Any] = {"epochs": 1, "batch_size": 4, "group_size": 2, "patience": "5s"}
SMALL["policy"] = "paper"


def request(text: str = "Name the capital.", tokens: int = 400, **more: Any) -> Request:
    return Request("summary", (("user", text),), 0.0, tokens, **more)


def asked(
    folder: Path,
    stand_in: StandIn,
    work: Callable[[Calls], Coroutine[Any, Any, Any]],
    **options: Any,
) -> tuple[Any, Server, Calls]:
    with Server(stand_in, key="") as server:
        address = f"{server.address}/v1"
        with opened_calls(folder, address) as calls:
            calls.endpoint.options = EndpointOptions(**options)

            async def ask() -> Any:
                try:
                    return await work(calls)
                finally:
                    await calls.endpoint.close()

            return asyncio.run(ask()), server, calls


def limits(server: Server) -> list[int]:
    return [
        body.get("max_tokens") or body["max_completion_tokens"] for body in server.served.bodies
    ]


async def one(calls: Calls) -> Answer:
    return (await calls.ask(request())).answer


async def two(calls: Calls) -> list[Answer]:
    return [(await calls.ask(request(f"{n}"))).answer for n in range(2)]


def test_an_answer_that_thinking_used_up_is_asked_for_again_with_room(tmp_path: Path) -> None:
    notes: list[str] = []

    async def work(calls: Calls) -> list[Answer]:
        calls.endpoint.adaptation.on_note = notes.append
        return await two(calls)

    answers, server, calls = asked(tmp_path, StandIn(thinks=900), work)
    assert [answer.content for answer in answers] == ["Paris", "Paris"]
    assert limits(server) == [400, 400 + FIRST_ROOM, 400 + FIRST_ROOM], "and it is remembered"
    (note,) = notes
    assert "thinks before it answers" in note
    assert "2,048" in note
    assert answers[1].sent == {"room": FIRST_ROOM}
    assert calls.meter.completion_tokens > 400, "what thinking alone took is paid for"


def test_room_has_an_end_and_what_is_empty_to_it_is_so_on_record(tmp_path: Path) -> None:
    answer, server, _ = asked(tmp_path, StandIn(thinks=1 << 20), one)
    assert limits(server) == [400, 2448, 8592, 400 + MOST_ROOM]
    assert (answer.content, answer.finish_reason) == ("", "length")


def test_max_completion_tokens_bounds_answer_and_thinking_together(tmp_path: Path) -> None:
    answer, server, _ = asked(tmp_path, StandIn(thinks=5000), one, max_completion_tokens=1000)
    assert limits(server) == [400, 1000]
    assert answer.content == ""
    (tmp_path / "b").mkdir()
    most = 20_000
    answer, server, _ = asked(
        tmp_path / "b", StandIn(thinks=15_000), one, max_completion_tokens=most
    )
    assert limits(server)[-1] == most
    assert answer.content == "Paris"


def test_more_room_than_fits_is_made_less(tmp_path: Path) -> None:
    def check(body: dict[str, Any], _: object) -> None:
        if body["max_tokens"] > 1500:
            refuse(400, "This model's maximum context length is 2048 tokens.")

    answer, server, _ = asked(tmp_path, StandIn(thinks=900, check=check), one)
    assert answer.content == "Paris"
    assert limits(server) == [400, 2448, 1224]
    (tmp_path / "b").mkdir()

    async def long(calls: Calls) -> Answer:
        return (await calls.ask(request(tokens=1501))).answer

    with pytest.raises(CallFailed, match="maximum context"):
        asked(tmp_path / "b", StandIn(check=check), long)


def test_an_answer_that_is_cut_off_without_thinking_stays_as_long_as_it_was_allowed(
    tmp_path: Path,
) -> None:
    body = completion("as long as it may be", finish_reason="length")
    with ScriptedEndpoint(lambda _: Reply(body)) as server:
        with opened_calls(tmp_path, server.base_url) as calls:
            assert asyncio.run(one(calls)).truncated
        assert len(server.requests) == 1


def test_an_answer_that_thinking_left_unfinished_is_asked_for_again(tmp_path: Path) -> None:
    def script(sent: dict[str, Any]) -> Reply:
        short = sent["max_tokens"] < 1000
        body = completion("Par" if short else "Paris", finish_reason="length" if short else "stop")
        body["usage"] |= {
            "completion_tokens": 400,
            "completion_tokens_details": {"reasoning_tokens": 399},
        }
        return Reply(body)

    with ScriptedEndpoint(script) as server:
        with opened_calls(tmp_path, server.base_url) as calls:
            assert asyncio.run(one(calls)).content == "Paris"
        assert len(server.requests) == 2


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "TFGRPO_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    write_problems(tmp_path / "problems.jsonl", 4)
    return tmp_path


class PulledPlug(Exception):
    """The run's process is gone."""


def test_a_run_that_resumes_goes_on_with_what_it_had_found_out(folder: Path) -> None:
    def watch(notice: Notice) -> None:
        if type(notice).__name__ == "StepFinished":
            raise PulledPlug

    thinking = StandIn(schema="ignored", usage="none", thinks=900)
    with Server(thinking, key="") as server:
        given = {**SMALL, "epochs": 2, "model": "m", "max_tokens": 600}
        given["base_url"] = f"{server.address}/v1"
        with pytest.raises(PulledPlug):
            tfgrpo.train_sync("problems.jsonl", on_progress=watch, **given)
        first = limits(server)
        result = tfgrpo.train_sync("problems.jsonl", **given)
        later = limits(server)[len(first) :]
    assert [one.text for one in result.library] == [LESSON]
    assert 600 in first
    shown = CliRunner().invoke(tfgrpo_cli, ["runs", result.run.name])
    assert "asked m: 2,048 tokens of room for thinking" in shown.output
    listed = CliRunner().invoke(tfgrpo_cli, ["runs", result.run.name, "--json"])
    assert "tokens of room" in json.loads(listed.output)["asked"][0]
    assert set(later) == {600 + FIRST_ROOM}


def run(
    script: Callable[[dict[str, Any]], Any], **more: Any
) -> tuple[Any, list[str], ScriptedEndpoint]:
    notices: list[Notice] = []
    with ScriptedEndpoint(script) as server:
        result = tfgrpo.train_sync(
            "problems.jsonl",
            on_progress=notices.append,
            model="m",
            base_url=server.base_url,
            **{**SMALL, "group_size": 3, **more},
        )
    return result, [str(one) for one in notices if isinstance(one, WarningNotice)], server


def test_an_empty_summary_is_asked_for_again_and_never_used(folder: Path) -> None:
    result, told, server = run(lambda sent: "" if stage(sent) == "summary" else teachable(sent))
    assert len(result.library) == 0
    failures = [issue for issue in result.report.issues if issue.what == "summary"]
    assert failures
    assert all("it is empty" in issue.reason for issue in failures)
    assert server.stages["summary"] == 2 * len(failures)
    assert server.stages["comparison"] == 0
    assert any("gave no summary: it is empty" in text for text in told)


def test_an_attempt_without_an_answer_says_so(folder: Path) -> None:
    counts: dict[str, int] = {}

    def script(sent: dict[str, Any]) -> str:
        user = sent["messages"][-1]["content"]
        counts[user] = counts.get(user, 0) + 1
        return "" if stage(sent) == "rollout" and counts[user] == 1 else teachable(sent)

    result, told, _ = run(script)
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        reasons = [row.verdict["reason"] for row in store.rollouts(result.run.name)]
    assert reasons.count("the answer is empty (the model said nothing)") == 4
    assert any("gave an attempt whose answer is empty" in text for text in told)


class City(BaseModel):
    city: str
    population: int


@pytest.mark.parametrize("schema", ["ignored", "refused", "followed"])
def test_what_works_of_a_schema_is_remembered(schema: str, tmp_path: Path) -> None:
    async def work(calls: Calls) -> list[bool]:
        repaired = []
        for number in range(3):
            asks = request(f"City {number}?", schema=structured_answers.schema(City))
            typed = await structured_answers.ask(calls, asks, City, call_path=(number,))
            assert typed.value.city == "Paris"
            repaired.append(typed.repaired)
        return repaired

    repaired, server, calls = asked(tmp_path, StandIn(schema=schema), work)
    assert repaired == [False] * 3
    sent = [
        ("response_format" in body, "follows this schema" in body["messages"][-1]["content"])
        for body in server.served.bodies
    ]
    assert (
        sent
        == {
            "ignored": [(True, False), (True, True), (True, True), (True, True)],
            "refused": [(True, False), (False, True), (False, True), (False, True)],
            "followed": [(True, False)] * 3,
        }[schema]
    )
    assert calls.endpoint.adaptation.in_words == (schema == "ignored")


def test_thinking_that_is_left_before_an_answer_is_not_judged(folder: Path) -> None:
    def script(sent: dict[str, Any]) -> str:
        return f"<think>Is it \\boxed{{0}}? Perhaps {{}}.</think>\n{teachable(sent)}"

    result, _, _ = run(script)
    assert [one.text for one in result.library] == [LESSON]
    with tfgrpo.Store.open(folder / ".tfgrpo/store.db") as store:
        assert {row.verdict["answer"] for row in store.rollouts(result.run.name)}.isdisjoint({"0"})


def test_a_prompt_that_a_server_cuts_is_noticed(tmp_path: Path) -> None:
    notes: list[str] = []

    async def work(calls: Calls) -> Answer:
        calls.endpoint.adaptation.on_note = notes.append
        return (await calls.ask(request("a sheep went by. " * 2_000))).answer

    asked(tmp_path, StandIn(context=4096), work)
    (note,) = notes
    assert "4,096 tokens of a prompt of about" in note
    assert "OLLAMA_CONTEXT_LENGTH" in note
    notes.clear()
    (tmp_path / "b").mkdir()
    asked(tmp_path / "b", StandIn(), work)
    assert notes == []
