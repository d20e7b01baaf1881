"""MCP servers that mean harm: each is left or cut within its time, and it is said which."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from pathlib import Path

import pytest
from test_tool_mcp import ONE, RAW
from waiting import until

from tfgrpo.tools import toolbox
from tfgrpo.tools.mcp_tools import Server, ServerError
from tfgrpo.tools.tool import Result
from tfgrpo.tools.toolbox import ToolSettings

pytest.importorskip("mcp")
GOOD = '{"result": {"content": [{"type": "text", "text": "fine"}]}}'
FLOOD = """
said = {"level": "info", "data": "x" * 1000}
note = {"jsonrpc": "2.0", "method": "notifications/message", "params": said}
def flood(lines):
    for _ in range(lines):
        print(json.dumps(note), flush=True)
    return {"result": {"content": [{"type": "text", "text": "fine"}]}}
def say(text):
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()
    return {"result": {"content": [{"type": "text", "text": "fine"}]}}
def ask(method, **given):
    print(json.dumps({"jsonrpc": "2.0", "id": 77, "method": method, "params": given}), flush=True)
    return {"result": {"content": [{"type": "text", "text": sys.stdin.readline()}]}}
import time
"""


def used(
    folder: Path, listed: str = ONE, answered: str = GOOD, before: str = "", seconds: float = 3
) -> dict[str, Result]:
    """Returns what each tool gives of a server that does what it is told."""
    script = folder / "raw.py"
    body = FLOOD + RAW.replace("LIST", listed).replace("CALL", answered)
    script.write_text(body.replace("for line in sys.stdin", f"{before}\nfor line in sys.stdin", 1))
    server = Server(command=sys.executable, args=(str(script),), seconds=seconds)

    async def use() -> dict[str, Result]:
        async with toolbox.opened(ToolSettings(use=(), mcp={"x": server}), folder) as box:
            return {tool.spec.name: await tool.call({}) for tool in box.tools()[:3]}

    return asyncio.run(use())


@pytest.mark.parametrize(
    ("listed", "before"),
    [
        (ONE, "time.sleep(600)"),
        ("time.sleep(600)", ""),
        ('(time.sleep(0.7), {"result": {"tools": [tool], "nextCursor": "2"}})[1]', ""),
    ],
    ids=["says nothing", "lists nothing", "lists for ever, a page at a time"],
)
def test_a_server_that_takes_for_ever_is_left(tmp_path: Path, listed: str, before: str) -> None:
    began = time.process_time()
    with pytest.raises(ServerError, match="MCP server x cannot be used"):
        asyncio.run(asyncio.wait_for(asyncio.to_thread(used, tmp_path, listed, GOOD, before), 60))
    assert time.process_time() - began < 30


@pytest.mark.parametrize(
    ("answered", "text"),
    [
        ("time.sleep(600)", "x_t failed: "),
        ("flood(2_000)", "fine"),
        ("say('no JSON at all')", "fine"),
        ('say(\'{"jsonrpc": "2.0", "id": 999, "result": {}}\')', "fine"),
        ("say('[' * 50_000)", "fine"),
        ("say('\\ufffd\\x00')", "fine"),
    ],
)
def test_whatever_it_says_beside_an_answer_harms_nothing(
    tmp_path: Path, answered: str, text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    seconds = 3 if text != "fine" else 60
    assert used(tmp_path, ONE, answered, seconds=seconds)["x_t"].text.startswith(text)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
def test_what_it_asks_of_us_is_refused(tmp_path: Path, method: str) -> None:
    given = "messages=[], maxTokens=5, message='m', requestedSchema={}"
    said = used(tmp_path, ONE, f"ask({method!r}, {given})")["x_t"].text
    assert '"error"' in said
    assert '"result"' not in said


MANY = '{"result": {"tools": [tool | {"name": f"t{n}"} for n in range(300)]}}'
LONG = '{"result": {"tools": [tool | {"description": "d" * 100_000}]}}'
WIDE = (
    '{"result": {"tools": [tool | {"inputSchema": {"type": "object",'
    ' "properties": {f"p{n}": {"type": "string"} for n in range(10_000)}}}]}}'
)


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (MANY, "offers more than 128 tools"),
        (LONG, "describes x_t in 100,"),
        (WIDE, "describes x_t in 2"),
    ],
    ids=["many tools", "a long description", "many arguments"],
)
def test_what_models_would_be_told_of_tools_is_bounded(
    tmp_path: Path, listed: str, said: str
) -> None:
    with pytest.raises(ServerError, match=said):
        used(tmp_path, listed, seconds=30)


@pytest.mark.skipif(sys.platform != "linux", reason="counts the memory of Linux")
def test_a_line_without_end_takes_no_memory_without_end(tmp_path: Path) -> None:
    endless = "[sys.stdout.write('x' * (1 << 20)) for _ in range(4000)]"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert used(tmp_path, ONE, endless, seconds=5)["x_t"].failed
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000


def test_a_server_that_ignores_the_end_is_ended(tmp_path: Path) -> None:
    stubborn = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))"
    )
    after = '({"result": {"content": []}}, setattr(sys, "stdin", [open(os.devnull)]))[0]'
    used(tmp_path, ONE, after, stubborn)
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
