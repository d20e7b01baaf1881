"""Requests and answers in the shapes that providers and clients use: all of them go through
unchanged but for the library.

In a request below, a mark stands where the library goes in: `⟦s⟧` at the end of a string, `⟦e⟧` in
an empty one, `⟦p⟧` a part after others, `⟦m⟧` a message before others, `⟦a⟧` one after them, `⟦o⟧`
the only one, `⟦q⟧` a string in place of null, and by its name a member before others.
"""

from __future__ import annotations

import gzip
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from providers import OK, Provider, ProxyThread, Received, post

from tfgrpo.proxy.proxy_settings import LibraryChoice, ProxySettings, upstreams
from tfgrpo.store import Operation, Store

LIBRARY = (
    "Experiences from earlier problems. Where one fits the problem, follow it:\n"
    '[G0] Say "both days", not \\d.\n[G1] Grüße: 5 € a day.'
)
TEXT = json.dumps(LIBRARY, ensure_ascii=False)[1:-1]
FORMS = {
    "s": "\\n\\n" + TEXT,
    "e": TEXT,
    "p": ',{"type":"text","text":"' + TEXT + '"}',
    "m": '{"role":"system","content":"' + TEXT + '"},',
    "o": '{"role":"system","content":"' + TEXT + '"}',
    "a": ',{"role":"system","content":"' + TEXT + '"}',
    "instructions": '"instructions":"' + TEXT + '",',
    "system": '"system":"' + TEXT + '",',
    "q": '"' + TEXT + '"',
    "part": ',{"text":"' + TEXT + '"}',
    "first part": '{"text":"' + TEXT + '"}',
    "parts": '"parts":[{"text":"' + TEXT + '"}],',
    "gemini": '"systemInstruction":{"parts":[{"text":"' + TEXT + '"}]},',
    "turn": '{"role":"user","parts":[{"text":"' + TEXT + '"}]},',
    "converse": '"system":[{"text":"' + TEXT + '"}],',
    "[": "[",
    "]": ',{"text":"' + TEXT + '"}]',
}
MARK = re.compile("⟦(.*?)⟧")
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
GEMINI, CONVERSE = "/v1beta/models/gemini-2.5-pro:generateContent", "/model/us.a.c-v1%3A0/converse"
ASKED = '"contents":[{"role":"user","parts":[{"text":"Hi"}]}]'
REQUESTS = {
    "a system message": (
        CHAT,
        '{"model":"m","messages":[{"role":"system","content":"Be brief.⟦s⟧"},'
        '{"role":"user","content":"Hi"}]}',
    ),
    "blanks, escapes, numbers and keys as they are": (
        CHAT,
        '\n{ "temperature" : 1.00, "seed":123456789012345678901234567890, "x":1e-7,"x":2,\t'
        '"mess\\u0061ges":[ {"content" : "caf\\u00e9 \\/ \\"q\\"⟦s⟧" ,"role":"system"} ,'
        ' {"role":"user","content":"\\ud83d\\ude00 ü"}],\r\n "stream":false } \n',
    ),
    "a developer message after a system message": (
        CHAT,
        '{"messages":[{"role":"system","content":"A"},{"role":"developer","content":"B⟦s⟧"},'
        '{"role":"user","content":"C"},{"role":"system","content":"late"}]}',
    ),
    "no system message": (CHAT, '{"messages":[⟦m⟧{"role":"user","content":"Hi"}]}'),
    "no message at all": (CHAT, '{"messages":[⟦o⟧]}'),
    "an empty system message": (CHAT, '{"messages":[{"role":"system","content":"⟦e⟧"}]}'),
    "a system message in parts": (
        CHAT,
        '{"messages":[{"role":"system","content":[{"type":"text","text":"A"}⟦p⟧]},'
        '{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url",'
        '"image_url":{"url":"data:image/png;base64,iVBORw0KGgo=","detail":"low"}}]}]}',
    ),
    "a system message without content": (
        CHAT,
        '{"messages":[{"role":"system","content":null}⟦a⟧,{"role":"user","content":"x"}]}',
    ),
    "tools, n, logprobs, audio and fields that nobody knows": (
        CHAT,
        '{"messages":[{"role":"system","content":"A⟦s⟧"},{"role":"assistant","content":null,'
        '"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":'
        '"{\\"a\\": 1}"}}]},{"role":"tool","tool_call_id":"c1","content":"2"}],"n":3,'
        '"logprobs":true,"top_logprobs":5,"tools":[{"type":"function","function":{"name":"f",'
        '"strict":true,"parameters":{"type":"object","properties":{}}}}],"tool_choice":"auto",'
        '"stream_options":{"include_usage":true},"stream":true,"response_format":{"type":'
        '"json_schema","json_schema":{"name":"s","schema":{}}},"x_future":{"deep":[[[null]]]}}',
    ),
    "responses with instructions": (
        RESPONSES,
        '{"model":"m","instructions":"Be brief.⟦s⟧","input":"Hi","store":false,'
        '"reasoning":{"effort":"low"},"include":["reasoning.encrypted_content"]}',
    ),
    "responses without": (
        RESPONSES,
        '{⟦instructions⟧"model":"m","previous_response_id":"resp_1","input":[{"role":"user",'
        '"content":[{"type":"input_text","text":"Hi"},{"type":"input_image","file_id":"f"}]}]}',
    ),
    "responses with null": (RESPONSES, '{"instructions":⟦q⟧,"input":"Hi"}'),
    "messages with a string": (
        MESSAGES,
        '{"model":"claude","max_tokens":9,"system":"A⟦s⟧","messages":[{"role":"user",'
        '"content":"Hi"}],"thinking":{"type":"enabled","budget_tokens":1024}}',
    ),
    "messages with blocks and cache marks": (
        MESSAGES,
        '{"system":[{"type":"text","text":"A","cache_control":{"type":"ephemeral","ttl":"1h"}}'
        ',{"type":"text","text":"B","cache_control":{"type":"ephemeral"}}⟦p⟧],"messages":[]}',
    ),
    "messages without": (
        MESSAGES,
        '{⟦system⟧"max_tokens":9,"tools":[{"name":"t","input_schema":{}}],"messages":[{"role":'
        '"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png",'
        '"data":"iVBORw0KGgo="}}]}]}',
    ),
    "counting tokens": (MESSAGES + "/count_tokens", '{⟦system⟧"messages":[]}'),
    "a deployment's path": (
        "/openai/deployments/d/chat/completions?api-version=2",
        '{"messages":[⟦m⟧{"role":"user","content":"Hi"}]}',
    ),
    "gemini with a system instruction": (
        GEMINI,
        '{"systemInstruction":{"role":"user","parts":[{"text":"A"}⟦part⟧]},' + ASKED + "}",
    ),
    "gemini in the other spelling, as a stream": (
        GEMINI.replace(":g", ":streamG") + "?alt=sse",
        '{"system_instruction": {"parts": [{"text": "A"}⟦part⟧]}, ' + ASKED + "}",
    ),
    "gemini with a part that is no list": (
        GEMINI,
        '{"system_instruction":{"parts": ⟦[⟧{"text":"A"}⟦]⟧ },' + ASKED + "}",
    ),
    "gemini with no parts": (
        GEMINI,
        '{"systemInstruction":{⟦parts⟧"role":"user"},' + ASKED + "}",
    ),
    "gemini with empty parts": (
        GEMINI,
        '{"systemInstruction":{"parts":[⟦first part⟧]},' + ASKED + "}",
    ),
    "gemini without": (
        GEMINI,
        "{⟦gemini⟧" + ASKED + ',"generationConfig":{"temperature":1.0},"tools":[]}',
    ),
    "gemini with a cache": (
        GEMINI,
        '{"cachedContent":"cachedContents/1","contents":[⟦turn⟧{"parts":[{"text":"Hi"}]}]}',
    ),
    "gemini of a cloud's project": (
        "/v1/projects/p/locations/l/publishers/google/models/gemini-2.5-pro:generateContent",
        "{⟦gemini⟧" + ASKED + "}",
    ),
    "gemini of a tuned model": (
        "/v1beta/tunedModels/mine:generateContent",
        "{⟦gemini⟧" + ASKED + "}",
    ),
    "counting gemini's tokens": (
        GEMINI.replace(":generateContent", ":countTokens"),
        f"{{{ASKED}}}",
    ),
    "gemini with an instruction that is none": (GEMINI, '{"systemInstruction":5,"contents":[]}'),
    "converse with a system text": (
        CONVERSE,
        '{"system":[{"text":"A"},{"cachePoint":{"type":"default"}}⟦part⟧],"messages":[]}',
    ),
    "converse with an empty one, as a stream": (
        CONVERSE + "-stream",
        '{"system":[⟦first part⟧],"messages":[{"role":"user","content":[{"text":"Hi"}]}]}',
    ),
    "converse without": (CONVERSE, '{⟦converse⟧"inferenceConfig":{"maxTokens":9},"messages":[]}'),
    "converse with a system that is none": (CONVERSE, '{"system":"A","messages":[]}'),
    "a model that is invoked": ("/model/m/invoke", '{"system":"A","messages":[]}'),
    "another route": ("/v1/embeddings", '{"input":"x","messages":[],"system":"A"}'),
    "messages of a thread": ("/v1/threads/t/messages", '{"role":"user","content":"x"}'),
    "no JSON": (CHAT, '{"messages":['),
    "JSON that is no object": (CHAT, '[{"messages":[]}]'),
    "messages that are none": (CHAT, '{"messages":"x"}'),
    "instructions that are none": (RESPONSES, '{"instructions":5}'),
    "more nesting than anything reads": (CHAT, '{"messages":' + "[" * 100_000),
}
EVENTS = {
    "chat": [
        b'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""},'
        b'"logprobs":{"content":[{"token":"a","logprob":-0.1,"bytes":[97]}]}}]}\n\n',
        b'data: {"choices":[{"index":1,"delta":{"refusal":"No."}}]}\n\n',
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"t"}]}}]}\r\n\r\n',
        'data: {"choices":[{"index":0,"delta":{"content":"Grüße 😀"}}]}\n\n'.encode(),
        b": keep-alive\n\n",
        b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n',
        b"data: [DONE]\n\n",
    ],
    "messages": [
        b'event: message_start\ndata: {"type":"message_start","message":{"usage":'
        b'{"input_tokens":7,"cache_read_input_tokens":4,"output_tokens":1}}}\n\n',
        b"event: ping\ndata: {}\n\n",
        b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":3}}\n\n',
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error"}}\n\n',
    ],
    "broken": [b"data: {\n\n", b"\x00\xff\xfe", b"data", b": \n", b"\n\n\n"],
}
ANSWERS = {
    "an error with what a client acts on": (
        b"HTTP/1.1 429 Slow Down Please\r\nRetry-After: 2\r\nx-ratelimit-remaining-tokens: 0\r\n"
        b"x-request-id: r1\r\nx-should-retry: true\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n"
        b'content-type: application/json\r\nContent-Length: 12\r\n\r\n{"error":{}}'
    ),
    "a packed body": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b"
        % (len(packed := gzip.compress(b'{"usage":{"prompt_tokens":7}}')), packed)
    ),
    "no body": b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
    "an empty body": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "a redirection": b"HTTP/1.1 307 X\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
    "a server error in HTML": (
        b"HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>"
    ),
    "hints before it": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK,
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Provider, ProxyThread]]:
    """A provider, and a proxy before it with a library of two."""
    folder = tmp_path_factory.mktemp("corpus")
    with Store.init(folder / "store.db") as store:
        for text in ('Say "both days", not \\d.', "Grüße: 5 € a day."):
            store.commit("main", [Operation("ADD", text=text)], message="add")
    with Provider() as provider:
        libraries = {"default": LibraryChoice(Path(folder / "store.db"))}
        settings = ProxySettings(
            libraries, "default", **upstreams({"openai": provider.url}), port=0
        )
        with ProxyThread(settings) as proxy:
            yield provider, proxy


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_goes_through_unchanged_but_for_the_library(
    name: str, running: tuple[Provider, ProxyThread]
) -> None:
    provider, proxy = running
    provider.answer = OK
    path, marked = REQUESTS[name]
    sent = MARK.sub(lambda mark: "null" if mark[1] == "q" else "", marked).encode()
    headers = (
        b"authorization: Bearer sk-secret",
        b"X-Stainless-Lang: python",
        b"OpenAI-Beta: a, b",
        b"anthropic-version: 2023-06-01",
        b"accept-encoding: gzip",
        b"X-Odd:  two  blanks",
    )
    answer = proxy.ask(post(path, sent, *headers))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n"), answer
    got = provider.received[-1]
    assert got.body.decode() == MARK.sub(lambda mark: FORMS[mark[1]], marked)
    assert got.line == b"POST %b HTTP/1.1" % path.encode()
    assert [n + b": " + v for n, v in got.headers if n.lower() not in (b"host", b"content-length")][
        1:
    ] == [header.replace(b":  two", b": two") for header in headers]
    assert got.header(b"content-length") == b"%d" % len(got.body)


