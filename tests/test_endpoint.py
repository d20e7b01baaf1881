"""One request to an endpoint: an answer, or an error of the kind that says what to do next."""

from __future__ import annotations

import asyncio
import json
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted import Numbered, Reply, ScriptedEndpoint, completion, opened_calls

from tfgrpo.model.budget import PER_MESSAGE, most_tokens
from tfgrpo.model.endpoint import (
    Answer,
    CallFailed,
    Endpoint,
    EndpointError,
    EndpointOptions,
    Request,
    Transient,
)
from tfgrpo.store.errors import TfgrpoError

KEY = "sk-proj-Zz9SecretSecret4242"
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}

Script = Callable[[dict[str, Any]], str | Reply]


def request(**more: Any) -> Request:
    return Request("rollout", (("system", "s"), ("user", "hello")), 0.5, 64, **more)


def asked(script: Script, *requests: Request, key: str | None = KEY, timeout: float = 20) -> Any:
    """Asks a server that follows `script`; returns the last answer and the server."""
    with ScriptedEndpoint(script) as server:
        endpoint = Endpoint("scripted", server.base_url, key, timeout)

        async def ask() -> Answer:
            try:
                for one in requests or (request(),):
                    answer = await endpoint.ask(one)
                return answer
            finally:
                await endpoint.close()

        return asyncio.run(ask()), server


def refused(status: int, message: str, **error: Any) -> Reply:
    return Reply({"error": {"message": message, **error}}, status=status)


def test_an_answer_tells_its_text_its_end_its_tokens_and_its_time() -> None:
    body = completion("four", finish_reason="length")
    body["usage"] = {
        "prompt_tokens": 50,
        "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 32},
        "completion_tokens_details": {"reasoning_tokens": 7},
    }
    answer, server = asked(lambda _: Reply(body))
    assert answer.content == "four"
    assert answer.truncated
    tokens = (answer.prompt_tokens, answer.cached_tokens, answer.completion_tokens)
    assert (*tokens, answer.reasoning_tokens) == (50, 32, 10, 7)
    assert 0 < answer.seconds < 60
    assert server.keys == [f"Bearer {KEY}"]


@pytest.mark.parametrize("told", [0, 94])
def test_thinking_that_is_counted_beside_the_answer_is_paid_too(told: int) -> None:
    """As Gemini has it, which tells no count of it, and Grok, which does."""
    body = completion("four")
    body["usage"] = {"prompt_tokens": 32, "completion_tokens": 9, "total_tokens": 135}
    body["usage"]["completion_tokens_details"] = {"reasoning_tokens": told}
    answer, _ = asked(lambda _: Reply(body))
    assert (answer.prompt_tokens, answer.completion_tokens, answer.reasoning_tokens) == (
        32,
        103,
        94,
    )


def test_a_limit_that_a_user_wrote_and_the_server_refuses_is_asked_for_once() -> None:
    said = "this model supports at most 8192 completion tokens, whereas you provided 100000."
    options = EndpointOptions(extra_body={"max_tokens": 100_000})
    with ScriptedEndpoint(lambda _: refused(400, said)) as server:
        endpoint = Endpoint("scripted", server.base_url, KEY, 5.0, options=options)

        async def ask() -> None:
            try:
                await endpoint.ask(request())
            finally:
                await endpoint.close()

        with pytest.raises(TfgrpoError, match="8192"):
            asyncio.run(asyncio.wait_for(ask(), 20))
    assert len(server.requests) == 1


def test_a_request_is_sent_as_it_was_meant() -> None:
    _, server = asked(lambda _: "{}", request(seed=7, schema=SCHEMA))
    (sent,) = server.requests
    assert sent["model"] == "scripted"
    assert sent["messages"] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "hello"},
    ]
    assert (sent["temperature"], sent["max_tokens"], sent["seed"]) == (0.5, 64, 7)
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA


def test_a_proxy_from_the_environment_does_not_stand_before_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    answer, _ = asked(lambda _: "here")
    assert answer.content == "here"


