"""Tools of MCP servers, spoken to by a real server in a process of its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tfgrpo.tools import toolbox
from tfgrpo.tools.mcp import Server, ServerError
from tfgrpo.tools.toolbox import ToolSettings

pytest.importorskip("mcp")

SERVER = '''
import os
from mcp.server import MCPServer

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


def test_a_server_that_does_not_start_is_named(tmp_path: Path) -> None:
    async def use() -> None:
        settings = ToolSettings(use=(), mcp={"x": Server(command="no-such-command-here")})
        async with toolbox.opened(settings, tmp_path):
            pass

    with pytest.raises(ServerError, match="MCP server x cannot be used"):
        asyncio.run(use())
