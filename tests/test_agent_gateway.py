"""The gateway of an attempt: what goes through it, in which format, and what is on record of it."""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
import pytest
from scripted import opened_calls
from waiting import until, until_so
from wires import USAGE, Said, WireEndpoint

from tfgrpo.agents.agent_attempts import AgentRollout
from tfgrpo.agents.function_agent import AgentContext, Attempt, FunctionAgent
from tfgrpo.agents.gateway import Desk, Gateway, Reply
from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Context, Domain, Sampling, Trajectory, Verdict
from tfgrpo.domains.verifier import Verifier
from tfgrpo.model import secrets
from tfgrpo.model.budget import Budget, BudgetReached
from tfgrpo.model.client import Calls
from tfgrpo.model.endpoint import CallFailed
from tfgrpo.rollout.agent_loop import bounded
from tfgrpo.store import ROOT
from tfgrpo.store.activity.runs import Call
from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import InvalidOperation, StoreError
from tfgrpo.store.records import Experience, Library

LESSON = 'Look it up first, then "answer" briefly — ja.'
LIBRARY = Library(ROOT, (Experience("e1", LESSON, 0),))
TOOL = "look_up"


def looks_up(path: str, body: dict[str, Any]) -> Said:
    """Calls a tool first, and answers when it has the result."""
    return "The answer is 12." if "RESULT-12" in json.dumps(body) else (TOOL, {"of": "p"})


@dataclass
class Rig:
    """Calls to an endpoint, with which attempts can be made."""

    calls: Calls
    verifier: Verifier

    def context(self, sample: int = 0, library: Library | None = LIBRARY) -> Context:
        return Context(
            problem=Problem("p", "What is p?", "12"),
            messages=(("system", "Solve it."), ("user", "What is p?")),
            calls=self.calls,
            judge=self.calls,
            verifier=self.verifier,
            sampling=Sampling(seed=3, max_tokens=512),
            sample=sample,
            call_path=(1, "p"),
            library=library,
        )

    def attempt(self, agent: Any, context: Context | None = None, **more: Any) -> Trajectory:
        """Makes one attempt."""
        made = AgentRollout(FunctionAgent(agent, 4), None, None)

        async def run() -> Trajectory:
            try:
                async with made.opened(more.get("seconds", 30.0)) as rollout:
                    return await rollout(context or self.context())
            finally:
                await self.calls.endpoint.close()

        return asyncio.run(run())


@contextmanager
def rigged(folder: Path, server: WireEndpoint, verifier: Verifier, **more: Any) -> Iterator[Rig]:
    with opened_calls(folder, server.base_url, api_key="endpoint-key-1", **more) as calls:
        yield Rig(calls, verifier)


async def by_chat(problem: Problem, context: AgentContext) -> str:
    client = context.openai()
    tool = {"type": "function", "function": {"name": TOOL, "parameters": {"type": "object"}}}
    messages: list[Any] = [{"role": "user", "content": problem.problem}]
    while True:
        made = await client.chat.completions.create(model="x", messages=messages, tools=[tool])
        message = made.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return str(message.content)
        call = message.tool_calls[0]
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "RESULT-12"})


