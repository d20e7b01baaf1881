"""Tools of MCP servers, spoken to by a real server in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest
from waiting import until_so

from tfgrpo.tools import toolbox
from tfgrpo.tools.mcp_tools import CLOSED, Connection, Server, ServerError
from tfgrpo.tools.tool import Result
from tfgrpo.tools.toolbox import ToolSettings

mcp = pytest.importorskip("mcp")

SERVER = '''
import os
from mcp.server import MCPServer
from mcp.server.caching import CacheHint

server = MCPServer("counter")
total = 0

@server.tool()
def add(number: int) -> str:
    """Adds to the total."""
    global total
    total += number
    return f"total {total}"

@server.tool()
def fail() -> str:
    """Never works."""
    raise ValueError("broken")

@server.tool()
def environment() -> str:
    """Tells what it sees."""
    return ",".join(sorted(os.environ))

server.run()
'''


@pytest.fixture
def server(tmp_path: Path) -> Server:
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    return Server(command=sys.executable, args=(str(script),), env=("SEEN",))


def test_a_servers_tools_are_offered_and_called(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEEN", "1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")

    async def use() -> None:
        settings = ToolSettings(use=(), mcp={"sum": server})
        async with toolbox.opened(settings, tmp_path) as box:
            tools = {tool.spec.name: tool for tool in box.tools()}
            assert set(tools) == {"sum_add", "sum_fail", "sum_environment"}
            add = tools["sum_add"]
            assert add.spec.description == "Adds to the total."
            assert "number" in add.spec.parameters["properties"]
            before = add.state
            assert (await add.call({"number": 3})).text == "total 3"
            assert add.state != before, "what a server was asked before is part of the state"
            assert {t.spec.name: t.state for t in box.tools()}["sum_add"] == before
            assert (await tools["sum_fail"].call({})).failed
            assert (await add.call({"number": "x"})).failed
            seen = (await tools["sum_environment"].call({})).text.split(",")
            assert "SEEN" in seen
            assert "OPENAI_API_KEY" not in seen

    asyncio.run(use())


@pytest.mark.parametrize("hints", ["", ', cache_hints={"tools/list": CacheHint(ttl_ms=10**8)}'])
def test_a_server_that_ended_is_started_again_for_the_calls_after(
    tmp_path: Path, hints: str
) -> None:
    """Also one whose list of tools may be kept: that it is there says nothing."""
    script = tmp_path / "server.py"
    script.write_text(
        SERVER.replace("raise ValueError", "os._exit(1)\n    raise ValueError")
        .replace("total = 0", "total = 0\nopen('starts', 'a').write('x')")
        .replace('MCPServer("counter"', f'MCPServer("counter"{hints}')
    )
    server = Server(command=sys.executable, args=(str(script),), seconds=10)

    async def use() -> tuple[list[Result], list[Result], Result]:
        settings = ToolSettings(use=(), mcp={"sum": server})
        async with toolbox.opened(settings, tmp_path) as box:
            tools = {tool.spec.name: tool for tool in box.tools()}
            add, fail = tools["sum_add"], tools["sum_fail"]
            before = await add.call({"number": 1})
            ended = [before, *await asyncio.gather(*(fail.call({}) for _ in range(3)))]
            again = [await add.call({"number": 5}) for _ in range(2)]
            script.write_text("raise SystemExit(1)")
            lost = await fail.call({})
            with pytest.raises(ServerError, match="MCP server sum cannot be used"):
                await add.call({"number": 1})
            with pytest.raises(ServerError):
                await add.call({"number": 2})
            return ended, again, lost

    here = os.getcwd()
    os.chdir(tmp_path)
    try:
        ended, again, lost = asyncio.run(use())
    finally:
        os.chdir(here)
    assert [one.failed for one in ended] == [False, True, True, True]
    assert again == [Result("total 5"), Result("total 10")], "a server of its own, begun anew"
    assert lost.failed
    assert (tmp_path / "starts").read_text() == "xx"


class Failing:
    """What speaks to a server whose connection does not close."""

    async def __aenter__(self) -> Failing:
        return self

    async def __aexit__(self, *_: object) -> None:
        raise ValueError("it does not close")

    async def list_tools(self, *, cache_mode: str) -> None:
        assert cache_mode == "bypass"
        raise mcp.MCPError(CLOSED, "Connection closed")


def test_a_connection_that_does_not_close_is_made_again() -> None:
    async def use() -> None:
        connection = Connection("x", Failing)  # type: ignore[arg-type]
        first = await connection.client()
        await connection.renew(first)
        async with asyncio.timeout(60):
            assert await connection.client() is not first
            with pytest.raises(ValueError, match="it does not close"):
                await connection.close()

    asyncio.run(use())


def test_a_server_that_does_not_start_is_named(tmp_path: Path) -> None:
    async def use() -> None:
        settings = ToolSettings(use=(), mcp={"x": Server(command="no-such-command-here")})
        async with toolbox.opened(settings, tmp_path):
            pass

    with pytest.raises(ServerError, match="MCP server x cannot be used"):
        asyncio.run(use())


def test_a_stop_during_the_handshake_does_not_wait_for_its_end(tmp_path: Path) -> None:
    reads = "open('begun', 'w'); import sys; sys.stdin.read()"
    server = Server(command=sys.executable, args=("-c", reads), seconds=600)

    async def use() -> None:
        settings = ToolSettings(use=(), mcp={"x": server})
        async with toolbox.opened(settings, tmp_path):
            pass

    async def stop() -> None:
        using = asyncio.create_task(use())
        await until_so((tmp_path / "begun").exists)
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(using, 240)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, "nothing goes on after it"

    with contextlib.chdir(tmp_path):
        asyncio.run(stop())


RAW = """
import json, os, sys
tool = {"name": "t", "description": "d", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": asked.get("id")}
    after = (asked.get("params") or {}).get("cursor")
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
        answer["result"] = {"protocolVersion": version, **about}
    elif asked["method"] == "tools/list":
        answer |= LIST
    elif asked["method"] == "tools/call":
        answer |= CALL
    else:
        answer["error"] = {"code": -32601, "message": "there is none"}
    if asked.get("id") is not None:
        print(json.dumps(answer), flush=True)
"""
ONE = '{"result": {"tools": [tool]}}'


def offered(
    folder: Path, listed: str, answered: str = '{"result": {"content": []}}', output: int = 8000
) -> dict[str, Result]:
    """Returns what each tool gives of a server that answers as it is told to."""
    script = folder / "raw.py"
    script.write_text(RAW.replace("LIST", listed).replace("CALL", answered))
    server = Server(command=sys.executable, args=(str(script),), seconds=5)

    async def use() -> dict[str, Result]:
        settings = ToolSettings(use=(), mcp={"x": server}, output=output)
        async with toolbox.opened(settings, folder) as box:
            return {tool.spec.name: await tool.call({}) for tool in box.tools()}

    return asyncio.run(use())


@pytest.mark.parametrize(
    "listed",
    [
        '{"error": {"code": -1, "message": "no list today"}}',
        '{"result": {"tools": "none"}}',
        '{"result": {"tools": [{"name": "t", "inputSchema": {"properties": [1]}}]}}',
        "os._exit(1)",
    ],
)
def test_a_server_whose_tools_cannot_be_listed_is_named(tmp_path: Path, listed: str) -> None:
    with pytest.raises(ServerError, match="MCP server x cannot be used") as error:
        offered(tmp_path, listed)
    assert "\n" not in str(error.value)


def test_all_pages_of_tools_are_read(tmp_path: Path) -> None:
    pages = (
        '{"result": {"tools": [tool | {"name": "u"}]} if after else '
        '{"tools": [tool], "nextCursor": "2"}}'
    )
    assert list(offered(tmp_path, pages)) == ["x_t", "x_u"]


def test_tools_whose_names_are_alike_to_an_api_are_told_apart(tmp_path: Path) -> None:
    names = '{"result": {"tools": [tool | {"name": n} for n in ("a.b", "a/b", "a_b")]}}'
    assert list(offered(tmp_path, names)) == ["x_a_b", "x_a_b_2", "x_a_b_3"]


@pytest.mark.parametrize("answered", ['{"result": {"content": "none"}}', "os._exit(1)"])
def test_an_answer_that_is_none_is_a_failed_result(tmp_path: Path, answered: str) -> None:
    result = offered(tmp_path, ONE, answered)["x_t"]
    assert result.failed
    assert result.text.startswith("x_t failed: ")


def test_a_large_result_is_cut_as_all_are(tmp_path: Path) -> None:
    large = '{"result": {"content": [{"type": "text", "text": "x" * 3_000_000}]}}'
    result = offered(tmp_path, ONE, large, 100)["x_t"]
    assert result == Result("x" * 100 + "\n[cut]")
