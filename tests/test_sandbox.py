"""Which wall Python runs in, what bubblewrap holds off alone, and that it goes with its parent."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from conftest import ROOT, Cli, alive, bubblewrap_starts, environment
from waiting import until

from tfgrpo.tools import python_tool, sandbox
from tfgrpo.tools.python_tool import Python
from tfgrpo.tools.sandbox import PythonLimits, Sandbox, SandboxError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
with_bubblewrap = pytest.mark.skipif(
    sys.platform != "linux" or not bubblewrap_starts(), reason="no bubblewrap that works here"
)

BROKEN = {
    "refuses": "echo 'bwrap: No permissions to create new namespace' >&2; exit 1",
    "does nothing": "exit 0",
    "hangs": "sleep 60",
    "hangs and holds on": "trap '' TERM INT HUP; sleep 60 & wait",
    "prints garbage": "echo garbage",
    "never stops printing": "yes",
    "isolates nothing": 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"',
}
SCRIPT = """
import asyncio, sys
from tfgrpo.tools.python_tool import Python
from tfgrpo.tools.sandbox import PythonLimits

async def session():
    python = Python(limits=PythonLimits(seconds=60))
    for code in sys.argv[1:]:
        print((await python.call({"code": code})).text, flush=True)
    await asyncio.sleep(60 if len(sys.argv) == 2 else 0)
    await python.close()

asyncio.run(session())
"""


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The one folder where programs are looked for, and a sandbox that has not looked yet."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    sandbox.bubblewrap.cache_clear()
    yield folder
    sandbox.bubblewrap.cache_clear()


def fake(folder: Path, body: str) -> Path:
    """Puts a `bwrap` into a folder that does what a shell script says."""
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{body}\n")
    program.chmod(0o755)
    return program


def answer(sandbox: Sandbox, code: str = "1 + 1") -> str:
    """Returns what one call in a session of its own gives."""

    async def call() -> str:
        session = Python(sandbox=sandbox)
        try:
            return (await session.call({"code": code})).text
        finally:
            await session.close()

    return asyncio.run(call())


# The choice:


def test_what_holds_code_is_found_out_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And again when what it depends on has changed, or the record is no good."""
    found = []

    def strength(asked: str) -> sandbox.Strength:
        found.append(asked)
        return sandbox.Strength("kernel walls", ("a hold on this",))

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sandbox, "strength", strength)
    first = sandbox.known_strength()
    assert sandbox.known_strength() == first == strength("again")
    assert found == ["off", "again"]
    monkeypatch.setattr(sandbox.platform, "release", lambda: "another kernel")
    assert sandbox.known_strength() == first
    assert found == ["off", "again", "off"]
    for broken in ("", "[]", '{"conditions": 1}', "\x00"):
        (tmp_path / "tfgrpo" / "sandbox.json").write_text(broken)
        assert sandbox.known_strength() == first
    assert found == ["off", "again", *["off"] * 5]


