"""What a list of forbidden calls let through, and that the list of allowed ones does not.

Every test is run in bubblewrap, where that works, and behind the kernel's walls alone.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import refused_here
from test_tool_python import GONE, SHORT, refused, run

from tfgrpo.tools import confine, sandbox

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's"),
    pytest.mark.skipif(
        platform.machine() not in confine.AUDIT_ARCH, reason="the filter has no numbers for it"
    ),
]

CALL = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def check(result):
    if result < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
"""
IPC_CREAT, IPC_RMID = 0o1000, 0
PROBES = (335, 336) if platform.machine() == "x86_64" else ()
"""Calls that kernels answer before any filter: whoever makes them uninvited is killed by SIGILL."""


def numbers() -> dict[str, int]:
    """The numbers of all calls that pass, with any arguments or with some."""
    pairs = {**confine.ALLOWED, **{rule.name: rule.numbers for rule in confine.rules()}}
    column = confine.column()
    return {name: n for name, pair in pairs.items() if (n := pair[column]) is not None}


# What a file is beside its contents:


@pytest.mark.usefixtures("wall")
@pytest.mark.parametrize(
    "code",
    [
        "os.chmod(FILE, 0o4755)",
        "os.fchmod(os.open(FILE, os.O_RDONLY), 0o4755)",
        "check(libc.syscall(452, -100, FILE.encode(), 0o4755, 0))",  # fchmodat2
        "os.utime(FILE, (1, 1))",
        "os.utime(os.open(FILE, os.O_RDONLY), (1, 1))",
        "os.setxattr(FILE, 'user.x', b'1')",
        "os.chown(FILE, os.getuid(), os.getgid())",
        "os.truncate(FILE, 0)",
        "os.open(FILE, os.O_RDONLY | os.O_TRUNC)",
        "os.open(FILE, os.O_ACCMODE | os.O_TRUNC)",
    ],
)
@pytest.mark.parametrize("where", ["outside", "python's own"])
def test_nothing_about_a_file_outside_can_be_changed(code: str, where: str, tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    if where == "python's own":
        path = Path(pytest.__file__).parent / "py.typed"
    else:
        path.write_text("secret")
    before = path.stat()
    refused(CALL + f"FILE = {str(path)!r}\n{code}", words=GONE)
    after = path.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_size,
    )
    assert os.listxattr(path) == []


# What is shared by number, and not by name:


@pytest.fixture
def shared() -> Iterator[dict[str, int]]:
    """A message queue, a shared memory and a semaphore that anybody may use."""
    libc = ctypes.CDLL(None, use_errno=True)
    made = {
        "queue": libc.msgget(0, IPC_CREAT | 0o666),
        "memory": libc.shmget(0, ctypes.c_size_t(4096), IPC_CREAT | 0o666),
        "semaphore": libc.semget(0, 1, IPC_CREAT | 0o666),
    }
    if min(made.values()) < 0:
        pytest.skip("this kernel has no System V IPC")
    yield made
    libc.msgctl(made["queue"], IPC_RMID, None)
    libc.shmctl(made["memory"], IPC_RMID, None)
    libc.semctl(made["semaphore"], 0, IPC_RMID)


@pytest.mark.usefixtures("wall")
@pytest.mark.parametrize(
    "code",
    [
        "check(libc.msgsnd(QUEUE, bytes([1]) + bytes(15), 8, 0o4000))",
        "check(libc.msgctl(QUEUE, 0, None))",
        "libc.shmat.restype = ctypes.c_long; check(libc.shmat(MEMORY, None, 0))",
        "check(libc.shmctl(MEMORY, 0, None))",
        "check(libc.semop(SEMAPHORE, bytes([0, 0, 1, 0, 0, 0]), 1))",
        "check(libc.semctl(SEMAPHORE, 0, 0))",
        "check(libc.msgget(0, 0o1666)); check(libc.shmget(0, ctypes.c_size_t(9), 0o1666))",
        "check(libc.syscall(240, b'tfgrpo', 0o102, 0o666, None))",
    ],
)
def test_nothing_is_reached_by_number(code: str, shared: dict[str, int]) -> None:
    names = "".join(f"{name.upper()} = {number}\n" for name, number in shared.items())
    refused(CALL + names + code, words=("OSError", *GONE))