STATUSES = [
    (401, "Incorrect API key", EndpointError),
    (403, "Forbidden", EndpointError),
    (404, "The model does not exist", EndpointError),
    (402, "Insufficient balance", EndpointError),
    (429, "You exceeded your current quota", EndpointError),
    (429, "Slow down", Transient),
    (429, "You exceeded your current quota. Please retry in 2.5s.", Transient),
    (429, "Quota exceeded for requests per minute. Try again in 1m30s", Transient),
    (408, "Timeout", Transient),
    (500, "Oops", Transient),
    (502, "Bad gateway", Transient),
    (503, "Overloaded", Transient),
    (529, "Overloaded", Transient),
    (400, "This content is not allowed", CallFailed),
    (413, "Too long", CallFailed),
    (422, "Unprocessable", CallFailed),
]


@pytest.mark.parametrize(("status", "message", "kind"), STATUSES)
def test_each_status_gives_the_error_that_fits(
    status: int, message: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as caught:
        asked(lambda _: refused(status, message))
    assert caught.type is kind
    if kind is EndpointError:
        assert isinstance(caught.value, TfgrpoError)
        assert caught.value.hint


def test_what_the_server_asks_to_wait_is_passed_on() -> None:
    for header, wanted in (("7", 7.0), ("0.5", 0.5), ("soon", None), ("-3", 0.0), (None, None)):
        headers = {} if header is None else {"retry-after": header}
        with pytest.raises(Transient) as caught:
            asked(lambda _, h=headers: Reply(b"{}", status=429, headers=h))
        assert caught.value.after == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Please try again in 20s. Visit our site", 20.0),
        ("Please try again in 6m0s.", 360.0),
        ("Please retry in 150ms.", 0.15),
        ("Retry after 30", 30.0),
        ("retry after 2 minutes, 5 seconds", 125.0),
        ("try again in a while", None),
    ],
)
def test_what_the_text_of_an_error_asks_to_wait_is_passed_on(
    text: str, wanted: float | None
) -> None:
    with pytest.raises(Transient) as caught:
        asked(lambda _: refused(429, text))
    assert caught.value.after == (None if wanted is None else pytest.approx(wanted))


def test_a_body_without_end_is_cut_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfgrpo.model.response.MOST_BYTES", 1 << 20)
    for status in (200, 500):
        with pytest.raises(Transient, match="more than 1 MB"):
            asked(lambda _, s=status: Reply(b" " * (3 << 20), status=s))


def test_a_second_response_on_a_connection_is_nobodys_answer() -> None:
    """The stray one arrives right behind the first, a moment later, or before the next."""
    for pause in (None, 0.0, 0.05):
        assert _strays(pause) == [str(n) for n in range(20)]