def test_without_bubblewrap_code_is_confined_and_require_refuses(found: Path) -> None:
    assert sandbox.strength("auto").level == "kernel walls"
    assert answer("auto") == "2"
    with pytest.raises(SandboxError, match="needs bubblewrap, which does not work here") as refusal:
        answer("require")
    assert "install `bwrap`" in str(refusal.value.hint)


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
def test_a_bubblewrap_that_does_not_work_is_none(
    body: str, found: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake(found, body)
    with monkeypatch.context() as hurried:  # for the one that hangs; what follows is remembered
        hurried.setattr(sandbox, "PROBE_SECONDS", 1.0)
        assert sandbox.bubblewrap() is None
    assert sandbox.strength("auto").level == "kernel walls"
    assert answer("auto") == "2"
    for asked in (lambda: sandbox.strength("require"), lambda: answer("require")):
        with pytest.raises(
            SandboxError, match="needs bubblewrap, which does not work here"
        ) as refusal:
            asked()
        assert str(program) in str(refusal.value.hint)
    assert alive(program) == []


def test_a_file_named_bwrap_that_is_no_program_is_none(found: Path) -> None:
    program = found / "bwrap"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    assert sandbox.strength("auto").level == "kernel walls"


def test_a_sandbox_that_stops_working_later_is_an_error_of_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silent = ("exec sleep 60", "it printed nothing", 0.5)
    for body, told, patience in (silent, ("echo no space left", "no space", 60)):
        monkeypatch.setattr(python_tool, "START_SECONDS", patience)
        monkeypatch.setattr(sandbox, "bubblewrap", lambda body=body: (str(fake(tmp_path, body)),))
        with pytest.raises(SandboxError, match=f"the sandbox did not start: {told}"):
            answer("auto")
    assert alive(tmp_path) == []


def test_what_is_required_and_missing_is_refused_before_anything_is_paid_for(
    cli: Cli, found: Path, tmp_path: Path
) -> None:
    cli("init")
    (tmp_path / "problems.jsonl").write_text('{"problem": "1 + 1?", "answer": "2"}\n')
    asked = ["problems.jsonl", "--mode", "agent", "--sandbox", "require", "--model", "m"]
    asked += ["--base-url", "http://127.0.0.1:9/v1"]
    for verb in (["train"], ["eval"], ["compare"]):
        refused = cli(*verb, *asked, ok=False)
        assert refused.returncode == 1
        assert "--sandbox require needs bubblewrap" in refused.stderr
    for wall in ("auto", "off"):
        told = cli("train", *asked, "--sandbox", wall, "--estimate")
        assert told.stderr.count("not in bubblewrap; --sandbox require refuses that") == 1


@with_bubblewrap
def test_bubblewrap_is_used_where_it_works() -> None:
    sandbox.bubblewrap.cache_clear()
    assert sandbox.strength("auto") == sandbox.strength("require")
    assert sandbox.strength("auto").level == "bubblewrap"
    seen = answer("require", "import os; os.getpid() < 10, os.uname().nodename")
    assert seen == "(True, 'sandbox')"


# What bubblewrap holds off without the inner wall:


@pytest.mark.parametrize(
    "code",
    [
        "open(SECRET).read()",
        "open('/proc/1/root' + SECRET).read()",
        "os.listdir(TESTS)",
        "open('/etc/passwd').read()",
        "open('/proc/1/environ').read()",
        "os.listdir('/sys')",
        "open('/x', 'w')",
        "open('/tmp/x', 'w')",
        "open('/dev/x', 'w')",
        "open('/dev/shm/x', 'w')",
        "open(os.__file__, 'a')",
        "open(sys.executable, 'a')",
        "open(INTERPRETER, 'a')",
        "open('/dev/tty')",
        "open('/dev/ptmx')",
        "os.openpty()",
        "os.kill(PARENT, 0)",
        "os.sched_setaffinity(PARENT, {0})",
        "socket.create_connection(('127.0.0.1', PORT), 2)",
        "socket.socket(socket.AF_UNIX).connect('\\0tfgrpo-' + str(PARENT))",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "os.execv('/usr/bin/su', ['su'])",
        "os.execv('/bin/sh', ['sh'])",
        "check(libc.mount(b'x', SCRATCH, b'tmpfs', 0, 0))",
        "check(libc.mount(b'', b'/', b'', 4096 | 32, 0))",  # again, and writable
        "check(libc.umount2(SCRATCH, 2))",
        "check(libc.sethostname(b'x', 1))",
        "check(libc.ptrace(16, PARENT, 0, 0))",
        "os.mknod('sda', 0o060600, os.makedev(8, 0))",
        "os.chroot('.')",
    ],
)
@with_bubblewrap
def test_bubblewrap_alone_is_a_wall_too(code: str, tmp_path: Path) -> None:
    secret, scratch = tmp_path / "store.db", tmp_path / "scratch"
    secret.write_text("secret")
    scratch.mkdir()
    names = {
        "SECRET": str(secret),
        "TESTS": f"{ROOT}/tests",
        "INTERPRETER": str(sandbox.INTERPRETER),
    }
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as local:
        local.bind(f"\0tfgrpo-{os.getpid()}")
        local.listen()
        names |= {"PORT": server.getsockname()[1], "PARENT": os.getpid()}
        program = (
            "import ctypes, os, socket, sys\n"
            "libc = ctypes.CDLL(None, use_errno=True)\n"
            "def check(result):\n"
            "    if result: raise OSError(ctypes.get_errno(), 'refused')\n"
            f"SCRATCH = {str(scratch).encode()!r}\n"
            + "".join(f"{name} = {value!r}\n" for name, value in names.items())
            + "assert os.environ.keys() <= {'LANG', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS',"
            " 'MPLBACKEND', 'PWD'}\n"
            "os.chdir(SCRATCH); open('mine', 'w').write('x')\n"
            f"try: print('DONE', {code})\nexcept OSError as error: print('refused', error)\n"
        )
        ran = alone(scratch, program)
    assert re.match("refused .", ran.stdout), ran.stdout + ran.stderr
    assert (scratch / "mine").exists()


def alone(scratch: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in bubblewrap as the tool does, but for the confinement of its own."""
    whole = sandbox.command("require", scratch, PythonLimits(file_size=1 << 20), proc=-1)
    inner = [sys.executable, "-I", "-c", program]
    return subprocess.run(
        [*whole[: whole.index("--") + 1], *inner],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


# Wherever Python and the scratch folder are:


def test_a_scratch_folder_may_lie_behind_a_link(
    wall: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "link"))
    seen = answer("auto", "import os; open('a', 'w').write('x'); os.listdir(os.getcwd())")
    assert seen == "['a']"
    assert list((tmp_path / "real").iterdir()) == []


@pytest.mark.parametrize("linked", ["as it is", "behind a link", "a link to a link", "copied"])
def test_python_may_be_any_environments_and_shows_none_of_its_project(
    linked: str, wall: str, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    venv.create(project, symlinks=linked != "copied")
    (project / ".tfgrpo").mkdir()
    secret = project / ".tfgrpo" / "store.db"
    secret.write_text("secret")
    packages = next(project.glob("lib/python*/site-packages"))
    # The packages of this test's environment, and tfgrpo itself by the finder of its install:
    here = [path for path in sys.path if path.endswith("-packages")]
    (packages / "here.pth").write_text(
        "\n".join(f"import site; site.addsitedir({path!r})" for path in here)
    )
    program = project / "bin" / "python"
    if linked == "behind a link":
        (tmp_path / "link").symlink_to(project)
        program = tmp_path / "link" / "bin" / "python"
    elif linked == "a link to a link":
        middle = tmp_path / "middle"
        middle.symlink_to(os.path.realpath(program))
        program.unlink()
        program.symlink_to("../../middle")
    seen = "import sys, sympy; sys.prefix, str(sympy.sqrt(8))"
    code = f"open({str(secret)!r}).read()"
    ran = subprocess.run(
        [program, "-c", SCRIPT, seen, code],
        capture_output=True,
        text=True,
        check=False,
        env=of_wall(wall),
    )
    first, *rest = ran.stdout.splitlines()
    assert first.endswith("'2*sqrt(2)')"), ran.stdout + ran.stderr
    assert str(program.parent.parent) in first
    assert re.search("PermissionError|FileNotFoundError", "".join(rest))


def of_wall(wall: str) -> dict[str, str]:
    """Returns an environment in which a process chooses that wall."""
    return environment(**({} if wall == "bubblewrap" else {"PATH": "/nowhere"}))


# Whoever is killed:


@pytest.mark.parametrize(
    "code",
    [
        "'idle'",
        "import threading, sys\nprint('busy', flush=True)\n"
        "def work():\n    while True: pass\nthreading.Thread(target=work).start()",
        "import ctypes, os; ctypes.CDLL(None).prctl(1, 0, 0, 0, 0)",
    ],
)
def test_nothing_outlives_a_tfgrpo_that_is_killed(code: str, wall: str, tmp_path: Path) -> None:
    environment = of_wall(wall) | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, code], stdout=subprocess.PIPE, env=environment
    ) as parent:
        assert parent.stdout is not None
        try:
            assert parent.stdout.readline()
            assert len(alive(tmp_path)) == (3 if wall == "bubblewrap" else 1)
        finally:
            parent.kill()
    until(lambda: not alive(tmp_path))


# What a person is told:


def test_status_names_the_level(cli: Cli) -> None:
    cli("init")
    for path in ({}, {"PATH": "/nowhere"}):
        told = json.loads(cli("status", "--json", env=path).stdout)["sandbox"]
        assert told["level"] in ("bubblewrap", "kernel walls")
        assert (told["level"] == "bubblewrap") == (not path and bubblewrap_starts())
        line = " ".join(cli("status", env=path).stdout.split())
        assert f"sandbox for agents' Python: {told['level']}" in line
        assert all(what in line for what in told["lacks"])


def test_a_system_that_holds_nothing_is_no_sandbox_and_refused(
    found: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = json.dumps({"missing": ["files", "system calls"], "lacks": []})
    start = [sys.executable, "-I", "-c", f"print({first!r})"]
    monkeypatch.setattr(sandbox, "command", lambda *options: start)
    assert str(sandbox.strength("off")) == "no sandbox (no hold on files, system calls)"
    with pytest.raises(SandboxError, match="no hold on files, system calls"):
        sandbox.strength("auto")


def test_what_a_kernel_lacks_is_named(found: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "open_proc", lambda: nullcontext(()))
    told = sandbox.strength("auto")
    assert told.level == "kernel walls"
    assert "names, sizes and times of files outside can be read" in str(told)
    assert "files are counted while code runs" in str(told)