@pytest.mark.usefixtures("wall")
@pytest.mark.parametrize(
    "code",
    [
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); a.sendto(b'x', NAME)",
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET); a.sendto(b'x', NAME)",
        "a, b = socket.socketpair(); a.sendto(b'x', NAME)",
        "a, b = socket.socketpair(); a.connect(NAME)",
        "a, b = socket.socketpair(); a.bind('\\0tfgrpo-inside')",
        "a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [1])",
        "a, b = socket.socketpair(); a.sendmsg([b'x'])",
        "a, b = socket.socketpair(); a.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)",
    ],
)
def test_a_pair_of_sockets_leads_nowhere_else(code: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outside:
        outside.bind(name := f"\0tfgrpo-{os.getpid()}")
        refused(f"import socket\nNAME = {name!r}\n{code}", words=("PermissionError",))
        outside.settimeout(0.05)
        with pytest.raises(TimeoutError):
            outside.recv(1)


@pytest.mark.usefixtures("wall")
def test_an_event_loop_and_threads_work() -> None:
    code = (
        "import asyncio, concurrent.futures, ctypes, sqlite3, tempfile, time\n"
        "async def main():\n"
        "    return await asyncio.gather(*(asyncio.to_thread(lambda n=n: n * n) for n in (2, 3)))\n"
        "with tempfile.TemporaryDirectory() as folder:\n"
        "    db = sqlite3.connect(folder + '/a.db')\n"
        "    db.execute('create table t (n)'); db.execute('insert into t values (1)')\n"
        "    db.commit()\n"
        "double = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: 2 * n)\n"
        "asyncio.run(main()), double(4), time.sleep(0.01)"
    )
    assert run(code)[0].text == "([4, 9], 8, None)"


# Watching, and having others signalled:


@pytest.mark.usefixtures("wall")
@pytest.mark.parametrize(
    "code",
    [
        "check(libc.inotify_init())",
        "check(libc.inotify_init1(0))",
        "check(libc.fanotify_init(0x200, 0))",
        "import fcntl; fcntl.fcntl(os.open('.', os.O_RDONLY), fcntl.F_NOTIFY, 2)",
        "import fcntl; fcntl.fcntl(os.open('f', os.O_CREAT), fcntl.F_SETLEASE, 0)",
        "import fcntl; fcntl.fcntl(os.pipe()[0], fcntl.F_SETSIG, 9)",
        "import fcntl, struct\n"
        "fcntl.ioctl(os.pipe()[0], 0x8901, struct.pack('i', os.getppid()))",  # FIOSETOWN
        "import fcntl; fcntl.ioctl(os.pipe()[0], 0x5452, struct.pack('i', 1))",  # FIOASYNC
        "check(libc.syscall(303, -100, b'/etc/passwd', bytes(200), bytes(8), 0))",
        "os.statvfs('/')",
        "os.memfd_create('x')",
        "check(libc.syscall(447, 0))",  # memfd_secret
        "os.nice(1)",
        "check(libc.syscall(162))",  # sync
    ],
)
def test_what_no_calculation_needs_is_refused(code: str) -> None:
    refused(CALL + "import struct\n" + code, words=("PermissionError", "OSError"))


# The lists themselves:


@pytest.mark.usefixtures("wall")
def test_every_system_call_that_is_not_listed_is_refused_whatever_its_number() -> None:
    passing = sorted([*numbers().values(), *PROBES])
    code = CALL + (
        "def passes(n):\n"
        "    return libc.syscall(ctypes.c_long(n), *[ctypes.c_long(-1)] * 6) != -1"
        " or ctypes.get_errno() not in (1, 38)\n"
        f"[n for n in [*range(1024), *range(1 << 30, (1 << 30) + 600), -1, 1 << 31]"
        f" if n not in {passing} and passes(n)]"
    )
    assert run(code)[0].text == "[]"


@pytest.mark.usefixtures("wall")
@pytest.mark.parametrize(
    ("name", "at", "values", "listed"),
    [
        ("fcntl", 1, "range(2048)", confine.FCNTL),
        ("ioctl", 1, "[*range(0x5400, 0x5500), *range(0x8900, 0x8a00), 0]", confine.IOCTL),
        ("prctl", 0, "[*range(1, 100), 0x53564d41, 0x59616d61]", confine.PRCTL),
    ],
)
def test_of_calls_with_commands_those_listed_pass_alone(
    name: str, at: int, values: str, listed: tuple[int, ...]
) -> None:
    arguments = "n, 0, 0, 0" if at == 0 else "-1, n, 0, 0"
    code = CALL + (
        f"[n for n in {values} if n not in {listed}"
        f" if libc.syscall({numbers()[name]}, {arguments}) != -1 or ctypes.get_errno() != 1]"
    )
    assert run(code)[0].text == "[]"


@pytest.mark.usefixtures("wall")
@pytest.mark.parametrize(
    "flags", [0, 17, 0x10000 | 0x10000000, 0x10000 | 0x00020000, 0x10000 | 0x80, 0x50F00 ^ 1]
)
def test_clone_makes_threads_of_this_process_and_nothing_else(flags: int) -> None:
    code = CALL + f"check(libc.syscall({numbers()['clone']}, {flags}, 0, 0, 0, 0))"
    if flags & 0x10000 and not flags & ~0x017D0F00:
        pytest.skip("that is a thread")
    refused(code)


def verdict(code: list[bytes], number: int, *arguments: int, machine: str) -> int:
    """Runs a filter as the kernel does, and returns what it answers to a call."""
    padded = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, confine.AUDIT_ARCH[machine], 0, *padded)
    at, value = 0, 0
    while True:
        kind, yes, no, constant = struct.unpack("HBBI", code[at])
        at += 1
        if kind == 0x20:
            (value,) = struct.unpack_from("<I", data, constant)
        elif kind == 0x54:
            value &= constant
        elif kind == 0x15:
            at += yes if value == constant else no
        elif kind == 0x35:
            at += yes if value >= constant else no
        else:
            assert kind == 0x06
            return int(constant)


