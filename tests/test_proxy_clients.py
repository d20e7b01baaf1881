"""Real clients over the wire, before a provider on loopback: what they send gets the library in its
place, and what they are answered they read, whole and as a stream.

The clients are those of `TFGRPO_CLIENTS_PYTHON`, a Python that has them, or else of the tests' own;
`TFGRPO_CLIENTS_NODE` is a folder whose `node_modules` has the npm package `openai`. One that is
not there is skipped, and the reason says how to get it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from amazon_frames import framed
from providers import Provider, ProxyThread, Received
from proxy_fixtures import Choice, make
from recipes import ANSWER, instructions_of, reply
from test_traffic import recorded
from tls_front import AUTHORITY, TlsFront
from wire_answers import frames

from tfgrpo.proxy.proxy_settings import ProxySettings, upstreams
from tfgrpo.store import Store

PYTHON = os.environ.get("TFGRPO_CLIENTS_PYTHON", sys.executable)
NODE = os.environ.get("TFGRPO_CLIENTS_NODE", "")
OWN = "You answer customers of a bike hire."
RULE = "Count both days."
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with make(tmp_path / ".tfgrpo/store.db", RULE) as made:
        yield made


def events_of(path: str) -> list[dict[str, Any]]:
    """The events of a stream that says `ANSWER`, as the API does that is asked."""
    words = ANSWER.split(" ")
    pieces = [words[0], " " + " ".join(words[1:])]
    if path.endswith("/messages"):
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m"}
        message |= {"content": [], "stop_reason": None, "stop_sequence": None}
        message |= {"usage": {"input_tokens": 40, "output_tokens": 1}}
        text = {"type": "text", "text": ""}
        found: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
        found.append({"type": "content_block_start", "index": 0, "content_block": text})
        for piece in pieces:
            delta = {"type": "text_delta", "text": piece}
            found.append({"type": "content_block_delta", "index": 0, "delta": delta})
        found.append({"type": "content_block_stop", "index": 0})
        stop = {"stop_reason": "end_turn", "stop_sequence": None}
        found.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 8}})
        return [*found, {"type": "message_stop"}]
    usage = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    found = []
    for piece in pieces:
        choice = {"index": 0, "delta": {"role": "assistant", "content": piece}}
        found.append({**base, "choices": [{**choice, "finish_reason": None}]})
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    return [*found, {**base, "choices": [last]}, {**base, "choices": [], "usage": usage}]


def gemini_answer(path: str) -> bytes:
    usage = {"promptTokenCount": 40, "candidatesTokenCount": 8, "totalTokenCount": 48}
    whole, *_, last = pieces = [ANSWER, *(ANSWER.partition(" ")[i] for i in (0, 1, 2))]
    if path.endswith(":countTokens"):
        return told(json.dumps({"totalTokens": 8}).encode())
    events = [
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"text": text}]},
                    "index": 0,
                    **({"finishReason": "STOP"} if text in (whole, last) else {}),
                }
            ],
            "usageMetadata": usage,
        }
        for text in pieces
    ]
    if path.endswith(":generateContent"):
        return told(json.dumps(events[0]).encode())
    return told(frames(*events[1:]), "text/event-stream")


def converse_answer(path: str) -> bytes:
    usage = {"inputTokens": 40, "outputTokens": 8, "totalTokens": 48}
    if path.endswith("/converse"):
        message = {"role": "assistant", "content": [{"text": ANSWER}]}
        whole = {"output": {"message": message}, "stopReason": "end_turn", "usage": usage}
        return told(json.dumps({**whole, "metrics": {"latencyMs": 1}}).encode())
    deltas = [{"contentBlockIndex": 0, "delta": {"text": one}} for one in ANSWER.partition(" ")]
    return told(
        framed(
            ("messageStart", {"role": "assistant"}),
            *(("contentBlockDelta", delta) for delta in deltas),
            ("contentBlockStop", {"contentBlockIndex": 0}),
            ("messageStop", {"stopReason": "end_turn"}),
            ("metadata", {"usage": usage, "metrics": {"latencyMs": 1}}),
        ),
        "application/vnd.amazon.eventstream",
    )


def told(body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def answer(connection: socket.socket, request: Received) -> None:
    path = request.line.split()[1].decode().partition("?")[0]
    if "/models/" in path:
        connection.sendall(gemini_answer(path))
    elif "/converse" in path:
        connection.sendall(converse_answer(path))
    elif json.loads(request.body).get("stream"):
        connection.sendall(CHUNKED)
        for event in events_of(path):
            name = f"event: {event['type']}\n" if "type" in event else ""
            piece = f"{name}data: {json.dumps(event)}\n\n".encode()
            connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
        end = b"" if path.endswith("/messages") else b"data: [DONE]\n\n"
        if end:
            connection.sendall(b"%x\r\n%b\r\n" % (len(end), end))
        connection.sendall(b"0\r\n\r\n")
    else:
        reply(connection, request)


CLIENTS = {
    "openai": (
        "openai",
        """
