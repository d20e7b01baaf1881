"""Threads of sandboxed code are bounded, those too that no library has started."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

from tfgrpo.tools import python_tool as tool
from tfgrpo.tools import sandbox, session_bounds
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
    text = asyncio.run(begun(code))
    if "counted" in words:
        assert "more than" in text or int(text) < 4000
    else:
        assert 8 <= int(text) <= MOST_THREADS
    until(lambda: not groups_left())


def groups_left() -> list[Path]:
    """The groups of this process after one more was made; threads that were killed end slowly."""
    if (group := session_bounds.open_group()) is None:
        return []
    group.close()
    names = f"{session_bounds.BEGINS}{os.getpid()}-*"
    return [path for parent in session_bounds._parents() for path in parent.glob(names)]


def test_a_group_that_had_a_process_when_it_was_closed_goes_with_the_next() -> None:
    group = session_bounds.open_group()
    if group is None:
        pytest.skip("no cgroup can be made here")
    foreign = group.path.with_name(f"{session_bounds.BEGINS}web.service")
    foreign.mkdir()
    process = subprocess.Popen(["sleep", "60"])
    try:
        other = session_bounds.open_group()
        assert other is not None
        assert group.path.exists(), "it is in use"
        assert group.take(process.pid)
        group.close()
        assert group.path.exists(), "it has a process"
        process.kill()
        process.wait()
        other.close()
        last = session_bounds.open_group()
        assert last is not None
        last.close()
        assert not group.path.exists()
        assert foreign.exists(), "somebody else's"
    finally:
        process.kill()
        process.wait()
        foreign.rmdir()


@LOOPS
def test_without_a_group_or_a_limit_threads_are_counted(
    wall: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "open_group", lambda: None)
    monkeypatch.setattr(sandbox, "open_group", lambda: None)
    words = str(sandbox.strength("auto"))
    if "RLIMIT_NPROC" in words:
        assert 8 <= int(asyncio.run(begun(code))) <= MOST_THREADS
        return

    code = code.replace("event.set()", "") + "import time; time.sleep(100)"
    assert f"more than {MOST_THREADS} threads" in asyncio.run(begun(code))


def test_a_group_whose_maker_is_gone_is_removed() -> None:
    group = session_bounds.open_group()
    if group is None:
        pytest.skip("no cgroup can be made here")
    group.close()
    parent = next(path for path in session_bounds._parents() if os.access(path, os.W_OK))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    left = Path(parent, f"{session_bounds.BEGINS}{ended.pid}-left")
    left.mkdir()
    again = session_bounds.open_group()
    assert again is not None
    again.close()
    assert not left.exists()


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


@pytest.fixture(params=["a cgroup", "RLIMIT_NPROC"])
def bound(request: pytest.FixtureRequest) -> Iterator[str]:
    """What is to bound the threads of another user, who has a group of his own or none."""
    group = session_bounds.open_group() if request.param == "a cgroup" else None
    if group is None and request.param == "a cgroup":
        pytest.skip("no cgroup can be made here")
    if group is None:
        yield "RLIMIT_NPROC"
        return
    for path in (group.path, *group.path.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    (group.path / "pids.max").write_text("max")
    yield str(group.path / "cgroup.procs")
    for left in group.path.glob(f"{session_bounds.BEGINS}*"):
        left.rmdir()
    group.close()


def test_hostile_code_of_another_user_is_held(
    other_user: list[str], bound: str, tmp_path: Path
) -> None:
    enters = [] if bound == "RLIMIT_NPROC" else ["sh", "-c", 'echo $$ > "$0"; exec "$@"', bound]
    python = [sys.executable, "-c", OTHER_USER, str(Path(__file__).parent)]
    done = subprocess.run([*enters, *other_user, *python], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    user, words, said = json.loads(done.stdout)
    assert user == NOBODY
    assert f"threads are bounded by {'a cgroup' if enters else bound}" in words
    for name in ("threads", "clones"):
        assert 8 <= int(said.pop(name)) <= MOST_THREADS
    held = [name for name, text in said.items() if "PermissionError" in text or "OSError" in text]
    assert held == [*said]