@pytest.mark.parametrize("machine", sorted(confine.AUDIT_ARCH))
def test_the_filter_of_every_machine_lets_through_its_list_and_nothing_else(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    code = confine.program()
    assert len(code) < 4096
    column = confine.column()
    listed = {pair[column] for pair in confine.ALLOWED.values()} - {None}
    with_rules = {rule.numbers[column] for rule in confine.rules()} - {None}
    assert not listed & with_rules
    for number in range(-2, 2048):
        allowed = verdict(code, number, *[(1 << 64) - 1] * 6, machine=machine) == confine.ALLOW
        assert allowed == (number in listed), number
    for rule in confine.rules():
        number = rule.numbers[column]
        if number is None:
            continue
        arguments = [0] * 6
        for check in rule.checks:
            at, shift = divmod(check.offset - 16, 8)
            arguments[at] |= check.values[0] << 8 * shift
        assert verdict(code, number, *arguments, machine=machine) == confine.ALLOW, rule
        for check in rule.checks:  # each of them counts
            at, shift = divmod(check.offset - 16, 8)
            wrong = list(arguments)
            wrong[at] ^= check.mask << 8 * shift
            assert verdict(code, number, *wrong, machine=machine) != confine.ALLOW, check


# Old kernels:


def confined(code: str, scratch: Path, *, abi: int, namespaces: bool, readable: Path) -> str:
    """Runs code in a process confined as an older kernel would have it; returns what it printed."""
    if reason := refused_here():
        pytest.skip(reason)
    paths, links = sandbox._visible_paths()
    program = (
        f"import errno, os, sys\nsys.path.insert(0, {str(sandbox.INTERPRETER.parent)!r})\n"
        "import confine\ndel sys.path[0]\n"
        f"confine.landlock_abi = lambda: {abi}\n"
        "def none(plan): raise OSError(errno.EPERM, 'no namespaces')\n"
        f"if not {namespaces}: confine.enter_namespaces = none\n"
        f"plan = confine.Plan({str(scratch)!r}, 1 << 29, 1 << 20, 1 << 20, 100,"
        f" os.open('/proc', os.O_RDONLY), {[*paths, str(readable)]!r}, {links!r})\n"
        f"print(confine.confine(plan, [*confine.python_files(), {str(readable)!r}]))\n"
        f"os.chdir(plan.scratch)\n{CALL}\n"
        f"try: exec({code!r}); print('DONE')\n"
        "except OSError as error: print('refused', error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program], capture_output=True, text=True, check=False
    )
    assert ran.stdout, ran.stderr
    return ran.stdout


def abis() -> range:
    try:
        return range(1, confine.landlock_abi() + 1)
    except (OSError, AttributeError):
        return range(0)


@pytest.mark.parametrize("namespaces", [True, False])
@pytest.mark.parametrize("abi", abis() or [pytest.param(0, marks=pytest.mark.skip("no Landlock"))])
def test_no_older_landlock_makes_a_hole(abi: int, namespaces: bool, tmp_path: Path) -> None:
    scratch, readable = tmp_path / "scratch", tmp_path / "library"
    scratch.mkdir()
    readable.mkdir()
    (readable / "file").write_text("code")
    for code in (
        "import os; os.truncate(FILE, 0)",
        "import os; os.open(FILE, os.O_RDONLY | os.O_TRUNC)",
        "import os; os.open(FILE, os.O_ACCMODE | os.O_TRUNC)",
        "open(FILE, 'a')",
        "import os; os.remove(FILE)",
        "import os; os.rename(FILE, 'mine')",
        "import os; os.link(FILE, 'mine')",
        "import os; os.chmod(FILE, 0o4755)",
        "import fcntl, os, struct\nfd = os.pipe()[0]\n"
        "fcntl.ioctl(fd, 0x8901, struct.pack('i', os.getppid()))",
        "import fcntl, os; fcntl.ioctl(os.open('/dev/null', 2), 0x1234, b'1234')",
        "import socket; socket.socket()",
        "import os; os.kill(os.getppid(), 0)",
    ):
        told = confined(
            code.replace("FILE", repr(str(readable / "file"))),
            scratch,
            abi=abi,
            namespaces=namespaces,
            readable=readable,
        )
        assert "missing=[]" in told
        assert "refused" in told, (code, told)
    assert (readable / "file").read_text() == "code"
    assert (readable / "file").stat().st_mode & 0o7777 == 0o644 & ~os.umask(os.umask(0o22))


def test_a_kernel_without_namespaces_is_said_to_lack_them(tmp_path: Path) -> None:
    told = confined("pass", tmp_path, abi=1, namespaces=False, readable=tmp_path)
    assert "names, sizes and times of files outside can be read" in told
    assert "files are counted while code runs" in told
    if not abis():
        pytest.skip("no Landlock")
    assert "missing=[]" in told


@pytest.mark.usefixtures("wall")
def test_no_name_outside_can_be_seen(tmp_path: Path) -> None:
    if any(line == confine.NO_ROOT for line in sandbox.strength("auto").lacks):
        pytest.skip("no namespaces here: names can be seen, and strength says so")
    secret = tmp_path / "store.db"
    secret.write_text("secret")
    for path in (secret, tmp_path, "/etc/passwd", "/proc/1", "/sys", Path.home() / ".ssh"):
        seen = run(f"import os; os.path.lexists({str(path)!r})", limits=SHORT)[0]
        assert seen.text == "False", path
