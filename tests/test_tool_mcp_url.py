"""MCP servers at an address that mean harm: each is left within its time and its bytes."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tfgrpo.tools import mcp_tools, toolbox
from tfgrpo.tools.mcp_tools import Server, ServerError
from tfgrpo.tools.tool import Result, Tool
from tfgrpo.tools.toolbox import ToolSettings

pytest.importorskip("mcp")
TOOL = {"name": "t", "description": "d", "inputSchema": {"type": "object"}}
MOST_MEMORY = 300_000
"""KiB by which the process may grow."""
Answer = Callable[["Handler", dict[str, Any]], None]


class Handler(BaseHTTPRequestHandler):
    """Answers as a server should, but for the methods that it has answers of its own for."""

    protocol_version = "HTTP/1.1"
    own: dict[str, Answer]
    seen: list[str]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.seen.append(asked["method"])
        own = self.own.get(asked["method"])
        if own is not None:
            own(self, asked)
        elif asked.get("id") is None:
            self.say(b"", 202)
        else:
            self.say(json.dumps(usual(asked)).encode())

    def do_GET(self) -> None:
        self.say(b"", 405)

    def do_DELETE(self) -> None:
        own = self.own.get("DELETE")
        own(self, {}) if own else self.say(b"", 405)

    def say(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def say_for_ever(self, piece: bytes, kind: str, pause: float = 0.0) -> None:
        """Says the same piece until nobody listens, or for five minutes."""
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()
        self.close_connection = True
        until = time.monotonic() + 300
        while time.monotonic() < until:
            self.wfile.write(piece)
            self.wfile.flush()
            time.sleep(pause)

    def log_message(self, *_: object) -> None:
        pass


def usual(asked: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
    match asked["method"]:
        case "initialize":
            about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
            version = asked["params"]["protocolVersion"]
            return answer | {"result": {"protocolVersion": version, **about}}
        case "tools/list":
            return answer | {"result": {"tools": [TOOL]}}
        case "tools/call":
            return answer | {"result": {"content": [{"type": "text", "text": "fine"}]}}
    return answer | {"error": {"code": -32601, "message": "there is none"}}


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that leaves is what is wanted here."""