from openai import OpenAI
client = OpenAI(base_url=URL + "/v1", api_key="sk-1")
turns = [{"role": "system", "content": OWN}, {"role": "user", "content": "How long?"}]
raw = client.chat.completions.with_raw_response.create(model="m", messages=turns)
print(raw.parse().choices[0].message.content)
assert raw.headers["x-tfgrpo-version"].startswith("v1 "), raw.headers
stream = client.chat.completions.create(model="m", messages=turns, stream=True)
print("".join(part.choices[0].delta.content or "" for part in stream if part.choices))
print(client.responses.create(model="m", instructions=OWN, input="How long?").output_text)
""",
    ),
    "anthropic": (
        "anthropic",
        """
from anthropic import Anthropic
client = Anthropic(base_url=URL, api_key="sk-1")
turns = [{"role": "user", "content": "How long?"}]
asked = dict(model="m", max_tokens=99, system=OWN, messages=turns)
print(client.messages.create(**asked).content[0].text)
with client.messages.stream(**asked) as stream:
    print("".join(stream.text_stream))
""",
    ),
    "langchain_openai": (
        "langchain-openai",
        """
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="m", base_url=URL + "/v1", api_key="sk-1")
turns = [("system", OWN), ("human", "How long?")]
print(model.invoke(turns).content)
print("".join(part.content for part in model.stream(turns)))
""",
    ),
    "langchain_anthropic": (
        "langchain-anthropic",
        """
from langchain_anthropic import ChatAnthropic
model = ChatAnthropic(model_name="m", base_url=URL, api_key="sk-1")
print(model.invoke([("system", OWN), ("human", "How long?")]).content)
""",
    ),
    "pydantic_ai": (
        "pydantic-ai-slim[openai]",
        """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
provider = OpenAIProvider(base_url=URL + "/v1", api_key="sk-1")
agent = Agent(OpenAIChatModel("m", provider=provider), instructions=OWN)
print(agent.run_sync("How long?").output)
""",
    ),
    "agents": (
        "openai-agents",
        """
import os
os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"
from agents import Agent, OpenAIResponsesModel, Runner
from openai import AsyncOpenAI
client = AsyncOpenAI(base_url=URL + "/v1", api_key="sk-1")
model = OpenAIResponsesModel(model="m", openai_client=client)
agent = Agent(name="hire", instructions=OWN, model=model)
print(Runner.run_sync(agent, "How long?").final_output)
""",
    ),
    "google.genai": (
        "google-genai",
        """
from google import genai
from google.genai import types
client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=URL))
own = types.GenerateContentConfig(system_instruction=OWN)
print(client.models.generate_content(model="m", contents="How long?", config=own).text)
parts = client.models.generate_content_stream(model="m", contents="How long?", config=own)
print("".join(part.text or "" for part in parts))
chat = client.chats.create(model="m", config=own)
print(chat.send_message("How long?").text)
""",
    ),
    "langchain_google_genai": (
        "langchain-google-genai",
        """
from langchain_google_genai import ChatGoogleGenerativeAI
model = ChatGoogleGenerativeAI(model="m", google_api_key="k", base_url=URL)
turns = [("system", OWN), ("human", "How long?")]
print(model.invoke(turns).text)
print("".join(part.text for part in model.stream(turns)))
""",
    ),
}
"""Module → what installs it, and a program that prints `ANSWER` in each way that it has."""
BEDROCK = """
import os, socket
os.environ["AWS_BEARER_TOKEN_BEDROCK"] = "k"
known = socket.getaddrinfo
socket.getaddrinfo = lambda host, *rest, **more: known("127.0.0.1", *rest, **more)
import botocore.session
session = botocore.session.get_session()
address = dict(region_name="us-east-1", endpoint_url=URL, verify=AUTHORITY)
client = session.create_client("bedrock-runtime", **address)
token = {"x-tfgrpo-token": TOKEN}
client.meta.events.register("before-call", lambda params, **_: params["headers"].update(token))
asked = dict(modelId="us.maker.model-1:0", system=[{"text": OWN}])
asked["messages"] = [{"role": "user", "content": [{"text": "How long?"}]}]
print(client.converse(**asked)["output"]["message"]["content"][0]["text"])
events = client.converse_stream(**asked)["stream"]
pieces = (event.get("contentBlockDelta", {}).get("delta", {}).get("text", "") for event in events)
print("".join(pieces))
"""
SIGNED = """
import botocore.session
from botocore.exceptions import ClientError
session = botocore.session.get_session()
session.set_credentials("AKIA1", "secret")
client = session.create_client("bedrock-runtime", region_name="us-east-1", endpoint_url=URL)
try:
    client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "Hi"}]}])
except ClientError as error:
    print(error)
