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
from pathlib import Path
from typing import Any

import pytest
from providers import Provider, ProxyThread, Received
from recipes import ANSWER, instructions_of, reply
from test_traffic import Choice, make, recorded

from tfgrpo.proxy.proxy_settings import ProxySettings, parse_upstream
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


def answer(connection: socket.socket, request: Received) -> None:
    path = request.line.split()[1].decode().partition("?")[0]
    if "generateContent" in path or "GenerateContent" in path:
        content = {"role": "model", "parts": [{"text": ANSWER}]}
        body = json.dumps({"candidates": [{"content": content, "finishReason": "STOP"}]}).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        connection.sendall(head % len(body) + body)
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
}
"""Module → what installs it, and a program that prints `ANSWER` in each way that it has."""
GENAI = """
from google import genai
from google.genai import types
client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=URL))
own = types.GenerateContentConfig(system_instruction=OWN)
print(client.models.generate_content(model="m", contents="How long?", config=own).text)
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


def through(store: Store, command: list[str], folder: Path | None = None) -> list[Received]:
    """Runs a client before the proxy; returns what the provider was sent. `{URL}` in the command is
    the proxy's address."""
    with Provider(answer) as provider:
        openai = parse_upstream(provider.url)
        anthropic = parse_upstream(provider.url.removesuffix("/v1"), anthropic=True)
        settings = ProxySettings({"d": Choice(store.path)}, "d", openai, anthropic, port=0)
        with ProxyThread(settings) as proxy:
            url = f"http://127.0.0.1:{proxy.port}"
            done = subprocess.run(
                [part.replace("{URL}", url) for part in command],
                capture_output=True,
                text=True,
                timeout=300,
                cwd=folder,
                env={"PATH": os.environ["PATH"], "HOME": str(store.path.parent)},
            )
        assert done.returncode == 0, done.stderr[-4000:]
        lines = done.stdout.splitlines()
        assert lines, done.stderr
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


def test_geminis_own_client_passes_through_unchanged(store: Store) -> None:
    needs("google.genai", "google-genai")
    names = f'URL, OWN = "{{URL}}", {OWN!r}\n'
    (request,) = through(store, [PYTHON, "-P", "-c", names + GENAI])
    body = json.loads(request.body)
    assert body["systemInstruction"]["parts"] == [{"text": OWN}], "no library: the route is another"
    assert RULE not in request.body.decode()
    (call,) = recorded(store)
    assert (call.status, call.library) == (200, None)


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