@contextmanager
def served(**own: Answer) -> Iterator[tuple[str, list[str]]]:
    """Yields the address of a server, and the methods that it is asked."""
    kind = type("Own", (Handler,), {"own": own, "seen": []})
    with Quiet(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp", kind.seen
        server.shutdown()


def peak(*, anew: bool = False) -> int:
    """Returns the most memory that this process had, in KiB; from now on with `anew`."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def used(folder: Path, url: str, seconds: float = 3) -> Result:
    """Returns what the tool of a server gives."""
    server = Server(url=url, seconds=seconds)

    async def use() -> Result:
        async with toolbox.opened(ToolSettings(use=(), mcp={"x": server}), folder) as box:
            [tool] = box.tools()
            return await tool.call({})

    return asyncio.run(asyncio.wait_for(use(), 300))


@cache
def bomb_of(spaces: int) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return b"".join(packer.compress(b" " * (1 << 24)) for _ in range(spaces >> 24)) + packer.flush()


def bomb(handler: Handler, asked: dict[str, Any]) -> None:
    """Less than a megabyte of gzip that is more than half a gigabyte of blanks."""
    handler.say(bomb_of(600 << 20), content_encoding="gzip")


def endless(handler: Handler, asked: dict[str, Any]) -> None:
    handler.say_for_ever(b" " * (1 << 20), "application/json")


def endless_line(handler: Handler, asked: dict[str, Any]) -> None:
    handler.say_for_ever(b"x" * (1 << 20), "text/event-stream")


def endless_events(handler: Handler, asked: dict[str, Any]) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/message"}
    note["params"] = {"level": "info", "data": "x" * 1000}  # type: ignore[assignment]
    handler.say_for_ever(f"data: {json.dumps(note)}\n\n".encode() * 100, "text/event-stream")


def a_byte_now_and_then(handler: Handler, asked: dict[str, Any]) -> None:
    handler.say_for_ever(b" ", "application/json", pause=0.3)


def nothing(handler: Handler, asked: dict[str, Any]) -> None:
    time.sleep(300)


def packed_events(handler: Handler, asked: dict[str, Any]) -> None:
    handler.say(bomb_of(600 << 20), content_type="text/event-stream", content_encoding="gzip")


def gone(handler: Handler, asked: dict[str, Any]) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def broken_off(handler: Handler, asked: dict[str, Any]) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "application/json")
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b"{")
    gone(handler, asked)


def an_error_of_its_own(handler: Handler, asked: dict[str, Any]) -> None:
    """With the code that `mcp` itself has for a connection that was closed."""
    error = {"code": mcp_tools.CLOSED, "message": "not today"}
    handler.say(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}).encode())


HARM = (
    an_error_of_its_own,
    packed_events,
    gone,
    broken_off,
    bomb,
    endless,
    endless_line,
    endless_events,
    a_byte_now_and_then,
    nothing,
)


def test_a_server_at_an_address_is_used(tmp_path: Path) -> None:
    with served() as (url, seen):
        assert used(tmp_path, url, 60) == Result("fine")
    assert seen[-1] == "tools/call"


@pytest.mark.skipif(sys.platform != "linux", reason="counts the memory of Linux")
@pytest.mark.parametrize("harm", HARM, ids=lambda harm: harm.__name__)
@pytest.mark.parametrize("method", ["initialize", "tools/list", "tools/call"])
def test_a_server_that_has_no_end_takes_neither_time_nor_memory_without_end(
    tmp_path: Path, harm: Answer, method: str
) -> None:
    bomb_of(600 << 20)
    before = peak(anew=True)
    began = time.monotonic()
    with served(**{method: harm}) as (url, seen):
        if method == "tools/call":
            assert used(tmp_path, url).failed
        else:
            with pytest.raises(ServerError, match="MCP server x cannot be used"):
                used(tmp_path, url)
        took = time.monotonic() - began
    assert method in seen
    assert took < 20
    assert peak() - before < MOST_MEMORY


def with_a_session(handler: Handler, asked: dict[str, Any]) -> None:
    handler.say(json.dumps(usual(asked)).encode(), mcp_session_id="s1")


@pytest.mark.parametrize("harm", [nothing, a_byte_now_and_then], ids=lambda harm: harm.__name__)
def test_a_server_that_does_not_end_its_session_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Answer
) -> None:
    monkeypatch.setattr(mcp_tools, "CLOSING_SECONDS", 1.0)
    began = time.monotonic()
    with served(initialize=with_a_session, DELETE=harm) as (url, _):
        assert used(tmp_path, url, 30) == Result("fine")
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("harm", HARM, ids=lambda harm: harm.__name__)
def test_a_call_that_came_to_nothing_ends_no_other(tmp_path: Path, harm: Answer) -> None:
    """Neither one after it nor one beside it: a connection serves all attempts of a run. The one
    beside is answered when the other is over, unless that takes its time."""
    over = threading.Event()

    def by_turns(handler: Handler, asked: dict[str, Any]) -> None:
        if asked["params"].get("arguments"):
            harm(handler, asked)
        else:
            over.wait(1.0)
            handler.say(json.dumps(usual(asked)).encode())

    async def harmed(tool: Tool) -> Result:
        result = await tool.call({"harm": 1})
        over.set()
        return result

    async def use(url: str) -> list[Result]:
        server = Server(url=url, seconds=10)
        async with toolbox.opened(ToolSettings(use=(), mcp={"x": server}), tmp_path) as box:
            [tool] = box.tools()
            first, beside = await asyncio.gather(harmed(tool), tool.call({}))
            return [first, beside, await tool.call({})]

    with served(**{"tools/call": by_turns}) as (url, _):
        first, *others = asyncio.run(asyncio.wait_for(use(url), 300))
    assert first.failed
    assert others == [Result("fine")] * 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["initialize", "tools/call"])
def test_a_redirect_to_another_host_is_not_followed(
    tmp_path: Path, method: str, status: int
) -> None:
    with served() as (elsewhere, asked_there):

        def away(handler: Handler, asked: dict[str, Any]) -> None:
            handler.say(b"", status, location=elsewhere.replace("127.0.0.1", "localhost"))

        with served(**{method: away}) as (url, _):
            if method == "tools/call":
                assert used(tmp_path, url).failed
            else:
                with pytest.raises(ServerError, match="MCP server x cannot be used"):
                    used(tmp_path, url)
    assert asked_there == []