@pytest.mark.parametrize("ending", ["chunks", "close"])
@pytest.mark.parametrize("name", EVENTS)
def test_a_stream_arrives_event_by_event_identical_to_the_byte(
    name: str, ending: str, running: tuple[Provider, ProxyThread]
) -> None:
    provider, proxy = running
    events, heard = EVENTS[name], []
    gate = {"sent": 0}

    def drip(connection: socket.socket, request: Received) -> None:
        framing = b"Transfer-Encoding: chunked\r\n" if ending == "chunks" else b""
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + framing + b"\r\n"
        )
        for number, event in enumerate(events):
            while gate["sent"] < number:  # until the client has the one before it
                time.sleep(0.001)
            if ending == "chunks":
                event = b"%x\r\n%b\r\n" % (len(event), event)
            connection.sendall(event)
        if ending == "chunks":
            connection.sendall(b"0\r\n\r\n")
        else:
            connection.shutdown(socket.SHUT_RDWR)

    provider.answer = drip
    body = b'{"stream":true,"messages":[]}'
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=240) as connection:
        connection.sendall(post(CHAT, body))
        file = connection.makefile("rb")
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += file.readline()
        assert b"Content-Type: text/event-stream" in head
        assert b"Transfer-Encoding: chunked" in head
        while size := int(file.readline(), 16):
            heard.append(file.read(size))
            assert file.readline() == b"\r\n"
            gate["sent"] = len(heard)
    assert heard == events


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_goes_through_as_it_is(name: str, running: tuple[Provider, ProxyThread]) -> None:
    provider, proxy = running
    provider.answer = sent = ANSWERS[name]
    answer = proxy.ask(post(CHAT, b'{"messages":[]}'))
    sent = sent[sent.index(b"HTTP/1.1", 1) :] if sent.count(b"HTTP/1.1") > 1 else sent
    head, _, body = sent.partition(b"\r\n\r\n")
    got, _, received = answer.partition(b"\r\n\r\n")
    assert received == body
    ours = (b"X-Tfgrpo-", b"Connection: close")
    assert [line for line in got.split(b"\r\n") if not line.startswith(ours)] == head.split(b"\r\n")


