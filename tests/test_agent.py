"""Agents: attempts with tools by the chat API and in plain text, their record, and branches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from scripted import Reply, ScriptedEndpoint, completion, opened_calls

from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Context, Sampling, Trajectory
from tfgrpo.domains.verifier import Verifier
from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import Answer, CallFailed, Endpoint, NoTools, Request, Transient
from tfgrpo.rollout.agent_loop import CALLS, FINISH, Agent, AttemptLimits, Protocol
from tfgrpo.store import Store
from tfgrpo.store.activity.journal import Journal
from tfgrpo.store.canonical import canonical
from tfgrpo.store.records import ROOT, Experience, Library
from tfgrpo.tools import call_protocol
from tfgrpo.tools.corpus import Corpus
from tfgrpo.tools.tool import Arguments, Result, ToolSpec
from tfgrpo.tools.tool_call_record import RecordedResult, ToolRecord
from tfgrpo.tools.toolbox import Toolbox, ToolSettings

Script = Callable[[dict[str, Any]], str | Reply]

PASSAGES = [
    {"title": "Sund", "text": "Sund exports salt.", "url": "sund"},
    {"title": "Holm", "text": "Holm exports fish.", "url": "holm"},
]


def called(name: str, arguments: Any, *, id: str = "c1") -> Reply:
    """An answer that calls a tool by the chat API."""
    body = completion("", model="scripted")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    body["choices"][0]["message"] |= {
        "content": None,
        "tool_calls": [
            {"id": id, "type": "function", "function": {"name": name, "arguments": text}}
        ],
    }
    body["choices"][0]["finish_reason"] = "tool_calls"
    return Reply(body)


@contextmanager
def desk(folder: Path, script: Script) -> Iterator[tuple[Calls, ToolRecord, ScriptedEndpoint]]:
    with ScriptedEndpoint(script) as server, opened_calls(folder, server.base_url) as calls:
        store = Store.open(folder / "store.db")
        journal = Journal(store.port.records.writer())
        try:
            yield calls, ToolRecord(journal, store.runs, scope="here"), server
        finally:
            journal.close()
            store.close()


def box(folder: Path, *use: str) -> Toolbox:
    path = folder / "passages.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in PASSAGES))
    corpus = Corpus(path)
    settings = ToolSettings(use=use or ("search", "visit"), corpus=str(path))  # type: ignore[arg-type]
    return Toolbox(settings, corpus)


def rolled(
    folder: Path,
    script: Script,
    *,
    use: Sequence[str] = (),
    limits: AttemptLimits | None = None,
    way: Protocol = "auto",
    sample: int = 0,
    library: Library | None = None,
) -> tuple[Trajectory, list[dict[str, Any]]]:
    """Makes one attempt; also returns the requests that the model got."""
    with desk(folder, script) as (calls, record, server), Verifier(workers=1) as verifier:
        agent = Agent(box(folder, *use), record, limits=limits, protocol=way)
        context = Context(
            problem=Problem("p", "What does Sund export?", "salt"),
            messages=(("system", "Answer."), ("user", "What does Sund export?")),
            calls=calls,
            judge=calls,
            verifier=verifier,
            sampling=Sampling(0.7, 100, 0),
            sample=sample,
            call_path=(0, "p"),
            library=library,
        )
        return asyncio.run(agent.rollout(context)), server.requests


def searcher(request: dict[str, Any]) -> str | Reply:
    """Searches once by the chat API, then answers from what it found."""
    last = request["messages"][-1]
    if last["role"] == "tool":
        return "salt" if "salt" in last["content"] else "I do not know"
    return called("search", {"query": "Sund"})


# turns:


def test_a_tool_is_called_and_its_result_goes_into_the_next_turn(tmp_path: Path) -> None:
    found, requests = rolled(tmp_path, searcher)
    assert found.response == "salt"
    assert len(found.calls) == 2
    assert [m["role"] for m in found.messages] == ["assistant", "tool", "assistant"]
    assert found.messages[1]["name"] == "search"
    assert found.messages[1]["cached"] is False
    names = [tool["function"]["name"] for tool in requests[0]["tools"]]
    assert names == ["search", "visit"]
    sent = requests[1]["messages"][-1]
    assert set(sent) == {"role", "content", "tool_call_id"}, "our own marks stay here"
    assert sent["tool_call_id"] == "c1"


def test_what_an_agent_only_thought_is_not_its_answer(tmp_path: Path) -> None:
    found, _ = rolled(tmp_path, lambda _: "<think>pepper, or no</think>\nsalt")
    assert found.response == "salt"


@pytest.mark.parametrize("way", ["api", "text"])
def test_what_a_library_says_of_a_tool_is_its_description(tmp_path: Path, way: Protocol) -> None:
    words = "[tool search] Ask it in German."
    library = Library(ROOT, (Experience("0" * 12, words, 1), Experience("1" * 12, "Be brief.", 2)))
    _, requests = rolled(tmp_path, lambda _: "salt", way=way, library=library)
    shown = json.dumps(requests[0])
    assert "Ask it in German." in shown
    assert "[tool search]" not in shown
    assert "Returns the readable text of the page" in shown, "of other tools it says nothing"
    assert "the beginning of each result" not in shown


def test_several_calls_of_one_turn_are_all_answered(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if request["messages"][-1]["role"] == "tool":
            return "done"
        reply = called("search", {"query": "Sund"})
        body: Any = reply.body
        calls = body["choices"][0]["message"]["tool_calls"]
        calls.append(json.loads(json.dumps(calls[0])) | {"id": "c2"})
        return reply

    found, requests = rolled(tmp_path, script)
    results = [m for m in requests[1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == ["c1", "c2"]
    assert [m["cached"] for m in found.messages if m["role"] == "tool"] == [False, True]


def test_a_turn_makes_no_more_than_eight_calls_and_a_long_name_is_quoted_in_part(
    tmp_path: Path,
) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if request["messages"][-1]["role"] == "tool":
            return "done"
        reply = called("x" * 9000, {})
        body: Any = reply.body
        (call,) = body["choices"][0]["message"]["tool_calls"]
        body["choices"][0]["message"]["tool_calls"] = [call | {"id": f"c{n}"} for n in range(12)]
        return reply

    found, requests = rolled(tmp_path, script)
    results = [m for m in requests[1]["messages"] if m["role"] == "tool"]
    assert [m["tool_call_id"] for m in results] == [f"c{n}" for n in range(CALLS)]
    asked = next(m for m in requests[1]["messages"] if m["role"] == "assistant")
    assert len(asked["tool_calls"]) == CALLS == 8
    assert {len(m["content"]) for m in results} == {290}
    assert all(m["content"].startswith("there is no tool 'xxx") for m in results)
    assert found.response == "done"


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("fly", {}, "there is no tool 'fly': search, visit"),
        ("search", "not json at all", "cannot be read"),
        ("search", {}, "takes one argument"),
        ("search", "", "takes one argument"),
        ("search", [1], "cannot be read"),
        ("search", '{"query": "\\ud800"}', "cannot be read"),
        ("search", '{"query": NaN}', "cannot be read"),
        ("search", '{"query": "x", "count": 1e999}', "cannot be read"),
        ("search", '{"query":' + "[" * 100_000, "cannot be read"),
        ("search", '{"query":' + "[" * 900 + "]" * 900 + "}", "takes one argument"),
        ("search", '{"query": "Sund"', "Sund exports salt"),  # a brace is missing: mended
    ],
)
def test_calls_that_make_no_sense_are_answered_with_what_is_wrong(
    tmp_path: Path, name: str, arguments: Any, words: str
) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        last = request["messages"][-1]
        return "ok" if last["role"] == "tool" else called(name, arguments)

    found, _ = rolled(tmp_path, script)
    assert words in found.messages[1]["content"]
    assert found.response == "ok"


def test_at_the_last_turn_the_answer_is_asked_for_without_tools(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if request["messages"][-1]["content"] == FINISH:
            assert "tools" not in request
            return "at last"
        return called("search", {"query": f"q{len(request['messages'])}"})

    found, requests = rolled(tmp_path, script, limits=AttemptLimits(turns=3))
    assert found.response == "at last"
    assert len(requests) == 3


def test_tokens_are_a_limit_too(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if request["messages"][-1]["content"] == FINISH:
            return "enough"
        return called("search", {"query": f"q{len(request['messages'])}"})

    found, requests = rolled(tmp_path, script, limits=AttemptLimits(tokens=1))
    assert found.response == "enough"
    assert len(requests) == 2


# plain text:


def texter(request: dict[str, Any]) -> str:
    if "tools" in request:
        raise AssertionError("plain text sends no tools")
    last = request["messages"][-1]["content"]
    if last.startswith("Result:"):
        return "salt" if "salt" in last else "?"
    return (
        'Let me look. <tool>{"name": "search", "arguments": {"query": "Sund"}}</tool> Result: gold'
    )


def test_in_plain_text_the_call_ends_the_answer_and_what_follows_is_dropped(tmp_path: Path) -> None:
    found, requests = rolled(tmp_path, texter, way="text")
    assert found.response == "salt"
    assert "- search(query):" in requests[0]["messages"][0]["content"]
    assert found.messages[0]["content"].endswith("</tool>")
    assert "gold" not in json.dumps(requests[1]["messages"])


def test_an_endpoint_that_takes_no_tools_is_asked_in_plain_text_from_then_on(
    tmp_path: Path,
) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if "tools" in request:
            return Reply({"error": {"message": "tools are not supported"}}, status=400)
        return texter(request)

    found, requests = rolled(tmp_path, script)
    assert found.response == "salt"
    assert sum("tools" in request for request in requests) == 1
    with pytest.raises((NoTools, ExceptionGroup)):
        rolled(tmp_path, script, way="api", sample=1)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (503, "Tools backend overloaded, try again"),
        (500, "Failed to parse tool call arguments as JSON"),
        (400, "Failed to call a function (tool_use_failed)"),
    ],
)
def test_an_error_that_speaks_of_tools_ends_them_for_nobody_else(
    tmp_path: Path, status: int, words: str
) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        assert "tools" in request, "it takes them"
        if len(server.requests) == 1:
            return Reply({"error": {"message": words}}, status=status)
        return "salt"

    with ScriptedEndpoint(script) as server:
        endpoint = Endpoint("m", base_url=server.base_url, api_key="k")
        tool = {"type": "function", "function": {"name": "a", "parameters": {}}}
        request = Request("rollout", (("user", "x"),), 0.0, 9, tools=(tool,))

        async def ask() -> str:
            try:
                with pytest.raises((Transient, CallFailed)) as raised:
                    await endpoint.ask(request)
                assert not isinstance(raised.value, NoTools)
                return (await endpoint.ask(request)).content
            finally:
                await endpoint.close()

        assert asyncio.run(ask()) == "salt"


def test_whoever_has_answered_with_tools_takes_them(tmp_path: Path) -> None:
    def script(request: dict[str, Any]) -> str | Reply:
        if len(server.requests) == 2:
            return Reply({"error": {"message": "this tool is unknown"}}, status=400)
        return "salt"

    with ScriptedEndpoint(script) as server:
        endpoint = Endpoint("m", base_url=server.base_url, api_key="k")
        tool = {"type": "function", "function": {"name": "a", "parameters": {}}}
        request = Request("rollout", (("user", "x"),), 0.0, 9, tools=(tool,))

        async def ask() -> None:
            try:
                await endpoint.ask(request)
                with pytest.raises(CallFailed) as raised:
                    await endpoint.ask(request)
                assert not isinstance(raised.value, NoTools)
            finally:
                await endpoint.close()

        asyncio.run(ask())


def test_a_call_that_was_only_thought_of_is_none() -> None:
    call = '<tool>{"name": "a", "arguments": {}}</tool>'
    for text, expected in (
        (f"<think>I could {call}, no.</think>It is \\boxed{{77}}", []),
        (f"<think>Say <tool>...</tool>.</think>{call} Result: 3", [("a", {})]),
    ):
        calls = call_protocol.calls_in_text(Answer(text, "stop"))
        assert [(one.name, one.arguments) for one in calls] == expected
    assert call_protocol.until_call(f"<think>{call}</think>So {call} Result: 3") == f"So {call}"


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('<tool>{"name": "a", "arguments": {"x": 1}}</tool>', "a", {"x": 1}),
        ('<tool>{"name": "a", "arguments": {"x": "</tool>"}}</tool>', "a", {"x": "</tool>"}),
        ('<tool>{"name": "a", "arguments": {"x": 1}}', "a", {"x": 1}),
        ('<tool>{"name": "a", "arguments": {"x": 1</tool>', "a", {"x": 1}),
        ('<tool>{"name": "a"}</tool>', "a", {}),
        ('<tool>{"name": "a", "arguments": "x"}</tool>', "a", None),
        ("<tool>nothing</tool>", "", None),
        ("<tool></tool>", "", None),
    ],
)
def test_calls_in_text(text: str, name: str, arguments: Any) -> None:
    (found,) = call_protocol.calls_in_text(Answer(text, "stop"))
    assert (found.name, found.arguments) == (name, arguments)
    assert call_protocol.calls_in_text(Answer("no call", "stop")) == []


# the record:


def test_the_same_call_in_the_same_state_is_answered_from_the_record(tmp_path: Path) -> None:
    first, _ = rolled(tmp_path, searcher)
    again, requests = rolled(tmp_path, searcher, sample=1)
    assert [m["cached"] for m in first.messages if m["role"] == "tool"] == [False]
    assert [m["cached"] for m in again.messages if m["role"] == "tool"] == [True]
    assert len(requests) == 2, "another sample asks the model itself"


def test_a_rollout_that_is_made_again_asks_nothing(tmp_path: Path) -> None:
    first, _ = rolled(tmp_path, searcher)
    again, requests = rolled(tmp_path, searcher)
    assert requests == []
    assert first.response == again.response
    assert first.calls == again.calls


def test_python_state_survives_a_resume(tmp_path: Path) -> None:
    pytest.importorskip("resource")

    def script(cut: bool) -> Script:
        def answer(request: dict[str, Any]) -> str | Reply:
            results = [m for m in request["messages"] if m["role"] == "tool"]
            if not results:
                return called("python", {"code": "x = 41"})
            if len(results) == 1:
                return Reply(status=401) if cut else called("python", {"code": "x + 1"})
            return str(results[-1]["content"])

        return answer

    with pytest.raises(Exception, match="refused the key"):
        rolled(tmp_path, script(True), use=["python"])
    found, requests = rolled(tmp_path, script(False), use=["python"])
    assert found.response == "42"
    assert found.messages[1]["cached"] is True
    assert len(requests) == 2


def test_a_call_that_failed_is_recorded_for_its_own_run_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    Store.init(path, author="t").close()
    with Store.open(path) as store:
        journal = Journal(store.port.records.writer())
        visit = box(tmp_path).tools()[1]

        async def asked(scope: str) -> bool:
            record = ToolRecord(journal, store.runs, scope=scope)
            return (await record.call(visit, {"url": "nowhere"})).cached

        try:
            assert [asyncio.run(asked(scope)) for scope in ("a", "a", "b")] == [False, True, False]
        finally:
            journal.close()


class Dice:
    """A tool that never gives the same, once it may."""

    spec = ToolSpec("dice", "Throws dice.", {"type": "object"})
    state = ""

    def __init__(self, thrown: list[int]) -> None:
        self._thrown = thrown
        self.called, self.may_give = asyncio.Event(), asyncio.Event()

    async def call(self, arguments: Arguments) -> Result:
        self._thrown.append(len(self._thrown))
        number = self._thrown[-1]
        self.called.set()
        await self.may_give.wait()
        return Result(str(number), failed=bool(arguments))

    def recall(self, arguments: Arguments, result: Result) -> None:
        """Nothing is kept."""

    async def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("arguments", [{}, {"fail": 1}])
def test_attempts_that_make_the_same_call_at_once_see_what_is_on_record(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    thrown: list[int] = []
    with desk(tmp_path, searcher) as (_, record, _server):

        async def at_once() -> list[RecordedResult]:
            dice = Dice(thrown)
            calls = asyncio.gather(*(record.call(dice, arguments) for _ in range(5)))
            await dice.called.wait()
            dice.may_give.set()
            return await calls

        found = asyncio.run(at_once())
        assert {one.result.text for one in found} == {"0"}
        assert [one.cached for one in found] == [False, True, True, True, True]
        assert thrown == [0]


def test_who_waits_for_a_call_that_is_given_up_makes_it(tmp_path: Path) -> None:
    thrown: list[int] = []
    with desk(tmp_path, searcher) as (_, record, _server):

        async def given_up() -> str:
            dice = Dice(thrown)
            first = asyncio.create_task(record.call(dice, {}))
            second = asyncio.create_task(record.call(dice, {}))
            await dice.called.wait()
            first.cancel()
            dice.may_give.set()
            return (await second).result.text

        assert asyncio.run(given_up()) == "1"


# uncertainty and branches:


ODD_CALLS: list[Any] = [
    {"id": "\ud83d", "function": {"name": "\ud83d", "arguments": "{}"}},
    {"id": "c", "function": {"name": "never offered", "arguments": '{"a": NaN}'}},
    {"id": "c", "function": {"name": "x" * 100_000, "arguments": "{}"}},
    {"id": ["c"], "function": {"name": "search", "arguments": {"query": "\ud83d"}}},
    {"function": {"name": "search", "arguments": "[" * 100_000}},
    {"id": None, "function": {"name": "search", "arguments": '{"query": {"a": [1]}}'}},
    {"id": 5, "function": {"name": "visit", "arguments": '{"url": "\\ud83d"}'}},
    {"function": {"name": 5, "arguments": None}},
    {"function": "search"},
    None,
]


@pytest.mark.parametrize("way", ["api", "text"])
def test_whatever_a_model_calls_is_answered_and_can_be_kept(tmp_path: Path, way: Protocol) -> None:
    """Also where it was offered no tools, as in plain text and at the last turn."""

    def script(request: dict[str, Any]) -> Reply:
        done = sum(message["role"] == "assistant" for message in request["messages"])
        body = completion("salt")
        odd = ODD_CALLS[done % len(ODD_CALLS)]
        body["choices"][0]["message"]["tool_calls"] = [odd]
        return Reply(json.dumps(body).encode())

    found, requests = rolled(tmp_path, script, way=way, limits=AttemptLimits(turns=12))
    assert found.response == "salt"
    canonical(list(found.messages))
    for request in requests:
        json.dumps(request, ensure_ascii=False).encode()
    results = [message for message in found.messages if message["role"] == "tool"]
    assert all(message["failed"] for message in results)
    assert len(results) == (7 if way == "api" else 0)
