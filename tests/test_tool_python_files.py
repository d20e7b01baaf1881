"""What untrusted code may fill: its scratch folder and its memory, and what it may answer.

Every test is run in bubblewrap, where that works, and behind the kernel's walls; with a file
system that the kernel bounds, where it may have one, and with a folder that is counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
from conftest import alive
from hypothesis import given
from hypothesis import strategies as st

from tfgrpo.store import Store
from tfgrpo.store.activity.journal import Journal
from tfgrpo.tools import python_tool, sandbox, session_bounds
from tfgrpo.tools.python_tool import LOST, Python
from tfgrpo.tools.sandbox import PythonLimits
from tfgrpo.tools.tool import Result
from tfgrpo.tools.tool_call_record import RecordedResult, ToolRecord

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")

LIMITS = PythonLimits(seconds=20.0, memory=1 << 29, output=4000, files=8 << 20, entries=500)
FULL = (
    "No space left on device",
    "MiB of files",
    "files and folders",
    "nested more than",
    "cannot be read",
)


@pytest.fixture(params=["bounded", "counted"])
def files(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, wall: str) -> str:
    """Has the kernel bound the files, or, as where it has no namespaces, has them counted."""
    if request.param == "counted":
        # Without /proc nobody can be anybody in a namespace, nor mount anything there.
        monkeypatch.setattr(python_tool, "open_proc", lambda: nullcontext(()))
    elif any(line.startswith("a bounded") for line in sandbox.strength("auto").lacks):
        pytest.skip("no file system of its own here, and strength says so")
    return str(request.param)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where scratch folders are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def run(*codes: str, limits: PythonLimits = LIMITS) -> list[Result]:
    """Runs codes one after the other in one session, on an event loop that must go on meanwhile."""

    async def session() -> list[Result]:
        longest = busiest = 0.0

        async def tick() -> None:
            nonlocal longest, busiest
            while True:
                before, worked = time.monotonic(), time.thread_time()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - before)
                busiest = max(busiest, time.thread_time() - worked)

        ticking = asyncio.create_task(tick())
        session = Python(limits=limits)
        try:
            results = [await session.call({"code": code}) for code in codes]
        finally:
            await session.close()
            ticking.cancel()
        assert longest < 5.0, "the event loop stood still"
        assert busiest < 1.0, "the event loop did the work"
        return results

    return asyncio.run(session())


# Files:


@pytest.mark.parametrize(
    "code",
    [
        "n = 0\nwhile True: open(f'f{n}', 'wb').write(b'x' * (4 << 20)); n += 1",
        "n = 0\nwhile True: os.mkdir(f'd{n}'); n += 1",
        "n = 0\nwhile True: os.symlink('x', f'l{n}'); n += 1",
        "open('f', 'w').close(); n = 0\nwhile True: os.link('f', f'h{n}'); n += 1",
        "while True: os.mkdir('d'); os.chdir('d')",
        "for _ in range(90): os.mkdir('d'); os.chdir('d')\n"
        "n = 0\nwhile True: open(f'f{n}', 'wb').write(b'x' * (4 << 20)); n += 1",
        "held = []\nwhile True:\n"
        "    held.append(open('f', 'wb', 0)); os.unlink('f'); held[-1].write(b'x' * (4 << 20))",
        "import mmap\nheld = []\nwhile True:\n"
        "    file = open('f', 'w+b'); os.unlink('f'); file.write(b'x' * (4 << 20)); file.flush()\n"
        "    held.append(mmap.mmap(file.fileno(), 0)); file.close()",
        "os.mkdir('d', 0o300); os.chdir('d'); n = 0\n"
        "while True: open(f'f{n}', 'wb').write(b'x' * (4 << 20)); n += 1",
    ],
    ids=["files", "folders", "links", "hard links", "nested", "far", "deleted", "mapped", "hidden"],
)
def test_endless_files_end(code: str, files: str, folder: Path) -> None:
    flood, after = run(f"import os\n{code}", "1 + 1")
    assert flood.failed
    assert any(words in flood.text for words in FULL), flood.text
    assert flood.text.endswith(LOST) == (files == "counted")
    assert after.text == "2"
    assert list(folder.iterdir()) == []
    assert alive(folder) == []


@pytest.mark.parametrize("depth", [3000])
def test_a_session_with_thousands_of_nested_folders_is_closed_and_removed(
    depth: int, files: str, folder: Path
) -> None:
    code = f"import os\nfor _ in range({depth}): os.mkdir('d', 0o300); os.chdir('d')"
    deep, after = run(code, "2", limits=PythonLimits(entries=10_000))
    assert deep.failed == (files == "counted"), deep.text
    assert after.failed == deep.failed or after.text == "2"
    assert list(folder.iterdir()) == []


def test_many_small_files_within_the_limits_are_nobodys_business(files: str, folder: Path) -> None:
    code = "import os\nfor n in range(200): open(f'f{n}', 'w').write('x')\nlen(os.listdir('.'))"
    written, listed = run(code, "len(os.listdir('.'))")
    assert (written.text, listed.text) == ("200", "200")


def build(folder: Path, depth: int) -> None:
    """Nests folders deeper than a path can be long."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)