"""
NPM = """
import OpenAI from "openai";
const client = new OpenAI({ baseURL: URL + "/v1", apiKey: "sk-1" });
const messages = [{ role: "system", content: OWN }, { role: "user", content: "How long?" }];
const whole = await client.chat.completions.create({ model: "m", messages });
console.log(whole.choices[0].message.content);
let text = "";
const asked = { model: "m", messages, stream: true };
for await (const part of await client.chat.completions.create(asked))
  text += part.choices[0]?.delta?.content ?? "";
console.log(text);
const said = await client.responses.create({ model: "m", instructions: OWN, input: "How long?" });
console.log(said.output_text);
"""


def needs(module: str, package: str) -> None:
    """Skips where the clients' Python has no such module."""
    found = f"import importlib.util as u; raise SystemExit(u.find_spec({module!r}) is None)"
    if subprocess.run([PYTHON, "-P", "-c", found], capture_output=True).returncode:
        pytest.skip(f"{package} is not installed: TFGRPO_CLIENTS_PYTHON names a Python that has it")


@contextmanager
def before(store: Store, token: str | None = None) -> Iterator[tuple[Provider, ProxyThread]]:
    """A provider that has all APIs, and the proxy before it."""
    with Provider(answer) as provider:
        named = upstreams({"openai": provider.url})
        settings = ProxySettings({"d": Choice(store.path)}, "d", **named, port=0, token=token)
        with ProxyThread(settings) as proxy:
            yield provider, proxy


def ran(command: list[str], folder: Path) -> list[str]:
    """Runs a client; returns the lines that it printed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    return lines


def through(store: Store, command: list[str], folder: Path | None = None) -> list[Received]:
    """Runs a client before the proxy; returns what the provider was sent. `{URL}` in the command is
    the proxy's address."""
    with before(store) as (provider, proxy):
        url = f"http://127.0.0.1:{proxy.port}"
        lines = ran([part.replace("{URL}", url) for part in command], folder or store.path.parent)
    assert set(lines) == {ANSWER}
    assert len(provider.received) == len(lines)
    return provider.received


def check(store: Store, received: list[Received]) -> None:
    """The library is after the application's own text, and each call on record with its tokens."""
    for request in received:
        own, _, rest = instructions_of(request).partition(OWN)
        assert not own.strip(), "nothing stands before the application's own text"
        assert rest.endswith(f"[G0] {RULE}")
    calls = recorded(store)
    assert [call.status for call in calls] == [200] * len(received)
    assert {call.completion_tokens for call in calls} == {8}


@pytest.mark.parametrize("module", CLIENTS)
def test_a_client_gets_the_library_and_reads_its_answers(module: str, store: Store) -> None:
    package, program = CLIENTS[module]
    needs(module, package)
    names = f'URL, OWN = "{{URL}}", {OWN!r}\n'
    check(store, through(store, [PYTHON, "-P", "-c", names + program]))


def test_bedrocks_own_client_gets_the_library_by_an_api_key_over_tls(store: Store) -> None:
    needs("botocore", "botocore")
    token = "s3cret-token"  # a name that is not this machine's needs it
    with before(store, token) as (provider, proxy), TlsFront(proxy.port) as front:
        url = f"https://bedrock.example.com:{front.port}"
        names = f"URL, OWN, AUTHORITY, TOKEN = {(url, OWN, str(AUTHORITY), token)!r}\n"
        lines = ran([PYTHON, "-P", "-c", names + BEDROCK], store.path.parent)
    assert lines == [ANSWER] * 2
    check(store, provider.received)
    assert {call.model for call in recorded(store)} == {"us.maker.model-1:0"}


def test_bedrocks_own_client_is_told_that_a_signed_request_cannot_be_changed(store: Store) -> None:
    needs("botocore", "botocore")
    with before(store) as (provider, proxy):
        names = f'URL = "http://127.0.0.1:{proxy.port}"\n'
        (line,) = ran([PYTHON, "-P", "-c", names + SIGNED], store.path.parent)
    assert "a signed request cannot be changed" in line
    assert provider.received == []


def test_what_gemini_counts_passes_through(store: Store) -> None:
    needs("google.genai", "google-genai")
    with before(store) as (provider, proxy):
        program = f"""
from google import genai
client = genai.Client(api_key="k", http_options={{"base_url": "http://127.0.0.1:{proxy.port}"}})
print(client.models.count_tokens(model="m", contents="How long?").total_tokens)
"""
        assert ran([PYTHON, "-P", "-c", program], store.path.parent) == ["8"]
    assert RULE not in provider.received[0].body.decode()


def test_the_npm_client_gets_the_library_and_reads_its_answers(store: Store) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    if not NODE or not Path(NODE, "node_modules/openai").is_dir():
        pytest.skip("TFGRPO_CLIENTS_NODE names no folder where `npm install openai` was done")
    names = f'const URL = "{{URL}}", OWN = {json.dumps(OWN)};\n'
    command = [
        node,
        "--input-type=module",
        "-e",
        NPM.replace("const client", names + "const client"),
    ]
    check(store, through(store, command, Path(NODE)))