def test_headers_that_are_the_proxys_own_come_from_no_provider(
    running: tuple[Provider, ProxyThread],
) -> None:
    provider, proxy = running
    named = b"x-tfgrpo-call: call-0\r\nX-TFGRPO-Arm: a/candidate\r\nX-Tfgrpo-Later: 1\r\nX-A: b\r\n"
    provider.answer = OK.replace(b"\r\n", b"\r\n" + named, 1)
    head = proxy.ask(post(CHAT, b'{"messages":[]}')).partition(b"\r\n\r\n")[0]
    ours = [line for line in head.lower().split(b"\r\n") if line.startswith(b"x-tfgrpo-")]
    assert [line.partition(b":")[0] for line in ours] == [b"x-tfgrpo-call", b"x-tfgrpo-version"]
    assert b"call-0\r\n" not in head
    assert b"\r\nX-A: b\r\n" in head


def test_a_head_alone_is_answered(running: tuple[Provider, ProxyThread]) -> None:
    provider, proxy = running
    provider.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"
    answer = proxy.ask(b"HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"Content-Length: 500" in answer
    assert answer.endswith(b"\r\n\r\n")


def test_a_packed_request_gets_the_library_and_stays_packed(
    running: tuple[Provider, ProxyThread],
) -> None:
    provider, proxy = running
    provider.answer = OK
    body = gzip.compress(b'{"messages":[{"role":"system","content":"A"}]}')
    proxy.ask(post(CHAT, body, b"Content-Encoding: gzip"))
    got = provider.received[-1]
    assert got.header(b"content-encoding") == b"gzip"
    assert TEXT in gzip.decompress(got.body).decode()
    answer = proxy.ask(post(CHAT, body, b"Content-Encoding: br"))
    assert answer.startswith(b"HTTP/1.1 415 ")


def test_an_upload_of_megabytes_goes_through_as_it_comes(
    running: tuple[Provider, ProxyThread],
) -> None:
    provider, proxy = running
    provider.answer = OK
    body = bytes(range(256)) * (20 << 12)
    proxy.ask(post("/v1/files", body))
    assert provider.received[-1].body == body
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(body) // 4, body[: len(body) // 4]) for _ in range(2))
    proxy.ask(
        b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    )
    assert provider.received[-1].body == body[: len(body) // 4] * 2


def test_a_request_of_a_megabyte_and_a_line_of_ten(running: tuple[Provider, ProxyThread]) -> None:
    provider, proxy = running
    line = b"data: " + b"x" * (10 << 20) + b"\n\n"
    provider.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(line) + line
    text = "y" * (1 << 20)
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    answer = proxy.ask(post(CHAT, body))
    assert answer.partition(b"\r\n\r\n")[2] == line
    sent = json.loads(provider.received[-1].body)
    assert sent["messages"] == [
        {"role": "system", "content": LIBRARY},
        {"role": "user", "content": text},
    ]
