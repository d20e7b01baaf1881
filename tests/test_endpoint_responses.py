"""Whatever an endpoint sends, what is kept of it can be written, added up and sent again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Reply, ScriptedEndpoint, completion, opened_calls

from tfgrpo.model.endpoint import Answer, Endpoint, Request
from tfgrpo.model.response import MOST_TOKENS, UnusableResponse
from tfgrpo.store.canonical import canonical

REQUEST = Request(
    "rollout", (("system", "Be short."), ("user", "How many legs has an ant?")), 0, 64
)
HALF = "\ud83d"

texts = st.text(st.characters(exclude_categories=())) | st.just(HALF)
numbers = st.integers(-(2**70), 2**70) | st.floats() | st.booleans()
anything = st.recursive(
    st.none() | texts | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects that have these fields or not, each as it should be or as anything."""
    return st.fixed_dictionaries({}, optional={k: v | anything for k, v in fields.items()})


calls = st.lists(record(id=texts, function=record(name=texts, arguments=texts)), max_size=3)
parts = st.lists(record(type=texts, text=texts | record(value=texts)) | texts, max_size=3)
message = record(content=texts | parts, refusal=texts, tool_calls=calls)
logprobs = record(content=st.lists(record(top_logprobs=st.lists(record(logprob=numbers)))))
usage = record(
    prompt_tokens=numbers,
    completion_tokens=numbers,
    prompt_tokens_details=record(cached_tokens=numbers),
    completion_tokens_details=record(reasoning_tokens=numbers),
)
choices = st.lists(record(message=message, finish_reason=texts, logprobs=logprobs), max_size=2)
bodies = record(choices=choices, usage=usage) | anything


def check(answer: Answer) -> None:
    """Fails where an answer could not be journalled, added up or sent again."""
    canonical(answer.journal_fields()).decode()
    counts = (answer.prompt_tokens, answer.completion_tokens, answer.reasoning_tokens)
    assert all(type(n) is int and 0 <= n <= MOST_TOKENS for n in counts)
    assert 0 <= answer.cached_tokens <= answer.prompt_tokens
    assert all(isinstance(call["function"]["name"], str) for call in answer.tool_calls)


@settings(deadline=None)  # what is imported at the first call takes a while
@given(bodies, st.sampled_from([None, "sk-proj-Zz9SecretSecret4242"]))
def test_any_body_is_an_answer_that_can_be_kept_or_is_told_to_be_none(
    body: Any, key: str | None
) -> None:
    endpoint = Endpoint("m", None, key)
    try:
        check(endpoint._read(body, REQUEST, 1.0))
    except UnusableResponse as error:
        str(error).encode()


def broken(**fields: Any) -> dict[str, Any]:
    """Returns a completion with fields of its choice, its message or its usage replaced."""
    body = completion("fine")
    for name, value in fields.items():
        if name == "finish_reason":
            body["choices"][0][name] = value
        elif name == "usage":
            body[name] = value
        else:
            body["choices"][0]["message"][name] = value
    return body


def tool_call(**fields: Any) -> list[dict[str, Any]]:
    function = {"name": "f", "arguments": "{}", **fields}
    return [{"id": fields.pop("id", "c"), "type": "function", "function": function}]


ODD: dict[str, dict[str, Any]] = {
    "half a character as the reason": broken(finish_reason=f"stop{HALF}"),
    "half a character as a call's id": broken(tool_calls=tool_call(id=HALF)),
    "half a character as a function's name": broken(tool_calls=tool_call(name=HALF)),
    "a call that was not offered": broken(content=None, tool_calls=tool_call()),
    "usage beyond 63 bits": broken(usage={"prompt_tokens": 2**63, "completion_tokens": 2**64}),
    "usage that no sum bears": broken(usage={"prompt_tokens": 10**18, "completion_tokens": 10**18}),
    "content in parts": broken(content=[{"type": "text", "text": "fine"}]),
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_an_odd_answer_costs_no_other_of_its_batch(tmp_path: Path, body: dict[str, Any]) -> None:
    def script(sent: dict[str, Any]) -> Reply:
        odd = sent["messages"][-1]["content"] == "7"
        return Reply(json.dumps(body if odd else completion("fine")).encode())

    with ScriptedEndpoint(script) as server, opened_calls(tmp_path, server.base_url) as calls:

        async def ask() -> list[Any]:
            asked = [Request("rollout", (("user", str(n)),), 0.5, 64) for n in range(20)]
            try:
                return await asyncio.gather(*map(calls.ask, asked), return_exceptions=True)
            finally:
                await calls.endpoint.close()

        answers = asyncio.run(ask())
        assert [one for one in answers if isinstance(one, BaseException)] == []
        assert len(server.requests) == 20
        (spent,) = calls._runs.spent()
        assert spent.usage.calls == 20
        assert 0 < spent.usage.prompt_tokens < 20 * 60


def test_tokens_that_the_server_does_not_tell_are_counted_and_said_to_be(tmp_path: Path) -> None:
    text = "An ant has six legs. " * 40
    body = broken(content=text, usage=None)
    with (
        ScriptedEndpoint(lambda _: Reply(body)) as server,
        opened_calls(tmp_path, server.base_url) as calls,
    ):

        async def ask() -> Answer:
            try:
                return (await calls.ask(REQUEST)).answer
            finally:
                await calls.endpoint.close()

        answer = asyncio.run(ask())
        assert answer.estimated
        assert 0.7 * 240 < answer.completion_tokens < 1.3 * 240
        assert 5 < answer.prompt_tokens < 40
        assert calls.meter.estimated == 1
        (spent,) = calls._runs.spent()
        assert spent.usage.completion_tokens == answer.completion_tokens