async def by_chat_stream(problem: Problem, context: AgentContext) -> str:
    client = context.openai()
    messages: list[Any] = [{"role": "user", "content": problem.problem}]
    while True:
        text, name, given = "", "", ""
        chunks = await client.chat.completions.create(model="x", messages=messages, stream=True)
        async for chunk in chunks:
            assert chunk.choices, "usage that was not asked for is not passed on"
            delta = chunk.choices[0].delta
            text += delta.content or ""
            for call in delta.tool_calls or ():
                name += (call.function and call.function.name) or ""
                given += (call.function and call.function.arguments) or ""
        if not name:
            return text
        function = {"name": name, "arguments": given}
        called = {"id": "call_1", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": "", "tool_calls": [called]})
        messages.append({"role": "tool", "tool_call_id": "call_1", "content": "RESULT-12"})


async def by_responses(problem: Problem, context: AgentContext) -> str:
    client = context.openai()
    items: list[Any] = [{"role": "user", "content": problem.problem}]
    while True:
        made = await client.responses.create(model="x", input=items, instructions="Be brief.")
        item = made.output[0]
        if item.type != "function_call":
            return str(made.output_text)
        items.append(item.model_dump(exclude_none=True))
        given = {"type": "function_call_output", "call_id": item.call_id, "output": "RESULT-12"}
        items.append(given)


async def by_response_stream(problem: Problem, context: AgentContext) -> str:
    client = context.openai()
    items: list[Any] = [{"role": "user", "content": problem.problem}]
    while True:
        text = ""
        async for event in await client.responses.create(model="x", input=items, stream=True):
            if event.type == "response.output_text.delta":
                text += event.delta
            if event.type == "response.completed":
                item = event.response.output[0]
        if item.type != "function_call":
            return text
        items.append(item.model_dump(exclude_none=True))
        given = {"type": "function_call_output", "call_id": item.call_id, "output": "RESULT-12"}
        items.append(given)


async def by_messages(problem: Problem, context: AgentContext, *, stream: bool = False) -> str:
    client: Any = context.anthropic()
    assert type(client).__name__ == "AsyncAnthropic"
    messages: list[Any] = [{"role": "user", "content": problem.problem}]
    cached = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    while True:
        asked = {"model": "x", "max_tokens": 300, "system": [cached], "messages": messages}
        if stream:
            async with client.messages.stream(**asked) as events:
                made = await events.get_final_message()
        else:
            made = await client.messages.create(**asked)
        block = made.content[0]
        if block.type == "text":
            return str(block.text)
        messages.append({"role": "assistant", "content": [block.model_dump()]})
        result = {"type": "tool_result", "tool_use_id": block.id, "content": "RESULT-12"}
        messages.append({"role": "user", "content": [result]})


async def by_message_stream(problem: Problem, context: AgentContext) -> str:
    return await by_messages(problem, context, stream=True)


WAYS = (by_chat, by_chat_stream, by_responses, by_response_stream, by_messages, by_message_stream)


@pytest.mark.parametrize("agent", WAYS, ids=lambda one: one.__name__)
def test_every_format_has_the_library_and_gives_the_same_trajectory(
    tmp_path: Path, verifier: Verifier, agent: Any
) -> None:
    if "message" in agent.__name__:
        pytest.importorskip("anthropic", reason="the client of Anthropic's is missing")
    with WireEndpoint(looks_up) as server, rigged(tmp_path, server, verifier) as rig:
        trajectory = rig.attempt(agent)
        meter = rig.calls.meter
        assert trajectory.response == "The answer is 12."
        first, result, last = trajectory.messages
        (call,) = first["tool_calls"]
        assert call["function"] == {"name": TOOL, "arguments": '{"of": "p"}'}
        assert (result["role"], result["content"]) == ("tool", "RESULT-12")
        assert (last["role"], last["content"]) == ("assistant", "The answer is 12.")
        assert len(trajectory.calls) == len(server.requests) == 2
        for _, body in server.requests:
            assert json.dumps(body, ensure_ascii=False).count(LESSON.replace('"', '\\"')) == 1
            assert body["model"] == "scripted"
        assert (meter.calls, meter.prompt_tokens, meter.completion_tokens) == (
            2,
            2 * USAGE[0],
            2 * USAGE[1],
        )
        assert not meter.estimated
        sent = json.dumps(server.headers)
        assert "endpoint-key-1" in sent
        assert "attempt-" not in sent, "the token stays on this machine"
        if "message" in agent.__name__:
            assert "system" in server.requests[0][1]
            assert server.headers[0]["x-api-key"] == "endpoint-key-1"
            assert "authorization" not in server.headers[0]
            assert server.requests[0][1]["system"][0]["cache_control"] == {"type": "ephemeral"}
            assert server.requests[0][1]["max_tokens"] == 300
        asked = len(server.requests)
        again = rig.attempt(agent)
        assert again == trajectory, "the same attempt again is answered from the record"
        assert len(server.requests) == asked
        other = rig.attempt(agent, rig.context(sample=1))
        assert other.messages == trajectory.messages
        assert len(server.requests) == 2 * asked, "another sample is another one"


def test_what_differs_from_there_on_is_new(tmp_path: Path, verifier: Verifier) -> None:
    told = {"word": "first"}

    async def agent(problem: Problem, context: AgentContext) -> str:
        client = context.openai()
        said = ""
        for text in ("one", "one", told["word"]):
            messages: Any = [{"role": "user", "content": text}]
            made = await client.chat.completions.create(model="x", messages=messages)
            said += str(made.choices[0].message.content)
        return said

    answers = iter(range(100))
    with (
        WireEndpoint(lambda path, body: f"<{next(answers)}>") as server,
        rigged(tmp_path, server, verifier) as rig,
    ):
        assert rig.attempt(agent).response == "<0><1><2>"
        assert rig.attempt(agent).response == "<0><1><2>"
        told["word"] = "second"
        assert rig.attempt(agent).response == "<0><1><3>"
        assert len(server.requests) == 4


def test_calls_of_two_conversations_are_one_trajectory(tmp_path: Path, verifier: Verifier) -> None:
    async def agent(problem: Problem, context: AgentContext) -> Attempt:
        client = context.openai()

        async def ask(*texts: str) -> str:
            roles = ("user", "assistant")
            messages: Any = [
                {"role": roles[n % 2], "content": text} for n, text in enumerate(texts)
            ]
            made = await client.chat.completions.create(model="x", messages=messages)
            return str(made.choices[0].message.content)

        first = await ask("main")
        side = await ask("side question")
        last = await ask("main", first, f"helper: {side}")
        return Attempt(last)

    def script(path: str, body: dict[str, Any]) -> str:
        return f"to {body['messages'][-1]['content'][:6]}"

    with WireEndpoint(script) as server, rigged(tmp_path, server, verifier) as rig:
        trajectory = rig.attempt(agent)
    said = [(m["role"], m["content"]) for m in trajectory.messages]
    assert said == [
        ("assistant", "to main"),
        ("user", "helper: to side q"),
        ("assistant", "to helper"),
        ("user", "side question"),
        ("assistant", "to side q"),
        ("assistant", "to helper"),
    ]


def test_a_key_of_ones_own_leads_to_the_attempt_and_no_other_key_anywhere(
    tmp_path: Path, verifier: Verifier
) -> None:
    seen: dict[str, Any] = {}

    async def agent(problem: Problem, context: AgentContext) -> str:
        own = openai.AsyncOpenAI(base_url=context.base_url, api_key="sk-my-own")
        messages: Any = [{"role": "user", "content": "x"}]
        made = await own.chat.completions.create(model="x", messages=messages)
        bare = context.base_url.replace(f"/{context.api_key}", "")
        keyed = openai.AsyncOpenAI(base_url=bare, api_key=context.api_key)
        seen["models"] = [one.id for one in (await keyed.models.list()).data]
        stranger = openai.AsyncOpenAI(base_url=bare, api_key="sk-guessed", max_retries=0)
        with pytest.raises(openai.AuthenticationError):
            await stranger.chat.completions.create(model="x", messages=messages)
        with pytest.raises(openai.NotFoundError, match="an attempt's gateway answers"):
            await keyed.embeddings.create(model="x", input="words")
        with pytest.raises(openai.BadRequestError, match="no JSON object"):
            await keyed.post("/chat/completions", cast_to=object, body=[1])
        seen["old"] = keyed
        return str(made.choices[0].message.content)

    with (
        WireEndpoint(lambda path, body: "yes") as server,
        rigged(tmp_path, server, verifier) as rig,
    ):
        assert rig.attempt(agent).response == "yes"
        assert seen["models"] == ["scripted"]
        assert len(server.requests) == 1


def test_an_agent_that_goes_around_is_noticed(tmp_path: Path, verifier: Verifier) -> None:
    async def around(problem: Problem, context: AgentContext) -> str:
        return "12"

    async def tells(problem: Problem, context: AgentContext) -> str:
        context.record("12", prompt_tokens=3, completion_tokens=1)
        return "12"

    with (
        WireEndpoint(looks_up) as server,
        rigged(tmp_path, server, verifier) as rig,
    ):
        notes: list[str] = []
        rig.calls.endpoint.adaptation.on_note = notes.append
        rig.attempt(tells)
        assert not notes
        rig.attempt(around)
        rig.attempt(around)
    assert len(notes) == 1
    assert "bypasses its gateway" in notes[0]


def test_a_budget_bounds_an_agent_and_ends_it(tmp_path: Path, verifier: Verifier) -> None:
    ended: list[str] = []

    async def never_done(problem: Problem, context: AgentContext) -> str:
        client = context.openai()
        try:
            for number in range(1000):
                messages: Any = [{"role": "user", "content": f"{number} {'x' * 80}"}]
                await client.chat.completions.create(model="x", messages=messages, max_tokens=20)
        except openai.PermissionDeniedError as error:
            ended.append(str(error))
            await asyncio.Event().wait()
        return "never"

    with (
        WireEndpoint(lambda path, body: "more") as server,
        rigged(tmp_path, server, verifier, budget=Budget(1000, in_tokens=True)) as rig,
    ):
        with pytest.raises(BudgetReached, match="the budget of 1,000 tokens is reached"):
            rig.attempt(never_done, rig.context(library=None))
        asked = len(server.requests)
        assert asked * sum(USAGE) <= 1000
        assert 5 < asked < 17
        assert not ended or "budget" in ended[0]


def test_an_answer_that_cannot_be_recorded_ends_the_run_and_is_asked_for_once(
    tmp_path: Path, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise StoreError("cannot write: no space left on the disk")

    with (
        WireEndpoint(lambda path, body: "12") as server,
        rigged(tmp_path, server, verifier) as rig,
    ):
        monkeypatch.setattr(rig.calls, "_record", full)
        with pytest.raises(StoreError, match="no space left"):
            rig.attempt(by_chat)
        assert len(server.requests) == 1


def test_an_agent_that_hangs_or_breaks_fails_alone(tmp_path: Path, verifier: Verifier) -> None:
    from tfgrpo.rollout.attempt import attempt

    async def hangs(problem: Problem, context: AgentContext) -> str:
        await asyncio.Event().wait()
        return ""

    async def breaks(problem: Problem, context: AgentContext) -> str:
        raise LookupError("no such tool: look_up")

    async def gives(problem: Problem, context: AgentContext) -> Any:
        return 12

    async def verify(context: Context, trajectory: Trajectory) -> Any:
        raise AssertionError("nothing is judged")

    with WireEndpoint(looks_up) as server, rigged(tmp_path, server, verifier) as rig:
        with pytest.raises(CallFailed, match=r"gave no answer in 0\.2 s"):
            rig.attempt(hangs, seconds=0.2)
        with pytest.raises(CallFailed, match="gave 12, and no text or Attempt"):
            rig.attempt(gives)

        async def failed() -> Any:
            made = AgentRollout(FunctionAgent(breaks, 4), None, None)
            async with made.opened(5.0) as rollout:
                domain = Domain(name="x", verify=verify, rollout=rollout)
                return await attempt(domain, replace(rig.context()))

        found = asyncio.run(failed())
        assert found.outcome == "failed"
        assert "LookupError: no such tool: look_up" in found.reason


def leaves(error: BaseException, *, later: bool) -> Any:
    """An agent that ends with an error: a plain function, or an `async` one that has waited."""

    def at_once(problem: Problem, context: AgentContext) -> str:
        raise error

    async def after_a_wait(problem: Problem, context: AgentContext) -> str:
        await asyncio.sleep(0)
        raise error

    return after_a_wait if later else at_once


ENDS = (SystemExit(0), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit())


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("error", ENDS, ids=lambda one: type(one).__name__)
def test_an_agent_that_would_end_the_program_fails_alone(
    tmp_path: Path, verifier: Verifier, error: BaseException, later: bool
) -> None:
    with (
        WireEndpoint(looks_up) as server,
        rigged(tmp_path, server, verifier) as rig,
        pytest.raises(CallFailed, match=f"raised {type(error).__name__}"),
    ):
        rig.attempt(leaves(error, later=later))


@pytest.mark.parametrize("error", ENDS[:2], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("how", ["awaited", "TaskGroup"])
def test_an_agent_whose_task_would_end_the_program_fails_alone(
    tmp_path: Path, verifier: Verifier, error: BaseException, how: str
) -> None:
    async def ends() -> None:
        await asyncio.sleep(0)
        raise error

    async def agent(problem: Problem, context: AgentContext) -> str:
        if how == "TaskGroup":
            async with asyncio.TaskGroup() as group:
                group.create_task(ends())
        await asyncio.create_task(ends())
        return "an answer, though it ended"

    with (
        WireEndpoint(looks_up) as server,
        rigged(tmp_path, server, verifier) as rig,
        pytest.raises(CallFailed, match=f"raised {type(error).__name__}|in a TaskGroup"),
    ):
        rig.attempt(agent)


def test_a_task_that_an_agent_leaves_in_the_background_ends_itself_alone(
    tmp_path: Path, verifier: Verifier
) -> None:
    over = asyncio.Event()

    async def agent(problem: Problem, context: AgentContext) -> str:
        async def ends() -> None:
            await over.wait()
            raise SystemExit(1)

        tasks.append(asyncio.create_task(ends()))
        tasks.append(asyncio.create_task(asyncio.sleep(60)))
        tasks[1].cancel()  # before it has begun
        return "12"

    tasks: list[asyncio.Task[None]] = []
    with WireEndpoint(looks_up) as server, rigged(tmp_path, server, verifier) as rig:
        made = AgentRollout(FunctionAgent(agent, 4), None, None)

        async def run() -> str:
            async with made.opened(30.0) as rollout:
                response = (await rollout(rig.context())).response
                over.set()
                (left, cancelled) = await asyncio.gather(*tasks, return_exceptions=True)
                assert type(left).__name__ == "SystemExit"
                assert isinstance(left, Exception)
                assert isinstance(cancelled, asyncio.CancelledError)
            await rig.calls.endpoint.close()
            return response

        assert asyncio.run(run()) == "12"


def test_an_agent_whose_own_scope_cancels_it_fails_alone(
    tmp_path: Path, verifier: Verifier
) -> None:
    async def cancels_itself(problem: Problem, context: AgentContext) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()
        return "never"

    with (
        WireEndpoint(looks_up) as server,
        rigged(tmp_path, server, verifier) as rig,
        pytest.raises(CallFailed, match="the agent cancelled itself"),
    ):
        rig.attempt(cancels_itself)


def posted(context: AgentContext, body: Any, **more: Any) -> tuple[int, dict[str, Any], str]:
    """Sends a request as no client of a provider's would; returns status, body and whether another
    try is worth it. Raises OSError where there is no answer."""
    where = urlsplit(context.base_url)
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    connection = http.client.HTTPConnection(
        str(where.hostname), where.port, timeout=more.get("timeout", 60)
    )
    try:
        path = where.path + more.get("path", "/chat/completions")
        connection.request(more.get("method", "POST"), path, raw)
        response = connection.getresponse()
        again = response.headers.get("x-should-retry", "")
        return response.status, json.loads(response.read() or b"{}"), again
    finally:
        connection.close()


USER: dict[str, Any] = {"role": "user", "content": "x"}
HALF = "caf\udce9"


@pytest.mark.parametrize(
    ("body", "more", "status"),
    [
        (b"", {"method": "HEAD", "path": "/models"}, 200),
        ({"messages": [{**USER, "content": HALF}]}, {}, 400),
        ({"messages": [USER], "temperature": math.nan}, {}, 400),
        ({"messages": [{**USER, "content": HALF}]}, {"path": "/messages/count_tokens"}, 400),
        ({"messages": [USER, {"role": "assistant", "content": "", "tool_calls": 5}]}, {}, 200),
        ({"input": "x", "previous_response_id": {"a": 1}}, {"path": "/responses"}, 200),
    ],
)
def test_whatever_a_client_sends_is_answered(
    tmp_path: Path, verifier: Verifier, body: Any, more: dict[str, Any], status: int
) -> None:
    def agent(problem: Problem, context: AgentContext) -> str:
        answered, _, again = posted(context, body, **more)
        assert (answered, again) == (status, "" if status == 200 else "false")
        return "12"

    with (
        WireEndpoint(lambda path, body: "12") as server,
        rigged(tmp_path, server, verifier) as rig,
    ):
        assert rig.attempt(agent).response == "12"
        assert len(server.requests) == (status == 200 and body != b"")


def test_an_error_of_the_gateways_own_is_an_answer_and_final(
    tmp_path: Path, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object) -> Any:
        raise LookupError("a bug")

    def agent(problem: Problem, context: AgentContext) -> str:
        status, said, again = posted(context, {"messages": [USER]})
        assert (status, again) == (500, "false")
        return str(said["error"]["message"])

    monkeypatch.setattr("tfgrpo.agents.gateway.answer_message", breaks)
    with WireEndpoint(looks_up) as server, rigged(tmp_path, server, verifier) as rig:
        assert "LookupError: a bug" in rig.attempt(agent).response


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_client_that_gives_up_and_asks_again_is_paid_for_once(
    is_busy: bool, tmp_path: Path, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the gateway's thread sees that the client is gone when the answer is there."""
    may_answer, answers = threading.Event(), iter(range(10))
    is_answered, goes_on = threading.Event(), threading.Event()
    made = Gateway._ask

    async def ask(gateway: Gateway, *given: Any) -> Reply:
        if is_busy:
            gateway._loop.call_soon_threadsafe(goes_on.wait, 60)
        try:
            return await made(gateway, *given)
        finally:
            asyncio.get_running_loop().call_later(0.1, is_answered.set)

    monkeypatch.setattr(Gateway, "_ask", ask)

    def script(path: str, body: dict[str, Any]) -> str:
        may_answer.wait(60)
        return f"<{next(answers)}>"

    def agent(problem: Problem, context: AgentContext) -> str:
        body = {"messages": [USER]}
        with pytest.raises(TimeoutError):
            posted(context, body, timeout=0.5)
        until(lambda: bool(server.requests))
        may_answer.set()
        if is_busy:
            assert is_answered.wait(60)
        goes_on.set()
        texts = [posted(context, body)[1]["choices"][0]["message"]["content"] for _ in range(2)]
        return " ".join(texts)

    with WireEndpoint(script) as server, rigged(tmp_path, server, verifier) as rig:
        trajectory = rig.attempt(agent)
        assert trajectory.response == "<0> <1>", "what was answered is another turn from then on"
        assert len(server.requests) == len(trajectory.calls) == 2


def test_two_that_ask_the_same_at_once_get_an_answer_each(
    tmp_path: Path, verifier: Verifier
) -> None:
    both = threading.Barrier(2)

    def script(path: str, body: dict[str, Any]) -> str:
        return f"<{both.wait(60)}>"

    async def agent(problem: Problem, context: AgentContext) -> str:
        create = context.openai().chat.completions.create
        messages: Any = [USER]
        made = await asyncio.gather(*(create(model="x", messages=messages) for _ in range(2)))
        return " ".join(sorted(str(one.choices[0].message.content) for one in made))

    with WireEndpoint(script) as server, rigged(tmp_path, server, verifier) as rig:
        assert rig.attempt(agent).response == "<0> <1>"


def test_an_agent_that_is_over_asks_nothing_more(tmp_path: Path, verifier: Verifier) -> None:
    """A call that waits for its turn is given up with its attempt."""
    waiting, ended = asyncio.Event(), asyncio.Event()

    async def never(*_: object, **__: object) -> Any:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def agent(problem: Problem, context: AgentContext) -> str:
        if context.sample == 1:  # the gateway is open until it knows
            await ended.wait()
            return "12"
        messages: Any = [USER]
        create = context.openai(max_retries=0).chat.completions.create
        task = asyncio.create_task(create(model="x", messages=messages))
        await waiting.wait()
        assert not task.done()
        return "12"

    async def run() -> None:
        async with AgentRollout(FunctionAgent(agent, 4), None, None).opened(30.0) as rollout:
            assert (await rollout(rig.context())).response == "12"
            assert (await rollout(rig.context(sample=1))).response == "12"
        await rig.calls.endpoint.close()

    with WireEndpoint(looks_up) as server, rigged(tmp_path, server, verifier) as rig:
        rig.calls.ask = never  # type: ignore[method-assign]
        asyncio.run(run())


def test_a_client_that_blocks_the_loop_of_its_run_hears_why(
    tmp_path: Path, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def agent(problem: Problem, context: AgentContext) -> str:
        status, said, again = posted(context, {"messages": [USER]}, timeout=20)
        assert (status, again) == (500, "false")
        raise LookupError(said["error"]["message"])

    monkeypatch.setattr("tfgrpo.agents.gateway.HELD_UP", 0.5, raising=False)
    with (
        WireEndpoint(looks_up) as server,
        rigged(tmp_path, server, verifier) as rig,
        pytest.raises(CallFailed, match="use an asynchronous client in an `async` function"),
    ):
        rig.attempt(agent)
    assert not server.requests


@pytest.mark.parametrize("later", [False, True])
def test_a_proxy_of_the_environment_is_not_on_the_way_to_the_gateway(
    tmp_path: Path, verifier: Verifier, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    messages: Any = [USER]

    def at_once(problem: Problem, context: AgentContext) -> str:
        made = context.openai(max_retries=0).chat.completions.create(model="x", messages=messages)
        return str(made.choices[0].message.content)

    async def after_a_wait(problem: Problem, context: AgentContext) -> str:
        create = context.openai(max_retries=0).chat.completions.create
        return str((await create(model="x", messages=messages)).choices[0].message.content)

    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with (
        WireEndpoint(lambda path, body: "12") as server,
        rigged(tmp_path, server, verifier) as rig,
    ):
        assert rig.attempt(after_a_wait if later else at_once).response == "12"


def test_a_library_that_the_model_quotes_still_goes_into_each_request(
    tmp_path: Path, verifier: Verifier
) -> None:
    async def agent(problem: Problem, context: AgentContext) -> str:
        create = context.openai().chat.completions.create
        messages: Any = [USER]
        for text in ("go on", "and on"):
            made = await create(model="x", messages=messages)
            messages.append({"role": "assistant", "content": made.choices[0].message.content})
            messages.append({"role": "user", "content": f"{text}: {context.library}"})
        return str((await create(model="x", messages=messages)).choices[0].message.content)

    with (
        WireEndpoint(lambda path, body: f"I follow: {LESSON}") as server,
        rigged(tmp_path, server, verifier) as rig,
    ):
        rig.attempt(agent)
    first = [body["messages"][0] for _, body in server.requests]
    assert [one["role"] for one in first] == ["system"] * 3


@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_a_library_that_an_agent_puts_in_itself_is_there_once(
    tmp_path: Path, verifier: Verifier, role: str
) -> None:
    async def agent(problem: Problem, context: AgentContext) -> str:
        messages: Any = [{"role": role, "content": f"Mind this:\n{context.library}"}, USER]
        made = await context.openai().chat.completions.create(model="x", messages=messages)
        return str(made.choices[0].message.content)

    with (
        WireEndpoint(lambda path, body: "12") as server,
        rigged(tmp_path, server, verifier) as rig,
    ):
        rig.attempt(agent)
    ((_, body),) = server.requests
    assert len(body["messages"]) == 2


def test_what_requests_have_in_common_is_held_once(
    tmp_path: Path, verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    desks: list[Desk] = []

    async def agent(problem: Problem, context: AgentContext) -> str:
        create = context.openai().chat.completions.create
        messages: Any = [USER]
        for number in range(8):
            await create(model="x", messages=messages)
            messages += [{"role": "assistant", "content": "12"}, {**USER, "content": str(number)}]
        return "12"

    monkeypatch.setattr(Gateway, "dismiss", lambda _, desk: desks.append(desk))
    with (
        WireEndpoint(lambda path, body: "12") as server,
        rigged(tmp_path, server, verifier) as rig,
    ):
        rig.attempt(agent)
    (desk,) = desks
    held = [message for one in desk.passed for message in one.request]
    assert len(held) == sum(range(1, 17, 2)) + 8
    assert len(set(map(id, held))) == len({json.dumps(one) for one in held}) == 10


@pytest.mark.parametrize(
    "given",
    [
        HALF,
        Attempt(HALF),
        Attempt("caf?", messages=[{"role": HALF, "content": HALF}]),
        Attempt("caf?", messages=[{"role": "assistant", "content": "x", "tool_calls": 5}]),
        Attempt("caf?", files={HALF: HALF}),
        Attempt("caf?", files={"a.txt": 5}),  # type: ignore[dict-item]
        Attempt("caf?", words=None),  # type: ignore[arg-type]
    ],
)
def test_what_an_agent_gives_can_be_recorded(
    tmp_path: Path, verifier: Verifier, given: Any
) -> None:
    def agent(problem: Problem, context: AgentContext) -> Any:
        context.record(HALF, messages=[("user", HALF)])
        return given

    with WireEndpoint(looks_up) as server, rigged(tmp_path, server, verifier) as rig:
        context = rig.context()
        trajectory = rig.attempt(agent, context)
    assert trajectory.response == "caf?"
    canonical(list(trajectory.messages))
    canonical(list(context.elsewhere))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Attempt("12", reward="0.5"), "the reward '0.5' is no number"),  # type: ignore[arg-type]
        (Attempt("12", messages=5), "int"),  # type: ignore[arg-type]
        (
            Attempt(
                "12", messages=[{"role": "x", "tool_calls": [{"function": {"arguments": {1}}}]}]
            ),
            "set",
        ),
        (Attempt("12", files=[1]), "cannot be recorded"),  # type: ignore[arg-type]
        (10**30, "a number of tokens is from 0 to 1,000,000,000"),
        (-1, "a number of tokens is from 0 to 1,000,000,000"),
    ],
)
def test_what_cannot_be_recorded_fails_its_attempt_alone(
    tmp_path: Path, verifier: Verifier, given: Any, words: str
) -> None:
    def agent(problem: Problem, context: AgentContext) -> Any:
        if isinstance(given, int):
            context.record("12", prompt_tokens=given)
        return given

    with (
        WireEndpoint(looks_up) as server,
        rigged(tmp_path, server, verifier) as rig,
        pytest.raises(CallFailed, match=words),
    ):
        rig.attempt(agent)


def test_what_code_of_a_users_asks_a_model_is_without_a_known_secret(
    tmp_path: Path, verifier: Verifier
) -> None:
    secret = "zq-7f3Kd0Vb9sX2mWq81"
    secrets.know(secret, "SOME_KEY")

    async def agent(problem: Problem, context: AgentContext) -> str:
        said = {"role": "assistant", "content": f"It is {secret}."}
        return str(await context.reply([said]))

    with (
        WireEndpoint(lambda path, body: "Is it?") as server,
        rigged(tmp_path, server, verifier) as rig,
    ):
        context = rig.context()
        meta = {"persona": "Ada"}
        context = replace(context, problem=replace(context.problem, meta=meta))
        assert rig.attempt(agent, context).response == "Is it?"
        told = json.dumps(server.requests)
    assert "It is ***." in told
    assert secret not in told


async def right(context: Context, trajectory: Trajectory) -> Verdict:
    return Verdict(1.0, trajectory.response, "")


def test_what_a_function_tells_when_its_time_is_over_is_on_record_and_spent(
    tmp_path: Path, verifier: Verifier
) -> None:
    is_over, ended = threading.Event(), threading.Event()
    contexts: list[AgentContext] = []

    def agent(problem: Problem, context: AgentContext) -> str:
        contexts.append(context)
        context.record("first", prompt_tokens=100, completion_tokens=50)
        is_over.wait(240)
        context.record("late", prompt_tokens=5000, completion_tokens=4000)
        ended.set()
        return "12"

    async def run(rig: Rig, budget: Budget) -> None:
        async with AgentRollout(FunctionAgent(agent, 4), None, None).opened(0.1) as rollout:
            domain = bounded(Domain(name="x", verify=right, rollout=rollout), 4)
            with pytest.raises(CallFailed, match="no answer in"):
                await domain.rollout(rig.context())
            assert budget.spent == 150
            is_over.set()
            await asyncio.to_thread(ended.wait, 240)
            await until_so(lambda: budget.spent == 9150)
            with pytest.raises(BudgetReached):
                await domain.rollout(rig.context(sample=1))
        await rig.calls.finish_in_flight()
        await rig.calls.endpoint.close()

    budget = Budget(10_000, in_tokens=True)
    with (
        WireEndpoint(looks_up) as server,
        rigged(tmp_path, server, verifier, budget=budget) as rig,
    ):
        asyncio.run(run(rig, budget))
        connection = rig.calls._runs._port.connection  # type: ignore[attr-defined]
        query = "select prompt_tokens, completion_tokens from journal order by 1"
        assert connection.execute(query).fetchall() == [(100, 50), (5000, 4000)]
        with pytest.raises(InvalidOperation, match="the run is over"):
            contexts[0].record("later still", prompt_tokens=1)


def test_what_an_attempt_tells_is_on_record_though_it_is_cancelled_while_that_is_kept(
    tmp_path: Path, verifier: Verifier
) -> None:
    async def rollout(context: Context) -> Trajectory:
        for number in (1, 2, 3):
            context.record("x", prompt_tokens=number)
        return Trajectory("12")

    async def run(rig: Rig) -> None:
        keeping, go_on, append = asyncio.Event(), asyncio.Event(), rig.calls._journal.append

        async def slow(call: Call) -> None:
            keeping.set()
            await go_on.wait()
            await append(call)

        rig.calls._journal.append = slow  # type: ignore[method-assign]
        domain = bounded(Domain(name="x", verify=right, rollout=rollout), 4)
        attempt = asyncio.ensure_future(domain.rollout(rig.context()))
        await keeping.wait()
        attempt.cancel()
        await asyncio.gather(attempt, return_exceptions=True)
        go_on.set()
        await rig.calls.finish_in_flight()
        await rig.calls.endpoint.close()

    with WireEndpoint(looks_up) as server, rigged(tmp_path, server, verifier) as rig:
        asyncio.run(run(rig))
        connection = rig.calls._runs._port.connection  # type: ignore[attr-defined]
        rows = connection.execute("select prompt_tokens from journal order by 1").fetchall()
    assert rows == [(1,), (2,), (3,)]
