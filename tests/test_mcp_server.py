"""`tfgrpo mcp`: a library asked for by real clients, on standard streams and over HTTP."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TFGRPO, environment, one_line_error

from tfgrpo.proxy.withheld_words import Finder
from tfgrpo.store import Operation, Store
from tfgrpo.store.activity.traffic import CallFilter, traffic_path
from tfgrpo.store.opening import open_traffic

pytest.importorskip("mcp")

import anyio
import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated

from tfgrpo.domains.prompt_library import live
from tfgrpo.serving.library_server import URI, LibraryServer, Lookups

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.init(tmp_path / ".tfgrpo/store.db", author="tester") as made:
        texts = ("Count both days.", "Convert litres to gallons.")
        made.commit("main", [Operation("ADD", text=text) for text in texts], message="two")
        made.create_branch("prod")
        yield made


def add(store: Store, text: str) -> None:
    store.commit("prod", [Operation("ADD", text=text)], message=text)


async def text_of(client: Client, tool: str, **arguments: Any) -> tuple[str, dict[str, Any] | None]:
    answer = await client.call_tool(tool, arguments)
    return answer.content[0].text, answer.structured_content


async def next_update(subscription: Any) -> None:
    with anyio.fail_after(240):
        async for event in subscription:
            if isinstance(event, ResourceUpdated):
                assert event.uri == URI
                return


def test_an_agent_starts_it_and_hears_of_changes(store: Store, tmp_path: Path) -> None:
    command = StdioServerParameters(command=str(TFGRPO), args=["mcp", "prod"], cwd=str(tmp_path))

    async def use() -> None:
        async with Client(command) as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == [
                "experiences",
                "feedback",
            ]
            text, found = await text_of(client, "experiences", problem="How many days?")
            assert found is not None
            assert text.startswith("Experiences from earlier problems.")
            assert "[G0] Count both days." in text
            assert found["call"] in text
            assert (found["version"], len(found["experiences"])) == ("v1", 2)
            given = {"call": found["call"], "score": False, "correct": "8"}
            assert "recorded" in (await text_of(client, "feedback", **given))[0]
            kinds = {"prompts_list_changed": True, "resource_subscriptions": [URI]}
            async with client.listen(**kinds) as subscription:
                add(store, "Give units.")
                await next_update(subscription)
                (prompt,) = (await client.list_prompts()).prompts
                assert prompt.description == "3 experiences, as of v2"
                (message,) = (await client.get_prompt("experiences")).messages
                assert message.content.text.endswith("[G2] Give units.")
                (resource,) = (await client.read_resource(URI)).contents
                assert resource.text.splitlines()[2] == "[G2] Give units."

    anyio.run(use)
    traffic = open_traffic(traffic_path(store.path))
    (listed,) = traffic.calls(CallFilter(), 10)
    assert (listed.call.route, listed.call.version) == ("/mcp/experiences", "v1")
    assert (listed.score, traffic.feedback(listed.call.id)[0].correct) == (0.0, "8")
    assert traffic.content(listed.call.id) is None, "words are kept only where that is asked for"
    traffic.close()


def test_over_http_it_serves_old_and_new_clients_that_bring_the_token(
    store: Store, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [TFGRPO, "mcp", "prod", "--http", "--port", "0"],
        cwd=tmp_path,
        env=environment(TFGRPO_MCP_TOKEN="s3cret"),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    url = re.search(r"http://\S+/mcp", line)
    assert url, line + process.stderr.read()

    def client(mode: str, heard: list[str]) -> Client:
        async def handler(message: object) -> None:
            heard.append(type(message).__name__)

        headers = {"Authorization": "Bearer s3cret"}
        http = httpx2.AsyncClient(headers=headers, timeout=240)
        transport = streamable_http_client(url[0], http_client=http)
        return Client(transport, mode=mode, message_handler=handler)

    async def use() -> None:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            async with httpx2.AsyncClient(headers=headers) as http:
                answer = await http.post(url[0], json={})
                assert (answer.status_code, "www-authenticate" in answer.headers) == (401, True)
        old: list[str] = []
        async with client("auto", []) as new_client, client("legacy", old) as old_client:
            _, found = await text_of(new_client, "experiences", problem="days")
            assert found is not None
            assert "v1" in (await old_client.list_prompts()).prompts[0].description
            await old_client.subscribe_resource(URI)
            async with new_client.listen(resource_subscriptions=[URI]) as subscription:
                add(store, "Give units.")
                await next_update(subscription)
                with anyio.fail_after(240):
                    while "ResourceUpdatedNotification" not in old:
                        await anyio.sleep(0.02)
                assert "PromptListChangedNotification" in old
                for one in (new_client, old_client):
                    (resource,) = (await one.read_resource(URI)).contents
                    assert resource.text.endswith("[G2] Give units.")
                given = {"call": found["call"], "score": 1}
                assert "recorded" in (await text_of(old_client, "feedback", **given))[0]
                began = time.monotonic()
                process.send_signal(signal.SIGTERM)  # while somebody listens
                with anyio.fail_after(240):
                    async for _ in subscription:
                        pass
                await anyio.to_thread.run_sync(process.wait)
                assert time.monotonic() - began < 60

    try:
        anyio.run(use)
        assert process.returncode in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.communicate()


def test_what_a_look_up_finds_and_refuses(store: Store) -> None:
    lookups = Lookups(store.path, content=True, pattern=Finder((r"K-\d+",)))
    server = LibraryServer(live("prod", store=store.path), lookups, top_k=1)

    async def use() -> None:
        async with Client(server.server) as client:
            problem = "How many gallons are 5 litres? Write to anna@example.com about K-77."
            _, found = await text_of(client, "experiences", problem=problem)
            assert found is not None
            assert [(e["label"], e["text"]) for e in found["experiences"]] == [
                ("G1", "Convert litres to gallons.")
            ]
            _, whole = await text_of(client, "experiences")
            assert whole is not None
            assert len(whole["experiences"]) == 2
            _, most = await text_of(client, "experiences", most=1, problem="days")
            assert most is not None
            assert [e["text"] for e in most["experiences"]] == ["Count both days."]
            for wrong in (
                {"problem": [1]},
                {"problem": True},
                {"most": 0},
                {"most": True},
                {"other": "x"},
            ):
                answer = await client.call_tool("experiences", wrong)
                assert answer.is_error, wrong
            for wrong in (
                {"call": "call-nowhere", "score": 1},
                {"call": found["call"][:20], "score": 1},
                {"call": found["call"], "score": "good"},
                {"call": found["call"]},
                {"score": 1},
            ):
                answer = await client.call_tool("feedback", wrong)
                assert answer.is_error, wrong
            for request in (
                client.call_tool("other", {}),
                client.get_prompt("other"),
                client.read_resource("tfgrpo://other"),
            ):
                with pytest.raises(MCPError):
                    await request
        traffic = open_traffic(lookups.path)
        kept = traffic.content(found["call"])
        calls = {one.call.id: one.call.experiences for one in traffic.calls(CallFilter(), 10)}
        traffic.close()
        assert kept is not None
        assert "How many gallons" in kept.request
        assert "anna" not in kept.request
        assert "K-77" not in kept.request
        assert calls[whole["call"]] is None, "the whole library"
        assert found["experiences"][0]["id"] in str(calls[found["call"]])

    anyio.run(use)


def test_feedback_over_http_is_on_calls_made_with_the_same_token(store: Store) -> None:
    began = time.perf_counter()
    library = live("prod", store=store.path).library
    with_token = Lookups(store.path, token="a")
    call = with_token.add(library, True, "", began)
    assert call is not None
    for other in (Lookups(store.path, token="b"), Lookups(store.path, token="")):
        with pytest.raises(Exception, match="no call"):
            other.add_feedback({"call": call, "score": 1})
    assert with_token.add_feedback({"call": call, "score": 1}) == call
    assert Lookups(store.path).add_feedback({"call": call, "score": 0}) == call, "its owner may"


@pytest.mark.usefixtures("always_looking")
def test_a_store_that_is_gone_and_a_record_that_cannot_be_written_stop_no_look_up(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    library = live("prod", store=store.path)
    server = LibraryServer(library, Lookups(store.path), top_k=20)

    async def use() -> None:
        async with Client(server.server) as client:
            folder = store.path.parent
            folder.rename(folder.with_name("away"))
            text, found = await text_of(client, "experiences", problem="days")
            assert "Count both days." in text
            assert found is not None
            assert found["call"] is None
            folder.with_name("away").rename(folder)

    anyio.run(use)
    assert "look-ups are not recorded" in caplog.text


def test_beyond_this_machine_a_token_is_demanded(
    store: Store, cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = cli("mcp", "prod", "--http", "--host", "0.0.0.0", "--port", "0", ok=False)
    one_line_error(done, "needs a token", code=2)


def test_without_the_package_there_is_a_hint(store: Store, tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['mcp'] = None\n"
        "from tfgrpo.cli.main import main\n"
        "sys.argv = ['tfgrpo', 'mcp']\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    one_line_error(done, "MCP needs the package mcp")


def test_a_problem_gets_as_many_experiences_as_in_training(store: Store) -> None:
    meta = {"run": "r", "rendering": {"top_k": 1}}
    litres = Operation("ADD", text="Round litres up.")
    store.commit("prod", [litres], message="three", meta=meta)

    async def use() -> None:
        for given, found in ((None, 1), (2, 2)):
            server = LibraryServer(live("prod", store=store.path), None, top_k=given)
            async with Client(server.server) as client:
                _, shown = await text_of(client, "experiences", problem="gallons or litres")
                assert shown is not None
                assert len(shown["experiences"]) == found
                _, whole = await text_of(client, "experiences")
                assert whole is not None
                assert len(whole["experiences"]) == 3
                prompt = await client.get_prompt("experiences", {"problem": "litres"})
                assert prompt.messages[0].content.text.count("[G") == found

    anyio.run(use)
