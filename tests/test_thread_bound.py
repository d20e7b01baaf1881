"""Threads of sandboxed code are bounded, those too that no library has started."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfgrpo.tools import python_tool as tool
from tfgrpo.tools import sandbox, thread_bound
from tfgrpo.tools.confine import MOST_THREADS
from tfgrpo.tools.python_tool import Python
from tfgrpo.tools.sandbox import PythonLimits

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

MANY = """
import threading
threading.stack_size(32768)
event, begun = threading.Event(), 0
try:
    for number in range(4000):
        threading.Thread(target=event.wait, daemon=True).start()
        begun += 1
except RuntimeError:
    pass
event.set()
begun
"""


async def begun(code: str = MANY) -> str:
    """Returns how many threads a session could begin, or how it ended."""
    session = Python(limits=PythonLimits(seconds=120))
    try:
        return (await session.call({"code": code})).text
    finally:
        await session.close()


@pytest.fixture(params=["bubblewrap", "kernel walls"])
def wall(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "kernel walls":
        monkeypatch.setattr(sandbox, "bubblewrap", lambda: None)
    elif sandbox.bubblewrap() is None:
        pytest.skip("bubblewrap does not work here")
    return str(request.param)


def test_threads_are_bounded_and_it_is_said_by_what(wall: str) -> None:
    words = str(sandbox.strength("auto"))
    assert "threads are" in words
    text = asyncio.run(begun())
    if "counted" in words:
        assert "more than" in text or int(text) < 4000
    else:
        assert 8 <= int(text) <= MOST_THREADS
    if (group := thread_bound.open_group()) is not None:
        group.close()
        for parent in thread_bound._parents():
            assert not list(parent.glob(f"{thread_bound.BEGINS}{os.getpid()}-*"))


def test_a_group_that_had_a_process_when_it_was_closed_goes_with_the_next() -> None:
    group = thread_bound.open_group()
    if group is None:
        pytest.skip("no cgroup can be made here")
    foreign = group.path.with_name(f"{thread_bound.BEGINS}web.service")
    foreign.mkdir()
    process = subprocess.Popen(["sleep", "60"])
    try:
        other = thread_bound.open_group()
        assert other is not None
        assert group.path.exists(), "it is in use"
        assert group.take(process.pid)
        group.close()
        assert group.path.exists(), "it has a process"
        process.kill()
        process.wait()
        other.close()
        last = thread_bound.open_group()
        assert last is not None
        last.close()
        assert not group.path.exists()
        assert foreign.exists(), "somebody else's"
    finally:
        process.kill()
        process.wait()
        foreign.rmdir()


def test_without_a_group_or_a_limit_threads_are_counted(
    wall: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "open_group", lambda: None)
    monkeypatch.setattr(sandbox, "open_group", lambda: None)
    words = str(sandbox.strength("auto"))
    if "RLIMIT_NPROC" in words:
        assert 8 <= int(asyncio.run(begun())) <= MOST_THREADS
        return

    code = MANY.replace("event.set()", "import time; time.sleep(100)")
    assert f"more than {MOST_THREADS} threads" in asyncio.run(begun(code))


def test_a_group_whose_maker_is_gone_is_removed() -> None:
    group = thread_bound.open_group()
    if group is None:
        pytest.skip("no cgroup can be made here")
    group.close()
    parent = next(path for path in thread_bound._parents() if os.access(path, os.W_OK))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    left = Path(parent, f"{thread_bound.BEGINS}{ended.pid}-left")
    left.mkdir()
    again = thread_bound.open_group()
    assert again is not None
    again.close()
    assert not left.exists()