def _strays(pause: float | None) -> list[str]:
    """Asks 20 times a server that answers each request twice; returns the answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                sent = json.loads(await reader.readexactly(length))
                for text in (sent["messages"][-1]["content"], "stray"):
                    body = json.dumps(completion(text)).encode()
                    start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                    writer.write(start + b"content-length: %d\r\n\r\n" % len(body) + body)
                    if pause is not None:
                        await writer.drain()
                        await asyncio.sleep(pause)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def ask() -> list[str]:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        endpoint = Endpoint("m", f"http://127.0.0.1:{port}/v1", KEY, 20)
        answers = []
        for number in range(20):
            one = Request("rollout", (("user", str(number)),), 0.5, 64)
            answers.append((await endpoint.ask(one)).content)
        await endpoint.close()
        server.close()
        return answers

    return asyncio.run(ask())


def choice(**message: Any) -> dict[str, Any]:
    body = completion("x")
    body["choices"][0]["message"] = {"role": "assistant", **message}
    return body


UNREADABLE: dict[str, bytes | dict[str, Any]] = {
    "not JSON": b"<html>502</html>",
    "cut off": json.dumps(completion("x")).encode()[:-20],
    "nothing": b"",
    "not UTF-8": b'{"choices": "\xff"}',
    "a list": b"[]",
    "null": b"null",
    "a number": b"5",
    "a text": b'"x"',
    "brackets without end": b"[" * 200_000,
    "a number without end": b'{"choices": ' + b"1" * 5000 + b"}",
    "choices empty": {"choices": []},
    "choices null": {"choices": None},
    "choices missing": {"id": "c"},
    "choices a text": {"choices": "abc"},
    "choices a number": {"choices": 5},
    "choices an object": {"choices": {"message": {"content": "x"}}},
    "choices of texts": {"choices": ["abc"]},
    "choices of null": {"choices": [None]},
    "message a text": {"choices": [{"message": "x", "finish_reason": "stop"}]},
    "message a list": {"choices": [{"message": ["x"], "finish_reason": "stop"}]},
    "message null": {"choices": [{"message": None, "finish_reason": "stop"}]},
    "content a list of numbers": choice(content=[1, 2]),
    "content a number": choice(content=5),
    "content an object": choice(content={"text": "x"}),
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE)
def test_an_answer_out_of_shape_is_worth_another_try(body: bytes | dict[str, Any]) -> None:
    with pytest.raises(Transient):
        asked(lambda _: Reply(body))


def test_a_dropped_connection_and_nobody_there_are_worth_another_try() -> None:
    with pytest.raises(Transient, match="cannot reach"):
        asked(lambda _: Reply(close=True))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(Transient, match="cannot reach"):
            asyncio.run(Endpoint("m", address, KEY, 5).ask(request()))


def test_a_server_that_says_nothing_in_time_is_worth_another_try() -> None:
    with ScriptedEndpoint(delay=1.0) as server, pytest.raises(Transient, match="no answer in"):
        asyncio.run(Endpoint("m", server.base_url, KEY, 0.2).ask(request()))


READABLE: dict[str, tuple[dict[str, Any], str]] = {
    "content null": (choice(content=None), ""),
    "content missing": (choice(), ""),
    "a refusal": (choice(content=None, refusal="I cannot"), "I cannot"),
    "content in parts": (choice(content=[{"type": "text", "text": "x"}]), "x"),
    "content in parts of several kinds": (
        choice(content=[{"type": "thinking", "thinking": "y"}, {"type": "text", "text": "a"}, "b"]),
        "ab",
    ),
    "usage missing": ({k: v for k, v in completion("x").items() if k != "usage"}, "x"),
    "usage null": ({**completion("x"), "usage": None}, "x"),
    "usage a text": ({**completion("x"), "usage": "many"}, "x"),
    "usage of texts": (
        {**completion("x"), "usage": {"prompt_tokens": "50", "completion_tokens": None}},
        "x",
    ),
    "usage below nothing": (
        {**completion("x"), "usage": {"prompt_tokens": -5, "completion_tokens": True}},
        "x",
    ),
    "no finish reason": ({"choices": [{"message": {"content": "x"}}]}, "x"),
    "fields nobody knows": ({**completion("x"), "timings": {"a": [1]}, "model": 5}, "x"),
}


@pytest.mark.parametrize(("body", "content"), READABLE.values(), ids=READABLE)
def test_an_answer_that_lacks_only_what_is_not_needed_counts(
    body: dict[str, Any], content: str
) -> None:
    answer, _ = asked(lambda _: Reply(body))
    assert (answer.content, answer.finish_reason) == (content, "stop")
    tokens = (answer.prompt_tokens, answer.completion_tokens)
    assert all(type(count) is int and count >= 0 for count in tokens)


def test_an_answer_of_10_megabytes_arrives_whole() -> None:
    text = "0123456789" * 1_000_000
    answer, _ = asked(lambda _: text)
    assert answer.content == text


REFUSALS = [
    ("response_format", "response_format is not supported"),
    ("response_format", "Failed to compile the grammar"),
    ("seed", "Unrecognized request argument supplied: seed"),
    ("temperature", "Unsupported value: 'temperature' does not support 0.5 with this model."),
    ("max_tokens", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
]


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize(("parameter", "message"), REFUSALS)
def test_a_parameter_that_a_server_refuses_is_left_out_from_then_on(
    parameter: str, message: str, status: int
) -> None:
    def script(sent: dict[str, Any]) -> str | Reply:
        return refused(status, message) if parameter in sent else "fine"

    full = request(seed=7, schema=SCHEMA)
    answer, server = asked(script, full, full)
    assert answer.content == "fine"
    assert [parameter in sent for sent in server.requests] == [True, False, False]
    kept = {"response_format", "seed", "temperature", "max_tokens"} - {parameter}
    assert kept <= set(server.requests[-1])
    if parameter == "max_tokens":
        assert server.requests[-1]["max_completion_tokens"] == 64
    if parameter == "response_format":
        assert json.dumps(SCHEMA) in server.requests[-1]["messages"][-1]["content"]
        assert server.requests[-1]["messages"][0] == {"role": "system", "content": "s"}
        sent = server.requests[-1]["messages"]
        most = sum(len(message["content"].encode()) + PER_MESSAGE for message in sent)
        assert most <= most_tokens(full), "a budget sets aside what is said instead"


def test_a_server_that_refuses_everything_optional_is_still_served() -> None:
    def script(sent: dict[str, Any]) -> str | Reply:
        for name in ("response_format", "seed", "temperature", "max_tokens"):
            if name in sent:
                return refused(400, f"unknown parameter {name}", param=name)
        return "fine"

    answer, server = asked(script, request(seed=7, schema=SCHEMA))
    assert answer.content == "fine"
    assert len(server.requests) == 5


def test_a_request_too_long_for_the_model_fails_and_changes_nothing_for_others() -> None:
    def script(sent: dict[str, Any]) -> str | Reply:
        if "max_completion_tokens" in sent:
            return refused(400, "unknown parameter max_completion_tokens")
        long = sent["messages"][-1]["content"] == "long"
        return refused(400, "max_tokens is too large: 64. At most 32 fit here.") if long else "fine"

    long = Request("rollout", (("user", "long"),), 0.5, 64)
    with ScriptedEndpoint(script) as server:
        endpoint = Endpoint("scripted", server.base_url, None, 10)

        async def ask() -> Answer:
            with pytest.raises(CallFailed):
                await endpoint.ask(long)
            try:
                return await endpoint.ask(request())
            finally:
                await endpoint.close()

        assert asyncio.run(ask()).content == "fine"


def everything(error: BaseException) -> str:
    """Returns all that a person could read of an error: itself, its hint, its traceback."""
    hint = getattr(error, "hint", "")
    return f"{error}{error!r}{error.args}{hint}" + "".join(traceback.format_exception(error))


ECHOES: dict[str, Reply] = {
    **{
        str(status): refused(status, f"Incorrect API key provided: {KEY}. Bearer {KEY}")
        for status in (400, 401, 402, 403, 404, 429, 500, 503)
    },
    "plain text": Reply(f"who is {KEY}?".encode(), status=500),
    "in a field": Reply({"error": {"message": "no", "param": KEY, "code": KEY}}, status=401),
    "not JSON": Reply(f"<p>{KEY}</p>".encode()),
    "at the cut of a long text": refused(500, "x" * 290 + KEY),
}


@pytest.mark.parametrize("reply", ECHOES.values(), ids=ECHOES)
def test_the_key_is_in_no_error_even_where_the_server_echoes_it(reply: Reply) -> None:
    with pytest.raises((TfgrpoError, Transient)) as caught:
        asked(lambda _: reply)
    said = everything(caught.value)
    assert KEY not in said
    assert KEY[:14] not in said


@pytest.mark.parametrize("ending", ["\n", "\r", "\r\n", "\x00", "“"])
def test_a_key_that_cannot_be_sent_is_in_no_error(ending: str) -> None:
    with pytest.raises((TfgrpoError, Transient)) as caught:
        asked(lambda _: "never", key=KEY + ending)
    assert KEY not in everything(caught.value)


def test_the_key_is_not_in_the_representation_of_an_endpoint() -> None:
    assert KEY not in repr(Endpoint("m", "http://127.0.0.1:1/v1", KEY))


def test_the_key_is_in_no_answer_unless_it_is_a_word_of_it() -> None:
    def echo(_: dict[str, Any]) -> Reply:
        body = completion(f"You sent {KEY}, and x.")
        function = {"name": "f", "arguments": json.dumps({"key": KEY})}
        body["choices"][0]["message"]["tool_calls"] = [{"id": "c", "function": function}]
        return Reply(body)

    answer, _ = asked(echo, key=KEY)
    assert answer.content == "You sent ***, and x."
    assert answer.tool_calls[0]["function"]["arguments"] == '{"key": "***"}'
    assert asked(echo, key="x")[0].content == f"You sent {KEY}, and x."


def test_the_key_is_in_no_byte_of_the_store(tmp_path: Path) -> None:
    replies = [
        Reply(f"{KEY}".encode()),
        refused(500, f"key {KEY}"),
        Reply({**completion("fine"), "system_fingerprint": KEY}),
    ]
    replies[1].headers["retry-after"] = "0"
    script = Numbered(lambda _: replies[len(script.requests) - 1])
    with (
        ScriptedEndpoint(script) as server,
        opened_calls(tmp_path, server.base_url, api_key=KEY) as calls,
    ):

        async def ask() -> None:
            await calls.ask(request())
            await calls.endpoint.close()

        asyncio.run(ask())
        assert KEY not in str(calls.meter)
    files = list(tmp_path.iterdir())
    assert files
    assert all(KEY.encode() not in file.read_bytes() for file in files)


IN_PLACE_OF_AN_ANSWER = [
    ({"message": "insufficient credits, top up", "code": 402}, EndpointError, "serve this account"),
    ({"message": "insufficient credits, top up", "code": "402"}, EndpointError, "this account"),
    ({"message": "top up", "type": "insufficient_quota"}, EndpointError, "serve this account"),
    ({"message": "a bad key", "code": "invalid_api_key"}, EndpointError, "refused the key"),
    ({"message": "it is gone", "code": "model_not_found"}, EndpointError, "has no model"),
    ({"message": "slow down", "type": "rate_limit_error"}, Transient, "429: slow down"),
    ({"message": "come back", "type": "overloaded_error"}, Transient, "529: come back"),
    ({"message": "it broke", "code": 502}, Transient, "502: it broke"),
    ({"message": "not so", "type": "invalid_request_error"}, CallFailed, "400: not so"),
    ({"message": "it is odd", "code": "E17"}, Transient, r"answer \(E17\): it is odd"),
    ("it is odd", Transient, "an error in place of an answer: it is odd"),
]


@pytest.mark.parametrize(("error", "kind", "words"), IN_PLACE_OF_AN_ANSWER)
def test_an_error_under_status_200_is_what_its_code_or_type_says(
    error: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        asked(lambda _: Reply({"id": "c", "choices": [], "error": error}))
    assert caught.type is kind


def test_an_error_under_status_200_shows_no_secret_and_teaches_what_is_refused() -> None:
    for error in ({"message": f"no {KEY}", "code": 402}, f"no {KEY}", {"message": f"no {KEY}"}):
        with pytest.raises((EndpointError, Transient), match=r"no \*\*\*"):
            asked(lambda _, error=error: Reply({"error": error}))

    def script(sent: dict[str, Any]) -> str | Reply:
        error = {"message": "seed is not supported", "code": 400}
        return Reply({"error": error}) if "seed" in sent else "fine"

    answer, _ = asked(script, request(seed=7))
    assert answer.content == "fine"


PAGE = b"<!DOCTYPE html>\n<html><head><title>Sign in &amp; go</title></head><body>x</body></html>"


@pytest.mark.parametrize("content_type", ["application/json", "text/html; charset=utf-8"])
def test_a_web_page_is_called_one(content_type: str) -> None:
    headers = {"content-type": content_type}
    with pytest.raises(Transient, match=r"a web page \('Sign in & go'\).* check --base-url"):
        asked(lambda _: Reply(PAGE, headers=headers))
    for status in (401, 403, 404, 405):
        with pytest.raises(EndpointError, match="answers with a page and not as an API") as caught:
            asked(lambda _, s=status: Reply(PAGE, status=s, headers=headers))
        assert "--base-url" in str(caught.value.hint)
        assert "has no model" not in str(caught.value)
    with pytest.raises(Transient, match=r"502: a web page \('Sign in & go'\)\Z"):
        asked(lambda _: Reply(PAGE, status=502, headers=headers))
    with pytest.raises(Transient, match="the answer is no JSON: it begins 'fine, thank you'"):
        asked(lambda _: Reply(b"fine, thank you", headers=headers))