def test_removal_follows_no_link_and_leaves_nothing(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    (outside / "kept").chmod(0o444)
    inside.mkdir()
    (inside / "hard").hardlink_to(outside / "kept")  # as `git clone` makes
    build(inside, 5000)
    build(inside / "d" / "d", 0)
    (inside / "0").mkdir()
    (inside / "0" / "1").mkdir()
    (inside / "d" / "0").symlink_to(outside)
    (inside / "link").symlink_to(outside)
    (inside / "closed").mkdir(0)
    os.mkfifo(inside / "pipe")
    session_bounds.remove_scratch(inside)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside"]
    assert (outside / "kept").stat().st_mode & 0o777 == 0o444
    linked = tmp_path / "linked"
    linked.symlink_to(outside)
    session_bounds.remove_scratch(linked)
    assert (outside / "kept").exists()


def test_counting_ends_however_deep_and_follows_no_link(tmp_path: Path) -> None:
    build(tmp_path, 5000)
    limits = {"size": 1 << 20, "entries": 10_000}
    with subprocess.Popen(["sleep", "600"]) as process:  # it holds no deleted file
        assert "nested" in str(session_bounds.excess(tmp_path, process.pid, **limits))
        assert "more than 50 files" in str(
            session_bounds.excess(tmp_path, process.pid, size=1 << 20, entries=50)
        )
        session_bounds.remove_scratch(tmp_path / "d")
        (tmp_path / "out").symlink_to("/usr/lib")
        assert session_bounds.excess(tmp_path, process.pid, **limits) is None
        assert session_bounds.excess(tmp_path / "gone", process.pid, **limits) is None
        process.kill()


# Memory:


@pytest.mark.usefixtures("wall")
@pytest.mark.parametrize(
    "code",
    [
        "import os\nheld = [os.memfd_create('x') for _ in range(9)]",
        "import ctypes\nassert ctypes.CDLL(None).memfd_create(b'x', 0) >= 0",
        "import socket\na, b = socket.socketpair()\nsocket.send_fds(a, [b'x'], [0, 1])",
        "import fcntl, os\nfcntl.fcntl(os.pipe()[1], 1031, 1 << 20)",
        "open('/dev/shm/x', 'wb').write(bytes(1 << 20))",
    ],
    ids=["memfd", "memfd by libc", "descriptors in flight", "large pipes", "/dev/shm"],
)
def test_no_memory_lies_outside_of_the_limit(code: str) -> None:
    held, after = run(code, "3")
    assert held.failed, held.text
    assert after.text == "3"


# The protocol:

FORGE = """
import os, sys, time
frame = sys._getframe()
while 'command' not in frame.f_locals: frame = frame.f_back
os.write(1, b'\\n' + frame.f_locals['command']['mark'].encode() + LINE + b'\\n')
time.sleep(60)
"""
UNREADABLE = {
    "no object": b"[]",
    "empty": b"{}",
    "a number": b'{"value": 5, "error": null}',
    "a list": b'{"value": null, "error": ["x"]}',
    "NaN": b'{"value": NaN, "error": null}',
    "half": b'{"value": "1", "err',
    "no text": b"\xff\xfe",
    "nothing": b"",
    "deep": b"[" * 100_000,
    "deep in it": b'{"error": null, "value": ' + b'{"a":' * 30_000,
    "long": b"7" * 5000,
}


@pytest.mark.usefixtures("wall")
@pytest.mark.parametrize("line", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_forged_line_is_a_failed_call(line: bytes) -> None:
    forge = f"LINE = bytes.fromhex({line[:10].hex()!r}) + bytes({list(line[10:200])})"
    if len(line) > 200:
        forge = f"LINE = {line[:40]!r} + {line[40:60]!r} * {(len(line) - 40) // 20}"
    forged, after = run(f"{forge}{FORGE}", "6 * 7")
    assert forged == Result(f"the interpreter gave no answer that can be read{LOST}", failed=True)
    assert after.text == "42"


@pytest.mark.usefixtures("wall")
def test_a_line_without_end_is_a_failed_call() -> None:
    forged, after = run(f"LINE = b'x' * (1 << 20){FORGE}", "6 * 7")
    assert forged.failed
    assert forged.text.endswith(LOST)
    assert after.text == "42"


@pytest.mark.usefixtures("wall")
def test_half_a_character_in_an_answer_can_be_kept() -> None:
    half, forged = run(
        "'\\ud800'", f'LINE = b\'{{"value": "\\\\\\\\ud800", "error": null}}\'{FORGE}'
    )
    for result in (half, forged):
        assert not result.failed
        result.text.encode()


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["value", "error", "x"]), inner, max_size=3)
    ),
)


@given(st.binary() | json_values.map(lambda value: json.dumps(value).encode()))
def test_whatever_an_interpreter_writes_is_an_outcome_or_a_value_error(line: bytes) -> None:
    try:
        value, error = python_tool.parse_outcome(line)
    except ValueError:
        return
    assert {type(value), type(error)} <= {str, type(None)}


@pytest.mark.usefixtures("wall")
def test_a_forged_call_is_on_record_and_resuming_replays_it(tmp_path: Path) -> None:
    async def twice() -> list[RecordedResult]:
        results = []
        with Store.init(tmp_path / "store.db") as store:
            journal = Journal(store.port.records.writer())
            for _ in range(2):
                record = ToolRecord(journal, store.runs, scope="run")
                session = Python(limits=LIMITS)
                for code in (f"LINE = b'{{}}'{FORGE}", "'alive'"):
                    results.append(await record.call(session, {"code": code}))
                await session.close()
            journal.close()
        return results

    first, alive_first, second, alive_second = asyncio.run(twice())
    assert (first.cached, second.cached) == (False, True)
    assert first.result == second.result
    assert first.result.failed
    assert alive_first.result == alive_second.result == Result("'alive'")
