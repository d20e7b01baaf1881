"""Threads of sandboxed code are bounded, those too that no library has started."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tfgrpo.tools import sandbox
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


RAW = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
PARTS = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000  # memory, files, signals: CLONE_THREAD
stacks = []
libc.clone.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
sleep = ctypes.cast(libc.sleep, ctypes.c_void_p)
for number in range(4000):
    stacks.append(ctypes.create_string_buffer(16384))
    top = (ctypes.addressof(stacks[-1]) + 16384) // 16 * 16
    if libc.clone(sleep, top, PARTS, 100) < 0:
        break
len(stacks) - 1 if number < 3999 else 4000
"""
"""The same by the system call: no library counts or begins these threads."""
LOOPS = pytest.mark.parametrize("code", [MANY, RAW], ids=["threading", "clone"])


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


@LOOPS
def test_threads_are_bounded_and_it_is_said_by_what(wall: str, code: str) -> None:
    words = str(sandbox.strength("auto"))
    assert "threads are" in words
    if "RLIMIT_NPROC" in words:
        assert 8 <= int(asyncio.run(begun(code))) <= MOST_THREADS
        return
    code = code.replace("event.set()", "") + "import time; time.sleep(100)"
    assert f"more than {MOST_THREADS} threads" in asyncio.run(begun(code))


HOSTILE = {
    "threads": MANY,
    "clones": RAW,
    "fork": "import os; os.fork()",
    "root": "import os; os.setuid(0)",
    "secret": "open('/etc/shadow').read()",
    "memory": "open('/proc/self/mem', 'rb+')",
    "network": "import ctypes\nif ctypes.CDLL(None).socket(2, 1, 0) < 0: raise OSError",
}
OTHER_USER = """
import asyncio, json, os, sys
sys.path.insert(0, sys.argv[1])
from test_thread_bound import HOSTILE, begun
from tfgrpo.tools import sandbox
said = {name: asyncio.run(begun(code)) for name, code in HOSTILE.items()}
print(json.dumps([os.getuid(), str(sandbox.strength("auto")), said]))
"""
NOBODY = 65534


@pytest.fixture
def other_user() -> list[str]:
    """What a command begins with that runs as another user, who may read what the tests need."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user, by setpriv")
    user = [f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]  # this Python may be root's
    return ["setpriv", *user, "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]


def test_hostile_code_of_another_user_is_held(other_user: list[str]) -> None:
    python = [sys.executable, "-c", OTHER_USER, str(Path(__file__).parent)]
    done = subprocess.run([*other_user, *python], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    user, words, said = json.loads(done.stdout)
    assert user == NOBODY
    assert "threads are bounded by RLIMIT_NPROC" in words
    for name in ("threads", "clones"):
        assert 8 <= int(said.pop(name)) <= MOST_THREADS
    held = [name for name, text in said.items() if "PermissionError" in text or "OSError" in text]
    assert held == [*said]
