"""The gateway of an attempt: what goes through it, in which format, and what is on record of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import openai
import pytest
from scripted import opened_calls
from wires import USAGE, Said, WireEndpoint

from tfgrpo.agents.agent_attempts import AgentRollout
from tfgrpo.agents.function_agent import AgentContext, Attempt, FunctionAgent
from tfgrpo.data.problems import Problem
from tfgrpo.domains.base import Context, Sampling, Trajectory
from tfgrpo.domains.verifier import Verifier
from tfgrpo.model.budget import Budget, BudgetReached
from tfgrpo.model.client import Calls
from tfgrpo.store import ROOT
from tfgrpo.store.canonical import canonical
from tfgrpo.store.errors import StoreError
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
    assert "goes around its gateway" in notes[0]


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
    from tfgrpo.domains.base import Domain
    from tfgrpo.model.endpoint import CallFailed
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
    from tfgrpo.model.endpoint import CallFailed

    with (
        WireEndpoint(looks_up) as server,
        rigged(tmp_path, server, verifier) as rig,
        pytest.raises(CallFailed, match=f"raised {type(error).__name__}"),
    ):
        rig.attempt(leaves(error, later=later))


def test_an_agent_whose_own_scope_cancels_it_fails_alone(
    tmp_path: Path, verifier: Verifier
) -> None:
    from tfgrpo.model.endpoint import CallFailed

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


HALF = "caf\udce9"


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
    from tfgrpo.model.endpoint import CallFailed

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
